//! The task of one target: takes its bodies from the log in order and sends one at a time.
//!
//! ```text
//! bounds kept -> next body -> what the target wants of it -> attempt -> taken or refused: next
//!    ^                                                          ` again: wait, doubled each time
//!    `---- a body outgrew the bounds meanwhile, or the settings changed: the attempt ends
//! ```
//!
//! One body is under way at a time: a second one could arrive before the first, and receivers
//! refuse what is out of order. Invariant: the cursor moves only over bodies that were taken,
//! refused for good, not wanted, or counted as lost; nothing here waits for another target.

use super::bodies::{Bodies, Entry, Found, PASSED_HEADERS, Write};
use super::filter::Filtered;
use super::target::{Loss, Target, TargetSettings};
use super::verdict::{Trouble, Verdict};
use bytes::Bytes;
use firn_model::env::Env;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

/// After a read that failed; the body counts as damaged after so many of them.
const READ_PAUSE: Duration = Duration::from_secs(1);
const READ_ATTEMPTS_MAX: u32 = 5;

/// Between two lines of one kind in the log.
const REPORT_PAUSE: Duration = Duration::from_secs(10);

/// What a courier works with.
pub struct Courier {
    /// Its target.
    pub target: Arc<Target>,
    /// Where bodies come from.
    pub bodies: Bodies,
    /// Clock and randomness.
    pub env: Env,
    /// Bytes that an unpacked message may have.
    pub message_bytes_max: usize,
    /// What the configuration says now.
    pub settings: watch::Receiver<Arc<TargetSettings>>,
    /// Set once: no further attempt is begun.
    pub stopping: watch::Receiver<bool>,
}

/// A body that was read, ready to be sent.
struct Ready {
    entry: Entry,
    filtered: Filtered,
}

/// A kind of line in the log that may come with every body.
#[derive(Default)]
struct Quiet {
    said: Option<Instant>,
    unsaid: u64,
}

impl Quiet {
    /// Counts `count` more; how many there were since the last line, if it is time for one.
    fn count(&mut self, count: u64) -> Option<u64> {
        self.unsaid += count;
        if self.said.is_some_and(|at| at.elapsed() < REPORT_PAUSE) {
            return None;
        }
        self.said = Some(Instant::now());
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// What the log was told of a target.
#[derive(Default)]
struct Reports {
    lost: Quiet,
    refused: Quiet,
    unreadable: Quiet,
    failed: Quiet,
}

/// How an attempt ended.
enum Attempted {
    /// The body is done with.
    Done,
    /// It must be looked at anew: it outgrew the bounds, or the settings changed.
    Anew,
    /// It is sent again after this time.
    Again(Duration),
}

impl Courier {
    /// Sends until it is told to stop. An attempt under way is not cut.
    pub async fn run(mut self) {
        let mut ready = VecDeque::new();
        let mut reports = Reports::default();
        let mut failed_reads = 0;
        let mut prepared_by = self.settings.borrow().clone();
        // An error means that the target is gone.
        while !*self.stopping.borrow() && self.settings.has_changed().is_ok() {
            let settings = self.settings.borrow_and_update().clone();
            if !Arc::ptr_eq(&settings, &prepared_by) {
                // Other filters may prepare something else.
                ready.clear();
                prepared_by = settings.clone();
            }
            self.keep_queue_bytes(&settings, &mut reports).await;
            let cursor = self.target.cursor();
            while ready.front().is_some_and(|r: &Ready| r.entry.at != cursor) {
                ready.pop_front();
            }
            if ready.is_empty() {
                match self.read(&settings).await {
                    Ok(Some(found)) => {
                        failed_reads = 0;
                        ready = found;
                    }
                    Ok(None) => self.wait_for_bodies().await,
                    Err(e) => {
                        failed_reads += 1;
                        warn!(to = self.target.label, error = %e, "read bodies");
                        if failed_reads >= READ_ATTEMPTS_MAX {
                            failed_reads = 0;
                            self.give_up_segment();
                        }
                        sleep(READ_PAUSE).await;
                    }
                }
                continue;
            }
            let Some(next) = ready.front() else { continue };
            self.target.oldest_ms.set(next.entry.time_ms);
            self.deliver(next, &settings, &mut reports).await;
        }
    }

    /// Reads what comes next and prepares it; none at the end of the log.
    async fn read(
        &self,
        settings: &Arc<TargetSettings>,
    ) -> std::io::Result<Option<VecDeque<Ready>>> {
        let at = self.target.cursor();
        if at >= self.bodies.end() {
            self.target.oldest_ms.set(0);
            return Ok(None);
        }
        let recent = self.bodies.recent(at);
        if settings.prepare.passes_all()
            && let Some(entries) = recent
        {
            return Ok(Some(prepare(entries, settings, self.message_bytes_max)));
        }
        let (bodies, settings) = (self.bodies.clone(), settings.clone());
        let bytes_max = self.message_bytes_max;
        let reading = spawn_blocking(move || {
            let found = match recent {
                Some(entries) => Found::Entries(entries),
                None => bodies.read(at)?,
            };
            Ok(match found {
                Found::Damaged { to, what } => Err((to, what)),
                Found::Entries(entries) => Ok(prepare(entries, &settings, bytes_max)),
            })
        });
        let read: std::io::Result<_> = reading.await.map_err(std::io::Error::other)?;
        match read? {
            Ok(ready) => Ok(Some(ready)),
            Err((to, what)) => {
                warn!(
                    to = self.target.label,
                    from = at,
                    to,
                    what,
                    "pass over lost bodies"
                );
                self.target.count_lost(Loss::Damaged, 1);
                self.target.advance(to);
                Ok(Some(VecDeque::new()))
            }
        }
    }

    fn give_up_segment(&self) {
        let to = self.bodies.segment_end(self.target.cursor());
        self.target.count_lost(Loss::Damaged, 1);
        self.target.advance(to);
    }

    async fn wait_for_bodies(&mut self) {
        let mut end = self.bodies.follow_end();
        let cursor = self.target.cursor();
        tokio::select! {
            // Errors mean that the other side is gone, which is a stop.
            _ = end.wait_for(|end| *end > cursor) => {}
            _ = self.settings.changed() => {}
            _ = self.stopping.changed() => {}
        }
    }

    /// Gives up the oldest bodies beyond what may wait.
    async fn keep_queue_bytes(&self, settings: &TargetSettings, reports: &mut Reports) {
        let (from, end) = (self.target.cursor(), self.bodies.end());
        let max = settings.queue_bytes_max;
        if end - from <= max {
            return;
        }
        let bodies = self.bodies.clone();
        let passing = spawn_blocking(move || {
            let (mut at, mut count) = (from, 0);
            while end - at > max {
                // Where no body begins the whole segment is passed over, which counts as one.
                at = match bodies.peek(at) {
                    Ok((next, _)) => next,
                    Err(_) => bodies.segment_end(at),
                };
                count += 1;
            }
            (at, count)
        });
        let Ok((at, count)) = passing.await else {
            return;
        };
        self.lose(at, Loss::QueueFull, count, reports);
    }

    fn lose(&self, to: u64, loss: Loss, count: u64, reports: &mut Reports) {
        self.target.count_lost(loss, count);
        self.target.advance(to);
        if let Some(bodies) = reports.lost.count(count) {
            let reason = loss.label();
            warn!(
                to = self.target.label,
                reason, bodies, "give up the oldest bodies"
            );
        }
    }

    /// Sends a body until it is done with, or must be looked at anew.
    async fn deliver(&mut self, ready: &Ready, settings: &TargetSettings, reports: &mut Reports) {
        let entry = &ready.entry;
        let left = settings
            .queue_age_max
            .map(|max| time_left(&self.env, entry, max));
        if left.is_some_and(|left| left.is_zero()) {
            return self.lose(entry.end, Loss::TooOld, 1, reports);
        }
        let body = match &ready.filtered {
            Filtered::Body(body) => body,
            Filtered::Nothing => {
                self.target.filtered.inc();
                return self.target.advance(entry.end);
            }
            Filtered::Unreadable(why) => {
                self.target.count_lost(Loss::Unreadable, 1);
                if let Some(bodies) = reports.unreadable.count(1) {
                    let label = &self.target.label;
                    warn!(
                        to = label,
                        error = why,
                        bodies,
                        "filters cannot read a body"
                    );
                }
                return self.target.advance(entry.end);
            }
        };
        let mut pause = settings.backoff_min;
        loop {
            match self.attempt(entry, body, settings, reports).await {
                Attempted::Done => return self.target.advance(entry.end),
                Attempted::Anew => return,
                Attempted::Again(after) => {
                    let wait = self.jittered(pause).max(after);
                    pause = (pause * 2).min(settings.backoff_max);
                    let is_due = tokio::select! {
                        () = sleep(wait) => true,
                        () = outgrown(&self.bodies, &self.env, entry, settings) => false,
                        _ = self.settings.changed() => false,
                        _ = self.stopping.changed() => false,
                    };
                    if !is_due {
                        return;
                    }
                }
            }
        }
    }

    /// Sends a body once.
    async fn attempt(
        &mut self,
        entry: &Entry,
        body: &Bytes,
        settings: &TargetSettings,
        reports: &mut Reports,
    ) -> Attempted {
        let begun = Instant::now();
        let posting = settings.deliver.post(headers(&entry.write), body.clone());
        let outcome = tokio::select! {
            outcome = timeout(settings.timeout, posting) => outcome,
            () = outgrown(&self.bodies, &self.env, entry, settings) => return Attempted::Anew,
            _ = self.settings.changed() => return Attempted::Anew,
        };
        let again = |trouble, why| Verdict::Again {
            trouble,
            why,
            after: None,
        };
        let verdict = match outcome {
            Ok(Ok(answer)) => {
                self.target.latency.observe(begun.elapsed());
                Verdict::of(&answer, self.env.clock.now_ms())
            }
            Ok(Err(why)) => again(Trouble::Connection, why),
            Err(_) => again(
                Trouble::Timeout,
                format!("no answer in {:?}", settings.timeout),
            ),
        };
        self.judge(verdict, body, reports)
    }

    /// Counts how an attempt ended and tells the log.
    fn judge(&self, verdict: Verdict, body: &Bytes, reports: &mut Reports) -> Attempted {
        let target = &self.target;
        let was_failing = target.is_failing.get() == 1;
        let is_failing = matches!(verdict, Verdict::Again { .. });
        target.is_failing.set(i64::from(is_failing));
        if was_failing && !is_failing {
            info!(to = target.label, "target answers again");
            reports.failed = Quiet::default();
        }
        match verdict {
            Verdict::Taken => {
                target.sent.inc();
                target.sent_bytes.add(body.len() as u64);
                Attempted::Done
            }
            Verdict::Refused(why) => {
                target.count_lost(Loss::Refused, 1);
                if let Some(bodies) = reports.refused.count(1) {
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
                if let Some(attempts) = reports.failed.count(1) {
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

/// What the target wants of these bodies.
fn prepare(entries: Vec<Entry>, settings: &TargetSettings, bytes_max: usize) -> VecDeque<Ready> {
    let ready = |entry: Entry| Ready {
        filtered: settings.prepare.prepare(&entry.write, bytes_max),
        entry,
    };
    entries.into_iter().map(ready).collect()
}

/// The headers of `write`, by name.
fn headers(write: &Write) -> Vec<(&'static str, Bytes)> {
    let named = |(at, value): &(usize, Bytes)| Some((*PASSED_HEADERS.get(*at)?, value.clone()));
    write.headers.iter().filter_map(named).collect()
}

/// How long `entry` may still wait.
fn time_left(env: &Env, entry: &Entry, max: Duration) -> Duration {
    let waited = env.clock.now_ms().saturating_sub(entry.time_ms);
    // A clock that was set back makes nothing older.
    max.saturating_sub(Duration::from_millis(u64::try_from(waited).unwrap_or(0)))
}

/// Returns when `entry` is beyond what may wait.
async fn outgrown(bodies: &Bodies, env: &Env, entry: &Entry, settings: &TargetSettings) {
    let mut end = bodies.follow_end();
    let outgrown = end.wait_for(|end| end - entry.at > settings.queue_bytes_max);
    match settings.queue_age_max {
        // An error means that the log is gone, and with it the courier.
        None => drop(outgrown.await),
        Some(max) => tokio::select! {
            _ = outgrown => {}
            () = sleep(time_left(env, entry, max)) => {}
        },
    }
}
