//! A disk that advances a progress line, by the bytes read from a folder and by the files of it
//! that are hard-linked.

use super::progress::CommandProgressLine;
use firn_model::env::{DirLock, Disk, DiskFile, Env, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folder of snapshots, which is not counted: its files are hard links to counted ones.
const SNAPSHOTS: &str = "snapshots";

/// Returns `env` with a progress line for the bytes read from the data folder at `root`, or `env`
/// unchanged if no line would be visible.
pub fn watched(env: &Env, root: &Path) -> Env {
    let progress = CommandProgressLine::new(0, "bytes");
    if !progress.is_shown() {
        return env.clone();
    }
    progress.increase_total(bytes_below(&*env.disk, root));
    progress.set_item(root.display().to_string());
    let disk = WatchedDisk {
        disk: env.disk.clone(),
        progress: Arc::new(progress),
    };
    Env {
        disk: Arc::new(disk),
        ..env.clone()
    }
}

/// Returns the total bytes of all files below a folder, without its snapshots. Files that cannot be
/// read count as empty.
pub fn bytes_below(disk: &dyn Disk, root: &Path) -> u64 {
    let mut bytes: u64 = 0;
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for name in disk.list(&folder).unwrap_or_default() {
            let path = folder.join(&name);
            if folder == root && name.as_os_str() == SNAPSHOTS {
                continue;
            }
            match disk.list(&path) {
                Ok(_) => folders.push(path),
                Err(_) => bytes = bytes.saturating_add(len(disk, &path)),
            }
        }
    }
    bytes
}

fn len(disk: &dyn Disk, path: &Path) -> u64 {
    let file = disk.open(path, OpenMode::Read);
    file.and_then(|file| file.len()).unwrap_or(0)
}

struct WatchedDisk {
    disk: Arc<dyn Disk>,
    progress: Arc<CommandProgressLine>,
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(WatchedFile {
            file: self.disk.open(path, mode)?,
            progress: self.progress.clone(),
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)?;
        self.progress.add(len(&*self.disk, to));
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.disk.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_bytes(dir)
    }

    fn total_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.disk.total_bytes(dir)
    }
}

struct WatchedFile {
    file: Arc<dyn DiskFile>,
    progress: Arc<CommandProgressLine>,
}

impl DiskFile for WatchedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(offset, into)?;
        self.progress.add(read as u64);
        Ok(read)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(offset, bytes)
    }

    fn sector_bytes(&self) -> u64 {
        self.file.sector_bytes()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
