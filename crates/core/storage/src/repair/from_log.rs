//! Recovers samples from the WAL for columns that pages have lost.
//!
//! The samples are written back into the original page. Replaying them would append them after the
//! later pages of the same series, whose samples are newer.

use crate::chunk::{ChunkSample, SampleColumns};
use crate::error::StorageError;
use crate::ids::SeriesSlot;
use crate::log::LogSegmentInfo;
use crate::log::segment::LogSegmentReader;
use firn_model::env::Env;
use firn_model::sample::{TimeRange, TimestampMs};
use std::collections::BTreeMap;

/// A sample with its time and its start timestamp in milliseconds.
type TimedChunkSample = (TimestampMs, TimestampMs, ChunkSample);

/// The recovered samples by series, sorted by time.
#[derive(Default)]
pub(super) struct RecoveredLogSamples(BTreeMap<SeriesSlot, Vec<TimedChunkSample>>);

impl RecoveredLogSamples {
    /// Reads the samples of the `wanted` series and time ranges from these WAL segments.
    pub(super) fn read(
        env: &Env,
        segments: &[LogSegmentInfo],
        wanted: &[(SeriesSlot, TimeRange)],
    ) -> Result<Self, StorageError> {
        let mut ranges: BTreeMap<SeriesSlot, Vec<TimeRange>> = BTreeMap::new();
        for (slot, range) in wanted {
            ranges.entry(*slot).or_default().push(*range);
        }
        let mut found: BTreeMap<SeriesSlot, Vec<TimedChunkSample>> = BTreeMap::new();
        if ranges.is_empty() {
            return Ok(Self(found));
        }
        let mut add = |slot: SeriesSlot, row: TimedChunkSample| {
            let mut of_slot = ranges.get(&slot).into_iter().flatten();
            if of_slot.any(|range| range.contains(row.0)) {
                found.entry(slot).or_default().push(row);
            }
        };
        for info in segments {
            let mut reader = LogSegmentReader::open(&*env.disk, info.clone())?;
            while let Some(item) = reader.next() {
                // Damaged records contain no usable samples.
                let Ok(record) = item else { continue };
                for row in record.batch.floats.iter() {
                    add(
                        SeriesSlot(row.slot),
                        (row.time, row.start, ChunkSample::Float(row.value)),
                    );
                }
                for row in record.batch.histograms {
                    let value = ChunkSample::Histogram(row.value);
                    add(SeriesSlot(row.slot), (row.time, row.start, value));
                }
            }
        }
        for rows in found.values_mut() {
            rows.sort_by_key(|(time, ..)| *time);
            rows.dedup_by_key(|(time, ..)| *time);
        }
        Ok(Self(found))
    }

    /// Returns the samples of a series within `range`, or `None` if there are none.
    pub(super) fn columns(&self, slot: SeriesSlot, range: TimeRange) -> Option<SampleColumns> {
        let mut columns = SampleColumns::default();
        let rows = self.0.get(&slot)?.iter();
        for (time, start, value) in rows.filter(|(time, ..)| range.contains(*time)) {
            columns.push(*time, *start, value);
        }
        (!columns.times.is_empty()).then_some(columns)
    }
}
