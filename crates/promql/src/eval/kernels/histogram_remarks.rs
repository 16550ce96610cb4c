//! The remarks of a function of histograms on one series.

use crate::ast::Span;
use crate::eval::annotations::{Annotation, Annotations, HistogramOperation};
use crate::histogram::{FloatHistogram, Incompatible, Joined};

/// Remarks on the histograms of one series, not yet said.
pub(crate) struct Remarks<'a> {
    span: Span,
    name: &'a dyn Fn() -> Vec<u8>,
    list: Vec<Annotation>,
}

impl<'a> Remarks<'a> {
    /// None yet; they will stand at `span` and show the metric's name.
    pub(crate) fn new(span: Span, name: &'a dyn Fn() -> Vec<u8>) -> Self {
        Self {
            span,
            name,
            list: Vec::new(),
        }
    }

    /// Says them.
    pub(crate) fn say(self, notes: &mut Annotations) {
        self.list.into_iter().for_each(|remark| notes.add(remark));
    }

    /// A gauge where a counter is due.
    pub(crate) fn not_a_counter(&mut self) {
        let remark = Annotation::not_a_counter(self.span, &(self.name)());
        self.list.push(remark);
    }

    /// A counter where a gauge is due.
    pub(crate) fn not_a_gauge(&mut self) {
        let remark = Annotation::not_a_gauge(self.span, &(self.name)());
        self.list.push(remark);
    }

    /// Start times that overlap the samples before.
    pub(crate) fn start_times_overlap(&mut self) {
        let remark = Annotation::start_time_overlap(self.span, &(self.name)(), 1);
        self.list.push(remark);
    }

    /// One histogram is a reset and another is not.
    pub(crate) fn conflicting_resets(&mut self, operation: HistogramOperation) {
        let remark = Annotation::conflicting_resets(self.span, operation);
        self.list.push(remark);
    }

    /// Custom bounds were cut down.
    pub(crate) fn reconciled(&mut self, operation: HistogramOperation) {
        let remark = Annotation::reconciled_bounds(self.span, operation);
        self.list.push(remark);
    }

    /// There is no result, because exponential and custom buckets meet.
    pub(crate) fn mixed_schemas(&mut self) {
        let remark = Annotation::mixed_schemas(self.span, &(self.name)());
        self.list.push(remark);
    }

    /// Like [`Remarks::mixed_schemas`], and drops all other remarks.
    pub(crate) fn only_mixed_schemas(&mut self) {
        self.list.clear();
        self.mixed_schemas();
    }

    /// Adds the remarks on a sum or a difference; `None` if there is no result.
    pub(crate) fn joined(
        &mut self,
        joined: Result<Joined, Incompatible>,
        operation: HistogramOperation,
    ) -> Option<()> {
        match joined {
            Err(Incompatible) => {
                self.mixed_schemas();
                None
            }
            Ok(joined) => {
                if joined.bounds_reconciled {
                    self.reconciled(operation);
                }
                Some(())
            }
        }
    }

    /// Adds to a histogram.
    pub(crate) fn add(&mut self, to: &mut FloatHistogram, more: &FloatHistogram) -> Option<()> {
        self.joined(to.add(more), HistogramOperation::Addition)
    }

    /// Subtracts from a histogram.
    pub(crate) fn subtract(
        &mut self,
        from: &mut FloatHistogram,
        less: &FloatHistogram,
    ) -> Option<()> {
        self.joined(from.subtract(less), HistogramOperation::Subtraction)
    }
}
