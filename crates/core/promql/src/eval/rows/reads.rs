//! Reads a part of a source in batches that fit in memory, and reserves the memory of each batch.
//!
//! The size of a batch adapts to the length of the series before it, and the expected memory is
//! reserved before the read. The first batch of a part is a single series, because its length
//! cannot be estimated. The bounds of batches depend only on the data, and the consumer gets the
//! same series in the same order.

use crate::eval::account::{QueryAccount, grow_to};
use crate::eval::rows::parts::SERIES_PER_PART;
use crate::eval::rows::row::histogram_bytes;
use crate::eval::rows::source::SampleSource;
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::columns::{COLUMNS_SHARED, SeriesBatch};
use firn_model::sample::TimestampMs;
use std::ops::Range;

/// Target memory of a batch in bytes: a million floats.
const STRETCH_BYTES: usize = 16 << 20;

/// Maximum number of series in the second batch of a part, when the length of only one series has
/// been seen.
const SERIES_AT_FIRST: usize = 32;

/// Memory of a timestamp and a value, in bytes.
const SAMPLE_BYTES: usize = 16;

/// Memory in bytes that functions of windows keep for each sample of the current series: copies of
/// times, values and start timestamps without staleness markers, and two arrays of extremes. The
/// plan of a column has its times.
const COPY_BYTES: usize = 40;

/// Memory in bytes that a window plan and a row keep for each step.
const STEP_BYTES: usize = 40;

/// A batch and its memory reservation. The reservation never shrinks, because the batch retains its
/// columns.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffer {
    batch: SeriesBatch,
    memory: Option<Reservation>,
}

impl ReadBuffer {
    /// Reads the series of `part` and passes them to `each` in batches, in order. `steps` is the
    /// number of steps for which the consumer plans windows per time column.
    pub(crate) fn read(
        &mut self,
        source: &dyn SampleSource,
        part: Range<usize>,
        steps: usize,
        account: &QueryAccount<'_>,
        mut each: impl FnMut(Range<usize>, &SeriesBatch) -> Result<(), PromqlError>,
    ) -> Result<(), PromqlError> {
        let plan_bytes = steps.saturating_mul(STEP_BYTES);
        let mut next = part.start;
        let (mut len, mut series_bytes, mut plans) = (1, 0, plan_bytes);
        while next < part.end {
            account.check()?;
            let stretch = next..next.saturating_add(len).min(part.end);
            let expected = stretch.len().saturating_mul(series_bytes);
            self.reserve(plans.saturating_add(expected), account)?;
            self.batch.clear();
            source.read(stretch.clone(), &mut self.batch)?;
            let (read, asked) = (self.batch.len(), stretch.len());
            assert_eq!(read, asked, "series read, and series requested");
            // Functions compute with copies of the histograms in a different representation.
            let histograms = 2 * histogram_bytes(self.batch.histograms());
            let columns = self.batch.time_column_count().min(COLUMNS_SHARED);
            plans = plan_bytes.saturating_mul(columns + 1);
            let copied = COPY_BYTES + columns * size_of::<TimestampMs>();
            let copies = self.batch.longest_series().saturating_mul(copied);
            let more = plans.saturating_add(histograms).saturating_add(copies);
            self.reserve(self.batch.memory_bytes().saturating_add(more), account)?;
            let bytes = self.batch.sample_count() * SAMPLE_BYTES + histograms;
            series_bytes = bytes.div_ceil(stretch.len());
            len = series_that_fit(plan_bytes.max(series_bytes));
            if stretch.start == part.start {
                len = len.min(SERIES_AT_FIRST);
            }
            next = stretch.end;
            each(stretch, &self.batch)?;
        }
        Ok(())
    }

    /// Ensures that at least `bytes` are reserved. Fails if the budget is exceeded.
    fn reserve(&mut self, bytes: usize, account: &QueryAccount<'_>) -> Result<(), PromqlError> {
        match &mut self.memory {
            Some(memory) => grow_to(memory, bytes),
            none => {
                *none = Some(account.reserve(bytes)?);
                Ok(())
            }
        }
    }
}

/// Returns the number of series of the given size in a batch.
fn series_that_fit(series_bytes: usize) -> usize {
    (STRETCH_BYTES / series_bytes.max(1)).clamp(1, SERIES_PER_PART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::rows::row_labels::{HeldColumn, LabelSource};
    use crate::request::Options;
    use crate::script::OPTIONS;
    use firn_model::budget::Budget;
    use firn_model::cancel::CancelToken;
    use firn_model::columns::LabelColumn;
    use firn_model::labels::Labels;

    /// A source whose series have equally many samples. It checks that each read after the first
    /// was reserved.
    struct Reserved {
        budget: Budget,
        samples: usize,
        series: usize,
    }

    impl LabelSource for Reserved {
        fn len(&self) -> usize {
            self.series
        }

        fn labels(&self, _series: usize) -> Labels {
            Labels::empty()
        }

        fn label_column(
            &self,
            _name: &str,
            account: &QueryAccount<'_>,
        ) -> Result<HeldColumn, PromqlError> {
            Ok((LabelColumn::default(), account.reserve(0)?))
        }

        fn drops_name(&self, _series: usize) -> bool {
            false
        }
    }

    impl SampleSource for Reserved {
        fn has_one_name(&self) -> bool {
            true
        }

        fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), PromqlError> {
            let bytes = series.len() * self.samples * SAMPLE_BYTES;
            let used = self.budget.used_bytes();
            assert!(series == (0..1) || used >= bytes, "{series:?}: {used}");
            for _ in series {
                // Each series has columns of its own, so that it needs its own memory.
                let first = into.len() as i64 * 10_000_000;
                let times: Vec<i64> = (first..first + self.samples as i64).collect();
                into.push(&times, &vec![1.0; self.samples], &[], []);
            }
            Ok(())
        }
    }

    #[test]
    fn read_buffer_reserves_all_but_the_first_series_before_it_reads_them() {
        let options = Options {
            samples_max: u64::MAX,
            ..OPTIONS
        };
        for (samples, series) in [(1, 600), (5_000, 100), (100_000, 40), (1_000_000, 3)] {
            let (budget, cancel) = (Budget::new("query", 1 << 30), CancelToken::new());
            let account = QueryAccount::new(&budget, &cancel, &options);
            let source = Reserved {
                budget: budget.clone(),
                samples,
                series,
            };
            let mut seen = 0;
            let count = |stretch: Range<usize>, batch: &SeriesBatch| {
                assert_eq!(stretch.start, seen);
                assert_eq!(batch.len(), stretch.len());
                seen = stretch.end;
                Ok(())
            };
            let mut buffer = ReadBuffer::default();
            buffer.read(&source, 0..series, 1, &account, count).unwrap();
            assert_eq!(seen, series, "{samples} samples");
        }
    }

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
