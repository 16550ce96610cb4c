//! [`BucketLog`]: the implementation of [`DurableLog`] on a bucket.

use super::flow::BucketLogShared;
use super::metrics::BucketLogMetrics;
use super::options::BucketLogOptions;
use super::replay_reader::ReplayReader;
use super::state::{BucketLogPhase, BucketLogState, QueuedAppend, UnencodedFrame, WaitingAppend};
use crate::ids::{Epoch, LogTicket, WriterId};
use crate::log::{LogCore, LogEvent, LogState};
use firn_bucket::Bucket;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{
    DurableCallbacks, DurableLog, LogBatch, LogFile, LogHealth, LogPosition, LogPositions,
    LogPressure, LogRecordReader,
};
use firn_model::metrics::{Collect, Gauge};
use firn_model::sync::lock;
use firn_storage::log::PAYLOAD_BYTES_MAX;
use firn_storage::log::codec::LogUnitEncoder;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time by which timers run after a segment is due.
pub(super) const TIMER_SLACK: Duration = Duration::from_millis(2);

/// A log in a bucket, of one partition in one process. Clones are the same log: a store owns one,
/// the owner of the partition another one.
#[derive(Clone)]
pub struct BucketLog(pub(super) Arc<BucketLogShared>);

impl BucketLog {
    /// Creates a log and begins a takeover, and returns at once. The log is ready for a store:
    /// [`DurableLog::read_from`] waits for the records.
    pub fn take_over(
        bucket: Arc<dyn Bucket>,
        env: Env,
        options: BucketLogOptions,
        metrics: Arc<BucketLogMetrics>,
    ) -> Self {
        let writer = loop {
            let random = u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
            // Zero is no writer.
            if random != 0 {
                break WriterId(random);
            }
        };
        let state = BucketLogState::new(LogCore::new(options.core.clone()));
        let shared = Arc::new(BucketLogShared {
            bucket,
            env,
            options,
            metrics,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        shared.step(LogEvent::TakeOver { writer });
        Self(shared)
    }

    /// Runs everything that is due by time: segments of small groups, repeats of failed requests,
    /// the detection of an outage. The owner calls it again after [`BucketLog::timer_pause`].
    pub fn run_timers(&self) {
        self.0.run_timers();
    }

    /// Returns the time after which the timers must run again: `pause`, or more if nothing but the
    /// segment of the oldest waiting record, or of one that arrives now, can be due before.
    pub fn timer_pause(&self, pause: Duration) -> Duration {
        let flush_interval = self.0.options.core.flush_interval;
        let state = lock(&self.0.state);
        let is_ready = state.core.state() == LogState::Leading { is_ready: true };
        if !is_ready || !state.delayed.is_empty() || state.trouble.is_failing() {
            return pause;
        }
        let since = state.waiting.values().next().map(|waiting| waiting.since);
        let due = since.map_or(Duration::MAX, |since| since + flush_interval);
        match due.saturating_sub(self.0.now()) {
            // The segment of the oldest record is being created.
            Duration::ZERO => pause,
            // A record reaches the core a moment after its arrival.
            left => left.min(flush_interval) + TIMER_SLACK,
        }
    }

    /// Returns the phase of the log core.
    pub fn state(&self) -> LogState {
        lock(&self.0.state).core.state()
    }

    /// Returns the epoch of the leadership, or zero before it begins.
    pub fn epoch(&self) -> Epoch {
        lock(&self.0.state).ledger.epoch
    }

    /// Returns the wall-clock time of the last COMMIT that this process wrote, in milliseconds.
    pub fn last_commit_ms(&self) -> Option<i64> {
        lock(&self.0.state).last_commit_ms
    }

    /// Returns the reason for which this process does not write the log any more, if it does not.
    pub fn ended(&self) -> Option<String> {
        match &lock(&self.0.state).phase {
            BucketLogPhase::Ended(reason) => Some(reason.clone()),
            BucketLogPhase::HandedOff => Some("handed off".to_owned()),
            BucketLogPhase::TakingOver | BucketLogPhase::Leading => None,
        }
    }

    /// Returns why this process lost its log, if it did: another process took it over, or the log
    /// contains an object that this version cannot read.
    pub fn fault(&self) -> Option<String> {
        lock(&self.0.state).fault.clone()
    }

    /// Rejects all appends and strong reads from now on, with this reason, and sends nothing more.
    pub fn stop_writes(&self, reason: &str) {
        let mut state = lock(&self.0.state);
        if !state.is_over() {
            state.end(BucketLogPhase::Ended(reason.to_owned()));
        }
        self.0.changed.notify_all();
        self.0.drain(state);
    }

    /// Rejects further appends, and hands off when all earlier ones are durable. Returns at once.
    pub fn begin_hand_off(&self) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        if state.is_encoded() {
            drop(state);
            self.0.step(LogEvent::HandOff);
        }
    }

    /// Waits until `is_done`, an end of the log, or the time limit. Returns whether it is done.
    fn wait_until(&self, is_done: impl Fn(&BucketLogState) -> bool) -> bool {
        let limit = self.0.now() + self.0.options.close_timeout;
        let mut state = lock(&self.0.state);
        while !is_done(&state) {
            let is_over = matches!(state.phase, BucketLogPhase::Ended(_));
            if is_over || self.0.now() >= limit {
                return false;
            }
            state = self.wait(state);
        }
        true
    }

    pub(super) fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, BucketLogState>,
    ) -> MutexGuard<'a, BucketLogState> {
        if let Some(pass_time) = self.0.options.simulated_wait() {
            drop(state);
            pass_time();
            return lock(&self.0.state);
        }
        let interval = self.0.options.poll_interval;
        let waited = self.0.changed.wait_timeout(state, interval);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Gives a frame its position and queues it, or rejects it.
    pub(super) fn enqueue(&self, frame: UnencodedFrame, done: DurableCallbacks) {
        let (bytes, since) = (frame.memory_bytes(), self.0.now());
        let mut state = lock(&self.0.state);
        let position = state.next;
        let refusal = state.refusal(self.0.options.queue_bytes_max);
        let mut checked = refusal.map_or(Ok(()), Err);
        if let UnencodedFrame::Commit { change, .. } = &frame {
            checked = checked.and_then(|()| state.ledger.queue(position, change));
        }
        if let Err(refusal) = checked {
            drop(state);
            return done.report_outcome(Err(refusal));
        }
        state.next = position.next();
        let append = WaitingAppend { done, bytes, since };
        state.insert_waiting(LogTicket(position.0), append);
        state.queue.push(QueuedAppend { position, frame });
        self.0.metrics.queued_bytes.set(state.waiting_bytes as i64);
        self.0.schedule_encoding(state);
    }

    fn unfinished(&self, action: &str) -> Error {
        let state = lock(&self.0.state);
        let text = match &state.phase {
            BucketLogPhase::Ended(reason) => reason.clone(),
            _ => format!(
                "{} records are not durable: {}",
                state.waiting.len(),
                state.trouble.reason()
            ),
        };
        Error::new(ErrorKind::Unavailable, format!("{action} the log: {text}"))
    }
}

/// Returns an error if the record of `batch` is too large for a frame. An encoded record takes less
/// than twice the memory of the batch.
fn check_size(batch: &LogBatch) -> Result<(), Error> {
    if 2 * batch.memory_bytes() < PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    let encoded = LogUnitEncoder::default().encode(LogPosition(1), batch, &mut Vec::new());
    encoded.map(drop)
}

impl DurableLog for BucketLog {
    fn check_append(&self) -> Result<(), Error> {
        let refusal = lock(&self.0.state).refusal(self.0.options.queue_bytes_max);
        refusal.map_or(Ok(()), Err)
    }

    /// Rejects the batch instead of waiting if the queue is full.
    fn append(&self, batch: LogBatch, done: DurableCallbacks) {
        if let Err(refusal) = check_size(&batch) {
            return done.report_outcome(Err(refusal));
        }
        self.enqueue(UnencodedFrame::Batch(Box::new(batch)), done);
    }

    /// Does nothing: no record is held, since the flush interval collects them.
    fn write_held_records(&self) {}

    fn read_from(&self, from: LogPosition) -> Box<dyn LogRecordReader + '_> {
        Box::new(ReplayReader::new(self.0.clone(), from))
    }

    fn positions(&self) -> LogPositions {
        let state = lock(&self.0.state);
        LogPositions {
            first: state.first,
            last: state.next.previous(),
            durable: state.durable,
            growing: LogPosition(1),
            trims_from: LogPosition(u64::MAX),
        }
    }

    fn pressure(&self) -> LogPressure {
        let metrics = &self.0.metrics;
        let bytes_of = |gauge: &Gauge| u64::try_from(gauge.get()).unwrap_or(0);
        let queued_max = self.0.options.queue_bytes_max as u64;
        LogPressure {
            kept_bytes: bytes_of(&metrics.kept_bytes),
            unsealed_bytes: bytes_of(&metrics.unsealed_bytes),
            is_crowded: bytes_of(&metrics.queued_bytes) > queued_max / 2,
            is_disk_full: false,
            free_bytes_min: self.0.options.free_bytes_min,
        }
    }

    fn health(&self) -> LogHealth {
        let state = lock(&self.0.state);
        match &state.phase {
            BucketLogPhase::Ended(reason) => LogHealth::Poisoned(reason.clone()),
            _ if state.trouble.is_stalled => LogHealth::Failing(state.trouble.reason().to_owned()),
            _ => LogHealth::Sound,
        }
    }

    fn tick(&self) {
        self.0.run_timers();
    }

    fn sync(&self) -> Result<(), Error> {
        let last = lock(&self.0.state).next.previous();
        let is_done = |state: &BucketLogState| state.durable >= last;
        if self.wait_until(is_done) {
            Ok(())
        } else {
            Err(self.unfinished("sync"))
        }
    }

    fn begin_unit(&self) -> Result<(), Error> {
        self.sync()?;
        lock(&self.0.state).ends_unit = true;
        Ok(())
    }

    fn files(&self) -> Vec<LogFile> {
        Vec::new()
    }

    fn mark_sealed(&self, to: LogPosition) {
        let sealed = lock(&self.0.state).unsealed.remove_before(to);
        self.0.metrics.unsealed_bytes.add(-(sealed as i64));
    }

    /// Does nothing: the owner of the partition trims a log in a bucket, after a checkpoint.
    fn trim(&self, _to: LogPosition) -> Result<(), Error> {
        Ok(())
    }

    /// Hands off, and waits for it.
    fn close(&self) -> Result<(), Error> {
        lock(&self.0.state).is_closed = true;
        let is_handed_off = |state: &BucketLogState| state.phase == BucketLogPhase::HandedOff;
        let is_encoded = self.wait_until(|state| is_handed_off(state) || state.is_encoded());
        self.begin_hand_off();
        if is_encoded && self.wait_until(is_handed_off) {
            Ok(())
        } else {
            Err(self.unfinished("close"))
        }
    }

    fn abandon(&self) {
        self.stop_writes("the log was abandoned");
    }

    fn remove_all(&self) -> Result<(), Error> {
        let text = "a log in a bucket is not removed by its store".to_owned();
        Err(Error::new(ErrorKind::Invalid, text))
    }

    fn metrics(&self) -> &dyn Collect {
        &*self.0.metrics
    }
}
