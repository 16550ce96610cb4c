//! Wide range queries over a fleet in memory: what evaluation alone costs, by series and step.
//!
//! `cargo bench -p firn-promql` prints for each query the best of several runs on one thread and on
//! all cores; words after `--` choose queries that contain one of them. The fleet is that of the
//! gates: 18,000 counters, 15 s apart, half of them constant.

#[path = "../tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

use firn_model::budget::Budget;
use firn_model::cancel::Cancel;
use firn_model::env::real;
use firn_model::env::sim::Inline;
use firn_model::env::{Compute, Env};
use firn_model::labels::Labels;
use firn_model::tenant::TenantId;
use firn_promql::{Context, EvalTime, Features, Options, query};
use std::sync::Arc;
use std::time::Duration;
use support::{MemoryStore, Series};

const SERIES: usize = 18_000;
const SERIES_PER_TARGET: usize = 72;
const INTERVAL_MS: i64 = 15_000;
const SAMPLES: i64 = 100;
const STEPS: usize = 81;
const RUNS: usize = 15;

fn fleet() -> MemoryStore {
    let mut series = Vec::with_capacity(SERIES);
    let mut times = Arc::new(Vec::new());
    for at in 0..SERIES {
        let (target, member) = (at / SERIES_PER_TARGET, at % SERIES_PER_TARGET);
        if member == 0 {
            let jitter = (target as i64 * 7919) % INTERVAL_MS;
            times = Arc::new((0..SAMPLES).map(|i| i * INTERVAL_MS + jitter).collect());
        }
        let slope = if at % 2 == 0 { 0.0 } else { (at % 97) as f64 };
        let values = (0..SAMPLES).map(|i| 1e6 + slope * i as f64).collect();
        let pairs = [
            ("__name__", "http_requests_total".to_owned()),
            ("namespace", format!("ns-{}", target % 20)),
            ("deployment", format!("app-{}", target % 60)),
            ("pod", format!("pod-{target}")),
            ("path", format!("/api/{}", member % 12)),
            ("code", (200 + member / 12).to_string()),
        ];
        series.push(Series {
            labels: Labels::from_pairs(pairs),
            times: times.clone(),
            values,
        });
    }
    MemoryStore::new(series)
}

fn best(env: &Env, compute: &dyn Compute, store: &MemoryStore, text: &str) -> Duration {
    let (tenant, cancel) = (TenantId::anonymous(), Cancel::new());
    let budget = Budget::new("query", 1 << 30);
    let context = Context {
        store,
        tenant: &tenant,
        compute,
        budget: &budget,
        cancel: &cancel,
    };
    let options = Options {
        features: Features::default(),
        lookback_ms: 300_000,
        default_subquery_step_ms: 60_000,
        samples_max: 50_000_000,
    };
    let time = EvalTime::Range {
        start: 300_000,
        end: 300_000 + (STEPS as i64 - 1) * INTERVAL_MS,
        step_ms: INTERVAL_MS,
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
    let env = real::env().expect("threads can be started");
    let store = fleet();
    println!("{SERIES} series x {STEPS} steps, best of {RUNS}");
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    for text in [
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
    ] {
        if !wanted.is_empty() && !wanted.iter().any(|part| text.contains(part)) {
            continue;
        }
        let cell = (SERIES * STEPS) as f64;
        let one = best(&env, &Inline, &store, text);
        let all = best(&env, &*env.compute, &store, text);
        println!(
            "{:>9.2?} {:>6.2} ns | {} threads {:>9.2?} {:>6.2} ns | {text}",
            one,
            one.as_nanos() as f64 / cell,
            env.compute.threads(),
            all,
            all.as_nanos() as f64 / cell,
        );
    }
}
