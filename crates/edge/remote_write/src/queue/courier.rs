//! The task of one target: reads bodies from the log in order and delivers the wanted part of them.
//!
//! ```text
//! read bodies -> prepare parcels -> full, or its oldest body has waited long enough
//!   -> requests of all lanes in parallel -> all completed: the cursor advances
//! ```
//!
//! Only one parcel is in flight at a time, and in it one request of each lane, because receivers
//! reject out-of-order samples. Invariant: the cursor advances only over bodies that were accepted,
//! finally rejected, not wanted, or counted as lost. A courier never waits for another target.
//! After an incomplete parcel, its requests are sent again, in order.

use super::attempts::{LaneSender, OldestBody, TargetLogLimiters};
use super::bodies::{BodyLog, BodyLogEntry, BodyLogRead};
use super::target::{
    BodyLossReason, DeliveryTarget, Request, RequestParcel, TargetSettings, WantedBodies,
};
use firn_model::env::Env;
use firn_wire::remote_write::WriteRequestContents;
use futures_util::future::join_all;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;

/// Pause after a failed read. After the maximum number of attempts, the segment counts as damaged.
const READ_PAUSE: Duration = Duration::from_secs(1);
const READ_ATTEMPTS_MAX: u32 = 5;

/// Backlog of a target from which several lanes are used: the time that it would take with one
/// lane.
const BEHIND: Duration = Duration::from_secs(1);

/// Duration of requests below which one lane is better: distributing a body with 2,000 samples over
/// lanes takes half as long.
const QUICK: Duration = Duration::from_millis(5);

/// The state of one target's delivery task. [`Courier::run`] is spawned when the target is added to
/// the configuration.
pub struct Courier {
    /// The target to which it delivers, with cursor and metrics.
    pub target: Arc<DeliveryTarget>,
    /// The log from which bodies are read, shared by all couriers.
    pub bodies: BodyLog,
    /// Clock and random numbers, which tests replace.
    pub env: Env,
    /// Maximum length of an uncompressed message in bytes, for decoding.
    pub message_bytes_max: usize,
    /// The current configuration of the target, which may change at any time.
    pub settings: watch::Receiver<Arc<TargetSettings>>,
    /// Set once at shutdown, after which no attempt begins.
    pub stopping: watch::Receiver<bool>,
}

/// A parcel that is ready to be sent, with the positions of its bodies.
struct ReadyParcel {
    oldest: OldestBody,
    /// Position at which its last body ends and the cursor moves to.
    end: u64,
    parcel: RequestParcel,
}

/// State of the delivery between two steps of [`Courier::run`], kept only in memory.
#[derive(Default)]
struct CourierProgress {
    ready: VecDeque<ReadyParcel>,
    reports: TargetLogLimiters,
    failed_reads: u32,
    /// Position of the oldest body of a parcel that has waited long enough for further bodies.
    waited_for: Option<u64>,
}

impl Courier {
    /// Delivers bodies until shutdown or until the target is removed. A running attempt is not
    /// interrupted by a shutdown.
    pub async fn run(mut self) {
        let mut progress = CourierProgress::default();
        let mut prepared_by = self.settings.borrow().clone();
        // An error means that the target has been removed.
        while !*self.stopping.borrow() && self.settings.has_changed().is_ok() {
            let settings = self.settings.borrow_and_update().clone();
            if !Arc::ptr_eq(&settings, &prepared_by) {
                // Other settings may result in other parcels.
                progress.ready.clear();
                prepared_by = settings.clone();
            }
            self.keep_queue_bytes(&settings, &progress.reports).await;
            let cursor = self.target.cursor();
            let ready = &mut progress.ready;
            while ready.front().is_some_and(|r| r.oldest.at != cursor) {
                ready.pop_front();
            }
            match ready.front() {
                None => self.find(&settings, &mut progress).await,
                Some(next) if self.may_grow(next, &settings, progress.waited_for) => {
                    if self.wait_to_fill(next, &settings).await {
                        progress.waited_for = Some(cursor);
                    }
                    // The parcel is prepared again with the bodies that have arrived in the
                    // meantime.
                    progress.ready.clear();
                }
                Some(next) => {
                    self.target.oldest_ms.set(next.oldest.time_ms);
                    self.deliver(next, &settings, &progress.reports).await;
                }
            }
        }
    }

    /// Reads and prepares the next bodies, or waits for them. After repeated read errors the
    /// segment is given up.
    async fn find(&mut self, settings: &Arc<TargetSettings>, progress: &mut CourierProgress) {
        match self.read(settings).await {
            Ok(Some(found)) => {
                progress.failed_reads = 0;
                self.note_ready(&found);
                progress.ready = found;
            }
            Ok(None) => self.wait_for_bodies().await,
            Err(e) => {
                progress.failed_reads += 1;
                warn!(to = self.target.label, error = %e, "failed to read bodies");
                if progress.failed_reads >= READ_ATTEMPTS_MAX {
                    progress.failed_reads = 0;
                    self.skip_segment();
                }
                sleep(READ_PAUSE).await;
            }
        }
    }

    /// Records the contents of prepared parcels, from which the backlog is estimated.
    fn note_ready(&self, ready: &VecDeque<ReadyParcel>) {
        let (Some(first), Some(last)) = (ready.front(), ready.back()) else {
            return;
        };
        let mut made = ready.iter().filter_map(|one| match &one.parcel.wanted {
            WantedBodies::Lanes(lanes) => Some(lanes.iter().flatten()),
            WantedBodies::Nothing | WantedBodies::Unreadable(_) => None,
        });
        let contents = made.by_ref().flatten().map(|request| request.contents);
        let contents = contents
            .reduce(WriteRequestContents::merged_with)
            .unwrap_or_default();
        let bytes = last.end.saturating_sub(first.oldest.at);
        self.target.record_prepared(bytes, contents);
    }

    /// Reads and prepares the next bodies; returns `None` at the end of the log.
    async fn read(
        &self,
        settings: &Arc<TargetSettings>,
    ) -> std::io::Result<Option<VecDeque<ReadyParcel>>> {
        let at = self.target.cursor();
        if at >= self.bodies.end() {
            self.target.oldest_ms.set(0);
            return Ok(None);
        }
        let recent = self.bodies.recent(at);
        let backlog = self.backlog(at);
        if let Some(entries) = &recent
            && backlog.is_quick(entries, settings)
        {
            return Ok(Some(backlog.prepare(entries, settings)));
        }
        let (bodies, settings) = (self.bodies.clone(), settings.clone());
        let reading = spawn_blocking(move || {
            let found = match recent {
                Some(entries) => BodyLogRead::Entries(entries),
                None => bodies.read(at)?,
            };
            Ok(match found {
                BodyLogRead::Damaged { to, what } => Err((to, what)),
                BodyLogRead::Entries(entries) => Ok(backlog.prepare(&entries, &settings)),
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
                    "skipping lost bodies"
                );
                self.target.count_lost(BodyLossReason::Damaged, 1);
                self.target.advance(to);
                Ok(Some(VecDeque::new()))
            }
        }
    }

    fn backlog(&self, at: u64) -> TargetBacklog {
        TargetBacklog {
            bytes: self.bodies.end().saturating_sub(at),
            attempt: self.target.recent(),
            message_bytes_max: self.message_bytes_max,
        }
    }

    fn skip_segment(&self) {
        let to = self.bodies.segment_end(self.target.cursor());
        self.target.count_lost(BodyLossReason::Damaged, 1);
        self.target.advance(to);
    }

    async fn wait_for_bodies(&mut self) {
        let mut end = self.bodies.follow_end();
        let cursor = self.target.cursor();
        tokio::select! {
            // Errors mean that the other side has been dropped, which counts as a stop.
            _ = end.wait_for(|end| *end > cursor) => {}
            _ = self.settings.changed() => {}
            _ = self.stopping.changed() => {}
        }
    }

    /// Returns whether `next` is at the end of the log, not full, and may still wait for more
    /// bodies.
    fn may_grow(
        &self,
        next: &ReadyParcel,
        settings: &TargetSettings,
        waited_for: Option<u64>,
    ) -> bool {
        !next.parcel.is_full
            && next.end >= self.bodies.end()
            && waited_for != Some(next.oldest.at)
            && !next.oldest.time_left(&self.env, settings.fill).is_zero()
    }

    /// Waits until as many bytes have arrived as `next` contains, so that preparing it again costs
    /// no more than the new bodies. Returns true if the time has expired instead.
    async fn wait_to_fill(&mut self, next: &ReadyParcel, settings: &TargetSettings) -> bool {
        let mut end = self.bodies.follow_end();
        let enough = next.end + (next.end - next.oldest.at);
        tokio::select! {
            () = sleep(next.oldest.time_left(&self.env, settings.fill)) => true,
            _ = end.wait_for(|end| *end >= enough) => false,
            _ = self.settings.changed() => false,
            _ = self.stopping.changed() => false,
        }
    }

    /// Drops the oldest bodies beyond the size limit of the queue.
    async fn keep_queue_bytes(&self, settings: &TargetSettings, reports: &TargetLogLimiters) {
        let (from, end) = (self.target.cursor(), self.bodies.end());
        let max = settings.queue_bytes_max;
        if end - from <= max {
            return;
        }
        let bodies = self.bodies.clone();
        let passing = spawn_blocking(move || {
            let (mut at, mut count) = (from, 0);
            let mut lost = WriteRequestContents::default();
            while end - at > max {
                // If no valid body begins here, the rest of the segment is skipped and counts as
                // one body.
                at = match bodies.peek(at) {
                    Ok((next, _, contents)) => {
                        lost = lost.merged_with(contents.unwrap_or_default());
                        next
                    }
                    Err(_) => bodies.segment_end(at),
                };
                count += 1;
            }
            (at, count, lost)
        });
        let Ok((at, count, lost)) = passing.await else {
            return;
        };
        self.target.overflowed.add(lost);
        self.drop_until(at, BodyLossReason::QueueFull, count, reports);
    }

    fn drop_until(&self, to: u64, loss: BodyLossReason, count: u64, reports: &TargetLogLimiters) {
        self.target.count_lost(loss, count);
        self.target.advance(to);
        if let Some(bodies) = reports.lost.count(count) {
            let reason = loss.label();
            warn!(
                to = self.target.label,
                reason, bodies, "dropping the oldest bodies"
            );
        }
    }

    /// Sends a parcel and advances the cursor if it was completed. Otherwise the parcel must be
    /// prepared again.
    async fn deliver(
        &self,
        next: &ReadyParcel,
        settings: &TargetSettings,
        reports: &TargetLogLimiters,
    ) {
        let bodies = next.parcel.bodies as u64;
        let max = settings.queue_age_max;
        let left = max.map(|max| next.oldest.time_left(&self.env, max));
        if left.is_some_and(|left| left.is_zero()) {
            return self.drop_until(next.end, BodyLossReason::TooOld, bodies, reports);
        }
        let is_done = match &next.parcel.wanted {
            WantedBodies::Lanes(lanes) => self.send(next.oldest, lanes, settings, reports).await,
            WantedBodies::Nothing => {
                self.target.filtered.add(bodies);
                true
            }
            WantedBodies::Unreadable(why) => {
                self.target.count_lost(BodyLossReason::Unreadable, bodies);
                if let Some(bodies) = reports.unreadable.count(bodies) {
                    let label = &self.target.label;
                    warn!(
                        to = label,
                        error = why,
                        bodies,
                        "cannot decode a body for filtering"
                    );
                }
                true
            }
        };
        if is_done {
            self.target.dropped.add(next.parcel.dropped);
            self.target.advance(next.end);
        }
    }

    /// Sends all lanes in parallel. Returns whether all of them were completed.
    async fn send(
        &self,
        oldest: OldestBody,
        lanes: &[Vec<Request>],
        settings: &TargetSettings,
        reports: &TargetLogLimiters,
    ) -> bool {
        self.target.lanes.set(lanes.len() as i64);
        let sending = lanes.iter().map(|lane| {
            let attempts = LaneSender {
                target: &self.target,
                bodies: &self.bodies,
                env: &self.env,
                settings,
                message_bytes_max: self.message_bytes_max,
                reports,
                oldest,
                changes: self.settings.clone(),
                stopping: self.stopping.clone(),
            };
            attempts.send(lane)
        });
        join_all(sending).await.into_iter().all(|is_done| is_done)
    }
}

/// Backlog of a target and recent duration of its requests, from which the use of lanes is decided.
#[derive(Clone, Copy, Debug)]
struct TargetBacklog {
    /// Length of the queue in the log, in bytes.
    bytes: u64,
    /// Recent mean duration of an attempt to the target.
    attempt: Duration,
    /// Maximum length of an uncompressed message in bytes.
    message_bytes_max: usize,
}

impl TargetBacklog {
    /// Returns whether delivering the backlog with one lane would take longer than [`BEHIND`],
    /// assuming bodies like `entries`.
    fn is_behind(&self, entries: &[BodyLogEntry]) -> bool {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return false;
        };
        let bytes = last.end.saturating_sub(first.at).max(1);
        let bodies = self.bytes as f64 / bytes as f64 * entries.len() as f64;
        self.attempt > QUICK && self.attempt.as_secs_f64() * bodies > BEHIND.as_secs_f64()
    }

    /// Returns whether [`TargetBacklog::prepare`] is fast enough to run on the current thread.
    fn is_quick(&self, entries: &[BodyLogEntry], settings: &TargetSettings) -> bool {
        let writes: Vec<_> = entries.iter().map(|entry| &entry.write).collect();
        settings.prepare.is_quick(&writes, self.is_behind(entries))
    }

    /// Prepares parcels of `entries`, the oldest queued bodies.
    fn prepare(
        &self,
        entries: &[BodyLogEntry],
        settings: &TargetSettings,
    ) -> VecDeque<ReadyParcel> {
        let writes: Vec<_> = entries.iter().map(|entry| &entry.write).collect();
        let (bytes_max, is_behind) = (self.message_bytes_max, self.is_behind(entries));
        let parcels = settings.prepare.prepare(&writes, bytes_max, is_behind);
        join_positions(entries, parcels)
    }
}

/// Combines each parcel with the positions of the bodies from which it was made.
fn join_positions(entries: &[BodyLogEntry], parcels: Vec<RequestParcel>) -> VecDeque<ReadyParcel> {
    let mut entries = entries.iter();
    let ready = parcels.into_iter().filter_map(|parcel| {
        let first = entries.next()?;
        let last = match parcel.bodies {
            0 | 1 => first,
            bodies => entries.nth(bodies - 2).unwrap_or(first),
        };
        Some(ReadyParcel {
            oldest: OldestBody {
                at: first.at,
                time_ms: first.time_ms,
            },
            end: last.end,
            parcel,
        })
    });
    ready.collect()
}
