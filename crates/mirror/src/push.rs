//! Sends requests over one connection and records how long each took.
//!
//! Latencies are kept exactly, four bytes a request: percentiles are those of the requests and not
//! of some buckets.

use crate::error::MirrorError;
use crate::request::{Protocol, Request};
use firn_model::metrics::{Counter, DurationHistogram};
use firn_model::sample::TimestampMs;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use ureq::tls::TlsConfig;

/// How long an answer may take before the request counts as failed: Prometheus's `remote_timeout`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of an error answer that are kept.
const ERROR_TEXT_BYTES_MAX: u64 = 4096;

/// Longest time from a stop to the end of the senders that wait.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each when the previous one is answered.
    Fast,
    /// Each when the wall clock reaches its data time, and not before.
    Live,
}

/// What became of the requests of one connection or of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Samples in requests that were answered with 2xx.
    pub samples: u64,
    /// Requests sent.
    pub requests: u64,
    /// Requests not answered with 2xx.
    pub failed: u64,
    /// What the first of those got.
    pub first_failure: Option<String>,
    /// Microseconds from the first byte sent to the answer, of every request that was answered.
    pub latencies_us: Vec<u32>,
    /// The data times at which those requests were due, in the same order.
    pub due_ms: Vec<TimestampMs>,
    /// Microseconds from when each was due to the answer, in the same order, if the wall clock
    /// decides when that is: what waited for the one before it waited.
    pub delays_us: Vec<u32>,
}

impl Outcome {
    /// Adds what another connection did.
    pub fn merge(&mut self, other: Outcome) {
        self.samples += other.samples;
        self.requests += other.requests;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.latencies_us.extend(other.latencies_us);
        self.due_ms.extend(other.due_ms);
        self.delays_us.extend(other.delays_us);
    }
}

/// How far a load has come, for progress reports.
#[derive(Debug)]
pub struct Progress {
    answered_ms: AtomicI64,
    /// How long requests took that were answered.
    pub push: DurationHistogram,
    /// Requests that were not taken.
    pub failures: Counter,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            answered_ms: AtomicI64::new(TimestampMs::MIN),
            push: DurationHistogram::default(),
            failures: Counter::default(),
        }
    }
}

impl Progress {
    /// The data time of the newest request that was answered with 2xx, on any connection; the least
    /// time there is before the first.
    pub fn answered_ms(&self) -> TimestampMs {
        self.answered_ms.load(Ordering::Relaxed)
    }

    fn answered(&self, due_ms: TimestampMs) {
        self.answered_ms.fetch_max(due_ms, Ordering::Relaxed);
    }
}

/// What requests to a system carry, and which certificates of it are accepted.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// Certificates of https.
    pub tls: &'a TlsConfig,
    /// Names and values of headers.
    pub headers: &'a [(String, String)],
}

/// Where requests go, and how.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The receiver's full address.
    pub url: &'a str,
    /// When each request is sent.
    pub pace: Pace,
    /// As whom.
    pub access: Access<'a>,
    /// What follows a request that failed.
    pub on_failure: OnFailure<'a>,
}

/// What senders do after a request that failed.
#[derive(Clone, Copy, Debug)]
pub enum OnFailure<'a> {
    /// They send the next one.
    GoOn,
    /// All of them stop that share the flag.
    Stop(&'a AtomicBool),
}

impl OnFailure<'_> {
    /// Notes a request that failed.
    fn note(self) {
        if let Self::Stop(stopped) = self {
            stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Whether nothing more is sent.
    pub fn is_stopped(self) -> bool {
        matches!(self, Self::Stop(stopped) if stopped.load(Ordering::Relaxed))
    }
}

/// A connection to a remote write receiver.
#[derive(Debug)]
pub struct Connection {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(String, String)>,
}

impl Connection {
    /// A connection that opens with the first request. `url` is the receiver's full address.
    pub fn new(url: &str) -> Self {
        let tls = &TlsConfig::default();
        Self::over(url, Access { tls, headers: &[] })
    }

    /// The same with certificates and headers of one's own.
    pub fn over(url: &str, access: Access<'_>) -> Self {
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

    /// Sends one body. The outer error means that there was no answer, the inner one holds the
    /// status and text of an answer other than 2xx.
    pub fn send(&self, body: &[u8]) -> Result<Result<(), String>, MirrorError> {
        self.send_as(Protocol::One, body)
    }

    /// Like [`Connection::send`], for a body of any version.
    pub fn send_as(
        &self,
        protocol: Protocol,
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
        // The body is read whatever it is: otherwise the connection cannot be used again.
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

/// Sends all `requests` one after the other and says what became of them. A request that fails is
/// counted and not sent again; whether the next one is sent is up to [`Way::on_failure`].
pub fn send_all(
    way: Way<'_>,
    progress: &Progress,
    requests: impl Iterator<Item = Result<Request, MirrorError>>,
) -> Result<Outcome, MirrorError> {
    let connection = Connection::over(way.url, way.access);
    let mut outcome = Outcome::default();
    for request in requests {
        let request = request?;
        if way.pace == Pace::Live {
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
                if way.pace == Pace::Live {
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
                progress.answered(request.due_ms);
            }
            Some(text) => {
                outcome.failed += 1;
                progress.failures.inc();
                way.on_failure.note();
                outcome.first_failure.get_or_insert(text);
            }
        }
    }
    Ok(outcome)
}

/// Now, in milliseconds since the Unix epoch.
pub fn now_ms() -> TimestampMs {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |d| d.as_millis() as i64)
}

/// Waits until `due_ms`, or until nothing more is sent.
fn wait_until(due_ms: TimestampMs, on_failure: OnFailure<'_>) {
    while !on_failure.is_stopped() {
        let wait_ms = due_ms.saturating_sub(now_ms());
        match u64::try_from(wait_ms) {
            Ok(0) | Err(_) => return,
            Ok(wait_ms) => thread::sleep(Duration::from_millis(wait_ms).min(LOOK_PAUSE)),
        }
    }
}
