//! Native histograms in JSON: count, sum and the non-empty buckets in ascending order.
//!
//! ```text
//! {"count":"42","sum":"3.5","buckets":[[3,"-0.25","0.25","3"],[0,"0.5","1","21"]]}
//! ```
//!
//! The first number of a bucket encodes its inclusive bounds: 0 the upper, 1 the lower, 2 none, 3
//! both (`util/jsonutil/marshal.go` upstream).

use super::{FloatNotation, push_float};
use firn_model::histogram::bounds::upper_bound;
use firn_model::histogram::{FloatCounts, Histogram, bucket_indexes};

struct JsonHistogramBucket {
    lower: f64,
    upper: f64,
    lower_inclusive: bool,
    upper_inclusive: bool,
    count: f64,
}

/// Appends `histogram` as a JSON object. The buckets are omitted if all are empty.
pub(crate) fn push_histogram(out: &mut Vec<u8>, histogram: &Histogram) {
    let counts = histogram.counts.to_floats();
    out.extend_from_slice(br#"{"count":""#);
    push_float(out, counts.count, FloatNotation::Sample);
    out.extend_from_slice(br#"","sum":""#);
    push_float(out, histogram.sum, FloatNotation::Sample);
    out.push(b'"');
    let mut before: &[u8] = br#","buckets":["#;
    for bucket in buckets(histogram, &counts) {
        out.extend_from_slice(before);
        push_bucket(out, &bucket);
        before = b",";
    }
    if before == b"," {
        out.push(b']');
    }
    out.push(b'}');
}

fn push_bucket(out: &mut Vec<u8>, bucket: &JsonHistogramBucket) {
    let boundaries = match (bucket.lower_inclusive, bucket.upper_inclusive) {
        (false, true) => b'0',
        (true, false) => b'1',
        (false, false) => b'2',
        (true, true) => b'3',
    };
    out.extend_from_slice(&[b'[', boundaries]);
    for number in [bucket.lower, bucket.upper, bucket.count] {
        out.extend_from_slice(b",\"");
        push_float(out, number, FloatNotation::Sample);
        out.push(b'"');
    }
    out.push(b']');
}

/// Returns the non-empty buckets in ascending order: negative ones, the zero bucket and positive
/// ones.
fn buckets(histogram: &Histogram, counts: &FloatCounts) -> Vec<JsonHistogramBucket> {
    let mut buckets: Vec<JsonHistogramBucket> = bucket_indexes(&histogram.negative_spans)
        .zip(&counts.negative)
        .map(|(index, count)| negative_bucket(histogram, index, *count))
        .collect();
    buckets.reverse();
    if counts.zero_count > 0.0 {
        let inclusive = !histogram.has_custom_buckets();
        buckets.push(JsonHistogramBucket {
            lower: -histogram.zero_threshold,
            upper: histogram.zero_threshold,
            lower_inclusive: inclusive,
            upper_inclusive: inclusive,
            count: counts.zero_count,
        });
    }
    let positive = bucket_indexes(&histogram.positive_spans).zip(&counts.positive);
    buckets.extend(positive.map(|(index, count)| positive_bucket(histogram, index, *count)));
    buckets.retain(|bucket| bucket.count != 0.0);
    buckets
}

fn positive_bucket(histogram: &Histogram, index: i64, count: f64) -> JsonHistogramBucket {
    let bound = |index| upper_bound(index, histogram.schema, &histogram.custom_values);
    let (lower, upper) = (bound(index - 1), bound(index));
    if histogram.has_custom_buckets() {
        return JsonHistogramBucket {
            lower,
            upper,
            lower_inclusive: index == 0,
            upper_inclusive: true,
            count,
        };
    }
    let reaches_into_zero = lower > 0.0 && lower < histogram.zero_threshold;
    JsonHistogramBucket {
        lower: if reaches_into_zero {
            histogram.zero_threshold
        } else {
            lower
        },
        upper,
        lower_inclusive: false,
        upper_inclusive: true,
        count,
    }
}

fn negative_bucket(histogram: &Histogram, index: i64, count: f64) -> JsonHistogramBucket {
    let mirrored = positive_bucket(histogram, index, count);
    JsonHistogramBucket {
        lower: -mirrored.upper,
        upper: -mirrored.lower,
        lower_inclusive: mirrored.upper_inclusive,
        upper_inclusive: mirrored.lower_inclusive,
        count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, HistogramCounts, ResetHint};

    fn check(histogram: &Histogram, want: &str) {
        let mut out = Vec::new();
        push_histogram(&mut out, histogram);
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    fn exponential(counts: HistogramCounts) -> Histogram {
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema: 0,
            zero_threshold: 0.001,
            sum: 18.4,
            counts,
            positive_spans: vec![
                BucketSpan {
                    offset: 0,
                    length: 2,
                },
                BucketSpan {
                    offset: 1,
                    length: 1,
                },
            ],
            negative_spans: vec![BucketSpan {
                offset: 0,
                length: 2,
            }],
            custom_values: Vec::new(),
        }
    }

    #[test]
    fn push_histogram_with_exponential_buckets_writes_both_sides() {
        let want = concat!(
            r#"{"count":"12","sum":"18.4","buckets":["#,
            r#"[1,"-2","-1","1"],[1,"-1","-0.5","2"],[3,"-0.001","0.001","2"],"#,
            r#"[0,"0.5","1","1"],[0,"1","2","2"],[0,"4","8","4"]]}"#
        );
        check(
            &exponential(HistogramCounts::Integer {
                count: 12,
                zero_count: 2,
                positive: vec![1, 1, 2],
                negative: vec![2, -1],
            }),
            want,
        );
        check(
            &exponential(HistogramCounts::Float {
                count: 12.0,
                zero_count: 2.0,
                positive: vec![1.0, 2.0, 4.0],
                negative: vec![2.0, 1.0],
            }),
            want,
        );
    }

    #[test]
    fn push_histogram_with_custom_buckets_closes_the_first() {
        let histogram = Histogram {
            schema: CUSTOM_BUCKETS_SCHEMA,
            zero_threshold: 0.0,
            counts: HistogramCounts::Float {
                count: 3.5,
                zero_count: 0.0,
                positive: vec![1.0, 0.0, 2.5],
                negative: Vec::new(),
            },
            positive_spans: vec![BucketSpan {
                offset: 0,
                length: 3,
            }],
            negative_spans: Vec::new(),
            custom_values: vec![0.1, 1.0],
            ..exponential(HistogramCounts::Float {
                count: 0.0,
                zero_count: 0.0,
                positive: Vec::new(),
                negative: Vec::new(),
            })
        };
        check(
            &histogram,
            concat!(
                r#"{"count":"3.5","sum":"18.4","buckets":"#,
                r#"[[3,"-Inf","0.1","1"],[0,"1","+Inf","2.5"]]}"#
            ),
        );
    }

    #[test]
    fn push_histogram_without_observations_has_no_buckets() {
        let empty = Histogram {
            positive_spans: Vec::new(),
            negative_spans: Vec::new(),
            ..exponential(HistogramCounts::Float {
                count: 0.0,
                zero_count: 0.0,
                positive: Vec::new(),
                negative: Vec::new(),
            })
        };
        check(&empty, r#"{"count":"0","sum":"18.4"}"#);
    }
}
