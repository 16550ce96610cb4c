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
pub enum Operation {
    /// A read from a file at any offset.
    Read,
    /// A write to a file at any offset.
    Write,
    /// A sync of a file or of the names in a folder.
    Sync,
}

pub(super) type Inode = usize;

#[derive(Debug)]
pub(super) struct State {
    pub(super) rng: SimRng,
    pub(super) files: Vec<FileState>,
    pub(super) names: BTreeMap<PathBuf, Inode>,
    pub(super) durable_names: BTreeMap<PathBuf, Inode>,
    pub(super) pending_names: Vec<NameChange>,
    pub(super) folders: BTreeSet<PathBuf>,
    durable_folders: BTreeSet<PathBuf>,
    pub(super) locks: BTreeSet<PathBuf>,
    /// The number of processes that have used the disk. The handles of earlier ones are invalid.
    pub(super) process: u64,
    pub(super) capacity_bytes: u64,
    pub(super) read_only: bool,
    pub(super) syncs_lie: bool,
    pub(super) power: Power,
    /// The number of remaining operations until the failing one, by kind of operation.
    pub(super) failures: BTreeMap<Operation, u64>,
    /// The operations that always fail, until the test changes this.
    pub(super) failing: BTreeSet<Operation>,
}

#[derive(Debug, Default)]
pub(super) struct FileState {
    pub(super) seen: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Change>,
    /// Bytes of which every read fails, as with a bad sector.
    pub(super) unreadable: Option<Range<u64>>,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create(PathBuf, Inode),
    Rename(PathBuf, PathBuf, Inode),
    Remove(PathBuf),
    RemoveFolder(PathBuf),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Power {
    On,
    /// The power goes off during the change after this number of further ones.
    OffAfter(u64),
    Off,
}

/// The part of the unsynced changes that survives a crash.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mercy {
    Nothing,
    Everything,
    AnyPart,
}

impl State {
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
            power: Power::On,
            failures: BTreeMap::new(),
            failing: BTreeSet::new(),
        }
    }

    pub(super) fn end_process(&mut self) {
        self.process += 1;
        self.locks.clear();
    }

    pub(super) fn survives(&self, mercy: Mercy) -> bool {
        match mercy {
            Mercy::Nothing => false,
            Mercy::Everything => true,
            Mercy::AnyPart => self.rng.one_in(2),
        }
    }

    pub(super) fn lose_unsynced_bytes(&mut self, mercy: Mercy) {
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
    pub(super) fn keep_part(&self, change: Change, mercy: Mercy, durable: &mut Vec<u8>) {
        match (change, mercy) {
            (_, Mercy::Nothing) => {}
            (change, Mercy::Everything) => apply(&change, durable),
            (change @ Change::SetLen(_), Mercy::AnyPart) => {
                if self.rng.one_in(2) {
                    apply(&change, durable);
                }
            }
            (Change::Write { offset, bytes }, Mercy::AnyPart) => match self.rng.below(4) {
                0 => {}
                1 => write(durable, offset, &bytes),
                2 => {
                    let kept = self.rng.below(bytes.len() as u64 + 1) as usize;
                    write(durable, offset, &bytes[..kept]);
                }
                _ => self.keep_sectors(offset, &bytes, durable),
            },
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

    pub(super) fn lose_unsynced_names(&mut self, mercy: Mercy) {
        for change in std::mem::take(&mut self.pending_names) {
            if self.survives(mercy) {
                self.make_durable(&change);
            }
        }
        self.names.clone_from(&self.durable_names);
        self.folders.clone_from(&self.durable_folders);
    }

    /// Makes the change of a name durable. The removal of a folder also removes its contents.
    pub(super) fn make_durable(&mut self, change: &NameChange) {
        rename(change, &mut self.durable_names);
        if let NameChange::RemoveFolder(dir) = change {
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
        let is_removal =
            |change: &NameChange| matches!(change, NameChange::RemoveFolder(dir) if dir == folder);
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
    pub(super) fn fails(&mut self, operation: Operation) -> bool {
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
    pub(super) fn begin_change(&mut self) -> Result<Fate> {
        if self.read_only {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        match self.power {
            Power::On => Ok(Fate::Done),
            Power::OffAfter(0) => {
                self.power = Power::Off;
                Ok(Fate::Unknown)
            }
            Power::OffAfter(changes) => {
                self.power = Power::OffAfter(changes - 1);
                Ok(Fate::Done)
            }
            Power::Off => Err(power_is_off()),
        }
    }

    pub(super) fn require_power(&self) -> Result<()> {
        match self.power {
            Power::Off => Err(power_is_off()),
            Power::On | Power::OffAfter(_) => Ok(()),
        }
    }

    pub(super) fn change_name(&mut self, change: NameChange) -> Result<()> {
        let fate = self.begin_change()?;
        rename(&change, &mut self.names);
        if let NameChange::RemoveFolder(dir) = &change {
            self.folders.remove(dir);
        }
        self.pending_names.push(change);
        fate.outcome()
    }

    pub(super) fn find(&self, path: &Path) -> Result<Inode> {
        let inode = self.names.get(path).copied();
        inode.ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(super) fn require_folder(&self, dir: &Path) -> Result<()> {
        match self.folders.contains(dir) {
            true => Ok(()),
            false => Err(ErrorKind::NotFound.into()),
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
        self.files.push(FileState::default());
        let inode = self.files.len() - 1;
        self.change_name(NameChange::Create(path.to_path_buf(), inode))?;
        Ok(inode)
    }
}

/// The result of a change that was started, with respect to the power.
pub(super) enum Fate {
    Done,
    /// The power went off during the change, which may or may not survive.
    Unknown,
}

impl Fate {
    pub(super) fn outcome(self) -> Result<()> {
        match self {
            Fate::Done => Ok(()),
            Fate::Unknown => Err(power_is_off()),
        }
    }
}

pub(super) fn power_is_off() -> Error {
    Error::other("the power is off")
}

pub(super) fn disk_fails() -> Error {
    Error::other("input/output error")
}

pub(super) fn apply(change: &Change, to: &mut Vec<u8>) {
    match change {
        Change::Write { offset, bytes } => write(to, *offset, bytes),
        Change::SetLen(bytes) => to.resize(*bytes as usize, 0),
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

pub(super) fn rename(change: &NameChange, names: &mut BTreeMap<PathBuf, Inode>) {
    match change {
        NameChange::Create(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        NameChange::Rename(from, to, inode) => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
        NameChange::RemoveFolder(_) => {}
    }
}

impl NameChange {
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        match self {
            Self::Create(path, _)
            | Self::Remove(path)
            | Self::Rename(_, path, _)
            | Self::RemoveFolder(path) => path.parent() == Some(dir),
        }
    }
}
