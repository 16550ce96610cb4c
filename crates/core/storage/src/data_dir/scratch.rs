//! Scratch folders: the rules by which a folder becomes one, and the removal of its contents.
//!
//! A scratch folder belongs to a store whose log is elsewhere. Its files are useless without the
//! log position that they belong to, so each open empties it. Invariant: a folder is never emptied
//! unless it has the marker, and never gets the marker while it has data of its own.

use super::{FORMAT, explain_io_error, is_harmless};
use crate::error::StorageError;
use firn_model::env::{Disk, OpenMode};
use std::io;
use std::path::{Path, PathBuf};

/// Marker of a scratch folder. It exists before anything else in the folder.
pub(super) const SCRATCH: &str = "SCRATCH";

const SCRATCH_TEXT: &[u8] = b"scratch folder of a firn store whose log is elsewhere\n";

/// The names in a folder before it is opened.
pub(super) struct FolderNames(pub(super) Vec<PathBuf>);

impl FolderNames {
    pub(super) fn create_and_list(disk: &dyn Disk, root: &Path) -> Result<Self, StorageError> {
        let writable = |e| explain_io_error(root, "create folder", e);
        disk.create_dir_all(root).map_err(writable)?;
        let names = disk.list(root).map_err(StorageError::io("list", root))?;
        Ok(Self(names))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|found| found.as_os_str() == name)
    }

    /// Returns an error if the folder contains anything that no data folder begins with.
    pub(super) fn require_empty(&self, root: &Path) -> Result<(), StorageError> {
        if self.has(FORMAT) {
            return Err(StorageError::NotScratch {
                path: root.to_path_buf(),
            });
        }
        match self.0.iter().find(|name| !is_harmless(name)) {
            None => Ok(()),
            Some(foreign) => Err(StorageError::Foreign {
                path: root.to_path_buf(),
                found: foreign.display().to_string(),
            }),
        }
    }

    /// Returns an error unless the folder is a durable data folder, or can become one.
    pub(super) fn require_data_or_empty(&self, root: &Path) -> Result<(), StorageError> {
        self.require_durable(root)?;
        if self.has(FORMAT) {
            Ok(())
        } else {
            self.require_empty(root)
        }
    }

    /// Returns an error if the folder is a scratch folder.
    pub(super) fn require_durable(&self, root: &Path) -> Result<(), StorageError> {
        if self.has(SCRATCH) {
            Err(StorageError::Scratch {
                path: root.to_path_buf(),
            })
        } else {
            Ok(())
        }
    }
}

/// Creates the marker of a scratch folder, durably.
pub(super) fn create_marker(disk: &dyn Disk, root: &Path) -> io::Result<()> {
    let file = disk.open(&root.join(SCRATCH), OpenMode::CreateNew)?;
    file.write_all_at(0, SCRATCH_TEXT)?;
    file.sync_data()?;
    disk.sync_dir(root)
}

/// Removes everything in a folder, durably, and then the folder itself. A power loss never restores
/// a file whose folder is gone.
pub(crate) fn remove_tree(disk: &dyn Disk, root: &Path) -> Result<(), StorageError> {
    let names = disk.list(root).map_err(StorageError::io("list", root))?;
    for name in names {
        let path = root.join(name);
        match disk.list(&path) {
            Ok(_) => remove_tree(disk, &path)?,
            Err(_) => {
                let removed = disk.remove_file(&path);
                removed.map_err(StorageError::io("remove", &path))?;
            }
        }
    }
    disk.sync_dir(root)
        .and_then(|()| disk.remove_dir(root))
        .map_err(StorageError::io("remove", root))
}
