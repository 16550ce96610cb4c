//! The phases of a dashboard run and their measurements.
//!
//! ```text
//! fleet     empty directory -> load of the fleet -> idle; one system after the other
//!           dashboard; the systems in turns
//!           kill -9 -> ready -> clean stop
//! creation  empty directory -> many new series with few samples -> idle -> kill -9 -> ready
//!           -> stop
//! crash     empty directory -> small load -> kill -9 after the last answer -> ready -> complete?
//! ```

use crate::dashboard::{self, Span, Timing};
use crate::process::{Usage, disk_bytes};
use crate::system::{Running, System};
use firn_mirror::api::{ExpressionRequest, SystemClient};
use firn_mirror::load::{self, LoadReport};
use firn_mirror::prepared::PreparedLoadSummary;
use firn_mirror::push::{PushAccess, PushDestination, PushFailurePolicy, PushPace, PushProgress};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time until all ingested samples are visible to queries.
const VISIBLE_WITHIN: Duration = Duration::from_secs(60);

/// A load in a directory, generated once and ready to be sent to each system.
#[derive(Clone, Debug)]
pub struct Load {
    /// Directory with the prepared requests of each sender.
    pub dir: PathBuf,
    /// Size and times of the load, as stored in its directory.
    pub summary: PreparedLoadSummary,
}

/// The loads and settings of a dashboard run, which all systems share.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Load of the fleet phase, over which the dashboard is queried.
    pub fleet: Load,
    /// Load with many new series and few samples of each.
    pub creation: Load,
    /// Load of the crash phase, which is small.
    pub crash: Load,
    /// Time for deferred work of a system before it is measured.
    pub settle: Duration,
    /// Range of the dashboard in milliseconds, at most that of the fleet's load.
    pub dashboard_ms: i64,
    /// Number of turns of each system whose latencies are recorded.
    pub turns: usize,
}

/// Cost of ingesting a load, and of the restart after a kill of the process.
#[derive(Clone, Debug)]
pub struct Ingest {
    /// Report of the sender, with the latencies of all writes.
    pub report: LoadReport,
    /// Time from the start with an empty directory to readiness.
    pub start: Duration,
    /// CPU seconds from readiness to the end of the settling time.
    pub cpu_seconds: f64,
    /// Resource usage of the process at the end of the settling time.
    pub usage: Usage,
    /// Time from the restart after the kill to readiness.
    pub ready_after_kill: Duration,
    /// Number of acknowledged samples of `up` that are missing after the restart.
    pub lost: f64,
    /// Disk usage after a clean stop in bytes.
    pub disk_bytes: u64,
}

impl Ingest {
    /// Returns the CPU seconds per million samples, including deferred work.
    pub fn cpu_per_million(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.samples()
    }

    /// Returns the number of accepted samples, at least one, so that it can be a divisor.
    pub fn samples(&self) -> f64 {
        (self.report.outcome.samples as f64).max(1.0)
    }
}

/// All results of one system in a dashboard run, for one column of the table.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The system and its version, for the column's heading.
    pub system: System,
    /// Results of the fleet phase, including the restart.
    pub fleet: Ingest,
    /// Latencies of the dashboard's requests, in the order of [`dashboard::PANELS`].
    pub dashboard: Vec<Timing>,
    /// Results of the phase with many new series, including the restart.
    pub creation: Ingest,
    /// Number of acknowledged samples of `up` that were lost in the crash phase.
    pub lost_in_crash: f64,
}

/// A running system that has ingested the fleet's load and can be queried.
pub struct Loaded {
    /// The system and its version, with its settings.
    pub system: System,
    /// Directory of the system, with a subdirectory for each phase.
    dir: PathBuf,
    taken: Taken,
}

impl Loaded {
    /// Returns the base URL of the running process for queries.
    pub fn url(&self) -> String {
        self.taken.running.url.clone()
    }
}

/// Runs the fleet phase up to the dashboard, in a directory below `dir`.
pub fn take_fleet(system: &System, dir: &Path, plan: &Plan) -> Result<Loaded, String> {
    Ok(Loaded {
        system: system.clone(),
        dir: dir.to_owned(),
        taken: take(system, &dir.join("fleet"), &plan.fleet, plan.settle)?,
    })
}

/// Measures the dashboards of all systems in turns; a system that fails returns its error.
pub fn ask(loaded: &[Loaded], plan: &Plan) -> Vec<Result<Vec<Timing>, String>> {
    let end_ms = plan.fleet.summary.end_ms;
    let span = Span {
        start_ms: end_ms - plan.dashboard_ms,
        end_ms,
        step_ms: plan.fleet.summary.interval_ms,
    };
    let urls: Vec<String> = loaded.iter().map(Loaded::url).collect();
    dashboard::measure(&urls, span, plan.turns)
}

/// Runs the end of the fleet phase: kill, restart and stop, after which its results are complete.
pub fn restart_fleet(loaded: Loaded, plan: &Plan) -> Result<Ingest, String> {
    let dir = loaded.dir.join("fleet");
    restart(&loaded.system, &dir, &plan.fleet, loaded.taken)
}

/// Runs the phases after that of the fleet, whose results are passed in.
pub fn run_others(
    system: &System,
    dir: &Path,
    plan: &Plan,
    (fleet, dashboard): (Ingest, Vec<Timing>),
) -> Result<Measured, String> {
    let creation_dir = dir.join("creation");
    let creation = take(system, &creation_dir, &plan.creation, plan.settle)?;
    Ok(Measured {
        system: system.clone(),
        fleet,
        dashboard,
        creation: restart(system, &creation_dir, &plan.creation, creation)?,
        lost_in_crash: crash(system, &dir.join("crash"), &plan.crash)?,
    })
}

/// A load that has been ingested, with the process and the cost so far.
struct Taken {
    running: Running,
    report: LoadReport,
    start: Duration,
    cpu_seconds: f64,
    usage: Usage,
}

fn take(system: &System, dir: &Path, load: &Load, settle: Duration) -> Result<Taken, String> {
    let running = system.start(dir)?;
    let before = running.usage()?;
    let report = send(&running, load, &PushProgress::default())?;
    wait_until_visible(&running, &load.summary)?;
    std::thread::sleep(settle);
    let usage = running.usage()?;
    Ok(Taken {
        report,
        start: running.ready_after,
        cpu_seconds: usage.cpu_seconds - before.cpu_seconds,
        usage,
        running,
    })
}

/// Kills the system that ingested a load, and measures its restart and lost samples.
fn restart(system: &System, dir: &Path, load: &Load, taken: Taken) -> Result<Ingest, String> {
    taken.running.kill()?;
    let running = system.start(dir)?;
    let ready_after_kill = running.ready_after;
    let lost = missing(&running, &load.summary)?;
    running.stop()?;
    let data = dir.join("data");
    Ok(Ingest {
        report: taken.report,
        start: taken.start,
        cpu_seconds: taken.cpu_seconds,
        usage: taken.usage,
        ready_after_kill,
        lost,
        disk_bytes: disk_bytes(&data).map_err(|e| format!("{}: {e}", data.display()))?,
    })
}

fn crash(system: &System, dir: &Path, load: &Load) -> Result<f64, String> {
    let running = system.start(dir)?;
    send(&running, load, &PushProgress::default())?;
    running.kill()?;
    let running = system.start(dir)?;
    let lost = missing(&running, &load.summary)?;
    running.stop()?;
    Ok(lost)
}

/// Sends the load as fast as it is accepted. Fails if a request is rejected.
pub fn send(running: &Running, load: &Load, progress: &PushProgress) -> Result<LoadReport, String> {
    send_at(running, load, PushPace::Fast, progress)
}

/// Sends the load at the given pace. Fails if a request is rejected.
pub fn send_at(
    running: &Running,
    load: &Load,
    pace: PushPace,
    progress: &PushProgress,
) -> Result<LoadReport, String> {
    let way = PushDestination {
        url: &running.write_url(),
        pace,
        access: PushAccess {
            tls: &running.tls,
            headers: &[],
        },
        on_failure: PushFailurePolicy::GoOn,
    };
    let report = load::replay(&load.dir, way, progress).map_err(|e| e.to_string())?;
    match &report.outcome.first_failure {
        None => Ok(report),
        Some(first) => Err(format!(
            "{} of {} requests failed, the first one with: {first}",
            report.outcome.failed, report.outcome.requests
        )),
    }
}

/// Returns the number of samples of `up` in the load that a query does not find.
fn missing(running: &Running, load: &PreparedLoadSummary) -> Result<f64, String> {
    let range_ms = load.end_ms - load.start_ms + 1000;
    let expression = format!("sum(count_over_time(up[{range_ms}ms]))");
    let ask = ExpressionRequest::Instant {
        expression,
        time_ms: load.end_ms,
    };
    let answer = SystemClient::new(&running.url)
        .send_query(&ask)
        .map_err(|e| e.to_string())?;
    let found = match &answer["data"]["result"][0]["value"][1] {
        Value::String(number) => number.parse().map_err(|e| format!("{number}: {e}"))?,
        _ if answer["status"] == "success" => 0.0,
        _ => return Err(format!("{ask}: {answer}")),
    };
    let expected = load.samples / firn_mirror::fleet::SERIES_PER_POD as u64;
    Ok(expected as f64 - found)
}

fn wait_until_visible(running: &Running, load: &PreparedLoadSummary) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let missing = missing(running, load)?;
        if missing == 0.0 {
            return Ok(());
        }
        if start.elapsed() > VISIBLE_WITHIN {
            return Err(format!("{missing} samples of up are not seen by queries"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
