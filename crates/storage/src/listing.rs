//! The blocks of a data folder as its manifest names them, for people to look at.
//!
//! Nothing is locked or changed: a server may use the folder. What it replaces meanwhile is read
//! once more.

use crate::blocks::{BlockKind, BlockList};
use crate::data_dir;
use crate::error::StorageError;
use firn_model::env::Env;
use firn_model::sample::TimeRange;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Times that a list is read again which went away meanwhile.
const ATTEMPTS: usize = 10;

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBlock {
    /// Its name, a ULID.
    pub id: String,
    /// From its oldest sample to its newest.
    pub range: TimeRange,
    /// How many samples it has.
    pub samples: u64,
    /// How many series it has.
    pub series: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Whether all of it came late or by an import.
    pub is_late: bool,
    /// Whether it was found damaged.
    pub is_bad: bool,
    /// How often its samples were merged.
    pub level: u32,
}

impl ListedBlock {
    /// Its folder in the data folder at `root`.
    pub fn folder(&self, root: &Path) -> PathBuf {
        root.join(data_dir::BLOCKS).join(&self.id)
    }
}

/// The blocks of the data folder at `root`, the oldest first.
pub fn list(env: &Env, root: &Path) -> Result<Vec<ListedBlock>, StorageError> {
    let disk = &*env.disk;
    if !data_dir::has_format(disk, root) {
        return Err(StorageError::NoData {
            path: root.to_path_buf(),
        });
    }
    let folder = root.join(data_dir::BLOCKS);
    // A folder of a format before has none.
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
