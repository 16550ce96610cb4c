//! One shard of the head: its series, their lookup by fingerprint, and the batches that are not
//! visible to all readers yet.

use super::late::LateTable;
use super::places::ShardPlaces;
use super::series::MemSeries;
use super::table::{FingerprintTable, FingerprintVacancy};
use crate::encoding::DecodeError;
use crate::ids::{SeriesRef, ShardLocalId};
use crate::prefetch;
use firn_model::fingerprint::Fingerprint;
use firn_model::sample::TimestampMs;
use std::collections::VecDeque;

/// Number of series for which [`HeadShard::prefetch_cells`] is most effective: the number of memory
/// loads that a processor has in flight.
pub(crate) const WARM: usize = 12;

/// Number of samples that a batch appended to one series.
#[derive(Clone, Copy, Debug)]
struct SeriesAppendCount {
    local: ShardLocalId,
    samples: u32,
}

/// A batch that at least one reader must not see.
#[derive(Debug)]
struct PendingBatch {
    sequence: u64,
    series: Vec<SeriesAppendCount>,
}

/// Result of [`HeadShard::find_or_reserve`]: an existing series, or a place for a new one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SeriesPlacement {
    /// The series exists, at this place and with this slot.
    Series(ShardLocalId, SeriesRef),
    /// A new place was reserved.
    Reserved(ShardLocalId),
    /// The place was already reserved for this fingerprint.
    ReservedBefore,
}

/// A shard of the head. A series keeps its place number, `local`, until it is removed; then the
/// number is reused.
#[derive(Debug, Default)]
pub(crate) struct HeadShard {
    table: FingerprintTable,
    places: ShardPlaces,
    /// In ascending order of sequence numbers.
    pending: VecDeque<PendingBatch>,
    /// Entries of the batch that is being applied.
    applying: Vec<SeriesAppendCount>,
    /// Lists of batches that all readers may see, kept for reuse.
    spare: Vec<Vec<SeriesAppendCount>>,
    /// Number of batches that have looked up series and not written to them yet. No series may be
    /// removed while it is not zero.
    pub(crate) appending: usize,
    /// Memory of all chunks, in bytes.
    pub(crate) chunk_bytes: usize,
    /// Samples that their series could not append in order.
    pub(crate) late: LateTable,
    /// Number of series with a recent sample at the last sweep.
    pub(crate) active: usize,
}

impl HeadShard {
    /// Returns the place of the series with this fingerprint. `guess` is checked first.
    #[inline]
    pub(crate) fn find(&self, print: Fingerprint, guess: ShardLocalId) -> Option<ShardLocalId> {
        if self.places.is_series_at(guess, print) {
            return Some(guess);
        }
        self.table
            .find(print, |local| self.places.is_series_at(local, print))
    }

    /// Prefetches the memory of a series that is about to be read.
    #[inline]
    pub(crate) fn prefetch(&self, local: ShardLocalId) {
        if let Some(place) = self.places.get(local) {
            prefetch::prefetch_value(place);
        }
    }

    /// Prefetches the memory of the open chunk of a series that is about to be copied.
    #[inline]
    pub(crate) fn prefetch_chunk(&self, local: ShardLocalId) {
        if let Some(series) = self.series(local) {
            series.open.prefetch();
        }
    }

    /// Loads the cells of the table for fingerprints that are probably absent. Their lookups miss
    /// the caches, and loading the cells together overlaps the misses.
    #[inline]
    pub(crate) fn prefetch_cells(&self, prints: impl Iterator<Item = Fingerprint>) {
        self.table.prefetch_cells(prints);
    }

    #[inline]
    fn probe(&self, print: Fingerprint) -> Result<ShardLocalId, FingerprintVacancy> {
        self.table
            .probe(print, |local| self.places.is_series_at(local, print))
    }

    /// Returns the series with this fingerprint, or reserves a place for it. The place appears as
    /// reserved to other calls until [`HeadShard::fill_reserved`] fills it.
    pub(crate) fn find_or_reserve(&mut self, print: Fingerprint) -> SeriesPlacement {
        match self.probe(print) {
            Ok(local) => match self.series(local) {
                Some(series) => SeriesPlacement::Series(local, series.slot),
                None => SeriesPlacement::ReservedBefore,
            },
            Err(vacancy) => SeriesPlacement::Reserved(self.reserve(print, vacancy)),
        }
    }

    /// Reserves a place and inserts it into the table at the vacancy that the probe found.
    fn reserve(&mut self, print: Fingerprint, vacancy: FingerprintVacancy) -> ShardLocalId {
        let local = self.places.reserve(print);
        self.table.insert(print, local, vacancy);
        local
    }

    /// Returns whether `local` is a reserved place without a series.
    pub(crate) fn is_reserved(&self, local: ShardLocalId) -> bool {
        matches!(self.places.get(local), Some(None))
    }

    /// Stores a series in its reserved place, and counts the memory of its chunks.
    pub(crate) fn fill_reserved(&mut self, local: ShardLocalId, series: MemSeries) {
        assert!(self.is_reserved(local), "a series fills a reserved place");
        self.chunk_bytes += series.memory_bytes();
        if let Some(place) = self.places.get_mut(local) {
            *place = Some(series);
        }
    }

    /// Frees the place that was reserved for a series.
    pub(crate) fn free_reserved(&mut self, local: ShardLocalId) {
        if let Some(print) = self.places.free(local) {
            self.table.remove(print, local);
        }
    }

    /// Returns the place of the series with this fingerprint. If there is none, inserts `series`
    /// and returns true as the second value.
    pub(crate) fn find_or_insert(
        &mut self,
        print: Fingerprint,
        series: MemSeries,
    ) -> (ShardLocalId, bool) {
        match self.probe(print) {
            Ok(local) => (local, false),
            Err(vacancy) => {
                let local = self.reserve(print, vacancy);
                self.fill_reserved(local, series);
                (local, true)
            }
        }
    }

    /// Removes a series, which must have no late samples.
    pub(crate) fn remove(&mut self, local: ShardLocalId) {
        let Some(place) = self.places.get_mut(local) else {
            return;
        };
        if let Some(series) = place.take() {
            assert!(!self.late.has(local), "late samples of no series");
            self.chunk_bytes -= series.memory_bytes();
            self.free_reserved(local);
        }
    }

    /// Returns the series at this place.
    #[inline]
    pub(crate) fn series(&self, local: ShardLocalId) -> Option<&MemSeries> {
        self.places.get(local)?.as_ref()
    }

    /// Returns the series at this place for modification.
    #[inline]
    pub(crate) fn series_mut(&mut self, local: ShardLocalId) -> Option<&mut MemSeries> {
        self.places.get_mut(local)?.as_mut()
    }

    /// Drops the samples up to `time` of the series at `local`, provided that it still has this
    /// slot.
    pub(crate) fn drop_through(
        &mut self,
        local: ShardLocalId,
        slot: SeriesRef,
        time: TimestampMs,
    ) -> Result<(), DecodeError> {
        let Some(series) = self.series_mut(local).filter(|s| s.slot == slot) else {
            return Ok(());
        };
        let before = series.memory_bytes();
        let dropped = series.drop_through(time);
        let after = series.memory_bytes();
        self.chunk_bytes = self.chunk_bytes + after - before;
        dropped
    }

    /// Drops the samples up to `time` of the series at `local`, provided that it still has this
    /// slot; drops whole chunks if they cannot be decoded. Returns the number of dropped samples.
    pub(crate) fn discard_through(
        &mut self,
        local: ShardLocalId,
        slot: SeriesRef,
        time: TimestampMs,
    ) -> u64 {
        let Some(series) = self.series_mut(local).filter(|s| s.slot == slot) else {
            return 0;
        };
        let before = (series.memory_bytes(), series.sample_count());
        series.discard_through(time);
        let after = (series.memory_bytes(), series.sample_count());
        self.chunk_bytes = self.chunk_bytes + after.0 - before.0;
        before.1.saturating_sub(after.1) as u64
    }

    /// Returns the series at `local`, provided that it still has this slot.
    pub(crate) fn series_of_slot(
        &self,
        local: ShardLocalId,
        slot: SeriesRef,
    ) -> Option<&MemSeries> {
        self.series(local).filter(|s| s.slot == slot)
    }

    /// Returns all series in an arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShardLocalId, &MemSeries)> {
        self.places.iter()
    }

    /// Returns one past the highest place number.
    pub(crate) fn end(&self) -> u32 {
        self.places.end()
    }

    /// Releases memory that a peak left behind: places without a series, and a table that is far
    /// larger than its series need. Costs less than the last growth of the table.
    pub(crate) fn shrink(&mut self) {
        self.places.shrink();
        self.table.shrink();
        if self.pending.is_empty() {
            self.pending = VecDeque::new();
        }
    }

    /// Counts a batch that looked up series of this shard as not appending any more.
    pub(crate) fn end_appending(&mut self) {
        assert!(self.appending > 0, "a batch ends that began");
        self.appending -= 1;
    }

    /// Records that the batch being applied appended `samples` samples to a series.
    #[inline]
    pub(crate) fn record_append(&mut self, local: ShardLocalId, samples: u32) {
        self.applying.push(SeriesAppendCount { local, samples });
    }

    /// Ends a batch: its samples are hidden from readers whose watermark is below `sequence`. All
    /// batches up to `floor` are visible to every reader and are removed from the list.
    pub(crate) fn end_batch(&mut self, sequence: u64, floor: u64) {
        self.drop_visible_batches(floor);
        if !self.applying.is_empty() {
            let newest = self.pending.back().map_or(0, |batch| batch.sequence);
            assert!(newest < sequence, "a shard applies batches in order");
            let empty = self.spare.pop().unwrap_or_default();
            self.pending.push_back(PendingBatch {
                sequence,
                series: std::mem::replace(&mut self.applying, empty),
            });
        }
    }

    /// Removes the batches that every reader may see from the list of pending ones.
    pub(crate) fn drop_visible_batches(&mut self, floor: u64) {
        while let Some(mut old) = self.pending.pop_front_if(|p| p.sequence <= floor) {
            old.series.clear();
            // Enough for a busy shard; more lists would only hold memory.
            if self.spare.len() < 4 {
                self.spare.push(old.series);
            }
        }
    }

    /// Returns how many of the newest samples of a series are hidden from a reader at `watermark`.
    pub(crate) fn count_hidden(
        &self,
        local: ShardLocalId,
        series: &MemSeries,
        watermark: u64,
    ) -> usize {
        // The difference wraps: a number from four billion batches ago only costs a needless scan
        // of the list.
        let ahead = series.last_sequence.wrapping_sub(watermark as u32) as i32;
        if ahead <= 0 {
            return 0;
        }
        let newer = self.pending.iter().rev();
        newer
            .take_while(|p| p.sequence > watermark)
            .flat_map(|p| &p.series)
            .filter(|a| a.local == local)
            .map(|a| a.samples as usize)
            .sum()
    }

    /// Returns the memory of the lookup table and the places in bytes, without chunks.
    pub(crate) fn table_bytes(&self) -> usize {
        self.table.memory_bytes() + self.places.memory_bytes()
    }
}
