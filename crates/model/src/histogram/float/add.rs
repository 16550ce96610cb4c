//! Sums and differences, plain or compensated.

use super::form::{FloatHistogram, Lost};
use super::side::Side;
use crate::histogram::ResetHint;
use crate::kahan::Kahan;
use std::cmp::Ordering;

/// Exponential and custom buckets do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incompatible;

/// What had to be given up for a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// One histogram was known to be a reset and the other not to be one.
    pub hints_conflict: bool,
    /// Custom bounds that only one of the two has were dropped.
    pub bounds_reconciled: bool,
}

impl FloatHistogram {
    /// Adds `other`. Schemas, zero buckets and custom bounds that differ are reconciled, at the
    /// cost of resolution. Empty buckets stay.
    pub fn add(&mut self, other: &Self) -> Result<Joined, Incompatible> {
        self.join(other, 1.0)
    }

    /// Subtracts `other`.
    pub fn subtract(&mut self, other: &Self) -> Result<Joined, Incompatible> {
        self.join(other, -1.0)
    }

    fn join(&mut self, other: &Self, sign: f64) -> Result<Joined, Incompatible> {
        if self.is_custom() != other.is_custom() {
            return Err(Incompatible);
        }
        let mut joined = Joined {
            hints_conflict: self.join_hint(other.hint),
            bounds_reconciled: false,
        };
        let zero = match self.is_custom() {
            true => Kahan::default(),
            false => self.reconcile_zero(other),
        };
        self.join_totals(other, zero, sign);
        let compensated = self.lost.is_some();
        if self.is_custom() {
            if self.custom_values == other.custom_values {
                self.positive.add(&other.positive, 0, sign, compensated);
            } else {
                joined.bounds_reconciled = true;
                self.join_custom(other, sign);
            }
            return Ok(joined);
        }
        match other.schema.cmp(&self.schema) {
            Ordering::Less => {
                self.coarsen_to(other.schema);
                self.join_sides((&other.positive, &other.negative), sign);
            }
            Ordering::Equal => self.join_sides((&other.positive, &other.negative), sign),
            Ordering::Greater => {
                let by = (other.schema - self.schema).unsigned_abs();
                let coarser = |side: &Side| {
                    let mut side = side.clone();
                    if compensated {
                        side.compensate();
                    }
                    side.coarsen(by, compensated);
                    side
                };
                let sides = (coarser(&other.positive), coarser(&other.negative));
                self.join_sides((&sides.0, &sides.1), sign);
            }
        }
        Ok(joined)
    }

    fn join_totals(&mut self, other: &Self, zero: Kahan, sign: f64) {
        let Some(lost) = &mut self.lost else {
            self.zero_count += sign * zero.sum;
            self.count += sign * other.count;
            self.sum += sign * other.sum;
            return;
        };
        let more = other.lost.unwrap_or_default();
        let join = |number: &mut f64, lost: &mut f64, other: Kahan| {
            let sum = Kahan::new(*number, *lost).join(other.map(|number| sign * number));
            (*number, *lost) = (sum.sum, sum.lost);
        };
        let Lost {
            zero_count,
            count,
            sum,
        } = lost;
        join(&mut self.zero_count, zero_count, zero);
        join(&mut self.count, count, Kahan::new(other.count, more.count));
        join(&mut self.sum, sum, Kahan::new(other.sum, more.sum));
    }

    /// Adds buckets of the same schema that are not covered by the zero bucket.
    fn join_sides(&mut self, (positive, negative): (&Side, &Side), sign: f64) {
        let compensated = self.lost.is_some();
        let beyond_zero = [positive, negative].map(|side| self.first_beyond_zero(side));
        self.positive
            .add(positive, beyond_zero[0], sign, compensated);
        self.negative
            .add(negative, beyond_zero[1], sign, compensated);
    }

    /// A gauge and anything is a gauge; of what does not fit together nothing is known. Returns
    /// whether the two contradict each other.
    fn join_hint(&mut self, other: ResetHint) -> bool {
        use ResetHint as R;
        let (joined, conflict) = match (self.hint, other) {
            (a, b) if a == b => (a, false),
            (R::Gauge, _) | (_, R::Gauge) => (R::Gauge, false),
            (R::Unknown, _) | (_, R::Unknown) => (R::Unknown, false),
            _ => (R::Unknown, true),
        };
        self.hint = joined;
        conflict
    }

    /// The place of the first bucket whose upper bound is beyond the zero bucket.
    pub(super) fn first_beyond_zero(&self, side: &Side) -> usize {
        if self.is_custom() {
            return 0;
        }
        let within = |index: &&i32| self.bound(**index) <= self.zero_threshold;
        side.indexes().iter().take_while(within).count()
    }
}
