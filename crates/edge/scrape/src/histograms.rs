//! Reduces native histograms to the limits of a job by merging neighbouring buckets.

use super::settings::ScrapeLimits;
use firn_model::histogram::{EXPONENTIAL_SCHEMA_MAX, EXPONENTIAL_SCHEMA_MIN, Histogram};

/// The growth factor of buckets in the finest schema; a smaller limit has no effect.
const FINEST_FACTOR: f64 = 1.00271;

/// The limits of a job for native histograms, in the form in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HistogramLimits {
    /// Largest number of buckets of both signs; zero means no limit.
    buckets: u64,
    /// The finest allowed schema.
    schema: i32,
}

impl HistogramLimits {
    pub(super) fn new(limits: &ScrapeLimits) -> Self {
        let factor = match limits.histogram_bucket_factor {
            factor if factor <= 1.0 => FINEST_FACTOR,
            factor => factor,
        };
        let schema = (-factor.log2().log2()).floor();
        let (min, max) = (EXPONENTIAL_SCHEMA_MIN, EXPONENTIAL_SCHEMA_MAX);
        Self {
            buckets: limits.histogram_buckets,
            schema: schema.clamp(f64::from(min), f64::from(max)) as i32,
        }
    }
}

/// Returns the histogram reduced to `limits`; `None` if it has too many buckets in every schema.
pub(super) fn reduce_to_limits(
    histogram: &Histogram,
    limits: HistogramLimits,
) -> Option<Histogram> {
    let mut fitted = histogram.clone();
    if !fitted.has_custom_buckets() {
        fitted.reduce_to(limits.schema).ok()?;
    }
    while limits.buckets > 0 && fitted.counts.bucket_count() as u64 > limits.buckets {
        if fitted.has_custom_buckets() || fitted.schema <= EXPONENTIAL_SCHEMA_MIN {
            return None;
        }
        fitted.reduce_to(fitted.schema - 1).ok()?;
    }
    Some(fitted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::{BucketSpan, HistogramCounts, ResetHint};

    fn histogram(schema: i32, spans: &[(i32, u32)], deltas: &[i64]) -> Histogram {
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema,
            zero_threshold: 0.0,
            sum: 1.0,
            counts: HistogramCounts::Integer {
                count: 100,
                zero_count: 0,
                positive: deltas.to_vec(),
                negative: Vec::new(),
            },
            positive_spans: spans
                .iter()
                .map(|&(offset, length)| BucketSpan { offset, length })
                .collect(),
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        }
    }

    fn limits(buckets: u64, factor: f64) -> HistogramLimits {
        HistogramLimits::new(&ScrapeLimits {
            histogram_buckets: buckets,
            histogram_bucket_factor: factor,
            ..ScrapeLimits::default()
        })
    }

    #[test]
    fn limits_choose_the_schema_of_the_factor() {
        for (factor, schema) in [
            (0.0, 8),
            (1.0, 8),
            (1.0027, 8),
            (1.1, 2),
            (2.0, 0),
            (4.0, -1),
            (1e300, -4),
        ] {
            assert_eq!(limits(0, factor).schema, schema, "{factor}");
        }
    }

    #[test]
    fn fit_merges_buckets_in_pairs() {
        // Counts 1, 3, 6 in the buckets 1, 2, 3 and counts 2, 1 in the buckets 6, 7.
        let fine = histogram(1, &[(1, 3), (2, 2)], &[1, 2, 3, -4, -1]);
        assert_eq!(reduce_to_limits(&fine, limits(0, 0.0)), Some(fine.clone()));
        assert_eq!(reduce_to_limits(&fine, limits(5, 0.0)), Some(fine.clone()));
        // Buckets 1 and 2 are merged to 1; 3 (and 4) to 2; 6 (and 5) to 3; 7 (and 8) to 4.
        let coarse = histogram(0, &[(1, 4)], &[4, 2, -4, -1]);
        assert_eq!(
            reduce_to_limits(&fine, limits(4, 0.0)),
            Some(coarse.clone())
        );
        assert_eq!(reduce_to_limits(&fine, limits(0, 2.0)), Some(coarse));
    }

    #[test]
    fn fit_of_too_many_buckets_at_the_coarsest_is_refused() {
        let far = histogram(-4, &[(0, 1), (5, 1)], &[1, 0]);
        assert_eq!(reduce_to_limits(&far, limits(1, 0.0)), None);
    }
}
