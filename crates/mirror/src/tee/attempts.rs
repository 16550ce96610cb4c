//! Requests on their way to a target: attempts until each is taken or refused.
//!
//! ```text
//! request -> attempt -> taken, or refused for good: the next one of its lane
//!              ^  ` again: wait, doubled each time
//!              `---- a body outgrew the bounds meanwhile, or the settings changed: it all ends
//! ```
//!
//! Invariant: one request of a lane is under way at a time, since receivers refuse what is out of
//! order; what becomes of the cursor is left to the courier.

use super::bodies::{Bodies, PASSED_HEADERS, Write};
use super::target::{Loss, Posting, Request, Target, TargetSettings};
use super::verdict::{Trouble, Verdict};
use bytes::Bytes;
use firn_model::env::Env;
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

/// Between two lines of one kind in the log.
const REPORT_PAUSE: Duration = Duration::from_secs(10);

/// A kind of line in the log that may come with every body.
#[derive(Default)]
pub struct Quiet(Mutex<Said>);

#[derive(Default)]
struct Said {
    at: Option<Instant>,
    unsaid: u64,
}

impl Quiet {
    /// Counts `count` more; how many there were since the last line, if it is time for one.
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
        *lock(&self.0) = Said::default();
    }
}

/// What the log was told of a target.
#[derive(Default)]
pub struct Reports {
    /// Bodies that were given up.
    pub lost: Quiet,
    /// Bodies that could not be read.
    pub unreadable: Quiet,
    refused: Quiet,
    failed: Quiet,
}

/// The oldest body of a parcel.
#[derive(Clone, Copy, Debug)]
pub struct Oldest {
    /// Where it begins.
    pub at: u64,
    /// When it came, by the wall clock.
    pub time_ms: TimestampMs,
}

impl Oldest {
    /// How long it may still wait where `max` is the limit.
    pub fn time_left(&self, env: &Env, max: Duration) -> Duration {
        let waited = env.clock.now_ms().saturating_sub(self.time_ms);
        // A clock that was set back makes nothing older.
        max.saturating_sub(Duration::from_millis(u64::try_from(waited).unwrap_or(0)))
    }

    /// Returns when it is beyond what may wait.
    async fn outgrown(&self, bodies: &Bodies, env: &Env, settings: &TargetSettings) {
        let mut end = bodies.follow_end();
        let outgrown = end.wait_for(|end| end - self.at > settings.queue_bytes_max);
        match settings.queue_age_max {
            // An error means that the log is gone, and with it the courier.
            None => drop(outgrown.await),
            Some(max) => tokio::select! {
                _ = outgrown => {}
                () = sleep(self.time_left(env, max)) => {}
            },
        }
    }
}

/// How an attempt ended.
enum Attempted {
    /// The request is done with.
    Done,
    /// The parcel must be looked at anew: it outgrew the bounds, or the settings changed.
    Anew,
    /// It is sent again after this time.
    Again(Duration),
}

/// What sends the requests of one lane.
pub struct Attempts<'c> {
    /// Where they go.
    pub target: &'c Target,
    /// Where their bodies wait.
    pub bodies: &'c Bodies,
    /// Clock and randomness.
    pub env: &'c Env,
    /// What the configuration says of the target.
    pub settings: &'c TargetSettings,
    /// What the log was told.
    pub reports: &'c Reports,
    /// The oldest body of the parcel.
    pub oldest: Oldest,
    /// Tells when the configuration says something else.
    pub changes: watch::Receiver<Arc<TargetSettings>>,
    /// Set once: no further attempt is begun.
    pub stopping: watch::Receiver<bool>,
}

impl Attempts<'_> {
    /// Sends `lane`; whether all of it is done with.
    pub async fn send(mut self, lane: &[Request]) -> bool {
        for request in lane {
            if !self.send_one(request).await {
                return false;
            }
        }
        true
    }

    async fn send_one(&mut self, request: &Request) -> bool {
        let mut pause = self.settings.backoff_min;
        let mut attempt = 0;
        while !*self.stopping.borrow() {
            let after = match self.attempt(request, attempt).await {
                Attempted::Done => return true,
                Attempted::Anew => return false,
                Attempted::Again(after) => after,
            };
            let wait = self.jittered(pause).max(after);
            pause = (pause * 2).min(self.settings.backoff_max);
            attempt += 1;
            let is_due = tokio::select! {
                () = sleep(wait) => true,
                () = self.oldest.outgrown(self.bodies, self.env, self.settings) => false,
                _ = self.changes.changed() => false,
                _ = self.stopping.changed() => false,
            };
            if !is_due {
                return false;
            }
        }
        false
    }

    /// Sends a request once, after `attempt` attempts. One under way is not cut by a stop.
    async fn attempt(&mut self, request: &Request, attempt: u32) -> Attempted {
        let begun = Instant::now();
        let settings = self.settings;
        let write = &request.write;
        let posting = settings.deliver.post(Posting {
            headers: headers(write),
            body: write.body.clone(),
            contents: request.contents,
            metrics: 0,
            attempt,
        });
        let outcome = tokio::select! {
            outcome = timeout(settings.timeout, posting) => outcome,
            () = self.oldest.outgrown(self.bodies, self.env, settings) => return Attempted::Anew,
            _ = self.changes.changed() => return Attempted::Anew,
        };
        let again = |trouble, why| Verdict::Again {
            trouble,
            why,
            after: None,
        };
        let verdict = match outcome {
            Ok(Ok(answer)) => {
                self.target.answered_after(begun.elapsed());
                Verdict::of(&answer, self.env.clock.now_ms())
            }
            Ok(Err(why)) => again(Trouble::Connection, why),
            Err(_) => again(
                Trouble::Timeout,
                format!("no answer in {:?}", settings.timeout),
            ),
        };
        self.judge(verdict, request)
    }

    /// Counts how an attempt ended and tells the log.
    fn judge(&self, verdict: Verdict, request: &Request) -> Attempted {
        let target = self.target;
        let was_failing = target.is_failing.get() == 1;
        let is_failing = matches!(verdict, Verdict::Again { .. });
        target.is_failing.set(i64::from(is_failing));
        if was_failing && !is_failing {
            info!(to = target.label, "target answers again");
            self.reports.failed.forget();
        }
        match verdict {
            Verdict::Taken => {
                target.count_taken(request);
                Attempted::Done
            }
            Verdict::Refused(why) => {
                target.count_lost(Loss::Refused, 1);
                target.refused.add(request.contents);
                if let Some(bodies) = self.reports.refused.count(1) {
                    warn!(
                        to = target.label,
                        error = why,
                        bodies,
                        "target refused a body"
                    );
                }
                Attempted::Done
            }
            Verdict::Again {
                trouble,
                why,
                after,
            } => {
                target.count_trouble(trouble);
                target.repeated.add(request.contents);
                if let Some(attempts) = self.reports.failed.count(1) {
                    warn!(to = target.label, error = why, attempts, "send again");
                }
                Attempted::Again(after.unwrap_or_default())
            }
        }
    }

    /// Between half of `pause` and all of it: targets that failed together do not return together.
    fn jittered(&self, pause: Duration) -> Duration {
        let half = pause / 2;
        let range = half.as_micros().max(1) as u64;
        half + Duration::from_micros(self.env.rng.next_u64() % range)
    }
}

/// The headers of `write`, by name.
fn headers(write: &Write) -> Vec<(&'static str, Bytes)> {
    let named = |(at, value): &(usize, Bytes)| Some((*PASSED_HEADERS.get(*at)?, value.clone()));
    write.headers.iter().filter_map(named).collect()
}
