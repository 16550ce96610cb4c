//! What a request holds, in numbers: enough to count it, and to pass it on without reading it.
//!
//! Who keeps requests notes it beside their bytes; nothing here reads a message.

use firn_model::batch::Batch;
use firn_model::sample::TimestampMs;
use std::ops::Range;

/// What a request holds. Counts beyond 32 bits are no request's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Float samples.
    pub samples: u64,
    /// Histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
    /// Metrics that it says something of.
    pub metadata: u64,
    /// The time of its newest sample; the least one if it has no samples.
    pub newest: TimestampMs,
}

impl Contents {
    /// What the series of `batch` with these numbers hold, as far as they stand.
    pub fn of(batch: &Batch, numbers: Range<usize>) -> Self {
        let mut contents = Self {
            newest: TimestampMs::MIN,
            ..Self::default()
        };
        let is_all = numbers == (0..batch.series_count());
        for number in numbers {
            let series = batch.series(number);
            contents.samples += series.times.len() as u64;
            contents.histograms += series.histograms.len() as u64;
            let newest = series.times.last().copied().unwrap_or(TimestampMs::MIN);
            let histogram = series.histograms.last().map_or(newest, |last| last.time);
            contents.newest = contents.newest.max(newest).max(histogram);
            if !is_all {
                let exemplars = batch.exemplars().of_series(number as u64);
                contents.exemplars += exemplars.count() as u64;
            }
        }
        if is_all {
            contents.exemplars = batch.exemplars().len() as u64;
        }
        contents
    }

    /// Samples of both kinds.
    pub fn all_samples(&self) -> u64 {
        self.samples + self.histograms
    }

    /// What this one and `other` hold together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            histograms: self.histograms + other.histograms,
            exemplars: self.exemplars + other.exemplars,
            metadata: self.metadata + other.metadata,
            newest: self.newest.max(other.newest),
        }
    }
}
