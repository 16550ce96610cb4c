//! Firn's own metrics: counters, gauges and histograms, and the traits to collect them.
//!
//! An update costs one relaxed atomic addition; a histogram needs three. Each part keeps its
//! metrics in a struct and passes them to a sink in [`Collect`]; most are in the `metrics.rs` of
//! their crate. The server renders the metrics of all crates. Names have the form
//! `firn_<area>_<noun>[_<unit>][_total]`, and labels have closed sets of values. Counts are updated
//! per batch, never per sample.

use crate::histogram::bounds::upper_bound;
use crate::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only increases, shared by all threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n` to the counter, with one relaxed atomic operation.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one to the counter, with one relaxed atomic operation.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Returns the current count of the counter.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that may increase and decrease, shared by all threads.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets the gauge to `value`, regardless of the previous value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets the gauge to `value` if that is larger.
    pub fn set_max(&self, value: i64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// Adds `n` to the gauge; a negative number decreases it.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the current value of the gauge.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper bounds of a [`DurationHistogram`] in seconds: 50 µs to 60 s, about three per decade,
/// so that a p99.9 of ten times the median can be distinguished from one equal to it.
pub const DURATION_BOUNDS_SECONDS: [f64; 18] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 60.0,
];

/// The schema of the native buckets: four per octave, each 19 % wider than the previous one.
const NATIVE_SCHEMA: i32 = 2;

/// The index of the first native bucket, which contains durations above 2^-16 s (15 µs).
const NATIVE_FIRST: i32 = -63;

/// The number of native buckets, up to 2^7 s (128 s). Longer durations are counted in the last one.
const NATIVE_BUCKETS: usize = 92;

/// The threshold of the zero bucket in seconds: 2^-16 s.
const NATIVE_ZERO_SECONDS: f64 = 1.0 / 65_536.0;

/// The upper bounds of the native buckets in seconds.
static NATIVE_BOUNDS_SECONDS: LazyLock<[f64; NATIVE_BUCKETS]> = LazyLock::new(|| {
    let bound = |place| upper_bound(i64::from(NATIVE_FIRST) + place as i64, NATIVE_SCHEMA, &[]);
    std::array::from_fn(bound)
});

/// A histogram of durations with classic and native buckets.
#[derive(Debug)]
pub struct DurationHistogram {
    buckets: [AtomicU64; DURATION_BOUNDS_SECONDS.len() + 1],
    /// The zero bucket, followed by all other buckets in ascending order.
    native: [AtomicU64; NATIVE_BUCKETS + 1],
    sum_nanos: AtomicU64,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self {
            buckets: Default::default(),
            native: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_nanos: AtomicU64::new(0),
        }
    }
}

impl DurationHistogram {
    /// Counts a duration in its classic and its native bucket.
    pub fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = DURATION_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.native[native_bucket_index(seconds)].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos
            .fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Adds the observations of `other` to this histogram.
    pub fn add_all(&self, other: &DurationHistogram) {
        let buckets = self.buckets.iter().zip(&other.buckets);
        for (own, added) in buckets.chain(self.native.iter().zip(&other.native)) {
            own.fetch_add(added.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let sum = other.sum_nanos.load(Ordering::Relaxed);
        self.sum_nanos.fetch_add(sum, Ordering::Relaxed);
    }

    /// Returns the number of observations in each bucket, not cumulative. The last bucket is above
    /// all bounds.
    pub fn bucket_counts(&self) -> Vec<u64> {
        self.buckets
            .iter()
            .map(|b| b.load(Ordering::Relaxed))
            .collect()
    }

    /// Returns the durations as a native histogram with integer counts. Allocates.
    pub fn to_native_histogram(&self) -> Histogram {
        let counts = self.native.each_ref().map(|b| b.load(Ordering::Relaxed));
        let [zero_count, buckets @ ..] = &counts;
        let mut before = 0;
        let deltas = buckets.iter().map(|count| {
            let delta = *count as i64 - before;
            before = *count as i64;
            delta
        });
        let mut histogram = Histogram {
            reset_hint: ResetHint::Unknown,
            schema: NATIVE_SCHEMA,
            zero_threshold: NATIVE_ZERO_SECONDS,
            sum: self.sum_seconds(),
            counts: HistogramCounts::Integer {
                count: counts.iter().sum(),
                zero_count: *zero_count,
                positive: deltas.collect(),
                negative: Vec::new(),
            },
            positive_spans: vec![BucketSpan {
                offset: NATIVE_FIRST,
                length: NATIVE_BUCKETS as u32,
            }],
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        };
        histogram.compact(0);
        histogram
    }

    /// Returns the sum of all durations in seconds, accurate to nanoseconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_nanos.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// Returns the index of the native bucket for a duration. Index zero is the zero bucket.
fn native_bucket_index(seconds: f64) -> usize {
    if seconds <= NATIVE_ZERO_SECONDS {
        return 0;
    }
    let bounds = &*NATIVE_BOUNDS_SECONDS;
    let place = bounds.partition_point(|bound| *bound < seconds);
    1 + place.min(NATIVE_BUCKETS - 1)
}

/// The value of a metric in the form in which it is rendered.
#[derive(Clone, Debug)]
pub enum MetricValue<'a> {
    /// The value of a counter, which only increases.
    Counter(f64),
    /// The value of a gauge at this moment.
    Gauge(f64),
    /// A histogram of durations, rendered with classic and native buckets.
    Histogram(&'a DurationHistogram),
}

/// A receiver of metrics. The caller must pass all metrics with the same name one after another.
pub trait MetricSink {
    /// Receives one metric. `labels` must be sorted by name.
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: MetricValue<'_>);
}

/// A component that has metrics, such as a store or a log.
pub trait Collect: Send + Sync {
    /// Passes every metric with its current value to `sink`.
    fn collect(&self, sink: &mut dyn MetricSink);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::float::FloatHistogram;

    #[test]
    fn durations_lie_in_the_native_bucket_that_holds_them() {
        let histogram = DurationHistogram::default();
        for seconds in [0.0, 1e-6, 0.002, 1.0, 1.0001, 127.9, 1000.0] {
            histogram.observe(Duration::from_secs_f64(seconds));
        }
        let native = histogram.to_native_histogram();
        native.validate().unwrap();
        let twice = DurationHistogram::default();
        (0..2).for_each(|_| twice.add_all(&histogram));
        let doubled = FloatHistogram::from(&twice.to_native_histogram());
        assert_eq!((doubled.count, doubled.zero_count), (14.0, 4.0));
        assert_eq!(doubled.sum, 2.0 * histogram.sum_seconds());
        assert_eq!(twice.bucket_counts().iter().sum::<u64>(), 14);
        let read = FloatHistogram::from(&native);
        assert_eq!((read.count, read.zero_count), (7.0, 2.0));
        let held = read.buckets().filter(|bucket| bucket.count > 0.0).skip(1);
        let held: Vec<_> = held.map(|b| (b.lower, b.upper, b.count)).collect();
        let bound = |index| upper_bound(index, NATIVE_SCHEMA, &[]);
        assert_eq!(held[1], (bound(-1), 1.0, 1.0));
        assert_eq!(held[2], (1.0, bound(1), 1.0));
        assert_eq!((held[3].1, held[3].2), (128.0, 2.0));
        assert!(held[0].0 < 0.002 && 0.002 <= held[0].1);
        DurationHistogram::default()
            .to_native_histogram()
            .validate()
            .unwrap();
    }
}
