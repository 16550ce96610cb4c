//! The job that commits groups until the queue is empty.
//!
//! Invariants: there is one at most, because it holds the only writer; the writer is back in its
//! place only when the queue is empty; callbacks run in order of position and outside the lock. A
//! job that is unwound by a panic poisons the log, so that nobody waits for it.

use super::writer::Writer;
use super::{Queued, Shared, State, lock};
use crate::error::StorageError;
use firn_model::env::Work;
use std::sync::Arc;

/// See the module.
pub(crate) struct Commit {
    shared: Arc<Shared>,
    /// There until the job is dropped.
    writer: Option<Box<Writer>>,
}

impl Commit {
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

    /// Commits groups until none is left.
    fn run(mut self) {
        while let Some(group) = self.next_group() {
            match self.writer_mut().write(&group) {
                Ok(()) => {
                    for queued in group {
                        (queued.done)(Ok(queued.position));
                    }
                }
                Err(e) => self.shared.fail(&e, group),
            }
        }
    }

    /// Takes what is queued, or gives the writer back.
    fn next_group(&mut self) -> Option<Vec<Queued>> {
        let mut state = lock(&self.shared.state);
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
            let cause = "the commit of a group was given up".to_owned();
            self.shared
                .fail(&StorageError::Poisoned { cause }, Vec::new());
            let mut state = lock(&self.shared.state);
            state.writer = self.writer.take();
            self.shared.signal(&state);
        }
    }
}

impl Shared {
    /// Wakes those who wait for a change of `state`. To signal is a system call, also if nobody
    /// waits.
    fn signal(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Ends `commit`, which did something else than commit, and serves what queued up meanwhile.
    pub(crate) fn give_back(&self, mut commit: Commit) {
        {
            let mut state = lock(&self.state);
            if state.queue.is_empty() {
                state.writer = commit.writer.take();
                self.signal(&state);
                return;
            }
        }
        self.spawn(commit);
    }

    /// Runs `commit` on the log's thread.
    pub(crate) fn spawn(&self, commit: Commit) {
        self.env
            .compute
            .spawn(Work::Log, Box::new(move || commit.run()));
    }

    /// Poisons the log: `group` and all that waits will never be durable.
    pub(crate) fn fail(&self, error: &StorageError, group: Vec<Queued>) {
        let cause = match error {
            StorageError::Poisoned { cause } => cause.clone(),
            other => other.to_string(),
        };
        let waiting = {
            let mut state = lock(&self.state);
            if state.poisoned.is_none() {
                tracing::error!(%cause, "log poisoned: writes are refused until restart");
                state.poisoned = Some(cause.clone());
            }
            state.queued_bytes = 0;
            self.signal(&state);
            std::mem::take(&mut state.queue)
        };
        self.metrics.poisoned.set(1);
        self.metrics.queued_bytes.set(0);
        for queued in group.into_iter().chain(waiting) {
            let cause = cause.clone();
            (queued.done)(Err(StorageError::Poisoned { cause }.into()));
        }
    }
}
