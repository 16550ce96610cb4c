//! The late samples of a shard: those that their series could not append in order.
//!
//! ```text
//! local -> leaves, each of rows ascending by (time, order of arrival)
//! ```
//!
//! Rows stay as they came until they leave the head, so a row of a float takes 32 bytes and not the
//! one or two of a chunk. A leaf has few enough rows to be shifted for one more, and is shared with
//! readers: a leaf that a reader holds is copied before it changes. A row is visible to a reader at
//! a watermark if its sequence number is not greater.
//!
//! Invariant: of rows at one time each stays over those before it, by the store's rule, when it is
//! admitted; what would not is known already.

use crate::chunk::{Duplicates, Sample};
use crate::encoding::histogram::equal_but_hint;
use crate::ids::Local;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Rows of a leaf: some 4 kB. Tests have few rows.
const LEAF_ROWS: usize = if cfg!(test) { 4 } else { 128 };

/// About what the table takes of a series beside its leaves, and of a leaf beside its rows.
const SERIES_BYTES: usize = 48;
const LEAF_BYTES: usize = 24 + size_of::<Leaf>();

/// A late sample.
#[derive(Clone, Debug)]
pub(crate) struct LateRow {
    pub(crate) time: TimestampMs,
    /// The number of the batch that brought it.
    pub(crate) sequence: u64,
    pub(crate) value: Sample,
}

/// Where a row stands: by time, then by arrival. Of one batch floats come before histograms, as
/// they do in its record, so that a start finds the same order.
type Key = (TimestampMs, u64, bool);

impl LateRow {
    fn key(&self) -> Key {
        let is_histogram = matches!(self.value, Sample::Histogram(_));
        (self.time, self.sequence, is_histogram)
    }
}

/// Neighbouring rows.
#[derive(Clone, Debug, Default)]
struct Leaf {
    rows: Vec<LateRow>,
    /// The start timestamps; none if no row has one.
    starts: Vec<TimestampMs>,
    /// Of the rows that are histograms.
    histogram_bytes: usize,
}

/// Rows of a series, shared with its shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateSeries {
    /// Ascending; none is empty.
    leaves: Vec<Arc<Leaf>>,
}

/// The late rows of a shard's series.
#[derive(Debug, Default)]
pub(crate) struct LateTable {
    series: FxHashMap<Local, LateSeries>,
    bytes: usize,
    /// The least number of a row's batch.
    oldest: Option<u64>,
}

impl LateTable {
    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Whether a series has a row.
    pub(crate) fn has(&self, local: Local) -> bool {
        self.series.contains_key(&local)
    }

    /// The rows of a series, if it has any.
    pub(crate) fn get(&self, local: Local) -> Option<&LateSeries> {
        self.series.get(&local)
    }

    /// Bytes of memory, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The least number of a batch that brought a row.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.oldest
    }

    /// The series that have rows, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Local, &LateSeries)> {
        self.series.iter().map(|(local, series)| (*local, series))
    }

    /// Adds a row unless the series has a late one at its time that stays by `duplicates`, or is
    /// equal; whether it was added.
    pub(crate) fn admit(
        &mut self,
        local: Local,
        row: LateRow,
        start: TimestampMs,
        duplicates: Duplicates,
    ) -> Admission {
        let before = self.get(local).and_then(|series| series.before(row.key()));
        let repeated = before.filter(|before| before.time == row.time);
        if let Some(known) = repeated
            && (!duplicates.replaces(&known.value, &row.value)
                || is_equal(&known.value, &row.value))
        {
            return Admission::Known;
        }
        let is_repeated = repeated.is_some();
        self.insert(local, row, start);
        match is_repeated {
            true => Admission::Replacing,
            false => Admission::New,
        }
    }

    /// Adds a row.
    pub(crate) fn insert(&mut self, local: Local, row: LateRow, start: TimestampMs) {
        self.oldest = Some(self.oldest.unwrap_or(row.sequence).min(row.sequence));
        if !self.has(local) {
            self.bytes += SERIES_BYTES;
        }
        let series = self.series.entry(local).or_default();
        // Less than before where a leaf that was shared lost its spare room.
        let change = series.insert(row, start);
        self.bytes = self.bytes.wrapping_add_signed(change);
    }

    /// Drops the rows of a series that batches up to `sequence` brought. [`LateTable::settle`] must
    /// follow.
    pub(crate) fn drop_through(&mut self, local: Local, sequence: u64) {
        let Some(series) = self.series.get_mut(&local) else {
            return;
        };
        self.bytes -= SERIES_BYTES + series.memory_bytes();
        series.drop_through(sequence);
        if series.leaves.is_empty() {
            self.series.remove(&local);
        } else {
            self.bytes += SERIES_BYTES + series.memory_bytes();
        }
    }

    /// Finds out anew which row is the oldest. Looks at all of them.
    pub(crate) fn settle(&mut self) {
        let series = self.series.values();
        self.oldest = series
            .flat_map(|series| series.leaves.iter().flat_map(|leaf| &leaf.rows))
            .map(|row| row.sequence)
            .min();
        self.series.shrink_to_fit();
    }
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is there, and the series has no other late one at its time.
    New,
    /// It is there, and stays over another late one.
    Replacing,
    /// Nothing was added: another late one stays.
    Known,
}

impl LateSeries {
    /// The rows that lie in `range`, with their start timestamps.
    pub(crate) fn rows(&self, range: TimeRange) -> impl Iterator<Item = (&LateRow, TimestampMs)> {
        let leaves = self.leaves.iter();
        leaves.flat_map(move |leaf| {
            let first = leaf.rows.partition_point(|row| row.time < range.min);
            let rows = leaf.rows.iter().enumerate().skip(first);
            let rows = rows.take_while(move |(_, row)| row.time <= range.max);
            rows.map(|(i, row)| (row, leaf.starts.get(i).copied().unwrap_or(START_UNKNOWN)))
        })
    }

    /// What a reader at `watermark` needs to read `range`, if that is anything.
    pub(crate) fn share(&self, range: TimeRange, watermark: u64) -> Option<LateSeries> {
        let first = self
            .leaves
            .partition_point(|leaf| leaf.last().time < range.min);
        let leaves = self.leaves[first..].iter();
        let leaves = leaves.take_while(|leaf| leaf.first().time <= range.max);
        let shared = LateSeries {
            leaves: leaves.cloned().collect(),
        };
        let is_seen = |(row, _): (&LateRow, _)| row.sequence <= watermark;
        let is_any_seen = shared.rows(range).any(is_seen);
        is_any_seen.then_some(shared)
    }

    /// From the oldest row to the newest.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let (first, last) = (self.leaves.first()?, self.leaves.last()?);
        Some(TimeRange::new(first.first().time, last.last().time))
    }

    /// Whether batches up to `sequence` brought some of the rows.
    pub(crate) fn has_through(&self, sequence: u64) -> bool {
        let mut rows = self.leaves.iter().flat_map(|leaf| &leaf.rows);
        rows.any(|row| row.sequence <= sequence)
    }

    /// Bytes of memory behind the struct.
    pub(crate) fn memory_bytes(&self) -> usize {
        let leaves = self.leaves.iter().map(|leaf| leaf.memory_bytes());
        self.leaves.capacity() * size_of::<Arc<Leaf>>() + leaves.sum::<usize>()
    }

    /// The row before a place.
    fn before(&self, key: Key) -> Option<&LateRow> {
        let leaf = self.leaves.get(self.leaf_of(key))?;
        leaf.rows.get(leaf.place_of(key).checked_sub(1)?)
    }

    /// The number of the leaf into which a row goes; 0 if there is none yet.
    fn leaf_of(&self, key: Key) -> usize {
        let behind = self
            .leaves
            .partition_point(|leaf| leaf.first().key() <= key);
        behind.saturating_sub(1)
    }

    /// Adds a row behind those of its time; returns by how many bytes the series grew.
    fn insert(&mut self, row: LateRow, start: TimestampMs) -> isize {
        let of_list = self.leaves.capacity();
        let mut number = self.leaf_of(row.key());
        if self.leaves.is_empty() {
            self.leaves.reserve_exact(1);
            self.leaves.push(Arc::default());
        }
        let mut before = self.leaves[number].memory_bytes();
        let mut after = 0;
        if self.leaves[number].rows.is_empty() {
            before = 0;
        } else if self.leaves[number].rows.len() >= LEAF_ROWS {
            let leaf = Arc::make_mut(&mut self.leaves[number]);
            let at = leaf.place_of(row.key());
            // Rows mostly come in order of time: the leaf behind which they come stays full.
            let rest = leaf.split_off(if at < LEAF_ROWS { LEAF_ROWS / 2 } else { at });
            self.leaves.insert(number + 1, Arc::new(rest));
            let into = number + usize::from(at > LEAF_ROWS / 2);
            let other = number + usize::from(into == number);
            after += self.leaves[other].memory_bytes();
            number = into;
        }
        Arc::make_mut(&mut self.leaves[number]).insert(row, start);
        after += self.leaves[number].memory_bytes();
        after += (self.leaves.capacity() - of_list) * size_of::<Arc<Leaf>>();
        after as isize - before as isize
    }

    fn drop_through(&mut self, sequence: u64) {
        let is_old = |row: &LateRow| row.sequence <= sequence;
        for leaf in &mut self.leaves {
            if leaf.rows.iter().any(is_old) {
                let kept = leaf.without(is_old);
                *leaf = Arc::new(kept);
            }
        }
        self.leaves.retain(|leaf| !leaf.rows.is_empty());
        self.leaves.shrink_to_fit();
    }
}

impl Leaf {
    fn first(&self) -> &LateRow {
        self.rows.first().expect("no leaf is empty")
    }

    fn last(&self) -> &LateRow {
        self.rows.last().expect("no leaf is empty")
    }

    /// How many rows come before one with this key.
    fn place_of(&self, key: Key) -> usize {
        self.rows.partition_point(|row| row.key() <= key)
    }

    fn insert(&mut self, row: LateRow, start: TimestampMs) {
        let (len, at) = (self.rows.len(), self.place_of(row.key()));
        if len == self.rows.capacity() {
            let room = (1 + len / 2).min(LEAF_ROWS.saturating_sub(len).max(1));
            self.rows.reserve_exact(room);
        }
        self.histogram_bytes += histogram_bytes(&row);
        self.rows.insert(at, row);
        if start != START_UNKNOWN || !self.starts.is_empty() {
            self.starts.resize(len, START_UNKNOWN);
            self.starts.insert(at, start);
        }
    }

    /// Takes the rows from one on.
    fn split_off(&mut self, at: usize) -> Leaf {
        let at_starts = at.min(self.starts.len());
        let rows = self.rows.split_off(at);
        let histogram_bytes = rows.iter().map(histogram_bytes).sum();
        self.histogram_bytes -= histogram_bytes;
        Leaf {
            rows,
            starts: self.starts.split_off(at_starts),
            histogram_bytes,
        }
    }

    /// The rows of which `is_gone` is not so.
    fn without(&self, is_gone: impl Fn(&LateRow) -> bool) -> Leaf {
        let mut kept = Leaf::default();
        for (i, row) in self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| !is_gone(row))
        {
            kept.histogram_bytes += histogram_bytes(row);
            kept.rows.push(row.clone());
            kept.starts.extend(self.starts.get(i));
        }
        kept.rows.shrink_to_fit();
        kept.starts.shrink_to_fit();
        kept
    }

    fn memory_bytes(&self) -> usize {
        LEAF_BYTES
            + self.rows.capacity() * size_of::<LateRow>()
            + self.starts.capacity() * size_of::<TimestampMs>()
            + self.histogram_bytes
    }
}

/// Bytes of the histogram of a row.
fn histogram_bytes(row: &LateRow) -> usize {
    match &row.value {
        Sample::Float(_) => 0,
        Sample::Histogram(histogram) => histogram.memory_bytes(),
    }
}

/// Whether two values are equal to the bit.
fn is_equal(a: &Sample, b: &Sample) -> bool {
    match (a, b) {
        (Sample::Float(a), Sample::Float(b)) => a.to_bits() == b.to_bits(),
        (Sample::Histogram(a), Sample::Histogram(b)) => equal_but_hint(a, b),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
