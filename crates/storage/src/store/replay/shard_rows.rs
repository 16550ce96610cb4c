//! Samples of the log on their way into the shards.

use super::catalog::Catalog;
use crate::chunk::Sample;
use crate::codec::Malformed;
use crate::head::series::{Series, Value};
use crate::head::shard::Shard;
use crate::index::epoch_of;
use crate::log_block::{HistogramRow, LogBlockReader, Row};
use crate::store::Store;
use firn_model::sample::TimestampMs;

/// A sample that came after a newer one of its series: (local, time, start, value).
pub(super) type Late = (u32, TimestampMs, TimestampMs, Sample);

/// Rows with the numbers of their series in one shard.
#[derive(Default)]
struct OfShard {
    floats: Vec<(u32, Row)>,
    histograms: Vec<(u32, HistogramRow)>,
}

/// Rows by shard, and those whose series is not known.
#[derive(Default)]
pub(super) struct ShardRows {
    floats: Vec<Row>,
    histograms: Vec<HistogramRow>,
    shards: Vec<OfShard>,
}

impl ShardRows {
    /// Adds the samples of a block.
    pub(super) fn read(&mut self, block: &LogBlockReader<'_>) -> Result<(), Malformed> {
        block.samples(&mut self.floats, &mut self.histograms)
    }

    /// Forgets all rows, and keeps their memory.
    pub(super) fn clear(&mut self) {
        self.floats.clear();
        self.histograms.clear();
        for shard in &mut self.shards {
            shard.floats.clear();
            shard.histograms.clear();
        }
    }

    /// Takes the rows of `other` whose series is not known.
    pub(super) fn take_unknown(&mut self, other: &mut ShardRows) {
        self.floats.append(&mut other.floats);
        self.histograms.append(&mut other.histograms);
    }

    /// Sorts the rows whose series is known into shards, but for those that are sealed. Returns the
    /// highest slot and the newest time.
    pub(super) fn sort_into_shards(
        &mut self,
        store: &Store,
        catalog: &Catalog,
    ) -> Option<(u32, TimestampMs)> {
        let floats = self.floats.iter().map(|r| (r.slot, r.time));
        let histograms = self.histograms.iter().map(|r| (r.slot, r.time));
        let most = floats
            .chain(histograms)
            .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
        self.shards
            .resize_with(store.shards.len(), OfShard::default);
        let shards = &mut self.shards;
        // Hashes spread them evenly, nearly.
        let share = self.floats.len() / shards.len();
        for shard in shards.iter_mut() {
            shard.floats.reserve(share + share / 8);
        }
        self.floats.retain(|row| {
            let Some(place) = catalog.place(row.slot) else {
                return true;
            };
            if catalog.is_sealed(row.slot, row.time) {
                return false;
            }
            let (shard, local) = store.shard_and_local(place);
            shards[shard].floats.push((local, *row));
            false
        });
        self.histograms.retain(|row| {
            let Some(place) = catalog.place(row.slot) else {
                return true;
            };
            if catalog.is_sealed(row.slot, row.time) {
                return false;
            }
            let (shard, local) = store.shard_and_local(place);
            shards[shard].histograms.push((local, row.clone()));
            false
        });
        most
    }

    /// Applies the rows of one shard; those that come too late for it go to `late`.
    pub(super) fn apply(
        &self,
        store: &Store,
        number: usize,
        shard: &mut Shard,
        late: &mut Vec<Late>,
    ) {
        let Some(rows) = self.shards.get(number) else {
            return;
        };
        for (local, row) in &rows.floats {
            let value = Value::Float(row.value);
            if !apply_one(store, shard, *local, row.time, row.start, value) {
                late.push((*local, row.time, row.start, Sample::Float(row.value)));
            }
        }
        for (local, row) in &rows.histograms {
            let value = Value::Histogram(&row.value);
            if !apply_one(store, shard, *local, row.time, row.start, value) {
                let sample = Sample::Histogram(row.value.clone());
                late.push((*local, row.time, row.start, sample));
            }
        }
    }
}

/// Appends a sample unless it is there already; whether that is done.
#[inline]
fn apply_one(
    store: &Store,
    shard: &mut Shard,
    local: u32,
    time: TimestampMs,
    start: TimestampMs,
    value: Value<'_>,
) -> bool {
    let Some(series) = shard.series_mut(local) else {
        return true;
    };
    let last = series.open.last_time();
    if series.has_newest() && time <= last {
        return time == last && series.is_newest_value(value);
    }
    let epoch = epoch_of(time);
    if !series.has_newest() || epoch != epoch_of(last) {
        store.index.mark(series.slot, epoch);
    }
    let closed = series.closed().len();
    let before = series.bytes_since(closed);
    series.push(time, start, value);
    let after = series.bytes_since(closed);
    shard.chunk_bytes = shard.chunk_bytes + after - before;
    true
}

/// Puts late samples into their places, series by series.
pub(super) fn insert_late(
    store: &Store,
    shard: &mut Shard,
    mut late: Vec<Late>,
) -> Result<(), Malformed> {
    late.sort_by_key(|(local, time, ..)| (*local, *time));
    for of_series in late.chunk_by(|a, b| a.0 == b.0) {
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

fn insert_into(store: &Store, series: &mut Series, late: &[Late]) -> Result<(), Malformed> {
    for (_, time, ..) in late {
        store.index.mark(series.slot, epoch_of(*time));
    }
    let late: Vec<_> = late
        .iter()
        .map(|(_, time, start, value)| (*time, *start, value.clone()))
        .collect();
    series.insert_late(&late)
}
