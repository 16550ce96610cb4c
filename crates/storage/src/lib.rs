//! The local store: log, head and active index. Sync; no tokio, no HTTP.

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
pub mod verify;
