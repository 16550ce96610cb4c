//! Reads the WAL, its checkpoints and the out-of-order log: segments of records
//! (`tsdb/docs/format/wal.md` in upstream).

mod compression;
mod entry;
mod histogram;
mod reader;
#[cfg(test)]
pub(super) mod tests;

pub use entry::{WalEntries, WalEntry};
pub use reader::{WalReader, WalTailPolicy};
