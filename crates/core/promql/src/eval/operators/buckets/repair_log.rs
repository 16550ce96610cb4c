//! Records the corrections of classic histograms, step by step.
//!
//! Prometheus adds the annotations of a step to those of the previous steps twice, so the reported
//! number of histograms doubles with each further step. The number is part of a text that users
//! compare, so it is computed in the same way here, including overflow.

use crate::ast::PositionRange;
use crate::eval::annotations::{Annotation, BucketRepairs, QueryAnnotations};

/// The corrections of classic histograms, summarized by metric name.
#[derive(Debug, Default)]
pub(super) struct RepairLog(Vec<RepairLogEntry>);

#[derive(Debug)]
struct RepairLogEntry {
    name: Vec<u8>,
    repairs: BucketRepairs,
    /// Number of corrected histograms at each step of the query.
    by_step: Vec<i64>,
}

impl RepairLog {
    /// Adds the correction of a histogram at one of `steps` steps.
    pub(super) fn add(&mut self, name: &[u8], steps: usize, step: usize, repairs: BucketRepairs) {
        if let Some(known) = self.0.iter_mut().find(|e| e.name == name) {
            known.repairs = known.repairs.merge(repairs);
            known.by_step[step] += 1;
            return;
        }
        let mut by_step = vec![0; steps];
        by_step[step] = 1;
        self.0.push(RepairLogEntry {
            name: name.to_vec(),
            repairs,
            by_step,
        });
    }

    /// Adds all entries of the log of other histograms.
    pub(super) fn merge(&mut self, other: RepairLog) {
        self.merge_by(other, |known, more| known + more);
    }

    /// Adds the log of another quantile of the same histograms, whose corrections are the same.
    pub(super) fn merge_same(&mut self, other: RepairLog) {
        self.merge_by(other, i64::max);
    }

    fn merge_by(&mut self, other: RepairLog, joined: fn(i64, i64) -> i64) {
        for entry in other.0 {
            let Some(known) = self.0.iter_mut().find(|e| e.name == entry.name) else {
                self.0.push(entry);
                continue;
            };
            known.repairs = known.repairs.merge(entry.repairs);
            for (count, more) in known.by_step.iter_mut().zip(entry.by_step) {
                *count = joined(*count, more);
            }
        }
    }

    /// Adds annotations about all corrections to `notes`, one per metric name.
    pub(super) fn add_remarks(self, span: PositionRange, notes: &mut QueryAnnotations) {
        for RepairLogEntry {
            name,
            mut repairs,
            by_step,
        } in self.0
        {
            repairs.count = reported_count(&by_step);
            notes.add(Annotation::forced_monotonicity(span, &name, repairs));
        }
    }
}

/// Returns the number in the annotation of Prometheus, which every step after the first correction
/// doubles.
fn reported_count(by_step: &[i64]) -> i64 {
    let mut steps = by_step.iter().skip_while(|count| **count == 0);
    let first = steps.next().copied().unwrap_or(0);
    steps.fold(first, |count, more| {
        count.wrapping_add(*more).wrapping_mul(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_count_doubles_with_each_step_as_upstream() {
        for (by_step, want) in [
            (&[0, 1][..], 1),
            (&[1, 1], 4),
            (&[1, 1, 1, 1, 1], 46),
            (&[3], 3),
            (&[1, 0], 2),
            (&[1; 70], -2),
        ] {
            assert_eq!(reported_count(by_step), want, "{by_step:?}");
        }
    }
}
