//! Ring of the newest exemplars in order of arrival, with a chain per series.
//!
//! ```text
//! entries   #40 a   #41 b   #42 a   #43 c   ...        the oldest is dropped when the ring is full
//! next       #42     -       -       -
//! chains    a: #40..#42   b: #41..#41   c: #43..#43
//! ```
//!
//! An entry is identified by its number, which counts all exemplars ever added. Invariant: along a
//! chain, numbers and [`TimedExemplar::compare`] ascend, except for exemplars that have the time of
//! a sample.

use crate::ids::SeriesSlot;
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::labels::LabelsRef;
use firn_model::log::LogPosition;
use firn_model::sample::TimestampMs;
use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};

/// Marks the end of a chain: the number of no entry.
const NONE: u64 = u64::MAX;

/// Result of adding an exemplar: it was stored, or the reason why it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExemplarAppendOutcome {
    /// The exemplar is in the ring.
    Added,
    /// The newest exemplar of the series is equal.
    Repeated,
    /// The newest exemplar of the series is after it.
    OutOfOrder,
}

/// An exemplar in the ring, linked to the next one of its series.
#[derive(Debug)]
struct ExemplarRingEntry {
    /// Labels of the exemplar in canonical encoding.
    labels: Box<[u8]>,
    value: f64,
    time: TimestampMs,
    /// Number of the next entry of the series.
    next: u64,
    slot: SeriesSlot,
    has_own_time: bool,
}

impl ExemplarRingEntry {
    fn exemplar(&self) -> TimedExemplar<'_> {
        TimedExemplar {
            labels: LabelsRef::from_canonical(&self.labels),
            value: self.value,
            time: self.time,
            has_own_time: self.has_own_time,
        }
    }
}

/// The numbers of the first and the last entry of a series.
#[derive(Clone, Copy, Debug)]
struct SeriesExemplarChain {
    oldest: u64,
    newest: u64,
}

/// The exemplars of a ring that are not in the file yet.
#[derive(Debug)]
pub(crate) struct UnwrittenExemplars {
    pub(crate) exemplars: SeriesExemplars,
    /// True if these are all exemplars of the ring, so that the file must be rewritten.
    pub(crate) is_whole: bool,
    /// The number after the last of them.
    pub(crate) end: u64,
    /// All exemplars of the log up to this position are among them or in the file.
    pub(crate) position: LogPosition,
}

/// The ring, with entries of all series.
#[derive(Debug, Default)]
pub(crate) struct ExemplarRing {
    max: usize,
    entries: VecDeque<ExemplarRingEntry>,
    /// Number of the first entry.
    first: u64,
    chains: HashMap<SeriesSlot, SeriesExemplarChain>,
    label_bytes: usize,
    /// Position of the last record whose exemplars are in the ring.
    position: LogPosition,
}

impl ExemplarRing {
    /// Sets the maximum number of entries, and drops the oldest ones above it.
    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max;
        while self.entries.len() > max {
            self.drop_oldest();
        }
        self.entries.shrink_to(max);
    }

    /// Returns the maximum number of entries.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the slots of the series with exemplars.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SeriesSlot> {
        self.chains.keys().copied()
    }

    /// Returns the time of the oldest entry, which is dropped next.
    pub(crate) fn oldest_time(&self) -> Option<TimestampMs> {
        self.entries.front().map(|entry| entry.time)
    }

    /// Returns the position of the last record whose exemplars are in the ring.
    pub(crate) fn position(&self) -> LogPosition {
        self.position
    }

    /// Records that the exemplars of the record at `position` are in the ring.
    pub(crate) fn set_position(&mut self, position: LogPosition) {
        self.position = self.position.max(position);
    }

    /// Returns the result that adding an exemplar of the series at `slot` would have.
    pub(crate) fn check_append(
        &self,
        slot: SeriesSlot,
        exemplar: &TimedExemplar<'_>,
    ) -> ExemplarAppendOutcome {
        let chain = self.chains.get(&slot);
        let Some(newest) = chain.and_then(|chain| self.entry(chain.newest)) else {
            return ExemplarAppendOutcome::Added;
        };
        let newest = newest.exemplar();
        if exemplar.is_duplicate_of(&newest) {
            return ExemplarAppendOutcome::Repeated;
        }
        match exemplar.compare(&newest) {
            Ordering::Less => ExemplarAppendOutcome::OutOfOrder,
            Ordering::Equal => ExemplarAppendOutcome::Repeated,
            Ordering::Greater => ExemplarAppendOutcome::Added,
        }
    }

    /// Adds an exemplar of the series at `slot`.
    pub(crate) fn add(
        &mut self,
        slot: SeriesSlot,
        exemplar: &TimedExemplar<'_>,
    ) -> ExemplarAppendOutcome {
        let taken = self.check_append(slot, exemplar);
        if taken != ExemplarAppendOutcome::Added || self.max == 0 {
            return taken;
        }
        if self.entries.len() == self.max {
            self.drop_oldest();
        }
        let number = self.end();
        match self.chains.get_mut(&slot) {
            Some(chain) => {
                let before = std::mem::replace(&mut chain.newest, number);
                let at = before.wrapping_sub(self.first) as usize;
                if let Some(before) = self.entries.get_mut(at) {
                    before.next = number;
                }
            }
            None => {
                let chain = SeriesExemplarChain {
                    oldest: number,
                    newest: number,
                };
                self.chains.insert(slot, chain);
            }
        }
        let labels = exemplar.labels.as_bytes();
        self.label_bytes += labels.len();
        self.entries.push_back(ExemplarRingEntry {
            labels: labels.into(),
            value: exemplar.value,
            time: exemplar.time,
            next: NONE,
            slot,
            has_own_time: exemplar.has_own_time,
        });
        taken
    }

    /// Drops the oldest entry and unlinks it from the chain of its series.
    fn drop_oldest(&mut self) {
        let Some(gone) = self.entries.pop_front() else {
            return;
        };
        self.first += 1;
        self.label_bytes -= gone.labels.len();
        if gone.next == NONE {
            self.chains.remove(&gone.slot);
        } else if let Some(chain) = self.chains.get_mut(&gone.slot) {
            chain.oldest = gone.next;
        }
    }

    /// Returns the number of the next entry.
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn entry(&self, number: u64) -> Option<&ExemplarRingEntry> {
        let at = number.checked_sub(self.first)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// Returns the exemplars of a series, oldest first.
    pub(crate) fn series_exemplars(
        &self,
        slot: SeriesSlot,
    ) -> impl Iterator<Item = TimedExemplar<'_>> {
        let mut next = self.chains.get(&slot).map_or(NONE, |chain| chain.oldest);
        std::iter::from_fn(move || {
            let entry = self.entry(next)?;
            next = entry.next;
            Some(entry.exemplar())
        })
    }

    /// Returns the entries from number `has` on, which are not in the file; `None` if there are
    /// none.
    pub(crate) fn unwritten_since(&self, has: u64) -> Option<UnwrittenExemplars> {
        if self.end() <= has {
            return None;
        }
        let known = usize::try_from(has.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut exemplars = SeriesExemplars::default();
        for entry in self.entries.iter().skip(known) {
            exemplars.push(entry.slot.0, entry.exemplar());
        }
        Some(UnwrittenExemplars {
            exemplars,
            is_whole: known == 0,
            end: self.end(),
            position: self.position,
        })
    }

    /// Returns the memory of the ring in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        // A hash table of the standard library has one byte per bucket in addition.
        let chain = size_of::<(SeriesSlot, SeriesExemplarChain)>() + 1;
        self.entries.capacity() * size_of::<ExemplarRingEntry>()
            + self.label_bytes
            + self.chains.capacity() * chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;
    use firn_model::labels::Labels;

    fn exemplar(labels: &Labels, value: f64, time: i64, has_own_time: bool) -> TimedExemplar<'_> {
        TimedExemplar {
            labels: labels.as_ref(),
            value,
            time,
            has_own_time,
        }
    }

    fn found(ring: &ExemplarRing, slot: SeriesSlot) -> Vec<(f64, i64)> {
        ring.series_exemplars(slot)
            .map(|e| (e.value, e.time))
            .collect()
    }

    #[test]
    fn ring_takes_what_upstream_takes() {
        use ExemplarAppendOutcome::{Added, OutOfOrder, Repeated};
        let (a, b) = (
            Labels::from_pairs([("id", "a")]),
            Labels::from_pairs([("id", "b")]),
        );
        let mut ring = ExemplarRing::default();
        ring.set_max(10);
        for (labels, value, time, has_own_time, want) in [
            (&a, 1.0, 10, true, Added),
            (&a, 1.0, 10, true, Repeated),
            (&b, 1.0, 10, true, Added),
            (&a, 1.0, 10, true, OutOfOrder),
            (&a, 2.0, 10, true, Added),
            (&a, 1.0, 10, true, OutOfOrder),
            (&a, 9.0, 9, true, OutOfOrder),
            (&a, 1.0, 11, true, Added),
            (&a, 2.0, 12, false, Added),
            // Without times of their own, equal exemplars at different times are repetitions.
            (&a, 2.0, 13, false, Repeated),
            (&a, 2.0, 13, true, Added),
            (&a, f64::NAN, 14, true, Added),
            (&a, f64::NAN, 14, true, Repeated),
            (&a, 0.0, 15, true, Added),
            (&a, -0.0, 15, true, Repeated),
        ] {
            let exemplar = exemplar(labels, value, time, has_own_time);
            let context = format!("{exemplar:?}");
            assert_eq!(
                ring.check_append(SeriesSlot(7), &exemplar),
                want,
                "{context}"
            );
            assert_eq!(ring.add(SeriesSlot(7), &exemplar), want, "{context}");
        }
        assert_eq!(ring.add(SeriesSlot(8), &exemplar(&a, 1.0, 1, true)), Added);
        assert_eq!(found(&ring, SeriesSlot(8)), [(1.0, 1)]);
        assert_eq!(found(&ring, SeriesSlot(9)), []);
    }

    #[test]
    fn ring_full_keeps_the_newest_of_all_series() {
        for seed in 0..200 {
            let rng = SimRng::new(seed);
            let mut ring = ExemplarRing::default();
            let mut max = 1 + rng.next_below(20) as usize;
            ring.set_max(max);
            let mut all: Vec<(SeriesSlot, i64)> = Vec::new();
            let labels = Labels::from_pairs([("trace_id", "x")]);
            for time in 0..rng.next_below(200) as i64 {
                if rng.one_in(40) {
                    max = 1 + rng.next_below(30) as usize;
                    ring.set_max(max);
                    let over = all.len().saturating_sub(max);
                    all.drain(..over);
                }
                let slot = SeriesSlot(rng.next_below(6));
                ring.add(slot, &exemplar(&labels, 0.5, time, true));
                all.push((slot, time));
                let over = all.len().saturating_sub(max);
                all.drain(..over);
            }
            for slot in (0..6).map(SeriesSlot) {
                let of_slot = all.iter().filter(|(s, _)| *s == slot);
                let want: Vec<_> = of_slot.map(|(_, time)| (0.5, *time)).collect();
                assert_eq!(found(&ring, slot), want, "seed {seed} {slot:?}");
            }
            assert_eq!(ring.len(), all.len(), "seed {seed}");
            assert_eq!(ring.label_bytes, all.len() * labels.as_bytes().len());
        }
    }
}
