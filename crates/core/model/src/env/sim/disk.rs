//! A disk in memory that keeps only synced data, and fails on request.
//!
//! Each file consists of the bytes that the process sees, the bytes that would survive a power
//! loss, and the changes between both. [`SimDisk::crash`] applies an arbitrary part of these
//! changes: completely, not at all, up to any byte, or sector by sector. The same applies to names
//! that were created, renamed or removed without [`Disk::sync_dir`]. A failed sync discards changes
//! that the process still sees, like real page caches do.
//!
//! A test can also change bytes ([`SimDisk::overwrite`]), make them unreadable
//! ([`SimDisk::set_unreadable`]) or remove files ([`SimDisk::remove_durably`]). Folders are durable
//! as soon as they are created. A removed folder may reappear after a crash like other names, with
//! its durable contents.

mod file;
mod state;
#[cfg(test)]
mod tests;

pub use state::SimDiskOperation;

use crate::env::{DirLock, Disk, DiskFile, OpenMode};
use crate::sync::lock;
use file::{SimFile, SimLock};
use state::{CrashSurvival, SimDiskState, SimFileState, SimNameChange, SimPower, disk_error};
use std::io::{ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// A simulated disk, which the test and the code under test share; see the module.
#[derive(Debug)]
pub struct SimDisk(Arc<Mutex<SimDiskState>>);

impl SimDisk {
    /// Creates an empty disk whose crashes are reproducible by `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SimDiskState::new(seed))))
    }

    /// Simulates a power loss and a restart. An arbitrary part of the unsynced changes survives.
    /// All file handles and locks become invalid, and requested failures are cleared.
    pub fn crash(&self) {
        let mut state = self.state();
        let mercy = match state.rng.next_below(4) {
            0 => CrashSurvival::Nothing,
            1 => CrashSurvival::Everything,
            _ => CrashSurvival::AnyPart,
        };
        state.lose_unsynced_bytes(mercy);
        state.lose_unsynced_names(mercy);
        state.power = SimPower::On;
        state.failures.clear();
        state.end_process();
    }

    /// Simulates the end of the process and the start of another one. File handles and locks become
    /// invalid, but no byte is lost. This also ends a power loss.
    pub fn kill(&self) {
        let mut state = self.state();
        state.power = SimPower::On;
        state.end_process();
    }

    /// Simulates a power loss during the change after `changes` further ones. All operations fail
    /// until [`SimDisk::crash`] or [`SimDisk::kill`] is called.
    pub fn power_off_after(&self, changes: u64) {
        self.state().power = SimPower::OffAfter(changes);
    }

    /// Returns whether the power is off, so that all operations fail.
    pub fn is_off(&self) -> bool {
        matches!(self.state().power, SimPower::Off)
    }

    /// Lets the operation after `count` further ones of its kind fail once with a disk error (EIO).
    /// A failed write may have written a part, and a failed sync discards the changes that it did
    /// not write.
    pub fn fail_after(&self, operation: SimDiskOperation, count: u64) {
        self.state().failures.insert(operation, count);
    }

    /// Lets every operation of this kind fail with a disk error (EIO), until it is called with
    /// false.
    pub fn fail_always(&self, operation: SimDiskOperation, fails: bool) {
        let mut state = self.state();
        if fails {
            state.failing.insert(operation)
        } else {
            state.failing.remove(&operation)
        };
    }

    /// Lets reads of any of these bytes of a file fail (EIO). `None` makes all bytes readable
    /// again.
    pub fn set_unreadable(&self, path: &Path, bytes: Option<Range<u64>>) {
        let mut state = self.state();
        if let Ok(inode) = state.find(path) {
            state.files[inode].unreadable = bytes;
        }
    }

    /// Removes a file without a trace, also from the durable state.
    pub fn remove_durably(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    /// Returns the paths of all files that the process sees, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// Sets the capacity for all files together. Writes beyond it fail with `StorageFull`.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// Sets the capacity such that all files together can grow by `bytes`.
    pub fn set_free_bytes(&self, bytes: u64) {
        let mut state = self.state();
        state.capacity_bytes = state.used_bytes().saturating_add(bytes);
    }

    /// Lets every change fail with `ReadOnlyFilesystem`, while reads still succeed.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// Lets syncs report success without any effect. This simulates a broken disk, for tests that
    /// check whether they would detect lost syncs.
    pub fn set_syncs_lie(&self, lie: bool) {
        self.state().syncs_lie = lie;
    }

    /// Returns the bytes of a file as the process sees them.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = *state.names.get(path)?;
        Some(state.files[inode].seen.clone())
    }

    /// Replaces the contents of `path` durably, as if the disk itself had changed.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        state.files.push(SimFileState {
            seen: bytes.to_vec(),
            durable: bytes.to_vec(),
            pending: Vec::new(),
            unreadable: None,
        });
        let inode = state.files.len() - 1;
        state.names.insert(path.to_path_buf(), inode);
        state.durable_names.insert(path.to_path_buf(), inode);
    }

    fn state(&self) -> MutexGuard<'_, SimDiskState> {
        lock(&self.0)
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>> {
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
        fate.into_result()
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        let inode = state.find(from)?;
        state.change_name(SimNameChange::Rename(
            from.to_path_buf(),
            to.to_path_buf(),
            inode,
        ))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.find(path)?;
        state.change_name(SimNameChange::Remove(path.to_path_buf()))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        let inode = state.find(from)?;
        state.require_free(to)?;
        state.change_name(SimNameChange::Create(to.to_path_buf(), inode))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.state();
        state.require_folder(dir)?;
        if state.is_occupied(dir) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        state.change_name(SimNameChange::RemoveFolder(dir.to_path_buf()))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.state();
        state.begin_change()?.into_result()?;
        state.require_folder(dir)?;
        if state.must_fail(SimDiskOperation::Sync) {
            return Err(disk_error());
        }
        if state.syncs_lie {
            return Ok(());
        }
        let pending = std::mem::take(&mut state.pending_names);
        let (synced, rest) = pending.into_iter().partition(|change| change.is_in(dir));
        state.pending_names = rest;
        let synced: Vec<SimNameChange> = synced;
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
