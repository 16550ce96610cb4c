//! Wide queries over a fleet in memory: measures the cost of evaluation alone, per series and step.
//!
//! `cargo bench -p firn-promql` prints, for each query, the best of several runs on one thread and
//! on all cores. Words after `--` select the queries that contain one of them. The fleet equals
//! that of the benchmark gates: 18,000 counters with an interval of 15 s, half of them constant. In
//! addition there are as many counters of failures, and one info series for each pod.

#[path = "../tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::real;
use firn_model::env::sim::InlineCompute;
use firn_model::env::{Compute, Env};
use firn_model::labels::Labels;
use firn_model::tenant::TenantId;
use firn_promql::{EvalTime, Features, Options, QueryContext, query};
use std::sync::Arc;
use std::time::Duration;
use support::{MemoryStore, Series};

const SERIES: usize = 18_000;
const SERIES_PER_TARGET: usize = 72;
const INTERVAL_MS: i64 = 15_000;
const SAMPLES: i64 = 100;
const STEPS: usize = 81;
const RUNS: usize = 15;

/// The queries that are evaluated as range queries.
const RANGES: [&str; 24] = [
    "sum by (namespace) (rate(http_requests_total[5m]))",
    "sum by (deployment, path) (rate(http_requests_total[5m]))",
    "sum without (pod) (rate(http_requests_total[5m]))",
    "sum(http_requests_total)",
    "avg by (namespace) (http_requests_total)",
    "max by (namespace) (max_over_time(http_requests_total[5m]))",
    "rate(http_requests_total[5m])",
    "topk(5, rate(http_requests_total[5m]))",
    "quantile by (namespace) (0.9, rate(http_requests_total[5m]))",
    "http_requests_total / http_requests_total",
    "histogram_quantile(0.9, sum by (namespace, code) (rate(http_requests_total[5m])))",
    // Expressions that occur twice.
    "http_failures_total / (http_failures_total + http_requests_total)",
    "rate(http_failures_total[5m]) \
     / (rate(http_failures_total[5m]) + rate(http_requests_total[5m]))",
    "sum by (namespace) (rate(http_requests_total{code=\"204\"}[5m])) \
     / sum by (namespace) (rate(http_requests_total[5m]))",
    "sum by (namespace) (rate(http_requests_total[5m])) \
     / count by (namespace) (rate(http_requests_total[5m]))",
    "avg by (path) (http_requests_total) > 2 * avg by (path) (http_requests_total)",
    "max_over_time(http_requests_total[5m]) - min_over_time(http_requests_total[5m])",
    // Values that are the same at all steps.
    "sum(rate(http_requests_total[5m] @ end()))",
    "sum(http_requests_total - http_requests_total @ start())",
    "sum(http_requests_total * scalar(pod_info{pod=\"pod-0\"} @ 0))",
    "max_over_time(sum(rate(http_requests_total[1m]))[5m:1m])",
    "1 + 2 * 3",
    // Joins.
    "sum by (node) (http_requests_total * on (namespace, pod) group_left (node) pod_info)",
    "sum by (node) (rate(http_requests_total[5m]) * on (pod) group_left (node) pod_info)",
];

/// The queries that are evaluated as instant queries.
const INSTANTS: [&str; 9] = [
    "sum by (namespace) (http_requests_total)",
    "sum by (namespace) (rate(http_requests_total[5m]))",
    "count(http_requests_total)",
    "topk(5, http_requests_total)",
    "http_requests_total",
    "http_failures_total / (http_failures_total + http_requests_total)",
    "http_requests_total * on (namespace, pod) group_left (node) pod_info",
    "pod_info{pod=\"pod-0\"}",
    "1 + 2 * 3",
];

fn fleet() -> MemoryStore {
    let mut series = Vec::with_capacity(3 * SERIES);
    let mut times = Arc::new(Vec::new());
    for (name, scale) in [("http_requests_total", 1e6), ("http_failures_total", 1e3)] {
        for at in 0..SERIES {
            let (target, member) = (at / SERIES_PER_TARGET, at % SERIES_PER_TARGET);
            if member == 0 {
                times = times_of(target);
            }
            let slope = if at % 2 == 0 { 0.0 } else { (at % 97) as f64 };
            let pairs = [
                ("__name__", name.to_owned()),
                ("namespace", format!("ns-{}", target % 20)),
                ("deployment", format!("app-{}", target % 60)),
                ("pod", format!("pod-{target}")),
                ("path", format!("/api/{}", member % 12)),
                ("code", (200 + member / 12).to_string()),
            ];
            series.push(Series {
                labels: Labels::from_pairs(pairs),
                times: times.clone(),
                values: (0..SAMPLES).map(|i| scale + slope * i as f64).collect(),
            });
        }
    }
    for target in 0..SERIES / SERIES_PER_TARGET {
        let pairs = [
            ("__name__", "pod_info".to_owned()),
            ("namespace", format!("ns-{}", target % 20)),
            ("pod", format!("pod-{target}")),
            ("node", format!("node-{}", target % 30)),
        ];
        series.push(Series {
            labels: Labels::from_pairs(pairs),
            times: times_of(target),
            values: vec![1.0; SAMPLES as usize],
        });
    }
    MemoryStore::new(series)
}

fn times_of(target: usize) -> Arc<Vec<i64>> {
    let jitter = (target as i64 * 7919) % INTERVAL_MS;
    Arc::new((0..SAMPLES).map(|i| i * INTERVAL_MS + jitter).collect())
}

/// Returns the best time of a query on the threads of `compute`.
fn best(
    env: &Env,
    compute: &dyn Compute,
    store: &MemoryStore,
    (text, time): (&str, EvalTime),
) -> Duration {
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
    let options = Options {
        features: Features::default(),
        lookback_ms: 300_000,
        default_subquery_step_ms: 60_000,
        samples_max: 50_000_000,
        series_max: usize::MAX,
        counts_samples: false,
        detects_range_dependence: false,
    };
    let run = || {
        let start = env.clock.monotonic();
        query(&context, text, time, &options).expect("the query is valid");
        env.clock.monotonic() - start
    };
    (0..RUNS).map(|_| run()).min().unwrap_or_default()
}

#[allow(clippy::print_stdout)]
fn main() {
    let env = real::system_env().expect("threads can be started");
    let store = fleet();
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let end = 300_000 + (STEPS as i64 - 1) * INTERVAL_MS;
    let range = EvalTime::range(300_000, end, INTERVAL_MS);
    let print = |text: &str, time: EvalTime, steps: usize| {
        if !wanted.is_empty() && !wanted.iter().any(|part| text.contains(part)) {
            return;
        }
        let cell = (SERIES * steps) as f64;
        let one = best(&env, &InlineCompute, &store, (text, time));
        let all = best(&env, &*env.compute, &store, (text, time));
        println!(
            "{:>9.2?} {:>6.2} ns | {} threads {:>9.2?} {:>6.2} ns | {text}",
            one,
            one.as_nanos() as f64 / cell,
            env.compute.threads(),
            all,
            all.as_nanos() as f64 / cell,
        );
    };
    println!("{SERIES} series x {STEPS} steps, best of {RUNS}");
    RANGES.iter().for_each(|text| print(text, range, STEPS));
    println!("{SERIES} series at one moment, best of {RUNS}");
    let instant = EvalTime::Instant(end);
    INSTANTS.iter().for_each(|text| print(text, instant, 1));
}
