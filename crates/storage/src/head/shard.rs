//! One shard: its series, how to find them, and which of their samples are not visible to all yet.

use super::late::LateTable;
use super::places::Places;
use super::series::Series;
use super::table::{Table, Vacancy};
use crate::encoding::Malformed;
use crate::ids::{Local, SeriesRef};
use crate::prefetch;
use firn_model::fingerprint::Fingerprint;
use firn_model::sample::TimestampMs;
use std::collections::VecDeque;

/// Series for which [`Shard::warm`] pays best: as many as the processor waits for at a time.
pub(crate) const WARM: usize = 12;

/// Samples that a batch appended to one series.
#[derive(Clone, Copy, Debug)]
struct Appended {
    local: Local,
    samples: u32,
}

/// A batch that some reader must not see.
#[derive(Debug)]
struct Pending {
    sequence: u64,
    series: Vec<Appended>,
}

/// What [`Shard::find_or_reserve`] finds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A series that is there.
    Series(Local, SeriesRef),
    /// A place that was reserved now.
    Reserved(Local),
    /// A place that was reserved before.
    ReservedBefore,
}

/// A shard. Series keep their number, `local`, until they are removed; then it is given again.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    table: Table,
    places: Places,
    /// By ascending sequence number.
    pending: VecDeque<Pending>,
    /// The list of the batch being applied.
    applying: Vec<Appended>,
    /// Lists of batches that went by, to be used again.
    spare: Vec<Vec<Appended>>,
    /// Batches that looked series up and have not written to them yet: none may be removed
    /// meanwhile.
    pub(crate) appending: usize,
    /// Bytes of chunks.
    pub(crate) chunk_bytes: usize,
    /// Samples that the series could not append in order.
    pub(crate) late: LateTable,
    /// Series with a recent sample when they were last counted.
    pub(crate) active: usize,
}

impl Shard {
    /// The series with this fingerprint; `guess` is tried first.
    #[inline]
    pub(crate) fn find(&self, print: Fingerprint, guess: Local) -> Option<Local> {
        if self.places.is_of(guess, print) {
            return Some(guess);
        }
        self.table
            .find(print, |local| self.places.is_of(local, print))
    }

    /// Asks for the memory of a series that is looked at soon.
    #[inline]
    pub(crate) fn prefetch(&self, local: Local) {
        if let Some(place) = self.places.get(local) {
            prefetch::value(place);
        }
    }

    /// Asks for the memory of the open chunk of a series that is copied soon.
    #[inline]
    pub(crate) fn prefetch_chunk(&self, local: Local) {
        if let Some(series) = self.series(local) {
            series.open.prefetch();
        }
    }

    /// Prepares looking for series that are not there, which takes the table's memory from all
    /// over.
    #[inline]
    pub(crate) fn warm(&self, prints: impl Iterator<Item = Fingerprint>) {
        self.table.warm(prints);
    }

    #[inline]
    fn probe(&self, print: Fingerprint) -> Result<Local, Vacancy> {
        self.table
            .probe(print, |local| self.places.is_of(local, print))
    }

    /// The series with this fingerprint, or a place for it, which no other call
    /// finds until [`Shard::fill`] fills it.
    pub(crate) fn find_or_reserve(&mut self, print: Fingerprint) -> Found {
        match self.probe(print) {
            Ok(local) => match self.series(local) {
                Some(series) => Found::Series(local, series.slot),
                None => Found::ReservedBefore,
            },
            Err(vacancy) => Found::Reserved(self.reserve(print, vacancy)),
        }
    }

    fn reserve(&mut self, print: Fingerprint, vacancy: Vacancy) -> Local {
        let local = self.places.reserve(print);
        self.table.insert(print, local, vacancy);
        local
    }

    /// Whether `local` is a place that was reserved.
    pub(crate) fn is_reserved(&self, local: Local) -> bool {
        matches!(self.places.get(local), Some(None))
    }

    /// Puts a series into the place that was reserved for it.
    pub(crate) fn fill(&mut self, local: Local, series: Series) {
        self.chunk_bytes += series.memory_bytes();
        if let Some(place) = self.places.get_mut(local) {
            *place = Some(series);
        }
    }

    /// Gives up the place that was reserved for a series.
    pub(crate) fn give_up(&mut self, local: Local) {
        if let Some(print) = self.places.free(local) {
            self.table.remove(print, local);
        }
    }

    /// The number of the series with this fingerprint; adds `series` if there is none, and says
    /// so.
    pub(crate) fn find_or_insert(&mut self, print: Fingerprint, series: Series) -> (Local, bool) {
        match self.probe(print) {
            Ok(local) => (local, false),
            Err(vacancy) => {
                let local = self.reserve(print, vacancy);
                self.fill(local, series);
                (local, true)
            }
        }
    }

    /// Removes a series, which must have no late samples.
    pub(crate) fn remove(&mut self, local: Local) {
        let Some(place) = self.places.get_mut(local) else {
            return;
        };
        if let Some(series) = place.take() {
            assert!(!self.late.has(local), "late samples of no series");
            self.chunk_bytes -= series.memory_bytes();
            self.give_up(local);
        }
    }

    /// The series with this number.
    #[inline]
    pub(crate) fn series(&self, local: Local) -> Option<&Series> {
        self.places.get(local)?.as_ref()
    }

    /// The series with this number, to change it.
    #[inline]
    pub(crate) fn series_mut(&mut self, local: Local) -> Option<&mut Series> {
        self.places.get_mut(local)?.as_mut()
    }

    /// Drops the samples up to `time` of the series with this number, if it is still the one with
    /// this slot.
    pub(crate) fn drop_through(
        &mut self,
        local: Local,
        slot: SeriesRef,
        time: TimestampMs,
    ) -> Result<(), Malformed> {
        let Some(series) = self.series_mut(local).filter(|s| s.slot == slot) else {
            return Ok(());
        };
        let before = series.memory_bytes();
        let dropped = series.drop_through(time);
        let after = series.memory_bytes();
        self.chunk_bytes = self.chunk_bytes + after - before;
        dropped
    }

    /// Drops the samples up to `time` of the series with this number, if it is still the one with
    /// this slot: whole chunks where that fails otherwise. Returns how many went.
    pub(crate) fn give_up_through(
        &mut self,
        local: Local,
        slot: SeriesRef,
        time: TimestampMs,
    ) -> u64 {
        let Some(series) = self.series_mut(local).filter(|s| s.slot == slot) else {
            return 0;
        };
        let before = (series.memory_bytes(), series.sample_count());
        series.give_up_through(time);
        let after = (series.memory_bytes(), series.sample_count());
        self.chunk_bytes = self.chunk_bytes + after.0 - before.0;
        before.1.saturating_sub(after.1) as u64
    }

    /// The series with this number, if it is still the one with this slot.
    pub(crate) fn series_of_slot(&self, local: Local, slot: SeriesRef) -> Option<&Series> {
        self.series(local).filter(|s| s.slot == slot)
    }

    /// All series, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Local, &Series)> {
        self.places.iter()
    }

    /// One past the highest number.
    pub(crate) fn end(&self) -> u32 {
        self.places.end()
    }

    /// Gives back the memory that a peak left behind: that of places without a series, and that of
    /// a table far larger than it would be made now. Costs less than the table's last
    /// growth did.
    pub(crate) fn shrink(&mut self) {
        self.places.shrink();
        self.table.shrink();
        if self.pending.is_empty() {
            self.pending = VecDeque::new();
        }
    }

    /// Notes that the batch being applied appended to a series.
    #[inline]
    pub(crate) fn note(&mut self, local: Local, samples: u32) {
        self.applying.push(Appended { local, samples });
    }

    /// Ends a batch: its samples are hidden from readers below `sequence`. What lies at or below
    /// `floor` is visible to every reader.
    pub(crate) fn end_batch(&mut self, sequence: u64, floor: u64) {
        self.forget_pending(floor);
        if !self.applying.is_empty() {
            let newest = self.pending.back().map_or(0, |batch| batch.sequence);
            assert!(newest < sequence, "a shard applies batches in order");
            let empty = self.spare.pop().unwrap_or_default();
            self.pending.push_back(Pending {
                sequence,
                series: std::mem::replace(&mut self.applying, empty),
            });
        }
    }

    /// Forgets the batches that every reader may see.
    pub(crate) fn forget_pending(&mut self, floor: u64) {
        while let Some(mut old) = self.pending.pop_front_if(|p| p.sequence <= floor) {
            old.series.clear();
            // As many as a busy shard needs; more would only hold memory.
            if self.spare.len() < 4 {
                self.spare.push(old.series);
            }
        }
    }

    /// How many of the newest samples of a series a reader at `watermark` must not see.
    pub(crate) fn hidden(&self, local: Local, series: &Series, watermark: u64) -> usize {
        // Wrapping: a number from four billion batches ago costs a look at the list, nothing else.
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

    /// Bytes of memory of everything but chunks.
    pub(crate) fn table_bytes(&self) -> usize {
        self.table.memory_bytes() + self.places.memory_bytes()
    }
}
