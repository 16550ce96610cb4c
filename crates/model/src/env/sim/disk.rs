//! A disk in memory that keeps only what was synced, and fails on demand.
//!
//! Each file has its bytes as the process sees them, its bytes as they would be after a power loss,
//! and the changes between the two. [`SimDisk::crash`] lets any part of those changes survive:
//! whole, not at all, torn at a byte or sector by sector; the same for names that were created,
//! renamed or removed without [`Disk::sync_dir`]. A failed sync forgets changes while the process
//! goes on seeing them, as real page caches do.
//!
//! At rest a test changes bytes ([`SimDisk::overwrite`]), makes them unreadable
//! ([`SimDisk::set_unreadable`]) or takes files away ([`SimDisk::lose`]). Folders are durable once
//! they are created; a removed one comes back as names do, with what was in it and is durable.

mod file;
mod state;
#[cfg(test)]
mod tests;

pub use state::Operation;

use crate::env::{DirLock, Disk, File, OpenMode};
use crate::sync::lock;
use file::{SimFile, SimLock};
use state::{FileState, Mercy, NameChange, Power, State, disk_fails};
use std::io::{ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module.
#[derive(Debug)]
pub struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    /// An empty disk whose crashes repeat by `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State::new(seed))))
    }

    /// The machine loses power and starts again: what was not synced survives in any part; handles
    /// and locks are gone, ordered failures forgotten.
    pub fn crash(&self) {
        let mut state = self.state();
        let mercy = match state.rng.below(4) {
            0 => Mercy::Nothing,
            1 => Mercy::Everything,
            _ => Mercy::AnyPart,
        };
        state.lose_unsynced_bytes(mercy);
        state.lose_unsynced_names(mercy);
        state.power = Power::On;
        state.failures.clear();
        state.end_process();
    }

    /// The process ends and another one may start: handles and locks are gone, no byte is. Where
    /// the power went off the process ended then.
    pub fn kill(&self) {
        let mut state = self.state();
        state.power = Power::On;
        state.end_process();
    }

    /// The power goes off with the change after `changes` more; everything fails until
    /// [`SimDisk::crash`] or [`SimDisk::kill`].
    pub fn power_off_after(&self, changes: u64) {
        self.state().power = Power::OffAfter(changes);
    }

    /// Whether the power went off.
    pub fn is_off(&self) -> bool {
        matches!(self.state().power, Power::Off)
    }

    /// The operation after `count` more of its kind fails as a disk fails (EIO), once. A failed
    /// write may have written a part; a failed sync forgets changes that it did not write.
    pub fn fail_after(&self, operation: Operation, count: u64) {
        self.state().failures.insert(operation, count);
    }

    /// Every operation of this kind fails as a disk fails (EIO), until told otherwise.
    pub fn fail_always(&self, operation: Operation, fails: bool) {
        let mut state = self.state();
        match fails {
            true => state.failing.insert(operation),
            false => state.failing.remove(&operation),
        };
    }

    /// Reads of any of these bytes of a file fail (EIO); none do again with `None`.
    pub fn set_unreadable(&self, path: &Path, bytes: Option<Range<u64>>) {
        let mut state = self.state();
        if let Ok(inode) = state.find(path) {
            state.files[inode].unreadable = bytes;
        }
    }

    /// A file is gone, as if it had never been there.
    pub fn lose(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    /// The files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// Files may take so many bytes together; writes beyond fail with `StorageFull`.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// Files may take so many bytes more.
    pub fn set_free_bytes(&self, bytes: u64) {
        let mut state = self.state();
        state.capacity_bytes = state.used_bytes().saturating_add(bytes);
    }

    /// Every change fails with `ReadOnlyFilesystem`.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// Syncs report success and do nothing: the broken disk by which a test shows that it would
    /// notice.
    pub fn set_syncs_lie(&self, lie: bool) {
        self.state().syncs_lie = lie;
    }

    /// The bytes of a file as the process sees them.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = *state.names.get(path)?;
        Some(state.files[inode].seen.clone())
    }

    /// Makes `bytes` the durable contents of `path`, as if the disk itself had changed.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        state.files.push(FileState {
            seen: bytes.to_vec(),
            durable: bytes.to_vec(),
            pending: Vec::new(),
            unreadable: None,
        });
        let inode = state.files.len() - 1;
        state.names.insert(path.to_path_buf(), inode);
        state.durable_names.insert(path.to_path_buf(), inode);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut state = self.state();
        state.require_power()?;
        let inode = match mode {
            OpenMode::Read => state.find(path)?,
            OpenMode::Write | OpenMode::WriteDirect if state.read_only => {
                return Err(ErrorKind::ReadOnlyFilesystem.into());
            }
            OpenMode::Write | OpenMode::WriteDirect => state.find(path)?,
            OpenMode::CreateNew | OpenMode::CreateNewDirect => state.create(path)?,
        };
        Ok(Arc::new(SimFile {
            state: self.0.clone(),
            inode,
            process: state.process,
            writable: mode != OpenMode::Read,
            is_direct: matches!(mode, OpenMode::WriteDirect | OpenMode::CreateNewDirect),
        }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let state = self.state();
        state.require_power()?;
        state.require_folder(dir)?;
        let paths = state.names.keys().chain(&state.folders);
        let inside = paths.filter(|path| path.parent() == Some(dir));
        let mut names: Vec<PathBuf> = inside
            .filter_map(|path| path.file_name().map(PathBuf::from))
            .collect();
        names.sort();
        Ok(names)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        let mut state = self.state();
        if state.folders.contains(dir) {
            return Ok(());
        }
        let fate = state.begin_change()?;
        for folder in dir.ancestors() {
            state.create_folder(folder);
        }
        fate.outcome()
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        let inode = state.find(from)?;
        state.change_name(NameChange::Rename(
            from.to_path_buf(),
            to.to_path_buf(),
            inode,
        ))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.find(path)?;
        state.change_name(NameChange::Remove(path.to_path_buf()))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        let inode = state.find(from)?;
        state.require_free(to)?;
        state.change_name(NameChange::Create(to.to_path_buf(), inode))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.state();
        state.require_folder(dir)?;
        if state.is_occupied(dir) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        state.change_name(NameChange::RemoveFolder(dir.to_path_buf()))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.state();
        state.begin_change()?.outcome()?;
        state.require_folder(dir)?;
        if state.fails(Operation::Sync) {
            return Err(disk_fails());
        }
        if state.syncs_lie {
            return Ok(());
        }
        let pending = std::mem::take(&mut state.pending_names);
        let (synced, rest) = pending.into_iter().partition(|change| change.is_in(dir));
        state.pending_names = rest;
        let synced: Vec<NameChange> = synced;
        for change in synced {
            state.make_durable(&change);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        let mut state = self.state();
        if !state.names.contains_key(path) {
            state.create(path)?;
        }
        if !state.locks.insert(path.to_path_buf()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock {
            state: self.0.clone(),
            path: path.to_path_buf(),
            process: state.process,
        }))
    }

    fn free_bytes(&self, _dir: &Path) -> Result<u64> {
        let state = self.state();
        Ok(state.capacity_bytes.saturating_sub(state.used_bytes()))
    }

    fn total_bytes(&self, _dir: &Path) -> Result<u64> {
        Ok(self.state().capacity_bytes)
    }
}
