//! Samples of the log, sorted by shard before they are applied.

use super::series::ReplaySeriesTable;
use crate::chunk::ChunkSample;
use crate::encoding::DecodeError;
use crate::head::series::{MemSeries, SampleValueRef};
use crate::head::shard::HeadShard;
use crate::ids::{SeriesRef, SeriesSlot, ShardLocalId};
use crate::index::{EpochLeafCache, HeadSeriesPlace, epoch_from_time};
use crate::parts::StoreParts;
use firn_model::log::{FloatRow, HistogramRow, LogBatch};
use firn_model::sample::TimestampMs;

/// An in-order sample that was found after a newer one of its series, because records are in
/// another order: (local, time, start, value).
pub(super) type DisplacedSample = (ShardLocalId, TimestampMs, TimestampMs, ChunkSample);

/// A float sample of the series `local` of a shard.
#[derive(Clone, Copy)]
struct ShardRow {
    local: ShardLocalId,
    time: TimestampMs,
    start: TimestampMs,
    value: f64,
}

/// Samples of the series of one shard.
#[derive(Default)]
struct ShardSamples {
    floats: Vec<ShardRow>,
    histograms: Vec<(ShardLocalId, HistogramRow)>,
}

/// Rows by shard, and rows whose series is not found yet.
#[derive(Default)]
pub(super) struct ShardRows {
    floats: Vec<FloatRow>,
    histograms: Vec<HistogramRow>,
    shards: Vec<ShardSamples>,
}

impl ShardRows {
    /// Adds the samples of a batch that are not sealed, by shard; separately those whose series is
    /// not found.
    pub(super) fn add(&mut self, store: &StoreParts, known: &ReplaySeriesTable, batch: &LogBatch) {
        self.shards
            .resize_with(store.head.shards.len(), ShardSamples::default);
        let mut numbers = known.groups.cursor();
        for row in batch.floats.iter() {
            let series = known.find(&mut numbers, SeriesSlot(row.slot));
            if !sort_row(store, known, &mut self.shards, series, &row) {
                self.floats.push(row);
            }
        }
        self.histograms.extend_from_slice(&batch.histograms);
        self.sort_histograms(store, known);
    }

    /// Removes all rows and keeps their memory.
    pub(super) fn clear(&mut self) {
        self.floats.clear();
        self.histograms.clear();
        for shard in &mut self.shards {
            shard.floats.clear();
            shard.histograms.clear();
        }
    }

    /// Takes the rows of `other` whose series is not found.
    pub(super) fn take_unknown(&mut self, other: &mut ShardRows) {
        self.floats.append(&mut other.floats);
        self.histograms.append(&mut other.histograms);
    }

    /// Sorts rows whose series has been found in the meantime into shards, except sealed ones.
    pub(super) fn sort(&mut self, store: &StoreParts, known: &ReplaySeriesTable) {
        self.shards
            .resize_with(store.head.shards.len(), ShardSamples::default);
        let (shards, mut numbers) = (&mut self.shards, known.groups.cursor());
        self.floats.retain(|row| {
            let series = known.find(&mut numbers, SeriesSlot(row.slot));
            !sort_row(store, known, shards, series, row)
        });
        self.sort_histograms(store, known);
    }

    fn sort_histograms(&mut self, store: &StoreParts, known: &ReplaySeriesTable) {
        let (shards, mut numbers) = (&mut self.shards, known.groups.cursor());
        self.histograms.retain(|row| {
            let Some((series, place)) = known.find(&mut numbers, SeriesSlot(row.slot)) else {
                return true;
            };
            if !known.is_sealed(series, row.time) {
                let (shard, local) = store.head.decode_place(place);
                shards[shard].histograms.push((local, row.clone()));
            }
            false
        });
    }

    /// Applies the rows of one shard. Rows that are older than applied ones are added to
    /// `displaced`.
    pub(super) fn apply(
        &self,
        store: &StoreParts,
        number: usize,
        shard: &mut HeadShard,
        displaced: &mut Vec<DisplacedSample>,
    ) {
        let Some(rows) = self.shards.get(number) else {
            return;
        };
        let mut marker = EpochLeafCache::default();
        for row in &rows.floats {
            let value = SampleValueRef::Float(row.value);
            if !apply_sample(
                store,
                &mut marker,
                shard,
                row.local,
                row.time,
                row.start,
                value,
            ) {
                displaced.push((
                    row.local,
                    row.time,
                    row.start,
                    ChunkSample::Float(row.value),
                ));
            }
        }
        for (local, row) in &rows.histograms {
            let value = SampleValueRef::Histogram(&row.value);
            if !apply_sample(
                store,
                &mut marker,
                shard,
                *local,
                row.time,
                row.start,
                value,
            ) {
                let sample = ChunkSample::Histogram(row.value.clone());
                displaced.push((*local, row.time, row.start, sample));
            }
        }
    }
}

/// Adds a row to the shard of its series, unless it is sealed. Returns false if the series is not
/// found.
#[inline]
fn sort_row(
    store: &StoreParts,
    known: &ReplaySeriesTable,
    shards: &mut [ShardSamples],
    series: Option<(SeriesRef, HeadSeriesPlace)>,
    row: &FloatRow,
) -> bool {
    let Some((series, place)) = series else {
        return false;
    };
    if !known.is_sealed(series, row.time) {
        let (shard, local) = store.head.decode_place(place);
        shards[shard].floats.push(ShardRow {
            local,
            time: row.time,
            start: row.start,
            value: row.value,
        });
    }
    true
}

/// Appends a sample, unless it is already there. Returns false if it is older than the newest one
/// and must be inserted.
#[inline]
fn apply_sample(
    store: &StoreParts,
    marker: &mut EpochLeafCache,
    shard: &mut HeadShard,
    local: ShardLocalId,
    time: TimestampMs,
    start: TimestampMs,
    value: SampleValueRef<'_>,
) -> bool {
    let Some(series) = shard.series_mut(local) else {
        return true;
    };
    let last = series.open.last_time();
    if series.has_newest() && time <= last {
        return time == last && series.is_newest_value(value);
    }
    let epoch = epoch_from_time(time);
    if !series.has_newest() || epoch != epoch_from_time(last) {
        store
            .head
            .index
            .mark_sample_cached(marker, series.slot, epoch);
    }
    let closed = series.closed().len();
    let before = series.bytes_since(closed);
    series.push(time, start, value);
    let after = series.bytes_since(closed);
    shard.chunk_bytes = shard.chunk_bytes + after - before;
    true
}

/// Inserts displaced samples at their positions, series by series.
pub(super) fn insert_displaced(
    store: &StoreParts,
    shard: &mut HeadShard,
    mut displaced: Vec<DisplacedSample>,
) -> Result<(), DecodeError> {
    displaced.sort_by_key(|(local, time, ..)| (*local, *time));
    for of_series in displaced.chunk_by(|a, b| a.0 == b.0) {
        let Some(series) = shard.series_mut(of_series[0].0) else {
            continue;
        };
        let before = series.memory_bytes();
        insert_into(store, series, of_series)?;
        let after = series.memory_bytes();
        shard.chunk_bytes = shard.chunk_bytes + after - before;
    }
    Ok(())
}

fn insert_into(
    store: &StoreParts,
    series: &mut MemSeries,
    displaced: &[DisplacedSample],
) -> Result<(), DecodeError> {
    for (_, time, ..) in displaced {
        store
            .head
            .index
            .mark_sample(series.slot, epoch_from_time(*time));
    }
    let displaced: Vec<_> = displaced
        .iter()
        .map(|(_, time, start, value)| (*time, *start, value.clone()))
        .collect();
    series.insert_displaced(&displaced)
}
