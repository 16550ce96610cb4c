//! Firn's storage engine: a crash-safe store of the samples of one tenant in one data folder.
//!
//! A [`store::Store`] appends batches of samples to the head in memory and to the write-ahead log
//! (WAL), moves them into compressed pages and later into immutable blocks, and selects series by
//! label matchers and time range. The other crates of Firn use it through the traits
//! [`firn_model::store::Append`] and [`firn_model::store::Select`].
//!
//! ```text
//! append  -> head (memory), hidden -> log (WAL), synced -> visible and acked
//!            |
//!            v  sealing, 32 minutes of data time
//!          pages -> cut, 2 hours of data time -> blocks -> compaction -> larger blocks
//!
//! select  -> index: matchers to series -> head, pages and blocks, merged by time
//! startup -> replay: catalogue, pages, then the log after them -> head and index
//! ```
//!
//! # Principal types
//!
//! - [`store::Store`] with [`store::StoreOptions`]: opens, closes, appends, selects, takes
//!   snapshots.
//! - [`log::LocalLog`]: the WAL, an implementation of [`firn_model::log::DurableLog`].
//! - [`page::Page`] and [`page::PageBuilder`]: compressed samples of many series over a window.
//! - [`block::Block`] and [`block::BlockWriter`]: an immutable folder of samples with its own
//!   index.
//! - [`import::Target`]: writes samples of any age directly into blocks.
//! - [`verify::verify`], [`repair::repair`], [`snapshot::take`] and [`list_namespaces::list`]:
//!   tools for a data folder that no server uses; `listing` also works beside a running one.
//! - [`error::StorageError`] and [`damage::Damage`]: errors of a call, and damage found on disk.
//!
//! The modules have one order, in which each uses only earlier ones; `docs/ARCHITECTURE.md` lists
//! them. `docs/format` describes all files byte by byte.
//!
//! # Guarantees
//!
//! Every later reader finds an acked batch, also after a restart and, with
//! [`store::StoreSyncMode::Always`], after a power loss. Readers see a batch in full or not
//! at all. Damaged bytes cost only the samples in them: the loss is reported, affected queries
//! return a warning, and everything else remains available. All time, randomness, threads and disk
//! access come from [`firn_model::env::Env`], so a test can replay any crash from its seed.
//!
//! # Not in this crate
//!
//! The crate does not parse or evaluate PromQL, speak HTTP, decode exposition formats or remote
//! write, scrape targets, or replicate data. It has no async code, and it serves one tenant per
//! store.

pub(crate) mod append;
pub mod block;
pub(crate) mod blocks;
pub(crate) mod catalogue;
pub(crate) mod chunk;
pub mod damage;
pub mod data_dir;
pub(crate) mod encoding;
pub mod error;
pub(crate) mod exemplars;
pub(crate) mod failpoints;
pub(crate) mod fan_out;
pub(crate) mod file;
pub(crate) mod head;
pub mod ids;
pub mod import;
pub(crate) mod index;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
pub mod listing;
pub mod log;
pub(crate) mod lookup;
pub(crate) mod maintenance;
pub(crate) mod manifest;
pub mod page;
pub(crate) mod parts;
#[cfg(test)]
#[path = "../tests/payload/mod.rs"]
mod payload;
pub(crate) mod prefetch;
pub(crate) mod read;
pub mod repair;
pub(crate) mod replay;
pub(crate) mod sealed;
#[cfg(test)]
#[path = "../tests/seeds/mod.rs"]
mod seeds;
pub mod snapshot;
pub mod store;
pub(crate) mod sync;
pub(crate) mod tombstones;
pub mod verify;

pub use blocks::home;
