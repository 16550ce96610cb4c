//! The head: the newest samples of every series, in shards by the hash of their labels.
//!
//! A shard owns its series, behind one mutex that is held for a slice of a batch or of a copy and
//! never for IO. Invariant: in a shard, batches are applied in the order of their sequence numbers,
//! so what a reader must not see yet of a series is its newest samples (see [`watermark`]).
//! Samples that a series cannot append in order stand beside its chunks, each with the number of
//! its batch ([`late`]).

pub(crate) mod copies;
pub(crate) mod late;
pub(crate) mod places;
pub(crate) mod series;
pub(crate) mod shard;
pub(crate) mod slabs;
pub(crate) mod table;
pub(crate) mod vacancies;
pub(crate) mod watermark;
