//! Collects the annotations about one series that a function of histograms adds.

use crate::ast::Span;
use crate::eval::annotations::{Annotation, Annotations, HistogramOperation};
use firn_model::histogram::float::{FloatHistogram, Incompatible, Joined};

/// Annotations about the histograms of one series, which are not yet part of the result.
pub(crate) struct Remarks<'a> {
    span: Span,
    name: &'a dyn Fn() -> Vec<u8>,
    list: Vec<Annotation>,
}

impl<'a> Remarks<'a> {
    /// Creates an empty list. Its annotations will have the position `span` and contain the metric
    /// name that `name` returns.
    pub(crate) fn new(span: Span, name: &'a dyn Fn() -> Vec<u8>) -> Self {
        Self {
            span,
            name,
            list: Vec::new(),
        }
    }

    /// Adds the collected annotations to `notes` when the result of the window is final.
    pub(crate) fn say(self, notes: &mut Annotations) {
        self.list.into_iter().for_each(|remark| notes.add(remark));
    }

    /// Adds an annotation that contains the metric name, which is only determined now.
    pub(crate) fn add_named(&mut self, remark: fn(Span, &[u8]) -> Annotation) {
        let remark = remark(self.span, &(self.name)());
        self.list.push(remark);
    }

    /// Adds an annotation about an operation on histograms, which does not contain the metric name.
    pub(crate) fn add_on(
        &mut self,
        operation: HistogramOperation,
        remark: fn(Span, HistogramOperation) -> Annotation,
    ) {
        self.list.push(remark(self.span, operation));
    }

    /// Removes all annotations and adds one about a mix of exponential and custom buckets.
    pub(crate) fn only_mixed_schemas(&mut self) {
        self.list.clear();
        self.add_named(Annotation::mixed_schemas);
    }

    /// Adds the annotations about a sum or a difference. Returns `None` if the operation failed.
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

    /// Adds `more` to a histogram in place. Returns `None` if the buckets are incompatible.
    pub(crate) fn add(&mut self, to: &mut FloatHistogram, more: &FloatHistogram) -> Option<()> {
        self.joined(to.add(more), HistogramOperation::Addition)
    }

    /// Subtracts `less` from a histogram in place. Returns `None` if the buckets are incompatible.
    pub(crate) fn subtract(
        &mut self,
        from: &mut FloatHistogram,
        less: &FloatHistogram,
    ) -> Option<()> {
        self.joined(from.subtract(less), HistogramOperation::Subtraction)
    }
}
