//! Late samples of a shard: samples that their series could not append in order.
//!
//! ```text
//! place in the shard -> leaves, each with rows sorted by (time, order of arrival)
//! ```
//!
//! Rows remain uncompressed until they leave the head, so a float takes 32 bytes instead of the one
//! or two bytes in a chunk. A leaf is small enough to shift its rows for an insertion. Leaves are
//! shared with readers: a leaf that a reader holds is copied before it changes. A reader sees a row
//! if the sequence number of the row is not greater than its watermark.
//!
//! Invariant: if several rows have the same time, each one replaced the previous ones by the
//! duplicate rule of the store when it was admitted. A row that would not replace them is not
//! added.

use crate::chunk::{ChunkSample, DuplicatePolicy};
use crate::encoding::histogram::is_equal_except_hint;
use crate::ids::ShardLocalId;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Maximum number of rows of a leaf: about 4 kB. Small in tests, so that leaves split.
const LEAF_ROWS: usize = if cfg!(test) { 4 } else { 128 };

/// Approximate memory of a series in the table without its leaves, and of a leaf without its rows.
const SERIES_BYTES: usize = 48;
const LEAF_BYTES: usize = 24 + size_of::<LateRowLeaf>();

/// A late sample with the batch that it arrived in.
#[derive(Clone, Debug)]
pub(crate) struct LateRow {
    pub(crate) time: TimestampMs,
    /// Sequence number of the batch that contained it.
    pub(crate) sequence: u64,
    pub(crate) value: ChunkSample,
}

/// Sort key of a row: time, then order of arrival. Floats precede histograms of the same batch, as
/// in its log record, so that replay restores the same order.
type LateRowKey = (TimestampMs, u64, bool);

impl LateRow {
    fn key(&self) -> LateRowKey {
        let is_histogram = matches!(self.value, ChunkSample::Histogram(_));
        (self.time, self.sequence, is_histogram)
    }
}

/// Neighbouring rows of one series, sorted by [`LateRowKey`].
#[derive(Clone, Debug, Default)]
struct LateRowLeaf {
    rows: Vec<LateRow>,
    /// Start timestamps of the rows; empty if no row has one.
    starts: Vec<TimestampMs>,
    /// Memory of the histograms among the rows, in bytes.
    histogram_bytes: usize,
}

/// The late rows of one series. Cheap to clone; clones share the leaves with the shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateSeries {
    /// Sorted by time; no leaf is empty.
    leaves: Vec<Arc<LateRowLeaf>>,
}

/// The late rows of all series of a shard.
#[derive(Debug, Default)]
pub(crate) struct LateTable {
    series: FxHashMap<ShardLocalId, LateSeries>,
    bytes: usize,
    /// The smallest sequence number of any row.
    oldest: Option<u64>,
}

impl LateTable {
    /// Returns whether the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Returns whether the series at `local` has late rows.
    pub(crate) fn has(&self, local: ShardLocalId) -> bool {
        self.series.contains_key(&local)
    }

    /// Returns the late rows of the series at `local`, if it has any.
    pub(crate) fn get(&self, local: ShardLocalId) -> Option<&LateSeries> {
        self.series.get(&local)
    }

    /// Returns the approximate memory of the table in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the smallest sequence number of the batches that the rows arrived in.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.oldest
    }

    /// Returns the series that have rows, in an arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShardLocalId, &LateSeries)> {
        self.series.iter().map(|(local, series)| (*local, series))
    }

    /// Adds a row, unless the series has an equal late row at the same time or one that takes
    /// precedence by `duplicates`. Returns which of these applied.
    pub(crate) fn add_unless_duplicate(
        &mut self,
        local: ShardLocalId,
        row: LateRow,
        start: TimestampMs,
        duplicates: DuplicatePolicy,
    ) -> LateAdmission {
        let before = self
            .get(local)
            .and_then(|series| series.last_row_through(row.key()));
        let repeated = before.filter(|before| before.time == row.time);
        if let Some(known) = repeated
            && (!duplicates.replaces(&known.value, &row.value)
                || is_equal(&known.value, &row.value))
        {
            return LateAdmission::Known;
        }
        let is_repeated = repeated.is_some();
        self.insert(local, row, start);
        if is_repeated {
            LateAdmission::Replacing
        } else {
            LateAdmission::New
        }
    }

    /// Adds a row without a check for duplicates.
    pub(crate) fn insert(&mut self, local: ShardLocalId, row: LateRow, start: TimestampMs) {
        self.oldest = Some(self.oldest.unwrap_or(row.sequence).min(row.sequence));
        if !self.has(local) {
            self.bytes += SERIES_BYTES;
        }
        let series = self.series.entry(local).or_default();
        // Negative if copying a shared leaf drops its spare capacity.
        let change = series.insert(row, start);
        self.bytes = self.bytes.wrapping_add_signed(change);
    }

    /// Drops the rows of a series for which `is_gone` is true. The caller must call
    /// [`LateTable::settle`] afterwards.
    pub(crate) fn drop_rows(&mut self, local: ShardLocalId, is_gone: impl Fn(&LateRow) -> bool) {
        let Some(series) = self.series.get_mut(&local) else {
            return;
        };
        self.bytes -= SERIES_BYTES + series.memory_bytes();
        series.drop_rows(is_gone);
        if series.leaves.is_empty() {
            self.series.remove(&local);
        } else {
            self.bytes += SERIES_BYTES + series.memory_bytes();
        }
    }

    /// Recomputes the smallest sequence number with a scan of all rows, and releases unused memory.
    pub(crate) fn settle(&mut self) {
        let series = self.series.values();
        self.oldest = series
            .flat_map(|series| series.leaves.iter().flat_map(|leaf| &leaf.rows))
            .map(|row| row.sequence)
            .min();
        self.series.shrink_to_fit();
    }
}

/// Result of [`LateTable::add_unless_duplicate`]: whether a late row was added, and whether it
/// replaces another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateAdmission {
    /// The row was added, and the series has no other late row at its time.
    New,
    /// The row was added and takes precedence over another late row at its time.
    Replacing,
    /// The row was not added: another late row at its time takes precedence.
    Known,
}

impl LateSeries {
    /// Returns the rows in `range` with their start timestamps, in order.
    pub(crate) fn rows(&self, range: TimeRange) -> impl Iterator<Item = (&LateRow, TimestampMs)> {
        let leaves = self.leaves.iter();
        leaves.flat_map(move |leaf| {
            let first = leaf.rows.partition_point(|row| row.time < range.min);
            let rows = leaf.rows.iter().enumerate().skip(first);
            let rows = rows.take_while(move |(_, row)| row.time <= range.max);
            rows.map(|(i, row)| (row, leaf.starts.get(i).copied().unwrap_or(START_UNKNOWN)))
        })
    }

    /// Returns a shared copy of the leaves that a reader at `watermark` needs for `range`, or
    /// `None` if no row is visible to it.
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

    /// Returns the time range from the oldest row to the newest one.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let (first, last) = (self.leaves.first()?, self.leaves.last()?);
        Some(TimeRange::new(first.first().time, last.last().time))
    }

    /// Returns whether any row arrived in a batch up to `sequence`.
    pub(crate) fn has_through(&self, sequence: u64) -> bool {
        let mut rows = self.leaves.iter().flat_map(|leaf| &leaf.rows);
        rows.any(|row| row.sequence <= sequence)
    }

    /// Returns the memory of the leaves in bytes, without the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let leaves = self.leaves.iter().map(|leaf| leaf.memory_bytes());
        self.leaves.capacity() * size_of::<Arc<LateRowLeaf>>() + leaves.sum::<usize>()
    }

    /// Returns the last row that is not after `key`.
    fn last_row_through(&self, key: LateRowKey) -> Option<&LateRow> {
        let leaf = self.leaves.get(self.find_leaf(key))?;
        leaf.rows.get(leaf.count_rows_before(key).checked_sub(1)?)
    }

    /// Returns the index of the leaf for a row with this key; 0 if there are no leaves yet.
    fn find_leaf(&self, key: LateRowKey) -> usize {
        let behind = self
            .leaves
            .partition_point(|leaf| leaf.first().key() <= key);
        behind.saturating_sub(1)
    }

    /// Adds a row after those with the same time. Returns the change of the memory of the series in
    /// bytes.
    fn insert(&mut self, row: LateRow, start: TimestampMs) -> isize {
        let of_list = self.leaves.capacity();
        let mut number = self.find_leaf(row.key());
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
            let at = leaf.count_rows_before(row.key());
            // Rows mostly arrive in order of time: a leaf that is split at its end stays full.
            let rest = leaf.split_off(if at < LEAF_ROWS { LEAF_ROWS / 2 } else { at });
            self.leaves.insert(number + 1, Arc::new(rest));
            let into = number + usize::from(at > LEAF_ROWS / 2);
            let other = number + usize::from(into == number);
            after += self.leaves[other].memory_bytes();
            number = into;
        }
        Arc::make_mut(&mut self.leaves[number]).insert(row, start);
        after += self.leaves[number].memory_bytes();
        after += (self.leaves.capacity() - of_list) * size_of::<Arc<LateRowLeaf>>();
        after as isize - before as isize
    }

    /// Drops the rows for which `is_gone` is true, and all leaves that become empty.
    fn drop_rows(&mut self, is_gone: impl Fn(&LateRow) -> bool) {
        for leaf in &mut self.leaves {
            if leaf.rows.iter().any(&is_gone) {
                let kept = leaf.without_rows(&is_gone);
                *leaf = Arc::new(kept);
            }
        }
        self.leaves.retain(|leaf| !leaf.rows.is_empty());
        self.leaves.shrink_to_fit();
    }
}

impl LateRowLeaf {
    fn first(&self) -> &LateRow {
        self.rows.first().expect("no leaf is empty")
    }

    fn last(&self) -> &LateRow {
        self.rows.last().expect("no leaf is empty")
    }

    /// Returns the number of rows that precede a row with this key.
    fn count_rows_before(&self, key: LateRowKey) -> usize {
        self.rows.partition_point(|row| row.key() <= key)
    }

    fn insert(&mut self, row: LateRow, start: TimestampMs) {
        let (len, at) = (self.rows.len(), self.count_rows_before(row.key()));
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

    /// Moves the rows from index `at` on into a new leaf.
    fn split_off(&mut self, at: usize) -> LateRowLeaf {
        let at_starts = at.min(self.starts.len());
        let rows = self.rows.split_off(at);
        let histogram_bytes = rows.iter().map(histogram_bytes).sum();
        self.histogram_bytes -= histogram_bytes;
        LateRowLeaf {
            rows,
            starts: self.starts.split_off(at_starts),
            histogram_bytes,
        }
    }

    /// Returns a leaf with the rows for which `is_gone` is false.
    fn without_rows(&self, is_gone: impl Fn(&LateRow) -> bool) -> LateRowLeaf {
        let mut kept = LateRowLeaf::default();
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

/// Returns the memory of the histogram of a row in bytes; 0 for a float.
fn histogram_bytes(row: &LateRow) -> usize {
    match &row.value {
        ChunkSample::Float(_) => 0,
        ChunkSample::Histogram(histogram) => histogram.memory_bytes(),
    }
}

/// Returns whether two values are bit for bit equal, except for the counter reset hint of
/// histograms.
fn is_equal(a: &ChunkSample, b: &ChunkSample) -> bool {
    match (a, b) {
        (ChunkSample::Float(a), ChunkSample::Float(b)) => a.to_bits() == b.to_bits(),
        (ChunkSample::Histogram(a), ChunkSample::Histogram(b)) => is_equal_except_hint(a, b),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
