//! The log as replay reads it, and between which times its damage lies.
//!
//! What a damaged record held is not known. It came between its neighbours, so its samples lay
//! between theirs, or nearly: that is the range which is reported, and of which queries are warned.

use crate::damage::{Damage, Damages};
use crate::log::record::RecordReader;
use firn_model::log::{LogDamage, Tail};
use firn_model::sample::TimeRange;

/// See the module.
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

    /// Damage was met behind `last`, or behind what was read before if there is no such record.
    pub(super) fn meet(&mut self, damage: LogDamage, last: Option<&Vec<u8>>) {
        self.remember(last);
        self.add(Damage::of_log(damage));
    }

    /// There is damage behind what was read.
    pub(super) fn add(&mut self, damage: Damage) {
        let range = damage.range.or(self.before);
        self.open.push(damage.within(range));
    }

    /// A sound record was read: damage before it ends there.
    pub(super) fn go_on(&mut self, payload: &[u8], damages: &Damages) {
        if self.open.is_empty() {
            return;
        }
        let after = times_of(payload);
        for damage in self.open.drain(..) {
            let range = match (damage.range, after) {
                (Some(a), Some(b)) => Some(TimeRange::new(a.min.min(b.min), a.max.max(b.max))),
                (Some(a), None) => Some(a),
                (None, after) => after.map(|after| TimeRange::new(i64::MIN, after.max)),
            };
            damages.report(damage.within(range));
        }
    }

    /// The last record of those that were read.
    pub(super) fn remember(&mut self, last: Option<&Vec<u8>>) {
        let times = last.and_then(|payload| times_of(payload));
        self.before = times.or(self.before);
    }

    /// The log ends here.
    pub(super) fn end(self, damages: &Damages) {
        for damage in self.open {
            // Nobody knows how far it went, or from where.
            let from = damage.range.map_or(i64::MIN, |range| range.min);
            let open_end = TimeRange::new(from, i64::MAX);
            damages.report(damage.within(Some(open_end)));
        }
    }
}

/// From the oldest sample of a record to the newest.
fn times_of(payload: &[u8]) -> Option<TimeRange> {
    let block = RecordReader::new(payload).ok()?;
    let (mut range, mut histograms): (Option<TimeRange>, _) = (None, Vec::new());
    let mut add = |time: i64| {
        let known = range.unwrap_or(TimeRange::new(time, time));
        range = Some(TimeRange::new(known.min.min(time), known.max.max(time)));
    };
    // What stands before damage counts.
    let _ = block.samples(|row| add(row.time), &mut histograms);
    histograms.iter().for_each(|row| add(row.time));
    range
}
