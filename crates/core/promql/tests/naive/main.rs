//! Evaluates random queries over random series with the engine and with a naive evaluator: on one
//! thread, on many threads, and with parts in reverse order.
//!
//! A failure prints the seed; `NAIVE_SEED=n cargo test -p firn-promql --test naive` repeats it.

mod evaluator;
#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

use evaluator::Naive;
use firn_model::budget::Budget;
use firn_model::cancel::{CancelReason, CancelToken};
use firn_model::env::sim::{InlineCompute, SimRng};
use firn_model::env::{Compute, Job, JobKind};
use firn_model::error::ErrorKind;
use firn_model::labels::Labels;
use firn_model::tenant::TenantId;
use firn_promql::value::{MatrixSeries, PromqlError, QueryResult, QueryValue};
use firn_promql::{EvalTime, Features, Options, QueryContext, parser, query};
use std::collections::BTreeMap;
use support::MemoryStore;
use support::random::{Dice, random_query, random_series};

const QUERIES: u64 = 200;
const STEP_MS: i64 = 20_000;
const STEPS: i64 = 8;
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

/// Runs the tasks in reverse order.
struct Backwards;

impl Compute for Backwards {
    fn spawn(&self, _work: JobKind, job: Job) {
        job();
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).rev().for_each(task);
    }

    fn threads(&self) -> usize {
        1
    }
}

fn run(store: &MemoryStore, compute: &dyn Compute, text: &str) -> Result<QueryResult, PromqlError> {
    let (tenant, cancel) = (TenantId::anonymous(), CancelToken::new());
    let budget = Budget::new("query", 1 << 30);
    let context = QueryContext {
        store,
        tenant: &tenant,
        compute,
        budget: &budget,
        cancel: &cancel,
        failed_counts: None,
    };
    let time = EvalTime::range(60_000, 60_000 + (STEPS - 1) * STEP_MS, STEP_MS);
    let outcome = query(&context, text, time, &OPTIONS);
    let held = outcome.as_ref().map_or(0, |result| result.memory.bytes());
    assert_eq!(budget.used_bytes(), held, "{text} keeps memory");
    outcome
}

/// The points of each series, by labels.
type Points = BTreeMap<Labels, Vec<(i64, f64)>>;

fn points(result: &QueryResult) -> Points {
    let QueryValue::Matrix(series) = &result.value else {
        panic!("a range query answers with a matrix");
    };
    let sorted = series.windows(2).all(|w| w[0].labels < w[1].labels);
    assert!(sorted, "series are sorted by labels");
    let of = |s: &MatrixSeries| (s.labels.clone(), s.floats.clone());
    series.iter().map(of).collect()
}

/// Evaluates all steps with the naive evaluator. Returns `None` if it fails at any step.
fn naive_points(naive: &Naive<'_>, text: &str) -> Option<Points> {
    let expr = parser::parse(text, OPTIONS.features).expect("random queries are valid");
    let mut out = Points::new();
    for step in 0..STEPS {
        let time = 60_000 + step * STEP_MS;
        for (labels, value) in naive.vector(&expr, time)? {
            out.entry(labels).or_default().push((time, value));
        }
    }
    Some(out)
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * (a.abs() + b.abs()) + 1e-9
}

fn check(seed: u64, text: &str, got: &Points, want: &Points) {
    let keys = |points: &Points| points.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(got), keys(want), "seed {seed}: {text}");
    for (labels, want) in want {
        let got = &got[labels];
        let same = got.len() == want.len()
            && got
                .iter()
                .zip(want)
                .all(|(g, w)| g.0 == w.0 && close(g.1, w.1));
        assert!(
            same,
            "seed {seed}: {text}\n{labels}\n got {got:?}\nwant {want:?}"
        );
    }
}

/// Returns a result as text that contains all bits of its values.
fn bits(result: &Result<QueryResult, PromqlError>) -> String {
    match result {
        Err(e) => e.to_string(),
        Ok(result) => {
            let points = points(result);
            let of = |(t, v): &(i64, f64)| (*t, v.to_bits());
            let bits = |p: &Vec<(i64, f64)>| p.iter().map(of).collect::<Vec<_>>();
            let all: Vec<_> = points
                .iter()
                .map(|(l, p)| (l.to_string(), bits(p)))
                .collect();
            format!("{all:?} {:?} {:?}", result.warnings, result.infos)
        }
    }
}

#[test]
fn random_queries_equal_the_naive_evaluator_whatever_the_threads() {
    let given = std::env::var("NAIVE_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seeds = given.map_or(0..QUERIES, |seed: u64| seed..seed + 1);
    let series = random_series(&Dice(SimRng::new(1)));
    let store = MemoryStore::new(series.clone());
    let naive = Naive {
        series: &series,
        lookback_ms: OPTIONS.lookback_ms,
    };
    let threads = firn_model::env::real::system_env().unwrap().compute;
    let (mut answered, mut failed) = (0, 0);
    for seed in seeds {
        let text = random_query(&Dice(SimRng::new(seed)), 3);
        let got = run(&store, &InlineCompute, &text);
        let expected = bits(&got);
        assert_eq!(
            bits(&run(&store, &Backwards, &text)),
            expected,
            "seed {seed}: {text}"
        );
        assert_eq!(
            bits(&run(&store, &*threads, &text)),
            expected,
            "seed {seed}: {text}"
        );
        match (got, naive_points(&naive, &text)) {
            (Ok(got), Some(want)) => {
                answered += 1;
                check(seed, &text, &points(&got), &want);
            }
            (Err(PromqlError::Execution(_)), None) => failed += 1,
            (Ok(_), None) => panic!("seed {seed}: {text} answers where it must fail"),
            (Err(e), _) => panic!("seed {seed}: {text} fails: {e}"),
        }
    }
    assert!(
        given.is_some() || (answered > 100 && failed > 20),
        "{answered} {failed}"
    );
}

fn refused(
    text: &str,
    options: &Options,
    limit_bytes: usize,
    stop: Option<CancelReason>,
) -> PromqlError {
    let store = MemoryStore::new(random_series(&Dice(SimRng::new(1))));
    let (tenant, cancel) = (TenantId::anonymous(), CancelToken::new());
    let budget = Budget::new("query", limit_bytes);
    if let Some(reason) = stop {
        cancel.cancel(reason);
    }
    let context = QueryContext {
        store: &store,
        tenant: &tenant,
        compute: &InlineCompute,
        budget: &budget,
        cancel: &cancel,
        failed_counts: None,
    };
    let time = EvalTime::range(60_000, 300_000, STEP_MS);
    query(&context, text, time, options).expect_err("the query is refused")
}

#[test]
fn query_beyond_a_limit_fails_with_its_kind() {
    let few = Options {
        samples_max: 100,
        series_max: usize::MAX,
        ..OPTIONS
    };
    for text in [
        "load",
        "sum(rate(requests_total[1m]))",
        "load + 1",
        "topk(1, load)",
    ] {
        let e = refused(text, &few, 1 << 30, None);
        assert_eq!(e.kind(), ErrorKind::Limited, "{text}");
        let too_many =
            "query processing would load too many samples into memory in query execution: ";
        assert!(e.to_string().starts_with(too_many), "{text}: {e}");
        assert!(
            e.to_string().ends_with(" samples, limit 100"),
            "{text}: {e}"
        );
        let e = refused(text, &OPTIONS, 1000, None);
        assert_eq!(e.kind(), ErrorKind::Limited, "{text}");
        assert!(
            e.to_string().starts_with("query memory limit reached"),
            "{e}"
        );
        let e = refused(text, &OPTIONS, 1 << 30, Some(CancelReason::Timeout));
        assert_eq!(
            e.to_string(),
            "query timed out in expression evaluation",
            "{text}"
        );
        let e = refused(text, &OPTIONS, 1 << 30, Some(CancelReason::Canceled));
        assert_eq!(
            e.to_string(),
            "query was canceled in expression evaluation",
            "{text}"
        );
    }
}
