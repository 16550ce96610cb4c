//! The commit job, which writes groups of records until the queue is empty.
//!
//! Invariants: there is at most one job, because it owns the only writer; it ends only when the
//! queue is empty or the log is stalled; callbacks run in order of position and outside the lock. A
//! job that panics poisons the log, so that no caller waits for it.

use super::queue::{Queued, Shared, State};
use super::stall::{Fault, Stall};
use super::writer::Writer;
use crate::error::StorageError;
use firn_model::env::Work;
use firn_model::error::Error;
use firn_model::sync::lock;
use std::sync::Arc;

/// The commit job. Owns the only writer of the log and returns it when the job ends.
pub(crate) struct Commit {
    shared: Arc<Shared>,
    /// `None` once the job has ended.
    writer: Option<Box<Writer>>,
}

impl Commit {
    /// Returns a job that owns `writer` until it ends.
    pub(crate) fn new(shared: Arc<Shared>, writer: Box<Writer>) -> Self {
        Self {
            shared,
            writer: Some(writer),
        }
    }

    pub(crate) fn writer_mut(&mut self) -> &mut Writer {
        self.writer
            .as_mut()
            .expect("taken only by run and drop, which end the job")
    }

    /// Commits groups until the queue is empty or no group can be written.
    pub(crate) fn run(mut self) {
        while let Some(group) = self.next_group() {
            match self.write(&group) {
                Ok(()) => {
                    self.shared.go_on();
                    for queued in group {
                        queued.done.done(Ok(queued.position));
                    }
                }
                Err(e) => match self.writer_mut().step_back(&e) {
                    Some(fault) => return self.stall(fault, &e, group),
                    None => self.shared.fail(&e, group),
                },
            }
        }
    }

    /// Writes a group of records. If a write or sync fails, retries the group at once in a new
    /// segment.
    fn write(&mut self, group: &[Queued]) -> Result<(), StorageError> {
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
            Err(e) if writer.step_back(e) == Some(Fault::Failed) => {
                self.shared.metrics.faults.inc();
                tracing::error!(
                    error = %e,
                    "write to the log failed: writing the batch again in a new segment"
                );
                writer.prepare(Fault::Failed)?;
                writer.write(group)
            }
            _ => outcome,
        }
    }

    /// Ends the job and puts `group` back at the front of the queue, where it waits until the disk
    /// can write.
    fn stall(mut self, fault: Fault, error: &StorageError, group: Vec<Queued>) {
        let now = self.shared.env.clock.monotonic();
        let mut state = lock(&self.shared.state);
        let stall = Stall::new(fault, error, state.stalled.as_ref(), now);
        if state.stalled.as_ref().map(|before| before.fault) != Some(fault) {
            stall.announce();
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
        metrics.disk_full.set(i64::from(fault == Fault::NoRoom));
        state.writer = self.writer.take();
        self.shared.signal(&state);
        drop(state);
        for delayed in delayed {
            delayed(refusal.clone());
        }
    }

    /// Takes all queued records. If there are none, returns the writer to the shared state and
    /// `None`.
    fn next_group(&mut self) -> Option<Vec<Queued>> {
        let durable = self.writer_mut().durable();
        let mut state = lock(&self.shared.state);
        state.durable = durable;
        self.shared.signal(&state);
        if state.queue.is_empty() {
            state.writer = self.writer.take();
            return None;
        }
        state.queued_bytes = 0;
        self.shared.metrics.queued_bytes.set(0);
        Some(std::mem::take(&mut state.queue))
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        if self.writer.is_some() {
            let cause = "the commit of a batch was aborted".to_owned();
            self.shared
                .fail(&StorageError::Poisoned { cause }, Vec::new());
            let mut state = lock(&self.shared.state);
            state.writer = self.writer.take();
            self.shared.signal(&state);
        }
    }
}

impl Shared {
    /// Wakes the threads that wait for a change of `state`. Skipped if there are none, because a
    /// notification costs a system call.
    fn signal(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Returns the writer of `commit` after other work, and commits the records that were queued in
    /// the meantime.
    pub(crate) fn give_back(&self, mut commit: Commit) {
        {
            let mut state = lock(&self.state);
            if state.queue.is_empty() || state.stalled.is_some() {
                state.writer = commit.writer.take();
                self.signal(&state);
                return;
            }
        }
        self.spawn(commit);
    }

    /// Ends a stall, if there is one, after a group was written.
    fn go_on(&self) {
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
    pub(crate) fn spawn(&self, commit: Commit) {
        self.env
            .compute
            .spawn(Work::Log, Box::new(move || commit.run()));
    }

    /// Poisons the log: the records of `group` and all queued ones fail and can never be durable.
    pub(crate) fn fail(&self, error: &StorageError, group: Vec<Queued>) {
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
            self.signal(&state);
            std::mem::take(&mut state.queue)
        };
        self.metrics.poisoned.set(1);
        for queued in group.into_iter().chain(waiting) {
            let cause = cause.clone();
            queued
                .done
                .done(Err(StorageError::Poisoned { cause }.into()));
        }
    }
}
