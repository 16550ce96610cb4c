//! Recording of the requests of a real sender, and their replay at another time.
//!
//! ```text
//! sender -> recorder -> files of a load, one connection, in the order of arrival
//! files -> shift: timestamps of samples, histograms and exemplars moved -> connection
//! ```
//!
//! Invariant: all recorded bodies can be decoded. A shifted body contains the same samples with the
//! same values and the same distances in time.

use crate::error::MirrorError;
use crate::prepared::{PreparedLoadSummary, PreparedLoadWriter};
use crate::push::now_ms;
use crate::request::{RemoteWriteProtocol, Request};
use crate::target::{self, ExpositionServer};
use firn_model::batch::{Batch, BatchSource, HistogramSample};
use firn_model::exemplar::TimedExemplar;
use firn_model::sample::TimestampMs;
use firn_wire::remote_write::{RemoteWriteDecoder, RemoteWriteOptions, RemoteWriteVersion};
use std::collections::HashSet;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Decoder of remote-write bodies of both versions, which reuses its buffers for all of them.
#[derive(Debug, Default)]
struct RemoteWriteBodyDecoder {
    decoder: RemoteWriteDecoder,
}

impl RemoteWriteBodyDecoder {
    /// Decodes `body` into an owned batch whose timestamps are shifted by `by_ms`. Rejected series
    /// are left out.
    fn read(
        &mut self,
        protocol: RemoteWriteProtocol,
        body: &[u8],
        by_ms: i64,
    ) -> Result<Batch, MirrorError> {
        let wrong = |e: String| MirrorError::Usage(format!("not a body of remote write: {e}"));
        let reader = RemoteWriteOptions {
            version: match protocol {
                RemoteWriteProtocol::One => RemoteWriteVersion::V1,
                RemoteWriteProtocol::Two => RemoteWriteVersion::V2,
            },
            keeps_exemplars: true,
            ..RemoteWriteOptions::default()
        };
        let mut decoded = self
            .decoder
            .decode(reader, body)
            .map_err(|e| wrong(e.to_string()))?;
        let all: Vec<u32> = (0..decoded.batch().series_count() as u32).collect();
        decoded.read_labels(&all).map_err(|e| wrong(e.message))?;
        Ok(shifted(decoded.batch(), by_ms))
    }
}

fn shifted(batch: &Batch, by_ms: i64) -> Batch {
    let mut out = Batch::default();
    let moved = |time: TimestampMs| time.saturating_add(by_ms);
    for number in 0..batch.series_count() {
        if batch.is_refused(number) {
            continue;
        }
        let series = batch.series(number);
        out.label_bytes()
            .extend_from_slice(series.labels.as_bytes());
        let starts = series.start_times.iter().copied().map(moved).map(Some);
        let starts = starts.chain(std::iter::repeat(None));
        for ((time, value), start) in series.times.iter().zip(series.values).zip(starts) {
            match start {
                Some(start) => out.push_float_with_start(moved(*time), *value, start),
                None => out.push_float(moved(*time), *value),
            }
        }
        for sample in series.histograms {
            out.push_histogram(HistogramSample {
                time: moved(sample.time),
                ..sample.clone()
            });
        }
        for exemplar in batch.exemplars().iter_series(number as u64) {
            out.push_exemplar(TimedExemplar {
                time: moved(exemplar.time),
                ..exemplar
            });
        }
        out.end_series();
    }
    out
}

/// Decodes a remote-write body into an owned batch with unchanged timestamps. Fails if it is
/// malformed.
pub fn read(protocol: RemoteWriteProtocol, body: &[u8]) -> Result<Batch, MirrorError> {
    RemoteWriteBodyDecoder::default().read(protocol, body, 0)
}

/// Shifts the timestamps of recorded requests by a fixed amount. Each sender of a replay has its
/// own.
#[derive(Debug, Default)]
pub struct TimestampShift {
    by_ms: i64,
    bodies: RemoteWriteBodyDecoder,
}

impl TimestampShift {
    /// Creates a shift by `by_ms` milliseconds, which may be negative.
    pub fn from_offset(by_ms: i64) -> Self {
        Self {
            by_ms,
            bodies: RemoteWriteBodyDecoder::default(),
        }
    }

    /// Returns the request with its due time and all timestamps shifted, encoded again in the same
    /// version.
    pub fn apply(&mut self, request: Request) -> Result<Request, MirrorError> {
        let batch = self
            .bodies
            .read(request.protocol, &request.body, self.by_ms)?;
        Ok(Request {
            due_ms: request.due_ms.saturating_add(self.by_ms),
            body: request.protocol.encode(&batch),
            ..request
        })
    }
}

struct LoadRecorder {
    writer: PreparedLoadWriter,
    bodies: RemoteWriteBodyDecoder,
    labels: HashSet<Vec<u8>>,
    summary: PreparedLoadSummary,
}

/// Numbers of samples, histograms and exemplars in a body, in this order, for the response headers.
type Counts = [usize; 3];

impl LoadRecorder {
    fn record_body(
        &mut self,
        protocol: RemoteWriteProtocol,
        body: Vec<u8>,
    ) -> Result<Counts, MirrorError> {
        let batch = self.bodies.read(protocol, &body, 0)?;
        let mut counts = [0, 0, 0];
        for (number, series) in batch.iter().enumerate() {
            let labels = series.labels.as_bytes();
            if !self.labels.contains(labels) {
                self.labels.insert(labels.to_vec());
            }
            counts[0] += series.times.len();
            counts[1] += series.histograms.len();
            counts[2] += batch.exemplars().iter_series(number as u64).count();
        }
        let samples = counts[0] + counts[1];
        if samples == 0 {
            // The body contains only metadata.
            return Ok(counts);
        }
        let now = now_ms();
        let summary = &mut self.summary;
        if summary.requests == 0 {
            summary.start_ms = now;
        }
        summary.end_ms = now;
        summary.samples += samples as u64;
        summary.requests += 1;
        summary.body_bytes += body.len() as u64;
        summary.series = self.labels.len() as u64;
        summary.series_created = summary.series;
        let request = Request {
            due_ms: now,
            samples: samples as u32,
            protocol,
            body,
        };
        self.writer.push(0, &request)?;
        Ok(counts)
    }
}

/// Accepts remote write at `address` for `duration` and writes the requests to `dir` in the order
/// of arrival. Requests after that are answered with 503.
pub fn record(
    address: &str,
    dir: &Path,
    duration: Duration,
) -> Result<PreparedLoadSummary, MirrorError> {
    let recorder = Arc::new(Mutex::new(Some(LoadRecorder {
        writer: PreparedLoadWriter::create(dir, 1)?,
        bodies: RemoteWriteBodyDecoder::default(),
        labels: HashSet::new(),
        summary: PreparedLoadSummary {
            senders: 1,
            ..PreparedLoadSummary::default()
        },
    })));
    let taking = Arc::clone(&recorder);
    ExpositionServer::start(address, move |request, stream| {
        let mut taking = taking.lock().unwrap_or_else(PoisonError::into_inner);
        answer(taking.as_mut(), request, stream);
    })?;
    std::thread::sleep(duration);
    let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
    let recorder = recorder.take().expect("it is taken once");
    recorder.writer.finish(&recorder.summary)?;
    Ok(recorder.summary)
}

fn answer(recorder: Option<&mut LoadRecorder>, request: &target::Request, stream: &mut TcpStream) {
    let path = request.path.split('?').next().unwrap_or_default();
    let refuse = |stream: &mut TcpStream, status: &str, why: &str| {
        target::respond(stream, status, "text/plain", format!("{why}\n"));
    };
    let Some(recorder) = recorder else {
        return refuse(stream, "503 Service Unavailable", "the recording has ended");
    };
    if path != "/api/v1/write" {
        return refuse(
            stream,
            "404 Not Found",
            "remote write is accepted at /api/v1/write",
        );
    }
    let content_type = request.header("content-type").unwrap_or_default();
    let protocol = if content_type.contains("io.prometheus.write.v2.Request") {
        RemoteWriteProtocol::Two
    } else {
        RemoteWriteProtocol::One
    };
    match recorder.record_body(protocol, request.body.clone()) {
        Ok([samples, histograms, exemplars]) => {
            let written = "X-Prometheus-Remote-Write";
            let head = format!(
                "HTTP/1.1 204 No Content\r\n{written}-Samples-Written: {samples}\r\n\
                 {written}-Histograms-Written: {histograms}\r\n\
                 {written}-Exemplars-Written: {exemplars}\r\nConnection: close\r\n\r\n"
            );
            // If the sender has disconnected, it repeats the request.
            let _ = stream.write_all(head.as_bytes());
        }
        Err(e) => refuse(stream, "400 Bad Request", &e.to_string()),
    }
}
