//! The head: the newest samples of every series in memory, in shards by the fingerprint of the
//! series.
//!
//! A shard owns its series behind one mutex, which is held for a slice of a batch or of a copy and
//! never during IO. Invariant: a shard applies batches in the order of their sequence numbers, so
//! the samples of a series that a reader must not see yet are always its newest ones (see
//! [`watermark`]). Samples that a series cannot append in order are stored beside its chunks, each
//! with the sequence number of its batch ([`late`]).

pub(crate) mod changes;
pub(crate) mod copies;
pub(crate) mod late;
pub(crate) mod places;
pub(crate) mod series;
pub(crate) mod shard;
pub(crate) mod slabs;
pub(crate) mod table;
pub(crate) mod vacancies;
pub(crate) mod watermark;
