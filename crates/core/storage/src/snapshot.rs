//! Snapshots: a data folder inside another one, which consists of hard links and copies of its
//! files.
//!
//! ```text
//! snapshots/<time>-<number>/      files that never change: a hard link; files that grow: a copy
//!   -> copies synced -> manifests -> folders synced -> FORMAT: from here on it is a snapshot
//! ```
//!
//! [`SnapshotBuilder`] assembles a snapshot. The store selects the files while it runs, and
//! [`create_snapshot`] those of a folder that no process uses. Invariants: a server that runs on a
//! snapshot writes to no file of the original; a folder without `FORMAT` is not a snapshot: no
//! store opens it, and the next start removes it; the original is not changed.

use crate::blocks::BlockList;
use crate::catalogue::{COPY, SERIES};
use crate::data_dir::{self, DataDir};
use crate::error::StorageError;
use crate::exemplars::EXEMPLARS;
use crate::failpoints::{self, StoreFlaw};
use crate::file::append_only::FileKind;
use crate::log::segment;
use crate::manifest::{Manifest, PageSegmentState};
use crate::sealed::segment::PAGES;
use firn_model::env::{DiskFile, Env, OpenMode};
use firn_model::error::{Error, ErrorKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of bytes that a copy reads and writes at once.
const COPY_BYTES: usize = 1 << 20;

/// Returns whether a snapshot may have this name, `20060102T150405Z-0123456789abcdef`. Nothing else
/// in the folder of snapshots is touched.
fn is_name(name: &str) -> bool {
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((time, number)) = name.split_once('-') else {
        return false;
    };
    let Some((date, clock)) = time.strip_suffix('Z').and_then(|time| time.split_once('T')) else {
        return false;
    };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits(date, 8) && digits(clock, 6) && number.len() == 16 && number.bytes().all(is_hex)
}

/// A snapshot under construction. It is removed if it is dropped before it is finished.
pub(crate) struct SnapshotBuilder<'a> {
    env: &'a Env,
    source: &'a DataDir,
    root: PathBuf,
    folders: BTreeSet<PathBuf>,
    copies: Vec<SnapshotFileCopy>,
    is_finished: bool,
}

/// A file that grows, held open, with its length when it was added.
struct SnapshotFileCopy {
    file: Arc<dyn DiskFile>,
    from: PathBuf,
    to: PathBuf,
    bytes: u64,
}

impl<'a> SnapshotBuilder<'a> {
    /// Starts the snapshot `name` of `source`. Fails if the name is invalid or exists.
    pub(crate) fn begin(env: &'a Env, source: &'a DataDir, name: &str) -> Result<Self, Error> {
        if !is_name(name) {
            let message = format!("invalid snapshot name: {name:?}");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let root = source.snapshots().join(name);
        if env.disk.list(&root).is_ok() {
            let message = format!("snapshot {name:?} already exists");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let mut begun = Self {
            env,
            source,
            root,
            folders: BTreeSet::new(),
            copies: Vec::new(),
            is_finished: false,
        };
        for folder in source.folders() {
            begun.create_folder(&folder)?;
        }
        Ok(begun)
    }

    /// Returns the path in the snapshot for a path of the original.
    fn snapshot_path(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix(self.source.root()).unwrap_or(path);
        self.root.join(inside)
    }

    fn create_folder(&mut self, of: &Path) -> Result<(), StorageError> {
        let folder = self.snapshot_path(of);
        let made = self.env.disk.create_dir_all(&folder);
        made.map_err(StorageError::io("create folder", &folder))?;
        self.folders.insert(folder);
        Ok(())
    }

    /// Adds a file that never changes again, as a hard link.
    pub(crate) fn link(&mut self, path: &Path) -> Result<(), StorageError> {
        let linked = self.env.disk.link(path, &self.snapshot_path(path));
        linked.map_err(StorageError::io("link file", path))
    }

    /// Adds the first `bytes` of a file that grows. Later changes of the file do not affect them.
    pub(crate) fn copy(&mut self, path: &Path, bytes: u64) -> Result<(), StorageError> {
        let file = self.env.disk.open(path, OpenMode::Read);
        let file = file.map_err(StorageError::io("open file", path))?;
        self.copy_open(file, path, bytes);
        Ok(())
    }

    /// Adds the first `bytes` of an open file, to be copied by [`SnapshotBuilder::finish`].
    fn copy_open(&mut self, file: Arc<dyn DiskFile>, path: &Path, bytes: u64) {
        self.copies.push(SnapshotFileCopy {
            file,
            from: path.to_path_buf(),
            to: self.snapshot_path(path),
            bytes,
        });
    }

    /// Adds the current contents of a file of another component, by its path in the folder. A file
    /// that does not exist is skipped.
    pub(crate) fn copy_component_file(&mut self, inside: &Path) -> Result<(), StorageError> {
        let path = self.source.root().join(inside);
        let file = match self.env.disk.open(&path, OpenMode::Read) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(StorageError::io("open file", &path))?,
        };
        let bytes = file.len().map_err(StorageError::io("open file", &path))?;
        if let Some(folder) = path.parent() {
            self.create_folder(folder)?;
        }
        self.copy_open(file, &path, bytes);
        Ok(())
    }

    /// Adds the folders of blocks. A block that is marked as damaged may be missing.
    pub(crate) fn link_blocks(&mut self, list: &BlockList) -> Result<(), StorageError> {
        for entry in &list.blocks {
            let folder = self.source.blocks().join(entry.id.to_string());
            let names = match self.env.disk.list(&folder) {
                Err(_) if entry.is_bad => continue,
                names => names.map_err(StorageError::io("list", &folder))?,
            };
            self.create_folder(&folder)?;
            for name in names {
                match self.link(&folder.join(name)) {
                    Err(_) if entry.is_bad => {}
                    linked => linked?,
                }
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that remain to be copied.
    pub(crate) fn bytes_to_copy(&self) -> u64 {
        self.copies.iter().map(|growing| growing.bytes).sum()
    }

    /// Copies the growing files, writes manifests and `FORMAT`, and makes everything durable.
    pub(crate) fn finish(
        mut self,
        manifest: Option<&Manifest>,
        blocks: &BlockList,
    ) -> Result<(), StorageError> {
        for growing in std::mem::take(&mut self.copies) {
            growing.copy(self.env)?;
        }
        let disk = &*self.env.disk;
        blocks.write(disk, &self.snapshot_path(&self.source.blocks()))?;
        if let Some(manifest) = manifest {
            manifest.write(disk, &self.root)?;
        }
        for folder in &self.folders {
            let synced = disk.sync_dir(folder);
            synced.map_err(StorageError::io("sync folder", folder))?;
        }
        let format = self.source.format();
        let written = data_dir::write_format(disk, &self.root, format);
        written.map_err(StorageError::io("write format of", &self.root))?;
        self.is_finished = true;
        Ok(())
    }
}

impl SnapshotFileCopy {
    fn copy(&self, env: &Env) -> Result<(), StorageError> {
        let writing = || StorageError::io("write copy", &self.to);
        let to = env
            .disk
            .open(&self.to, OpenMode::CreateNew)
            .map_err(writing())?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut offset = 0;
        while offset < self.bytes {
            let count = buffer.len().min((self.bytes - offset) as usize);
            let read = self.file.read_at(offset, &mut buffer[..count]);
            let read = read.map_err(StorageError::io("read file", &self.from))?;
            if read == 0 {
                return Err(StorageError::Damaged {
                    path: self.from.clone(),
                    offset,
                    what: format!("the file is shorter than its {} bytes", self.bytes),
                });
            }
            to.write_all_at(offset, &buffer[..read])
                .map_err(writing())?;
            offset += read as u64;
        }
        if failpoints::has(StoreFlaw::SkipsCopySync) {
            return Ok(());
        }
        to.sync_data().map_err(writing())
    }
}

impl Drop for SnapshotBuilder<'_> {
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(e) = remove_snapshot(self.env, &self.root)
        {
            tracing::error!(
                error = %e,
                "failed to remove an unfinished snapshot: the next start removes it"
            );
        }
    }
}

/// Removes the remains of unfinished snapshots. Other folders are not touched.
pub(crate) fn remove_unfinished(env: &Env, dir: &DataDir) {
    let snapshots = dir.snapshots();
    // Without snapshots the folder does not exist.
    for name in env.disk.list(&snapshots).unwrap_or_default() {
        let root = snapshots.join(&name);
        let is_ours = name.to_str().is_some_and(is_name);
        if !is_ours || data_dir::has_format(&*env.disk, &root) {
            continue;
        }
        match remove_snapshot(env, &root) {
            Ok(()) => tracing::info!(folder = %root.display(), "removed an unfinished snapshot"),
            Err(e) => tracing::error!(error = %e, "failed to remove an unfinished snapshot"),
        }
    }
}

/// Removes a snapshot, finished or not: `FORMAT` first, so that it is not opened any more.
fn remove_snapshot(env: &Env, root: &Path) -> Result<(), StorageError> {
    let gone = data_dir::remove_format(&*env.disk, root);
    gone.map_err(StorageError::io("remove format of", root))?;
    data_dir::remove_tree(&*env.disk, root)
}

/// Creates the snapshot `name` of the data folder at `root`, which no process may use, with the
/// files `beside` of other components. Returns its path.
pub fn create_snapshot(
    env: &Env,
    root: &Path,
    name: &str,
    beside: &[PathBuf],
) -> Result<PathBuf, Error> {
    let dir = DataDir::hold(env, root)?;
    let disk = &*env.disk;
    let manifest = Manifest::read(disk, root).ok().flatten();
    let blocks = match disk.list(&dir.blocks()) {
        Ok(_) => BlockList::read(disk, &dir.blocks())?.list,
        Err(_) => BlockList::default(),
    };
    let mut begun = SnapshotBuilder::begin(env, &dir, name)?;
    for inside in beside {
        begun.copy_component_file(inside)?;
    }
    begun.link_blocks(&blocks)?;
    for number in PAGES.list(env, &dir.pages())? {
        let known = manifest
            .as_ref()
            .and_then(|manifest| manifest.segment(number));
        let path = PAGES.path(&dir.pages(), number);
        if known.is_some_and(|known| known.state == PageSegmentState::Complete) {
            begun.link(&path)?
        } else {
            copy_whole(&mut begun, &path)?
        }
    }
    let mut log = segment::list(disk, &dir.wal())?;
    let newest = log.pop();
    for first in log {
        begun.link(&dir.wal().join(segment::file_name(first)))?;
    }
    if let Some(newest) = newest {
        copy_whole(&mut begun, &dir.wal().join(segment::file_name(newest)))?;
    }
    let growing: [(FileKind, PathBuf); 3] = [
        (SERIES, dir.series()),
        (COPY, dir.series()),
        (EXEMPLARS, dir.exemplars()),
    ];
    for (kind, folder) in growing {
        for number in kind.list(env, &folder)? {
            copy_whole(&mut begun, &kind.path(&folder, number))?;
        }
    }
    begun.finish(manifest.as_ref(), &blocks)?;
    Ok(dir.snapshots().join(name))
}

/// Adds a file that no process changes, in its current length.
fn copy_whole(begun: &mut SnapshotBuilder<'_>, path: &Path) -> Result<(), StorageError> {
    let file = begun.env.disk.open(path, OpenMode::Read);
    let bytes = file.and_then(|file| file.len());
    begun.copy(path, bytes.map_err(StorageError::io("open file", path))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_snapshot_is_a_time_and_a_number() {
        assert!(is_name("20060102T150405Z-0123456789abcdef"));
        for name in [
            "",
            "..",
            "20060102T150405Z",
            "20060102T150405Z-0123456789abcdeF",
            "20060102T150405Z-0123456789abcdef0",
            "2006/102T150405Z-0123456789abcdef",
            "20060102T15040.Z-0123456789abcdef",
            "mine",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
