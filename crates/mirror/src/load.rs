//! `firn load`: makes the load of a fleet and sends it, or keeps it in files and sends it later.
//!
//! ```text
//! fleet -> queues -> bounded channel a sender -> connection        send
//!                 -> file a sender                                 prepare
//!           file a sender -> connection                            replay
//! ```
//!
//! Replaying costs the sender a read and a write for each request, so that a system under test on
//! the same machine is hardly disturbed. Invariant: what is sent depends on the options alone,
//! never on how fast the receiver is.

pub mod options;

use crate::error::MirrorError;
use crate::fleet::{Fleet, SERIES_PER_POD};
use crate::prepared::{self, Summary};
use crate::push::{Outcome, Pace, Progress, send_all};
use crate::quantiles::Quantiles;
use crate::request::{Queues, Request};
use clap::error::ErrorKind;
use options::{Action, Options};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Requests made ahead of each sender: enough to keep it busy, few enough to stay small.
const REQUESTS_AHEAD: usize = 4;

/// A load that was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What was made; empty parts if it was not known beforehand.
    pub load: Summary,
    /// What became of it.
    pub outcome: Outcome,
    /// From the first request to the last answer.
    pub elapsed: Duration,
}

impl Report {
    /// The push latencies in microseconds.
    pub fn latencies_us(&self) -> Quantiles {
        Quantiles::new(self.outcome.latencies_us.clone())
    }

    /// The report as `firn load` prints it.
    pub fn to_json(&self) -> Value {
        let latencies = self.latencies_us();
        let ms = |us: u32| f64::from(us) / 1000.0;
        let seconds = self.elapsed.as_secs_f64();
        json!({
            "load": self.load.to_json(),
            "samples": self.outcome.samples,
            "requests": self.outcome.requests,
            "failed": self.outcome.failed,
            "first_failure": self.outcome.first_failure,
            "seconds": seconds,
            "samples_per_second": self.outcome.samples as f64 / seconds.max(1e-9),
            "push_ms": {
                "p50": ms(latencies.at(0.5)),
                "p99": ms(latencies.at(0.99)),
                "p99.9": ms(latencies.at(0.999)),
                "max": ms(latencies.max()),
            },
        })
    }
}

/// Runs `firn load` with the arguments that follow it and writes the report to `out`. Fails if a
/// request failed, after the report is written.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
) -> Result<(), MirrorError> {
    let matches = match options::matches(args) {
        Ok(matches) => matches,
        Err(e) if e.kind() == ErrorKind::DisplayHelp => return print(out, &e.render().to_string()),
        Err(e) => return Err(e.into()),
    };
    let options = Options::of(&matches)?;
    let report = match &options.action {
        Action::Prepare(dir) => {
            let summary = prepare(&options, dir)?;
            return print(out, &format!("{:#}\n", summary.to_json()));
        }
        Action::Replay(dir) => replay(dir, &options.url, options.pace, &Progress::default())?,
        Action::Send => send(&options)?,
    };
    print(out, &format!("{:#}\n", report.to_json()))?;
    match report.outcome.first_failure {
        None => Ok(()),
        Some(first) => Err(MirrorError::Failed {
            failed: report.outcome.failed,
            requests: report.outcome.requests,
            first,
        }),
    }
}

fn print(out: &mut dyn Write, text: &str) -> Result<(), MirrorError> {
    out.write_all(text.as_bytes())
        .map_err(MirrorError::file("write", Path::new("report")))
}

/// Makes the requests of `options` and writes them to `dir`.
pub fn prepare(options: &Options, dir: &Path) -> Result<Summary, MirrorError> {
    let mut writer = prepared::Writer::create(dir, options.senders)?;
    let summary = make(options, &mut |sender, request| {
        writer.push(sender, &request)
    })?;
    writer.finish(&summary)?;
    Ok(summary)
}

/// Sends the requests in `dir`, each sender's over a connection of its own, and notes in `progress`
/// how far it is.
pub fn replay(
    dir: &Path,
    url: &str,
    pace: Pace,
    progress: &Progress,
) -> Result<Report, MirrorError> {
    let load = prepared::read_summary(dir)?;
    let readers = (0..load.senders)
        .map(|sender| prepared::Reader::open(dir, sender))
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let outcome = thread::scope(|scope| {
        let senders: Vec<_> = readers
            .into_iter()
            .map(|reader| scope.spawn(move || send_all(url, pace, progress, reader)))
            .collect();
        join(senders)
    })?;
    Ok(Report {
        load,
        outcome,
        elapsed: start.elapsed(),
    })
}

/// Makes the requests of `options` and sends them at the same time.
pub fn send(options: &Options) -> Result<Report, MirrorError> {
    let (inlets, outlets): (Vec<SyncSender<Request>>, Vec<Receiver<Request>>) = (0..options
        .senders)
        .map(|_| sync_channel(REQUESTS_AHEAD))
        .unzip();
    let progress = Progress::default();
    let start = Instant::now();
    let (load, outcome) = thread::scope(|scope| {
        let senders: Vec<_> = outlets
            .into_iter()
            .map(|outlet| {
                let requests = outlet.into_iter().map(Ok);
                let progress = &progress;
                scope.spawn(move || send_all(&options.url, options.pace, progress, requests))
            })
            .collect();
        let load = make(options, &mut |sender, request| {
            let gone = |_| MirrorError::Usage("a sender stopped early".to_owned());
            inlets[sender].send(request).map_err(gone)
        });
        drop(inlets);
        let outcome = join(senders)?;
        Ok::<_, MirrorError>((load?, outcome))
    })?;
    Ok(Report {
        load,
        outcome,
        elapsed: start.elapsed(),
    })
}

type Sender<'scope> = thread::ScopedJoinHandle<'scope, Result<Outcome, MirrorError>>;

fn join(senders: Vec<Sender<'_>>) -> Result<Outcome, MirrorError> {
    let mut all = Outcome::default();
    for sender in senders {
        all.merge(sender.join().expect("a sender does not panic")?);
    }
    Ok(all)
}

/// Makes all requests of `options` in order and hands each over with its sender's number.
pub fn make(
    options: &Options,
    emit: &mut impl FnMut(usize, Request) -> Result<(), MirrorError>,
) -> Result<Summary, MirrorError> {
    let mut fleet = Fleet::new(options.fleet);
    let mut queues = Queues::new(options.senders);
    let mut summary = Summary {
        senders: options.senders,
        series: fleet.series_count() as u64,
        start_ms: options.fleet.start_ms,
        interval_ms: options.fleet.interval_ms,
        ..Summary::default()
    };
    let mut requests = 0;
    let mut body_bytes = 0;
    let mut emit = |sender, request: Request| {
        requests += 1;
        body_bytes += request.body.len() as u64;
        emit(sender, request)
    };
    for _ in 0..options.rounds {
        fleet.scrape_round(&mut |sample| {
            if summary.samples.is_multiple_of(SERIES_PER_POD as u64) {
                queues.expire(sample.time_ms, &mut emit)?;
            }
            summary.samples += 1;
            summary.end_ms = summary.end_ms.max(sample.time_ms);
            queues.push(&sample, &mut emit)
        })?;
    }
    queues.expire(i64::MAX, &mut emit)?;
    summary.series_created = fleet.created_count();
    summary.requests = requests;
    summary.body_bytes = body_bytes;
    Ok(summary)
}

#[cfg(test)]
mod tests;
