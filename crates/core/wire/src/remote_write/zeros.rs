//! Zero samples at the start timestamps of a request, for
//! `--enable-feature=created-timestamp-zero-ingestion`.
//!
//! The zeros form separate series with the same keys as the originals, to be stored before them. If
//! a start timestamp is after another sample of the same series in the request, it gets no zero,
//! because that would have to be stored between the two samples.
//!
//! Follows upstream's `storage/remote/write_handler.go` and `tsdb/head_append_v2.go`.

use super::{DecodedWriteRequest, KEY_FORMAT};
use crate::limits::WireLimits;
use crate::remote_write::WriteRejectionCounts;
use firn_model::batch::{Batch, HistogramSample, SeriesSamples};
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use rustc_hash::FxHashMap;

/// Creates the zero samples of one request after another and reuses its memory. The pipeline stores
/// them before the request.
#[derive(Debug, Default)]
pub struct ZeroSampleGenerator {
    batch: Batch,
    metadata: MetadataBatch,
    limits: WireLimits,
}

impl ZeroSampleGenerator {
    /// Returns a generator for requests within `limits`.
    pub fn new(limits: WireLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Returns the zeros for a request whose series are in `of`; `None` if it has no start
    /// timestamps. The zeros and the state of the series take at most twice the memory of the
    /// request.
    pub fn generate(&mut self, of: &Batch) -> Option<DecodedWriteRequest<'_>> {
        self.batch.clear();
        let mut keys = self.batch.take_message();
        keys.clear();
        // A series may occur several times in a request.
        let mut seen: FxHashMap<&[u8], SeriesZeroTimes> = FxHashMap::default();
        for number in 0..of.series_count() {
            let series = of.series(number);
            if series.start_times.is_empty() && series.histograms.is_empty() {
                continue;
            }
            let key = of.key(number);
            let ends = seen.entry(key.unwrap_or(series.labels.as_bytes()));
            if !push(series, ends.or_default(), &mut self.batch) {
                continue;
            }
            match key {
                Some(key) => {
                    let start = keys.len();
                    keys.extend_from_slice(key);
                    self.batch.end_unread_series(start..keys.len());
                }
                None => {
                    let arena = self.batch.label_bytes();
                    arena.extend_from_slice(series.labels.as_bytes());
                    self.batch.end_series();
                }
            }
        }
        let key_bytes = keys.len();
        self.batch.put_message(keys, KEY_FORMAT);
        let is_empty = self.batch.is_empty();
        let zeros = DecodedWriteRequest::from_keys(
            &mut self.batch,
            &self.metadata,
            WriteRejectionCounts::default(),
            key_bytes,
            &self.limits,
        );
        (!is_empty).then_some(zeros)
    }
}

/// Adds the zeros of a series, whose earlier samples are in `ends`, to the batch; returns whether
/// there are any.
fn push(series: SeriesSamples<'_>, ends: &mut SeriesZeroTimes, batch: &mut Batch) -> bool {
    let mut is_there = false;
    for (time, start) in series.times.iter().zip(series.start_times) {
        if ends.record_sample(*start, *time) {
            batch.push_float(*start, 0.0);
            is_there = true;
        }
    }
    for sample in series.histograms {
        if ends.record_sample(sample.start_time, sample.time) {
            batch.push_histogram(HistogramSample {
                time: sample.start_time,
                start_time: START_UNKNOWN,
                histogram: sample.histogram.without_observations(),
            });
            is_there = true;
        }
    }
    is_there
}

/// The timestamps of a series that occurred so far in the request.
#[derive(Default)]
struct SeriesZeroTimes {
    /// Timestamp of the oldest sample.
    oldest: Option<TimestampMs>,
    /// Timestamp of the newest zero.
    zero: Option<TimestampMs>,
}

impl SeriesZeroTimes {
    /// Records the sample at `time` and returns whether it needs a zero at `start`.
    fn record_sample(&mut self, start: TimestampMs, time: TimestampMs) -> bool {
        let is_behind = |known: Option<TimestampMs>| known.is_some_and(|known| start >= known);
        let is_before = self.zero.is_some_and(|zero| start <= zero);
        let takes = start != START_UNKNOWN
            && time != 0
            && start < time
            && !is_behind(self.oldest)
            && !is_before;
        self.oldest = Some(self.oldest.map_or(time, |oldest| oldest.min(time)));
        if takes {
            self.zero = Some(start);
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::{Histogram, HistogramCounts as Observed, ResetHint};
    use firn_model::labels::Labels;

    fn histogram() -> Histogram {
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema: 3,
            zero_threshold: 0.0,
            sum: 1.0,
            counts: Observed::Integer {
                count: 1,
                zero_count: 1,
                positive: Vec::new(),
                negative: Vec::new(),
            },
            positive_spans: Vec::new(),
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        }
    }

    fn check(samples: &[(i64, i64)], want: &[i64]) {
        let labels = Labels::from_pairs([("__name__", "m")]);
        for is_histogram in [false, true] {
            let mut batch = Batch::default();
            batch.label_bytes().extend_from_slice(labels.as_bytes());
            for (start_time, time) in samples {
                if !is_histogram {
                    batch.push_float_with_start(*time, 7.0, *start_time)
                } else {
                    batch.push_histogram(HistogramSample {
                        time: *time,
                        start_time: *start_time,
                        histogram: histogram(),
                    })
                }
            }
            batch.end_series();
            let mut zeros = ZeroSampleGenerator::default();
            let Some(made) = zeros.generate(&batch) else {
                assert!(want.is_empty(), "{samples:?}");
                continue;
            };
            let series = made.batch.series(0);
            assert_eq!(series.labels, labels.as_ref());
            assert!(series.values.iter().all(|value| *value == 0.0));
            let empty = |sample: &HistogramSample| match &sample.histogram.counts {
                Observed::Integer { count, .. } => *count == 0 && sample.histogram.schema == 3,
                Observed::Float { .. } => false,
            };
            assert!(series.histograms.iter().all(empty));
            let times = series.histograms.iter().map(|sample| sample.time);
            let times: Vec<i64> = series.times.iter().copied().chain(times).collect();
            assert_eq!(times, want, "{samples:?}");
        }
    }

    #[test]
    fn zero_behind_a_sample_of_its_series_is_left_out_wherever_that_stands() {
        let labels = Labels::from_pairs([("__name__", "m")]);
        let mut batch = Batch::default();
        for (time, start) in [(10, 5), (20, 15), (8, 4)] {
            batch.label_bytes().extend_from_slice(labels.as_bytes());
            batch.push_float_with_start(time, 7.0, start);
            batch.end_series();
        }
        let mut zeros = ZeroSampleGenerator::default();
        let made = zeros.generate(&batch).unwrap();
        assert_eq!(made.batch.series_count(), 1);
        assert_eq!(made.batch.series(0).times, [5]);
    }

    #[test]
    fn zeros_stand_at_starts_before_the_samples_of_their_series() {
        check(&[(5, 10)], &[5]);
        check(&[(0, 10)], &[]);
        check(&[(10, 10)], &[]);
        check(&[(-5, 0)], &[]);
        check(&[(5, 10), (5, 20)], &[5]);
        check(&[(5, 10), (15, 20)], &[5]);
        check(&[(5, 20), (3, 10)], &[5]);
        check(&[(3, 20), (5, 30)], &[3, 5]);
        check(&[], &[]);
    }
}
