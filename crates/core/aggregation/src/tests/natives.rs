//! Tests native histograms: scenes in which each float is the count of a histogram, and cases that
//! floats do not have: different layouts and incompatible buckets.

use super::*;
use crate::metrics::AggregationGroupCounts;
use firn_model::batch::HistogramSample;
use firn_model::histogram::float::FloatHistogram;
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};

/// Returns a histogram of `count` observations in the bucket `index`, whose sum is twice the count.
pub(super) fn histogram(count: f64, (schema, index): (i32, i32), hint: ResetHint) -> Histogram {
    let custom = schema == CUSTOM_BUCKETS_SCHEMA;
    Histogram {
        reset_hint: hint,
        schema,
        zero_threshold: 0.0,
        sum: if is_stale(count) { count } else { 2.0 * count },
        counts: HistogramCounts::Integer {
            count: count as u64,
            zero_count: 0,
            positive: vec![count as i64],
            negative: Vec::new(),
        },
        positive_spans: vec![BucketSpan {
            offset: index,
            length: 1,
        }],
        negative_spans: Vec::new(),
        custom_values: if custom { vec![1.0, 2.0, 4.0] } else { vec![] },
    }
}

/// Returns timestamps and counts of histograms, none of which may be a staleness marker.
pub(super) fn counts(samples: &[HistogramSample]) -> impl Iterator<Item = (i64, f64)> + '_ {
    samples.iter().map(|sample| {
        let histogram = FloatHistogram::from(&sample.histogram);
        assert_eq!(histogram.sum, 2.0 * histogram.count);
        (sample.time, histogram.count)
    })
}

/// Returns a batch of histograms, given by pod, second and histogram.
fn natives(steps: &[(&str, i64, Histogram)]) -> Batch {
    let mut batch = Batch::default();
    for (pod, second, histogram) in steps {
        let labels = Labels::from_pairs([("__name__", "h"), ("job", "a"), ("pod", pod)]);
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        batch.push_histogram(HistogramSample {
            time: second * 1000,
            start_time: START_UNKNOWN,
            histogram: histogram.clone(),
        });
        batch.end_series();
    }
    batch
}

fn take(machine: &mut AggregationState, batch: &Batch) -> (Vec<u32>, Vec<HistogramSample>) {
    let taken = machine.aggregate_batch(&mut &*batch, i64::MAX).unwrap();
    let results = taken.results.iter();
    let results = results.flat_map(|series| series.histograms.to_vec());
    (taken.dropped, results.collect())
}

fn group_counts(machine: &AggregationState) -> Arc<AggregationGroupCounts> {
    machine.group_sizes().pop().unwrap().1
}

fn exponential(count: f64, schema: i32, index: i32) -> Histogram {
    histogram(count, (schema, index), ResetHint::Unknown)
}

#[test]
fn total_of_histograms_of_other_resolutions_has_the_coarsest() {
    let mut machine = machine(&group(&[rule(AggregationOp::Sum, "h")]));
    let first = [
        ("x", 5, exponential(3.0, 1, 4)),
        ("y", 6, exponential(9.0, 0, 2)),
    ];
    take(&mut machine, &natives(&first));
    let second = [
        ("x", 8, exponential(5.0, 1, 4)),
        ("y", 9, exponential(12.0, 0, 3)),
    ];
    take(&mut machine, &natives(&second));
    let (_, results) = take(&mut machine, &natives(&[("x", 20, exponential(5.0, 1, 4))]));
    let total = FloatHistogram::from(&results[0].histogram);
    // The bucket of y decreased: it counts from zero.
    assert_eq!((total.schema, total.count), (0, 14.0));
    assert_eq!(total.non_empty_buckets()[0], [(2, 2.0), (3, 12.0)]);
    assert_eq!((results[0].time, results[0].start_time), (10_000, 0));
}

#[test]
fn sources_that_do_not_add_up_are_stored_and_counted() {
    let dropping = AggregationRuleSpec {
        drops: true,
        ..rule(AggregationOp::Sum, "h")
    };
    let mut machine = machine(&group(&[dropping]));
    let custom = histogram(2.0, (CUSTOM_BUCKETS_SCHEMA, 1), ResetHint::Unknown);
    let first = natives(&[("x", 5, exponential(3.0, 1, 4)), ("y", 6, custom)]);
    assert_eq!(take(&mut machine, &first).0, [0]);
    // A float of a new source, and a float of a known source.
    let floats = batch(
        "h",
        &[("z", 7, 1.0, START_UNKNOWN), ("x", 8, 1.0, START_UNKNOWN)],
    );
    assert_eq!(take(&mut machine, &floats).0, [0u32; 0]);
    assert_eq!(group_counts(&machine).mixed.get(), 3);
    // The store rejects an invalid histogram and reports the reason.
    let mut broken = exponential(9.0, 1, 4);
    broken.positive_spans.clear();
    assert_eq!(
        take(&mut machine, &natives(&[("x", 9, broken)])).0,
        [0u32; 0]
    );
    // The end of a source is a float.
    let end = batch("h", &[("x", 9, STALE, START_UNKNOWN)]);
    assert_eq!(take(&mut machine, &end).0, [0]);
    assert_eq!(group_counts(&machine).ended.get(), 1);
}

#[test]
fn gauges_of_other_buckets_have_no_sum_as_long_as_both_are_there() {
    let mut machine = machine(&group(&[rule(AggregationOp::Sum, "h")]));
    let gauge = |count, schema| histogram(count, (schema, 1), ResetHint::Gauge);
    let mut found = Vec::new();
    for step in [
        ("x", 5, gauge(3.0, 0)),
        ("y", 15, gauge(4.0, CUSTOM_BUCKETS_SCHEMA)),
        ("x", 25, gauge(5.0, 0)),
        ("z", 44, gauge(1.0, 0)),
        ("z", 60, gauge(1.0, 0)),
    ] {
        let batch = natives(&[step]);
        let results = machine
            .aggregate_batch(&mut &batch, i64::MAX)
            .unwrap()
            .results;
        for series in results.iter() {
            found.extend(counts(series.histograms));
            found.extend(series.times.iter().map(|time| (*time, STALE)));
        }
    }
    let expected = [
        (10_000, 3.0),
        (20_000, STALE),
        (30_000, STALE),
        (40_000, 5.0),
        (50_000, 1.0),
        (60_000, 1.0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn operations_that_make_nothing_of_histograms_leave_them_alone() {
    for op in [
        AggregationOp::Min,
        AggregationOp::Max,
        AggregationOp::Stddev,
        AggregationOp::Stdvar,
        AggregationOp::Quantile(0.5),
    ] {
        let dropping = AggregationRuleSpec {
            drops: true,
            ..rule(op, "h")
        };
        let mut machine = machine(&group(&[dropping]));
        let (dropped, _) = take(&mut machine, &natives(&[("x", 5, exponential(3.0, 1, 4))]));
        assert_eq!(dropped, [0u32; 0]);
        assert_eq!(group_counts(&machine).histogram_sources.get(), 1, "{op:?}");
    }
}
