//! The series and samples in memory: the index, the shards of the head, and the bounds between
//! samples in order, late samples and rejected ones.
//!
//! The bounds may change while the store runs. Invariant: after
//! [`StoreHead::raise_in_order_min`] returns, no sample before its time is appended in order.

use super::head_usage::HeadUsageShare;
use super::numbers::SeriesNumbers;
use super::options::StoreOptions;
use crate::head::changes::AppendedTimes;
use crate::head::series::AppendWindow;
use crate::head::shard::HeadShard;
use crate::head::watermark::Watermark;
use crate::ids::{GroupId, ShardLocalId};
use crate::index::{HeadSeriesPlace, Index};
use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Mutex, lock};
use firn_model::fingerprint::{Fingerprint, HashKeys};
use firn_model::sample::TimestampMs;
use firn_model::store::{AppendBounds, LateSamplePolicy, NewestSampleTimes};
use std::sync::Arc;

/// More shards than threads that could write at once only lengthen the passes over them.
const SHARDS_MAX: usize = 256;

/// The head of a store: its series, their samples in memory, and the times that it accepts.
pub(crate) struct StoreHead {
    pub(crate) index: Arc<Index>,
    /// The use of this head, which counts towards the limits of all stores of the process.
    pub(crate) usage: HeadUsageShare,
    /// Mapping between the numbers of series in memory and their slots on disk.
    pub(crate) numbers: Arc<SeriesNumbers>,
    pub(crate) shards: Box<[Mutex<HeadShard>]>,
    pub(crate) watermark: Arc<Watermark>,
    /// The oldest samples of recent batches.
    pub(crate) batch_times: AppendedTimes,
    /// The newest stored time, `i64::MIN` before the first sample.
    pub(crate) newest: AtomicI64,
    /// No sample before this time is appended in order. See [`StoreHead::raise_in_order_min`].
    pub(crate) floor: AtomicI64,
    /// All samples of evicted series are before this time.
    pub(crate) evicted_to: AtomicI64,
    /// Groups in which an evicted series was restored since the last mark.
    pub(crate) restored_groups: Mutex<Vec<GroupId>>,
    /// The out-of-order window in milliseconds, counted back from the newest time; 0 rejects late
    /// samples.
    late_window_ms: AtomicI64,
    /// Lateness of samples in order without an out-of-order window, in milliseconds.
    lateness_max_ms: i64,
    /// Time from the newest sample back to the start of the next cut, in milliseconds.
    next_cut_ms: i64,
}

impl StoreHead {
    /// Returns an empty head. Blocks own the in-order samples before `cut`.
    pub(crate) fn new(options: &StoreOptions, keys: Arc<HashKeys>, cut: TimestampMs) -> Self {
        let shards = options.shards.clamp(1, SHARDS_MAX);
        Self {
            index: Arc::new(Index::new(keys)),
            usage: HeadUsageShare::new(options.head_usage.clone()),
            numbers: Arc::default(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            watermark: Arc::default(),
            batch_times: AppendedTimes::default(),
            newest: AtomicI64::new(i64::MIN),
            floor: AtomicI64::new(cut),
            evicted_to: AtomicI64::new(i64::MIN),
            restored_groups: Mutex::default(),
            late_window_ms: AtomicI64::new(options.late_window_ms),
            lateness_max_ms: options.lateness_max_ms,
            next_cut_ms: options.open_ms().saturating_add(options.cut_ms),
        }
    }

    /// Returns the newest stored time, if there is a sample.
    pub(crate) fn newest(&self) -> Option<TimestampMs> {
        let newest = self.newest.load(Ordering::Relaxed);
        (newest != i64::MIN).then_some(newest)
    }

    /// Returns the newest times of the series with this fingerprint, if it is in memory and has had
    /// a sample. Decodes the open chunk.
    pub(crate) fn newest_times_of(&self, print: Fingerprint) -> Option<NewestSampleTimes> {
        let shard = lock(self.shards.get(self.shard_of(print))?);
        let local = shard.find(print, ShardLocalId(0))?;
        shard.series(local)?.newest_times()
    }

    /// Returns the time of the oldest sample in order. Visits every series.
    pub(crate) fn oldest(&self) -> Option<TimestampMs> {
        let mut oldest: Option<TimestampMs> = None;
        for shard in &self.shards {
            let shard = lock(shard);
            let ranges = shard.iter().filter_map(|(_, series)| series.range());
            let of_shard = ranges.map(|range| range.min).min();
            oldest = oldest.into_iter().chain(of_shard).min();
        }
        oldest
    }

    /// Returns the smallest sequence number of a batch with a late row.
    pub(crate) fn oldest_late_sequence(&self) -> Option<u64> {
        let shards = self.shards.iter();
        shards.filter_map(|shard| lock(shard).late.oldest()).min()
    }

    /// Returns the number of series in the head.
    pub(crate) fn series_count(&self) -> usize {
        let evicted = self.index.evicted_count();
        self.index.series_count().saturating_sub(evicted)
    }

    /// Returns the number of series with a sample in the last 20 minutes of data time, as of the
    /// last sweep.
    pub(crate) fn active_series(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).active).sum()
    }

    /// Returns the shard of a fingerprint, from its high bits.
    #[inline]
    pub(crate) fn shard_of(&self, print: Fingerprint) -> usize {
        ((u128::from(print.high) * self.shards.len() as u128) >> 64) as usize
    }

    /// Returns the place of a series as stored in the index.
    pub(crate) fn encode_place(&self, shard: usize, local: ShardLocalId) -> HeadSeriesPlace {
        HeadSeriesPlace(local.0 * self.shards.len() as u32 + shard as u32)
    }

    /// Returns the shard of a place and the number within it: the inverse of
    /// [`StoreHead::encode_place`].
    pub(crate) fn decode_place(&self, place: HeadSeriesPlace) -> (usize, ShardLocalId) {
        let shards = self.shards.len() as u32;
        ((place.0 % shards) as usize, ShardLocalId(place.0 / shards))
    }

    /// Implements [`crate::store::Store::set_late_window_ms`]; a negative window counts as zero.
    pub(crate) fn set_late_window_ms(&self, window_ms: i64) {
        self.late_window_ms
            .store(window_ms.max(0), Ordering::Relaxed);
    }

    /// Returns the current out-of-order window in milliseconds.
    fn late_window_ms(&self) -> i64 {
        self.late_window_ms.load(Ordering::Relaxed)
    }

    /// Returns how far behind the newest sample of the store a sample may be to be appended in
    /// order, in milliseconds. With a larger out-of-order window the bound grows to that window,
    /// because senders lag that much, but not beyond the next cut: samples before the cut are late
    /// in any case, and series can leave memory sooner.
    pub(crate) fn lateness_ms(&self) -> i64 {
        let of_window = self.late_window_ms().min(self.next_cut_ms);
        self.lateness_max_ms.max(of_window)
    }

    /// Returns the accepted times for a batch. `first` is the time of its first sample, which
    /// counts as the newest one of an empty store.
    pub(crate) fn window(
        &self,
        bounds: AppendBounds,
        first: impl FnOnce() -> Option<TimestampMs>,
    ) -> AppendWindow {
        let (newest, late_ms) = (self.newest().max(bounds.newest), self.late_window_ms());
        let late_min = match late_ms {
            _ if bounds.late == LateSamplePolicy::OfAnyAge => TimestampMs::MIN,
            0 => TimestampMs::MAX,
            _ => newest
                .or_else(first)
                .map_or(TimestampMs::MIN, |newest| newest.saturating_sub(late_ms)),
        };
        let in_order_min = newest.map_or(i64::MIN, |t| t.saturating_sub(self.lateness_ms()));
        AppendWindow {
            min: in_order_min.max(bounds.in_order_min),
            max: bounds.time_max,
            late_min,
            late: bounds.late,
        }
    }

    /// Prevents that samples before `time` are appended in order after this call returns: they are
    /// then late, or out of bounds if late samples are rejected. Waits for the batches that are
    /// being applied.
    pub(crate) fn raise_in_order_min(&self, time: TimestampMs) {
        self.floor.fetch_max(time, Ordering::Relaxed);
        // A batch reads the floor under the lock of the first shard, and releases each lock only
        // after it holds the next one. A batch that did not read the new floor is in a later shard,
        // and stays ahead.
        let mut held = None;
        for shard in &self.shards {
            let shard = lock(shard);
            drop(held.replace(shard));
        }
    }
}
