//! The seam between a store and a place outside of its data folder that keeps its blocks.
//!
//! ```text
//! cut, flush, merge, retention -> Blocks::commit -> BlockHome::publish: upload, COMMIT -> new view
//! start: BlockHome::restored -> block list, catalogue -> replay of the log from there
//! ```
//!
//! Invariants: a block is published only after all its files are complete in the data folder, and
//! it is read by others only after [`BlockHome::publish`] returned; the log before
//! [`HomeCommit::covered`] is not needed together with the blocks and the catalogue of the home.
//!
//! A home leaves to its store: which blocks there are, and up to where they cover the log. A store
//! leaves to its home: names of objects, the deletion of blocks that were removed, and the trimming
//! of the log.

pub use super::home_disk::HomeDisk;
pub use super::list::{BlockEntry, BlockKind};
pub use crate::error::HOME_FAULT;

use crate::block::BlockId;
use firn_model::env::DiskFile;
use firn_model::error::Error;
use firn_model::log::LogPosition;
use firn_model::sample::TimestampMs;
use std::path::PathBuf;
use std::sync::Arc;

/// The state from which a store starts, together with the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredHome {
    /// Blocks own the in-order samples before this time; `i64::MIN` without a block.
    pub cut: TimestampMs,
    /// Blocks contain the late samples of all records up to and including this position.
    pub late_through: LogPosition,
    /// The position of the first record that a replay needs.
    pub replay_from: LogPosition,
    /// The blocks, in any order.
    pub blocks: Vec<BlockEntry>,
    /// The series of the log before `replay_from`, as the store wrote them; empty without a
    /// checkpoint.
    pub catalogue: Vec<u8>,
}

impl Default for RestoredHome {
    /// Returns the state of a log that no block covers.
    fn default() -> Self {
        Self {
            cut: i64::MIN,
            late_through: LogPosition(0),
            replay_from: LogPosition(1),
            blocks: Vec::new(),
            catalogue: Vec::new(),
        }
    }
}

/// A change of the block list, and how much of the log the list covers after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeCommit {
    /// See [`RestoredHome::cut`].
    pub cut: TimestampMs,
    /// See [`RestoredHome::late_through`].
    pub late_through: LogPosition,
    /// New blocks, with the folders that contain their files.
    pub added: Vec<(BlockEntry, PathBuf)>,
    /// Blocks of earlier commits that are no longer needed. Readers may still hold them.
    pub removed: Vec<BlockId>,
    /// The blocks contain all samples of the records before this position.
    pub covered: LogPosition,
}

/// Returns the series of the store, encoded for [`RestoredHome::catalogue`]. Contains at least all
/// series that occur in the log and were created before the call.
pub type CatalogueSource = Box<dyn Fn() -> Result<Vec<u8>, Error> + Send + Sync>;

/// The place that keeps the blocks of one store and the list of them. All methods may block; the
/// store calls them from its background thread, one at a time.
pub trait BlockHome: Send + Sync {
    /// Returns the state at the start. The store calls it once, before it reads the log.
    fn restored(&self) -> RestoredHome;

    /// Sets the source of catalogues, before the first call of [`BlockHome::publish`].
    fn set_catalogue_source(&self, source: CatalogueSource);

    /// Uploads the added blocks and makes the change durable. On an error, the change has not taken
    /// effect and never will, or this process has lost the log.
    ///
    /// # Errors
    ///
    /// The bucket does not answer, or another process writes the log.
    fn publish(&self, commit: &HomeCommit) -> Result<(), Error>;

    /// Does work that is due: repeats a checkpoint that failed, deletes garbage. The store calls it
    /// once a second.
    fn run_maintenance(&self);

    /// Returns the files of the blocks in the home, which the store reads where its folder lacks
    /// them.
    fn files(&self) -> Arc<dyn HomeFiles>;
}

/// The files of blocks in a home.
pub trait HomeFiles: Send + Sync {
    /// Opens a file of a block for reading. Returns `None` if the home has no such file.
    fn open(&self, block: BlockId, name: &str) -> Option<Arc<dyn DiskFile>>;

    /// Returns the names of the files of a block, or `None` if the home does not have the block.
    fn list(&self, block: BlockId) -> Option<Vec<String>>;
}
