//! Groups: 512 neighbouring slots, whose samples are sealed together.

use crate::ids::{GroupId, Slot};
use firn_model::sync::{read, write};
use std::collections::BTreeSet;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Slots of a group, the unit of sealing: the series of one or two targets, whose samples share
/// their times; a page of it has some 30 kB, which is little to read for one series and much to
/// write at once.
pub(crate) const GROUP_SLOTS: u32 = 512;

/// The same among slots.
const SLOTS: u64 = GROUP_SLOTS as u64;

/// The group of a slot.
#[inline]
pub(crate) fn group_of(slot: Slot) -> GroupId {
    GroupId(slot.0 / SLOTS)
}

/// Which of its group a slot is.
#[inline]
pub(crate) fn place_in_group(slot: Slot) -> u32 {
    (slot.0 % SLOTS) as u32
}

impl GroupId {
    /// The one with the greatest slots.
    pub(crate) const LAST: Self = Self(u64::MAX / SLOTS);

    /// Its slot with this place.
    #[inline]
    pub(crate) fn slot(self, place: u32) -> Slot {
        Slot(self.0 * SLOTS + u64::from(place))
    }
}

/// Groups with samples in the head that are older than some of their pages: a start could not trust
/// the pages and took what no page was seen to hold out of the log again. Reads of such a group
/// merge its samples by time.
#[derive(Debug, Default)]
pub(crate) struct Returned {
    all: AtomicBool,
    groups: RwLock<BTreeSet<GroupId>>,
    is_any: AtomicBool,
}

impl Returned {
    /// A group is one of them.
    pub(crate) fn add(&self, group: GroupId) {
        write(&self.groups).insert(group);
        self.is_any.store(true, Ordering::Release);
    }

    /// All groups are.
    pub(crate) fn add_all(&self) {
        self.all.store(true, Ordering::Release);
        self.is_any.store(true, Ordering::Release);
    }

    /// Whether a group is one of them.
    pub(crate) fn has(&self, group: GroupId) -> bool {
        if !self.is_any.load(Ordering::Acquire) {
            return false;
        }
        let groups = read(&self.groups);
        self.all.load(Ordering::Acquire) || groups.contains(&group)
    }
}
