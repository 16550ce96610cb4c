//! Firn's own metrics: counters, gauges and histograms that cost an atomic add, and how a room
//! lists them.
//!
//! A room declares its metrics in one struct in its `metrics.rs` and implements [`Collect`]; the
//! server renders what all rooms collect. Names are `firn_<room>_<noun>[_<unit>][_total]`; labels
//! come from closed sets. Count per batch, never per sample.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds in seconds of a [`DurationHistogram`]: 50 us to 60 s, about three a decade, so that
/// a p99.9 ten times the median can be told from a p99.9 equal to it.
pub const DURATION_BOUNDS_SECONDS: [f64; 18] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 60.0,
];

/// Latencies in classic buckets.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    buckets: [AtomicU64; DURATION_BOUNDS_SECONDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl DurationHistogram {
    /// Counts one duration.
    pub fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = DURATION_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos
            .fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Observations in each bucket, not cumulative; the last one is above all bounds.
    pub fn bucket_counts(&self) -> Vec<u64> {
        self.buckets
            .iter()
            .map(|b| b.load(Ordering::Relaxed))
            .collect()
    }

    /// Sum of all durations in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_nanos.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// A metric's value as it is rendered.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// Only grows.
    Counter(f64),
    /// Goes up and down.
    Gauge(f64),
    /// Latencies.
    Histogram(&'a DurationHistogram),
}

/// Receives metrics. All lines of one name come one after the other.
pub trait Sink {
    /// Takes one metric; `labels` are sorted by name.
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Value<'_>);
}

/// A room's metrics.
pub trait Collect: Send + Sync {
    /// Gives every metric to `sink`.
    fn collect(&self, sink: &mut dyn Sink);
}
