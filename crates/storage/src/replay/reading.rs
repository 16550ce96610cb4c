//! The log as replay reads it, and between which times its damage lies.
//!
//! What a damaged record held is not known. It came between its neighbours, so its samples lay
//! between theirs, or nearly: that is the range which is reported, and of which queries are warned.

use crate::damage::{Damage, Damages};
use firn_model::log::{LogBatch, LogDamage, Tail};
use firn_model::sample::TimeRange;

/// The log while it is read, and the damage met so far.
pub(super) struct Reading<'a> {
    pub(super) tail: Box<dyn Tail + 'a>,
    /// The times of the record before.
    before: Option<TimeRange>,
    /// Damage whose next sound record was not read yet.
    open: Vec<Damage>,
}

impl<'a> Reading<'a> {
    /// Begins to read `tail`.
    pub(super) fn new(tail: Box<dyn Tail + 'a>) -> Self {
        Self {
            tail,
            before: None,
            open: Vec::new(),
        }
    }

    /// Notes damage behind `last`, or behind what was read before if there is no such record.
    pub(super) fn meet(&mut self, damage: LogDamage, last: Option<&LogBatch>) {
        self.remember(last);
        self.add(Damage::of_log(damage));
    }

    /// Notes damage behind what was read.
    pub(super) fn add(&mut self, damage: Damage) {
        let range = damage.range.or(self.before);
        self.open.push(damage.within(range));
    }

    /// Notes a sound record: damage before it ends there, and is reported.
    pub(super) fn go_on(&mut self, batch: &LogBatch, damages: &Damages) {
        if self.open.is_empty() {
            return;
        }
        let after = batch.time_range();
        for damage in self.open.drain(..) {
            let anytime_before = || after.map(|after| TimeRange::new(i64::MIN, after.max));
            let before = damage.range.or_else(anytime_before);
            let range = TimeRange::hull_of(before, after);
            damages.report(damage.within(range));
        }
    }

    /// Notes the last record of those that were read.
    pub(super) fn remember(&mut self, last: Option<&LogBatch>) {
        self.before = last.and_then(LogBatch::time_range).or(self.before);
    }

    /// Reports the damage at the end of the log.
    pub(super) fn end(self, damages: &Damages) {
        for damage in self.open {
            // How far it went, or from where, is not known.
            let from = damage.range.map_or(i64::MIN, |range| range.min);
            let open_end = TimeRange::new(from, i64::MAX);
            damages.report(damage.within(Some(open_end)));
        }
    }
}
