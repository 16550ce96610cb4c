//! Late samples of the log on their way back into the head.
//!
//! They were never appended in order, so nothing that pages hold says whether they are elsewhere:
//! that is what a position of the log says, up to which blocks hold them. Those behind it go into
//! the tables that they came from, under the numbers that they had, so that of two at one time the
//! same one stays as before. All of them are visible to everyone.

use super::Replay;
use super::series::ReplaySeries;
use crate::chunk::Sample;
use crate::failpoints::{self, Flaw};
use crate::head::late::LateRow;
use crate::ids::Slot;
use crate::index::Marker;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::lock;
use firn_model::log::{LogBatch, Position};
use firn_model::sample::TimestampMs;

/// A late row of the log.
struct LogRow {
    slot: Slot,
    start: TimestampMs,
    row: LateRow,
}

/// What replay knows of late samples.
pub(super) struct LateReplay {
    /// Blocks hold those of records up to here.
    from: Position,
    /// The greatest number of a batch that brought some.
    newest: AtomicU64,
    /// Rows whose series is not known yet.
    orphans: Mutex<Vec<LogRow>>,
}

impl LateReplay {
    /// Blocks hold the late samples of records up to `from`.
    pub(super) fn new(from: Position) -> Self {
        Self {
            from,
            newest: AtomicU64::new(0),
            orphans: Mutex::default(),
        }
    }

    /// The greatest number of a batch that brought late samples, as far as the log was read.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// Takes the late samples that blocks hold out of the batch at `position`.
    pub(super) fn leave(&self, position: Position, batch: &mut LogBatch) {
        if !batch.has_late() {
            return;
        }
        if failpoints::has(Flaw::NumbersLateByPosition) {
            batch.late_order = position.0;
        }
        self.newest.fetch_max(batch.late_order, Ordering::Relaxed);
        if position <= self.from {
            batch.late_floats = Default::default();
            batch.late_histograms.clear();
        }
    }
}

impl Replay<'_> {
    /// Puts the late samples of a batch into the tables of their shards; those of series that are
    /// not known wait.
    pub(super) fn apply_late_of(&self, batch: &LogBatch, known: &ReplaySeries) {
        let sequence = batch.late_order;
        let row = |time, value| LateRow {
            time,
            sequence,
            value,
        };
        let floats = batch.late_floats.iter().map(|float| LogRow {
            slot: Slot(float.slot),
            start: float.start,
            row: row(float.time, Sample::Float(float.value)),
        });
        let histograms = batch.late_histograms.iter().map(|histogram| LogRow {
            slot: Slot(histogram.slot),
            start: histogram.start,
            row: row(histogram.time, Sample::Histogram(histogram.value.clone())),
        });
        let unknown = self.apply_late_rows(floats.chain(histograms), known);
        lock(&self.late.orphans).extend(unknown);
    }

    /// Puts rows into the tables of their shards; returns those of series that are not known.
    fn apply_late_rows(
        &self,
        rows: impl Iterator<Item = LogRow>,
        known: &ReplaySeries,
    ) -> Vec<LogRow> {
        let mut unknown = Vec::new();
        let (mut marker, mut numbers) = (Marker::default(), known.groups.cursor());
        for LogRow { slot, start, row } in rows {
            // Also of slots that no series has: a series created later must not inherit them.
            self.note_slot(slot);
            let Some((series, place)) = known.find(&mut numbers, slot) else {
                unknown.push(LogRow { slot, start, row });
                continue;
            };
            if failpoints::has(Flaw::SkipsLateSealed) && known.is_sealed(series, row.time) {
                continue;
            }
            let (number, local) = self.store.shard_and_local(place);
            self.store.index.mark_late(&mut marker, series, row.time);
            let mut shard = lock(&self.store.shards[number]);
            shard.late.insert(local, row, start);
        }
        unknown
    }

    /// Puts the late samples whose series stood in a later record into the tables. Those without
    /// any belong to removed series, or to series whose creation was never acked.
    pub(super) fn end_late(&self) {
        let orphans = std::mem::take(&mut *lock(&self.late.orphans));
        self.apply_late_rows(orphans.into_iter(), &lock(&self.known));
        let shards = self.store.shards.iter();
        let bytes: usize = shards.map(|shard| lock(shard).late.memory_bytes()).sum();
        self.store.metrics.late_memory.set(bytes as i64);
    }
}
