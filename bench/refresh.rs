//! Cost of a dashboard that is refreshed every ten seconds, with and without the results cache.
//!
//! ```text
//! empty directory -> load of a little more than six hours
//!                 -> refreshes with `nocache=1`, each ten seconds of data time after the last
//!                 -> the same refreshes with the cache, whose answers must be the same bytes
//! ```
//!
//! Only Firn is measured. The data does not change between refreshes, so the figures are those of
//! queries alone.

use crate::scenario::{self, Load};
use crate::system::{Running, System};
use firn_mirror::api::{SystemClient, seconds};
use firn_mirror::push::PushProgress;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Flags of the load that Firn stores before the refreshes.
pub const LOAD: &str = "--series 10000 --duration 6h30m --interval 15s --senders 4";

/// Number of refreshes, after one that fills the cache.
const REFRESHES: i64 = 20;

const REFRESH_MS: i64 = 10_000;
const RANGE_MS: i64 = 6 * 3_600_000;
const STEP_MS: i64 = 15_000;

/// The panels of the dashboard.
const PANELS: [&str; 20] = [
    "sum by (namespace) (rate(http_requests_total[5m]))",
    "sum by (code) (rate(http_requests_total[5m]))",
    "sum(rate(http_requests_total{code=~\"5..\"}[5m])) / sum(rate(http_requests_total[5m]))",
    "histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket[5m])))",
    "histogram_quantile(0.5, sum by (le, namespace) \
     (rate(http_request_duration_seconds_bucket[5m])))",
    "topk(5, sum by (deployment) (rate(container_cpu_usage_seconds_total[5m])))",
    "sum by (namespace) (rate(container_cpu_usage_seconds_total[5m]))",
    "avg by (namespace) (rate(container_cpu_usage_seconds_total[2m]))",
    "max by (namespace) (container_memory_working_set_bytes)",
    "sum by (deployment) (container_memory_working_set_bytes)",
    "quantile by (namespace) (0.9, rate(container_cpu_usage_seconds_total[5m]))",
    "max by (deployment) (max_over_time(container_memory_working_set_bytes[10m]))",
    "avg by (namespace) (avg_over_time(go_goroutines[5m]))",
    "sum(go_goroutines)",
    "sum by (namespace) (increase(container_network_receive_bytes_total[5m]))",
    "sum(rate(container_network_receive_bytes_total[5m]))",
    "count by (namespace) (up == 1)",
    "min by (namespace) (up)",
    "max_over_time(sum(rate(http_requests_total{namespace=\"shop-0\"}[1m]))[5m:1m])",
    "rate(container_cpu_usage_seconds_total{namespace=\"shop-0\",deployment=~\".*-0\"}[5m])",
];

/// The results: CPU time and duration of all refreshes.
#[derive(Clone, Debug)]
pub struct Refreshes {
    /// The system and its version, which is Firn.
    pub system: System,
    evaluated: RefreshCost,
    cached: RefreshCost,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct RefreshCost {
    cpu_seconds: f64,
    seconds: f64,
}

impl Refreshes {
    /// Returns all figures as JSON.
    pub fn to_json(&self) -> Value {
        let cost =
            |cost: RefreshCost| json!({"cpu_seconds": cost.cpu_seconds, "seconds": cost.seconds});
        json!({
            "system": self.system.kind.name(),
            "version": self.system.version,
            "refreshes": REFRESHES,
            "evaluated": cost(self.evaluated),
            "cached": cost(self.cached),
            "response_bytes": self.bytes,
        })
    }

    /// Returns the Markdown table with rounded figures of one refresh.
    pub fn table(&self, load: &Load) -> String {
        let of_one = |seconds: f64| seconds * 1e3 / REFRESHES as f64;
        let line = |name: &str, cost: RefreshCost| {
            let (cpu, time) = (of_one(cost.cpu_seconds), of_one(cost.seconds));
            format!("| {name} | {cpu:.1} | {time:.1} |\n")
        };
        format!(
            "A refresh of {} panels over 6 h, {} series, {:.1} MB of JSON:\n\n\
             | | CPU ms | ms |\n|---|---:|---:|\n{}{}| ratio | {:.3} | {:.3} |\n",
            PANELS.len(),
            load.summary.series,
            self.bytes as f64 / 1e6,
            line("evaluated", self.evaluated),
            line("cached", self.cached),
            self.cached.cpu_seconds / self.evaluated.cpu_seconds,
            self.cached.seconds / self.evaluated.seconds,
        )
    }
}

/// Measures Firn with its data in `dir`. Fails if an answer of the cache differs.
pub fn run(system: &System, dir: &Path, load: &Load) -> Result<Refreshes, String> {
    let running = system.start(dir)?;
    scenario::send(&running, load, &PushProgress::default())?;
    let client = SystemClient::new(&running.url);
    let end_ms = load.summary.end_ms / STEP_MS * STEP_MS;
    let first_ms = end_ms - (REFRESHES + 1) * REFRESH_MS;
    let refresh = |number: i64, nocache: &str| -> Result<Vec<Vec<u8>>, String> {
        // As Grafana does, the range is aligned to the step.
        let end_ms = (first_ms + number * REFRESH_MS) / STEP_MS * STEP_MS;
        let ask = |panel: &&str| {
            let params = [
                ("query", (*panel).to_owned()),
                ("start", seconds(end_ms - RANGE_MS)),
                ("end", seconds(end_ms)),
                ("step", seconds(STEP_MS)),
                ("nocache", nocache.to_owned()),
            ];
            let answer = client.get("query_range", &params);
            answer.map_err(|e| format!("{panel}: {e}"))
        };
        PANELS.iter().map(ask).collect()
    };
    refresh(0, "1")?;
    let (evaluated, expected) = measure(&running, |number| refresh(number, "1"))?;
    refresh(0, "0")?;
    let (cached, answers) = measure(&running, |number| refresh(number, "0"))?;
    running.stop()?;
    for (answers, expected) in answers.iter().zip(&expected) {
        for (panel, (answer, expected)) in PANELS.iter().zip(answers.iter().zip(expected)) {
            if answer != expected {
                return Err(format!("{panel}: the cache gives another answer"));
            }
        }
    }
    Ok(Refreshes {
        system: system.clone(),
        evaluated,
        cached,
        bytes: expected.last().into_iter().flatten().map(Vec::len).sum(),
    })
}

/// The answers of all panels for each refresh.
type Answers = Vec<Vec<Vec<u8>>>;

fn measure(
    running: &Running,
    refresh: impl Fn(i64) -> Result<Vec<Vec<u8>>, String>,
) -> Result<(RefreshCost, Answers), String> {
    let (before, start) = (running.usage()?, Instant::now());
    let answers = (1..=REFRESHES).map(refresh).collect::<Result<_, _>>()?;
    let cost = RefreshCost {
        seconds: start.elapsed().as_secs_f64(),
        cpu_seconds: running.usage()?.cpu_seconds - before.cpu_seconds,
    };
    Ok((cost, answers))
}
