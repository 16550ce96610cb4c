//! Tests the results of small scenes, in tables, and the effects of a reload.

mod journal;
mod natives;
mod simulation;

use super::failpoints::{AggregationFlaw, with_flaw};
use super::hashing::SourceHashing;
use super::machine::AggregationState;
use super::spec::{
    AggregatedMetricKind, AggregationGroupSpec, AggregationGrouping, AggregationOp,
    AggregationRuleSpec, AggregationSpec,
};
use firn_model::batch::{Batch, HistogramSample};
use firn_model::fingerprint::{FingerprintSeed, HashKeys, HashKind};
use firn_model::histogram::ResetHint;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::{START_UNKNOWN, is_stale, stale_nan};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Represents a staleness marker in a scene.
const STALE: f64 = -12345.0;

/// A sample of a scene: pod, second, value.
type Step = (&'static str, i64, f64);

fn rule(op: AggregationOp, name: &str) -> AggregationRuleSpec {
    AggregationRuleSpec {
        record: "job:x".into(),
        expr: format!("{op:?} of {name}"),
        op,
        grouping: AggregationGrouping::By(vec!["job".into()]),
        matchers: vec![Matcher::new("__name__", MatchOp::Equal, name.as_bytes()).unwrap()],
        labels: vec![("by".into(), "rule".into())],
        drops: false,
        kind: None,
    }
}

/// Returns a group with intervals of ten seconds that are written at once, and a look-back of 25 s.
fn group(rules: &[AggregationRuleSpec]) -> AggregationSpec {
    AggregationSpec {
        groups: vec![AggregationGroupSpec {
            name: "g".into(),
            interval_ms: 10_000,
            delay_ms: 0,
            lookback_ms: 25_000,
            rules: rules.into(),
        }],
    }
}

/// Returns the fastest hash function, with keys derived from `seed`.
fn hashing(seed: u64) -> SourceHashing {
    let keys = HashKeys::from_seed(HashKind::fastest(), FingerprintSeed([seed, 0]));
    SourceHashing::Keys(Arc::new(keys))
}

fn machine(spec: &AggregationSpec) -> AggregationState {
    let mut machine = AggregationState::new(hashing(7), usize::MAX, Arc::new(|_| None));
    machine.configure(spec);
    machine
}

/// Returns a batch with one sample of `metric` for each step.
fn batch(metric: &str, steps: &[(&str, i64, f64, i64)]) -> Batch {
    let mut batch = Batch::default();
    for (pod, second, value, start) in steps {
        let labels = Labels::from_pairs([("__name__", metric), ("job", "a"), ("pod", pod)]);
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        let value = if *value == STALE { stale_nan() } else { *value };
        match *start {
            START_UNKNOWN => batch.push_float(second * 1000, value),
            start => batch.push_float_with_start(second * 1000, value, start * 1000),
        }
        batch.end_series();
    }
    batch
}

/// Returns the same batch with histograms, whose counts are the values of the floats.
fn native_batch(metric: &str, steps: &[(&str, i64, f64, i64)], hint: ResetHint) -> Batch {
    let floats = batch(metric, steps);
    let mut batch = Batch::default();
    for (place, series) in floats.iter().enumerate() {
        let labels = series.labels.as_bytes();
        batch.label_bytes().extend_from_slice(labels);
        let start = series.start_times.first().copied();
        batch.push_histogram(HistogramSample {
            time: series.times[0],
            start_time: start.unwrap_or(START_UNKNOWN),
            histogram: natives::histogram(series.values[0], (2, place as i32), hint),
        });
        batch.end_series();
    }
    batch
}

/// Collects second and value of each sample in a batch of results, by labels. A histogram is
/// represented by its count.
fn read(results: &Batch, into: &mut BTreeMap<String, Vec<(i64, f64)>>) {
    for series in results.iter() {
        let row = into
            .entry(series.labels.to_owned().to_string())
            .or_default();
        for (time, value) in series.times.iter().zip(series.values) {
            let value = if is_stale(*value) { STALE } else { *value };
            row.push((time / 1000, value));
        }
        let counts = natives::counts(series.histograms);
        row.extend(counts.map(|(time, count)| (time / 1000, count)));
    }
}

/// Compares the results of the rule, for floats and for histograms with equal counts.
fn check(
    rule: &AggregationRuleSpec,
    metric: &str,
    steps: &[Step],
    until: i64,
    expected: &[(i64, f64)],
) {
    check_as(rule, metric, steps, until, expected, batch);
    if rule.op.accepts_histograms() {
        let hint = match rule.kind_of_source(metric.as_bytes(), None) {
            AggregatedMetricKind::Counter => ResetHint::Unknown,
            AggregatedMetricKind::Gauge => ResetHint::Gauge,
        };
        let make =
            |metric: &str, steps: &[(&str, i64, f64, i64)]| native_batch(metric, steps, hint);
        check_as(rule, metric, steps, until, expected, make);
    }
}

/// Processes each step as a batch of its own, then advances data time.
fn check_as(
    rule: &AggregationRuleSpec,
    metric: &str,
    steps: &[Step],
    until: i64,
    expected: &[(i64, f64)],
    make: impl Fn(&str, &[(&str, i64, f64, i64)]) -> Batch,
) {
    let mut machine = machine(&group(std::slice::from_ref(rule)));
    let mut results = BTreeMap::new();
    let clock = [("clock", until, 0.0, START_UNKNOWN)];
    let steps = steps
        .iter()
        .map(|(pod, second, value)| make(metric, &[(*pod, *second, *value, START_UNKNOWN)]));
    for batch in steps.chain([self::batch("clock", &clock)]) {
        let taken = machine.aggregate_batch(&mut &batch, i64::MAX).unwrap();
        assert!(taken.dropped.is_empty());
        read(&taken.results, &mut results);
    }
    let key = r#"{__name__="job:x", by="rule", job="a"}"#;
    let found = results.remove(key).unwrap_or_default();
    assert_eq!(found, expected, "{metric} {:?}", rule.op);
    assert!(results.is_empty(), "{results:?}");
}

/// Returns the increase of the totals of two rules from ten pods. The second rule is added after
/// the order of the pods was learned.
fn growth_of_two_rules() -> Vec<f64> {
    let one = rule(AggregationOp::Sum, "a_total");
    let other = AggregationRuleSpec {
        record: "job:y".into(),
        ..one.clone()
    };
    let mut machine = machine(&group(std::slice::from_ref(&one)));
    let pods: Vec<String> = (0..10).map(|pod| pod.to_string()).collect();
    let mut results = BTreeMap::new();
    for round in 0..9 {
        if round == 3 {
            machine.configure(&group(&[one.clone(), other.clone()]));
        }
        let sample = |pod: &String| (pod.clone(), 10 * round + 5, round as f64);
        let steps: Vec<(String, i64, f64)> = pods.iter().map(sample).collect();
        let steps: Vec<(&str, i64, f64, i64)> = steps
            .iter()
            .map(|(pod, second, value)| (pod.as_str(), *second, *value, START_UNKNOWN))
            .collect();
        let taken = machine.aggregate_batch(&mut &batch("a_total", &steps), i64::MAX);
        read(&taken.unwrap().results, &mut results);
    }
    let rows = results.values().filter(|row| row.len() > 1);
    rows.map(|row| row[row.len() - 1].1 - row[0].1).collect()
}

#[test]
fn source_of_two_rules_counts_in_both_while_its_series_come_in_one_order() {
    let expected = growth_of_two_rules();
    assert_eq!(expected.len(), 2, "{expected:?}");
    assert!(expected.iter().all(|grown| *grown >= 20.0), "{expected:?}");
    assert_ne!(
        with_flaw(AggregationFlaw::BeginsBehind, growth_of_two_rules),
        expected
    );
}

#[test]
fn sum_of_counters_counts_increments_from_the_second_sample_on() {
    let sum = rule(AggregationOp::Sum, "a_total");
    let check = |steps: &[Step], until, expected: &[(i64, f64)]| {
        check(&sum, "a_total", steps, until, expected);
    };
    // The first sample counts nothing; each interval end of the grid has one result.
    check(
        &[
            ("x", 5, 100.0),
            ("x", 15, 103.0),
            ("x", 20, 104.0),
            ("x", 31, 110.0),
        ],
        40,
        &[(10, 0.0), (20, 4.0), (30, 4.0), (40, 10.0)],
    );
    // A reset counts from zero, and another source begins with zero.
    check(
        &[
            ("x", 5, 100.0),
            ("x", 10, 107.0),
            ("x", 20, 2.0),
            ("y", 20, 50.0),
            ("y", 25, 51.0),
        ],
        30,
        &[(10, 7.0), (20, 9.0), (30, 10.0)],
    );
    // A repeated sample and one older than the newest count nothing.
    check(
        &[
            ("x", 5, 1.0),
            ("x", 8, 3.0),
            ("x", 8, 3.0),
            ("x", 6, 2.0),
            ("x", 9, 4.0),
        ],
        10,
        &[(10, 3.0)],
    );
    // A sample that arrives after its interval was written counts in the next one.
    check(
        &[
            ("x", 5, 1.0),
            ("y", 5, 1.0),
            ("x", 21, 2.0),
            ("y", 8, 5.0),
            ("x", 30, 3.0),
        ],
        40,
        &[(10, 0.0), (20, 0.0), (30, 6.0), (40, 6.0)],
    );
    // A silent source is remembered for the look-back; the result continues as long.
    check(
        &[
            ("x", 5, 1.0),
            ("x", 29, 8.0),
            ("x", 54, 100.0),
            ("x", 58, 101.0),
        ],
        60,
        &[
            (10, 0.0),
            (20, 0.0),
            (30, 7.0),
            (40, 7.0),
            (50, 7.0),
            (60, 8.0),
        ],
    );
    // A source that ended is a new one when it returns, and its result ends.
    check(
        &[
            ("x", 5, 1.0),
            ("x", 8, 3.0),
            ("x", 12, STALE),
            ("x", 33, 9.0),
            ("x", 35, 10.0),
        ],
        40,
        &[(10, 2.0), (20, STALE), (40, 3.0)],
    );
    // Increments of the interval in which the last source ended are not lost.
    check(
        &[("x", 5, 1.0), ("x", 11, 4.0), ("x", 12, STALE)],
        40,
        &[(10, 0.0), (20, 3.0), (30, STALE)],
    );
}

#[test]
fn sum_of_counters_with_start_timestamps_counts_since_then() {
    let sum = rule(AggregationOp::Sum, "a_total");
    for (steps, until, expected) in [
        // The first sample counts if it started within the look-back.
        (&[("x", 30, 9.0, 10)][..], 30, &[(30, 9.0)][..]),
        (&[("x", 30, 9.0, 5)], 30, &[(30, 0.0)]),
        // A start after the previous sample is a reset, even if the value increased.
        (
            &[("x", 10, 9.0, 1), ("x", 20, 12.0, 15)],
            20,
            &[(10, 9.0), (20, 21.0)],
        ),
        (
            &[("x", 10, 9.0, 1), ("x", 20, 12.0, 1)],
            20,
            &[(10, 9.0), (20, 12.0)],
        ),
        // A start in the future is ignored.
        (&[("x", 10, 9.0, 99)], 10, &[(10, 0.0)]),
    ] {
        let native = |step: &_| native_batch("a_total", &[*step], ResetHint::Unknown);
        let float = |step: &_| batch("a_total", &[*step]);
        for make in [&float as &dyn Fn(&_) -> Batch, &native] {
            let mut machine = machine(&group(std::slice::from_ref(&sum)));
            let mut results = BTreeMap::new();
            let clock = batch("clock", &[("c", until, 0.0, START_UNKNOWN)]);
            for batch in steps.iter().map(make).chain([clock]) {
                let taken = machine.aggregate_batch(&mut &batch, i64::MAX).unwrap();
                read(&taken.results, &mut results);
            }
            let found: Vec<_> = results.into_values().flatten().collect();
            assert_eq!(found, expected, "{steps:?}");
        }
    }
}

#[test]
fn result_of_a_counter_says_since_when_it_counts() {
    let mut machine = machine(&group(&[rule(AggregationOp::Sum, "a_total")]));
    let mut starts = Vec::new();
    for second in [15, 25, 35] {
        let batch = batch("a_total", &[("x", second, second as f64, START_UNKNOWN)]);
        let results = machine
            .aggregate_batch(&mut &batch, i64::MAX)
            .unwrap()
            .results;
        starts.extend(
            results
                .iter()
                .flat_map(|series| series.start_times.to_vec()),
        );
    }
    assert_eq!(starts, [10_000, 10_000]);
}

#[test]
fn gauges_give_what_the_batch_rule_gives_at_the_end_of_each_interval() {
    let steps: &[Step] = &[
        ("x", 5, 4.0),
        ("x", 9, 6.0),
        ("y", 9, 1.0),
        ("x", 20, 8.0),
        // Silent for longer than the look-back at 50 and afterwards.
        ("y", 22, 2.0),
        ("x", 33, STALE),
    ];
    for (op, expected) in [
        (AggregationOp::Sum, [7.0, 9.0, 10.0, 2.0]),
        (AggregationOp::Min, [1.0, 1.0, 2.0, 2.0]),
        (AggregationOp::Max, [6.0, 8.0, 8.0, 2.0]),
        (AggregationOp::Avg, [3.5, 4.5, 5.0, 2.0]),
        (AggregationOp::Count, [2.0, 2.0, 2.0, 1.0]),
        (AggregationOp::Group, [1.0; 4]),
        (AggregationOp::Last, [6.0, 8.0, 2.0, 2.0]),
        (AggregationOp::Stdvar, [6.25, 12.25, 9.0, 0.0]),
        (AggregationOp::Quantile(0.5), [3.5, 4.5, 5.0, 2.0]),
    ] {
        let ends = [10, 20, 30, 40];
        let mut expected: Vec<_> = ends.into_iter().zip(expected).collect();
        expected.push((50, STALE));
        check(&rule(op, "g"), "g", steps, 60, &expected);
    }
}

#[test]
fn late_sample_of_a_gauge_is_dropped_and_counted_and_a_repeated_one_is_not() {
    let mut machine = machine(&group(&[rule(AggregationOp::Sum, "g")]));
    let mut results = BTreeMap::new();
    for (pod, second, value) in [("x", 5, 1.0), ("x", 21, 2.0), ("y", 9, 7.0), ("x", 5, 1.0)] {
        let batch = batch("g", &[(pod, second, value, START_UNKNOWN)]);
        read(
            &machine
                .aggregate_batch(&mut &batch, i64::MAX)
                .unwrap()
                .results,
            &mut results,
        );
    }
    let (_, counts, sizes) = machine.group_sizes().pop().unwrap();
    assert_eq!((counts.late.get(), counts.repeated.get()), (1, 1));
    assert_eq!(sizes.outputs, 1);
    let results: Vec<_> = results.into_values().flatten().collect();
    assert_eq!(results, [(10, 1.0), (20, 1.0)]);
}

#[test]
fn kind_of_a_sum_is_as_the_rule_says_then_metadata_then_the_name() {
    let known: fn(&[u8]) -> Option<AggregatedMetricKind> = |name| match name {
        b"gauge_total" => Some(AggregatedMetricKind::Gauge),
        b"count" => Some(AggregatedMetricKind::Counter),
        _ => None,
    };
    for (name, kind, expected) in [
        ("a_total", None, AggregatedMetricKind::Counter),
        ("a_bucket", None, AggregatedMetricKind::Counter),
        ("a_count", None, AggregatedMetricKind::Counter),
        ("a_sum", None, AggregatedMetricKind::Counter),
        ("a", None, AggregatedMetricKind::Gauge),
        ("gauge_total", None, AggregatedMetricKind::Gauge),
        ("count", None, AggregatedMetricKind::Counter),
        (
            "count",
            Some(AggregatedMetricKind::Gauge),
            AggregatedMetricKind::Gauge,
        ),
        (
            "a",
            Some(AggregatedMetricKind::Counter),
            AggregatedMetricKind::Counter,
        ),
    ] {
        let spec = AggregationRuleSpec {
            kind,
            ..rule(AggregationOp::Sum, name)
        };
        let found = spec.kind_of_source(name.as_bytes(), known(name.as_bytes()));
        assert_eq!(found, expected, "{name} {kind:?}");
    }
    assert_eq!(
        rule(AggregationOp::Max, "a_total").kind_of_source(b"a_total", None),
        AggregatedMetricKind::Gauge
    );
}

#[test]
fn sources_of_a_dropping_rule_are_named_markers_included_and_others_are_not() {
    let dropping = AggregationRuleSpec {
        drops: true,
        ..rule(AggregationOp::Sum, "a_total")
    };
    let mut machine = machine(&group(&[
        dropping,
        rule(AggregationOp::Count, "a_total"),
        rule(AggregationOp::Sum, "b"),
    ]));
    for value in [1.0, 2.0, STALE, STALE] {
        let mut all = batch("b", &[("x", 5, value, START_UNKNOWN)]);
        for (pod, name) in [("x", "a_total"), ("y", "a_total"), ("z", "c")] {
            let labels = Labels::from_pairs([("__name__", name), ("job", "a"), ("pod", pod)]);
            let value = if value == STALE { stale_nan() } else { value };
            all.push_series(labels.as_ref(), &[(5_000, value)]);
        }
        let taken = machine.aggregate_batch(&mut &all, i64::MAX).unwrap();
        assert_eq!(taken.dropped, [1, 2]);
        assert_eq!(taken.dropped_samples, 2);
    }
}

#[test]
fn samples_of_the_future_change_nothing() {
    let mut machine = machine(&group(&[rule(AggregationOp::Sum, "g")]));
    let mut journal = |second, time_max| {
        let batch = batch("g", &[("x", second, 1.0, START_UNKNOWN)]);
        machine
            .aggregate_batch(&mut &batch, time_max)
            .unwrap()
            .results
            .sample_count()
    };
    assert_eq!(journal(700, 10_000), 0);
    assert_eq!(journal(5, 10_000), 0);
    assert_eq!(journal(500, 10_000), 0);
    assert_eq!(journal(12, 20_000), 1);
}

#[test]
fn results_are_written_before_the_delay_is_over_in_parts() {
    let mut spec = group(&[rule(AggregationOp::Sum, "g")]);
    spec.groups[0].delay_ms = 8_000;
    let mut machine = machine(&spec);
    let mut written = BTreeMap::new();
    for tenth in 0..300 {
        let mut all = Batch::default();
        for job in 0..40 {
            let job = job.to_string();
            let labels = Labels::from_pairs([("__name__", "g"), ("job", job.as_str())]);
            all.push_series(labels.as_ref(), &[(tenth * 100, 1.0)]);
        }
        let results = machine
            .aggregate_batch(&mut &all, i64::MAX)
            .unwrap()
            .results;
        let behind = results.iter().map(|series| tenth * 100 - series.times[0]);
        for behind in behind {
            *written.entry(behind).or_insert(0) += 1;
        }
    }
    // One eighth of the shorter of interval and delay.
    assert!(
        written
            .keys()
            .all(|behind| (7_000..=8_000).contains(behind)),
        "{written:?}"
    );
    assert!(written.len() > 5, "{written:?}");
    assert_eq!(written.values().sum::<i32>(), 40 * 3);
}

#[test]
fn reload_keeps_totals_of_rules_that_stay_and_ends_results_of_others() {
    let (kept, gone) = (
        rule(AggregationOp::Sum, "a_total"),
        rule(AggregationOp::Count, "a_total"),
    );
    let gone = AggregationRuleSpec {
        record: "gone".into(),
        ..gone
    };
    let mut machine = machine(&group(&[gone, kept.clone()]));
    let mut results = BTreeMap::new();
    let mut feed = |machine: &mut AggregationState, second, value| {
        let batch = batch("a_total", &[("x", second, value, START_UNKNOWN)]);
        read(
            &machine
                .aggregate_batch(&mut &batch, i64::MAX)
                .unwrap()
                .results,
            &mut results,
        );
    };
    feed(&mut machine, 5, 1.0);
    feed(&mut machine, 15, 4.0);
    let new = AggregationRuleSpec {
        record: "new".into(),
        ..rule(AggregationOp::Max, "a_total")
    };
    let mut ends = BTreeMap::new();
    read(&machine.configure(&group(&[kept, new])), &mut ends);
    let gone = r#"{__name__="gone", by="rule", job="a"}"#;
    assert_eq!(ends, BTreeMap::from([(gone.to_owned(), vec![(20, STALE)])]));
    feed(&mut machine, 25, 9.0);
    feed(&mut machine, 35, 10.0);
    let row = |name: &str| results.get(&gone.replace("gone", name)).cloned();
    assert_eq!(row("job:x"), Some(vec![(10, 0.0), (20, 3.0), (30, 8.0)]));
    assert_eq!(row("gone"), Some(vec![(10, 1.0)]));
    assert_eq!(row("new"), Some(vec![(30, 9.0)]));
    let mut ends = BTreeMap::new();
    read(&machine.configure(&AggregationSpec::default()), &mut ends);
    assert_eq!(ends.len(), 2);
    assert!(machine.has_no_groups());
}

#[test]
fn labels_of_results_are_those_of_the_batch_rule() {
    let source = Labels::from_pairs([("__name__", "m"), ("a", "1"), ("b", "2"), ("c", "3")]);
    let base = AggregationRuleSpec {
        labels: Vec::new(),
        ..rule(AggregationOp::Sum, "m")
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (grouping, labels, expected) in [
        (
            AggregationGrouping::By(names(&["a", "z"])),
            vec![],
            r#"{__name__="job:x", a="1"}"#,
        ),
        (
            AggregationGrouping::By(names(&[])),
            vec![],
            r#"{__name__="job:x"}"#,
        ),
        (
            AggregationGrouping::By(names(&["__name__"])),
            vec![],
            r#"{__name__="job:x"}"#,
        ),
        (
            AggregationGrouping::Without(names(&["a"])),
            vec![],
            r#"{__name__="job:x", b="2", c="3"}"#,
        ),
        (
            AggregationGrouping::By(names(&["a", "b"])),
            vec![("a".into(), "9".into()), ("b".into(), String::new())],
            r#"{__name__="job:x", a="9"}"#,
        ),
    ] {
        let rule = AggregationRuleSpec {
            grouping,
            labels,
            ..base.clone()
        };
        assert_eq!(rule.result_labels(source.as_ref()).to_string(), expected);
    }
}
