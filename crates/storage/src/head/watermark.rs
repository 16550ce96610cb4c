//! Atomic visibility: which batches are complete, and up to where readers may look.
//!
//! Every batch has a sequence number. It is taken under a shard's lock and shards are entered in
//! one order, so each shard applies batches in the order of their numbers. A batch is *complete*
//! when its log record is durable; the *watermark* is the largest number below which all are
//! complete. A reader cuts every series at the watermark it began with, so it sees all of a batch
//! or nothing; a ticket resolves when the watermark has passed its batch, so what was acked is seen
//! by every later reader.
//!
//! While a record cannot be written the watermark stands, reads go on, and tickets are refused
//! early; once it is durable its batch becomes visible with all behind it. After a record that can
//! never be durable the watermark stands for good.

use crate::failpoints::{self, Flaw};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, lock, wait};
use firn_model::error::{Error, ErrorKind};
use firn_model::log::Position;
use firn_model::store::{Appended, TicketResolver};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Debug, Default)]
struct State {
    /// Complete numbers above the watermark.
    complete: BTreeSet<u64>,
    waiting: BTreeMap<u64, (TicketResolver, Appended)>,
    /// Watermarks of readers that are still copying, with how many have it.
    readers: BTreeMap<u64, usize>,
    /// Durable records by position, with the numbers of their batches, that are not all visible
    /// yet.
    durable: VecDeque<(Position, u64)>,
    visible_position: Position,
    failure: Option<Error>,
    /// Why records wait to be written, while they do.
    delay: Option<Error>,
}

/// The watermark of a store.
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    taken: AtomicU64,
    visible: AtomicU64,
    /// No reader needs to be told apart what lies at or below.
    floor: AtomicU64,
    state: Mutex<State>,
    /// Signalled when a reader ends.
    ended: Condvar,
}

impl Watermark {
    /// Takes the next number. The caller holds the lock of the first shard.
    pub(crate) fn next(self: &Arc<Self>) -> Taken {
        Taken {
            sequence: self.taken.fetch_add(1, Ordering::Relaxed) + 1,
            watermark: self.clone(),
            is_settled: false,
        }
    }

    /// The newest number that was taken.
    pub(crate) fn newest(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// What no reader needs to be told apart from what is visible to all.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Begins to read at the watermark.
    pub(crate) fn read(&self) -> Reading<'_> {
        let mut state = lock(&self.state);
        let sequence = self.visible.load(Ordering::Acquire);
        *state.readers.entry(sequence).or_default() += 1;
        Reading {
            watermark: self,
            sequence,
        }
    }

    /// Begins to read what every reader sees, the oldest one included.
    pub(crate) fn read_floor(&self) -> Reading<'_> {
        let mut state = lock(&self.state);
        let visible = self.visible.load(Ordering::Acquire);
        let oldest = state.readers.keys().next().copied();
        let sequence = oldest.unwrap_or(visible);
        *state.readers.entry(sequence).or_default() += 1;
        Reading {
            watermark: self,
            sequence,
        }
    }

    /// Waits until no reader is left that must not see what is visible now.
    pub(crate) fn wait_for_readers(&self) {
        let mut state = lock(&self.state);
        let visible = self.visible.load(Ordering::Acquire);
        while state.readers.keys().next().is_some_and(|r| *r < visible) {
            state = wait(&self.ended, state);
        }
    }

    /// The watermark, and a position up to which every record is of a batch at or below it.
    pub(crate) fn mark(&self) -> (u64, Position) {
        let state = lock(&self.state);
        (self.visible.load(Ordering::Acquire), state.visible_position)
    }

    /// Batch `sequence` is complete, with its record at `position` if it needed one. The ticket
    /// resolves when all before are complete too.
    fn complete(
        &self,
        sequence: u64,
        position: Option<Position>,
        resolver: TicketResolver,
        appended: Appended,
    ) {
        let mut state = lock(&self.state);
        if let Some(failure) = state.failure.clone() {
            drop(state);
            return resolver.resolve(Err(failure));
        }
        if position.is_some() {
            state.delay = None;
        } else if let Some(delay) = &state.delay {
            // It became durable with batches that wait.
            resolver.refuse_early(delay.clone());
        }
        state.complete.insert(sequence);
        state.waiting.insert(sequence, (resolver, appended));
        state
            .durable
            .extend(position.map(|position| (position, sequence)));
        let mut visible = self.visible.load(Ordering::Relaxed);
        while state.complete.remove(&(visible + 1))
            || failpoints::has(Flaw::ShowsOutOfOrder) && visible < sequence
        {
            visible += 1;
        }
        // Release: a reader that sees the number sees the samples.
        self.visible.store(visible, Ordering::Release);
        while let Some((position, _)) = state.durable.pop_front_if(|(_, s)| *s <= visible) {
            state.visible_position = position;
        }
        let later = state.waiting.split_off(&(visible + 1));
        let done = std::mem::replace(&mut state.waiting, later);
        self.publish_floor(&state);
        drop(state);
        for (resolver, appended) in done.into_values() {
            resolver.resolve(Ok(appended));
        }
    }

    /// The record of a batch waits for a disk that cannot write: the tickets of that batch, and of
    /// those behind it, are refused early. All of them become visible once the record is durable.
    pub(crate) fn delay(&self, reason: &Error) {
        let mut state = lock(&self.state);
        state.delay = Some(reason.clone());
        for (resolver, _) in state.waiting.values() {
            resolver.refuse_early(reason.clone());
        }
    }

    /// A batch can never be complete, and so none after it.
    fn fail(&self, error: &Error) {
        let mut state = lock(&self.state);
        let failure = Error::new(
            ErrorKind::Unavailable,
            format!("an earlier write is not durable: {error}"),
        );
        state.failure.get_or_insert(failure.clone());
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (resolver, _) in waiting.into_values() {
            resolver.resolve(Err(failure.clone()));
        }
    }

    /// Everything up to `position` was there before the first batch, whose number will be the one
    /// after `sequence`.
    pub(crate) fn start_at(&self, position: Position, sequence: u64) {
        let mut state = lock(&self.state);
        state.visible_position = position;
        self.taken.store(sequence, Ordering::Relaxed);
        self.visible.store(sequence, Ordering::Release);
        self.publish_floor(&state);
    }

    fn publish_floor(&self, state: &State) {
        let visible = self.visible.load(Ordering::Relaxed);
        let mut readers = state.readers.keys();
        let oldest = match failpoints::has(Flaw::RaisesFloorEarly) {
            true => readers.next_back(),
            false => readers.next(),
        };
        self.floor
            .store(oldest.copied().unwrap_or(visible), Ordering::Release);
    }
}

/// The number of a batch under way. Dropped unsettled, as by a panic, it fails the watermark,
/// so that no ticket waits for a number that never completes.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The number.
    pub(crate) sequence: u64,
    watermark: Arc<Watermark>,
    is_settled: bool,
}

impl Taken {
    /// The batch is complete, with its record at `position` if it needed one. The ticket resolves
    /// when all before are complete too.
    pub(crate) fn complete(
        mut self,
        position: Option<Position>,
        resolver: TicketResolver,
        appended: Appended,
    ) {
        self.is_settled = true;
        self.watermark
            .complete(self.sequence, position, resolver, appended);
    }

    /// The batch can never be complete, and so none after it.
    pub(crate) fn fail(mut self, error: Error, resolver: TicketResolver) {
        self.is_settled = true;
        self.watermark.fail(&error);
        resolver.resolve(Err(error));
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.is_settled {
            let error = Error::new(ErrorKind::Internal, "the write was aborted".to_owned());
            self.watermark.fail(&error);
        }
    }
}

/// A reader that copies what was visible when it began.
pub(crate) struct Reading<'a> {
    watermark: &'a Watermark,
    /// The watermark it began with.
    pub(crate) sequence: u64,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.watermark.state);
        if let Some(count) = state.readers.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                state.readers.remove(&self.sequence);
            }
        }
        self.watermark.publish_floor(&state);
        drop(state);
        self.watermark.ended.notify_all();
    }
}
