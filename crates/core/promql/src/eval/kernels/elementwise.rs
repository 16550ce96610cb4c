//! Operations on the individual values of a row: functions of floats and arithmetic with scalars.
//!
//! They need neither labels nor other series. All such operations are therefore applied to a row
//! while it is in the cache, before a consumer reads it.

use crate::ast::{BinaryOp, PositionRange};
use crate::eval::annotations::QueryAnnotations;
use crate::eval::kernels::kinds::{CombinedValue, combine, incompatible_remark};
use crate::eval::rows::row::{ABSENT, HistogramPoint, StepOperand, StepRowBuffer, is_absent};
use crate::eval::tally::RowTally;
use crate::grid::StepGrid;
use crate::math::float;
use crate::math::operators::{ArithmeticLoop, compare, with_arithmetic};
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::histogram::Histogram;
use firn_model::histogram::float::FloatHistogram;
use std::sync::Arc;

/// An operation on the values of a row, which needs neither labels nor other rows.
#[derive(Debug)]
pub(crate) enum RowOp {
    /// A function of each float. Histograms are removed from the row.
    Map(fn(f64) -> f64),
    /// A binary operator whose other side is a scalar.
    Scalar(ScalarOp),
    /// The function `round(v, to)`, with one value of `to` per step.
    Round(Vec<f64>),
    /// The function `clamp`, with one lower and one upper bound per step.
    Clamp(Vec<f64>, Vec<f64>),
    /// The evaluation time at each step that has a value.
    Time(StepGrid),
    /// A change of sign of all floats and histograms.
    Negate,
    /// A function of each histogram. Floats have no result.
    OfHistogram(fn(&Histogram) -> f64),
    /// Records the row in the tally and does not change it.
    Count(Arc<RowTally>),
}

/// A binary operator with a scalar on one side.
#[derive(Debug)]
pub(crate) struct ScalarOp {
    /// The infix operator, of any class except set operators.
    pub(crate) op: BinaryOp,
    /// The values of the scalar, one for each step.
    pub(crate) scalars: Vec<f64>,
    /// True if the scalar is the left operand, which matters for operators that are not
    /// commutative.
    pub(crate) scalar_left: bool,
    /// True if a comparison returns 0 or 1 (`bool`).
    pub(crate) returns_bool: bool,
    /// The position of the operation in the query, for annotations.
    pub(crate) span: PositionRange,
    /// The reservation for the memory of the scalars, held as long as the operation exists.
    pub(crate) _memory: Reservation,
}

impl RowOp {
    /// Returns whether the operation removes the metric name, because the result is a different
    /// metric.
    pub(crate) fn drops_name(&self) -> bool {
        match self {
            RowOp::Scalar(op) => op.returns_bool || op.op.is_arithmetic(),
            RowOp::Count(_) => false,
            _ => true,
        }
    }

    /// Applies the operation to the row in place, and adds annotations to `notes`.
    pub(crate) fn apply(
        &self,
        row: &mut StepRowBuffer,
        notes: &mut QueryAnnotations,
    ) -> Result<(), PromqlError> {
        match self {
            RowOp::Map(f) => {
                row.histograms.clear();
                map(&mut row.values, f);
            }
            RowOp::Scalar(op) => return op.apply(row, notes),
            RowOp::Round(nearest) => {
                row.histograms.clear();
                zip(&mut row.values, nearest, |value, to| {
                    let inverse = 1.0 / to;
                    (value * inverse + 0.5).floor() / inverse
                });
            }
            RowOp::Clamp(lower, upper) => clamp(row, lower, upper),
            RowOp::Time(grid) => {
                for (step, value) in row.values.iter_mut().enumerate() {
                    if !is_absent(*value) {
                        *value = grid.time(step) as f64 / 1000.0;
                    }
                }
                for (step, _) in row.histograms.drain(..) {
                    row.values[step as usize] = grid.time(step as usize) as f64 / 1000.0;
                }
            }
            RowOp::Negate => {
                map(&mut row.values, |value| -value);
                for (_, histogram) in &mut row.histograms {
                    let mut negated = FloatHistogram::from(&**histogram);
                    negated.multiply(-1.0);
                    *histogram = Arc::new(negated.into());
                }
            }
            // The stream records rows itself.
            RowOp::Count(_) => {}
            RowOp::OfHistogram(f) => {
                row.values.fill(ABSENT);
                for (step, histogram) in row.histograms.drain(..) {
                    row.values[step as usize] = f(&histogram);
                }
            }
        }
        Ok(())
    }
}

fn map(values: &mut [f64], f: impl Fn(f64) -> f64) {
    for value in values {
        if !is_absent(*value) {
            *value = f(*value);
        }
    }
}

fn zip(values: &mut [f64], others: &[f64], f: impl Fn(f64, f64) -> f64) {
    for (value, other) in values.iter_mut().zip(others) {
        *value = if is_absent(*value) {
            ABSENT
        } else {
            f(*value, *other)
        };
    }
}

fn clamp(row: &mut StepRowBuffer, lower: &[f64], upper: &[f64]) {
    row.histograms.clear();
    for (value, (lower, upper)) in row.values.iter_mut().zip(lower.iter().zip(upper)) {
        if upper < lower {
            *value = ABSENT;
        } else if !is_absent(*value) {
            *value = float::max(*lower, float::min(*upper, *value));
        }
    }
}

struct ScalarLoop<'a> {
    values: &'a mut [f64],
    scalars: &'a [f64],
    scalar_left: bool,
}

impl ArithmeticLoop<()> for ScalarLoop<'_> {
    fn run(self, op: impl Fn(f64, f64) -> f64) {
        if self.scalar_left {
            zip(self.values, self.scalars, |value, scalar| op(scalar, value));
        } else {
            zip(self.values, self.scalars, op);
        }
    }
}

impl ScalarOp {
    fn apply(
        &self,
        row: &mut StepRowBuffer,
        notes: &mut QueryAnnotations,
    ) -> Result<(), PromqlError> {
        let combined: Vec<HistogramPoint> = std::mem::take(&mut row.histograms)
            .into_iter()
            .filter_map(|(step, histogram)| {
                Some((step, self.apply_to_histogram(step, histogram, notes)?))
            })
            .collect();
        row.histograms = combined;
        if self.op.is_comparison() {
            self.compare(&mut row.values);
            return Ok(());
        }
        let arithmetic = ScalarLoop {
            values: &mut row.values,
            scalars: &self.scalars,
            scalar_left: self.scalar_left,
        };
        if with_arithmetic(self.op, arithmetic).is_none() {
            if row.row().has_floats() {
                notes.add(incompatible_remark(self.op, self.span, false, false));
            }
            row.values.fill(ABSENT);
        }
        Ok(())
    }

    fn apply_to_histogram(
        &self,
        step: u32,
        histogram: Arc<Histogram>,
        notes: &mut QueryAnnotations,
    ) -> Option<Arc<Histogram>> {
        let scalar = StepOperand::Float(self.scalars[step as usize]);
        let histogram = StepOperand::Histogram(&histogram);
        let combined = if self.scalar_left {
            combine(self.op, self.span, scalar, histogram)
        } else {
            combine(self.op, self.span, histogram, scalar)
        };
        match combined {
            CombinedValue::Histogram(result, _) => Some(result),
            CombinedValue::Refused(remark) => {
                notes.add(remark);
                None
            }
            // A histogram and a float cannot be compared.
            CombinedValue::Compared(_) => None,
        }
    }

    fn compare(&self, values: &mut [f64]) {
        let (op, left, returns_bool) = (self.op, self.scalar_left, self.returns_bool);
        zip(values, &self.scalars, |value, scalar| {
            let holds = if left {
                compare(op, scalar, value)
            } else {
                compare(op, value, scalar)
            };
            match (returns_bool, holds) {
                (true, _) => f64::from(u8::from(holds)),
                (false, true) => value,
                (false, false) => ABSENT,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: RowOp, values: &[f64], want: &[f64]) {
        let mut row = StepRowBuffer {
            values: values.to_vec(),
            ..StepRowBuffer::default()
        };
        op.apply(&mut row, &mut QueryAnnotations::default())
            .unwrap();
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&row.values), bits(want), "{op:?} {:?}", row.values);
    }

    fn scalar(op: BinaryOp, scalar: f64, scalar_left: bool, returns_bool: bool) -> RowOp {
        RowOp::Scalar(ScalarOp {
            op,
            scalars: vec![scalar; 3],
            scalar_left,
            returns_bool,
            span: PositionRange::default(),
            _memory: firn_model::budget::Budget::new("test", usize::MAX).create_reservation(),
        })
    }

    #[test]
    fn row_operations_change_values_and_leave_gaps() {
        let row = [1.5, ABSENT, -3.0];
        check(RowOp::Negate, &row, &[-1.5, ABSENT, 3.0]);
        check(RowOp::Map(f64::abs), &row, &[1.5, ABSENT, 3.0]);
        check(RowOp::Round(vec![1.0; 3]), &row, &[2.0, ABSENT, -3.0]);
        let clamp = RowOp::Clamp(vec![0.0, 0.0, 5.0], vec![1.0, 1.0, 4.0]);
        check(clamp, &row, &[1.0, ABSENT, ABSENT]);
        check(
            scalar(BinaryOp::Sub, 1.0, true, false),
            &row,
            &[-0.5, ABSENT, 4.0],
        );
        let less = |left, bool| scalar(BinaryOp::Less, 0.0, left, bool);
        check(less(false, false), &row, &[ABSENT, ABSENT, -3.0]);
        check(less(true, false), &row, &[1.5, ABSENT, ABSENT]);
        check(less(false, true), &row, &[0.0, ABSENT, 1.0]);
    }
}
