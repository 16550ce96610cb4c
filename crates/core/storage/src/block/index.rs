//! The index of a block and its copy. Each byte range is read from the first of the two files in
//! which it is intact.
//!
//! The files have identical content, so damage to one loses nothing. The copy is opened when a read
//! of the index fails. Invariant: bytes that fail their check are never returned, and a read that
//! needs the copy reports the damage. Blocks of version 1 have no copy.

use super::cache::BlockCache;
use super::file::OpenBlockFile;
use super::layout::{INDEX, INDEX_COPY};
use super::unit::UnitEntry;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use firn_model::env::Disk;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The files `index` and `index.copy` of a block, presented as one file.
pub(crate) struct BlockIndex {
    disk: Arc<dyn Disk>,
    first: OpenBlockFile,
    copy_path: PathBuf,
    copy: OnceLock<OpenBlockFile>,
    bytes: u64,
    /// The damage that was found when the first file was opened, if it is missing or has the wrong
    /// length.
    damage: Option<StorageError>,
}

impl std::fmt::Debug for BlockIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.first.fmt(f)
    }
}

impl BlockIndex {
    /// Opens the index in the folder `dir`. Its length is `bytes`; if that is `None`, the length of
    /// `index`, or of the copy if `index` is missing.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        bytes: Option<u64>,
    ) -> Result<Self, StorageError> {
        let path = dir.join(INDEX);
        let (first, failed) = match OpenBlockFile::open(&**disk, &path) {
            Ok(first) => (first, None),
            Err(e) => (OpenBlockFile::new_missing(&path), Some(e)),
        };
        let mut index = Self {
            disk: disk.clone(),
            bytes: bytes.unwrap_or(first.len()),
            first,
            copy_path: dir.join(INDEX_COPY),
            copy: OnceLock::new(),
            damage: None,
        };
        let damage = match failed {
            Some(e) => Some(missing_as_damage(e, &path)),
            None if index.first.len() != index.bytes => {
                Some(index.first.wrong_length_error(index.bytes))
            }
            None => None,
        };
        if let Some(damage) = damage {
            let Some(copy) = index.copy() else {
                return Err(damage);
            };
            let copied = copy.len();
            index.bytes = bytes.unwrap_or(copied);
            index.damage = Some(damage);
        }
        Ok(index)
    }

    /// Returns the disk that holds the block, for opening its other files.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Returns the length of the index in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// Returns the file `index`, from which reads are tried first.
    pub(crate) fn first(&self) -> &OpenBlockFile {
        &self.first
    }

    /// Returns the copy of the index, opening it on first use, or `None` if it cannot be opened.
    pub(crate) fn copy(&self) -> Option<&OpenBlockFile> {
        if self.copy.get().is_none() {
            let opened = OpenBlockFile::open(&*self.disk, &self.copy_path).ok()?;
            // Another thread may have opened it in the meantime; either result is fine.
            let _ = self.copy.set(opened);
        }
        self.copy.get()
    }

    /// Reads `bytes` bytes at `offset` and returns the result of `check`, with the copy as the
    /// fallback.
    fn read<T>(
        &self,
        offset: u64,
        bytes: usize,
        check: impl Fn(Vec<u8>) -> Result<T, StorageError>,
        cache: &BlockCache,
    ) -> Result<T, StorageError> {
        let read = self.first.read(offset, bytes, &cache.read_bytes);
        let checked = read.and_then(&check);
        self.or_read_copy(checked, offset, bytes, check, cache)
    }

    /// Reads the bytes of a unit and verifies their checksum.
    pub(crate) fn read_unit(
        &self,
        entry: &UnitEntry,
        cache: &BlockCache,
    ) -> Result<Vec<u8>, StorageError> {
        let check = |bytes: Vec<u8>| {
            if crc32c::crc32c(&bytes) == entry.crc {
                Ok(bytes)
            } else {
                Err(self.damage_error(entry.offset, "unit fails its checksum"))
            }
        };
        self.read(entry.offset, entry.bytes as usize, check, cache)
    }

    /// Returns `of_first`, the checked result of reading the first file, if it is `Ok`. Otherwise
    /// checks the same range of the copy, and returns the original error if that fails too.
    pub(crate) fn or_read_copy<T>(
        &self,
        of_first: Result<T, StorageError>,
        offset: u64,
        bytes: usize,
        check: impl Fn(Vec<u8>) -> Result<T, StorageError>,
        cache: &BlockCache,
    ) -> Result<T, StorageError> {
        let Err(error) = of_first else {
            return of_first;
        };
        let Some(copy) = self.copy() else {
            return Err(error);
        };
        let read = copy.read(offset, bytes, &cache.read_bytes);
        let Ok(found) = read.and_then(check) else {
            return Err(error);
        };
        if self.damage.is_none() {
            cache.report_recovered(&error, INDEX_COPY);
        }
        Ok(found)
    }

    /// Reports damage to the first file that was found when the block was opened.
    pub(crate) fn report_damage(&self, cache: &BlockCache) {
        if let Some(damage) = &self.damage {
            cache.report_recovered(damage, INDEX_COPY);
        }
    }

    /// Returns the error for corrupted bytes at `offset`, which names the file `index`.
    pub(crate) fn damage_error(&self, offset: u64, what: impl Into<String>) -> StorageError {
        self.first.damage_error(offset, what)
    }

    /// Returns a function for `map_err` that reports malformed bytes at `offset`.
    pub(crate) fn malformed_error(&self, offset: u64) -> impl Fn(DecodeError) -> StorageError + '_ {
        self.first.malformed_error(offset)
    }
}

/// Turns "not found" into damage, for a file that must exist; returns any other error unchanged.
pub(crate) fn missing_as_damage(error: StorageError, path: &Path) -> StorageError {
    match &error {
        StorageError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            StorageError::Damaged {
                path: path.to_path_buf(),
                offset: 0,
                what: "the file is missing".to_owned(),
            }
        }
        _ => error,
    }
}
