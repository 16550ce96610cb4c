//! Exemplars: single observations that are attached to a sample. Their labels usually contain a
//! trace id.

use crate::labels::{Labels, LabelsRef};
use crate::sample::TimestampMs;
use std::cmp::Ordering;

/// An exemplar of a sample, as a decoder passes it on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar<'a> {
    /// The labels of the exemplar, not those of the series.
    pub labels: LabelsRef<'a>,
    /// The observed value, which may differ from that of the sample.
    pub value: f64,
    /// The timestamp in milliseconds, if the source contains one.
    pub time: Option<TimestampMs>,
}

/// The exemplars of a sample. Their label sets are in one buffer. Reuse a list with
/// [`SampleExemplars::clear`] to keep its memory.
#[derive(Clone, Debug, Default)]
pub struct SampleExemplars {
    label_bytes: Vec<u8>,
    rows: Vec<SampleExemplarRow>,
}

#[derive(Clone, Copy, Debug)]
struct SampleExemplarRow {
    labels_end: usize,
    value: f64,
    time: Option<TimestampMs>,
}

impl SampleExemplars {
    /// Removes all exemplars and keeps the memory, so that the list can be reused.
    pub fn clear(&mut self) {
        self.label_bytes.clear();
        self.rows.clear();
    }

    /// Adds an exemplar to the end of the list.
    pub fn push(&mut self, labels: LabelsRef<'_>, value: f64, time: Option<TimestampMs>) {
        self.label_bytes.extend_from_slice(labels.as_bytes());
        self.rows.push(SampleExemplarRow {
            labels_end: self.label_bytes.len(),
            value,
            time,
        });
    }

    /// Adds all exemplars of another list in order.
    pub fn extend(&mut self, others: &SampleExemplars) {
        for exemplar in others.iter() {
            self.push(exemplar.labels, exemplar.value, exemplar.time);
        }
    }

    /// Returns the number of exemplars in the list.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the list contains no exemplars.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the exemplars in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Exemplar<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let labels = &self.label_bytes[start..row.labels_end];
            start = row.labels_end;
            Exemplar {
                labels: LabelsRef::from_canonical(labels),
                value: row.value,
                time: row.time,
            }
        })
    }
}

/// Maximum number of characters in the labels of an exemplar, names and values together. This is
/// the limit of OpenMetrics.
pub const LABEL_CHARS_MAX: usize = 128;

/// An exemplar with a definite timestamp, as a store receives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedExemplar<'a> {
    /// The labels of the exemplar, not those of the series.
    pub labels: LabelsRef<'a>,
    /// The observed value, which may differ from that of the sample.
    pub value: f64,
    /// The timestamp of the exemplar, or that of its sample.
    pub time: TimestampMs,
    /// True if the source contained a timestamp. Otherwise the timestamp is that of the sample.
    pub has_own_time: bool,
}

impl TimedExemplar<'_> {
    /// Compares exemplars of a series by time, value and labels. This is the order in which they
    /// are stored.
    pub fn compare(&self, other: &TimedExemplar<'_>) -> Ordering {
        let by_time = self.time.cmp(&other.time);
        let by_value = || normalize_zero(self.value).total_cmp(&normalize_zero(other.value));
        by_time
            .then_with(by_value)
            .then_with(|| self.labels.cmp(&other.labels))
    }

    /// Returns whether the exemplar is a duplicate of `before`. Timestamps are ignored if both
    /// exemplars got theirs from their samples.
    pub fn is_duplicate_of(&self, before: &TimedExemplar<'_>) -> bool {
        let has_times = self.has_own_time || before.has_own_time;
        (!has_times || self.time == before.time)
            && normalize_zero(self.value).to_bits() == normalize_zero(before.value).to_bits()
            && self.labels == before.labels
    }

    /// Returns whether the labels have more than [`LABEL_CHARS_MAX`] characters.
    pub fn is_too_long(&self) -> bool {
        let parts = self.labels.pairs().flat_map(|(n, v)| [n, v]);
        parts.map(count_chars).sum::<usize>() > LABEL_CHARS_MAX
    }
}

/// Returns the value with negative zero replaced by zero.
fn normalize_zero(value: f64) -> f64 {
    value + 0.0
}

/// Returns the number of characters, counted like Go: each invalid byte counts as one.
fn count_chars(text: &[u8]) -> usize {
    let chunks = text.utf8_chunks();
    chunks
        .map(|chunk| chunk.valid().chars().count() + chunk.invalid().len())
        .sum()
}

/// Exemplars of many series, each with the number of its series: its index in a batch, or its slot.
#[derive(Clone, Debug, Default)]
pub struct SeriesExemplars {
    label_bytes: Vec<u8>,
    rows: Vec<SeriesExemplarRow>,
}

#[derive(Clone, Copy, Debug)]
struct SeriesExemplarRow {
    series: u64,
    has_own_time: bool,
    labels_end: usize,
    value: f64,
    time: TimestampMs,
}

impl SeriesExemplars {
    /// Removes all exemplars and keeps the memory, so that the list can be reused.
    pub fn clear(&mut self) {
        self.label_bytes.clear();
        self.rows.clear();
    }

    /// Adds an exemplar of series number `series`. Its labels are copied.
    pub fn push(&mut self, series: u64, exemplar: TimedExemplar<'_>) {
        self.label_bytes
            .extend_from_slice(exemplar.labels.as_bytes());
        self.rows.push(SeriesExemplarRow {
            series,
            has_own_time: exemplar.has_own_time,
            labels_end: self.label_bytes.len(),
            value: exemplar.value,
            time: exemplar.time,
        });
    }

    /// Removes the exemplars of series number `series` from the end of the list.
    pub fn drop_last_of(&mut self, series: u64) {
        while self.rows.pop_if(|row| row.series == series).is_some() {}
        let end = self.rows.last().map_or(0, |row| row.labels_end);
        self.label_bytes.truncate(end);
    }

    /// Removes the exemplars of `series`, which contains numbers in ascending order. The following
    /// series get lower numbers.
    pub fn remove_series(&mut self, series: &[u32]) {
        if self.rows.is_empty() {
            return;
        }
        let before = std::mem::take(self);
        for (number, exemplar) in before.iter() {
            let place = series.binary_search_by_key(&number, |gone| u64::from(*gone));
            if let Err(lower) = place {
                self.push(number - lower as u64, exemplar);
            }
        }
    }

    /// Returns the number of exemplars of all series together.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the list contains no exemplars.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the memory of the list in bytes, including unused capacity.
    pub fn memory_bytes(&self) -> usize {
        self.label_bytes.capacity() + self.rows.capacity() * size_of::<SeriesExemplarRow>()
    }

    /// Returns the exemplars with the numbers of their series, in the order in which they were
    /// added.
    pub fn iter(&self) -> impl Iterator<Item = (u64, TimedExemplar<'_>)> {
        self.iter_from(0)
    }

    /// Returns the exemplars of series number `series`. The numbers in the list must be in
    /// ascending order.
    pub fn iter_series(&self, series: u64) -> impl Iterator<Item = TimedExemplar<'_>> {
        let first = self.rows.partition_point(|row| row.series < series);
        let behind = self.iter_from(first);
        behind
            .take_while(move |(number, _)| *number == series)
            .map(|(_, exemplar)| exemplar)
    }

    fn iter_from(&self, first: usize) -> impl Iterator<Item = (u64, TimedExemplar<'_>)> {
        let before = first.checked_sub(1).map(|last| self.rows[last].labels_end);
        let mut start = before.unwrap_or(0);
        self.rows[first..].iter().map(move |row| {
            let labels = &self.label_bytes[start..row.labels_end];
            start = row.labels_end;
            let exemplar = TimedExemplar {
                labels: LabelsRef::from_canonical(labels),
                value: row.value,
                time: row.time,
                has_own_time: row.has_own_time,
            };
            (row.series, exemplar)
        })
    }
}

/// An exemplar in the result of a look-up, with labels of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct ExemplarResult {
    /// The labels of the exemplar, not those of the series.
    pub labels: Labels,
    /// The observed value, which may differ from those of samples.
    pub value: f64,
    /// The timestamp of the exemplar in milliseconds.
    pub time: TimestampMs,
}

/// The result of a look-up for one series that has exemplars.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesExemplarResult {
    /// The labels of the series to which the exemplars belong.
    pub series: Labels,
    /// The exemplars of the series in time order.
    pub exemplars: Vec<ExemplarResult>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exemplars_pushed_come_back_with_their_labels() {
        let mut exemplars = SampleExemplars::default();
        let labels = Labels::from_pairs([("trace_id", "1"), ("span", "x")]);
        for _ in 0..2 {
            exemplars.clear();
            exemplars.push(labels.as_ref(), 1.5, Some(7));
            exemplars.push(Labels::empty().as_ref(), 2.0, None);
            let found: Vec<_> = exemplars.iter().collect();
            assert_eq!(found[0].labels, labels.as_ref());
            assert_eq!((found[0].value, found[0].time), (1.5, Some(7)));
            assert_eq!((found[1].labels.is_empty(), found[1].time), (true, None));
            assert_eq!(exemplars.len(), 2);
        }
    }

    #[test]
    fn label_characters_count_as_in_go() {
        for (name, value, is_too_long) in [
            ("trace_id", "x".repeat(120).into_bytes(), false),
            ("trace_id", "x".repeat(121).into_bytes(), true),
            ("trace_id", "\u{e4}".repeat(120).into_bytes(), false),
            ("trace_id", vec![0xff; 120], false),
            ("trace_id", vec![0xff; 121], true),
        ] {
            let labels = Labels::from_pairs([(name, value)]);
            let exemplar = TimedExemplar {
                labels: labels.as_ref(),
                value: 1.0,
                time: 0,
                has_own_time: true,
            };
            assert_eq!(exemplar.is_too_long(), is_too_long, "{labels}");
        }
    }

    #[test]
    fn exemplars_of_a_dropped_series_are_taken_back() {
        let labels = Labels::from_pairs([("trace_id", "1")]);
        let exemplar = |time| TimedExemplar {
            labels: labels.as_ref(),
            value: 1.0,
            time,
            has_own_time: true,
        };
        let mut exemplars = SeriesExemplars::default();
        for (series, time) in [(0, 1), (2, 2), (2, 3)] {
            exemplars.push(series, exemplar(time));
        }
        exemplars.drop_last_of(1);
        assert_eq!(exemplars.len(), 3);
        exemplars.drop_last_of(2);
        exemplars.push(3, exemplar(4));
        let found: Vec<_> = exemplars
            .iter()
            .map(|(s, e)| (s, e.time, e.labels))
            .collect();
        assert_eq!(found, [(0, 1, labels.as_ref()), (3, 4, labels.as_ref())]);
    }
}
