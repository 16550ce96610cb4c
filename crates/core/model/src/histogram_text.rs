//! The text form of native histograms that `count_values` and the tools of Prometheus use.

use crate::go_float::format_shortest;
use crate::histogram::Histogram;
use crate::histogram::float::{FloatHistogram, HistogramBucket};

/// Formats a histogram with its non-empty buckets in ascending order:
/// `{count:4, sum:3, [-2,-1):1, [-0.5,0.5]:1, (1,2]:2}`.
pub fn histogram_text(histogram: &Histogram) -> String {
    let histogram = FloatHistogram::from(histogram);
    let mut out = format!(
        "{{count:{}, sum:{}",
        format_shortest(histogram.count),
        format_shortest(histogram.sum)
    );
    for bucket in histogram.negative_buckets().rev() {
        push_bucket(&mut out, bucket, bucket.lower < 0.0, bucket.upper > 0.0);
    }
    push_bucket(&mut out, histogram.zero_bucket(), true, true);
    let begins_at_zero = histogram.positive.indexes().first() == Some(&0);
    for (place, bucket) in histogram.positive_buckets().enumerate() {
        let is_custom = histogram.is_custom();
        let with_lower = if is_custom {
            place == 0 && begins_at_zero
        } else {
            bucket.lower < 0.0
        };
        push_bucket(
            &mut out,
            bucket,
            with_lower,
            is_custom || bucket.upper > 0.0,
        );
    }
    out.push('}');
    out
}

fn push_bucket(out: &mut String, bucket: HistogramBucket, with_lower: bool, with_upper: bool) {
    if bucket.count == 0.0 {
        return;
    }
    let open = if with_lower { '[' } else { '(' };
    let close = if with_upper { ']' } else { ')' };
    let (lower, upper, count) = (
        format_shortest(bucket.lower),
        format_shortest(bucket.upper),
        format_shortest(bucket.count),
    );
    out.push_str(&format!(", {open}{lower},{upper}{close}:{count}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, HistogramCounts, ResetHint};

    fn check(
        (schema, bounds): (i32, &[f64]),
        (zero_threshold, zero_count): (f64, f64),
        [positive, negative]: [&[f64]; 2],
        want: &str,
    ) {
        let spans = |counts: &[f64]| {
            let length = counts.len() as u32;
            vec![BucketSpan { offset: 0, length }]
        };
        let count = zero_count + positive.iter().chain(negative).sum::<f64>();
        let histogram = Histogram {
            reset_hint: ResetHint::Unknown,
            schema,
            zero_threshold,
            sum: 2.0 * count,
            counts: HistogramCounts::Float {
                count,
                zero_count,
                positive: positive.to_vec(),
                negative: negative.to_vec(),
            },
            positive_spans: spans(positive),
            negative_spans: spans(negative),
            custom_values: bounds.to_vec(),
        };
        assert_eq!(histogram_text(&histogram), want);
    }

    #[test]
    fn text_of_histogram_is_upstreams() {
        check((0, &[]), (0.0, 0.0), [&[], &[]], "{count:0, sum:0}");
        check(
            (0, &[]),
            (0.001, 3.0),
            [&[1.0, 0.0, 2.0], &[1.0, 4.0]],
            "{count:11, sum:22, [-2,-1):4, [-1,-0.5):1, [-0.001,0.001]:3, (0.5,1]:1, (2,4]:2}",
        );
        check(
            (CUSTOM_BUCKETS_SCHEMA, &[1e9]),
            (0.0, 0.0),
            [&[1.0, 2.0], &[]],
            "{count:3, sum:6, [-Inf,1e+09]:1, (1e+09,+Inf]:2}",
        );
    }
}
