//! Lists the blocks of a data folder according to its manifest, for display.
//!
//! Nothing is locked or changed, so a server may use the folder. A manifest that the server
//! replaces in the meantime is read again.

use crate::blocks::{BlockKind, BlockList};
use crate::data_dir;
use crate::error::StorageError;
use firn_model::env::Env;
use firn_model::sample::TimeRange;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Maximum number of attempts to read a manifest that is replaced in the meantime.
const ATTEMPTS: usize = 10;

/// A block in the list, as described by the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBlock {
    /// Id of the block, a ULID.
    pub id: String,
    /// Time range from its oldest sample to its newest one.
    pub range: TimeRange,
    /// Number of samples in the block.
    pub samples: u64,
    /// Number of series with a sample in the block.
    pub series: u64,
    /// Size of its files in bytes.
    pub bytes: u64,
    /// True if all of its samples were late or imported.
    pub is_late: bool,
    /// True if the block is marked as damaged.
    pub is_bad: bool,
    /// 1 for a block from a cut, a flush or an import, plus one for each merge.
    pub level: u32,
}

impl ListedBlock {
    /// Returns the folder of the block in the data folder at `root`.
    pub fn folder(&self, root: &Path) -> PathBuf {
        root.join(data_dir::BLOCKS).join(&self.id)
    }
}

/// Returns the blocks of the data folder at `root`, oldest first. Fails if `root` is not a data
/// folder.
pub fn list(env: &Env, root: &Path) -> Result<Vec<ListedBlock>, StorageError> {
    let disk = &*env.disk;
    if !data_dir::has_format(disk, root) {
        return Err(StorageError::NoData {
            path: root.to_path_buf(),
        });
    }
    let folder = root.join(data_dir::BLOCKS);
    // A folder of an older format has no blocks.
    if disk
        .list(&folder)
        .is_err_and(|e| e.kind() == ErrorKind::NotFound)
    {
        return Ok(Vec::new());
    }
    let mut found = BlockList::read(disk, &folder);
    for _ in 1..ATTEMPTS {
        match &found {
            Err(StorageError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                found = BlockList::read(disk, &folder);
            }
            _ => break,
        }
    }
    let mut blocks = found?.list.blocks;
    blocks.sort_by_key(|block| (block.range.min, block.range.max, block.id));
    let listed = blocks.into_iter().map(|block| ListedBlock {
        id: block.id.to_string(),
        range: block.range,
        samples: block.samples,
        series: block.series,
        bytes: block.bytes,
        is_late: block.kind == BlockKind::Late,
        is_bad: block.is_bad,
        level: block.level,
    });
    Ok(listed.collect())
}
