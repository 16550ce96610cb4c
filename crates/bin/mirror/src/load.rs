//! `firn load`: generates the load of a fleet and sends it, or writes it to files and sends it
//! later.
//!
//! ```text
//! fleet -> queues -> bounded channel per sender -> connection      send, with queries beside it
//!                 -> file per sender                               prepare
//!           file per sender -> connection                          replay
//!                          a real sender -> file                   record
//! ```
//!
//! Replaying costs the sender one read and one write per request, so that it hardly disturbs a
//! system under test on the same machine. Invariant: the requests depend only on the options, never
//! on the speed of the receiver.

mod arguments;
mod bar;
pub mod extras;
mod maker;
pub mod metrics;
pub mod options;
mod page;
mod receiver_url;
pub mod recording;
mod report;
pub mod trial;
pub mod watch;

use crate::error::MirrorError;
use crate::headers::headers_for;
use crate::prepared::{self, PreparedLoadSummary};
use crate::push::{
    PushAccess, PushDestination, PushOutcome, PushPace, PushProgress, now_ms, send_all,
};
use crate::request::Request;
use bar::LoadBarLength;
use clap::error::ErrorKind;
pub use maker::FleetRequestGenerator;
use metrics::LoadMetrics;
use options::{LoadAction, NAMES, Options};
use recording::TimestampShift;
pub use report::LoadReport;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use trial::ReportFormat;
use trial::asking::{LoadEndSignal, QueryLatencyMetrics, QueryLoadOutcomes, QueryLoadPlan};

/// Number of requests that are generated ahead for each sender: enough to keep it busy with little
/// memory.
const REQUESTS_AHEAD: usize = 4;

/// Runs `firn load` with the arguments that follow the subcommand and writes the report to `out`.
/// After the report, fails if a goal was missed or, without goals, if a request failed.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
) -> Result<(), MirrorError> {
    let matches = match options::matches(args) {
        Ok(matches) => matches,
        Err(e) if e.kind() == ErrorKind::DisplayHelp => return print(out, &e.render().to_string()),
        Err(e) => return Err(e.into()),
    };
    let options = Options::from_matches(&matches)?;
    if let LoadAction::Prepare(dir) = &options.action {
        let summary = prepare(&options, dir)?;
        return print_summary(out, &options, "prepared", &summary);
    }
    if let (LoadAction::Record(dir), Some(address)) = (&options.action, &options.listen) {
        let duration = Duration::from_millis(options.duration_ms.max(0).unsigned_abs());
        let summary = recording::record(address, dir, duration)?;
        return print_summary(out, &options, "recorded", &summary);
    }
    let report = run_trial(&options)?;
    if let Some(dir) = &options.report {
        report.write(dir)?;
    }
    let text = match options.trial.format {
        ReportFormat::Json => format!("{:#}\n", report.to_json()),
        ReportFormat::Text if report.has_nothing() => String::new(),
        ReportFormat::Text => report.to_text(),
    };
    print(out, &text)?;
    conclude(&options, report)
}

/// Returns an error if a goal was missed or, without goals, if a request failed.
fn conclude(options: &Options, report: LoadReport) -> Result<(), MirrorError> {
    if let Some(missed) = report.missed() {
        return Err(MirrorError::Missed(missed));
    }
    if options.trial.goals.is_some() {
        return Ok(());
    }
    let second = report.unqueried.unwrap_or_default();
    let other = options.unqueried_url.as_deref().unwrap_or_default();
    for (outcome, url) in [(report.outcome, options.url.as_str()), (second, other)] {
        let PushOutcome {
            failed, requests, ..
        } = outcome;
        let Some(first) = outcome.first_failure else {
            continue;
        };
        let first = if first.starts_with(url) {
            first
        } else {
            format!("{url}: {first}")
        };
        return Err(if options.keeps_going {
            MirrorError::Failed {
                failed,
                requests,
                first,
            }
        } else {
            MirrorError::Broken { requests, first }
        });
    }
    Ok(())
}

/// Sends the load of `options`, to a second system as well if there is one, sends the queries at
/// the same time, and checks the goals.
fn run_trial(options: &Options) -> Result<LoadReport, MirrorError> {
    let shown = NAMES.map(LoadMetrics::for_system);
    let count = 1 + usize::from(options.unqueried_url.is_some());
    if let Some(address) = &options.listen {
        metrics::listen(address, shown[..count].to_vec())?;
    }
    let watched = options.watched_systems();
    // Both receivers get the same timestamps, regardless of when their senders start.
    let begun_ms = now_ms();
    let tls = options.tls.read()?;
    let headers = NAMES.map(|name| headers_for(name, &options.headers));
    let [first, second] = [0, 1].map(|place| PushAccess {
        tls: &tls,
        headers: &headers[place],
    });
    let plan = options.trial.plan.as_ref().map(|plan| plan.resolved(first));
    let (plan, left_out) = plan.transpose()?.unzip();
    let bar = LoadBarLength::from_options(options)?;
    let stopped = AtomicBool::new(false);
    let writes = |url: &str, access, progress: &PushProgress| {
        let way = options.push_destination(url, access, &stopped);
        match &options.action {
            LoadAction::Replay(dir) => replay_at(dir, way, options, begun_ms, progress),
            _ => send_to(way, options, progress),
        }
    };
    let (end, watching_end) = (LoadEndSignal::default(), LoadEndSignal::default());
    let (queried, unqueried, asked, looks) = thread::scope(|scope| {
        let watching_end = &watching_end;
        let reads: &QueryLatencyMetrics = &shown[0].reads;
        let asking = plan
            .as_ref()
            .map(|plan| scope.spawn(|| plan.send_queries(&end, reads, first)));
        let accesses = [first, second].into_iter();
        let watching: Vec<_> = watched
            .iter()
            .zip(accesses)
            .map(|(system, access)| scope.spawn(move || system.watch(watching_end, access)))
            .collect();
        scope.spawn(|| bar.show_progress(&shown[0], watching_end));
        let (writes, progress) = (&writes, &shown[1].writes);
        let other = options.unqueried_url.as_ref();
        let unqueried = other.map(|url| scope.spawn(move || writes(url, second, progress)));
        let queried = writes(&options.url, first, &shown[0].writes);
        let unqueried = unqueried.map(|other| other.join().expect("a sender does not panic"));
        end.end();
        let asked: Option<QueryLoadOutcomes> =
            asking.map(|asking| asking.join().expect("the questions do not panic"));
        watching_end.end();
        let looks: Vec<_> = watching
            .into_iter()
            .map(|watching| watching.join().expect("a look does not panic"))
            .collect();
        (queried, unqueried, asked, looks)
    });
    let report = LoadReport {
        unqueried: unqueried.transpose()?.map(|report| report.outcome),
        asked,
        looks,
        questions: plan
            .as_ref()
            .map_or_else(Vec::new, QueryLoadPlan::expressions),
        left_out: left_out.unwrap_or_default(),
        ..queried?
    };
    let goals = options.trial.goals;
    let judged = goals.map_or_else(Vec::new, |goals| report.check_goals(&goals));
    Ok(LoadReport { judged, ..report })
}

fn print_summary(
    out: &mut dyn Write,
    options: &Options,
    did: &str,
    summary: &PreparedLoadSummary,
) -> Result<(), MirrorError> {
    let text = match options.trial.format {
        ReportFormat::Json => format!("{:#}\n", summary.to_json()),
        ReportFormat::Text => summary.to_text(did),
    };
    print(out, &text)
}

fn print(out: &mut dyn Write, text: &str) -> Result<(), MirrorError> {
    out.write_all(text.as_bytes())
        .map_err(MirrorError::file("write", Path::new("report")))
}

/// Generates the requests of `options` and writes them to `dir`, with the summary last.
pub fn prepare(options: &Options, dir: &Path) -> Result<PreparedLoadSummary, MirrorError> {
    let mut writer = prepared::PreparedLoadWriter::create(dir, options.senders)?;
    let summary = make(options, &mut |sender, request| {
        writer.push(sender, &request)
    })?;
    writer.finish(&summary)?;
    Ok(summary)
}

/// Sends the requests in `dir`, those of each sender over a connection of its own, and updates
/// `progress`.
pub fn replay(
    dir: &Path,
    way: PushDestination<'_>,
    progress: &PushProgress,
) -> Result<LoadReport, MirrorError> {
    let load = prepared::read_summary(dir)?;
    replay_moved(dir, load, way, None, progress)
}

/// Sends the requests of a directory, with timestamps shifted to `begun_ms` if the options demand
/// it.
fn replay_at(
    dir: &Path,
    way: PushDestination<'_>,
    options: &Options,
    begun_ms: i64,
    progress: &PushProgress,
) -> Result<LoadReport, MirrorError> {
    let load = prepared::read_summary(dir)?;
    let by_ms = match way.pace {
        PushPace::Live => begun_ms - load.start_ms,
        PushPace::Fast => begun_ms - load.end_ms,
    };
    let by_ms = options.shifts.then_some(by_ms);
    replay_moved(dir, load, way, by_ms, progress)
}

fn replay_moved(
    dir: &Path,
    load: PreparedLoadSummary,
    way: PushDestination<'_>,
    by_ms: Option<i64>,
    progress: &PushProgress,
) -> Result<LoadReport, MirrorError> {
    let readers = (0..load.senders)
        .map(|sender| prepared::PreparedLoadReader::open(dir, sender))
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let outcome = thread::scope(|scope| {
        let senders: Vec<_> = readers
            .into_iter()
            .map(|reader| {
                let mut shift = by_ms.map(TimestampShift::from_offset);
                let requests = reader.map(move |request| match &mut shift {
                    None => request,
                    Some(shift) => shift.apply(request?),
                });
                scope.spawn(move || send_all(way, progress, requests))
            })
            .collect();
        join(senders)
    })?;
    Ok(LoadReport {
        load,
        outcome,
        elapsed: start.elapsed(),
        ..LoadReport::default()
    })
}

/// Generates the requests of `options` and sends them at the same time to the first receiver only.
pub fn send(options: &Options) -> Result<LoadReport, MirrorError> {
    let tls = options.tls.read()?;
    let access = PushAccess {
        tls: &tls,
        headers: &headers_for(NAMES[0], &options.headers),
    };
    let stopped = AtomicBool::new(false);
    let way = options.push_destination(&options.url, access, &stopped);
    send_to(way, options, &PushProgress::default())
}

fn send_to(
    way: PushDestination<'_>,
    options: &Options,
    progress: &PushProgress,
) -> Result<LoadReport, MirrorError> {
    let mut load = PreparedLoadSummary::default();
    let start = Instant::now();
    let to = LoadReceiver {
        way,
        senders: options.senders,
    };
    let outcome = to.send(progress, |emit| {
        load = make(options, emit)?;
        Ok(())
    })?;
    Ok(LoadReport {
        load,
        outcome,
        elapsed: start.elapsed(),
        ..LoadReport::default()
    })
}

/// A receiver of requests that are sent while they are generated, over several connections at once.
#[derive(Clone, Copy, Debug)]
pub struct LoadReceiver<'a> {
    /// URL of the receiver, and how to send requests to it.
    pub way: PushDestination<'a>,
    /// Number of connections, each with its own thread.
    pub senders: usize,
}

/// Callback that accepts a request and the number of its sender. An error stops the generation.
pub type Emit<'a> = &'a mut dyn FnMut(usize, Request) -> Result<(), MirrorError>;

impl LoadReceiver<'_> {
    /// Sends the requests that `making` emits, those of each sender over a connection of its own. A
    /// bounded channel per sender keeps the senders within a few requests of each other.
    pub fn send(
        self,
        progress: &PushProgress,
        making: impl FnOnce(Emit<'_>) -> Result<(), MirrorError>,
    ) -> Result<PushOutcome, MirrorError> {
        let (inlets, outlets): (Vec<SyncSender<Request>>, Vec<_>) = (0..self.senders)
            .map(|_| sync_channel(REQUESTS_AHEAD))
            .unzip();
        thread::scope(|scope| {
            let senders: Vec<_> = outlets
                .into_iter()
                .map(|outlet| {
                    let requests = outlet.into_iter().map(Ok);
                    scope.spawn(move || send_all(self.way, progress, requests))
                })
                .collect();
            let made = making(&mut |sender, request| {
                let gone = |_| MirrorError::Late("a sender stopped early".to_owned());
                inlets[sender].send(request).map_err(gone)
            });
            drop(inlets);
            let outcome = join(senders)?;
            match made {
                // The outcome of the senders contains the reason why they stopped.
                Err(_) if self.way.on_failure.is_stopped() => Ok(outcome),
                made => made.map(|()| outcome),
            }
        })
    }
}

type Sender<'scope> = thread::ScopedJoinHandle<'scope, Result<PushOutcome, MirrorError>>;

fn join(senders: Vec<Sender<'_>>) -> Result<PushOutcome, MirrorError> {
    let mut all = PushOutcome::default();
    for sender in senders {
        all.merge(sender.join().expect("a sender does not panic")?);
    }
    Ok(all)
}

/// Generates all requests of `options` in order and passes each to `emit` with its sender's number.
pub fn make(options: &Options, emit: Emit<'_>) -> Result<PreparedLoadSummary, MirrorError> {
    let mut maker = FleetRequestGenerator::new(options);
    maker.make(options.rounds, emit)?;
    Ok(maker.summary())
}

#[cfg(test)]
mod tests;
