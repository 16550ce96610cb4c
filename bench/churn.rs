//! Six hours of a fleet whose pods are replaced, sent as fast as each system accepts the requests,
//! with one recent query that is repeated all the time.
//!
//! ```text
//! empty directory -> load; in parallel every 50 ms: memory, then query at the newest accepted time
//! ```
//!
//! The benchmark measures steadiness: whether memory follows the live series or all series that
//! ever existed, and whether writes or queries stall during maintenance.

use crate::scenario::{self, Load};
use crate::system::{Running, System};
use firn_mirror::api::{ExpressionRequest, SystemClient};
use firn_mirror::load::LoadReport;
use firn_mirror::push::PushProgress;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two observations, to which the latency of the query is added.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The expression that is queried repeatedly, which covers all pods of the fleet.
pub const EXPRESSION: &str = "sum by (namespace) (rate(http_requests_total[5m]))";

/// Range of the query up to the newest accepted time, in milliseconds.
pub const SPAN_MS: i64 = 600_000;

/// Share of the load before which observations are ignored, because the memory of all systems grows
/// at first.
const WARM_UP: f64 = 0.2;

/// Observation of resident memory and of the query's latency at one time of the load.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Data time since the start of the load in milliseconds.
    pub at_ms: i64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Latency of the query in milliseconds.
    pub query_ms: f64,
}

/// The results of one system in a churn run or an ablation, with all observations.
#[derive(Clone, Debug)]
pub struct Steadiness {
    /// The system and its version, with the settings of the run.
    pub system: System,
    /// Report of the sender, with the latencies of all writes.
    pub report: LoadReport,
    /// CPU time of the whole run in seconds, including the queries.
    pub cpu_seconds: f64,
    /// Number of bytes written to disk by the process during the run.
    pub written_bytes: u64,
    /// Observations in the order of time, including those of the warm-up.
    pub looks: Vec<Look>,
}

impl Steadiness {
    /// Returns the observations after the warm-up, from which the quantiles are calculated.
    fn settled(&self) -> impl Iterator<Item = &Look> {
        let last = self.looks.last().map_or(0, |l| l.at_ms);
        let from = (last as f64 * WARM_UP) as i64;
        self.looks.iter().filter(move |l| l.at_ms >= from)
    }

    /// Returns the quantile `share` of resident memory after the warm-up, in bytes; 1 is the
    /// maximum.
    pub fn resident_bytes(&self, share: f64) -> f64 {
        quantile(self.settled().map(|l| l.resident_bytes as f64), share)
    }

    /// Returns the quantile `share` of the query latency after the warm-up, in milliseconds; 1 is
    /// the maximum.
    pub fn query_ms(&self, share: f64) -> f64 {
        quantile(self.settled().map(|l| l.query_ms), share)
    }

    /// Returns the quantile `share` of the latency of all writes in milliseconds.
    pub fn push_ms(&self, share: f64) -> f64 {
        f64::from(self.report.latencies_us().quantile(share)) / 1000.0
    }

    /// Returns all figures as JSON, including every observation in a compact form.
    pub fn to_json(&self) -> Value {
        let looks: Vec<Value> = self
            .looks
            .iter()
            .map(|l| json!([l.at_ms, l.resident_bytes, l.query_ms]))
            .collect();
        json!({
            "system": self.system.kind.name(),
            "version": self.system.version,
            "push": self.report.to_json(),
            "cpu_seconds": self.cpu_seconds,
            "written_bytes": self.written_bytes,
            "looks_at_ms_resident_bytes_query_ms": looks,
        })
    }
}

/// Sends the load to `system` in a directory below `dir`, while another thread observes it.
pub fn run(system: &System, dir: &Path, load: &Load) -> Result<Steadiness, String> {
    let running = system.start(dir)?;
    let before = running.usage()?;
    let progress = PushProgress::default();
    let is_sent = AtomicBool::new(false);
    let (report, looks) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&running, load, &progress, &is_sent));
        let report = scenario::send(&running, load, &progress);
        is_sent.store(true, Ordering::Relaxed);
        let looks = watching.join().expect("watching does not panic");
        Ok::<_, String>((report?, looks?))
    })?;
    let usage = running.usage()?;
    running.stop()?;
    Ok(Steadiness {
        system: system.clone(),
        report,
        cpu_seconds: usage.cpu_seconds - before.cpu_seconds,
        written_bytes: usage.written_bytes,
        looks,
    })
}

fn watch(
    running: &Running,
    load: &Load,
    progress: &PushProgress,
    is_sent: &AtomicBool,
) -> Result<Vec<Look>, String> {
    let client = SystemClient::new(&running.url);
    let mut looks = Vec::new();
    while !is_sent.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let end_ms = progress.newest_answered_ms();
        if end_ms < load.summary.start_ms {
            continue;
        }
        let resident_bytes = running.usage()?.resident_bytes;
        let ask = ExpressionRequest::Range {
            expression: EXPRESSION.to_owned(),
            start_ms: end_ms - SPAN_MS,
            end_ms,
            step_ms: load.summary.interval_ms,
        };
        let start = Instant::now();
        let answer = client.send_query(&ask).map_err(|e| e.to_string())?;
        if answer["status"] != "success" {
            return Err(format!("{ask}: {answer}"));
        }
        looks.push(Look {
            at_ms: end_ms - load.summary.start_ms,
            resident_bytes,
            query_ms: start.elapsed().as_secs_f64() * 1000.0,
        });
    }
    Ok(looks)
}

fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    let last = sorted.len().saturating_sub(1);
    let value = sorted.get(rank.saturating_sub(1).min(last));
    value.copied().unwrap_or(f64::NAN)
}
