//! The write-ahead log, its checkpoints and the log of what came out of order: segments of records
//! (`tsdb/docs/format/wal.md` upstream).

mod compression;
mod entry;
mod histogram;
mod reader;
#[cfg(test)]
pub(super) mod tests;

pub use entry::{Entries, Entry};
pub use reader::{Tail, WalReader};
