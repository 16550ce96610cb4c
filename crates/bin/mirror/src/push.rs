//! Sends requests over one connection and records their latencies.
//!
//! Latencies are stored exactly, with four bytes per request, so that percentiles are exact and not
//! bounds of buckets.

use crate::error::MirrorError;
use crate::request::{RemoteWriteProtocol, Request};
use firn_model::metrics::{Counter, DurationHistogram};
use firn_model::sample::TimestampMs;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ureq::tls::TlsConfig;

/// Timeout of a request, equal to Prometheus's default `remote_timeout`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length in bytes that is kept of an error response.
const ERROR_TEXT_BYTES_MAX: u64 = 4096;

/// Maximum time until waiting senders notice a stop.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// When requests are sent: as fast as possible, or in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushPace {
    /// Each request as soon as the previous one is answered.
    Fast,
    /// Each request when the wall clock reaches its due time, and not before.
    Live,
}

/// Outcome of the requests of one connection, or of several connections together. The lists of
/// latencies grow with the number of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushOutcome {
    /// Number of samples in requests that were answered with 2xx.
    pub samples: u64,
    /// Number of requests that were sent, whatever their result.
    pub requests: u64,
    /// Number of requests that were not answered with 2xx.
    pub failed: u64,
    /// Error of the first failed request; `None` if all succeeded.
    pub first_failure: Option<String>,
    /// Microseconds from the first sent byte to the response, for each request with a response.
    pub latencies_us: Vec<u32>,
    /// Due times of these requests in milliseconds, in the same order.
    pub due_ms: Vec<TimestampMs>,
    /// Microseconds from the due time of each request to its response, in the same order. Recorded
    /// only with [`PushPace::Live`]; it includes the wait for the previous request.
    pub delays_us: Vec<u32>,
}

impl PushOutcome {
    /// Adds the outcome of another connection; its latencies are appended in no particular order.
    pub fn merge(&mut self, other: PushOutcome) {
        self.samples += other.samples;
        self.requests += other.requests;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.latencies_us.extend(other.latencies_us);
        self.due_ms.extend(other.due_ms);
        self.delays_us.extend(other.delays_us);
    }
}

/// Live progress of a load, which its senders update and the progress bar and metrics read.
#[derive(Debug)]
pub struct PushProgress {
    answered_ms: AtomicI64,
    /// Latencies of requests that received a response, whatever its status.
    pub push: DurationHistogram,
    /// Number of requests that were rejected or lost so far.
    pub failures: Counter,
}

impl Default for PushProgress {
    fn default() -> Self {
        Self {
            answered_ms: AtomicI64::new(TimestampMs::MIN),
            push: DurationHistogram::default(),
            failures: Counter::default(),
        }
    }
}

impl PushProgress {
    /// Returns the newest due time of a request that was answered with 2xx, over all connections;
    /// the minimum value before the first.
    pub fn newest_answered_ms(&self) -> TimestampMs {
        self.answered_ms.load(Ordering::Relaxed)
    }

    fn record_answered(&self, due_ms: TimestampMs) {
        self.answered_ms.fetch_max(due_ms, Ordering::Relaxed);
    }
}

/// Headers and TLS settings of the requests to a system, borrowed for the length of a load.
#[derive(Clone, Copy, Debug)]
pub struct PushAccess<'a> {
    /// Root certificates that are trusted, and the client certificate, for https.
    pub tls: &'a TlsConfig,
    /// Names and values of headers that are added to each request.
    pub headers: &'a [(String, String)],
}

/// Destination of requests and how they are sent. All senders of a load share the same values.
#[derive(Clone, Copy, Debug)]
pub struct PushDestination<'a> {
    /// Complete URL of the receiver.
    pub url: &'a str,
    /// When each request is sent, relative to its due time.
    pub pace: PushPace,
    /// Headers and TLS settings of the requests.
    pub access: PushAccess<'a>,
    /// Reaction of all senders to a failed request.
    pub on_failure: PushFailurePolicy<'a>,
}

/// Reaction of the senders to a failed request, from `--keep-going`.
#[derive(Clone, Copy, Debug)]
pub enum PushFailurePolicy<'a> {
    /// Continue with the next request, and only count the failure.
    GoOn,
    /// Stop all senders that share this flag, which the failure sets.
    Stop(&'a AtomicBool),
}

impl PushFailurePolicy<'_> {
    /// Sets the shared flag after a failed request, if the senders are to stop.
    fn record_failure(self) {
        if let Self::Stop(stopped) = self {
            stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the senders have been stopped by a failed request; always false if they
    /// continue.
    pub fn is_stopped(self) -> bool {
        matches!(self, Self::Stop(stopped) if stopped.load(Ordering::Relaxed))
    }
}

/// A connection to a remote-write receiver, which is opened by the first request and reused by all.
#[derive(Debug)]
pub struct PushConnection {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(String, String)>,
}

impl PushConnection {
    /// Creates a connection that is opened by the first request. `url` is the receiver's complete
    /// URL.
    pub fn new(url: &str) -> Self {
        let tls = &TlsConfig::default();
        Self::with_access(url, PushAccess { tls, headers: &[] })
    }

    /// Creates a connection like [`PushConnection::new`], with custom headers and TLS settings.
    pub fn with_access(url: &str, access: PushAccess<'_>) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_TIMEOUT))
            .tls_config(access.tls.clone())
            .http_status_as_error(false)
            .build();
        Self {
            agent: config.into(),
            url: url.to_owned(),
            headers: access.headers.to_vec(),
        }
    }

    /// Sends a body in format 1.0. The outer error means that there was no response; the inner one
    /// contains status and text of a response other than 2xx.
    pub fn send(&self, body: &[u8]) -> Result<Result<(), String>, MirrorError> {
        self.send_as(RemoteWriteProtocol::One, body)
    }

    /// Sends a body like [`PushConnection::send`], in the format of any version.
    pub fn send_as(
        &self,
        protocol: RemoteWriteProtocol,
        body: &[u8],
    ) -> Result<Result<(), String>, MirrorError> {
        let own = self.headers.iter();
        let request = own.fold(self.agent.post(&self.url), |request, (name, value)| {
            request.header(name, value)
        });
        let mut answer = request
            .header("Content-Type", protocol.content_type())
            .header("Content-Encoding", "snappy")
            .header("X-Prometheus-Remote-Write-Version", protocol.version())
            .header("User-Agent", concat!("firn/", env!("CARGO_PKG_VERSION")))
            .send(body)
            .map_err(MirrorError::transport(&self.url))?;
        let status = answer.status();
        // The body is read even on success, because the connection could not be reused otherwise.
        let text = answer
            .body_mut()
            .with_config()
            .limit(ERROR_TEXT_BYTES_MAX)
            .lossy_utf8(true)
            .read_to_string()
            .unwrap_or_else(|e| e.to_string());
        if status.is_success() {
            return Ok(Ok(()));
        }
        Ok(Err(format!("{status}: {}", text.trim())))
    }
}

/// Sends all `requests` one after the other and returns their outcome. A failed request is counted
/// and not repeated; [`PushDestination::on_failure`] determines whether sending continues.
pub fn send_all(
    way: PushDestination<'_>,
    progress: &PushProgress,
    requests: impl Iterator<Item = Result<Request, MirrorError>>,
) -> Result<PushOutcome, MirrorError> {
    let connection = PushConnection::with_access(way.url, way.access);
    let mut outcome = PushOutcome::default();
    for request in requests {
        let request = request?;
        if way.pace == PushPace::Live {
            wait_until(request.due_ms, way.on_failure);
        }
        if way.on_failure.is_stopped() {
            break;
        }
        outcome.requests += 1;
        let start = Instant::now();
        let failure = match connection.send_as(request.protocol, &request.body) {
            Ok(answer) => {
                progress.push.observe(start.elapsed());
                let elapsed_us = u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX);
                outcome.latencies_us.push(elapsed_us);
                outcome.due_ms.push(request.due_ms);
                if way.pace == PushPace::Live {
                    let late_us = now_ms()
                        .saturating_sub(request.due_ms)
                        .saturating_mul(1_000);
                    let late_us = u32::try_from(late_us.max(0)).unwrap_or(u32::MAX);
                    outcome.delays_us.push(late_us.max(elapsed_us));
                }
                answer.err()
            }
            Err(e) => Some(e.to_string()),
        };
        match failure {
            None => {
                outcome.samples += u64::from(request.samples);
                progress.record_answered(request.due_ms);
            }
            Some(text) => {
                outcome.failed += 1;
                progress.failures.inc();
                way.on_failure.record_failure();
                outcome.first_failure.get_or_insert(text);
            }
        }
    }
    Ok(outcome)
}

/// Returns the current time in milliseconds since the Unix epoch.
pub fn now_ms() -> TimestampMs {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |d| d.as_millis() as i64)
}

/// Waits until `due_ms` or until the senders are stopped, which is noticed within [`LOOK_PAUSE`].
fn wait_until(due_ms: TimestampMs, on_failure: PushFailurePolicy<'_>) {
    while !on_failure.is_stopped() {
        let wait_ms = due_ms.saturating_sub(now_ms());
        match u64::try_from(wait_ms) {
            Ok(0) | Err(_) => return,
            Ok(wait_ms) => thread::sleep(Duration::from_millis(wait_ms).min(LOOK_PAUSE)),
        }
    }
}
