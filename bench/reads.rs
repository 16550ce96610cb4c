//! Throughput of remote read: all data of a server, in chunked frames.
//!
//! ```text
//! empty directory -> load -> read of one metric, whose samples are counted
//!                 -> reads of all series, one after the other, whose bytes are discarded
//! ```
//!
//! VictoriaMetrics has no remote read and is left out.

use crate::process::Usage;
use crate::scenario::{self, Load};
use crate::system::{Running, System};
use firn_mirror::fleet::SERIES_PER_POD;
use firn_mirror::push::PushProgress;
use firn_model::budget::Budget;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_wire::remote_read::{ChunkFrameReader, OutgoingReadRequest};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// Flags of the load that each system stores before the reads.
pub const LOAD: &str = "--series 20000 --duration 2h --interval 15s --senders 4";

/// Number of reads of all data, whose median is reported.
const TURNS: usize = 7;

/// Timeout of a read, including its complete response.
const PATIENCE: Duration = Duration::from_secs(300);

/// Maximum length of a frame in bytes, equal to Prometheus's limit.
const FRAME_BYTES_MAX: u64 = 50_000_000;

/// Memory limit for the read of one metric in bytes.
const COUNTED_BYTES_MAX: usize = 1 << 30;

/// The results of one system: duration, CPU time and size of the reads.
#[derive(Clone, Debug)]
pub struct Reads {
    /// The system and its version, Firn or Prometheus.
    pub system: System,
    /// Number of samples in a read of all data, equal to those sent.
    samples: u64,
    /// Length of the response of a read of all data in bytes.
    bytes: u64,
    /// Durations of all reads in seconds, sorted.
    seconds: Vec<f64>,
    /// CPU time of the server for all reads in seconds.
    cpu_seconds: f64,
    usage: Usage,
}

impl Reads {
    fn median(&self) -> f64 {
        self.seconds[self.seconds.len() / 2]
    }

    fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.median()
    }

    fn cpu_ns_per_sample(&self) -> f64 {
        self.cpu_seconds * 1e9 / (self.samples as f64 * self.seconds.len() as f64)
    }

    /// Returns all figures as JSON, including those that the table leaves out.
    pub fn to_json(&self) -> Value {
        json!({
            "system": self.system.kind.name(),
            "version": self.system.version,
            "samples": self.samples,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "samples_per_second": self.samples_per_second(),
            "cpu_ns_per_sample": self.cpu_ns_per_sample(),
            "peak_bytes": self.usage.peak_bytes,
        })
    }

    /// Returns the row of this system in the Markdown table, with rounded figures.
    pub fn line(&self) -> String {
        format!(
            "| {} | {:.1} | {:.3} | {:.0} | {:.2} | {:.1} |\n",
            self.system.kind.name(),
            self.samples_per_second() / 1e6,
            self.median(),
            self.cpu_ns_per_sample(),
            self.bytes as f64 / self.samples as f64,
            self.usage.peak_bytes as f64 / 1e6,
        )
    }
}

/// Returns the heading with the size of the load, and the header rows of the Markdown table.
pub fn head(load: &Load) -> String {
    format!(
        "Remote read of {} series with {} samples in chunks, {TURNS} times:\n\n| | million \
         samples a second | s | CPU ns a sample | bytes a sample | peak MB |\n\
         |---|---:|---:|---:|---:|---:|\n",
        load.summary.series, load.summary.samples
    )
}

/// Measures `system` with its data in `dir`. Fails if a read returns another number of samples than
/// were sent.
pub fn run(system: &System, dir: &Path, load: &Load) -> Result<Reads, String> {
    let running = system.start(dir)?;
    scenario::send(&running, load, &PushProgress::default())?;
    let range = TimeRange::new(load.summary.start_ms, load.summary.end_ms);
    let counted = count(&running, range)?;
    let expected = load.summary.samples / SERIES_PER_POD as u64;
    if counted != expected {
        return Err(format!(
            "{counted} samples of up were read, {expected} were sent"
        ));
    }
    let before = running.usage()?;
    let (mut seconds, mut bytes) = (Vec::new(), 0);
    for _ in 0..TURNS {
        let start = Instant::now();
        let mut answer = ask(&running, range, MatchOp::NotEqual, b"")?;
        bytes = std::io::copy(&mut answer, &mut std::io::sink()).map_err(|e| e.to_string())?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let usage = running.usage()?;
    running.stop()?;
    Ok(Reads {
        system: system.clone(),
        samples: load.summary.samples,
        bytes,
        seconds,
        cpu_seconds: usage.cpu_seconds - before.cpu_seconds,
        usage,
    })
}

/// Returns the number of samples of `up` in a remote read, which is decoded to verify it.
fn count(running: &Running, range: TimeRange) -> Result<u64, String> {
    let mut memory = Budget::new("read", COUNTED_BYTES_MAX).create_reservation();
    let mut reader = ChunkFrameReader::new(range, FRAME_BYTES_MAX);
    let mut answer = ask(running, range, MatchOp::Equal, b"up")?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match answer.read(&mut piece).map_err(|e| e.to_string())? {
            0 => break,
            len => {
                let taken = reader.push(&piece[..len], &mut memory);
                taken.map_err(|e| e.message)?;
            }
        }
    }
    let series = reader.finish().map_err(|e| e.message)?;
    Ok(series.iter().map(|one| one.samples.len() as u64).sum())
}

/// Sends a remote read for the metrics whose names match and returns the response body.
fn ask(
    running: &Running,
    range: TimeRange,
    op: MatchOp,
    name: &[u8],
) -> Result<impl Read + use<>, String> {
    let matcher = Matcher::new("__name__", op, name).map_err(|e| e.message)?;
    let question = OutgoingReadRequest {
        range,
        matchers: &[matcher],
        is_about_series: false,
    };
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .build();
    let agent: ureq::Agent = config.into();
    let url = format!("{}/api/v1/read", running.url);
    let request = agent
        .post(&url)
        .header("Content-Type", "application/x-protobuf")
        .header("Content-Encoding", "snappy")
        .header("X-Prometheus-Remote-Read-Version", "0.1.0")
        .header("Accept-Encoding", "identity");
    let answer = request.send(&question.encode()[..]);
    let answer = answer.map_err(|e| format!("{url}: {e}"))?;
    let body = answer.into_body().into_with_config().limit(u64::MAX);
    Ok(body.reader())
}
