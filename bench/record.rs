//! Recording of the requests of a real sender, and measurement of their ingestion.
//!
//! ```text
//! record  a Prometheus scrapes itself under several jobs and sends with four shards -> load
//! replay  empty directory -> generated load, then recorded load -> CPU time per sample
//! ```
//!
//! A recording is a load like those of the generator (`firn_mirror::prepared`) with one connection
//! and bodies in the order of arrival, because shards can share a connection and use several ones.
//! Recordings are temporary files of one machine and not part of the repository.

use crate::scenario::{self, Load};
use crate::stub;
use crate::system::System;
use firn_mirror::prepared::{self, PreparedLoadSummary, PreparedLoadWriter};
use firn_mirror::push::{PushProgress, now_ms};
use firn_mirror::request::{RemoteWriteProtocol, Request};
use firn_wire::WireLimits;
use firn_wire::remote_write::{RemoteWriteDecoder, RemoteWriteOptions};
use std::collections::HashSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Number of jobs under which the sender scrapes its own metrics of about 800 series.
const JOBS: usize = 20;

/// The part of a recording that has been received so far, and the first failure.
struct Recording {
    writer: PreparedLoadWriter,
    decoder: RemoteWriteDecoder,
    summary: PreparedLoadSummary,
    labels: HashSet<Vec<u8>>,
    failure: Option<String>,
}

impl Recording {
    fn take(&mut self, body: Vec<u8>) {
        if let Err(e) = self.add(body) {
            self.failure.get_or_insert(e);
        }
    }

    fn add(&mut self, body: Vec<u8>) -> Result<(), String> {
        let decoded = self
            .decoder
            .decode(RemoteWriteOptions::default(), &body)
            .map_err(|e| e.to_string())?;
        let samples = decoded.batch.sample_count();
        let times = decoded.batch.iter().flat_map(|s| s.times.iter().copied());
        let Some(newest) = times.max() else {
            // The body contains only metadata.
            return Ok(());
        };
        for series in decoded.batch.iter() {
            let labels = series.labels.as_bytes();
            if !self.labels.contains(labels) {
                self.labels.insert(labels.to_vec());
            }
        }
        self.summary.samples += samples as u64;
        self.summary.requests += 1;
        self.summary.body_bytes += body.len() as u64;
        self.summary.end_ms = self.summary.end_ms.max(newest);
        let request = Request {
            due_ms: newest,
            samples: samples as u32,
            protocol: RemoteWriteProtocol::One,
            body,
        };
        self.writer.push(0, &request).map_err(|e| e.to_string())
    }
}

/// A child process of Prometheus that is killed when this value is dropped.
struct Sender(Child);

impl Drop for Sender {
    fn drop(&mut self) {
        // This fails if the process has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records the requests that a Prometheus sends for `duration` into the directory `dir`.
pub fn record(dir: &Path, duration: Duration) -> Result<PreparedLoadSummary, String> {
    let recording = Arc::new(Mutex::new(Some(Recording {
        writer: PreparedLoadWriter::create(dir, 1).map_err(|e| e.to_string())?,
        decoder: RemoteWriteDecoder::new(WireLimits::default()),
        summary: PreparedLoadSummary {
            senders: 1,
            start_ms: now_ms(),
            interval_ms: 1_000,
            ..PreparedLoadSummary::default()
        },
        labels: HashSet::new(),
        failure: None,
    })));
    let taking = recording.clone();
    let port = stub::start("127.0.0.1:0", move |request| {
        let mut taking = taking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recording) = &mut *taking {
            recording.take(request.body);
        }
        None
    })
    .map_err(|e| format!("listen: {e}"))?;
    let sender = start_sender(dir, port)?;
    thread::sleep(duration);
    drop(sender);
    let taken = recording
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(recording) = taken else {
        return Err("the recording is gone".into());
    };
    if let Some(failure) = recording.failure {
        return Err(format!("a body cannot be recorded: {failure}"));
    }
    let mut summary = recording.summary;
    summary.series = recording.labels.len() as u64;
    summary.series_created = summary.series;
    recording
        .writer
        .finish(&summary)
        .map_err(|e| e.to_string())?;
    Ok(summary)
}

/// Starts a Prometheus that sends to the port `receiver`. Its program is given by BENCH_SENDER and
/// defaults to the `prometheus` on PATH.
fn start_sender(dir: &Path, receiver: u16) -> Result<Sender, String> {
    let program = std::env::var_os("BENCH_SENDER").unwrap_or_else(|| "prometheus".into());
    let own = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let own = own.map_err(|e| format!("free port: {e}"))?;
    let jobs: String = (0..JOBS)
        .map(|i| format!("- job_name: itself-{i}\n  static_configs: [{{targets: ['{own}']}}]\n"))
        .collect();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n{jobs}remote_write:\n- url: \
         http://127.0.0.1:{receiver}/write\n  queue_config: {{min_shards: 4, max_shards: 4, \
         max_samples_per_send: 2000, batch_send_deadline: 1s}}\n"
    );
    let file = |name: &str| dir.join(name);
    let failed = |path: PathBuf| move |e| format!("{}: {e}", path.display());
    let (config_file, log_file) = (file("sender.yml"), file("sender.log"));
    fs::write(&config_file, config).map_err(failed(config_file.clone()))?;
    let log = File::create(&log_file).map_err(failed(log_file.clone()))?;
    let child = Command::new(&program)
        .arg(format!("--config.file={}", config_file.display()))
        .arg(format!("--storage.tsdb.path={}", file("sender").display()))
        .arg(format!("--web.listen-address={own}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let child = child.map_err(|e| format!("start {}: {e}", program.display()))?;
    Ok(Sender(child))
}

/// Cost of ingesting a load, and the shape of its requests, on which the cost depends.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// CPU time of the server in nanoseconds per sample.
    pub cpu_ns: f64,
    /// Mean number of samples per request of the load.
    pub samples_per_request: f64,
    /// Mean number of compressed body bytes per sample of the load.
    pub body_bytes: f64,
}

/// Sends one load after the other to `system`, each with an empty directory below `scratch`.
pub fn replay(
    system: &System,
    scratch: &Path,
    loads: &[(&str, Load)],
) -> Result<Vec<Cost>, String> {
    let mut costs = Vec::new();
    for (name, load) in loads {
        let running = system.start(&scratch.join(name))?;
        let before = running.usage()?;
        scenario::send(&running, load, &PushProgress::default())?;
        let usage = running.usage()?;
        running.stop()?;
        let summary = &load.summary;
        let samples = (summary.samples as f64).max(1.0);
        costs.push(Cost {
            cpu_ns: (usage.cpu_seconds - before.cpu_seconds) * 1e9 / samples,
            samples_per_request: samples / (summary.requests as f64).max(1.0),
            body_bytes: summary.body_bytes as f64 / samples,
        });
    }
    Ok(costs)
}

/// Returns a generated load with the same number of series and samples as the recording in `dir`,
/// and the recording itself.
pub fn loads(
    dir: &Path,
    make: impl Fn(&str) -> Result<Load, String>,
) -> Result<Vec<(&'static str, Load)>, String> {
    let summary = prepared::read_summary(dir).map_err(|e| e.to_string())?;
    let rounds = summary.samples / summary.series.max(1);
    let generator = make(&format!(
        "--series {} --samples {} --interval 1s --senders 1",
        summary.series,
        rounds.max(1)
    ))?;
    let recorded = Load {
        dir: dir.to_path_buf(),
        summary,
    };
    Ok(vec![("generator", generator), ("recorded", recorded)])
}
