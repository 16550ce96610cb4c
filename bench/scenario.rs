//! What is done to the systems, in order, and what is measured on the way.
//!
//! ```text
//! fleet     empty folder -> the fleet's load -> quiet; one system after the other
//!           dashboard; the systems in turns
//!           kill -9 -> ready -> clean stop
//! creation  empty folder -> many new series, few samples each -> quiet -> kill -9 -> ready
//!           -> stop
//! crash     empty folder -> a small load -> kill -9 with the last answer -> ready -> all there?
//! ```

use crate::dashboard::{self, Span, Timing};
use crate::process::{Usage, disk_bytes};
use crate::system::{Running, System};
use firn_mirror::api::{Ask, Client};
use firn_mirror::load::{self, Report};
use firn_mirror::prepared::Summary;
use firn_mirror::push::{Access, OnFailure, Pace, Progress, Way};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long samples may take to be seen by queries.
const VISIBLE_WITHIN: Duration = Duration::from_secs(60);

/// A load in a folder, ready to be sent to every system.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where its bodies lie.
    pub dir: PathBuf,
    /// What it is made of.
    pub summary: Summary,
}

/// How a run is set up.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The fleet scenario's load.
    pub fleet: Load,
    /// The load of new series.
    pub creation: Load,
    /// The crash scenario's load.
    pub crash: Load,
    /// Time to let a system finish what it puts off before it is measured.
    pub settle: Duration,
    /// The span of the dashboard, at most that of the fleet's load.
    pub dashboard_ms: i64,
    /// Turns of each system in which its dashboard counts.
    pub turns: usize,
}

/// What taking a load cost.
#[derive(Clone, Debug)]
pub struct Ingest {
    /// The sender's view.
    pub report: Report,
    /// From the start on the empty folder to readiness.
    pub start: Duration,
    /// CPU seconds from readiness to the end of the settling time.
    pub cpu_seconds: f64,
    /// The process then.
    pub usage: Usage,
    /// From the kill -9's restart to readiness.
    pub ready_after_kill: Duration,
    /// Samples of the metric `up` that were answered with 2xx and are not there after that.
    pub lost: f64,
    /// Bytes on disk after a clean stop.
    pub disk_bytes: u64,
}

impl Ingest {
    /// CPU seconds for each million samples.
    pub fn cpu_per_million(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.samples()
    }

    /// Samples taken.
    pub fn samples(&self) -> f64 {
        (self.report.outcome.samples as f64).max(1.0)
    }
}

/// Everything measured on one system.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which system.
    pub system: System,
    /// The fleet scenario.
    pub fleet: Ingest,
    /// Its dashboard.
    pub dashboard: Vec<Timing>,
    /// The scenario of new series.
    pub creation: Ingest,
    /// Samples of `up` lost in the crash scenario.
    pub lost_in_crash: f64,
}

/// A system that took a load and runs on.
pub struct Loaded {
    /// Which system.
    pub system: System,
    /// Its folder for all scenarios.
    dir: PathBuf,
    taken: Taken,
}

impl Loaded {
    /// Where it is asked.
    pub fn url(&self) -> String {
        self.taken.running.url.clone()
    }
}

/// The fleet scenario up to the dashboard, in a folder below `dir`.
pub fn take_fleet(system: &System, dir: &Path, plan: &Plan) -> Result<Loaded, String> {
    Ok(Loaded {
        system: system.clone(),
        dir: dir.to_owned(),
        taken: take(system, &dir.join("fleet"), &plan.fleet, plan.settle)?,
    })
}

/// The dashboards of all systems.
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

/// The end of the fleet scenario.
pub fn restart_fleet(loaded: Loaded, plan: &Plan) -> Result<Ingest, String> {
    let dir = loaded.dir.join("fleet");
    restart(&loaded.system, &dir, &plan.fleet, loaded.taken)
}

/// The scenarios behind that of the fleet, of which it is said what was measured.
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

/// A load that a system took.
struct Taken {
    running: Running,
    report: Report,
    start: Duration,
    cpu_seconds: f64,
    usage: Usage,
}

fn take(system: &System, dir: &Path, load: &Load, settle: Duration) -> Result<Taken, String> {
    let running = system.start(dir)?;
    let before = running.usage()?;
    let report = send(&running, load, &Progress::default())?;
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

/// Kills what took a load, and looks at what comes back.
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
    send(&running, load, &Progress::default())?;
    running.kill()?;
    let running = system.start(dir)?;
    let lost = missing(&running, &load.summary)?;
    running.stop()?;
    Ok(lost)
}

/// Sends the load as fast as it is taken; a request that is refused fails the run.
pub fn send(running: &Running, load: &Load, progress: &Progress) -> Result<Report, String> {
    send_at(running, load, Pace::Fast, progress)
}

/// The same at a pace.
pub fn send_at(
    running: &Running,
    load: &Load,
    pace: Pace,
    progress: &Progress,
) -> Result<Report, String> {
    let way = Way {
        url: &running.write_url(),
        pace,
        access: Access {
            tls: &running.tls,
            headers: &[],
        },
        on_failure: OnFailure::GoOn,
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

/// Samples of the metric `up` that the load holds and a query does not find.
fn missing(running: &Running, load: &Summary) -> Result<f64, String> {
    let range_ms = load.end_ms - load.start_ms + 1000;
    let expression = format!("sum(count_over_time(up[{range_ms}ms]))");
    let ask = Ask::Instant {
        expression,
        time_ms: load.end_ms,
    };
    let answer = Client::new(&running.url)
        .ask(&ask)
        .map_err(|e| e.to_string())?;
    let found = match &answer["data"]["result"][0]["value"][1] {
        Value::String(number) => number.parse().map_err(|e| format!("{number}: {e}"))?,
        _ if answer["status"] == "success" => 0.0,
        _ => return Err(format!("{ask}: {answer}")),
    };
    let expected = load.samples / firn_mirror::fleet::SERIES_PER_POD as u64;
    Ok(expected as f64 - found)
}

fn wait_until_visible(running: &Running, load: &Summary) -> Result<(), String> {
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
