//! The remarks of a function of histograms on one series.

use crate::ast::Span;
use crate::eval::annotations::{Annotation, Annotations, HistogramOperation};
use firn_model::histogram::float::{FloatHistogram, Incompatible, Joined};

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

    /// Adds a remark that shows the metric's name.
    pub(crate) fn add_named(&mut self, remark: fn(Span, &[u8]) -> Annotation) {
        let remark = remark(self.span, &(self.name)());
        self.list.push(remark);
    }

    /// Adds a remark on what was done to the histograms.
    pub(crate) fn add_on(
        &mut self,
        operation: HistogramOperation,
        remark: fn(Span, HistogramOperation) -> Annotation,
    ) {
        self.list.push(remark(self.span, operation));
    }

    /// Says that exponential and custom buckets meet, and drops all other remarks.
    pub(crate) fn only_mixed_schemas(&mut self) {
        self.list.clear();
        self.add_named(Annotation::mixed_schemas);
    }

    /// Adds the remarks on a sum or a difference; `None` if there is no result.
    pub(crate) fn joined(
        &mut self,
        joined: Result<Joined, Incompatible>,
        operation: HistogramOperation,
    ) -> Option<()> {
        match joined {
            Err(Incompatible) => {
                self.add_named(Annotation::mixed_schemas);
                None
            }
            Ok(joined) => {
                if joined.bounds_reconciled {
                    self.add_on(operation, Annotation::reconciled_bounds);
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
