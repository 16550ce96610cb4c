//! What is known of series that are no source of their own, for as long as they come.
//!
//! Two tables, of those that came in this stretch of data time and of those that came in the one
//! before: the older one goes with each stretch, so a series that is silent for two of them is
//! forgotten, and no pass over all of them is needed.

use firn_model::fingerprint::Fingerprint;
use firn_model::sample::TimestampMs;
use hashbrown::HashTable;

/// Series that are remembered at most, some 16 to 32 bytes each. Beyond them all are forgotten, and
/// found anew by their labels.
const REMEMBERED_MAX: usize = 1 << 18;

/// A value of each series, by the hash of its key.
pub(super) struct Recent<V> {
    now: HashTable<(Fingerprint, V)>,
    before: HashTable<(Fingerprint, V)>,
    /// When this stretch began; none began yet at the least time there is.
    since: TimestampMs,
}

impl<V: Copy> Recent<V> {
    /// Remembers nothing yet.
    pub(super) fn new() -> Self {
        Self {
            now: HashTable::new(),
            before: HashTable::new(),
            since: TimestampMs::MIN,
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// What is known of a series, which came.
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

    /// Remembers a series, which came.
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

    /// Data time is `now`; a stretch takes `stretch_ms`.
    pub(super) fn advance(&mut self, now: TimestampMs, stretch_ms: i64) {
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
        let mut recent = Recent::new();
        recent.advance(7, 100);
        for number in 0..1_000 {
            recent.insert(print(number), number);
        }
        recent.advance(106, 100);
        recent.advance(107, 100);
        for number in (0..1_000).step_by(2) {
            assert_eq!(recent.get(print(number)), Some(number));
        }
        recent.advance(207, 100);
        for number in 0..1_000 {
            let expected = (number % 2 == 0).then_some(number);
            assert_eq!(recent.get(print(number)), expected, "{number}");
        }
        recent.advance(307, 100);
        recent.advance(407, 100);
        assert_eq!(recent.get(print(0)), None);
        assert!(recent.now.is_empty() && recent.before.is_empty());
    }
}
