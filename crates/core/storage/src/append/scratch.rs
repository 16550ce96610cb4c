//! Working memory of one append: the places of the series of the batch, and the outcome of each
//! sample.

use super::late::LateCounts;
use crate::head::series::{AppendVerdict, AppendWindow, MemSeries};
use crate::ids::{SeriesRef, SeriesSlot, ShardLocalId};
use crate::index::EpochLeafCache;
use crate::parts::StoreParts;
use firn_model::batch::{Batch, BatchSource};
use firn_model::fingerprint::Fingerprint;
use firn_model::labels::Labels;
use firn_model::log::{DecimalHint, FloatRow, HistogramRow, LogBatch};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use firn_model::store::{AppendOutcome, RejectedSamples, SampleRejection};
use std::sync::Arc;

/// Place of a series that is not in the head.
pub(super) const UNKNOWN: ShardLocalId = ShardLocalId(u32::MAX);

/// Slot of a series that is not in the index.
pub(super) const UNINDEXED: SeriesRef = SeriesRef(u32::MAX);

/// Outcome of a float sample, with the decimal scale that its chunk found for the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatAppendOutcome {
    pub(super) hint: DecimalHint,
    pub(super) verdict: AppendVerdict,
}

impl FloatAppendOutcome {
    /// Returns the outcome of a float that has just become the newest sample of `series`.
    #[inline]
    pub(super) fn from_stored(series: &MemSeries) -> Self {
        let known = series.open.newest_decimal();
        Self {
            hint: known.map_or(DecimalHint::NONE, |(scale, _)| DecimalHint(scale.code())),
            verdict: AppendVerdict::Stored,
        }
    }
}

const REFUSED: FloatAppendOutcome = FloatAppendOutcome {
    hint: DecimalHint::NONE,
    verdict: AppendVerdict::Refused(SampleRejection::SeriesLimit),
};

/// Memory of a batch in progress, reused for the next one. Columns have one entry per series of the
/// batch unless noted otherwise.
#[derive(Debug, Default)]
pub(super) struct AppendScratch {
    pub(super) prints: Vec<Fingerprint>,
    pub(super) shard_of: Vec<u32>,
    /// Series of the batch, grouped by shard; shard `s` has `grouped[ends[s - 1]..ends[s]]`.
    pub(super) grouped: Vec<u32>,
    ends: Vec<u32>,
    pub(super) locals: Vec<ShardLocalId>,
    pub(super) slots: Vec<SeriesRef>,
    /// Series whose labels are needed: unknown ones, and those whose creation is not logged yet.
    pub(super) wanted: Vec<u32>,
    /// Series to create, in the order of the batch.
    pub(super) missing: Vec<u32>,
    /// Series that a limit rejected, in the order of the batch, each with the limit.
    pub(super) limited: Vec<(u32, SampleRejection)>,
    /// `missing` grouped by shard; shard `s` has `missing_by_shard[missing_ends[s - 1]..]`.
    pub(super) missing_by_shard: Vec<u32>,
    missing_ends: Vec<u32>,
    /// Working memory of [`order`]: for each number below the end, whether it occurs.
    marks: Vec<bool>,
    /// Working memory for a series key.
    pub(super) key: Vec<u8>,
    /// Outcomes of float samples and of histograms, in the order of the batch's columns.
    pub(super) floats: Vec<FloatAppendOutcome>,
    pub(super) histograms: Vec<AppendVerdict>,
    /// Series whose first sample is in this batch.
    pub(super) created: Vec<u32>,
    /// The oldest time of the stored samples of the batch, `i64::MAX` without any.
    pub(super) oldest: TimestampMs,
    /// Counts of the late samples of the batch.
    pub(super) late: LateCounts,
    /// The log record of the batch.
    pub(super) record: LogBatch,
    pub(super) marker: EpochLeafCache,
}

impl AppendScratch {
    /// Resets the memory for a new batch, takes or computes the fingerprints of its series, and
    /// groups them by shard.
    pub(super) fn begin(&mut self, parts: &StoreParts, source: &dyn BatchSource) {
        let batch = source.batch();
        let made = source.fingerprints(&parts.hash.keys).unwrap_or_default();
        self.prints.clear();
        self.created.clear();
        self.limited.clear();
        self.oldest = TimestampMs::MAX;
        self.marker = EpochLeafCache::default();
        let series = batch.series_count();
        if made.len() == series {
            self.prints.extend_from_slice(made);
        } else {
            batch.push_fingerprints(&parts.hash, &mut self.key, &mut self.prints);
        }
        let (floats, histograms) = batch.offsets(series);
        self.floats.clear();
        self.floats.resize(floats, REFUSED);
        self.histograms.clear();
        self.histograms.resize(histograms, REFUSED.verdict);
        self.group_by_shard(parts);
    }

    /// Groups the series by the shards of their fingerprints, and marks all of them as not found.
    pub(super) fn group_by_shard(&mut self, parts: &StoreParts) {
        let series = self.prints.len();
        let shards = parts.head.shards.len();
        let shard_of = |print: &Fingerprint| parts.head.shard_of(*print) as u32;
        self.shard_of.clear();
        self.shard_of.extend(self.prints.iter().map(shard_of));
        let all = 0..series as u32;
        let into = (&mut self.grouped, &mut self.ends);
        group_numbers(all, &self.shard_of, shards, into);
        self.locals.clear();
        self.locals.resize(series, UNKNOWN);
        self.slots.clear();
        self.slots.resize(series, UNINDEXED);
    }

    /// Returns the range of a shard's series in `grouped`.
    pub(super) fn shard_range(&self, shard: usize) -> std::ops::Range<usize> {
        range_at(&self.ends, shard)
    }

    /// Groups the missing series by shard into `missing_by_shard`.
    pub(super) fn group_missing(&mut self) {
        let into = (&mut self.missing_by_shard, &mut self.missing_ends);
        let missing = self.missing.iter().copied();
        group_numbers(missing, &self.shard_of, self.ends.len() - 1, into);
    }

    /// Returns the range of a shard's missing series in `missing_by_shard`.
    pub(super) fn missing_shard_range(&self, shard: usize) -> std::ops::Range<usize> {
        range_at(&self.missing_ends, shard)
    }

    /// Sorts `wanted` into the order of the batch.
    pub(super) fn order_wanted(&mut self) {
        order(&mut self.wanted, &mut self.marks, self.prints.len());
    }

    /// Rejects all samples of a series that was not created, because a limit is reached or because
    /// none of them is in the window.
    pub(super) fn reject_missing(&mut self, i: usize, batch: &Batch, window: AppendWindow) {
        let samples = batch.series(i);
        let (floats, histograms) = batch.offsets(i);
        let limited = self
            .limited
            .binary_search_by_key(&(i as u32), |(series, _)| *series);
        let limit = limited.map_or(SampleRejection::SeriesLimit, |at| self.limited[at].1);
        let verdict = |time: TimestampMs| {
            AppendVerdict::Refused(if time > window.max {
                SampleRejection::TooFarInFuture
            } else if window.contains(time) {
                limit
            } else if window.takes_late() {
                SampleRejection::TooOld
            } else {
                SampleRejection::OutOfBounds
            })
        };
        let outcomes = &mut self.floats[floats..];
        for (outcome, time) in outcomes.iter_mut().zip(samples.times) {
            outcome.verdict = verdict(*time);
        }
        let verdicts = &mut self.histograms[histograms..];
        for (outcome, sample) in verdicts.iter_mut().zip(samples.histograms) {
            *outcome = verdict(sample.time);
        }
    }

    /// Fills the log record with the accepted samples of batch `sequence`, in the order of the
    /// batch. Returns the counts of stored and rejected samples.
    pub(super) fn fill_record(
        &mut self,
        parts: &StoreParts,
        batch: &Batch,
        sequence: u64,
    ) -> AppendOutcome {
        let mut appended = AppendOutcome::default();
        self.record.floats.reserve(self.floats.len());
        order(&mut self.created, &mut self.marks, self.prints.len());
        let slot_of = |i: &u32| parts.head.numbers.slot(self.slots[*i as usize]);
        // Already sorted, unless another batch created some of the series.
        self.created.sort_by_key(slot_of);
        for i in &self.created {
            let labels = batch.series(*i as usize).labels;
            self.record.created.push(slot_of(i).0, labels);
        }
        for i in 0..batch.series_count() {
            let is_stored = |at: usize| self.floats[at].verdict == AppendVerdict::Stored;
            match batch.single_float(i) {
                Some((time, value)) if is_stored(batch.offsets(i).0) => {
                    let at = batch.offsets(i).0;
                    let slot = parts.head.numbers.slot(self.slots[i]);
                    self.push_row(slot, at, time, START_UNKNOWN, value);
                    appended.stored += 1;
                }
                _ => self.record_series(parts, batch, i, &mut appended),
            }
        }
        self.record.late_order = sequence;
        self.record.journal = batch.journal().clone();
        self.record.is_followed = batch.is_followed();
        appended
    }

    /// Adds the accepted samples of one series to the log record, and counts all of them in
    /// `appended`.
    fn record_series(
        &mut self,
        parts: &StoreParts,
        batch: &Batch,
        i: usize,
        appended: &mut AppendOutcome,
    ) {
        let samples = batch.series(i);
        let series = self.slots[i];
        let slot = parts.head.numbers.slot(series);
        let (floats, histograms) = batch.offsets(i);
        let first = |time| {
            let labels = match batch.key(i) {
                Some(_) => parts.head.index.dictionary.series_labels(series),
                None => samples.labels.to_owned(),
            };
            (labels, time, i)
        };
        for (k, (time, value)) in samples.times.iter().zip(samples.values).enumerate() {
            let verdict = self.floats[floats + k].verdict;
            let start = samples.start_times.get(k).copied();
            let start = start.unwrap_or(START_UNKNOWN);
            match verdict {
                AppendVerdict::Stored => self.push_row(slot, floats + k, *time, start, *value),
                AppendVerdict::Late => {
                    let row = FloatRow {
                        slot: slot.0,
                        time: *time,
                        start,
                        value: *value,
                    };
                    self.record.late_floats.push(row, DecimalHint::NONE);
                }
                AppendVerdict::Known | AppendVerdict::Refused(_) => {}
            }
            count(appended, verdict, || first(*time));
        }
        for (k, sample) in samples.histograms.iter().enumerate() {
            let verdict = self.histograms[histograms + k];
            let row = || HistogramRow {
                slot: slot.0,
                time: sample.time,
                start: sample.start_time,
                value: Arc::new(sample.histogram.clone()),
            };
            match verdict {
                AppendVerdict::Stored => self.record.histograms.push(row()),
                AppendVerdict::Late => self.record.late_histograms.push(row()),
                AppendVerdict::Known | AppendVerdict::Refused(_) => {}
            }
            count(appended, verdict, || first(sample.time));
            let is_refused = matches!(verdict, AppendVerdict::Refused(_));
            appended.stored_histograms += usize::from(!is_refused);
        }
    }

    /// Adds the float sample at index `at` of the batch to the record, as a row of the series at
    /// `slot`.
    #[inline]
    fn push_row(
        &mut self,
        slot: SeriesSlot,
        at: usize,
        time: TimestampMs,
        start: TimestampMs,
        value: f64,
    ) {
        let row = FloatRow {
            slot: slot.0,
            time,
            start,
            value,
        };
        self.record.floats.push(row, self.floats[at].hint);
    }
}

/// Groups `numbers` by shard and keeps their order within a shard. Shard `s` gets `into.0[into.1[s
/// - 1]..into.1[s]]`.
fn group_numbers(
    numbers: impl Iterator<Item = u32> + Clone,
    shard_of: &[u32],
    shards: usize,
    into: (&mut Vec<u32>, &mut Vec<u32>),
) {
    let (grouped, ends) = into;
    ends.clear();
    ends.resize(shards + 1, 0);
    let mut count = 0;
    for i in numbers.clone() {
        ends[shard_of[i as usize] as usize + 1] += 1;
        count += 1;
    }
    for shard in 1..ends.len() {
        ends[shard] += ends[shard - 1];
    }
    grouped.clear();
    grouped.resize(count, 0);
    for i in numbers {
        let at = &mut ends[shard_of[i as usize] as usize];
        grouped[*at as usize] = i;
        *at += 1;
    }
}

/// Returns the range of a shard in a grouped list, given the end of each shard.
fn range_at(ends: &[u32], shard: usize) -> std::ops::Range<usize> {
    let start = shard.checked_sub(1).map_or(0, |before| ends[before]);
    start as usize..ends[shard] as usize
}

/// Sorts distinct numbers below `end`. Uses a bitmap of all numbers up to `end` if there are many,
/// otherwise a comparison sort.
fn order(numbers: &mut Vec<u32>, marks: &mut Vec<bool>, end: usize) {
    if numbers.len() < end / 8 {
        return numbers.sort_unstable();
    }
    marks.clear();
    marks.resize(end, false);
    for i in &*numbers {
        marks[*i as usize] = true;
    }
    numbers.clear();
    let is_marked = |i: &u32| marks[*i as usize];
    numbers.extend((0..end as u32).filter(is_marked));
}

/// Counts a sample as stored or rejected. `first` returns the labels of its series, its time, and
/// the index of the series in the batch.
#[inline]
fn count(
    appended: &mut AppendOutcome,
    verdict: AppendVerdict,
    first: impl FnOnce() -> (Labels, TimestampMs, usize),
) {
    match verdict {
        AppendVerdict::Stored | AppendVerdict::Late | AppendVerdict::Known => appended.stored += 1,
        AppendVerdict::Refused(rejection) => count_rejection(appended, rejection, first),
    }
}

/// Counts a rejected sample under its reason, with the series and the time of the first one. Out of
/// line, because rejections are rare.
#[cold]
fn count_rejection(
    appended: &mut AppendOutcome,
    rejection: SampleRejection,
    first: impl FnOnce() -> (Labels, TimestampMs, usize),
) {
    let known = appended.rejected.iter_mut();
    match known.into_iter().find(|r| r.rejection == rejection) {
        Some(rejected) => rejected.count += 1,
        None => {
            let (first_labels, first_time, first_series) = first();
            appended.rejected.push(RejectedSamples {
                rejection,
                count: 1,
                first_labels,
                first_time,
                first_series,
                limit: None,
            });
        }
    }
}
