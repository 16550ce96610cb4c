//! The commit job, which writes groups of records until the queue is empty.
//!
//! Invariants: there is at most one job, because it owns the only writer; it ends only when the
//! queue is empty or the log is stalled; callbacks run in order of position and outside the lock. A
//! job that panics poisons the log, so that no caller waits for it.

use super::queue::{LogQueueState, QueuedLogRecord, SharedLogState};
use super::stall::{LogStall, LogWriteFault};
use super::writer::LogWriter;
use crate::error::StorageError;
use firn_model::env::JobKind;
use firn_model::error::Error;
use firn_model::sync::lock;
use std::sync::Arc;

/// The commit job. Owns the only writer of the log and returns it when the job ends.
pub(crate) struct LogCommitJob {
    shared: Arc<SharedLogState>,
    /// `None` once the job has ended.
    writer: Option<Box<LogWriter>>,
}

impl LogCommitJob {
    /// Returns a job that owns `writer` until it ends.
    pub(crate) fn new(shared: Arc<SharedLogState>, writer: Box<LogWriter>) -> Self {
        Self {
            shared,
            writer: Some(writer),
        }
    }

    pub(crate) fn writer_mut(&mut self) -> &mut LogWriter {
        self.writer
            .as_mut()
            .expect("taken only by run and drop, which end the job")
    }

    /// Commits groups until the queue is empty or no group can be written.
    pub(crate) fn run(mut self) {
        while let Some(group) = self.next_group() {
            match self.write(&group) {
                Ok(()) => {
                    self.shared.end_stall();
                    for queued in group {
                        queued.done.report_outcome(Ok(queued.position));
                    }
                }
                Err(e) => match self.writer_mut().rewind_to_last_group(&e) {
                    Some(fault) => return self.start_stall(fault, &e, group),
                    None => self.shared.poison_log(&e, group),
                },
            }
        }
    }

    /// Writes a group of records. If a write or sync fails, retries the group at once in a new
    /// segment.
    fn write(&mut self, group: &[QueuedLogRecord]) -> Result<(), StorageError> {
        let stalled = lock(&self.shared.state).stalled.as_ref().map(|s| s.fault);
        let writer = self
            .writer
            .as_mut()
            .expect("taken only by run and drop, which end the job");
        if let Some(fault) = stalled {
            writer.prepare(fault)?;
        }
        let outcome = writer.write(group);
        match &outcome {
            Err(e) if writer.rewind_to_last_group(e) == Some(LogWriteFault::Failed) => {
                self.shared.metrics.faults.inc();
                tracing::error!(
                    error = %e,
                    "write to the log failed: writing the batch again in a new segment"
                );
                writer.prepare(LogWriteFault::Failed)?;
                writer.write(group)
            }
            _ => outcome,
        }
    }

    /// Ends the job and puts `group` back at the front of the queue, where it waits until the disk
    /// can write.
    fn start_stall(
        mut self,
        fault: LogWriteFault,
        error: &StorageError,
        group: Vec<QueuedLogRecord>,
    ) {
        let now = self.shared.env.clock.monotonic();
        let mut state = lock(&self.shared.state);
        let stall = LogStall::new(fault, error, state.stalled.as_ref(), now);
        if state.stalled.as_ref().map(|before| before.fault) != Some(fault) {
            stall.log_stall();
        }
        let refusal = Error::from(stall.refusal());
        state.stalled = Some(stall);
        let behind = std::mem::replace(&mut state.queue, group);
        state.queue.extend(behind);
        state.queued_bytes = state.queue.iter().map(|q| q.bytes).sum();
        let queue = state.queue.iter_mut();
        let delayed: Vec<_> = queue.filter_map(|q| q.done.take_delayed()).collect();
        let metrics = &self.shared.metrics;
        metrics.queued_bytes.set(state.queued_bytes as i64);
        metrics.stalled.set(1);
        metrics
            .disk_full
            .set(i64::from(fault == LogWriteFault::NoRoom));
        state.writer = self.writer.take();
        self.shared.wake_waiters(&state);
        drop(state);
        for delayed in delayed {
            delayed(refusal.clone());
        }
    }

    /// Takes all queued records. If there are none, returns the writer to the shared state and
    /// `None`.
    fn next_group(&mut self) -> Option<Vec<QueuedLogRecord>> {
        let durable = self.writer_mut().durable();
        let mut state = lock(&self.shared.state);
        state.durable = durable;
        self.shared.wake_waiters(&state);
        if state.queue.is_empty() {
            state.writer = self.writer.take();
            return None;
        }
        state.queued_bytes = 0;
        self.shared.metrics.queued_bytes.set(0);
        Some(std::mem::take(&mut state.queue))
    }
}

impl Drop for LogCommitJob {
    fn drop(&mut self) {
        if self.writer.is_some() {
            let cause = "the commit of a batch was aborted".to_owned();
            self.shared
                .poison_log(&StorageError::Poisoned { cause }, Vec::new());
            let mut state = lock(&self.shared.state);
            state.writer = self.writer.take();
            self.shared.wake_waiters(&state);
        }
    }
}

impl SharedLogState {
    /// Wakes the threads that wait for a change of `state`. Skipped if there are none, because a
    /// notification costs a system call.
    fn wake_waiters(&self, state: &LogQueueState) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Returns the writer of `commit` after other work, and commits the records that were queued in
    /// the meantime.
    pub(crate) fn return_writer(&self, mut commit: LogCommitJob) {
        {
            let mut state = lock(&self.state);
            if state.queue.is_empty() || state.stalled.is_some() {
                state.writer = commit.writer.take();
                self.wake_waiters(&state);
                return;
            }
        }
        self.spawn(commit);
    }

    /// Ends a stall, if there is one, after a group was written.
    fn end_stall(&self) {
        let mut state = lock(&self.state);
        let Some(stall) = state.stalled.take() else {
            return;
        };
        self.metrics.stalled.set(0);
        self.metrics.disk_full.set(i64::from(state.disk_full));
        drop(state);
        tracing::info!(after = %stall.cause, "writes to the log succeed again");
    }

    /// Runs `commit` on the log's thread, and returns at once.
    pub(crate) fn spawn(&self, commit: LogCommitJob) {
        self.env
            .compute
            .spawn(JobKind::Log, Box::new(move || commit.run()));
    }

    /// Poisons the log: the records of `group` and all queued ones fail and can never be durable.
    pub(crate) fn poison_log(&self, error: &StorageError, group: Vec<QueuedLogRecord>) {
        let cause = match error {
            StorageError::Poisoned { cause } => cause.clone(),
            other => other.to_string(),
        };
        let waiting = {
            let mut state = lock(&self.state);
            if state.poisoned.is_none() {
                tracing::error!(
                    %cause,
                    "log failed: writes are rejected until restart; check the system's log and \
                     the disk, then restart Firn"
                );
                state.poisoned = Some(cause.clone());
            }
            state.queued_bytes = 0;
            self.metrics.queued_bytes.set(0);
            self.wake_waiters(&state);
            std::mem::take(&mut state.queue)
        };
        self.metrics.poisoned.set(1);
        for queued in group.into_iter().chain(waiting) {
            let cause = cause.clone();
            queued
                .done
                .report_outcome(Err(StorageError::Poisoned { cause }.into()));
        }
    }
}
