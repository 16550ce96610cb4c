//! Which groups are due to be sealed, and up to where pages cover the log.
//!
//! Time is cut into windows, for each group at its own phase, so that groups created together are
//! not due together. A group is due once the newest sample of the store lies so far behind the end
//! of a window that what belongs into it has arrived: data time decides, so a group whose series
//! fell silent is sealed as the others are, and the log never waits for it.
//!
//! Every tick leaves a *mark*: no record of the log up to its position has a sample newer than its
//! time. So a group that was sealed up to time `t` has nothing left in the records up to the newest
//! mark not newer than `t`. Those positions never run ahead of the truth; the least of them over
//! all groups is how far the log is covered.

#[cfg(test)]
mod tests;

use crate::failpoints::{self, Flaw};
use crate::ids::GroupId;
use firn_model::log::Position;
use firn_model::sample::TimestampMs;
use std::collections::{BTreeMap, VecDeque};

/// Marks kept at most; beyond them every second one goes. A window has some 2,000 at one a second.
const MARKS_MAX: usize = 8_192;

/// How long after the end of a window it is sealed, as a share of the window: 60 s of 32 minutes.
/// What arrives later is stored all the same and belongs to the next page.
const GRACE_SHARE: i64 = 32;

/// How time is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    /// The length of a window, at least 1.
    pub(crate) window_ms: i64,
    /// Whether groups have phases of their own.
    pub(crate) is_jittered: bool,
}

impl Windows {
    /// The newest end of a window of `group` that is due when the newest sample is at `newest`.
    pub(crate) fn due_end(self, group: GroupId, newest: TimestampMs) -> TimestampMs {
        let phase = match self.is_jittered {
            // Fibonacci hashing: neighbours land far apart, and any run of them evenly.
            true => {
                (u64::from((group.0 as u32).wrapping_mul(0x9e37_79b9)) * self.window_ms as u64)
                    >> 32
            }
            false => 0,
        };
        let (window, phase) = (i128::from(self.window_ms), i128::from(phase));
        let arrived = i128::from(newest) - window / i128::from(GRACE_SHARE) - phase;
        let end = arrived.div_euclid(window) * window + phase;
        end.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// No record up to `position` has a sample newer than `newest`, and all of them are of batches up
/// to `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) newest: TimestampMs,
    pub(crate) sequence: u64,
    pub(crate) position: Position,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    sealed_to: TimestampMs,
    unsealed_after: Position,
}

/// A group that is due, and the end of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) group: GroupId,
    pub(crate) end: TimestampMs,
}

/// Up to where each group is sealed, and the marks that relate data time to the log.
#[derive(Debug)]
pub(crate) struct Coverage {
    windows: Windows,
    /// Ascending in every field.
    marks: VecDeque<Mark>,
    groups: BTreeMap<GroupId, Group>,
    /// Groups below are known, or gone.
    end_group: GroupId,
}

impl Coverage {
    /// A coverage without groups; nothing up to `start` needs the log.
    pub(crate) fn new(windows: Windows, start: Position) -> Self {
        let mark = Mark {
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

    /// Takes in a group that is sealed up to `sealed_to` and has nothing unsealed in records up to
    /// `unsealed_after`. Of a known group it takes the later of each.
    pub(crate) fn restore(
        &mut self,
        group: GroupId,
        sealed_to: TimestampMs,
        unsealed_after: Position,
    ) {
        let known = self.groups.entry(group).or_insert(Group {
            sealed_to,
            unsealed_after,
        });
        known.sealed_to = known.sealed_to.max(sealed_to);
        known.unsealed_after = known.unsealed_after.max(unsealed_after);
        self.end_group = self.end_group.max(GroupId(group.0 + 1));
    }

    /// Takes in, at a start, a group that has nothing in records up to `start` and no unsealed
    /// sample older than `oldest`.
    pub(crate) fn restore_at(&mut self, group: GroupId, oldest: TimestampMs, start: Position) {
        let sealed_to = self.windows.due_end(group, oldest);
        self.restore(group, sealed_to, start);
    }

    /// New series get slots of `first` and the groups behind it: those before are known, or gone.
    pub(crate) fn begin_new(&mut self, first: GroupId) {
        self.end_group = self.end_group.max(first);
    }

    /// Leaves a mark, and takes in the groups below `end_group` and the groups `restored`, of which
    /// an evicted series returned since the tick before: their samples came after the mark before
    /// this one. The caller must read the position of `mark` before its time, and that before
    /// `end_group` and `restored`.
    ///
    /// A series that returns is noted after it has its place in the index and before its samples
    /// stand in the log. So a series that is noted too late for this tick has no sample up to the
    /// position of `mark`, and a group that is found without series after this tick is noted later.
    pub(crate) fn tick(&mut self, mark: Mark, end_group: GroupId, restored: &[GroupId]) {
        let before = self.marks.back().map_or(Position(0), |m| m.position);
        assert!(
            before <= mark.position,
            "marks ascend: {:?}, then {mark:?}",
            self.marks.back()
        );
        let restored = restored.iter().copied();
        let forgotten = restored.filter(|group| !self.groups.contains_key(group));
        let forgotten: Vec<GroupId> = forgotten.collect();
        for group in forgotten
            .into_iter()
            .chain((self.end_group.0..end_group.0).map(GroupId))
        {
            let sealed_to = self.windows.due_end(group, mark.newest);
            self.restore(group, sealed_to, before);
        }
        if let Some(last) = self.marks.back_mut()
            && last.newest == mark.newest
        {
            *last = mark;
        } else {
            self.marks.push_back(mark);
        }
        self.prune();
    }

    /// Forgets the marks that no group needs any more.
    fn prune(&mut self) {
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

    /// The groups that are due, the longest overdue first.
    pub(crate) fn due(&self, newest: TimestampMs) -> Vec<Due> {
        let ends = self.groups.iter().filter_map(|(group, state)| {
            let end = self.windows.due_end(*group, newest);
            (end > state.sealed_to).then_some((state.sealed_to, Due { group: *group, end }))
        });
        let mut due: Vec<_> = ends.collect();
        due.sort_by_key(|(sealed_to, due)| (*sealed_to, due.group));
        due.into_iter().map(|(_, due)| due).collect()
    }

    /// All groups, to be sealed up to `end`.
    pub(crate) fn all(&self, end: TimestampMs) -> Vec<Due> {
        let groups = self.groups.keys();
        groups.map(|group| Due { group: *group, end }).collect()
    }

    /// Up to where the log has nothing for a group that was sealed up to `end` with what batches up
    /// to `sequence` brought.
    pub(crate) fn unsealed_after(&self, due: Due, sequence: u64) -> Position {
        let known = self.groups.get(&due.group).map(|g| g.unsealed_after);
        let trusts = failpoints::has(Flaw::TrustsUnsealedMark);
        let fits = |m: &&Mark| m.newest <= due.end && (m.sequence <= sequence || trusts);
        let mark = self.marks.iter().rev().find(fits).map(|m| m.position);
        known.max(mark).unwrap_or_default()
    }

    /// Notes that a group was sealed. Forgets a group without series in the head, unless new series
    /// may still get its slots.
    pub(crate) fn sealed(&mut self, due: Due, unsealed_after: Position, is_gone: bool) {
        if is_gone && due.group.0 + 1 < self.end_group.0 {
            self.groups.remove(&due.group);
        } else {
            self.restore(due.group, due.end, unsealed_after);
        }
    }

    /// Whether the log cannot be trimmed further because of this group.
    pub(crate) fn pins(&self, group: GroupId) -> bool {
        let known = self.groups.get(&group);
        known.is_some_and(|group| group.unsealed_after <= self.covered())
    }

    /// Records of the log up to here have no sample that is not sealed.
    pub(crate) fn covered(&self) -> Position {
        let last = self.marks.back().map_or(Position(0), |m| m.position);
        let groups = self.groups.values().map(|g| g.unsealed_after);
        groups.min().map_or(last, |least| least.min(last))
    }
}
