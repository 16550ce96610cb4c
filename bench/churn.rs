//! Six hours of a fleet whose pods come and go, sent as fast as each system takes them, with one
//! recent query asked all the while.
//!
//! ```text
//! empty folder -> load, and beside it every 50 ms: memory, then the query at the newest answered time
//! ```
//!
//! What is looked for is steadiness: does memory follow the series that live or those that ever
//! were, and do writes or queries stall while the system tidies up?

use crate::scenario::{self, Load};
use crate::system::{Running, System};
use firn_mirror::api::{Ask, Client};
use firn_mirror::load::Report;
use firn_mirror::push::Progress;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is asked.
pub const EXPRESSION: &str = "sum by (namespace) (rate(http_requests_total[5m]))";

/// The span that is asked for, up to the newest time.
pub const SPAN_MS: i64 = 600_000;

/// Looks before this share of the load was sent do not count: every system's memory grows from
/// nothing at first.
const WARM_UP: f64 = 0.2;

/// What one look saw.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Data time since the start of the load.
    pub at_ms: i64,
    /// Memory resident then.
    pub resident_bytes: u64,
    /// How long the query took.
    pub query_ms: f64,
}

/// What one system showed.
#[derive(Clone, Debug)]
pub struct Steadiness {
    /// Which.
    pub system: System,
    /// The sender's view.
    pub report: Report,
    /// CPU seconds of the whole run, the queries included.
    pub cpu_seconds: f64,
    /// Bytes handed to the disk.
    pub written_bytes: u64,
    /// In the order of time.
    pub looks: Vec<Look>,
}

impl Steadiness {
    /// The looks that count.
    fn settled(&self) -> impl Iterator<Item = &Look> {
        let last = self.looks.last().map_or(0, |l| l.at_ms);
        let from = (last as f64 * WARM_UP) as i64;
        self.looks.iter().filter(move |l| l.at_ms >= from)
    }

    /// Resident bytes at a share of the settled looks, in order of size.
    pub fn resident_bytes(&self, share: f64) -> f64 {
        quantile(self.settled().map(|l| l.resident_bytes as f64), share)
    }

    /// Milliseconds of the query at a share of the settled looks, in order of length.
    pub fn query_ms(&self, share: f64) -> f64 {
        quantile(self.settled().map(|l| l.query_ms), share)
    }

    /// Milliseconds of a push at a share of all.
    pub fn push_ms(&self, share: f64) -> f64 {
        f64::from(self.report.latencies_us().at(share)) / 1000.0
    }

    /// All figures.
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

/// Sends the load to `system` in a folder below `dir` and watches.
pub fn run(system: &System, dir: &Path, load: &Load) -> Result<Steadiness, String> {
    let running = system.start(dir)?;
    let before = running.usage()?;
    let progress = Progress::default();
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
    progress: &Progress,
    is_sent: &AtomicBool,
) -> Result<Vec<Look>, String> {
    let client = Client::new(&running.url);
    let mut looks = Vec::new();
    while !is_sent.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        let end_ms = progress.answered_ms();
        if end_ms < load.summary.start_ms {
            continue;
        }
        let resident_bytes = running.usage()?.resident_bytes;
        let ask = Ask::Range {
            expression: EXPRESSION.to_owned(),
            start_ms: end_ms - SPAN_MS,
            end_ms,
            step_ms: load.summary.interval_ms,
        };
        let start = Instant::now();
        let answer = client.ask(&ask).map_err(|e| e.to_string())?;
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
