//! A home in memory that outlives the stores on it, like one in a bucket. It trims the log of the
//! test exactly up to the covered position.

use super::memory_log::RecordShelf;
use crate::block::BlockId;
use crate::blocks::home::{
    BlockHome, CatalogueSource, HOME_FAULT, HomeCommit, HomeFiles, RestoredHome,
};
use crate::sync::{Mutex, lock};
use firn_model::env::{Disk, DiskFile, OpenMode};
use firn_model::error::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The objects of a home. Clones share them.
#[derive(Clone, Default)]
pub(super) struct HomeShelf(Arc<Mutex<HomeObjects>>);

#[derive(Default)]
struct HomeObjects {
    restored: RestoredHome,
    /// The files of blocks by `<id>/<name>`.
    files: BTreeMap<PathBuf, Arc<[u8]>>,
    /// True while commits fail.
    is_gone: bool,
    /// True while reads of files fail.
    is_silent: bool,
}

impl HomeShelf {
    /// Opens the home for a store on `disk`, whose log is `log`.
    pub(super) fn open(&self, disk: &Arc<dyn Disk>, log: &RecordShelf) -> Arc<MemoryHome> {
        Arc::new(MemoryHome {
            shelf: self.clone(),
            disk: disk.clone(),
            log: log.clone(),
            source: OnceLock::new(),
        })
    }

    pub(super) fn restored(&self) -> RestoredHome {
        lock(&self.0).restored.clone()
    }

    /// Lets commits fail, or succeed again.
    pub(super) fn set_gone(&self, is_gone: bool) {
        lock(&self.0).is_gone = is_gone;
    }

    /// Lets reads of files fail, or succeed again.
    pub(super) fn set_silent(&self, is_silent: bool) {
        lock(&self.0).is_silent = is_silent;
    }
}

/// The home of one store.
pub(super) struct MemoryHome {
    shelf: HomeShelf,
    disk: Arc<dyn Disk>,
    log: RecordShelf,
    source: OnceLock<CatalogueSource>,
}

impl MemoryHome {
    fn read_files(&self, folder: &Path) -> Vec<(PathBuf, Arc<[u8]>)> {
        let id = PathBuf::from(folder.file_name().unwrap());
        let names = self.disk.list(folder).unwrap();
        let read = |name: PathBuf| {
            let file = self.disk.open(&folder.join(&name), OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
            (id.join(name), Arc::from(bytes))
        };
        names.into_iter().map(read).collect()
    }
}

impl BlockHome for MemoryHome {
    fn restored(&self) -> RestoredHome {
        self.shelf.restored()
    }

    fn set_catalogue_source(&self, source: CatalogueSource) {
        assert!(self.source.set(source).is_ok(), "one source");
    }

    fn publish(&self, commit: &HomeCommit) -> Result<(), Error> {
        if lock(&self.shelf.0).is_gone {
            let text = "the home is gone".to_owned();
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let catalogue = self.source.get().expect("a source")()?;
        let folders = commit.added.iter().map(|(_, folder)| folder);
        let files: Vec<_> = folders.flat_map(|f| self.read_files(f)).collect();
        let mut objects = lock(&self.shelf.0);
        objects.files.extend(files);
        let restored = &mut objects.restored;
        assert!(commit.cut >= restored.cut, "a cut falls");
        assert!(
            commit.covered >= restored.replay_from,
            "the covered position falls"
        );
        let is_kept = |id| !commit.removed.contains(&id);
        restored.blocks.retain(|block| is_kept(block.id));
        let added = commit.added.iter().map(|(entry, _)| entry.clone());
        restored.blocks.extend(added);
        restored.cut = commit.cut;
        restored.late_through = commit.late_through;
        restored.replay_from = restored.replay_from.max(commit.covered);
        restored.catalogue = catalogue;
        // Files of removed blocks stay, since readers may hold them.
        self.log.trim(restored.replay_from);
        Ok(())
    }

    fn run_maintenance(&self) {}

    fn files(&self) -> Arc<dyn HomeFiles> {
        Arc::new(self.shelf.clone())
    }
}

impl HomeFiles for HomeShelf {
    fn open(&self, block: BlockId, name: &str) -> Option<Arc<dyn DiskFile>> {
        let path = PathBuf::from(block.to_string()).join(name);
        let bytes = lock(&self.0).files.get(&path).cloned()?;
        let shelf = self.clone();
        Some(Arc::new(HomeFile { shelf, bytes }))
    }

    fn list(&self, block: BlockId) -> Option<Vec<String>> {
        let folder = PathBuf::from(block.to_string());
        let objects = lock(&self.0);
        let paths = objects
            .files
            .keys()
            .filter(|path| path.starts_with(&folder));
        let name = |path: &PathBuf| path.file_name()?.to_str().map(str::to_owned);
        let names: Vec<String> = paths.filter_map(name).collect();
        Some(names).filter(|names| !names.is_empty())
    }
}

/// A file of the home.
struct HomeFile {
    shelf: HomeShelf,
    bytes: Arc<[u8]>,
}

impl DiskFile for HomeFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if lock(&self.shelf.0).is_silent {
            return Err(HOME_FAULT.into());
        }
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_all_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }
}
