//! Atomic visibility of batches: tracks which batches are complete, and which ones readers may see.
//!
//! Every batch has a sequence number. The number is assigned under the lock of the first shard, and
//! all batches enter the shards in the same order, so each shard applies batches in ascending
//! order. A batch is *complete* when its log record is durable. The *watermark* is the largest
//! number up to which all batches are complete. A reader hides all samples above the watermark that
//! it began with, so it sees a batch in full or not at all. The ticket of a batch resolves when the
//! watermark has passed the batch, so every later reader sees all acked samples.
//!
//! While a record cannot be written, the watermark does not advance, reads continue, and tickets
//! are rejected early. Once the record is durable, its batch becomes visible with all later ones.
//! After a record that can never become durable, the watermark does not advance any more.

use crate::failpoints::{self, StoreFlaw};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, lock, wait};
use firn_model::error::{Error, ErrorKind};
use firn_model::log::LogPosition;
use firn_model::store::{AppendOutcome, TicketResolver};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// State behind the lock: completed batches, waiting tickets and active readers.
#[derive(Debug, Default)]
struct WatermarkState {
    /// Complete sequence numbers above the watermark.
    complete: BTreeSet<u64>,
    waiting: BTreeMap<u64, (TicketResolver, AppendOutcome)>,
    /// Watermarks of readers that are still copying, with the number of readers at each.
    readers: BTreeMap<u64, usize>,
    /// Durable records by position, with the sequence numbers of their batches, that are not all
    /// visible yet.
    durable: VecDeque<(LogPosition, u64)>,
    visible_position: LogPosition,
    failure: Option<Error>,
    /// The error that delays the records, while they wait to be written.
    delay: Option<Error>,
}

/// The watermark of a store, shared by all appenders and readers.
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    taken: AtomicU64,
    visible: AtomicU64,
    /// Every current and future reader may see all batches up to this sequence number.
    floor: AtomicU64,
    state: Mutex<WatermarkState>,
    /// Notified when a reader ends.
    ended: Condvar,
}

impl Watermark {
    /// Assigns the next sequence number. The caller must hold the lock of the first shard.
    pub(crate) fn begin_batch(self: &Arc<Self>) -> SequenceGuard {
        SequenceGuard {
            sequence: self.taken.fetch_add(1, Ordering::Relaxed) + 1,
            watermark: self.clone(),
            is_settled: false,
        }
    }

    /// Returns the newest assigned sequence number, whose batch may not be visible yet.
    pub(crate) fn newest(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// Returns the watermark: every later reader sees all batches up to it.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Returns the sequence number up to which every current and future reader sees all batches.
    pub(crate) fn visible_to_all(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Begins a read at the current watermark. Batches above it stay hidden from this reader.
    pub(crate) fn begin_read(&self) -> WatermarkReadGuard<'_> {
        let mut state = lock(&self.state);
        let sequence = self.visible.load(Ordering::Acquire);
        // Shards forget batches up to the floor, so a reader below it would see parts of them.
        let floor = self.visible_to_all();
        assert!(floor <= sequence, "reader at {sequence}, floor at {floor}");
        *state.readers.entry(sequence).or_default() += 1;
        WatermarkReadGuard {
            watermark: self,
            sequence,
        }
    }

    /// Begins a read at the watermark of the oldest active reader, so that it sees only samples
    /// that all readers see.
    pub(crate) fn begin_read_visible_to_all(&self) -> WatermarkReadGuard<'_> {
        let mut state = lock(&self.state);
        let visible = self.visible.load(Ordering::Acquire);
        let oldest = state.readers.keys().next().copied();
        let sequence = oldest.unwrap_or(visible);
        // A reader began at the watermark of its time, which never moves back.
        assert!(sequence <= visible, "reader at {sequence} of {visible}");
        *state.readers.entry(sequence).or_default() += 1;
        WatermarkReadGuard {
            watermark: self,
            sequence,
        }
    }

    /// Waits until every reader that began below the current watermark has ended.
    pub(crate) fn wait_for_readers(&self) {
        let mut state = lock(&self.state);
        let visible = self.visible.load(Ordering::Acquire);
        while state.readers.keys().next().is_some_and(|r| *r < visible) {
            state = wait(&self.ended, state);
        }
    }

    /// Returns the watermark, and a log position up to which every record belongs to a batch at or
    /// below the watermark.
    pub(crate) fn visible_position(&self) -> (u64, LogPosition) {
        let state = lock(&self.state);
        (self.visible.load(Ordering::Acquire), state.visible_position)
    }

    /// Returns a log position up to which all records of visible batches are. Records of other
    /// batches may be before it.
    pub(crate) fn durable_position(&self) -> LogPosition {
        let state = lock(&self.state);
        let last = state.durable.back().map(|(position, _)| *position);
        last.unwrap_or(state.visible_position)
    }

    /// Marks batch `sequence` as complete, with its record at `position` if it needed one. The
    /// ticket resolves when all earlier batches are complete too.
    fn complete(
        &self,
        sequence: u64,
        position: Option<LogPosition>,
        resolver: TicketResolver,
        appended: AppendOutcome,
    ) {
        let mut state = lock(&self.state);
        if let Some(failure) = state.failure.clone() {
            drop(state);
            return resolver.resolve(Err(failure));
        }
        if position.is_some() {
            state.delay = None;
        } else if let Some(delay) = &state.delay {
            // The batch is complete but waits for earlier ones that are delayed.
            resolver.reject_early(delay.clone());
        }
        let is_new = state.complete.insert(sequence);
        assert!(is_new, "batch {sequence} completed twice");
        state.waiting.insert(sequence, (resolver, appended));
        if let Some(position) = position {
            // The log reports records in their order, so that all records up to the position of a
            // visible batch are in `durable` before it is removed.
            let last = state.durable.back().map_or(state.visible_position, |d| d.0);
            assert!(last < position, "record {position:?} after {last:?}");
            state.durable.push_back((position, sequence));
        }
        let mut visible = self.visible.load(Ordering::Relaxed);
        assert!(
            visible < sequence || failpoints::has(StoreFlaw::ShowsOutOfOrder),
            "batch {sequence} completes below the watermark {visible}"
        );
        while state.complete.remove(&(visible + 1))
            || failpoints::has(StoreFlaw::ShowsOutOfOrder) && visible < sequence
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

    /// Records that a log record waits for a disk that cannot write. The tickets of its batch and
    /// of later ones are rejected early; all of these batches become visible once the record is
    /// durable.
    pub(crate) fn record_delay(&self, reason: &Error) {
        let mut state = lock(&self.state);
        state.delay = Some(reason.clone());
        for (resolver, _) in state.waiting.values() {
            resolver.reject_early(reason.clone());
        }
    }

    /// Records that a batch can never be complete. All waiting and later batches fail with it.
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

    /// Initializes the watermark after replay: all records up to `position` are visible, and the
    /// next batch gets the sequence number after `sequence`.
    pub(crate) fn initialize(&self, position: LogPosition, sequence: u64) {
        let mut state = lock(&self.state);
        state.visible_position = position;
        self.taken.store(sequence, Ordering::Relaxed);
        self.visible.store(sequence, Ordering::Release);
        self.publish_floor(&state);
    }

    /// Sets the floor to the watermark of the oldest active reader, or to the current one without
    /// readers.
    fn publish_floor(&self, state: &WatermarkState) {
        let visible = self.visible.load(Ordering::Relaxed);
        let mut readers = state.readers.keys();
        let oldest = if failpoints::has(StoreFlaw::RaisesFloorEarly) {
            readers.next_back()
        } else {
            readers.next()
        };
        let floor = oldest.copied().unwrap_or(visible);
        assert!(
            floor <= visible,
            "floor {floor} above the watermark {visible}"
        );
        let before = self.floor.swap(floor, Ordering::Release);
        assert!(
            before <= floor || failpoints::has(StoreFlaw::RaisesFloorEarly),
            "floor moved from {before} back to {floor}"
        );
    }
}

/// The sequence number of a batch in progress. If it is dropped without a result, for example by a
/// panic, the watermark fails, so that no ticket waits for a number that never completes.
#[derive(Debug)]
pub(crate) struct SequenceGuard {
    /// The sequence number that was assigned to the batch.
    pub(crate) sequence: u64,
    watermark: Arc<Watermark>,
    is_settled: bool,
}

impl SequenceGuard {
    /// Marks the batch as complete, with its record at `position` if it needed one. The ticket
    /// resolves when all earlier batches are complete too.
    pub(crate) fn complete(
        mut self,
        position: Option<LogPosition>,
        resolver: TicketResolver,
        appended: AppendOutcome,
    ) {
        self.is_settled = true;
        self.watermark
            .complete(self.sequence, position, resolver, appended);
    }

    /// Marks the batch as failed, and with it all later ones.
    pub(crate) fn fail(mut self, error: Error, resolver: TicketResolver) {
        self.is_settled = true;
        self.watermark.fail(&error);
        resolver.resolve(Err(error));
    }
}

impl Drop for SequenceGuard {
    fn drop(&mut self) {
        if !self.is_settled {
            let error = Error::new(ErrorKind::Internal, "the write was aborted".to_owned());
            self.watermark.fail(&error);
        }
    }
}

/// A reader that copies the samples that were visible when it began. Unregisters when dropped.
pub(crate) struct WatermarkReadGuard<'a> {
    watermark: &'a Watermark,
    /// The watermark that the reader began with.
    pub(crate) sequence: u64,
}

impl Drop for WatermarkReadGuard<'_> {
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
