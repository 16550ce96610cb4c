//! A home in memory that outlives the stores on it, like one in a bucket. It trims the log of the
//! test exactly up to the covered position.

use super::memory_log::RecordShelf;
use crate::blocks::home::{BlockHome, CatalogueSource, HomeCommit, RestoredHome};
use crate::sync::{Mutex, lock};
use firn_model::env::{DirLock, Disk, DiskFile, OpenMode};
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

    fn block_disk(&self, local: Arc<dyn Disk>, folder: PathBuf) -> Arc<dyn Disk> {
        Arc::new(HomeDisk {
            local,
            folder,
            shelf: self.shelf.clone(),
        })
    }
}

/// The local disk, with the files of the home where it lacks them.
struct HomeDisk {
    local: Arc<dyn Disk>,
    folder: PathBuf,
    shelf: HomeShelf,
}

/// A file of the home.
struct HomeFile(Arc<[u8]>);

impl DiskFile for HomeFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
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
        Ok(self.0.len() as u64)
    }
}

impl Disk for HomeDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let opened = self.local.open(path, mode);
        if !matches!((&opened, mode), (Err(e), OpenMode::Read) if e.kind() == io::ErrorKind::NotFound)
        {
            return opened;
        }
        let name = path.strip_prefix(&self.folder);
        let objects = lock(&self.shelf.0);
        let found = name.ok().and_then(|name| objects.files.get(name));
        match found {
            Some(bytes) => Ok(Arc::new(HomeFile(bytes.clone()))),
            None => opened,
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.local.list(dir)
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
