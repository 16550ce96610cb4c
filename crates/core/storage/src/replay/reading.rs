//! Reads the log for replay, and determines the time ranges of damaged records.
//!
//! The content of a damaged record is lost. It was written between its neighbours, so its samples
//! were at or near the times of theirs. This range is reported, and queries of it return a warning.

use crate::damage::{Damage, DamageList};
use firn_model::log::{LogBatch, LogDamage, LogRecordReader};
use firn_model::sample::TimeRange;

/// The log being read, with the damage found so far.
pub(super) struct LogReplayReader<'a> {
    pub(super) tail: Box<dyn LogRecordReader + 'a>,
    /// Time range of the previous record.
    before: Option<TimeRange>,
    /// Damage after which no valid record was read yet.
    open: Vec<Damage>,
}

impl<'a> LogReplayReader<'a> {
    /// Returns a reader of the records of `tail` that has not read any.
    pub(super) fn new(tail: Box<dyn LogRecordReader + 'a>) -> Self {
        Self {
            tail,
            before: None,
            open: Vec::new(),
        }
    }

    /// Records damage after the batch `last`, or after the previous one if it is `None`.
    pub(super) fn record_log_damage(&mut self, damage: LogDamage, last: Option<&LogBatch>) {
        self.set_last_batch(last);
        self.record_damage(Damage::for_log(damage));
    }

    /// Records damage after the records read so far.
    pub(super) fn record_damage(&mut self, damage: Damage) {
        let range = damage.range.or(self.before);
        self.open.push(damage.with_time_range(range));
    }

    /// Records a valid batch: reports the damage before it, whose range ends here.
    pub(super) fn record_batch(&mut self, batch: &LogBatch, damages: &DamageList) {
        if self.open.is_empty() {
            return;
        }
        let after = batch.time_range();
        for damage in self.open.drain(..) {
            let anytime_before = || after.map(|after| TimeRange::new(i64::MIN, after.max));
            let before = damage.range.or_else(anytime_before);
            let range = TimeRange::hull_of(before, after);
            damages.report(damage.with_time_range(range));
        }
    }

    /// Records the last of the batches read so far.
    pub(super) fn set_last_batch(&mut self, last: Option<&LogBatch>) {
        self.before = last.and_then(LogBatch::time_range).or(self.before);
    }

    /// Reports the damage at the end of the log.
    pub(super) fn finish(self, damages: &DamageList) {
        for damage in self.open {
            // The extent of the damage is unknown at one or both ends.
            let from = damage.range.map_or(i64::MIN, |range| range.min);
            let open_end = TimeRange::new(from, i64::MAX);
            damages.report(damage.with_time_range(Some(open_end)));
        }
    }
}
