//! The begin of replays: units, COMMITs, checkpoints and trims (rules R4 and R8).
//!
//! ```text
//! unit | unit | unit | unit, growing
//!      ^ replays begin here (COMMIT, checkpoint)
//! <----> DATA is deleted once the checkpoint is stored; FENCE and HANDOFF stay
//! ```
//!
//! Invariants: the begin of replays never falls, and it is the begin of a unit; DATA is deleted
//! only if it is before the begin of replays of a stored checkpoint. FENCEs stay for ever (about a
//! hundred bytes per takeover), so that a create of a fenced writer fails however late it is.

use super::action::{LogAction, LogRequest, Outbox};
use super::event::{CheckpointHead, ListedSegment};
use super::flaw::LogFlaw;
use super::options::LogCoreOptions;
use crate::commit::{BlockChange, CommitRecord, ReplayFrom};
use crate::ids::SegmentSequence;
use firn_model::log::LogPosition;
use std::collections::VecDeque;

/// The begin of replays, and where it may move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Horizon {
    /// The version of the newest COMMIT, stored or not.
    version: u64,
    /// The begin of replays of that COMMIT.
    replay_from: ReplayFrom,
    /// The begins of units from there on.
    units: VecDeque<ReplayFrom>,
    /// Stored COMMITs whose checkpoints are not stored yet.
    unchecked: VecDeque<StoredCommit>,
    /// Segments below this number are listed and, if they are DATA, deleted.
    trim: Trim,
}

/// A COMMIT in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StoredCommit {
    pub(super) position: LogPosition,
    pub(super) version: u64,
    pub(super) replay_from: ReplayFrom,
}

impl StoredCommit {
    /// Returns the request for the checkpoint of the COMMIT.
    pub(super) fn write_checkpoint(&self) -> LogAction {
        LogAction::WriteCheckpoint {
            position: self.position,
            version: self.version,
            replay_from: self.replay_from,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Trim {
    /// The first number that was not looked at. A leader begins at the first segment, because its
    /// predecessors may have ended within a trim.
    from: SegmentSequence,
    /// The number up to which DATA may be deleted.
    to: SegmentSequence,
    is_listing: bool,
}

impl Horizon {
    pub(super) fn begin(start: &CheckpointHead) -> Self {
        Self {
            version: start.version,
            replay_from: start.replay_from,
            units: VecDeque::from([start.replay_from]),
            unchecked: VecDeque::new(),
            trim: Trim {
                from: SegmentSequence::FIRST,
                to: SegmentSequence::FIRST,
                is_listing: false,
            },
        }
    }

    /// Adds a unit that begins at `unit`, behind all others.
    pub(super) fn begin_unit(&mut self, unit: ReplayFrom) {
        if self.units.back().is_none_or(|last| *last < unit) {
            self.units.push_back(unit);
        }
    }

    /// Takes over a COMMIT of the log. Returns whether it follows the one before it.
    #[must_use]
    pub(super) fn replayed(&mut self, commit: &CommitRecord) -> bool {
        let is_next = commit.version == self.version + 1;
        if !is_next || commit.replay_from < self.replay_from {
            return false;
        }
        self.version = commit.version;
        self.move_to(commit.replay_from);
        true
    }

    /// Creates the COMMIT for `change`, if blocks contain all records before `covered`.
    pub(super) fn commit(
        &mut self,
        options: &LogCoreOptions,
        change: BlockChange,
        covered: LogPosition,
    ) -> CommitRecord {
        let mut units = self.units.iter().rev();
        let unit = units.find(|unit| unit.position <= covered).copied();
        let replay_from = unit.unwrap_or(ReplayFrom::BEGIN);
        let is_lowered = options.has(LogFlaw::LowersReplayFrom);
        let replay_from = if is_lowered {
            replay_from
        } else {
            replay_from.max(self.replay_from)
        };
        self.version += 1;
        self.move_to(replay_from);
        CommitRecord {
            version: self.version,
            replay_from,
            change,
        }
    }

    fn move_to(&mut self, replay_from: ReplayFrom) {
        self.replay_from = replay_from;
        self.units.retain(|unit| *unit >= replay_from);
    }

    /// A COMMIT and all segments before it are stored.
    pub(super) fn committed(
        &mut self,
        options: &LogCoreOptions,
        commit: StoredCommit,
        out: &mut Outbox,
    ) {
        self.unchecked.push_back(commit);
        if !options.has(LogFlaw::ChecksInBeforePrefix) {
            out.push(commit.write_checkpoint());
        }
        if options.has(LogFlaw::TrimsBeforeCheckpoint) {
            self.trim_to(commit.replay_from.sequence, out);
        }
    }

    /// The checkpoint of the COMMIT at `position` is stored.
    pub(super) fn checkpointed(&mut self, position: LogPosition, out: &mut Outbox) {
        let mut to = None;
        while let Some(commit) = self.unchecked.front()
            && commit.position <= position
        {
            to = (commit.position == position).then_some(commit.replay_from.sequence);
            self.unchecked.pop_front();
        }
        if let Some(to) = to {
            self.trim_to(to, out);
        }
    }

    fn trim_to(&mut self, to: SegmentSequence, out: &mut Outbox) {
        self.trim.to = self.trim.to.max(to);
        if self.trim.from < self.trim.to && !self.trim.is_listing {
            self.trim.is_listing = true;
            out.request(LogRequest::ListLog(self.trim.from));
        }
    }

    /// Deletes the listed DATA before the begin of replays.
    pub(super) fn on_listed(
        &mut self,
        options: &LogCoreOptions,
        listed: Option<Vec<ListedSegment>>,
        out: &mut Outbox,
    ) {
        if !self.trim.is_listing {
            return;
        }
        let Some(listed) = listed else {
            out.request(LogRequest::ListLog(self.trim.from));
            return;
        };
        let to = self.trim.to;
        let with_fences = options.has(LogFlaw::DeletesFences);
        let is_deleted = |entry: &&ListedSegment| with_fences || !entry.is_bare();
        let before = listed.iter().filter(|entry| entry.sequence < to);
        let sequences: Vec<SegmentSequence> =
            before.filter(is_deleted).map(|e| e.sequence).collect();
        self.trim.from = to;
        self.trim.is_listing = false;
        if !sequences.is_empty() {
            out.push(LogAction::Delete { sequences });
        }
    }
}
