//! Exemplars: single observations, with labels that lead to their trace, attached to a sample.

use crate::labels::{Labels, LabelsRef};
use crate::sample::TimestampMs;
use std::cmp::Ordering;

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar<'a> {
    /// Labels of its own, not those of the series.
    pub labels: LabelsRef<'a>,
    /// What was observed.
    pub value: f64,
    /// When, if the source says.
    pub time: Option<TimestampMs>,
}

/// The exemplars of a sample, their label sets one behind the other in one buffer. Reuse one with
/// [`Exemplars::clear`] to keep its memory.
#[derive(Clone, Debug, Default)]
pub struct Exemplars {
    label_bytes: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    labels_end: usize,
    value: f64,
    time: Option<TimestampMs>,
}

impl Exemplars {
    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.label_bytes.clear();
        self.rows.clear();
    }

    /// Adds an exemplar.
    pub fn push(&mut self, labels: LabelsRef<'_>, value: f64, time: Option<TimestampMs>) {
        self.label_bytes.extend_from_slice(labels.as_bytes());
        self.rows.push(Row {
            labels_end: self.label_bytes.len(),
            value,
            time,
        });
    }

    /// Adds all of another list.
    pub fn extend(&mut self, others: &Exemplars) {
        for exemplar in others.iter() {
            self.push(exemplar.labels, exemplar.value, exemplar.time);
        }
    }

    /// Exemplars in the list.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The exemplars in the order they were added.
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

/// Label characters that an exemplar may have, names and values together; OpenMetrics's limit.
pub const LABEL_CHARS_MAX: usize = 128;

/// An exemplar with the time that it goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedExemplar<'a> {
    /// Labels of its own, not those of the series.
    pub labels: LabelsRef<'a>,
    /// What was observed.
    pub value: f64,
    /// When.
    pub time: TimestampMs,
    /// Whether its source said when; if not, the time is that of its sample.
    pub has_own_time: bool,
}

impl TimedExemplar<'_> {
    /// The order in which exemplars of a series come: by time, value and labels.
    pub fn order(&self, other: &TimedExemplar<'_>) -> Ordering {
        let by_time = self.time.cmp(&other.time);
        let by_value = || plain(self.value).total_cmp(&plain(other.value));
        by_time
            .then_with(by_value)
            .then_with(|| self.labels.cmp(&other.labels))
    }

    /// Whether it says nothing that `before` did not say. One that got its time from its sample is
    /// the same at any time.
    pub fn repeats(&self, before: &TimedExemplar<'_>) -> bool {
        let has_times = self.has_own_time || before.has_own_time;
        (!has_times || self.time == before.time)
            && plain(self.value).to_bits() == plain(before.value).to_bits()
            && self.labels == before.labels
    }

    /// Whether its labels have more than [`LABEL_CHARS_MAX`] characters.
    pub fn is_too_long(&self) -> bool {
        let parts = self.labels.pairs().flat_map(|(n, v)| [n, v]);
        parts.map(char_count).sum::<usize>() > LABEL_CHARS_MAX
    }
}

/// The value with one zero instead of two.
fn plain(value: f64) -> f64 {
    value + 0.0
}

/// Characters as Go counts them: a byte that belongs to none is one.
fn char_count(text: &[u8]) -> usize {
    let chunks = text.utf8_chunks();
    chunks
        .map(|chunk| chunk.valid().chars().count() + chunk.invalid().len())
        .sum()
}

/// Exemplars of many series, each with the number of its series: its place in a batch, or its slot.
#[derive(Clone, Debug, Default)]
pub struct SeriesExemplars {
    label_bytes: Vec<u8>,
    rows: Vec<SeriesRow>,
}

#[derive(Clone, Copy, Debug)]
struct SeriesRow {
    series: u64,
    has_own_time: bool,
    labels_end: usize,
    value: f64,
    time: TimestampMs,
}

impl SeriesExemplars {
    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.label_bytes.clear();
        self.rows.clear();
    }

    /// Adds an exemplar of series number `series`.
    pub fn push(&mut self, series: u64, exemplar: TimedExemplar<'_>) {
        self.label_bytes
            .extend_from_slice(exemplar.labels.as_bytes());
        self.rows.push(SeriesRow {
            series,
            has_own_time: exemplar.has_own_time,
            labels_end: self.label_bytes.len(),
            value: exemplar.value,
            time: exemplar.time,
        });
    }

    /// Takes back those that were added last, as far as they are of series number `series`.
    pub fn drop_last_of(&mut self, series: u64) {
        while self.rows.pop_if(|row| row.series == series).is_some() {}
        let end = self.rows.last().map_or(0, |row| row.labels_end);
        self.label_bytes.truncate(end);
    }

    /// Takes out those of `series`, ascending numbers; series behind them get lower numbers.
    pub fn take_out(&mut self, series: &[u32]) {
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

    /// Exemplars in the list.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of memory that the list holds.
    pub fn memory_bytes(&self) -> usize {
        self.label_bytes.capacity() + self.rows.capacity() * size_of::<SeriesRow>()
    }

    /// The exemplars with the numbers of their series, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = (u64, TimedExemplar<'_>)> {
        self.iter_from(0)
    }

    /// Those of series number `series`, where the numbers of series ascend.
    pub fn of_series(&self, series: u64) -> impl Iterator<Item = TimedExemplar<'_>> {
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

/// An exemplar that a look-up found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundExemplar {
    /// Labels of its own.
    pub labels: Labels,
    /// What was observed.
    pub value: f64,
    /// When.
    pub time: TimestampMs,
}

/// What a look-up found of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundExemplars {
    /// The labels of the series.
    pub series: Labels,
    /// Its exemplars, in order of time.
    pub exemplars: Vec<FoundExemplar>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exemplars_pushed_come_back_with_their_labels() {
        let mut exemplars = Exemplars::default();
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
