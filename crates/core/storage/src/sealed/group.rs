//! Groups: 512 consecutive slots whose samples are sealed together.

use crate::ids::{GroupId, SeriesSlot};
use firn_model::sync::{read, write};
use std::collections::BTreeSet;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of slots in a group, the unit of sealing. A group contains the series of one or two
/// targets, which share their sample times. Its pages have about 30 kB: small enough to read for a
/// single series, and large enough to write efficiently.
pub(crate) const GROUP_SLOTS: u32 = 512;

/// The same number as a `u64`.
const SLOTS: u64 = GROUP_SLOTS as u64;

/// Returns the group of a slot.
#[inline]
pub(crate) fn group_of(slot: SeriesSlot) -> GroupId {
    GroupId(slot.0 / SLOTS)
}

/// Returns the place of a slot in its group, from 0 to 511.
#[inline]
pub(crate) fn place_in_group(slot: SeriesSlot) -> u32 {
    (slot.0 % SLOTS) as u32
}

impl GroupId {
    /// The group that contains the greatest slots.
    pub(crate) const LAST: Self = Self(u64::MAX / SLOTS);

    /// Returns the slot at this place in the group.
    #[inline]
    pub(crate) fn slot(self, place: u32) -> SeriesSlot {
        SeriesSlot(self.0 * SLOTS + u64::from(place))
    }
}

/// The groups whose head may contain samples older than those of their pages. A start that cannot
/// trust the pages restores from the WAL all samples that it did not find in a page. Reads of such
/// a group merge its samples by time.
#[derive(Debug, Default)]
pub(crate) struct UnorderedGroups {
    all: AtomicBool,
    groups: RwLock<BTreeSet<GroupId>>,
    is_any: AtomicBool,
}

impl UnorderedGroups {
    /// Adds a group; its reads merge the samples of head and pages by time from now on.
    pub(crate) fn add(&self, group: GroupId) {
        write(&self.groups).insert(group);
        self.is_any.store(true, Ordering::Release);
    }

    /// Adds all groups, for a start that cannot determine which ones are affected.
    pub(crate) fn add_all(&self) {
        self.all.store(true, Ordering::Release);
        self.is_any.store(true, Ordering::Release);
    }

    /// Returns whether the group was added.
    pub(crate) fn has(&self, group: GroupId) -> bool {
        if !self.is_any.load(Ordering::Acquire) {
            return false;
        }
        let groups = read(&self.groups);
        self.all.load(Ordering::Acquire) || groups.contains(&group)
    }
}
