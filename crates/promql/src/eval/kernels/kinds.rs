//! Binary operators of which at least one operand is a histogram, or that are for histograms only.

use crate::ast::{BinaryOp, Span};
use crate::eval::annotations::{Annotation, Annotations, HistogramOperation};
use crate::eval::rows::frame::Frame;
use crate::eval::rows::row::Operand;
use firn_model::histogram::float::{FloatHistogram, Incompatible, Joined, Trim};
use firn_model::histogram::{Histogram, ResetHint};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What becomes of two operands.
#[derive(Debug)]
pub(crate) enum Combined {
    /// A histogram, and a remark on it.
    Histogram(Arc<Histogram>, Option<Annotation>),
    /// Whether a comparison holds.
    Compared(bool),
    /// They are no pair.
    Refused(Annotation),
}

/// The result of an operator for operands of which not both are floats.
pub(crate) fn combine(op: BinaryOp, span: Span, left: Operand<'_>, right: Operand<'_>) -> Combined {
    use BinaryOp as B;
    use Operand::{Float, Histogram};
    match (op, left, right) {
        (B::Mul, Histogram(h), Float(f)) | (B::Mul, Float(f), Histogram(h)) => {
            changed(h, |histogram| histogram.multiply(f))
        }
        (B::Div, Histogram(h), Float(f)) => changed(h, |histogram| histogram.divide(f)),
        (B::TrimUpper, Histogram(h), Float(f)) => trimmed(h, f, Trim::KeepBelow),
        (B::TrimLower, Histogram(h), Float(f)) => trimmed(h, f, Trim::KeepAbove),
        (B::Add | B::Sub, Histogram(a), Histogram(b)) => joined(op, span, a, b),
        (B::Equal, Histogram(a), Histogram(b)) => Combined::Compared(are_equal(a, b)),
        (B::NotEqual, Histogram(a), Histogram(b)) => Combined::Compared(!are_equal(a, b)),
        _ => {
            let kinds = (left.is_histogram(), right.is_histogram());
            Combined::Refused(incompatible(op, span, kinds))
        }
    }
}

fn changed(histogram: &Histogram, change: impl Fn(&mut FloatHistogram)) -> Combined {
    let mut out = FloatHistogram::from(histogram);
    change(&mut out);
    out.compact();
    Combined::Histogram(Arc::new(out.into()), None)
}

/// Like `changed`, but keeps the empty buckets of a histogram that lost no observation.
fn trimmed(histogram: &Histogram, at: f64, trim: Trim) -> Combined {
    let mut out = FloatHistogram::from(histogram);
    out.trim(at, trim);
    Combined::Histogram(Arc::new(out.into()), None)
}

fn are_equal(left: &Histogram, right: &Histogram) -> bool {
    FloatHistogram::from(left).is_equal(&FloatHistogram::from(right))
}

/// A sum or a difference; a difference is a gauge.
fn joined(op: BinaryOp, span: Span, left: &Histogram, right: &Histogram) -> Combined {
    let mut out = FloatHistogram::from(left);
    let right = FloatHistogram::from(right);
    let (operation, result) = match op {
        BinaryOp::Sub => (HistogramOperation::Subtraction, out.subtract(&right)),
        _ => (HistogramOperation::Addition, out.add(&right)),
    };
    let Joined {
        hints_conflict,
        bounds_reconciled,
    } = match result {
        Ok(joined) => joined,
        Err(Incompatible) => {
            return Combined::Refused(Annotation::incompatible_layout(span, op.as_str()));
        }
    };
    if hints_conflict {
        return Combined::Refused(Annotation::conflicting_resets(span, operation));
    }
    if op == BinaryOp::Sub {
        out.hint = ResetHint::Gauge;
    }
    out.compact();
    let remark = bounds_reconciled.then(|| Annotation::reconciled_bounds(span, operation));
    Combined::Histogram(Arc::new(out.into()), remark)
}

/// The remark that an operator is not for these kinds; `true` is a histogram.
pub(crate) fn incompatible(op: BinaryOp, span: Span, (left, right): (bool, bool)) -> Annotation {
    let kind = |histogram| if histogram { "histogram" } else { "float" };
    Annotation::incompatible_types(span, kind(left), op.as_str(), kind(right))
}

/// Says why an operator with a scalar on its left has no result for any element: the last element
/// of a step decides, as upstream.
pub(crate) fn refuse_all(op: BinaryOp, span: Span, frame: &Frame, notes: &mut Annotations) {
    for step in 0..frame.steps() {
        let kind = |series: usize| Some(frame.row(series).operand(step)?.is_histogram());
        if let Some(last) = (0..frame.len()).rev().find_map(kind) {
            notes.add(incompatible(op, span, (false, last)));
        }
    }
}

/// The last remark of each step; upstream keeps no other of an operation on two vectors.
#[derive(Debug, Default)]
pub(crate) struct StepRemarks(BTreeMap<usize, Annotation>);

impl StepRemarks {
    /// Replaces the remark of a step.
    pub(crate) fn set(&mut self, step: usize, remark: Annotation) {
        self.0.insert(step, remark);
    }

    /// Takes over the remarks of pairs that follow.
    pub(crate) fn merge(&mut self, later: StepRemarks) {
        self.0.extend(later.0);
    }

    /// The remarks, by step.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Annotation> {
        self.0.into_values()
    }
}
