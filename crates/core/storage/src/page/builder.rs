//! Builds a page, one series at a time.

use super::directory::ColumnDirectoryDraft;
use super::encoder::{ColumnEncoder, EncodedColumn, HistogramFamilyHash};
use super::header::{self, LogSpan, PageHeader, slot_era};
use super::limits::{COLUMNS_MAX, HISTOGRAM_NUMBERS_MAX, SAMPLES_MAX, STRIPE_BYTES};
use super::mixed;
use super::starts::StartColumns;
use super::times::{TimeColumnEntry, TimeColumns};
use crate::chunk::SampleColumns;
use crate::ids::SeriesSlot;
use firn_model::sample::TimeRange;

/// Error for a series that is too long for a page; the caller must split it by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column too long for a page: {samples} samples and {numbers} buckets, spans and bounds")]
pub struct ColumnTooLong {
    /// Number of samples; the limit is [`SAMPLES_MAX`].
    pub samples: usize,
    /// Number of buckets, spans and bounds of all histograms; the limit is
    /// [`HISTOGRAM_NUMBERS_MAX`].
    pub numbers: usize,
}

/// A page under construction. Equal pushes in equal order give equal bytes.
#[derive(Debug, Default)]
pub struct PageBuilder {
    meta: LogSpan,
    draft: ColumnDirectoryDraft,
    times: TimeColumns,
    starts: StartColumns,
    values: ColumnEncoder,
    samples: u64,
}

impl PageBuilder {
    /// Returns an empty page that covers the part of the log in `meta`.
    pub fn new(meta: LogSpan) -> Self {
        Self {
            meta,
            ..Self::default()
        }
    }

    /// Adds the samples of a series: at least one, with increasing times. Slots must increase from
    /// push to push and be of one era; otherwise this panics. `family` identifies neighbours that
    /// are buckets of one histogram; without it the previous column is tried as a reference. Fails
    /// without effect if the column is too long.
    pub fn push(
        &mut self,
        slot: SeriesSlot,
        family: Option<HistogramFamilyHash>,
        columns: &SampleColumns,
    ) -> Result<(), ColumnTooLong> {
        let is_next = |last: &SeriesSlot| *last < slot && slot_era(*last) == slot_era(slot);
        assert!(self.draft.slots.last().is_none_or(is_next));
        assert!(!columns.times.is_empty() && columns.times.len() == columns.values.len());
        let starts = columns.start_times.len();
        assert!(starts == 0 || starts == columns.times.len());
        debug_assert!(columns.times.is_sorted_by(|a, b| a < b));
        assert!(self.draft.slots.len() < COLUMNS_MAX);
        let (samples, numbers) = (columns.times.len(), mixed::count_numbers(columns));
        if samples > SAMPLES_MAX || numbers > HISTOGRAM_NUMBERS_MAX {
            return Err(ColumnTooLong { samples, numbers });
        }
        if self.values.stripe_bytes() >= STRIPE_BYTES {
            self.values.begin_stripe();
        }
        let times = self.times.intern_times(&columns.times);
        let planner = &mut self.values.encoders.ints;
        let starts = self.starts.intern_starts(planner, &columns.start_times);
        let EncodedColumn { kind, offset } = self.values.push(times, family, columns);
        self.samples += samples as u64;
        self.draft.slots.push(slot);
        self.draft.kinds.push(kind);
        self.draft.offsets.push(offset);
        self.draft.times.push(times);
        self.draft.starts.push(starts);
        Ok(())
    }

    /// Returns the number of series added so far.
    pub fn column_count(&self) -> usize {
        self.draft.slots.len()
    }

    /// Returns the number of samples added so far.
    pub fn sample_count(&self) -> u64 {
        self.samples
    }

    /// Returns the bytes of the encoded values: the size of the page without its time columns and
    /// its directory.
    pub fn value_bytes(&self) -> usize {
        self.values.data().len()
    }

    /// Returns the encoded page, or `None` if it has no series.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        let (first_slot, last_slot) = (*self.draft.slots.first()?, *self.draft.slots.last()?);
        let encoded = self.times.encode(&mut self.values.encoders.ints);
        let mut data = Vec::with_capacity(self.values.data().len() * 9 / 8);
        let mut ends = Vec::new();
        let mut close = |data: &Vec<u8>, least: usize| {
            let start = ends.last().copied().unwrap_or(0);
            if data.len() - start >= least.max(1) {
                ends.push(data.len());
            }
        };
        let mut range = TimeRange::new(i64::MAX, i64::MIN);
        for (times, bytes) in self.times.columns().iter().zip(&encoded) {
            let (first, last) = (times[0], times[times.len() - 1]);
            range = range.hull(TimeRange::new(first, last));
            let entry = TimeColumnEntry {
                count: times.len(),
                first,
                last,
            };
            self.draft.time_entries.push((data.len(), entry));
            data.extend_from_slice(bytes);
            close(&data, STRIPE_BYTES);
        }
        for starts in self.starts.columns() {
            self.draft.start_offsets.push(data.len());
            data.extend_from_slice(starts);
            close(&data, STRIPE_BYTES);
        }
        close(&data, 0);
        let before = data.len();
        self.draft.offsets.iter_mut().for_each(|o| *o += before);
        data.extend_from_slice(self.values.data());
        ends.extend(self.values.stripes().iter().map(|start| before + start));
        // A stripe that was started for a column that is stored elsewhere has no bytes.
        if ends.last() != Some(&data.len()) {
            ends.push(data.len());
        }
        self.draft.stripe_ends = ends;
        let header = PageHeader {
            meta: self.meta,
            range,
            slots: first_slot..=last_slot,
            columns: self.draft.slots.len() as u32,
            samples: self.samples,
        };
        let directory = self.draft.encode(&header, &data);
        Some(header::assemble_page(&header, &directory, &data))
    }
}
