//! Mapping between the numbers of series in memory and their slots on disk.
//!
//! ```text
//! numbers   0 ..      512 ..    1024 ..   1536 ..   2048 ..             u32, of this process
//! groups    #3        #9        #70000    #70001    #70002 ...          u64, of the folder
//!           groups found at startup               | groups started since
//! ```
//!
//! A data folder identifies series by slots, which only ascend. At startup, series found in the
//! folder get numbers from 0 on, one group of neighbouring slots at a time, in the order in which
//! they are found; groups without series get none. Series in memory are therefore identified by
//! half as many bytes, and tables are as long as the number of existing series requires, regardless
//! of how many were created before. Invariant: numbers and slots correspond one to one until the
//! store is closed.

use crate::ids::{GroupId, SeriesRef, SeriesSlot};
use crate::sealed::{GROUP_SLOTS, group_of, place_in_group};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

/// Maximum number of groups with numbers. Startup finds at most as many as had numbers before.
const GROUPS_MAX: u32 = SeriesRef::END / GROUP_SLOTS;

/// The groups found so far during startup.
#[derive(Debug, Default)]
pub(crate) struct StartupGroups {
    /// The groups, in ascending order of their numbers.
    groups: Vec<GroupId>,
    by_group: BTreeMap<GroupId, u32>,
    /// The last requested group with its number: neighbours are mostly in one group.
    newest: Option<(GroupId, u32)>,
}

impl StartupGroups {
    /// Returns the number of the first series of a group, if it has one.
    #[inline]
    pub(crate) fn first_series(&self, group: GroupId) -> Option<SeriesRef> {
        let number = *self.by_group.get(&group)?;
        Some(SeriesRef(number * GROUP_SLOTS))
    }

    /// Returns a cursor for lookups of several slots.
    pub(crate) fn cursor(&self) -> SeriesNumberCursor<'_> {
        SeriesNumberCursor {
            groups: self,
            newest: None,
        }
    }

    /// Returns the number of a slot. A new group gets the next numbers; returns `None` if none are
    /// left.
    pub(crate) fn find_or_assign_number(&mut self, slot: SeriesSlot) -> Option<SeriesRef> {
        let (group, next) = (group_of(slot), self.groups.len() as u32);
        let newest = self.newest.filter(|(known, _)| *known == group);
        let known = newest.map(|(_, number)| number);
        let number = match known.or_else(|| self.by_group.get(&group).copied()) {
            Some(number) => number,
            None if next == GROUPS_MAX => return None,
            None => {
                self.groups.push(group);
                self.by_group.insert(group, next);
                next
            }
        };
        self.newest = Some((group, number));
        Some(SeriesRef(number * GROUP_SLOTS + place_in_group(slot)))
    }

    /// Returns the slot of a number.
    pub(crate) fn slot(&self, series: SeriesRef) -> Option<SeriesSlot> {
        let group = self.groups.get((series.0 / GROUP_SLOTS) as usize)?;
        Some(group.slot(series.0 % GROUP_SLOTS))
    }
}

/// Looks up the numbers of slots; cheap if neighbours follow each other.
pub(crate) struct SeriesNumberCursor<'a> {
    groups: &'a StartupGroups,
    /// The last requested group, and the number of its first series.
    newest: Option<(GroupId, Option<SeriesRef>)>,
}

impl SeriesNumberCursor<'_> {
    /// Returns the number of a slot, if its group has one.
    #[inline]
    pub(crate) fn number(&mut self, slot: SeriesSlot) -> Option<SeriesRef> {
        let group = group_of(slot);
        let known = self.newest.filter(|(known, _)| *known == group);
        let found = || (group, self.groups.first_series(group));
        let (_, first) = *self.newest.insert(known.unwrap_or_else(found));
        Some(SeriesRef(first?.0 + place_in_group(slot)))
    }
}

/// All groups: those found at startup, followed by those of new series.
#[derive(Debug, Default)]
struct NumberedGroups {
    found: StartupGroups,
    /// The first group of new series after those in `found`.
    next: GroupId,
}

/// The mapping of a store. Until startup is complete, numbers are equal to slots.
#[derive(Debug, Default)]
pub(crate) struct SeriesNumbers(OnceLock<NumberedGroups>);

impl SeriesNumbers {
    /// Completes startup with the groups that were found; no slot from `next` on was ever assigned.
    /// Returns the number of the first new series, which is higher than all others.
    pub(crate) fn complete_startup(
        &self,
        mut found: StartupGroups,
        mut next: SeriesSlot,
    ) -> SeriesRef {
        let number = found.by_group.get(&group_of(next)).map(|n| *n as usize);
        // Its group is continued, if no other group has higher numbers.
        if number.is_some_and(|number| number + 1 < found.groups.len()) {
            next = GroupId(group_of(next).0 + 1).slot(0);
        }
        let first = found.find_or_assign_number(next);
        let settled = self.0.set(NumberedGroups {
            next: GroupId(group_of(next).0 + 1),
            found,
        });
        assert!(settled.is_ok(), "a store starts once");
        first.unwrap_or(SeriesRef(SeriesRef::END))
    }

    /// Returns whether two series are in one group.
    #[inline]
    pub(crate) fn share_group(a: SeriesRef, b: SeriesRef) -> bool {
        a.0 / GROUP_SLOTS == b.0 / GROUP_SLOTS
    }

    /// Returns the group of a series.
    #[inline]
    pub(crate) fn group_of(&self, series: SeriesRef) -> GroupId {
        let number = series.0 / GROUP_SLOTS;
        let Some(groups) = self.0.get() else {
            return GroupId(u64::from(number));
        };
        match groups.found.groups.get(number as usize) {
            Some(group) => *group,
            None => {
                let behind = u64::from(number) - groups.found.groups.len() as u64;
                GroupId(groups.next.0 + behind)
            }
        }
    }

    /// Returns the slot of a series.
    #[inline]
    pub(crate) fn slot(&self, series: SeriesRef) -> SeriesSlot {
        self.group_of(series).slot(series.0 % GROUP_SLOTS)
    }

    /// Returns the numbers of the series of a group, if it has any.
    pub(crate) fn group_numbers(&self, group: GroupId) -> Option<Range<u32>> {
        let first = match self.0.get() {
            None => u32::try_from(group.0).ok()?.checked_mul(GROUP_SLOTS)?,
            Some(groups) => match groups.found.first_series(group) {
                Some(first) => first.0,
                None => {
                    let behind = group.0.checked_sub(groups.next.0)?;
                    let number = u64::from(groups.found.groups.len() as u32) + behind;
                    u32::try_from(number).ok()?.checked_mul(GROUP_SLOTS)?
                }
            },
        };
        (first < SeriesRef::END).then(|| first..first + GROUP_SLOTS)
    }

    /// Returns the number of a slot, if its group has one.
    pub(crate) fn number(&self, slot: SeriesSlot) -> Option<SeriesRef> {
        let numbers = self.group_numbers(group_of(slot))?;
        Some(SeriesRef(numbers.start + place_in_group(slot)))
    }

    /// Returns the numbers below `end` whose slots are `first` or higher, in the order of slots.
    pub(crate) fn numbers_from_slot(
        &self,
        first: SeriesSlot,
        end: u32,
    ) -> impl Iterator<Item = SeriesRef> {
        let (groups, first_group) = (self.0.get(), group_of(first));
        let found = groups.map_or(0, |groups| groups.found.groups.len() as u64);
        let next = groups.map_or(0, |groups| groups.next.0);
        let of_found = groups
            .into_iter()
            .flat_map(move |groups| groups.found.by_group.range(first_group..))
            .map(|(_, number)| u64::from(*number));
        let of_new = found + first_group.0.saturating_sub(next);
        let all = of_found.chain(of_new..u64::from(end.div_ceil(GROUP_SLOTS)));
        let numbers = all.flat_map(|number| {
            let start = number as u32 * GROUP_SLOTS;
            start..start + GROUP_SLOTS
        });
        numbers
            .map(SeriesRef)
            .filter(move |series| series.0 < end && self.slot(*series) >= first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_of_random_slots_stand_for_one_slot_each() {
        for seed in 0..200 {
            let rng = SimRng::new(seed);
            let mut found = StartupGroups::default();
            let slots: BTreeSet<SeriesSlot> = (0..rng.next_below(40))
                .map(|_| SeriesSlot((rng.next_below(3) << 32) + rng.next_below(5_000)))
                .collect();
            let mut met: Vec<SeriesSlot> = slots.iter().copied().collect();
            // Almost in order, as at startup.
            if met.len() > 1 && rng.one_in(2) {
                let at = rng.next_below(met.len() as u64 - 1) as usize;
                met.swap(at, at + 1);
            }
            let numbered: Vec<(SeriesRef, SeriesSlot)> = met
                .iter()
                .map(|slot| (found.find_or_assign_number(*slot).unwrap(), *slot))
                .collect();
            let next = slots.last().map_or(0, |last| {
                last.0 + 1 + rng.next_below(2) * rng.next_below(2_000)
            });
            let numbers = SeriesNumbers::default();
            let first_new = numbers.complete_startup(found, SeriesSlot(next));
            for (series, slot) in &numbered {
                assert!(series.0 < first_new.0, "seed {seed}");
                assert_eq!(numbers.slot(*series), *slot, "seed {seed}");
                assert_eq!(numbers.number(*slot), Some(*series), "seed {seed}");
            }
            let end = first_new.0 + rng.next_below(2_000) as u32;
            for series in (0..end).map(SeriesRef) {
                let slot = numbers.slot(series);
                assert_eq!(numbers.number(slot), Some(series), "seed {seed}");
                assert_eq!(numbers.group_of(series), group_of(slot), "seed {seed}");
                assert!(
                    series < first_new || slot.0 >= next,
                    "{slot:?}, seed {seed}"
                );
            }
            let first = SeriesSlot((rng.next_below(3) << 32) + rng.next_below(5_000));
            let listed: Vec<SeriesRef> = numbers.numbers_from_slot(first, end).collect();
            let mut expected: Vec<SeriesRef> = (0..end).map(SeriesRef).collect();
            expected.retain(|series| numbers.slot(*series) >= first);
            expected.sort_by_key(|series| numbers.slot(*series));
            assert_eq!(listed, expected, "seed {seed}");
        }
    }

    #[test]
    fn numbers_of_groups_without_series_are_none() {
        let mut found = StartupGroups::default();
        found.find_or_assign_number(SeriesSlot(5 << 32));
        let numbers = SeriesNumbers::default();
        numbers.complete_startup(found, SeriesSlot((5 << 32) + 7));
        assert_eq!(numbers.number(SeriesSlot(3)), None);
        assert_eq!(numbers.number(SeriesSlot(5 << 32)), Some(SeriesRef(0)));
        assert_eq!(
            numbers.number(SeriesSlot((5 << 32) + 512)),
            Some(SeriesRef(512))
        );
        assert_eq!(numbers.number(SeriesSlot(u64::MAX)), None);
    }
}
