//! Limits the rate of pushed samples of a tenant, by a bucket of tokens.
//!
//! The buckets follow the monotonic clock, not data time, because the limit protects the machine.

use firn_model::error::{Error, ErrorKind};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::IngestionRate;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// The tokens of a tenant, one per sample, and the time of the last refill.
#[derive(Clone, Copy, Debug)]
struct RateBucket {
    tokens: f64,
    filled: Duration,
}

/// The buckets of the tenants that have a limit. Shared by all pushes.
#[derive(Debug, Default)]
pub(super) struct IngestionRates(Mutex<BTreeMap<TenantId, RateBucket>>);

impl IngestionRates {
    /// Takes `samples` from the bucket of a tenant at the monotonic time `now`. Fails with
    /// [`ErrorKind::RateLimited`], without a change, if there are too few.
    pub(super) fn take(
        &self,
        tenant: &TenantId,
        rate: IngestionRate,
        samples: usize,
        now: Duration,
    ) -> Result<(), Error> {
        if samples == 0 {
            return Ok(());
        }
        let capacity = rate.burst.map_or(rate.per_second, |burst| burst as f64);
        let mut buckets = lock(&self.0);
        let bucket = buckets.entry(tenant.clone()).or_insert(RateBucket {
            tokens: capacity,
            filled: now,
        });
        let passed = now.saturating_sub(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * rate.per_second).min(capacity);
        bucket.filled = now;
        let needed = match rate.burst {
            Some(_) => samples as f64,
            // A request that is larger than the bucket must wait until it is full.
            None => (samples as f64).min(capacity),
        };
        if bucket.tokens >= needed {
            bucket.tokens -= samples as f64;
            return Ok(());
        }
        let seconds = (needed - bucket.tokens) / rate.per_second;
        let burst = match rate.burst {
            Some(burst) => format!(" with a burst of {burst} samples (ingestion_burst_size)"),
            None => String::new(),
        };
        let message = format!(
            "ingestion rate exceeded: {samples} samples, limit {} samples per second \
             (ingestion_rate){burst}",
            rate.per_second
        );
        let retry_after_seconds = seconds.ceil().clamp(1.0, 3_600.0) as u32;
        let kind = ErrorKind::RateLimited {
            retry_after_seconds,
        };
        Err(Error::new(kind, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes samples at the given times in seconds; compares the seconds after which a retry may
    /// succeed, or 0.
    fn check(rate: IngestionRate, takes: &[(u64, usize, u32)]) {
        let rates = IngestionRates::default();
        for (second, samples, expected) in takes {
            let now = Duration::from_secs(*second);
            let taken = rates.take(&TenantId::anonymous(), rate, *samples, now);
            let seconds = match taken.as_ref().map_err(|e| e.kind) {
                Ok(()) => 0,
                Err(ErrorKind::RateLimited {
                    retry_after_seconds,
                }) => retry_after_seconds,
                Err(kind) => panic!("{kind:?}"),
            };
            assert_eq!(seconds, *expected, "at {second}: {taken:?}");
        }
    }

    #[test]
    fn bucket_admits_the_burst_and_then_the_rate() {
        let rate = |burst| IngestionRate {
            per_second: 10.0,
            burst,
        };
        check(
            rate(Some(30)),
            &[
                (5, 30, 0),
                (5, 0, 0),
                (5, 1, 1),
                (6, 10, 0),
                (6, 25, 3),
                (9, 25, 0),
                (100, 31, 1),
                (100, 30, 0),
            ],
        );
        // Without a burst, a large request waits for a full bucket.
        check(rate(None), &[(0, 50, 0), (4, 1, 1), (5, 10, 0), (5, 50, 1)]);
    }

    #[test]
    fn error_contains_the_names_and_values_of_the_limits() {
        let rate = IngestionRate {
            per_second: 0.5,
            burst: Some(3),
        };
        let rates = IngestionRates::default();
        let taken = rates.take(&TenantId::anonymous(), rate, 4, Duration::ZERO);
        assert_eq!(
            taken.map_err(|e| e.message),
            Err(
                "ingestion rate exceeded: 4 samples, limit 0.5 samples per second \
                 (ingestion_rate) with a burst of 3 samples (ingestion_burst_size)"
                    .to_owned()
            )
        );
    }
}
