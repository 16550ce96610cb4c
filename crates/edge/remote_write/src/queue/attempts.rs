//! Delivers the requests of one lane to a target, repeating attempts until each request is accepted
//! or rejected.
//!
//! ```text
//! request -> young enough? -> attempt -> accepted, or rejected for good: next request of the lane
//!              ^                  |  ` rejected, and made of several bodies: send each separately
//!              |                  ` retry: wait, with a pause that doubles each time
//!              `---- a body exceeded the limits meanwhile, or the settings changed: lane ends
//! ```
//!
//! A receiver that rejects a request because of one sample may reject all of it, as Prometheus does
//! with requests of version 1.0. Invalid data from one sender must not affect the data of others.
//!
//! Invariant: only one request of a lane is in flight, because receivers reject out-of-order
//! samples. The caller moves the cursor.

use super::bodies::{BodyLog, PASSED_HEADERS, ReceivedWrite};
use super::filter::message_type;
use super::target::{DeliveryTarget, PostAttempt, Request, TargetSettings};
use super::verdict::{DeliveryMode, DeliveryVerdict, RetryReason};
use bytes::Bytes;
use firn_model::env::Env;
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use firn_wire::WireLimits;
use firn_wire::remote_write::{
    MergedRequestBounds, RemoteWriteVersion, WriteRequestContents, encode_since,
};
use firn_wire::thinning::WriteMessageType;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, info, warn};

/// Minimum time between two log lines of the same kind.
const REPORT_PAUSE: Duration = Duration::from_secs(10);

/// Rate limiter for a kind of log line that may occur for each body; it counts suppressed
/// occurrences.
#[derive(Default)]
pub struct LogLimiter(Mutex<LogLimiterState>);

#[derive(Default)]
struct LogLimiterState {
    at: Option<Instant>,
    unsaid: u64,
}

impl LogLimiter {
    /// Adds `count` occurrences. Returns the number since the last log line if another one is due.
    pub fn count(&self, count: u64) -> Option<u64> {
        let mut said = lock(&self.0);
        said.unsaid += count;
        if said.at.is_some_and(|at| at.elapsed() < REPORT_PAUSE) {
            return None;
        }
        said.at = Some(Instant::now());
        Some(std::mem::take(&mut said.unsaid))
    }

    fn forget(&self) {
        *lock(&self.0) = LogLimiterState::default();
    }
}

/// Rate limiters for the log lines about one target, kept for the life of its courier.
#[derive(Default)]
pub struct TargetLogLimiters {
    /// Bodies that were dropped from the queue.
    pub lost: LogLimiter,
    /// Bodies that could not be decoded for filtering.
    pub unreadable: LogLimiter,
    refused: LogLimiter,
    unwritten: LogLimiter,
    failed: LogLimiter,
}

/// Position and arrival time of the oldest body of a parcel, by which the queue limits are checked.
#[derive(Clone, Copy, Debug)]
pub struct OldestBody {
    /// Position at which it begins in the log.
    pub at: u64,
    /// Wall-clock time of its arrival, in milliseconds since the epoch.
    pub time_ms: TimestampMs,
}

impl OldestBody {
    /// Returns how long the body may still wait if `max` is the limit; zero if it has expired.
    pub fn time_left(&self, env: &Env, max: Duration) -> Duration {
        let waited = env.clock.now_ms().saturating_sub(self.time_ms);
        // If the clock was set back, no body counts as older.
        max.saturating_sub(Duration::from_millis(u64::try_from(waited).unwrap_or(0)))
    }

    /// Waits until the body exceeds the queue limits of `settings`.
    async fn wait_outgrown(&self, bodies: &BodyLog, env: &Env, settings: &TargetSettings) {
        let mut end = bodies.follow_end();
        let outgrown = end.wait_for(|end| end - self.at > settings.queue_bytes_max);
        match settings.queue_age_max {
            // An error means that the log has been dropped, and the courier with it.
            None => drop(outgrown.await),
            Some(max) => tokio::select! {
                _ = outgrown => {}
                () = sleep(self.time_left(env, max)) => {}
            },
        }
    }
}

/// Result of one attempt to send a request.
enum AttemptResult {
    /// The request was accepted, or rejected for good and counted.
    Done,
    /// The target rejected the request for good, which may be due to only one of its bodies.
    Apart(String),
    /// The parcel must be prepared again: it exceeded the limits, or the settings changed.
    Anew,
    /// The request must be repeated after at least this time.
    Again(Duration),
}

/// Result of sending a request with all its attempts, until it is settled or must be given up.
enum DeliveryResult {
    /// The request was accepted, finally rejected, or is too old.
    Done,
    /// The request is incomplete, and the rest of the lane is not sent.
    Ended,
    /// These requests, one per body, are to be sent instead.
    Apart(Vec<Request>),
}

/// Sender for the requests of one lane of a parcel. The courier creates one for each lane.
pub struct LaneSender<'c> {
    /// The target of the requests, whose metrics are updated.
    pub target: &'c DeliveryTarget,
    /// The log that contains the bodies of the requests.
    pub bodies: &'c BodyLog,
    /// Clock and random numbers, which tests replace.
    pub env: &'c Env,
    /// Configuration of the target when the parcel was prepared.
    pub settings: &'c TargetSettings,
    /// Maximum length of an uncompressed message in bytes, for requests that must be decoded.
    pub message_bytes_max: usize,
    /// Rate limiters for the log lines of this target.
    pub reports: &'c TargetLogLimiters,
    /// The oldest body of the parcel, which limits its retries.
    pub oldest: OldestBody,
    /// Notifies of changes of the configuration, which end the parcel.
    pub changes: watch::Receiver<Arc<TargetSettings>>,
    /// Set once at shutdown, after which no attempt begins.
    pub stopping: watch::Receiver<bool>,
}

impl LaneSender<'_> {
    /// Sends the requests of `lane` in order. Returns whether all of them were completed.
    pub async fn send(mut self, lane: &[Request]) -> bool {
        for request in lane {
            let begun = Instant::now();
            let is_done = self.send_one(request).await;
            self.target.record_request_duration(begun.elapsed());
            if !is_done {
                return false;
            }
        }
        true
    }

    /// Sends a request, or the bodies of which it is made if it is rejected. Returns whether it was
    /// completed.
    async fn send_one(&mut self, request: &Request) -> bool {
        match self.send_whole(request).await {
            DeliveryResult::Done => true,
            DeliveryResult::Ended => false,
            DeliveryResult::Apart(parts) => {
                for part in &parts {
                    if !matches!(self.send_whole(part).await, DeliveryResult::Done) {
                        return false;
                    }
                }
                true
            }
        }
    }

    async fn send_whole(&mut self, request: &Request) -> DeliveryResult {
        let mut request = Cow::Borrowed(request);
        let mut pause = self.settings.backoff_min;
        let mut attempt = 0;
        while !*self.stopping.borrow() {
            match self.drop_old_samples(request).await {
                Some(young) => request = young,
                None => return DeliveryResult::Done,
            }
            let after = match self.attempt(&request, attempt).await {
                AttemptResult::Done => return DeliveryResult::Done,
                AttemptResult::Anew => return DeliveryResult::Ended,
                AttemptResult::Apart(why) => return self.split_request(&request, why).await,
                AttemptResult::Again(after) => after,
            };
            let wait = self.jittered(pause).max(after);
            pause = (pause * 2).min(self.settings.backoff_max);
            attempt += 1;
            let is_due = tokio::select! {
                () = sleep(wait) => true,
                () = self.oldest.wait_outgrown(self.bodies, self.env, self.settings) => false,
                _ = self.changes.changed() => false,
                _ = self.stopping.changed() => false,
            };
            if !is_due {
                return DeliveryResult::Ended;
            }
        }
        DeliveryResult::Ended
    }

    /// Removes samples that are too old from `request`; returns `None` if nothing remains.
    async fn drop_old_samples<'r>(&self, request: Cow<'r, Request>) -> Option<Cow<'r, Request>> {
        let Some(age_max) = self.settings.sample_age_max else {
            return Some(request);
        };
        let age_ms = i64::try_from(age_max.as_millis()).unwrap_or(i64::MAX);
        let time_min = self.env.clock.now_ms().saturating_sub(age_ms);
        let contents = request.contents;
        if contents.oldest >= time_min {
            return Some(request);
        }
        if contents.newest < time_min && contents.exemplars == 0 {
            self.target.too_old.add(contents);
            return None;
        }
        let (write, seams) = (request.write.clone(), request.seams.clone());
        let limits = self.limits();
        let leaving = spawn_blocking(move || {
            let left = encode_since(
                time_min,
                request_version(&write),
                &write.body,
                &seams,
                &limits,
            );
            (left, write)
        });
        let Ok((Ok(left), write)) = leaving.await else {
            // The request cannot be decoded. It is sent, so that the target reports the error.
            return Some(request);
        };
        let left = left.map(|((body, contents), seams)| Request {
            write: ReceivedWrite {
                body: body.into(),
                ..write
            },
            contents,
            seams,
        });
        let stays = left.as_ref().map(|left| left.contents);
        let old = contents.without(stays.unwrap_or_default());
        self.target.too_old.add(old);
        left.map(Cow::Owned)
    }

    /// Splits `request`, which the target rejected because of `why`, into the bodies of which it is
    /// made.
    async fn split_request(&self, request: &Request, why: String) -> DeliveryResult {
        let (write, seams) = (request.write.clone(), request.seams.clone());
        let limits = self.limits();
        let taking = spawn_blocking(move || {
            let parts = seams.split_body(request_version(&write), &write.body, &limits);
            let part = |(body, contents): (Vec<u8>, _)| Request {
                write: ReceivedWrite {
                    headers: write.headers.clone(),
                    contents: None,
                    body: body.into(),
                },
                contents,
                seams: MergedRequestBounds::None,
            };
            let parts = parts.map(|parts| parts.into_iter().map(part).collect());
            parts.unwrap_or_default()
        });
        let parts: Vec<Request> = taking.await.unwrap_or_default();
        if parts.is_empty() {
            self.refuse(request, why);
            return DeliveryResult::Done;
        }
        self.target.apart.inc();
        let to = &self.target.label;
        let bodies = parts.len();
        debug!(
            to,
            error = why,
            bodies,
            "sending the bodies of a rejected request one by one"
        );
        DeliveryResult::Apart(parts)
    }

    fn limits(&self) -> WireLimits {
        WireLimits {
            message_bytes_max: self.message_bytes_max,
            ..WireLimits::default()
        }
    }

    /// Sends a request once; `attempt` is the number of earlier attempts. A shutdown does not
    /// interrupt it.
    async fn attempt(&mut self, request: &Request, attempt: u32) -> AttemptResult {
        let begun = Instant::now();
        let settings = self.settings;
        let write = &request.write;
        let posting = settings.deliver.post(PostAttempt {
            headers: headers(write),
            body: write.body.clone(),
            contents: request.contents,
            metrics: 0,
            attempt,
        });
        let outgrown = self.oldest.wait_outgrown(self.bodies, self.env, settings);
        let outcome = tokio::select! {
            outcome = timeout(settings.timeout, posting) => outcome,
            () = outgrown => return AttemptResult::Anew,
            _ = self.changes.changed() => return AttemptResult::Anew,
        };
        let again = |trouble, why| DeliveryVerdict::Again {
            trouble,
            why,
            after: None,
        };
        let verdict = match outcome {
            Ok(Ok(answer)) => {
                self.target.record_attempt_duration(begun.elapsed());
                let verdict = DeliveryVerdict::from_response(
                    &answer,
                    self.env.clock.now_ms(),
                    settings.manner,
                );
                if settings.manner == DeliveryMode::Sender
                    && request_version(write) == RemoteWriteVersion::V2
                {
                    verdict.refine_with_written(&answer, request.contents)
                } else {
                    verdict
                }
            }
            Ok(Err(why)) => again(RetryReason::Connection, why),
            Err(_) => again(
                RetryReason::Timeout,
                format!("no answer in {:?}", settings.timeout),
            ),
        };
        self.judge_attempt(verdict, request)
    }

    /// Counts the result of an attempt, logs failures, and decides how to continue.
    fn judge_attempt(&self, verdict: DeliveryVerdict, request: &Request) -> AttemptResult {
        let target = self.target;
        let was_failing = target.is_failing.get() == 1;
        let is_failing = matches!(verdict, DeliveryVerdict::Again { .. });
        target.is_failing.set(i64::from(is_failing));
        if was_failing && !is_failing {
            info!(to = target.label, "target responds again");
            self.reports.failed.forget();
        }
        match verdict {
            DeliveryVerdict::Taken(missing) => {
                self.record_accepted(request, missing);
                AttemptResult::Done
            }
            DeliveryVerdict::Refused { why, is_of_all } => {
                if !is_of_all && !request.seams.is_none() {
                    return AttemptResult::Apart(why);
                }
                self.refuse(request, why);
                AttemptResult::Done
            }
            DeliveryVerdict::Again {
                trouble,
                why,
                after,
            } => {
                target.count_trouble(trouble);
                target.repeated.add(request.contents);
                if let Some(attempts) = self.reports.failed.count(1) {
                    let to = &target.label;
                    match trouble {
                        // Only other credentials or another URL can solve this.
                        RetryReason::Access => error!(
                            to,
                            error = why,
                            attempts,
                            "target rejects all requests: check its credentials and URL; all \
                             bodies wait"
                        ),
                        _ => warn!(to, error = why, attempts, "request failed: retrying"),
                    }
                }
                AttemptResult::Again(after.unwrap_or_default())
            }
        }
    }

    /// Counts an accepted request. `missing` are the contents that the target did not report as
    /// written.
    fn record_accepted(&self, request: &Request, missing: WriteRequestContents) {
        self.target.count_taken(request, missing);
        if missing.all_samples() + missing.exemplars > 0
            && let Some(requests) = self.reports.unwritten.count(1)
        {
            warn!(
                to = self.target.label,
                samples = missing.samples,
                histograms = missing.histograms,
                exemplars = missing.exemplars,
                requests,
                "target responded with 2xx but wrote fewer samples than it was sent"
            );
        }
    }

    /// Counts and logs a request that the target has rejected for good.
    fn refuse(&self, request: &Request, why: String) {
        self.target.count_refused(request);
        if let Some(bodies) = self.reports.refused.count(1) {
            let to = &self.target.label;
            warn!(to, error = why, bodies, "target rejected a body");
        }
    }

    /// Returns a random time between half of `pause` and all of it, so that targets that failed
    /// together are not retried together.
    fn jittered(&self, pause: Duration) -> Duration {
        let half = pause / 2;
        let range = half.as_micros().max(1) as u64;
        half + Duration::from_micros(self.env.rng.next_u64() % range)
    }
}

/// Returns the version of remote write in which a request is encoded.
fn request_version(write: &ReceivedWrite) -> RemoteWriteVersion {
    match message_type(write) {
        WriteMessageType::V1 => RemoteWriteVersion::V1,
        WriteMessageType::V2 => RemoteWriteVersion::V2,
    }
}

/// Returns the stored headers of `write` with their names.
fn headers(write: &ReceivedWrite) -> Vec<(&'static str, Bytes)> {
    let named = |(at, value): &(usize, Bytes)| Some((*PASSED_HEADERS.get(*at)?, value.clone()));
    write.headers.iter().filter_map(named).collect()
}
