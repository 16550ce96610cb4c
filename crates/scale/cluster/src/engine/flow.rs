//! The flow of events and actions between the core, the store and the bucket.

use super::block_ledger::LoggedCommit;
use super::metrics::BucketLogMetrics;
use super::options::BucketLogOptions;
use super::state::{
    BucketLogPhase, BucketLogState, DelayedRequest, EngineEffect, LeaseRequestState, ReplayedItem,
    UnencodedFrame,
};
use super::unit_writer::UnitWriter;
use crate::ids::{LogTicket, WriterId};
use crate::log::{
    CommitRequest, CreateOutcome, DeliveredFrame, HeadOutcome, LogAction, LogEvent, LogLoss,
    LogReply, Lookup, StateLookup, StepDownReason,
};
use crate::object_name::ObjectName;
use crate::segment::SegmentFrameKind;
use firn_bucket::Bucket;
use firn_model::env::{Env, JobKind};
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{LogDamage, LogPosition};
use firn_model::sync::lock;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The parts of a log in a bucket, shared with the requests in flight.
pub(super) struct BucketLogShared {
    pub(super) bucket: Arc<dyn Bucket>,
    pub(super) env: Env,
    pub(super) options: BucketLogOptions,
    pub(super) metrics: Arc<BucketLogMetrics>,
    pub(super) state: Mutex<BucketLogState>,
    /// Notified after each event.
    pub(super) changed: Condvar,
}

type Guard<'a> = MutexGuard<'a, BucketLogState>;

impl BucketLogShared {
    pub(super) fn now(&self) -> Duration {
        (self.options.clock)()
    }

    /// Passes an event to the core and carries out the consequences.
    pub(super) fn step(self: &Arc<Self>, event: LogEvent) {
        let mut state = lock(&self.state);
        self.apply(&mut state, event, Duration::ZERO);
        self.drain(state);
    }

    /// Passes the reply to a request to the core. Segments wait while the store reads too slowly.
    pub(super) fn reply(self: &Arc<Self>, writer: WriterId, reply: LogReply) {
        let mut state = lock(&self.state);
        let is_segment = matches!(reply, LogReply::SegmentRead { .. });
        if is_segment && state.replayed_bytes >= self.options.replay_bytes_max {
            state.held_back.push_back((writer, reply));
            return;
        }
        self.apply_reply(&mut state, writer, reply);
        self.drain(state);
    }

    pub(super) fn apply_reply(&self, state: &mut Guard<'_>, writer: WriterId, reply: LogReply) {
        let is_of_creation = matches!(
            reply,
            LogReply::Created { .. } | LogReply::HeaderRead { .. }
        );
        let pause = match (is_failure(&reply), is_of_creation) {
            (false, _) => Duration::ZERO,
            (true, true) => state.trouble.record_failure(self.now()),
            (true, false) => state.trouble.pause_longer(),
        };
        if let LogReply::Created {
            outcome: CreateOutcome::Stored,
            ..
        } = reply
        {
            state.trouble.record_success();
        }
        self.apply(state, LogEvent::Reply { writer, reply }, pause);
    }

    /// Passes an event to the core. Requests that follow from it are sent after `pause`.
    pub(super) fn apply(&self, state: &mut Guard<'_>, event: LogEvent, pause: Duration) {
        if state.is_over() {
            return;
        }
        let now = self.now();
        for action in state.core.step(now, event) {
            // An action may have ended the log; its successors then have no effect.
            if !state.is_over() {
                self.carry_out(state, action, now + pause);
            }
        }
        let waiting = state.waiting_bytes as i64;
        self.metrics.queued_bytes.set(waiting);
        self.changed.notify_all();
    }

    /// Carries out an action under the lock; effects beyond it are queued. Requests are sent at
    /// `due`, if that is later than now.
    fn carry_out(&self, state: &mut BucketLogState, action: LogAction, due: Duration) {
        match action {
            LogAction::Request { writer, request } if due > self.now() => {
                state.delayed.push(DelayedRequest {
                    due,
                    writer,
                    request,
                });
            }
            LogAction::Request { writer, request } => {
                let send = EngineEffect::Send(writer, request);
                state.outbox.push_back(send);
            }
            LogAction::BeginReplay { checkpoint } => self.begin_replay(state, checkpoint),
            LogAction::Deliver(frame) => self.deliver(state, frame),
            LogAction::ReportLoss(loss) => {
                let damage = self.describe_loss(&loss);
                tracing::error!(
                    file = %damage.file.display(),
                    what = %damage.what,
                    "the log is damaged"
                );
                state.replayed.push_back(ReplayedItem::Loss(damage));
            }
            LogAction::Lead { epoch, next } => state.lead(epoch, next),
            LogAction::StepDown { reason } => self.step_down(state, &reason),
            LogAction::Acknowledge { appends } => {
                for (ticket, position) in appends {
                    assert_eq!(ticket.0, position.0, "a record is at its position");
                    state.durable = position;
                    state.finish(ticket, Ok(position));
                }
                self.set_stalled(state, false);
            }
            LogAction::Reject { tickets, reason } => {
                for ticket in tickets {
                    let text = format!("the log did not store the record: {reason:?}");
                    state.finish(ticket, Err(Error::new(ErrorKind::Unavailable, text)));
                }
            }
            LogAction::GrantReads { tickets } => {
                state.settle_reads(tickets, LeaseRequestState::Granted);
            }
            LogAction::RefuseReads { tickets } => {
                state.settle_reads(tickets, LeaseRequestState::Refused);
            }
            LogAction::WriteCheckpoint {
                position,
                version,
                replay_from,
            } => {
                let logged = LoggedCommit {
                    position,
                    version,
                    replay_from,
                };
                state.last_commit_ms = Some(self.env.clock.now_ms());
                if let Err(reason) = state.ledger.apply_own(logged) {
                    state.fail(reason);
                }
            }
            LogAction::Delete { sequences } => {
                state.deletions.add(sequences);
                state.begin_deletions();
            }
        }
    }

    fn deliver(&self, state: &mut BucketLogState, frame: DeliveredFrame) {
        self.count_stored(state, frame.position, frame.payload().len());
        match frame.kind {
            SegmentFrameKind::Record | SegmentFrameKind::DeltaRecord => {
                state.replayed_bytes += frame.payload().len();
                state.replayed.push_back(ReplayedItem::Frame(frame));
            }
            SegmentFrameKind::Commit => {
                if let Err(reason) = state.ledger.apply_replayed(&frame) {
                    state.fail(reason);
                }
            }
            SegmentFrameKind::Barrier => {}
        }
    }

    fn begin_replay(&self, state: &mut BucketLogState, checkpoint: LogPosition) {
        if state.is_read {
            let reason = "another process trimmed the log during the replay".to_owned();
            return state.fail(reason);
        }
        if !state.ledger.begin_replay(checkpoint) {
            let reason = format!("the checkpoint at {} was not read", checkpoint.0);
            return state.fail(reason);
        }
        state.first = state.ledger.list().replay_from.position;
        state.replayed.clear();
        state.replayed_bytes = 0;
        state.unsealed.clear();
        state.kept.clear();
        self.metrics.kept_bytes.set(0);
        self.metrics.unsealed_bytes.set(0);
    }

    fn step_down(&self, state: &mut BucketLogState, reason: &StepDownReason) {
        if *reason == StepDownReason::HandedOff {
            tracing::info!("the log is handed off");
            return state.end(BucketLogPhase::HandedOff);
        }
        if let StepDownReason::Fenced { .. } = reason {
            self.metrics.fenced.inc();
        }
        tracing::error!(%reason, "this process does not write the log any more");
        state.fail(reason.to_string());
    }

    fn describe_loss(&self, loss: &LogLoss) -> LogDamage {
        let partition = self.options.core.partition;
        let file = |sequence| PathBuf::from(ObjectName::Segment(partition, sequence).to_string());
        match *loss {
            LogLoss::Frames { sequence, damage } => {
                self.metrics.lost_records.add(damage.count);
                LogDamage {
                    file: file(sequence),
                    offset: Some(damage.offset as u64),
                    what: damage.to_string(),
                }
            }
            LogLoss::Segment { sequence, bytes } => {
                self.metrics.lost_records.inc();
                LogDamage {
                    file: file(sequence),
                    offset: Some(0),
                    what: format!("the header is damaged, all {bytes} bytes are lost"),
                }
            }
        }
    }

    /// Counts the stored bytes of the record at `position`.
    pub(super) fn count_stored(
        &self,
        state: &mut BucketLogState,
        position: LogPosition,
        bytes: usize,
    ) {
        state.unsealed.add(position, bytes as u64);
        state.kept.add(position, bytes as u64);
        self.metrics.kept_bytes.add(bytes as i64);
        self.metrics.unsealed_bytes.add(bytes as i64);
    }

    /// Begins or ends the rejection of writes.
    pub(super) fn set_stalled(&self, state: &mut BucketLogState, is_stalled: bool) {
        if std::mem::replace(&mut state.trouble.is_stalled, is_stalled) == is_stalled {
            return;
        }
        self.metrics.stalled.set(i64::from(is_stalled));
        if !is_stalled {
            return tracing::info!("the bucket stores the log again: writes are accepted");
        }
        self.metrics.outages.inc();
        let Some(refusal) = state.refusal(self.options.queue_bytes_max) else {
            return;
        };
        tracing::error!(error = %refusal, "writes are rejected until the bucket stores the log");
        let waiting = state.waiting.values_mut();
        let delays: Vec<_> = waiting.filter_map(|w| w.done.take_delayed()).collect();
        for delay in delays {
            let effect = EngineEffect::Delay(Box::new(delay), refusal.clone());
            state.outbox.push_back(effect);
        }
    }

    /// Carries out queued effects, unless another thread does. Callbacks may cause more.
    pub(super) fn drain<'a>(self: &'a Arc<Self>, mut state: Guard<'a>) {
        if state.is_draining {
            return;
        }
        state.is_draining = true;
        while let Some(effect) = state.outbox.pop_front() {
            drop(state);
            match effect {
                EngineEffect::Send(writer, request) => self.send(writer, request),
                EngineEffect::Delete(sequence) => self.delete(sequence),
                EngineEffect::Report(done, outcome) => done.report_outcome(outcome),
                EngineEffect::Delay(delayed, error) => delayed(error),
            }
            state = lock(&self.state);
        }
        state.is_draining = false;
    }

    /// Runs everything that is due by time.
    pub(super) fn run_timers(self: &Arc<Self>) {
        let now = self.now();
        let mut state = lock(&self.state);
        self.apply(&mut state, LogEvent::Tick, Duration::ZERO);
        let (due, later) = std::mem::take(&mut state.delayed)
            .into_iter()
            .partition(|delayed| delayed.due <= now);
        state.delayed = later;
        let due: Vec<DelayedRequest> = due;
        for delayed in due {
            let send = EngineEffect::Send(delayed.writer, delayed.request);
            state.outbox.push_back(send);
        }
        if state.phase == BucketLogPhase::Leading {
            let waits_since = state.waiting.values().next().map(|w| w.since);
            let is_outage = state.trouble.is_outage(&self.options, now, waits_since);
            if is_outage {
                self.set_stalled(&mut state, true);
            }
        }
        self.drain(state);
    }

    /// Encodes queued appends on the thread of the log, unless a job does.
    pub(super) fn schedule_encoding(self: &Arc<Self>, mut state: Guard<'_>) {
        if state.queue.is_empty() {
            return;
        }
        let Some(unit) = state.unit.take() else {
            return;
        };
        drop(state);
        let shared = self.clone();
        let job = Box::new(move || shared.encode_queue(unit));
        self.env.compute.spawn(JobKind::Log, job);
    }

    fn encode_queue(self: &Arc<Self>, mut unit: Box<UnitWriter>) {
        loop {
            let queue = {
                let mut state = lock(&self.state);
                if std::mem::take(&mut state.ends_unit) {
                    unit.end_unit();
                }
                if state.queue.is_empty() {
                    state.unit = Some(unit);
                    if state.is_closed {
                        self.apply(&mut state, LogEvent::HandOff, Duration::ZERO);
                    }
                    self.changed.notify_all();
                    return self.drain(state);
                }
                std::mem::take(&mut state.queue)
            };
            for queued in queue {
                let position = queued.position;
                let event = self.encode(&mut unit, position, queued.frame);
                let mut state = lock(&self.state);
                match event {
                    Ok(event) => {
                        if let LogEvent::Append(append) = &event {
                            self.count_stored(&mut state, position, append.payload.len());
                        }
                        self.apply(&mut state, event, Duration::ZERO);
                    }
                    // Its size was checked, so this is a fault of the encoder.
                    Err(e) => state.fail(e.to_string()),
                }
                self.drain(state);
            }
        }
    }
}

impl BucketLogShared {
    /// Encodes the frame at `position`, which is also its ticket.
    fn encode(
        &self,
        unit: &mut UnitWriter,
        position: LogPosition,
        frame: UnencodedFrame,
    ) -> Result<LogEvent, Error> {
        let ticket = LogTicket(position.0);
        match frame {
            UnencodedFrame::Batch(batch) => {
                let append = unit.encode(&self.options, self.now(), position, &batch)?;
                Ok(LogEvent::Append(append))
            }
            UnencodedFrame::Commit { change, covered } => Ok(LogEvent::Commit(CommitRequest {
                ticket,
                change,
                covered,
                begins_unit: false,
            })),
            UnencodedFrame::Barrier => Ok(LogEvent::Barrier { ticket }),
        }
    }
}

/// Returns whether a reply is a failure, after which requests are repeated later.
fn is_failure(reply: &LogReply) -> bool {
    match reply {
        LogReply::Created { outcome, .. } => {
            matches!(outcome, CreateOutcome::Ambiguous | CreateOutcome::Refused)
        }
        LogReply::HeaderRead { found, .. } => matches!(found, Lookup::Failed | Lookup::Absent),
        LogReply::SegmentRead { found, .. } => matches!(found, Lookup::Failed),
        LogReply::Headed { outcome, .. } => *outcome == HeadOutcome::Failed,
        LogReply::LogListed { segments } => segments.is_none(),
        LogReply::StateRead { found } => *found == StateLookup::Failed,
    }
}
