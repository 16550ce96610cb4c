//! Latency histogram: quantiles of any number of latencies in a few kilobytes.
//!
//! There are 32 buckets between two powers of two, so that a quantile is at most 3 % too high. The
//! maximum is exact.

use std::time::Duration;

/// Number of bits after the leading one that determine the bucket of a value.
const KEPT_BITS: u32 = 5;

/// Number of buckets that cover all 64-bit values in microseconds.
const BUCKETS: usize = ((64 - KEPT_BITS as usize) + 1) << KEPT_BITS;

/// A histogram of latencies with exponential buckets, and their exact sum and maximum. It takes the
/// same memory for any number of latencies.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyHistogram {
    buckets: Vec<u64>,
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            sum_us: 0,
            max_us: 0,
        }
    }
}

impl LatencyHistogram {
    /// Adds the latency of a response to the histogram, in constant time.
    pub fn record(&mut self, elapsed: Duration) {
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(us)] += 1;
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
    }

    /// Returns the number of recorded latencies, which is exact.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all recorded latencies in seconds, which is exact to the microsecond.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_us as f64 / 1e6
    }

    /// Returns the `q`-quantile in milliseconds, at most 3 % too high; 0 if nothing has been
    /// recorded.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        let rank = (q * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_upper_bound(bucket).min(self.max_us) as f64 / 1e3;
            }
        }
        0.0
    }

    /// Returns the longest recorded latency in milliseconds, exactly; 0 if nothing has been
    /// recorded.
    pub fn max_ms(&self) -> f64 {
        self.max_us as f64 / 1e3
    }
}

fn bucket_of(us: u64) -> usize {
    let shift = (u64::BITS - us.leading_zeros()).saturating_sub(KEPT_BITS + 1);
    ((shift as usize) << KEPT_BITS) + (us >> shift) as usize
}

/// Returns the largest value in microseconds that belongs to `bucket`.
fn bucket_upper_bound(bucket: usize) -> u64 {
    let shift = (bucket >> KEPT_BITS).saturating_sub(1) as u32;
    let first = (bucket - ((shift as usize) << KEPT_BITS)) as u64;
    (first << shift) | ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_3_percent_too_high() {
        let mut latencies = LatencyHistogram::default();
        assert_eq!(latencies.quantile_ms(0.5), 0.0);
        for us in 1..=100_000u64 {
            latencies.record(Duration::from_micros(us));
        }
        for q in [0.001, 0.5, 0.99, 0.999] {
            let exact = q * 100.0;
            let found = latencies.quantile_ms(q);
            assert!((exact..=exact * 1.032).contains(&found), "{q}: {found}");
        }
        assert_eq!(
            (latencies.max_ms(), latencies.quantile_ms(1.0)),
            (100.0, 100.0)
        );
        assert_eq!(latencies.count(), 100_000);
    }

    #[test]
    fn bucket_of_any_value_holds_it() {
        let mut before = 0;
        for us in (0..5_000).chain([1 << 40, u64::MAX - 1, u64::MAX]) {
            let bucket = bucket_of(us);
            assert!(bucket < BUCKETS && bucket >= before, "{us}");
            assert!(bucket_upper_bound(bucket) >= us, "{us}");
            assert!(bucket == 0 || bucket_upper_bound(bucket - 1) < us, "{us}");
            before = bucket;
        }
    }
}
