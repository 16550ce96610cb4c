//! Native histograms brought within the limits of a job, by merging neighbouring buckets.
//!
//! One step of resolution joins buckets in pairs: bucket `i` of a schema covers the same values as
//! buckets `2i - 1` and `2i` of the next finer one. Follows `model/histogram` of Prometheus.

use super::settings::ScrapeLimits;
use firn_model::histogram::{
    Counts, EXPONENTIAL_SCHEMA_MAX, EXPONENTIAL_SCHEMA_MIN, Histogram, Span,
};

/// The growth of a bucket that the finest schema has; a lower factor asks for nothing.
const FINEST_FACTOR: f64 = 1.00271;

/// What a histogram may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HistogramLimits {
    /// Buckets on both sides; zero is no limit.
    buckets: u64,
    /// The finest schema.
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

/// The histogram within `limits`; `None` if it has too many buckets at any resolution.
pub(super) fn fit(histogram: &Histogram, limits: HistogramLimits) -> Option<Histogram> {
    let mut fitted = histogram.clone();
    while !fitted.has_custom_buckets() && fitted.schema > limits.schema {
        coarsen(&mut fitted);
    }
    while limits.buckets > 0 && fitted.counts.bucket_count() as u64 > limits.buckets {
        if fitted.has_custom_buckets() || fitted.schema <= EXPONENTIAL_SCHEMA_MIN {
            return None;
        }
        coarsen(&mut fitted);
    }
    Some(fitted)
}

/// Halves the resolution.
fn coarsen(histogram: &mut Histogram) {
    histogram.schema -= 1;
    let (positive_spans, negative_spans) =
        (&mut histogram.positive_spans, &mut histogram.negative_spans);
    match &mut histogram.counts {
        Counts::Integer {
            positive, negative, ..
        } => {
            merge_deltas(positive_spans, positive);
            merge_deltas(negative_spans, negative);
        }
        Counts::Float {
            positive, negative, ..
        } => {
            merge(positive_spans, positive);
            merge(negative_spans, negative);
        }
    }
}

fn merge_deltas(spans: &mut Vec<Span>, deltas: &mut Vec<i64>) {
    let mut count = 0i64;
    for delta in deltas.iter_mut() {
        count = count.wrapping_add(*delta);
        *delta = count;
    }
    merge(spans, deltas);
    let mut before = 0i64;
    for count in deltas.iter_mut() {
        let delta = count.wrapping_sub(before);
        before = *count;
        *count = delta;
    }
}

/// Merges absolute counts in pairs. The spans are sound: their lengths add up to the counts.
fn merge<T: Copy + std::ops::AddAssign>(spans: &mut Vec<Span>, counts: &mut Vec<T>) {
    let mut merged: Vec<(i32, T)> = Vec::with_capacity(counts.len() / 2 + 1);
    let mut index = 0i32;
    let mut rest = counts.iter();
    for span in spans.iter() {
        index = index.saturating_add(span.offset);
        for _ in 0..span.length {
            let Some(count) = rest.next() else {
                break;
            };
            // Rounds up: 1 and 2 become 1, 0 and -1 become 0.
            let target = index.saturating_add(1) >> 1;
            match merged.last_mut() {
                Some((last, sum)) if *last == target => *sum += *count,
                _ => merged.push((target, *count)),
            }
            index = index.saturating_add(1);
        }
    }
    spans.clear();
    counts.clear();
    let mut end = 0i32;
    for (index, count) in merged {
        counts.push(count);
        match spans.last_mut() {
            Some(span) if index == end => span.length += 1,
            _ => spans.push(Span {
                offset: index.saturating_sub(end),
                length: 1,
            }),
        }
        end = index.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::ResetHint;

    fn histogram(schema: i32, spans: &[(i32, u32)], deltas: &[i64]) -> Histogram {
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema,
            zero_threshold: 0.0,
            sum: 1.0,
            counts: Counts::Integer {
                count: 100,
                zero_count: 0,
                positive: deltas.to_vec(),
                negative: Vec::new(),
            },
            positive_spans: spans
                .iter()
                .map(|&(offset, length)| Span { offset, length })
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
        // Counts 1, 3, 6 at 1, 2, 3 and 2, 1 at 6, 7.
        let fine = histogram(1, &[(1, 3), (2, 2)], &[1, 2, 3, -4, -1]);
        assert_eq!(fit(&fine, limits(0, 0.0)), Some(fine.clone()));
        assert_eq!(fit(&fine, limits(5, 0.0)), Some(fine.clone()));
        // 1 and 2 make 1; 3 (and 4) make 2; 6 (and 5) make 3; 7 (and 8) make 4.
        let coarse = histogram(0, &[(1, 4)], &[4, 2, -4, -1]);
        assert_eq!(fit(&fine, limits(4, 0.0)), Some(coarse.clone()));
        assert_eq!(fit(&fine, limits(0, 2.0)), Some(coarse));
    }

    #[test]
    fn fit_of_too_many_buckets_at_the_coarsest_is_refused() {
        let far = histogram(-4, &[(0, 1), (5, 1)], &[1, 0]);
        assert_eq!(fit(&far, limits(1, 0.0)), None);
    }
}
