//! The state of a [`super::SimDisk`]: visible and durable bytes and names, and the changes between
//! them.
//!
//! Invariant: the visible state is the durable state with all pending changes applied in order,
//! except for changes that a failed sync has discarded.

use crate::env::sim::SimRng;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The number of bytes that a disk writes atomically.
const SECTOR_BYTES: u64 = 512;

/// The operations that a test can let fail, once or always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimDiskOperation {
    /// A read from a file at any offset.
    Read,
    /// A write to a file at any offset.
    Write,
    /// A sync of a file or of the names in a folder.
    Sync,
}

pub(super) type Inode = usize;

#[derive(Debug)]
pub(super) struct SimDiskState {
    pub(super) rng: SimRng,
    pub(super) files: Vec<SimFileState>,
    pub(super) names: BTreeMap<PathBuf, Inode>,
    pub(super) durable_names: BTreeMap<PathBuf, Inode>,
    pub(super) pending_names: Vec<SimNameChange>,
    pub(super) folders: BTreeSet<PathBuf>,
    durable_folders: BTreeSet<PathBuf>,
    pub(super) locks: BTreeSet<PathBuf>,
    /// The number of processes that have used the disk. The handles of earlier ones are invalid.
    pub(super) process: u64,
    pub(super) capacity_bytes: u64,
    pub(super) read_only: bool,
    pub(super) syncs_lie: bool,
    pub(super) power: SimPower,
    /// The number of remaining operations until the failing one, by kind of operation.
    pub(super) failures: BTreeMap<SimDiskOperation, u64>,
    /// The operations that always fail, until the test changes this.
    pub(super) failing: BTreeSet<SimDiskOperation>,
}

#[derive(Debug, Default)]
pub(super) struct SimFileState {
    pub(super) seen: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<SimFileChange>,
    /// Bytes of which every read fails, as with a bad sector.
    pub(super) unreadable: Option<Range<u64>>,
}

#[derive(Clone, Debug)]
pub(super) enum SimFileChange {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

#[derive(Clone, Debug)]
pub(super) enum SimNameChange {
    Create(PathBuf, Inode),
    Rename(PathBuf, PathBuf, Inode),
    Remove(PathBuf),
    RemoveFolder(PathBuf),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SimPower {
    On,
    /// The power goes off during the change after this number of further ones.
    OffAfter(u64),
    Off,
}

/// The part of the unsynced changes that survives a crash.
#[derive(Clone, Copy, Debug)]
pub(super) enum CrashSurvival {
    Nothing,
    Everything,
    AnyPart,
}

impl SimDiskState {
    /// Creates an empty disk, whose random decisions depend on `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: SimRng::new(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            folders: BTreeSet::new(),
            durable_folders: BTreeSet::new(),
            locks: BTreeSet::new(),
            process: 0,
            capacity_bytes: u64::MAX,
            read_only: false,
            syncs_lie: false,
            power: SimPower::On,
            failures: BTreeMap::new(),
            failing: BTreeSet::new(),
        }
    }

    pub(super) fn end_process(&mut self) {
        self.process += 1;
        self.locks.clear();
    }

    pub(super) fn does_survive(&self, mercy: CrashSurvival) -> bool {
        match mercy {
            CrashSurvival::Nothing => false,
            CrashSurvival::Everything => true,
            CrashSurvival::AnyPart => self.rng.one_in(2),
        }
    }

    pub(super) fn lose_unsynced_bytes(&mut self, mercy: CrashSurvival) {
        let mut files = std::mem::take(&mut self.files);
        for file in &mut files {
            for change in std::mem::take(&mut file.pending) {
                self.keep_part(change, mercy, &mut file.durable);
            }
            file.seen.clone_from(&file.durable);
        }
        self.files = files;
    }

    /// Applies the surviving part of `change` to the durable bytes.
    pub(super) fn keep_part(
        &self,
        change: SimFileChange,
        mercy: CrashSurvival,
        durable: &mut Vec<u8>,
    ) {
        match (change, mercy) {
            (_, CrashSurvival::Nothing) => {}
            (change, CrashSurvival::Everything) => apply(&change, durable),
            (change @ SimFileChange::SetLen(_), CrashSurvival::AnyPart) => {
                if self.rng.one_in(2) {
                    apply(&change, durable);
                }
            }
            (SimFileChange::Write { offset, bytes }, CrashSurvival::AnyPart) => {
                match self.rng.next_below(4) {
                    0 => {}
                    1 => write(durable, offset, &bytes),
                    2 => {
                        let kept = self.rng.next_below(bytes.len() as u64 + 1) as usize;
                        write(durable, offset, &bytes[..kept]);
                    }
                    _ => self.keep_sectors(offset, &bytes, durable),
                }
            }
        }
    }

    pub(super) fn keep_sectors(&self, offset: u64, bytes: &[u8], durable: &mut Vec<u8>) {
        let end = offset + bytes.len() as u64;
        let mut start = offset;
        while start < end {
            let sector_end = (start / SECTOR_BYTES + 1) * SECTOR_BYTES;
            let stop = sector_end.min(end);
            if self.rng.one_in(2) {
                let part = (start - offset) as usize..(stop - offset) as usize;
                write(durable, start, &bytes[part]);
            }
            start = stop;
        }
    }

    pub(super) fn lose_unsynced_names(&mut self, mercy: CrashSurvival) {
        for change in std::mem::take(&mut self.pending_names) {
            if self.does_survive(mercy) {
                self.make_durable(&change);
            }
        }
        self.names.clone_from(&self.durable_names);
        self.folders.clone_from(&self.durable_folders);
    }

    /// Makes the change of a name durable. The removal of a folder also removes its contents.
    pub(super) fn make_durable(&mut self, change: &SimNameChange) {
        rename(change, &mut self.durable_names);
        if let SimNameChange::RemoveFolder(dir) = change {
            self.durable_folders.remove(dir);
            self.durable_names
                .retain(|path, _| path.parent() != Some(dir));
            self.pending_names.retain(|change| !change.is_in(dir));
        }
    }

    /// Creates a folder, which is durable immediately. It may have been removed before.
    pub(super) fn create_folder(&mut self, folder: &Path) {
        self.folders.insert(folder.to_path_buf());
        self.durable_folders.insert(folder.to_path_buf());
        let is_removal = |change: &SimNameChange| match change {
            SimNameChange::RemoveFolder(dir) => dir == folder,
            _ => false,
        };
        self.pending_names.retain(|change| !is_removal(change));
    }

    /// Returns whether a folder contains any file or folder.
    pub(super) fn is_occupied(&self, dir: &Path) -> bool {
        let mut paths = self.names.keys().chain(&self.folders);
        paths.any(|path| path.parent() == Some(dir))
    }

    /// Returns an error if a file with this name cannot be created.
    pub(super) fn require_free(&self, path: &Path) -> Result<()> {
        if self.names.contains_key(path) || self.folders.contains(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.require_folder(path.parent().unwrap_or(Path::new("")))
    }

    /// Returns whether the operation must fail, and counts it.
    pub(super) fn must_fail(&mut self, operation: SimDiskOperation) -> bool {
        if self.failing.contains(&operation) {
            return true;
        }
        match self.failures.get_mut(&operation) {
            None => false,
            Some(0) => {
                self.failures.remove(&operation);
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// Returns an error if a change is impossible. For the change during which the power goes off,
    /// the caller records the change, which may survive, and then fails.
    pub(super) fn begin_change(&mut self) -> Result<SimChangeResult> {
        if self.read_only {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        match self.power {
            SimPower::On => Ok(SimChangeResult::Done),
            SimPower::OffAfter(0) => {
                self.power = SimPower::Off;
                Ok(SimChangeResult::Unknown)
            }
            SimPower::OffAfter(changes) => {
                self.power = SimPower::OffAfter(changes - 1);
                Ok(SimChangeResult::Done)
            }
            SimPower::Off => Err(power_off_error()),
        }
    }

    pub(super) fn require_power(&self) -> Result<()> {
        match self.power {
            SimPower::Off => Err(power_off_error()),
            SimPower::On | SimPower::OffAfter(_) => Ok(()),
        }
    }

    pub(super) fn change_name(&mut self, change: SimNameChange) -> Result<()> {
        let fate = self.begin_change()?;
        rename(&change, &mut self.names);
        if let SimNameChange::RemoveFolder(dir) = &change {
            self.folders.remove(dir);
        }
        self.pending_names.push(change);
        fate.into_result()
    }

    pub(super) fn find(&self, path: &Path) -> Result<Inode> {
        let inode = self.names.get(path).copied();
        inode.ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(super) fn require_folder(&self, dir: &Path) -> Result<()> {
        if self.folders.contains(dir) {
            Ok(())
        } else {
            Err(ErrorKind::NotFound.into())
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        // A file with several names counts once.
        let inodes: BTreeSet<&Inode> = self.names.values().collect();
        let sizes = inodes.into_iter().map(|i| self.files[*i].seen.len());
        sizes.sum::<usize>() as u64
    }

    pub(super) fn create(&mut self, path: &Path) -> Result<Inode> {
        self.require_free(path)?;
        self.files.push(SimFileState::default());
        let inode = self.files.len() - 1;
        self.change_name(SimNameChange::Create(path.to_path_buf(), inode))?;
        Ok(inode)
    }
}

/// The result of a change that was started, with respect to the power.
pub(super) enum SimChangeResult {
    Done,
    /// The power went off during the change, which may or may not survive.
    Unknown,
}

impl SimChangeResult {
    pub(super) fn into_result(self) -> Result<()> {
        match self {
            SimChangeResult::Done => Ok(()),
            SimChangeResult::Unknown => Err(power_off_error()),
        }
    }
}

pub(super) fn power_off_error() -> Error {
    Error::other("the power is off")
}

pub(super) fn disk_error() -> Error {
    Error::other("input/output error")
}

pub(super) fn apply(change: &SimFileChange, to: &mut Vec<u8>) {
    match change {
        SimFileChange::Write { offset, bytes } => write(to, *offset, bytes),
        SimFileChange::SetLen(bytes) => to.resize(*bytes as usize, 0),
    }
}

pub(super) fn write(to: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let start = offset as usize;
    let end = start + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[start..end].copy_from_slice(bytes);
}

pub(super) fn rename(change: &SimNameChange, names: &mut BTreeMap<PathBuf, Inode>) {
    match change {
        SimNameChange::Create(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        SimNameChange::Rename(from, to, inode) => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
        SimNameChange::Remove(path) => {
            names.remove(path);
        }
        SimNameChange::RemoveFolder(_) => {}
    }
}

impl SimNameChange {
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        match self {
            Self::Create(path, _)
            | Self::Remove(path)
            | Self::Rename(_, path, _)
            | Self::RemoveFolder(path) => path.parent() == Some(dir),
        }
    }
}
