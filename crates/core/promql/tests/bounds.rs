//! Tests that queries are rejected if they need more than their limits, regardless of the length of
//! their text.

#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim::InlineCompute;
use firn_model::labels::Labels;
use firn_model::tenant::TenantId;
use firn_promql::value::{PromqlError, QueryPointValue, QueryResult, QueryValue};
use firn_promql::{EvalTime, Features, Options, QueryContext, query};
use std::sync::Arc;
use support::{MemoryStore, Series};

const TOO_MANY: &str = "too many samples into memory";
const NO_MEMORY: &str = "query memory limit reached";

/// Maximum number of series that the selectors of a query may find.
const SERIES_MAX: usize = 2_500;

/// Evaluates `text` as an instant query with `series` series `up` of 60 samples each.
fn answer(
    text: &str,
    series: usize,
    samples_max: u64,
    bytes_max: usize,
) -> Result<QueryResult, PromqlError> {
    let times: Arc<Vec<i64>> = Arc::new((0..60).map(|i| i * 10_000).collect());
    let one = |at: usize| Series {
        labels: Labels::from_pairs([("__name__", "up"), ("pod", &format!("pod-{at}"))]),
        times: times.clone(),
        values: (0..60).map(f64::from).collect(),
    };
    let store = MemoryStore::new((0..series).map(one).collect());
    let (tenant, cancel) = (TenantId::anonymous(), CancelToken::new());
    let context = QueryContext {
        store: &store,
        tenant: &tenant,
        compute: &InlineCompute,
        budget: &Budget::new("query", bytes_max),
        cancel: &cancel,
        failed_counts: None,
    };
    let options = Options {
        features: Features {
            experimental_functions: true,
            ..Features::default()
        },
        lookback_ms: 60_000,
        default_subquery_step_ms: 60_000,
        samples_max,
        series_max: SERIES_MAX,
        counts_samples: false,
        detects_range_dependence: false,
    };
    query(&context, text, EvalTime::Instant(400_000), &options)
}

/// Checks that the query fails with an error that contains `expected`.
fn check(text: &str, series: usize, samples_max: u64, bytes_max: usize, expected: &str) {
    match answer(text, series, samples_max, bytes_max) {
        Ok(result) => panic!("{text} has an answer: {:?}", result.stats),
        Err(e) => assert!(e.to_string().contains(expected), "{text}: {e}"),
    }
}

#[test]
fn subquery_of_more_steps_than_samples_allowed_is_refused() {
    for text in [
        "max_over_time(vector(time())[100y:1ms])",
        "count_over_time(up[30d:1ms])",
        "max_over_time(vector(scalar(up))[30d:1ms])",
        "absent_over_time(nothing[30d:1ms])",
        "vector(1)[30d:1ms]",
    ] {
        check(text, 1, 1_000_000, 1 << 30, TOO_MANY);
        check(text, 1, u64::MAX, 1 << 20, NO_MEMORY);
    }
}

#[test]
fn selectors_that_find_more_series_than_allowed_together_are_refused() {
    for (text, series, error) in [
        ("up", 3_000, "3000 series, limit 2500"),
        ("count(up)", 2_501, "2501 series, limit 2500"),
        ("up + up offset 1m", 1_300, "2600 series, limit 2500"),
        ("up + rate(up[5m])", 1_300, "2600 series, limit 2500"),
        ("info(up)", 2_501, "2501 series, limit 2500"),
    ] {
        let expected =
            format!("query selects too many series: {error} (max_fetched_series_per_query)");
        check(text, series, u64::MAX, 1 << 30, &expected);
    }
    for (text, series) in [
        ("up", 2_500),
        ("up / (up + up)", 2_500),
        ("up + up offset 1m", 1_250),
    ] {
        let result = answer(text, series, u64::MAX, 1 << 30);
        assert!(result.is_ok(), "{text}: {result:?}");
    }
}

#[test]
fn subquery_within_the_limits_has_an_answer() {
    let result = answer("count_over_time(up[5m:1s])", 1, 1_000, 1 << 20);
    assert!(result.is_ok(), "{result:?}");
}

#[test]
fn label_value_that_doubles_with_each_call_is_refused() {
    let replace = |inner: String| format!(r#"label_replace({inner}, "a", "$1$1", "pod", "(.*)")"#);
    let again = |inner: String| format!(r#"label_replace({inner}, "a", "$1$1", "a", "(.*)")"#);
    let join = |inner: String| format!(r#"label_join({inner}, "pod", "-", "pod", "pod")"#);
    let times = |count: usize, text: String, call: &dyn Fn(String) -> String| {
        (0..count).fold(text, |inner, _| call(inner))
    };
    let too_long = "label value too long: ";
    for (text, bytes_max, expected) in [
        (times(40, replace("up".into()), &again), 1 << 30, too_long),
        (times(40, "up".into(), &join), 1 << 30, too_long),
        (times(14, replace("up".into()), &again), 1 << 20, NO_MEMORY),
        (times(14, "up".into(), &join), 1 << 20, NO_MEMORY),
    ] {
        check(&text, 100, u64::MAX, bytes_max, expected);
    }
}

#[test]
fn samples_of_a_range_count_in_memory() {
    check("up[10m]", 1_000, u64::MAX, 1 << 19, NO_MEMORY);
    check("up[10m]", 1_000, 10_000, 1 << 30, TOO_MANY);
    check("sum(rate(up[10m]))", 1_000, u64::MAX, 1 << 17, NO_MEMORY);
    for text in ["up[10m]", "sum(rate(up[10m]))"] {
        let result = answer(text, 1_000, 100_000, 4 << 20);
        assert!(result.is_ok(), "{text}: {result:?}");
    }
}

#[test]
fn rows_that_each_step_makes_anew_count_in_memory() {
    let one = r#"count_values("v", up{pod="pod-0"})"#;
    let text = |grown: &str| format!("max_over_time(({grown})[9m:10s])");
    for (query, bytes_max) in [
        (format!("up * on() group_left(v) {one}"), 3 << 20),
        ("quantile by (pod) (0.5, up)".into(), 300_000),
    ] {
        check(&text(&query), 500, u64::MAX, bytes_max, NO_MEMORY);
        let result = answer(&text(&query), 500, u64::MAX, 1 << 30);
        assert!(result.is_ok(), "{query}: {result:?}");
    }
}

#[test]
fn what_operators_make_of_series_and_the_answer_count_in_memory() {
    const SERIES: usize = 1_000;
    for (text, bytes_min) in [
        ("up", 110),
        ("count by (pod) (up)", 150),
        ("count without (zone) (up)", 150),
        ("up + on (pod) up", 150),
        ("sort(up)", 110),
        ("count_values(\"v\", up + on (pod) up)", 150),
        ("info(up)", 250),
    ] {
        let result = answer(text, SERIES, u64::MAX, 1 << 30).unwrap();
        let peak = result.stats.bytes_peak as usize / SERIES;
        assert!(peak >= bytes_min, "{text}: {peak} bytes a series");
        let QueryValue::Vector(elements) = &result.value else {
            panic!("{text} has no vector");
        };
        let held = result.memory.bytes();
        assert!(held >= size_of_val(&elements[..]), "{text}: {held} bytes");
    }
}

/// Evaluates a query that returns a single value.
fn only_value(text: &str) -> f64 {
    let shown = &text[..text.len().min(60)];
    match answer(text, 1, u64::MAX, 1 << 30) {
        Ok(result) => match result.value {
            QueryValue::Vector(elements) => match elements[..] {
                [ref element] => match element.value {
                    QueryPointValue::Float(value) => value,
                    ref other => panic!("{shown}: {other:?}"),
                },
                _ => panic!("{shown}: {} elements", elements.len()),
            },
            QueryValue::Scalar(_, value) => value,
            other => panic!("{shown}: {other:?}"),
        },
        Err(e) => panic!("{shown}: {e}"),
    }
}

#[test]
fn chains_of_ten_thousand_operators_are_evaluated() {
    let chain = |part: &str, op: &str| vec![part; 10_001].join(op);
    let numbered = |at: usize| format!("nothing{at}");
    let different: Vec<String> = (0..10_000).map(numbered).collect();
    for (text, wanted) in [
        (chain("up", " or "), 40.0),
        (format!("{} or up", different.join(" or ")), 40.0),
        (chain("up", " + "), 400_040.0),
        (format!("up + {}", chain("1", " + ")), 10_041.0),
        (format!("sum(up{})", " + 1".repeat(9_990)), 10_030.0),
        (
            format!("up {}", "- time() ".repeat(9_990)),
            40.0 - 9_990.0 * 400.0,
        ),
        (chain("time()", " + "), 400.0 * 10_001.0),
        (format!("{} ^ 0", chain("up", " ^ ")), f64::INFINITY),
    ] {
        assert_eq!(only_value(&text), wanted, "{}", &text[..40]);
    }
}

#[test]
fn nests_of_a_thousand_levels_are_evaluated() {
    let nest = |open: &str, close: &str, levels: usize| {
        format!("{}up{}", open.repeat(levels), close.repeat(levels))
    };
    let replaced = r#", "a", "b", "c", "")"#;
    for (text, wanted) in [
        (nest("(", ")", 1_000), 40.0),
        (nest("abs(", ")", 1_000), 40.0),
        (nest("-", "", 1_000), 40.0),
        (nest("-(", ")", 500), 40.0),
        (nest("sum(", ")", 1_000), 40.0),
        (nest("1 + (", ")", 1_000), 1_040.0),
        (nest("label_replace(", replaced, 1_000), 40.0),
        (nest("max_over_time(", "[10s:10s])", 999), 40.0),
        (nest("vector(scalar(", "))", 500), 40.0),
    ] {
        assert_eq!(only_value(&text), wanted, "{}", &text[..40]);
    }
}

#[test]
fn stack_and_scalars_of_a_chain_count_in_memory() {
    let chain = |part: &str, op: &str, parts: usize| vec![part; parts].join(op);
    let ands = chain("up", " and ", 5_000);
    check(&ands, 1, u64::MAX, 24 << 20, NO_MEMORY);
    let many_steps = format!("sum_over_time((up{})[60s:1ms])", " + 1".repeat(300));
    check(&many_steps, 1, u64::MAX, 64 << 20, NO_MEMORY);
}
