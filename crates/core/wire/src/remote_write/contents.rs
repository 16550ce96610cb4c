//! Numbers that describe a request, sufficient to count its samples and to forward it without
//! decoding.
//!
//! Queues of requests store them beside the encoded bytes; this module does not decode messages.

use firn_model::batch::Batch;
use firn_model::sample::TimestampMs;
use std::ops::Range;

/// Counts and time range of a request, which queues and senders use for metrics and for dropping
/// old requests. No request has counts that exceed 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteRequestContents {
    /// Number of float samples, including staleness markers.
    pub samples: u64,
    /// Number of native histograms, with integer or float counts.
    pub histograms: u64,
    /// Number of exemplars, including undecoded ones.
    pub exemplars: u64,
    /// Number of metrics with metadata in the request.
    pub metadata: u64,
    /// Timestamp of the newest sample; `TimestampMs::MIN` if there is none.
    pub newest: TimestampMs,
    /// Timestamp of the oldest sample; `TimestampMs::MAX` if there is none, `TimestampMs::MIN` if
    /// it is not recorded.
    pub oldest: TimestampMs,
}

impl WriteRequestContents {
    /// Counts the contents of the series of `batch` with these numbers, without rejected ones.
    pub fn from_batch(batch: &Batch, numbers: Range<usize>) -> Self {
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
                let exemplars = batch.exemplars().iter_series(number as u64);
                contents.exemplars += exemplars.count() as u64;
            }
        }
        if is_all {
            contents.exemplars = batch.exemplars().len() as u64;
        }
        contents
    }

    /// Returns the number of samples of both kinds. Queues and metrics use this sum.
    pub fn all_samples(&self) -> u64 {
        self.samples + self.histograms
    }

    /// Returns the sum of the counts of both, and the range that covers both.
    #[must_use]
    pub fn merged_with(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            histograms: self.histograms + other.histograms,
            exemplars: self.exemplars + other.exemplars,
            metadata: self.metadata + other.metadata,
            newest: self.newest.max(other.newest),
            oldest: self.oldest.min(other.oldest),
        }
    }

    /// Returns the counts without those of `rest`, which is a part of this request; the time range
    /// is unchanged.
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
