//! Tests that annotations have the same position in the query as in Prometheus.

#[path = "support/context.rs"]
mod context;
#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

use context::with_context;
use firn_model::labels::Labels;
use firn_promql::{EvalTime, Features, Options, query};
use std::sync::Arc;
use support::{MemoryStore, Series};

const OPTIONS: Options = Options {
    features: Features {
        experimental_functions: false,
        extended_range_selectors: false,
        binop_fill_modifiers: false,
        duration_expressions: false,
        delayed_name_removal: false,
        use_start_timestamps: false,
        type_and_unit_labels: false,
    },
    lookback_ms: 60_000,
    default_subquery_step_ms: 60_000,
    samples_max: 1_000_000,
    series_max: usize::MAX,
    counts_samples: false,
    detects_range_dependence: false,
};

/// Evaluates `text` with a gauge `cores`. Its only annotation must have the given position.
fn check(text: &str, time: EvalTime, position: &str) {
    let store = MemoryStore::new(vec![Series {
        labels: Labels::from_pairs([("__name__", "cores")]),
        times: Arc::new((0..60).map(|i| i * 10_000).collect()),
        values: (0..60).map(f64::from).collect(),
    }]);
    let outcome = with_context(&store, |context| query(context, text, time, &OPTIONS));
    let result = outcome.expect("the queries are valid");
    let notes = [result.warnings, result.infos].concat();
    let ends: Vec<Option<&str>> = notes.iter().map(|n| n.rsplit(' ').next()).collect();
    assert_eq!(ends, [Some(position)], "{text}, {time:?}: {notes:?}");
}

#[test]
fn annotation_of_a_window_stands_at_the_first_argument_or_for_a_subquery_at_the_beginning() {
    let cases = [
        ("1 + increase(cores[5m])", "(1:14)"),
        ("1 + increase(cores[5m] @ 300)", "(1:14)"),
        ("1 +\n  increase(cores[5m])", "(2:12)"),
        ("1 + increase(cores[5m:95s])", "(1:1)"),
        ("1 + increase((cores)[5m:95s] @ 300)", "(1:1)"),
        ("1 + increase((cores @ 300)[5m:95s])", "(1:1)"),
        ("1 + sum(increase((cores @ 300)[5m:5s]))", "(1:1)"),
        ("1 +\n  increase(cores[5m:95s])", "(1:1)"),
        (
            "(increase((cores @ 300)[5m:95s])) unless vector(1)",
            "(1:1)",
        ),
        ("1 + max_over_time(rate(cores[1m])[5m:1m])", "(1:24)"),
        ("1 + quantile_over_time(2, cores[5m])", "(1:24)"),
        ("1 + quantile_over_time(2, cores[5m:1m])", "(1:24)"),
        // The annotations of a call follow those of its arguments.
        (
            "histogram_quantile(2, histogram_quantile(2, none))",
            "(1:20)",
        ),
    ];
    for (text, position) in cases {
        check(text, EvalTime::Instant(400_000), position);
        let range = EvalTime::range(340_000, 400_000, 20_000);
        check(text, range, position);
    }
}
