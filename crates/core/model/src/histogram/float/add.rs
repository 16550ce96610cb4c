//! Sums and differences of histograms, with or without compensation.

use super::form::{FloatHistogram, HistogramCompensations};
use super::side::HistogramSide;
use crate::histogram::ResetHint;
use crate::kahan::KahanSum;
use std::cmp::Ordering;

/// The error for operations on exponential and custom buckets together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncompatibleBuckets;

/// The adjustments that were necessary for a sum or a difference, for annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistogramAdjustments {
    /// True if the hints contradict each other: one histogram is a reset, and the other is not.
    pub hints_conflict: bool,
    /// True if custom bounds that only one of both histograms has were removed.
    pub bounds_reconciled: bool,
}

impl FloatHistogram {
    /// Adds `other`. Different schemas, zero buckets and custom bounds are reconciled, which
    /// reduces the resolution. Empty buckets are kept.
    pub fn add(&mut self, other: &Self) -> Result<HistogramAdjustments, IncompatibleBuckets> {
        self.add_signed(other, 1.0)
    }

    /// Subtracts `other`. Different layouts are reconciled as in [`FloatHistogram::add`].
    pub fn subtract(&mut self, other: &Self) -> Result<HistogramAdjustments, IncompatibleBuckets> {
        self.add_signed(other, -1.0)
    }

    fn add_signed(
        &mut self,
        other: &Self,
        sign: f64,
    ) -> Result<HistogramAdjustments, IncompatibleBuckets> {
        if self.is_custom() != other.is_custom() {
            return Err(IncompatibleBuckets);
        }
        let mut joined = HistogramAdjustments {
            hints_conflict: self.combine_hints(other.hint),
            bounds_reconciled: false,
        };
        let zero = if self.is_custom() {
            KahanSum::default()
        } else {
            self.reconcile_zero(other)
        };
        self.add_totals(other, zero, sign);
        let compensated = self.lost.is_some();
        if self.is_custom() {
            if self.custom_values == other.custom_values {
                self.positive.add(&other.positive, 0, sign, compensated);
            } else {
                joined.bounds_reconciled = true;
                self.add_custom_buckets(other, sign);
            }
            return Ok(joined);
        }
        match other.schema.cmp(&self.schema) {
            Ordering::Less => {
                self.coarsen_to(other.schema);
                self.add_sides(&other.positive, &other.negative, sign);
            }
            Ordering::Equal => self.add_sides(&other.positive, &other.negative, sign),
            Ordering::Greater => {
                let by = (other.schema - self.schema).unsigned_abs();
                let coarser = |side: &HistogramSide| {
                    let mut side = side.clone();
                    if compensated {
                        side.compensate();
                    }
                    side.coarsen(by, compensated);
                    side
                };
                let sides = (coarser(&other.positive), coarser(&other.negative));
                self.add_sides(&sides.0, &sides.1, sign);
            }
        }
        Ok(joined)
    }

    fn add_totals(&mut self, other: &Self, zero: KahanSum, sign: f64) {
        let Some(lost) = &mut self.lost else {
            self.zero_count += sign * zero.sum;
            self.count += sign * other.count;
            self.sum += sign * other.sum;
            return;
        };
        let more = other.lost.unwrap_or_default();
        let join = |number: &mut f64, lost: &mut f64, other: KahanSum| {
            let sum = KahanSum::new(*number, *lost).add_sum(other.map(|number| sign * number));
            (*number, *lost) = (sum.sum, sum.lost);
        };
        let HistogramCompensations {
            zero_count,
            count,
            sum,
        } = lost;
        join(&mut self.zero_count, zero_count, zero);
        join(
            &mut self.count,
            count,
            KahanSum::new(other.count, more.count),
        );
        join(&mut self.sum, sum, KahanSum::new(other.sum, more.sum));
    }

    /// Adds buckets of the same schema, except those that the zero bucket covers.
    fn add_sides(&mut self, positive: &HistogramSide, negative: &HistogramSide, sign: f64) {
        let compensated = self.lost.is_some();
        let beyond_zero = [positive, negative].map(|side| self.first_beyond_zero(side));
        self.positive
            .add(positive, beyond_zero[0], sign, compensated);
        self.negative
            .add(negative, beyond_zero[1], sign, compensated);
    }

    /// Combines the hints. A gauge and any other histogram give a gauge; otherwise different hints
    /// give no hint. Returns whether the hints contradict each other.
    fn combine_hints(&mut self, other: ResetHint) -> bool {
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

    /// Returns the position of the first bucket whose upper bound is outside of the zero bucket.
    pub(super) fn first_beyond_zero(&self, side: &HistogramSide) -> usize {
        if self.is_custom() {
            return 0;
        }
        let within = |index: &&i32| self.bound(**index) <= self.zero_threshold;
        side.indexes().iter().take_while(within).count()
    }
}
