//! Reads a part of a source in stretches that fit memory, and accounts for each.
//!
//! Stretches adapt to how long the series before them were. Their bounds follow from the data
//! alone, and whoever consumes them sees the same series in the same order.

use crate::eval::account::Account;
use crate::eval::frame::histogram_bytes as histogram_bytes_of;
use crate::eval::ranges::SERIES_PER_PART;
use crate::eval::source::Source;
use crate::value::QueryError;
use firn_model::budget::Reservation;
use firn_model::columns::SeriesBatch;
use std::ops::Range;

/// What a stretch is to take: a million floats.
const STRETCH_BYTES: usize = 16 << 20;

/// Series in the first stretch of a part, of which nothing is known yet.
const SERIES_AT_FIRST: usize = 32;

/// A timestamp and a value.
const SAMPLE_BYTES: usize = 16;

/// What functions of windows keep a sample of the series at hand: copies of times, values and start
/// timestamps without staleness markers, and the extremes of stretches that begin there, twice.
const COPY_BYTES: usize = 40;

/// What a window plan and a row keep a step.
const STEP_BYTES: usize = 16;

/// A batch and the memory that is reserved for it; never shrinks, as the batch keeps its columns.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffer {
    batch: SeriesBatch,
    memory: Option<Reservation>,
}

impl ReadBuffer {
    /// Hands the samples of `part` to `each` in stretches, in order. `steps` is for how many steps
    /// the consumer plans windows by time column.
    pub(crate) fn read(
        &mut self,
        source: &dyn Source,
        part: Range<usize>,
        steps: usize,
        account: &Account<'_>,
        mut each: impl FnMut(Range<usize>, &SeriesBatch) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let plan_bytes = steps.saturating_mul(STEP_BYTES);
        let mut next = part.start;
        let mut len = series_that_fit(plan_bytes).min(SERIES_AT_FIRST);
        while next < part.end {
            account.check()?;
            let stretch = next..next.saturating_add(len).min(part.end);
            self.batch.clear();
            source.read(stretch.clone(), &mut self.batch)?;
            let histograms = histogram_bytes(&self.batch);
            let plans = plan_bytes.saturating_mul(self.batch.time_column_count() + 1);
            let copies = longest(&self.batch).saturating_mul(COPY_BYTES);
            self.reserve(plans.saturating_add(histograms + copies), account)?;
            let bytes = self.batch.sample_count() * SAMPLE_BYTES + histograms;
            len = series_that_fit(plan_bytes.max(bytes / stretch.len()));
            next = stretch.end;
            each(stretch, &self.batch)?;
        }
        Ok(())
    }

    /// Makes sure that the batch and `more` bytes are reserved.
    fn reserve(&mut self, more: usize, account: &Account<'_>) -> Result<(), QueryError> {
        let bytes = self.batch.memory_bytes().saturating_add(more);
        match &mut self.memory {
            Some(memory) => memory
                .grow(bytes.saturating_sub(memory.bytes()))
                .map_err(|e| QueryError::Limited(e.message)),
            none => {
                *none = Some(account.reserve(bytes)?);
                Ok(())
            }
        }
    }
}

/// How many series of so many bytes a stretch has.
fn series_that_fit(series_bytes: usize) -> usize {
    (STRETCH_BYTES / series_bytes.max(1)).clamp(1, SERIES_PER_PART)
}

/// Samples of the longest series.
fn longest(batch: &SeriesBatch) -> usize {
    let lens = (0..batch.len()).map(|series| batch.series(series).values.len());
    lens.max().unwrap_or(0)
}

/// The bytes of the histograms, and as many again for the form that functions calculate with.
fn histogram_bytes(batch: &SeriesBatch) -> usize {
    let lists = (0..batch.len()).map(|series| batch.series(series).histograms);
    2 * lists.map(histogram_bytes_of).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_that_fit_are_one_at_least_and_a_part_at_most() {
        for (bytes, want) in [
            (0, SERIES_PER_PART),
            (1000 * SAMPLE_BYTES, SERIES_PER_PART),
            (1 << 20, 16),
            (1 << 30, 1),
            (usize::MAX, 1),
        ] {
            assert_eq!(series_that_fit(bytes), want, "{bytes}");
        }
    }
}
