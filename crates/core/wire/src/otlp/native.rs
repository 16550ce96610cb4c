//! Native histograms from OTLP points: exponential histograms, and explicit buckets as custom
//! buckets.
//!
//! ```text
//! exponential: bucket i of scale s, (2^(i/2^s), 2^((i+1)/2^s)]  --> bucket i + 1 of schema s
//!              scale s > 8: 2^(s-8) buckets are merged into one of schema 8
//! explicit:    bounds, counts                                    --> custom values, buckets
//! ```
//!
//! The zero threshold is always [`ZERO_THRESHOLD`], whatever the point contains, as in upstream.
//! Counter resets are unknown.

use super::point::{ExplicitHistogramPoint, ExponentialBuckets, ExponentialHistogramPoint};
use super::trouble::OtlpDecodeError;
use crate::remote_write::{WriteRejectionReason, fit_histogram};
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, EXPONENTIAL_SCHEMA_MAX, EXPONENTIAL_SCHEMA_MIN, Histogram,
    HistogramCounts, ResetHint,
};
use firn_model::sample::stale_nan;

/// The zero threshold of converted exponential histograms.
const ZERO_THRESHOLD: f64 = 1e-128;

/// Largest run of empty buckets that is written out, because a new span takes as much space.
const GAP_MAX: i64 = 2;

/// Properties of a point that affect its histogram besides the counts. Both change its reset hint
/// or its sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct PointFlags {
    /// True if the point has no recorded value and marks the series as stale.
    pub is_stale: bool,
    /// True if the point is a delta.
    pub is_delta: bool,
}

/// Converts an exponential point to a native histogram; fails if the scale is too coarse or the
/// counts are inconsistent.
pub(super) fn convert_exponential(
    point: &ExponentialHistogramPoint,
    standing: PointFlags,
) -> Result<Histogram, OtlpDecodeError> {
    if point.scale < EXPONENTIAL_SCHEMA_MIN {
        return Err(rejection(format!(
            "cannot convert exponential to native histogram. Scale must be >= \
             {EXPONENTIAL_SCHEMA_MIN}, was {}",
            point.scale
        )));
    }
    let schema = point.scale.min(EXPONENTIAL_SCHEMA_MAX);
    let shift = i64::from(point.scale) - i64::from(schema);
    let side = |buckets: &ExponentialBuckets| {
        build_buckets(&buckets.counts, |i| {
            // With a shift beyond 32 bits all buckets merge into the first one of their side.
            let number = i64::from(buckets.offset) + i as i64;
            (number >> shift.min(62)) + 1
        })
    };
    let (positive_spans, positive) = side(&point.positive)?;
    let (negative_spans, negative) = side(&point.negative)?;
    finish(
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema,
            zero_threshold: ZERO_THRESHOLD,
            sum: point.sum.unwrap_or(0.0),
            counts: HistogramCounts::Integer {
                count: point.count,
                zero_count: point.zero_count,
                positive,
                negative,
            },
            positive_spans,
            negative_spans,
            custom_values: Vec::new(),
        },
        standing,
    )
}

/// Converts an explicit point to a native histogram with custom buckets; fails if the result is
/// invalid.
pub(super) fn convert_custom(
    point: &ExplicitHistogramPoint,
    standing: PointFlags,
) -> Result<Histogram, OtlpDecodeError> {
    let (positive_spans, positive) = build_buckets(&point.counts, |i| i as i64)?;
    finish(
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema: CUSTOM_BUCKETS_SCHEMA,
            zero_threshold: 0.0,
            sum: point.sum.unwrap_or(0.0),
            counts: HistogramCounts::Integer {
                count: point.count,
                zero_count: 0,
                positive,
                negative: Vec::new(),
            },
            positive_spans,
            negative_spans: Vec::new(),
            custom_values: point.bounds.clone(),
        },
        standing,
    )
}

fn rejection(message: String) -> OtlpDecodeError {
    OtlpDecodeError::reject_point(WriteRejectionReason::Histogram, message)
}

fn finish(mut histogram: Histogram, standing: PointFlags) -> Result<Histogram, OtlpDecodeError> {
    if standing.is_delta {
        histogram.reset_hint = ResetHint::Gauge;
    }
    if standing.is_stale {
        histogram.sum = stale_nan();
        histogram.counts = HistogramCounts::Integer {
            count: 0,
            zero_count: 0,
            positive: Vec::new(),
            negative: Vec::new(),
        };
        histogram.positive_spans.clear();
        histogram.negative_spans.clear();
    }
    let valid = fit_histogram(&mut histogram);
    valid.map_err(|e| rejection(e.message))?;
    Ok(histogram)
}

/// Returns spans and deltas of the buckets that are not empty. `number_of` maps the index of a
/// count to its bucket, in ascending order; counts of the same bucket are added.
fn build_buckets(
    counts: &[u64],
    number_of: impl Fn(usize) -> i64,
) -> Result<(Vec<BucketSpan>, Vec<i64>), OtlpDecodeError> {
    let mut layout = IntegerBucketBuilder::default();
    let mut counts = counts.iter().enumerate().peekable();
    while let Some((i, first)) = counts.next() {
        let number = number_of(i);
        let mut count = *first;
        while let Some((_, more)) = counts.next_if(|(next, _)| number_of(*next) == number) {
            count = count.checked_add(*more).ok_or_else(too_many_error)?;
        }
        if count > 0 {
            layout.push(number, count)?;
        }
    }
    Ok((layout.spans, layout.deltas))
}

fn too_many_error() -> OtlpDecodeError {
    rejection("histogram has more observations in a bucket than a number of 63 bits holds".into())
}

#[derive(Default)]
struct IntegerBucketBuilder {
    spans: Vec<BucketSpan>,
    deltas: Vec<i64>,
    /// Number of the bucket after the last one.
    next: i64,
    previous: i64,
}

impl IntegerBucketBuilder {
    fn push(&mut self, number: i64, count: u64) -> Result<(), OtlpDecodeError> {
        let count = i64::try_from(count).map_err(|_| too_many_error())?;
        let gap = number - self.next;
        if self.spans.is_empty() || gap > GAP_MAX {
            self.spans.push(BucketSpan {
                offset: i32::try_from(gap)
                    .map_err(|_| rejection(format!("histogram bucket {number} is out of range")))?,
                length: 0,
            })
        } else {
            for _ in 0..gap {
                self.put(0);
            }
        }
        self.put(count);
        self.next = number + 1;
        Ok(())
    }

    fn put(&mut self, count: i64) {
        if let Some(span) = self.spans.last_mut() {
            span.length += 1;
        }
        self.deltas.push(count - self.previous);
        self.previous = count;
    }
}

/// Returns the bytes of memory that a histogram takes in a batch.
pub(super) fn memory_bytes(histogram: &Histogram) -> usize {
    histogram.memory_bytes() + 2 * size_of::<i64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: PointFlags = PointFlags {
        is_stale: false,
        is_delta: false,
    };

    fn point(scale: i32, offset: i32, counts: &[u64]) -> ExponentialHistogramPoint {
        ExponentialHistogramPoint {
            count: counts.iter().sum(),
            sum: Some(1.0),
            scale,
            zero_threshold: 0.5,
            positive: ExponentialBuckets {
                offset,
                counts: counts.to_vec(),
            },
            ..ExponentialHistogramPoint::default()
        }
    }

    /// Returns pairs of bucket number and count.
    fn buckets(histogram: &Histogram) -> Vec<(i64, i64)> {
        let HistogramCounts::Integer { positive, .. } = &histogram.counts else {
            panic!("{histogram:?}");
        };
        let mut deltas = positive.iter();
        let (mut number, mut count) = (0, 0);
        let mut buckets = Vec::new();
        for span in &histogram.positive_spans {
            number += i64::from(span.offset);
            for _ in 0..span.length {
                count += deltas.next().unwrap();
                if count > 0 {
                    buckets.push((number, count));
                }
                number += 1;
            }
        }
        assert!(deltas.next().is_none());
        buckets
    }

    #[test]
    fn exponential_buckets_keep_their_place_whatever_is_empty_and_merged() {
        for (scale, offset, counts, schema, want) in [
            (2, 0, &[1, 2, 3][..], 2, &[(1, 1), (2, 2), (3, 3)][..]),
            (0, -3, &[1, 0, 0, 1], 0, &[(-2, 1), (1, 1)]),
            (0, 5, &[0, 0, 0, 0, 7, 0], 0, &[(10, 7)]),
            (0, 0, &[1, 0, 0, 0, 0, 2], 0, &[(1, 1), (6, 2)]),
            (0, 0, &[0, 0], 0, &[]),
            // Two buckets become one, starting at an even and at an odd offset.
            (9, 0, &[1, 2, 3, 4], 8, &[(1, 3), (2, 7)]),
            (9, 1, &[1, 2, 3, 4], 8, &[(1, 1), (2, 5), (3, 4)]),
            (9, -1, &[1, 2, 3], 8, &[(0, 1), (1, 5)]),
            // An empty pair at the start does not shift the following ones.
            (9, 0, &[0, 0, 5, 7], 8, &[(2, 12)]),
            (20, 4096, &[1; 4096], 8, &[(2, 4096)]),
            (i32::MAX, 7, &[1, 1], 8, &[(1, 2)]),
        ] {
            let histogram = convert_exponential(&point(scale, offset, counts), PLAIN).unwrap();
            assert_eq!(histogram.schema, schema);
            assert_eq!(histogram.zero_threshold, ZERO_THRESHOLD);
            assert_eq!(buckets(&histogram), want, "{scale} {offset} {counts:?}");
        }
    }

    #[test]
    fn exponential_point_that_contradicts_itself_is_refused() {
        let mut miscounted = point(0, 0, &[1, 2]);
        miscounted.count = 4;
        for (point, want) in [
            (
                point(-5, 0, &[1]),
                "cannot convert exponential to native histogram. Scale must be >= -4, was -5",
            ),
            (
                miscounted,
                "3 observations found in buckets, but the Count field is 4",
            ),
            (point(0, i32::MAX, &[0, 0, 1]), "is out of range"),
            (point(0, 0, &[u64::MAX / 2 + 1]), "63 bits"),
        ] {
            match convert_exponential(&point, PLAIN) {
                Err(OtlpDecodeError::Point(offence)) => {
                    assert_eq!(offence.refusal, WriteRejectionReason::Histogram);
                    assert!(offence.message.contains(want), "{}", offence.message);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn stale_point_has_no_counts_and_delta_is_a_gauge() {
        let stale = PointFlags {
            is_stale: true,
            is_delta: true,
        };
        let histogram = convert_exponential(&point(0, 0, &[1, 2]), stale).unwrap();
        assert!(histogram.is_stale());
        assert_eq!(histogram.reset_hint, ResetHint::Gauge);
        assert_eq!(buckets(&histogram), []);
    }

    #[test]
    fn explicit_buckets_become_custom_ones() {
        let point = ExplicitHistogramPoint {
            count: 9,
            sum: Some(3.5),
            bounds: vec![0.5, 1.0, 2.5, 5.0, 10.0],
            counts: vec![0, 2, 0, 0, 0, 7],
            ..ExplicitHistogramPoint::default()
        };
        let histogram = convert_custom(&point, PLAIN).unwrap();
        assert_eq!(histogram.schema, CUSTOM_BUCKETS_SCHEMA);
        assert_eq!(histogram.custom_values, point.bounds);
        assert_eq!(buckets(&histogram), [(1, 2), (5, 7)]);
        let infinite = ExplicitHistogramPoint {
            bounds: vec![f64::INFINITY],
            count: 0,
            counts: vec![],
            ..point
        };
        assert!(convert_custom(&infinite, PLAIN).is_err());
    }
}
