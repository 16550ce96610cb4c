//! The disk of a store whose blocks have a home: block files that are missing in the folder are
//! read from the home.
//!
//! Invariant: local files win, and all operations but opening and listing are local.

use super::home::HomeFiles;
use crate::block::BlockId;
use firn_model::env::{DirLock, Disk, DiskFile, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A local disk, and the files of blocks in a home.
pub struct HomeDisk {
    local: Arc<dyn Disk>,
    /// The folder with the folders of all blocks.
    folder: PathBuf,
    files: Arc<dyn HomeFiles>,
}

impl HomeDisk {
    /// Creates a disk that reads from `files` where `local` has no file. `folder` contains the
    /// folders of all blocks.
    pub fn new(local: Arc<dyn Disk>, folder: PathBuf, files: Arc<dyn HomeFiles>) -> Self {
        Self {
            local,
            folder,
            files,
        }
    }

    /// Returns the id of the block with the folder `path`, if it is one.
    fn block_of_folder(&self, path: &Path) -> Option<BlockId> {
        let is_block = path.parent()? == self.folder;
        let id = path.file_name()?.to_str()?.parse().ok()?;
        is_block.then_some(id)
    }

    fn open_in_home(&self, path: &Path) -> Option<Arc<dyn DiskFile>> {
        let block = self.block_of_folder(path.parent()?)?;
        self.files.open(block, path.file_name()?.to_str()?)
    }
}

impl Disk for HomeDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        match self.local.open(path, mode) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && mode == OpenMode::Read => {
                self.open_in_home(path).ok_or(e)
            }
            opened => opened,
        }
    }

    /// Lists a local folder. A folder of a block that does not exist locally has the names of its
    /// files in the home.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        match self.local.list(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let block = self.block_of_folder(dir);
                let names = block.and_then(|block| self.files.list(block));
                let mut names: Vec<PathBuf> =
                    names.ok_or(e)?.into_iter().map(PathBuf::from).collect();
                names.sort();
                Ok(names)
            }
            listed => listed,
        }
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.local.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.local.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.local.remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.local.link(from, to)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.local.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.local.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.local.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.local.free_bytes(dir)
    }

    fn total_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.local.total_bytes(dir)
    }
}
