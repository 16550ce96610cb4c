//! A cache for properties of series that are not sources, which drops silent series.
//!
//! It consists of two tables, for the series seen in the current period of data time and in the
//! previous one. The older table is dropped at the end of each period, so that a series is
//! forgotten after one to two silent periods, without a scan of all series.

use firn_model::fingerprint::Fingerprint;
use firn_model::sample::TimestampMs;
use hashbrown::HashTable;

/// Largest number of cached series, of about 16 to 32 bytes each. Beyond it the cache is cleared,
/// and series are resolved again from their labels.
const REMEMBERED_MAX: usize = 1 << 18;

/// Maps fingerprints of recently seen series to values of any small type.
pub(super) struct RecentSeriesMap<V> {
    now: HashTable<(Fingerprint, V)>,
    before: HashTable<(Fingerprint, V)>,
    /// Start of the current period; `TimestampMs::MIN` before the first.
    since: TimestampMs,
}

impl<V: Copy> RecentSeriesMap<V> {
    /// Returns an empty cache.
    pub(super) fn new() -> Self {
        Self {
            now: HashTable::new(),
            before: HashTable::new(),
            since: TimestampMs::MIN,
        }
    }

    /// Removes all series.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns the value of a series and marks it as seen. Returns `None` for an unknown one.
    #[inline]
    pub(super) fn get(&mut self, print: Fingerprint) -> Option<V> {
        let is_it = |known: &(Fingerprint, V)| known.0 == print;
        if let Some((_, value)) = self.now.find(print.low, is_it) {
            return Some(*value);
        }
        let (_, value) = *self.before.find(print.low, is_it)?;
        self.insert(print, value);
        Some(value)
    }

    /// Adds a series or replaces its value, and marks it as seen.
    pub(super) fn insert(&mut self, print: Fingerprint, value: V) {
        if self.now.len() >= REMEMBERED_MAX {
            self.clear();
        }
        let is_it = |known: &(Fingerprint, V)| known.0 == print;
        let hash = |known: &(Fingerprint, V)| known.0.low;
        let mut place = self
            .now
            .entry(print.low, is_it, hash)
            .or_insert((print, value));
        place.get_mut().1 = value;
    }

    /// Advances data time to `now`, with periods of `stretch_ms` milliseconds.
    pub(super) fn advance_time(&mut self, now: TimestampMs, stretch_ms: i64) {
        if now.saturating_sub(self.since) < stretch_ms {
            return;
        }
        self.before = match self.since {
            TimestampMs::MIN => HashTable::new(),
            _ => std::mem::take(&mut self.now),
        };
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_forgets_what_is_silent_for_two_stretches() {
        let print = |low: u64| Fingerprint { high: 0, low };
        let mut recent = RecentSeriesMap::new();
        recent.advance_time(7, 100);
        for number in 0..1_000 {
            recent.insert(print(number), number);
        }
        recent.advance_time(106, 100);
        recent.advance_time(107, 100);
        for number in (0..1_000).step_by(2) {
            assert_eq!(recent.get(print(number)), Some(number));
        }
        recent.advance_time(207, 100);
        for number in 0..1_000 {
            let expected = (number % 2 == 0).then_some(number);
            assert_eq!(recent.get(print(number)), expected, "{number}");
        }
        recent.advance_time(307, 100);
        recent.advance_time(407, 100);
        assert_eq!(recent.get(print(0)), None);
        assert!(recent.now.is_empty() && recent.before.is_empty());
    }
}
