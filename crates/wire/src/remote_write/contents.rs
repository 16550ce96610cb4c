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
    /// The time of its oldest sample; the greatest one if it has no samples, the least one if that
    /// was not noted.
    pub oldest: TimestampMs,
}

impl Contents {
    /// What the series of `batch` with these numbers hold, as far as they stand.
    pub fn of(batch: &Batch, numbers: Range<usize>) -> Self {
        let mut contents = Self {
            newest: TimestampMs::MIN,
            oldest: TimestampMs::MAX,
            ..Self::default()
        };
        let is_all = numbers == (0..batch.series_count());
        for number in numbers {
            let series = batch.series(number);
            contents.samples += series.times.len() as u64;
            contents.histograms += series.histograms.len() as u64;
            let times = series.times.iter().copied();
            let of_histograms = series.histograms.iter().map(|sample| sample.time);
            for time in times.chain(of_histograms) {
                contents.newest = contents.newest.max(time);
                contents.oldest = contents.oldest.min(time);
            }
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
            oldest: self.oldest.min(other.oldest),
        }
    }

    /// The counts of this one without those of `rest`, a part of it; times are this one's.
    #[must_use]
    pub fn without(self, rest: Self) -> Self {
        Self {
            samples: self.samples.saturating_sub(rest.samples),
            histograms: self.histograms.saturating_sub(rest.histograms),
            exemplars: self.exemplars.saturating_sub(rest.exemplars),
            metadata: self.metadata.saturating_sub(rest.metadata),
            ..self
        }
    }
}
