//! Coverage: which groups are due for sealing, and up to which position pages cover the log.
//!
//! Data time is divided into windows. Each group has its own phase, so that groups created together
//! are not due together. A group is due once the newest sample of the store is far enough after the
//! end of a window that the samples of the window have arrived. Only data time matters, so a group
//! with silent series is sealed like all others, and never delays the trimming of the log.
//!
//! Every tick leaves a *mark*: no log record up to its position has a sample newer than its time. A
//! group that is sealed up to time `t` therefore has no unsealed samples in the records up to the
//! newest mark that is not newer than `t`. The minimum of these positions over all groups is the
//! coverage of the log. Invariant: no position is covered before all samples up to it are sealed.

#[cfg(test)]
mod tests;

use crate::failpoints::{self, StoreFlaw};
use crate::ids::GroupId;
use firn_model::log::LogPosition;
use firn_model::sample::TimestampMs;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of marks; above it every second one is dropped. A window has about 2,000 marks at
/// one per second.
const MARKS_MAX: usize = 8_192;

/// Delay between the end of a window and its sealing, as a fraction of the window: 60 s of 32
/// minutes. Samples that arrive later are stored too, and belong to the next page.
const GRACE_SHARE: i64 = 32;

/// Division of data time into windows, at whose ends groups are sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealWindows {
    /// Length of a window in milliseconds, at least 1.
    pub(crate) window_ms: i64,
    /// True if each group has a phase of its own.
    pub(crate) is_jittered: bool,
}

impl SealWindows {
    /// Returns the end of the newest window of `group` that is due if the newest sample of the
    /// store is at `newest`.
    pub(crate) fn due_end(self, group: GroupId, newest: TimestampMs) -> TimestampMs {
        let phase = if self.is_jittered {
            // Fibonacci hashing: neighbours are mapped far apart, and any range of them evenly.
            (u64::from((group.0 as u32).wrapping_mul(0x9e37_79b9)) * self.window_ms as u64) >> 32
        } else {
            0
        };
        let (window, phase) = (i128::from(self.window_ms), i128::from(phase));
        let arrived = i128::from(newest) - window / i128::from(GRACE_SHARE) - phase;
        let end = arrived.div_euclid(window) * window + phase;
        end.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// A statement about the log: no record up to `position` has a sample newer than `newest`, and all
/// of these records belong to batches up to `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoverageMark {
    pub(crate) newest: TimestampMs,
    pub(crate) sequence: u64,
    pub(crate) position: LogPosition,
}

impl CoverageMark {
    /// Returns whether `next` may follow this mark: no field is less.
    pub(crate) fn is_before(&self, next: &Self) -> bool {
        self.newest <= next.newest
            && self.sequence <= next.sequence
            && self.position <= next.position
    }
}

#[derive(Clone, Copy, Debug)]
struct GroupCoverage {
    sealed_to: TimestampMs,
    unsealed_after: LogPosition,
}

/// A group that is due for sealing, with the end of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueGroup {
    pub(crate) group: GroupId,
    pub(crate) end: TimestampMs,
}

/// The time up to which each group is sealed, and the marks that relate data time to the log.
#[derive(Debug)]
pub(crate) struct Coverage {
    windows: SealWindows,
    /// In ascending order of every field.
    marks: VecDeque<CoverageMark>,
    groups: BTreeMap<GroupId, GroupCoverage>,
    /// All groups below are registered, or gone.
    end_group: GroupId,
}

impl Coverage {
    /// Returns a coverage without groups. The log is not needed up to `start`.
    pub(crate) fn new(windows: SealWindows, start: LogPosition) -> Self {
        let mark = CoverageMark {
            newest: i64::MIN,
            sequence: 0,
            position: start,
        };
        Self {
            windows,
            marks: VecDeque::from([mark]),
            groups: BTreeMap::new(),
            end_group: GroupId(0),
        }
    }

    /// Registers a group that is sealed up to `sealed_to` and has no unsealed samples in records up
    /// to `unsealed_after`. For a registered group, keeps the maximum of both values.
    pub(crate) fn restore_group(
        &mut self,
        group: GroupId,
        sealed_to: TimestampMs,
        unsealed_after: LogPosition,
    ) {
        let known = self.groups.entry(group).or_insert(GroupCoverage {
            sealed_to,
            unsealed_after,
        });
        known.sealed_to = known.sealed_to.max(sealed_to);
        known.unsealed_after = known.unsealed_after.max(unsealed_after);
        self.end_group = self.end_group.max(GroupId(group.0 + 1));
    }

    /// Registers a group at startup that has no samples in records up to `start` and no unsealed
    /// sample older than `oldest`.
    pub(crate) fn restore_group_at_start(
        &mut self,
        group: GroupId,
        oldest: TimestampMs,
        start: LogPosition,
    ) {
        let sealed_to = self.windows.due_end(group, oldest);
        self.restore_group(group, sealed_to, start);
    }

    /// Declares that new series get slots in `first` and later groups. All earlier groups are
    /// registered, or gone.
    pub(crate) fn begin_new_groups(&mut self, first: GroupId) {
        self.end_group = self.end_group.max(first);
    }

    /// Leaves a mark. Registers the groups below `end_group` and the groups `restored`, in which an
    /// evicted series was restored since the last tick: their samples arrived after the previous
    /// mark. The caller must read the position of `mark` before its time, and the time before
    /// `end_group` and `restored`.
    ///
    /// A restored series is recorded after it has its place in the index and before its samples are
    /// in the log. A series that is recorded too late for this tick therefore has no sample up to
    /// the position of `mark`, and a group that is found without series after this tick is recorded
    /// later.
    pub(crate) fn record_mark(
        &mut self,
        mark: CoverageMark,
        end_group: GroupId,
        restored: &[GroupId],
    ) {
        let last = self.marks.back();
        let before = last.map_or(LogPosition(0), |last| last.position);
        assert!(
            last.is_none_or(|last| last.is_before(&mark)),
            "marks ascend: {last:?}, then {mark:?}"
        );
        let restored = restored.iter().copied();
        let forgotten = restored.filter(|group| !self.groups.contains_key(group));
        let forgotten: Vec<GroupId> = forgotten.collect();
        for group in forgotten
            .into_iter()
            .chain((self.end_group.0..end_group.0).map(GroupId))
        {
            let sealed_to = self.windows.due_end(group, mark.newest);
            self.restore_group(group, sealed_to, before);
        }
        if let Some(last) = self.marks.back_mut()
            && last.newest == mark.newest
        {
            *last = mark;
        } else {
            self.marks.push_back(mark);
        }
        self.prune_marks();
    }

    /// Drops the marks that no group needs any more.
    fn prune_marks(&mut self) {
        let oldest = self.groups.values().map(|g| g.sealed_to).min();
        let oldest = oldest.unwrap_or(i64::MAX);
        while self.marks.get(1).is_some_and(|next| next.newest <= oldest) {
            self.marks.pop_front();
        }
        if self.marks.len() > MARKS_MAX {
            let mut number = 0;
            self.marks.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
    }

    /// Returns the groups that are due, the longest overdue first.
    pub(crate) fn list_due_groups(&self, newest: TimestampMs) -> Vec<DueGroup> {
        let ends = self.groups.iter().filter_map(|(group, state)| {
            let end = self.windows.due_end(*group, newest);
            (end > state.sealed_to).then_some((state.sealed_to, DueGroup { group: *group, end }))
        });
        let mut due: Vec<_> = ends.collect();
        due.sort_by_key(|(sealed_to, due)| (*sealed_to, due.group));
        due.into_iter().map(|(_, due)| due).collect()
    }

    /// Returns all groups, to be sealed up to `end`.
    pub(crate) fn list_all_groups(&self, end: TimestampMs) -> Vec<DueGroup> {
        let groups = self.groups.keys();
        groups
            .map(|group| DueGroup { group: *group, end })
            .collect()
    }

    /// Returns the position up to which the log has no unsealed samples of a group, if the group is
    /// sealed up to `due.end` with the samples of batches up to `sequence`.
    pub(crate) fn unsealed_after(&self, due: DueGroup, sequence: u64) -> LogPosition {
        let known = self.groups.get(&due.group).map(|g| g.unsealed_after);
        let trusts = failpoints::has(StoreFlaw::TrustsUnsealedMark);
        let fits = |m: &&CoverageMark| m.newest <= due.end && (m.sequence <= sequence || trusts);
        let mark = self.marks.iter().rev().find(fits).map(|m| m.position);
        known.max(mark).unwrap_or_default()
    }

    /// Records that a group was sealed. Removes a group without series in the head, unless new
    /// series may still get its slots.
    pub(crate) fn record_sealed(
        &mut self,
        due: DueGroup,
        unsealed_after: LogPosition,
        is_gone: bool,
    ) {
        if is_gone && due.group.0 + 1 < self.end_group.0 {
            self.groups.remove(&due.group);
        } else {
            self.restore_group(due.group, due.end, unsealed_after);
        }
    }

    /// Returns whether this group prevents further trimming of the log.
    pub(crate) fn is_pinning_log(&self, group: GroupId) -> bool {
        let known = self.groups.get(&group);
        known.is_some_and(|group| group.unsealed_after <= self.covered_position())
    }

    /// Returns the position up to which all samples in the log are sealed.
    pub(crate) fn covered_position(&self) -> LogPosition {
        let last = self.marks.back().map_or(LogPosition(0), |m| m.position);
        let groups = self.groups.values().map(|g| g.unsealed_after);
        groups.min().map_or(last, |least| least.min(last))
    }
}
