//! Collects the annotations about one series that a function of histograms adds. Annotations about
//! floats mixed with histograms come from `settle` in `mixed.rs`.

use crate::ast::PositionRange;
use crate::eval::annotations::{Annotation, HistogramOperation, QueryAnnotations};
use firn_model::histogram::float::{FloatHistogram, HistogramAdjustments, IncompatibleBuckets};

/// Annotations about the histograms of one series, which are not yet part of the result.
pub(crate) struct HistogramRemarks<'a> {
    span: PositionRange,
    name: &'a dyn Fn() -> Vec<u8>,
    list: Vec<Annotation>,
}

impl<'a> HistogramRemarks<'a> {
    /// Creates an empty list. Its annotations will have the position `span` and contain the metric
    /// name that `name` returns.
    pub(crate) fn new(span: PositionRange, name: &'a dyn Fn() -> Vec<u8>) -> Self {
        Self {
            span,
            name,
            list: Vec::new(),
        }
    }

    /// Adds the collected annotations to `notes` when the result of the window is final.
    pub(crate) fn append_to(self, notes: &mut QueryAnnotations) {
        self.list.into_iter().for_each(|remark| notes.add(remark));
    }

    /// Adds an annotation that contains the metric name, which is only determined now.
    pub(crate) fn add_named(&mut self, remark: fn(PositionRange, &[u8]) -> Annotation) {
        let remark = remark(self.span, &(self.name)());
        self.list.push(remark);
    }

    /// Adds an annotation about an operation on histograms, which does not contain the metric name.
    pub(crate) fn add_unnamed(
        &mut self,
        operation: HistogramOperation,
        remark: fn(PositionRange, HistogramOperation) -> Annotation,
    ) {
        self.list.push(remark(self.span, operation));
    }

    /// Removes all annotations and adds one about a mix of exponential and custom buckets.
    pub(crate) fn replace_with_mixed_schemas(&mut self) {
        self.list.clear();
        self.add_named(Annotation::mixed_schemas);
    }

    /// Adds the annotations about a sum or a difference. Returns `None` if the operation failed.
    pub(crate) fn record_join(
        &mut self,
        joined: Result<HistogramAdjustments, IncompatibleBuckets>,
        operation: HistogramOperation,
    ) -> Option<()> {
        match joined {
            Err(IncompatibleBuckets) => {
                self.add_named(Annotation::mixed_schemas);
                None
            }
            Ok(joined) => {
                if joined.bounds_reconciled {
                    self.add_unnamed(operation, Annotation::reconciled_bounds);
                }
                Some(())
            }
        }
    }

    /// Adds `more` to a histogram in place. Returns `None` if the buckets are incompatible.
    pub(crate) fn add(&mut self, to: &mut FloatHistogram, more: &FloatHistogram) -> Option<()> {
        self.record_join(to.add(more), HistogramOperation::Addition)
    }

    /// Subtracts `less` from a histogram in place. Returns `None` if the buckets are incompatible.
    pub(crate) fn subtract(
        &mut self,
        from: &mut FloatHistogram,
        less: &FloatHistogram,
    ) -> Option<()> {
        self.record_join(from.subtract(less), HistogramOperation::Subtraction)
    }
}
