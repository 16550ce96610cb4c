//! The groups that could not be sealed completely, and the times of their next attempts.

use crate::ids::GroupId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Pause before the first retry of a group; doubled after each further failure.
const PAUSE_MIN: Duration = Duration::from_secs(60);

/// Maximum pause: half of a window, so that the other samples of the group do not wait in the head
/// longer than usual.
const PAUSE_MAX: Duration = Duration::from_secs(16 * 60);

/// Minimum number of attempts before samples are dropped.
const TRIES_MIN: u32 = 2;

/// A group that could not be sealed completely.
#[derive(Clone, Copy, Debug)]
struct GroupSealFailure {
    tries: u32,
    /// Time of the next attempt on the monotonic clock.
    not_before: Duration,
}

/// The groups that could not be sealed completely, by number.
#[derive(Debug, Default)]
pub(crate) struct SealFailures {
    groups: BTreeMap<GroupId, GroupSealFailure>,
}

impl SealFailures {
    /// Returns whether a group may be sealed now.
    pub(super) fn can_seal(&self, group: GroupId, now: Duration) -> bool {
        let trouble = self.groups.get(&group);
        trouble.is_none_or(|trouble| now >= trouble.not_before)
    }

    /// Counts a failure of a group. Returns whether it is the first one.
    pub(super) fn count_failure(&mut self, group: GroupId, now: Duration) -> bool {
        let trouble = self.groups.entry(group).or_insert(GroupSealFailure {
            tries: 0,
            not_before: now,
        });
        let pause = PAUSE_MIN * 2u32.saturating_pow(trouble.tries.min(8));
        trouble.tries = trouble.tries.saturating_add(1);
        trouble.not_before = now.saturating_add(pause.min(PAUSE_MAX));
        trouble.tries == 1
    }

    /// Removes a group that was sealed completely.
    pub(super) fn remove(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }

    /// Returns the number of groups.
    pub(super) fn count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the groups that failed often enough for their samples to be dropped.
    pub(super) fn list_retried_groups(&self) -> impl Iterator<Item = GroupId> {
        let groups = self.groups.iter();
        groups
            .filter(|(_, trouble)| trouble.tries >= TRIES_MIN)
            .map(|(group, _)| *group)
    }
}
