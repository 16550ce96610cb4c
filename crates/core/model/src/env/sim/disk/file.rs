//! Open files and locks of a [`super::SimDisk`].
//!
//! A handle is valid as long as the process that opened it: after a crash or a kill every call
//! fails.

use super::state::{
    CrashSurvival, Inode, SimChangeResult, SimDiskOperation, SimDiskState, SimFileChange, apply,
    disk_error,
};
use crate::env::{DirLock, DiskFile};
use crate::sync::lock;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// A lock of a folder. It is released when it is dropped.
pub(super) struct SimLock {
    pub(super) state: Arc<Mutex<SimDiskState>>,
    pub(super) path: PathBuf,
    pub(super) process: u64,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.process == self.process {
            state.locks.remove(&self.path);
        }
    }
}

/// An open file of a simulated disk, valid until its process ends.
pub(super) struct SimFile {
    pub(super) state: Arc<Mutex<SimDiskState>>,
    pub(super) inode: Inode,
    pub(super) process: u64,
    pub(super) writable: bool,
    pub(super) is_direct: bool,
}

/// The sector size of most disks in bytes, reported for direct writes.
const SECTOR_BYTES: u64 = 512;

impl SimFile {
    /// Returns the state of the disk. Fails if the process that opened the file has ended or the
    /// power is off.
    fn disk(&self) -> Result<MutexGuard<'_, SimDiskState>> {
        let state = lock(&self.state);
        state.require_power()?;
        if state.process == self.process {
            Ok(state)
        } else {
            Err(Error::other("the process that opened the file has ended"))
        }
    }

    fn disk_for_change(&self) -> Result<(MutexGuard<'_, SimDiskState>, SimChangeResult)> {
        if !self.writable {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let mut state = self.disk()?;
        let fate = state.begin_change()?;
        Ok((state, fate))
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut state = self.disk()?;
        if state.must_fail(SimDiskOperation::Read) {
            return Err(disk_error());
        }
        let file = &state.files[self.inode];
        let seen = &file.seen;
        let start = seen.len().min(offset as usize);
        let count = into.len().min(seen.len() - start);
        let asked = start as u64..(start + count) as u64;
        let is_in = |bad: &Range<u64>| bad.start < asked.end && asked.start < bad.end;
        if file.unreadable.as_ref().is_some_and(is_in) {
            return Err(disk_error());
        }
        into[..count].copy_from_slice(&seen[start..start + count]);
        Ok(count)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut state, fate) = self.disk_for_change()?;
        let len = state.files[self.inode].seen.len() as u64;
        let free = state.capacity_bytes.saturating_sub(state.used_bytes());
        let room = (len + free).saturating_sub(offset);
        let (kept, outcome) = if state.must_fail(SimDiskOperation::Write) {
            let kept = state.rng.next_below(bytes.len() as u64 + 1);
            (kept.min(room), Err(disk_error()))
        } else if (bytes.len() as u64) > room {
            (room, Err(ErrorKind::StorageFull.into()))
        } else {
            (bytes.len() as u64, fate.into_result())
        };
        let change = SimFileChange::Write {
            offset,
            bytes: bytes[..kept as usize].to_vec(),
        };
        let file = &mut state.files[self.inode];
        apply(&change, &mut file.seen);
        file.pending.push(change);
        outcome
    }

    fn sector_bytes(&self) -> u64 {
        if self.is_direct { SECTOR_BYTES } else { 1 }
    }

    fn sync_data(&self) -> Result<()> {
        let (mut state, fate) = self.disk_for_change()?;
        fate.into_result()?;
        let fails = state.must_fail(SimDiskOperation::Sync);
        if state.syncs_lie && !fails {
            return Ok(());
        }
        let pending = std::mem::take(&mut state.files[self.inode].pending);
        let mut durable = std::mem::take(&mut state.files[self.inode].durable);
        for change in pending {
            // Written bytes may be lost, but lengths are in the journal of the file system.
            let mercy = match (&change, fails) {
                (SimFileChange::Write { .. }, true) => CrashSurvival::AnyPart,
                _ => CrashSurvival::Everything,
            };
            state.keep_part(change, mercy, &mut durable);
        }
        state.files[self.inode].durable = durable;
        if fails { Err(disk_error()) } else { Ok(()) }
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let (mut state, fate) = self.disk_for_change()?;
        let change = SimFileChange::SetLen(bytes);
        let file = &mut state.files[self.inode];
        apply(&change, &mut file.seen);
        file.pending.push(change);
        fate.into_result()
    }

    fn len(&self) -> Result<u64> {
        let state = self.disk()?;
        Ok(state.files[self.inode].seen.len() as u64)
    }
}
