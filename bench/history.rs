//! A fleet whose pods are replaced, for days of data time, and the cost of old data.
//!
//! ```text
//! fill    empty directory -> load up to an age -> idle -> recent query; one system after the other
//!         at the first and the last age also: clean stop -> start -> kill -9 -> start
//! read    `up` of all series and all times, in a new process with a cold page cache
//! panels  7 and 30 days up to the newest sample, in a new process with a cold page cache,
//!         then repeated; the systems in turns
//! crowd   many new series in addition to the history -> kill -9 -> ready
//! ```
//!
//! The load is generated while it is sent, because it would fill a disk; it depends only on the
//! plan.

mod figures;

pub use figures::{json, markdown};

use crate::churn::{EXPRESSION, SPAN_MS};
use crate::dashboard::{self, PANELS, Panel, Span};
use crate::process::{self, Usage};
use crate::system::{Kind, Running, System};
use firn_mirror::api::{ExpressionRequest, SystemClient};
use firn_mirror::load::{FleetRequestGenerator, LoadReceiver, options::Options};
use firn_mirror::push::{
    PushAccess, PushDestination, PushFailurePolicy, PushOutcome, PushPace, PushProgress,
};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ureq::tls::TlsConfig;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Age of the data at which a system is considered young; older ages are compared with it.
const YOUNG_MS: i64 = 4 * HOUR_MS;

/// Number of repetitions of the recent query at each age of the data.
const RECENT_QUERIES: usize = 51;

/// Number of repetitions of a warm panel: at least the lower bound, and up to the upper bound as
/// long as they take no longer than [`WARM_FOR`] in total.
const WARM_QUERIES: RangeInclusive<usize> = 3..=51;
const WARM_FOR: Duration = Duration::from_secs(1);

/// Number of points of a panel, about the width of a screen.
const POINTS: i64 = 1_000;

/// Ranges of the panels in days, up to the newest sample.
const PANEL_DAYS: [i64; 2] = [7, 30];

/// The panels that are queried over days: one of each kind that reads many samples, and one for a
/// single series.
const PANEL_NAMES: [&str; 6] = [
    "wide rate sum",
    "p99 of buckets",
    "topk of pods",
    "join with group_left",
    "max_over_time",
    "one series, range",
];

/// Share of one processor below which a system counts as idle, measured over [`QUIET`].
const IDLE_SHARE: f64 = 0.05;
const QUIET: Duration = Duration::from_secs(3);
const IDLE_WITHIN: Duration = Duration::from_secs(240);

/// Size of a history and of the new series at its end, from the command line.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Data time of the whole load in milliseconds, which is also the age of the last measurement.
    pub span_ms: i64,
    /// Time between two samples of a series in milliseconds.
    pub interval_ms: i64,
    /// Number of new series that are added at once at the end.
    pub crowd: usize,
}

impl Plan {
    /// Returns the ages at which a system is measured: four hours, one day and its doubles, and the
    /// whole span.
    fn ages(&self) -> Vec<i64> {
        let doubled = std::iter::successors(Some(DAY_MS), |age| Some(2 * age));
        let between = doubled.take_while(|age| *age < self.span_ms);
        let ages = std::iter::once(YOUNG_MS).chain(between);
        ages.chain([self.span_ms]).collect()
    }

    /// Returns the load: six thousand series, of which 60 % are replaced every half hour.
    fn load(&self, start_ms: i64) -> Result<Options, String> {
        let interval_ms = self.interval_ms;
        parse(&format!(
            "--series 6000 --interval {interval_ms}ms --churn 0.6 --churn-period 30m \
             --deadline {interval_ms}ms --senders 4 --start {start_ms}"
        ))
    }

    /// Returns the load of new series: another fleet with eight samples per series.
    fn crowd(&self, start_ms: i64) -> Result<Options, String> {
        parse(&format!(
            "--series {} --interval 15s --samples 8 --seed 2 --senders 4 --start {start_ms}",
            self.crowd
        ))
    }

    fn retention_days(&self) -> u32 {
        // The retention covers the load and, with one more day, the time for sending it.
        u32::try_from(self.span_ms / DAY_MS).unwrap_or(u32::MAX - 2) + 2
    }
}

fn parse(flags: &str) -> Result<Options, String> {
    Options::parse(flags.split_whitespace().map(OsString::from)).map_err(|e| e.to_string())
}

/// Time until readiness of a process after a start, and its memory when it has become idle.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    ready: Duration,
    resident_bytes: u64,
}

/// Measurements of a system when its data has reached an age, while it is idle.
#[derive(Clone, Debug)]
pub struct Age {
    age_ms: i64,
    /// Resident memory of the idle process that ingested the load, in bytes.
    resident_bytes: u64,
    /// Latencies of the recent query in milliseconds, sorted.
    recent_ms: Vec<f64>,
    /// Time in seconds for sending the data between the previous age and this one.
    send_seconds: f64,
    /// Starts after a clean stop and after a kill, where they are measured.
    starts: Option<(Started, Started)>,
}

/// Latencies of a panel over a number of days, cold and warm; NaN if the system failed.
#[derive(Clone, Debug)]
pub struct PanelTime {
    days: i64,
    name: &'static str,
    elements: usize,
    /// Latency in a new process with a cold page cache, in milliseconds.
    cold_ms: f64,
    /// Latencies of the repetitions in the same process in milliseconds.
    warm_ms: Vec<f64>,
}

/// The results of one system, filled in by the phases of the benchmark.
pub struct Measured {
    /// The system and its version, with its retention extended to the history.
    pub system: System,
    dir: PathBuf,
    start_ms: i64,
    ages: Vec<Age>,
    pushes: PushOutcome,
    cpu_seconds: f64,
    written_bytes: u64,
    end_ms: i64,
    disk_bytes: u64,
    /// Total size in bytes of the indexes of blocks, and the number of series in them.
    indexes: (u64, u64),
    read: Read,
    panels: Vec<PanelTime>,
    crowd: Option<Started>,
}

/// Cost of reading all samples of `up`, in time and in bytes read.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    samples: f64,
    from_disk_bytes: u64,
    asked_bytes: u64,
    ms: f64,
}

/// Fills a directory below `dir` and measures the system at each age. The later phases use its
/// data.
pub fn fill(system: &System, dir: &Path, plan: &Plan, start_ms: i64) -> Result<Measured, String> {
    let system = system.with_retention(plan.retention_days());
    let mut maker = FleetRequestGenerator::new(&plan.load(start_ms)?);
    let mut running = system.start(dir)?;
    let mut measured = Measured {
        system: system.clone(),
        dir: dir.to_owned(),
        start_ms,
        ages: Vec::new(),
        pushes: PushOutcome::default(),
        cpu_seconds: 0.0,
        written_bytes: 0,
        end_ms: start_ms,
        disk_bytes: 0,
        indexes: (0, 0),
        read: Read::default(),
        panels: Vec::new(),
        crowd: None,
    };
    let mut rounds = 0;
    for age_ms in plan.ages() {
        let until = age_ms / plan.interval_ms;
        let start = Instant::now();
        let pushed = push(&running, &mut maker, (until - rounds) as u64)?;
        let send_seconds = start.elapsed().as_secs_f64();
        rounds = until;
        measured.pushes.merge(pushed);
        measured.end_ms = maker.summary().end_ms;
        let usage = settle(&running, system.kind)?;
        let mut age = Age {
            age_ms,
            resident_bytes: usage.resident_bytes,
            recent_ms: recent(&running, measured.end_ms, plan)?,
            send_seconds,
            starts: None,
        };
        crate::say(&age.line());
        let is_last = age_ms == plan.span_ms;
        if is_last {
            running.compact()?;
            settle(&running, system.kind)?;
        }
        if is_last || age_ms == YOUNG_MS {
            let starts;
            (running, starts) = measured.restart(running)?;
            age.starts = Some(starts);
        }
        measured.ages.push(age);
    }
    measured.spend(running.stop()?);
    measured.look_at_files()?;
    measured.read = measured.read_up()?;
    Ok(measured)
}

/// Sends the next rounds as fast as they are accepted. Fails if a request is rejected.
fn push(
    running: &Running,
    maker: &mut FleetRequestGenerator,
    rounds: u64,
) -> Result<PushOutcome, String> {
    let url = running.write_url();
    let to = LoadReceiver {
        way: PushDestination {
            url: &url,
            pace: PushPace::Fast,
            access: PushAccess {
                tls: &TlsConfig::default(),
                headers: &[],
            },
            on_failure: PushFailurePolicy::GoOn,
        },
        senders: maker.summary().senders,
    };
    let outcome = to
        .send(&PushProgress::default(), |emit| maker.make(rounds, emit))
        .map_err(|e| e.to_string())?;
    match &outcome.first_failure {
        None => Ok(outcome),
        Some(first) => Err(format!(
            "{} of {} requests failed, the first one with: {first}",
            outcome.failed, outcome.requests
        )),
    }
}

/// Waits until a system has finished deferred work, and returns its resource usage then.
fn settle(running: &Running, kind: Kind) -> Result<Usage, String> {
    let start = Instant::now();
    std::thread::sleep(kind.looks_after_work_within());
    loop {
        let before = running.usage()?;
        std::thread::sleep(QUIET);
        let usage = running.usage()?;
        let share = (usage.cpu_seconds - before.cpu_seconds) / QUIET.as_secs_f64();
        if share < IDLE_SHARE || start.elapsed() > IDLE_WITHIN {
            return Ok(usage);
        }
    }
}

/// Returns the latencies of the query for the last minutes in milliseconds, sorted.
fn recent(running: &Running, end_ms: i64, plan: &Plan) -> Result<Vec<f64>, String> {
    let client = SystemClient::new(&running.url);
    let ask = ExpressionRequest::Range {
        expression: EXPRESSION.to_owned(),
        start_ms: end_ms - SPAN_MS,
        end_ms,
        step_ms: plan.interval_ms,
    };
    let mut times = Vec::new();
    for _ in 0..RECENT_QUERIES {
        let start = Instant::now();
        let answer = client.send_query(&ask).map_err(|e| e.to_string())?;
        if answer["status"] != "success" {
            return Err(format!("{ask}: {answer}"));
        }
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times)
}

impl Measured {
    /// Stops and starts a system, then kills and starts it again. Returns the running process and
    /// both measurements.
    fn restart(&mut self, running: Running) -> Result<(Running, (Started, Started)), String> {
        self.spend(running.stop()?);
        let (running, stopped) = self.start_idle()?;
        self.spend(running.usage()?);
        running.kill()?;
        let (running, killed) = self.start_idle()?;
        Ok((running, (stopped, killed)))
    }

    fn start_idle(&self) -> Result<(Running, Started), String> {
        let running = self.system.start(&self.dir)?;
        let usage = settle(&running, self.system.kind)?;
        let started = Started {
            ready: running.ready_after,
            resident_bytes: usage.resident_bytes,
        };
        Ok((running, started))
    }

    /// Adds the resource usage of a process that has exited to the totals.
    fn spend(&mut self, usage: Usage) {
        self.cpu_seconds += usage.cpu_seconds;
        self.written_bytes += usage.written_bytes;
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn look_at_files(&mut self) -> Result<(), String> {
        let data = self.data();
        let failed = |e: std::io::Error| format!("{}: {e}", data.display());
        self.disk_bytes = process::disk_bytes(&data).map_err(failed)?;
        self.indexes = process::block_indexes(&data).map_err(failed)?;
        Ok(())
    }

    /// Starts the system after dropping its files from the page cache, so that its reads reach the
    /// disk.
    fn start_cold(&self) -> Result<Running, String> {
        let data = self.data();
        process::drop_page_cache(&data).map_err(|e| format!("{}: {e}", data.display()))?;
        self.system.start(&self.dir)
    }

    /// Reads all samples of `up` with one query in a cold process and returns the cost.
    fn read_up(&self) -> Result<Read, String> {
        let running = self.start_cold()?;
        let before = running.usage()?;
        let range_ms = self.end_ms - self.start_ms + 1000;
        let ask = ExpressionRequest::Instant {
            expression: format!("sum(count_over_time(up[{range_ms}ms]))"),
            time_ms: self.end_ms,
        };
        let start = Instant::now();
        let answer = SystemClient::new(&running.url)
            .send_query(&ask)
            .map_err(|e| e.to_string())?;
        let ms = start.elapsed().as_secs_f64() * 1000.0;
        let count = answer["data"]["result"][0]["value"][1].as_str();
        let samples = count.and_then(|text| text.parse().ok());
        let usage = running.usage()?;
        running.stop()?;
        Ok(Read {
            samples: samples.ok_or_else(|| format!("{ask}: {answer}"))?,
            from_disk_bytes: usage.read_bytes - before.read_bytes,
            asked_bytes: usage.asked_bytes - before.asked_bytes,
            ms,
        })
    }

    fn ask_panel(&self, panel: &Panel, days: i64, pod: &str) -> Result<PanelTime, String> {
        let running = self.start_cold()?;
        let client = SystemClient::new(&running.url);
        let span = Span {
            start_ms: self.end_ms - days * DAY_MS,
            end_ms: self.end_ms,
            step_ms: days * DAY_MS / POINTS,
        };
        let ask = || {
            let start = Instant::now();
            let body = panel.get(&client, span, pod)?;
            Ok::<_, String>((start.elapsed().as_secs_f64() * 1000.0, body))
        };
        let (cold_ms, body) = ask()?;
        let elements = dashboard::elements(&body).map_err(|e| {
            let text = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
            format!("{} of {days} days: {e}: {text}", panel.name)
        })?;
        let mut warm_ms = Vec::new();
        let start = Instant::now();
        while warm_ms.len() < *WARM_QUERIES.start()
            || warm_ms.len() < *WARM_QUERIES.end() && start.elapsed() < WARM_FOR
        {
            warm_ms.push(ask()?.0);
        }
        warm_ms.sort_unstable_by(f64::total_cmp);
        running.stop()?;
        Ok(PanelTime {
            days,
            name: panel.name,
            elements,
            cold_ms,
            warm_ms,
        })
    }

    /// Returns the name of a pod that exists at the end of the load.
    fn pod(&self) -> Result<String, String> {
        let running = self.system.start(&self.dir)?;
        let ask = ExpressionRequest::Instant {
            expression: "bottomk(1, group by (pod) (up))".to_owned(),
            time_ms: self.end_ms,
        };
        let answer = SystemClient::new(&running.url)
            .send_query(&ask)
            .map_err(|e| e.to_string())?;
        let pod = answer["data"]["result"][0]["metric"]["pod"].as_str();
        let pod = pod.ok_or_else(|| format!("{ask}: {answer}"))?.to_owned();
        running.stop()?;
        Ok(pod)
    }

    /// Adds many new series to the history, kills the system, and measures its start.
    pub fn crowd(&mut self, plan: &Plan) -> Result<(), String> {
        if plan.crowd == 0 {
            return Ok(());
        }
        let options = plan.crowd(self.end_ms + plan.interval_ms)?;
        let running = self.system.start(&self.dir)?;
        push(
            &running,
            &mut FleetRequestGenerator::new(&options),
            options.rounds,
        )?;
        std::thread::sleep(QUIET);
        running.kill()?;
        let (running, started) = self.start_idle()?;
        running.stop()?;
        self.crowd = Some(started);
        Ok(())
    }
}

/// Queries all systems for each panel in turns. A panel that a system fails to answer has no
/// figures.
pub fn ask_panels(measured: &mut [Measured]) -> Result<(), String> {
    let Some(first) = measured.first() else {
        return Ok(());
    };
    let pod = first.pod()?;
    let wanted = |panel: &&Panel| PANEL_NAMES.contains(&panel.name);
    for days in PANEL_DAYS {
        for panel in PANELS.iter().filter(wanted) {
            for one in measured.iter_mut() {
                let kind = one.system.kind.name();
                let time = one.ask_panel(panel, days, &pod).unwrap_or_else(|e| {
                    crate::say(&format!("{kind}: {e}"));
                    PanelTime::failed(panel.name, days)
                });
                crate::say(&format!("{kind}: {}", time.line()));
                one.panels.push(time);
            }
        }
    }
    Ok(())
}
