//! Tests that counting samples changes no result, and that the counts are those of the steps.

#[path = "support/context.rs"]
mod context;
#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

use context::with_context;
use firn_model::env::sim::SimRng;
use firn_model::labels::Labels;
use firn_promql::value::QueryResult;
use firn_promql::{EvalTime, Features, Options, query};
use std::sync::Arc;
use support::random::{Dice, random_query, random_series};
use support::{MemoryStore, Series};

const COUNTED: Options = Options {
    features: Features::ALL,
    lookback_ms: 60_000,
    default_subquery_step_ms: 30_000,
    samples_max: 1_000_000,
    series_max: usize::MAX,
    counts_samples: true,
    detects_range_dependence: false,
};

fn evaluate(
    store: &MemoryStore,
    text: &str,
    time: EvalTime,
    options: &Options,
) -> Result<QueryResult, String> {
    let outcome = with_context(store, |context| query(context, text, time, options));
    outcome.map_err(|e| e.to_string())
}

#[test]
fn counted_queries_have_the_same_answers_and_each_step_counts_as_by_itself() {
    let store = MemoryStore::new(random_series(&Dice(SimRng::new(1))));
    let plain = Options {
        counts_samples: false,
        ..COUNTED
    };
    let (start, step_ms) = (60_000, 20_000);
    let mut answered = 0;
    for seed in 0..300 {
        let text = random_query(&Dice(SimRng::new(seed)), 3);
        println!("seed {seed}: {text}");
        let time = EvalTime::range(start, start + 6 * step_ms, step_ms);
        let counted = evaluate(&store, &text, time, &COUNTED);
        let apart = evaluate(&store, &text, time, &plain);
        let (counted, apart) = match (counted, apart) {
            (Ok(counted), Ok(apart)) => (counted, apart),
            (counted, apart) => {
                assert_eq!(counted.err(), apart.err());
                continue;
            }
        };
        let shown = |result: &QueryResult| format!("{:?}{:?}", result.value, result.warnings);
        assert_eq!(shown(&counted), shown(&apart));
        let counts = counted.counts.unwrap();
        assert_eq!(counts.total, counts.total_at.iter().sum::<u64>());
        assert_eq!(counts.read, counts.read_at.iter().sum::<u64>());
        assert!(counts.read <= counts.total || text.contains(':'));
        for (step, total) in counts.total_at.iter().enumerate() {
            let at = EvalTime::Instant(start + step_ms * step as i64);
            if let Ok(alone) = evaluate(&store, &text, at, &COUNTED) {
                assert_eq!(alone.counts.unwrap().total, *total, "step {step}");
            }
        }
        answered += 1;
    }
    assert!(answered > 150, "{answered} of the queries have an answer");
}

#[test]
fn parameter_of_an_aggregation_is_the_same_at_all_steps() {
    let series = |name: &str, values: [f64; 3]| Series {
        labels: Labels::from_pairs([("__name__", name)]),
        times: Arc::new(vec![0, 60_000, 120_000]),
        values: values.to_vec(),
    };
    let store = MemoryStore::new(vec![
        series("limit", [1.0, 0.0, 0.0]),
        series("value", [5.0, 6.0, 7.0]),
    ]);
    let time = EvalTime::range(0, 120_000, 60_000);
    let answer = |text: &str| {
        format!(
            "{:?}",
            evaluate(&store, text, time, &COUNTED).unwrap().value
        )
    };
    let pinned = answer("topk(scalar(limit @ 0), value)");
    assert_eq!(pinned, answer("topk(1, value)"));
    assert_eq!(pinned, answer("topk(scalar(limit @ start()), value)"));
}
