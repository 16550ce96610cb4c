//! The head: the newest samples of every series, in shards by the hash of their labels.
//!
//! A shard owns its series, behind one mutex that is held for a slice of a batch or of a copy and
//! never for IO. Invariant: in a shard, batches are applied in the order of their sequence numbers,
//! so what a reader must not see yet of a series is its newest samples (see [`watermark`]).

pub(crate) mod copies;
pub(crate) mod series;
pub(crate) mod shard;
pub(crate) mod slabs;
pub(crate) mod table;
pub(crate) mod watermark;
