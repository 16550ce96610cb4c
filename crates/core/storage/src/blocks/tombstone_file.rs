//! The file with the tombstones of a manifest of blocks.
//!
//! ```text
//! TOMBSTONES-<version>-<checksum>    written under a temporary name, synced, renamed; then the
//!                                    manifest of this version, which contains its checksum
//! ```
//!
//! Invariant: a manifest that a start may find has its file. After a failed commit that may be the
//! manifest of that commit, while the next attempt writes another one with the same version.
//! Therefore the name contains the checksum, and unused files are removed only after a commit.

use crate::damage::{Damage, DamageKind};
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::tombstones::{self, StoreTombstones};
use firn_model::env::{Disk, DiskFile, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "TOMBSTONES-";

const TEMPORARY: &str = "TOMBSTONES.tmp";

/// Maximum size of the file: tombstones of 100 million series that have no neighbours.
const BYTES_MAX: u64 = 2 << 30;

/// Size and checksum of a file with tombstones, as its manifest contains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TombstoneFileEntry {
    pub(super) bytes: u64,
    /// CRC-32C of the whole file.
    pub(super) sum: u32,
}

impl TombstoneFileEntry {
    fn from_bytes(encoded: &[u8]) -> Self {
        Self {
            bytes: encoded.len() as u64,
            sum: crc32c::crc32c(encoded),
        }
    }

    /// Returns the name of the file that belongs to the manifest of this version.
    pub(super) fn file_name(self, version: u64) -> PathBuf {
        PathBuf::from(format!("{PREFIX}{version}-{:08x}", self.sum))
    }

    /// Writes the file of a manifest and syncs it. Its name becomes durable with that of the
    /// manifest.
    pub(super) fn write(
        set: &StoreTombstones,
        disk: &dyn Disk,
        dir: &Path,
        version: u64,
    ) -> io::Result<Self> {
        let temporary = dir.join(TEMPORARY);
        let bytes = tombstones::encode(set);
        let file = create_temporary(disk, &temporary)?;
        file.write_all_at(0, &bytes)?;
        if !failpoints::has(StoreFlaw::SkipsTombstoneSync) {
            file.sync_data()?;
        }
        let entry = Self::from_bytes(&bytes);
        disk.rename(&temporary, &dir.join(entry.file_name(version)))?;
        Ok(entry)
    }

    /// Reads the file of a manifest. Returns the damage of a file that is missing or has other
    /// bytes; a disk fault is an error.
    pub(super) fn read(
        self,
        disk: &dyn Disk,
        dir: &Path,
        version: u64,
    ) -> Result<Result<StoreTombstones, Damage>, StorageError> {
        let path = dir.join(self.file_name(version));
        let what = match read_file(disk, &path, BYTES_MAX) {
            Ok(bytes) if Self::from_bytes(&bytes) == self => match tombstones::decode(&bytes) {
                Ok(set) => return Ok(Ok(set)),
                Err(e) => e.to_string(),
            },
            Ok(_) => "content differs from the checksum in the manifest of blocks".to_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => "the file is missing".to_owned(),
            Err(e) => return Err(StorageError::io("read", &path)(e)),
        };
        let what = format!("{what}: deleted samples are visible again");
        Ok(Err(Damage::for_file(DamageKind::Manifest, &path, what)))
    }
}

/// Returns the tombstones in the newest readable file in `dir`, for a list of blocks that is
/// rebuilt without a manifest.
pub(super) fn read_newest(
    disk: &dyn Disk,
    dir: &Path,
) -> Result<Arc<StoreTombstones>, StorageError> {
    let names = disk.list(dir).map_err(StorageError::io("list", dir))?;
    let files = names
        .iter()
        .filter_map(|name| Some((parse_version(name)?, name)));
    let mut files: Vec<(u64, &PathBuf)> = files.collect();
    files.sort_unstable();
    for (_, name) in files.into_iter().rev() {
        let path = dir.join(name);
        let bytes = read_file(disk, &path, BYTES_MAX).map_err(StorageError::io("read", &path))?;
        if let Ok(set) = tombstones::decode(&bytes) {
            return Ok(Arc::new(set));
        }
    }
    Ok(Arc::default())
}

/// Returns whether `name` is the file name of tombstones.
pub(super) fn is_tombstone_file(name: &Path) -> bool {
    parse_version(name).is_some()
}

/// Returns the version in the file name of tombstones, or `None` for any other name.
fn parse_version(name: &Path) -> Option<u64> {
    let (version, sum) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    let entry = TombstoneFileEntry {
        bytes: 0,
        sum: u32::from_str_radix(sum, 16).ok()?,
    };
    let version = version.parse().ok()?;
    (entry.file_name(version) == name).then_some(version)
}

/// Creates an empty file with a temporary name, in the place of one that was left behind.
pub(super) fn create_temporary(disk: &dyn Disk, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
    match disk.remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    disk.open(path, OpenMode::CreateNew)
}

/// Reads a file of at most `bytes_max` bytes.
pub(super) fn read_file(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let bytes = file.len()?;
    if bytes > bytes_max {
        let what = format!("{bytes} bytes, limit {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut read = vec![0; bytes as usize];
    let count = file.read_at(0, &mut read)?;
    read.truncate(count);
    Ok(read)
}
