//! The registry of damage found in the store: the affected bytes and the lost samples.
//!
//! A reader that finds damage reports it here and continues with the intact data. The registry logs
//! the damage, counts it by kind, keeps a bounded list for `/api/v1/status/tsdb`, and returns the
//! damage that may affect a query over a time range. Invariant: listed damage that is reported
//! again is neither logged nor counted twice. The registry repairs nothing.

use crate::error::StorageError;
use crate::sync::{Mutex, MutexGuard, lock};
use firn_model::metrics::Counter;
use firn_model::sample::TimeRange;
use std::path::PathBuf;

pub use firn_model::damage::{Damage, DamageKind};

/// Maximum number of listed damages, about 200 bytes each; further ones are only counted and
/// logged.
const LISTED_MAX: usize = 256;

/// Converts the error of a read into a damage of this kind.
pub(crate) fn damage_from_error(kind: DamageKind, error: &StorageError) -> Damage {
    let (file, offset, what) = match error {
        StorageError::Damaged { path, offset, what } => (path.clone(), Some(*offset), what.clone()),
        StorageError::Io { path, .. } | StorageError::Undelivered { path, .. } => {
            (path.clone(), None, error.to_string())
        }
        other => (PathBuf::new(), None, other.to_string()),
    };
    Damage {
        offset,
        ..Damage::for_file(kind, &file, what)
    }
}

/// A listed damage and how queries are informed of it.
#[derive(Debug)]
struct ListedDamage {
    damage: Damage,
    /// True if every read that lacks samples because of it reports it on its own.
    is_met: bool,
    /// True if an index lookup found it.
    is_of_look_up: bool,
}

/// The damages found since the store was opened, shared by all readers.
#[derive(Debug, Default)]
pub(crate) struct DamageList {
    listed: Mutex<Vec<ListedDamage>>,
    counts: [Counter; DamageKind::ALL.len()],
}

impl DamageList {
    /// Logs, counts and lists `damage`. Returns false if it was already listed.
    pub(crate) fn report(&self, damage: Damage) -> bool {
        self.list_new(damage, false).is_none()
    }

    /// Like `report`, for damage found by a read: every read that lacks samples because of it finds
    /// it again and returns its own warning. Returns the damage as it was first reported.
    pub(crate) fn report_read_damage(&self, damage: Damage) -> Damage {
        let known = self.list_new(damage.clone(), true);
        known.unwrap_or(damage)
    }

    /// Like `report_read_damage`, for a lookup that may be unable to return a warning. The damage
    /// is included in the result of [`DamageList::list_for_lookups`] from now on.
    pub(crate) fn report_lookup_damage(&self, damage: Damage) -> Damage {
        let damage = self.report_read_damage(damage);
        for listed in self.lock().iter_mut() {
            listed.is_of_look_up |= listed.damage == damage;
        }
        damage
    }

    /// Adds a damage to the list and logs it, or returns the listed damage if it is not new.
    fn list_new(&self, damage: Damage, is_met: bool) -> Option<Damage> {
        let mut listed = self.lock();
        let is_it = |listed: &&ListedDamage| {
            let known = &listed.damage;
            (known.kind, &known.file, known.offset) == (damage.kind, &damage.file, damage.offset)
                && (damage.offset.is_some() || known.what == damage.what)
        };
        if let Some(known) = listed.iter().find(is_it) {
            return Some(known.damage.clone());
        }
        self.counts[damage.kind as usize].inc();
        if listed.len() < LISTED_MAX {
            let damage = damage.clone();
            listed.push(ListedDamage {
                damage,
                is_met,
                is_of_look_up: false,
            });
        }
        drop(listed);
        tracing::error!(
            kind = damage.kind.as_str(),
            file = %damage.file.display(),
            offset = damage.offset,
            what = %damage.what,
            lost_samples = damage.samples,
            lost_from = damage.range.map(|range| range.min),
            lost_to = damage.range.map(|range| range.max),
            "damaged data: Firn serves the intact part; `firn tsdb verify` lists all damage"
        );
        None
    }

    /// Returns the listed damages, oldest first.
    pub(crate) fn list(&self) -> Vec<Damage> {
        let listed = self.lock();
        listed.iter().map(|listed| listed.damage.clone()).collect()
    }

    /// Returns the listed damages that may affect samples of any series in `range`, without those
    /// that reads report on their own.
    pub(crate) fn list_in_range(&self, range: TimeRange) -> Vec<Damage> {
        self.list_matching(range, |listed| !listed.is_met)
    }

    /// Returns the same damages as `list_in_range`, plus those that lookups found.
    pub(crate) fn list_for_lookups(&self, range: TimeRange) -> Vec<Damage> {
        self.list_matching(range, |listed| !listed.is_met || listed.is_of_look_up)
    }

    fn list_matching(
        &self,
        range: TimeRange,
        counts: impl Fn(&ListedDamage) -> bool,
    ) -> Vec<Damage> {
        let listed = self.lock();
        let touches = |listed: &&ListedDamage| {
            let lost = listed.damage.range.filter(|_| counts(listed));
            lost.is_some_and(|lost| lost.overlaps(&range))
        };
        let touching = listed.iter().filter(touches);
        touching.map(|listed| listed.damage.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ListedDamage>> {
        lock(&self.listed)
    }

    /// Returns the number of all damages, including those that are not listed.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().map(Counter::get).sum()
    }

    /// Returns the number of damages of this kind, including those that are not listed.
    pub(crate) fn count(&self, kind: DamageKind) -> u64 {
        self.counts[kind as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage(offset: Option<u64>, range: Option<(i64, i64)>) -> Damage {
        Damage {
            kind: DamageKind::Pages,
            file: PathBuf::from("pages/1.pages"),
            offset,
            what: "a stripe has another sum".to_owned(),
            samples: Some(7),
            range: range.map(|(min, max)| TimeRange::new(min, max)),
        }
    }

    #[test]
    fn damage_met_again_counts_once() {
        let damages = DamageList::default();
        assert!(damages.report(damage(Some(24), None)));
        assert!(!damages.report(damage(Some(24), None)));
        assert!(damages.report(damage(Some(99), None)));
        assert!(damages.report(damage(None, None)));
        assert_eq!(damages.count(DamageKind::Pages), 3);
        assert_eq!(damages.count(DamageKind::Log), 0);
        assert_eq!(damages.list().len(), 3);
    }

    #[test]
    fn damage_beyond_the_list_is_counted() {
        let damages = DamageList::default();
        for offset in 0..2 * LISTED_MAX as u64 {
            damages.report(damage(Some(offset), None));
        }
        assert_eq!(damages.list().len(), LISTED_MAX);
        assert_eq!(damages.count(DamageKind::Pages), 2 * LISTED_MAX as u64);
    }

    #[test]
    fn damage_touches_the_ranges_that_it_overlaps() {
        let damages = DamageList::default();
        damages.report(damage(Some(1), Some((10, 20))));
        damages.report(damage(Some(2), None));
        let touching = |min, max| damages.list_in_range(TimeRange::new(min, max)).len();
        assert_eq!(
            [touching(0, 9), touching(20, 30), touching(21, 30)],
            [0, 1, 0]
        );
    }

    #[test]
    fn damage_that_a_read_met_is_listed_and_touches_nothing() {
        let damages = DamageList::default();
        let met = damage(Some(1), Some((10, 20)));
        assert_eq!(damages.report_read_damage(met.clone()), met);
        let other = Damage {
            what: "cannot be read".to_owned(),
            ..met.clone()
        };
        assert_eq!(
            damages.report_read_damage(other),
            met,
            "as it was met first"
        );
        assert_eq!(damages.list(), [met]);
        assert!(damages.list_in_range(TimeRange::ALL).is_empty());
        assert_eq!(damages.count(DamageKind::Pages), 1);
    }

    #[test]
    fn damage_reads_as_a_sentence() {
        let of_memory = Damage {
            file: PathBuf::new(),
            kind: DamageKind::Head,
            ..damage(None, None)
        };
        let text = "memory is damaged: a stripe has another sum; 7 samples are lost";
        assert_eq!(of_memory.to_string(), text);
        assert_eq!(
            damage(Some(24), Some((10, 20))).to_string(),
            "pages/1.pages is damaged at offset 24: a stripe has another sum; 7 samples are lost, \
             from 10 to 20 ms"
        );
        assert_eq!(
            damage(None, None).to_string(),
            "pages/1.pages is damaged: a stripe has another sum; it contained 7 samples, some of \
             which were recovered from the log"
        );
    }
}
