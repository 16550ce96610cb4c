//! Binary operators with at least one histogram as operand, and operators that apply to histograms
//! only.

use crate::ast::{BinaryOp, PositionRange};
use crate::eval::annotations::{Annotation, HistogramOperation, QueryAnnotations};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::row::StepOperand;
use firn_model::histogram::float::{
    FloatHistogram, HistogramAdjustments, IncompatibleBuckets, TrimOperator,
};
use firn_model::histogram::{Histogram, ResetHint};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result of an operator for two operands of which at least one is a histogram.
#[derive(Debug)]
pub(crate) enum CombinedValue {
    /// A histogram, with an annotation about it if there is one.
    Histogram(Arc<Histogram>, Option<Annotation>),
    /// The result of a comparison of two histograms.
    Compared(bool),
    /// The operator does not support these operands. The annotation contains the reason.
    Refused(Annotation),
}

/// Applies an operator to two operands that are not both floats.
pub(crate) fn combine(
    op: BinaryOp,
    span: PositionRange,
    left: StepOperand<'_>,
    right: StepOperand<'_>,
) -> CombinedValue {
    use BinaryOp as B;
    use StepOperand::{Float, Histogram};
    match (op, left, right) {
        (B::Mul, Histogram(h), Float(f)) | (B::Mul, Float(f), Histogram(h)) => {
            changed(h, |histogram| histogram.multiply(f))
        }
        (B::Div, Histogram(h), Float(f)) => changed(h, |histogram| histogram.divide(f)),
        (B::TrimUpper, Histogram(h), Float(f)) => trim_histogram(h, f, TrimOperator::KeepBelow),
        (B::TrimLower, Histogram(h), Float(f)) => trim_histogram(h, f, TrimOperator::KeepAbove),
        (B::Add | B::Sub, Histogram(a), Histogram(b)) => join_histograms(op, span, a, b),
        (B::Equal, Histogram(a), Histogram(b)) => CombinedValue::Compared(are_equal(a, b)),
        (B::NotEqual, Histogram(a), Histogram(b)) => CombinedValue::Compared(!are_equal(a, b)),
        _ => {
            let (left, right) = (left.is_histogram(), right.is_histogram());
            CombinedValue::Refused(incompatible_remark(op, span, left, right))
        }
    }
}

fn changed(histogram: &Histogram, change: impl Fn(&mut FloatHistogram)) -> CombinedValue {
    let mut out = FloatHistogram::from(histogram);
    change(&mut out);
    out.compact();
    CombinedValue::Histogram(Arc::new(out.into()), None)
}

/// Trims a histogram. Unlike `changed`, this does not remove empty buckets.
fn trim_histogram(histogram: &Histogram, at: f64, trim: TrimOperator) -> CombinedValue {
    let mut out = FloatHistogram::from(histogram);
    out.trim(at, trim);
    CombinedValue::Histogram(Arc::new(out.into()), None)
}

fn are_equal(left: &Histogram, right: &Histogram) -> bool {
    FloatHistogram::from(left).is_equal(&FloatHistogram::from(right))
}

/// Returns the sum or the difference of two histograms. A difference is a gauge.
fn join_histograms(
    op: BinaryOp,
    span: PositionRange,
    left: &Histogram,
    right: &Histogram,
) -> CombinedValue {
    let mut out = FloatHistogram::from(left);
    let right = FloatHistogram::from(right);
    let (operation, result) = match op {
        BinaryOp::Sub => (HistogramOperation::Subtraction, out.subtract(&right)),
        _ => (HistogramOperation::Addition, out.add(&right)),
    };
    let HistogramAdjustments {
        hints_conflict,
        bounds_reconciled,
    } = match result {
        Ok(joined) => joined,
        Err(IncompatibleBuckets) => {
            return CombinedValue::Refused(Annotation::incompatible_layout(span, op.as_str()));
        }
    };
    if hints_conflict {
        return CombinedValue::Refused(Annotation::conflicting_resets(span, operation));
    }
    if op == BinaryOp::Sub {
        out.hint = ResetHint::Gauge;
    }
    out.compact();
    let remark = bounds_reconciled.then(|| Annotation::reconciled_bounds(span, operation));
    CombinedValue::Histogram(Arc::new(out.into()), remark)
}

/// Returns the annotation that an operator does not support operands of these types; `true` means a
/// histogram.
pub(crate) fn incompatible_remark(
    op: BinaryOp,
    span: PositionRange,
    left: bool,
    right: bool,
) -> Annotation {
    let kind = |histogram| if histogram { "histogram" } else { "float" };
    Annotation::incompatible_types(span, kind(left), op.as_str(), kind(right))
}

/// Adds the annotation that an operator with a scalar on its left side has no result. As in
/// Prometheus, the type of the last element of a step determines the text.
pub(crate) fn add_refusals(
    op: BinaryOp,
    span: PositionRange,
    frame: &SeriesFrame,
    notes: &mut QueryAnnotations,
) {
    for step in 0..frame.steps() {
        let kind = |series: usize| Some(frame.row(series).operand(step)?.is_histogram());
        if let Some(last) = (0..frame.len()).rev().find_map(kind) {
            notes.add(incompatible_remark(op, span, false, last));
        }
    }
}

/// The last annotation of each step. Prometheus retains no others of an operation on two vectors.
#[derive(Debug, Default)]
pub(crate) struct StepRemarks(BTreeMap<usize, Annotation>);

impl StepRemarks {
    /// Replaces the annotation of a step, because Prometheus retains only the last one.
    pub(crate) fn set(&mut self, step: usize, remark: Annotation) {
        self.0.insert(step, remark);
    }

    /// Adds the annotations of later pairs, which replace those of the same steps.
    pub(crate) fn merge(&mut self, later: StepRemarks) {
        self.0.extend(later.0);
    }

    /// Returns the annotations in order of steps, at most one per step.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Annotation> {
        self.0.into_values()
    }
}
