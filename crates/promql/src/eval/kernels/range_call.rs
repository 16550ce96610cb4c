//! A call of a window function: the function, its scalar arguments and its window.

use crate::ast::Span;
use crate::eval::annotations::{Annotation, Annotations};
use crate::eval::kernels::counter_names::CounterNames;
use crate::eval::kernels::edges::Overhang;
use crate::eval::kernels::over_time::StepArguments;
use crate::functions::{RangeFunction, Window};
use crate::go_format::format_fixed;
use crate::grid::{Grid, Reach};
use crate::value::QueryError;
use firn_model::cancel::Cancel;

/// A function of a range vector with its other arguments.
#[derive(Debug)]
pub(crate) struct RangeCall {
    /// The function that is called, by which the kernel is selected.
    pub(crate) function: RangeFunction,
    /// The requirements of the function on its window. `None` if the function table contains none.
    pub(crate) window: Option<Window>,
    /// True if the result keeps the metric name, because it is the same metric.
    pub(crate) keeps_name: bool,
    /// The scalar arguments in order, each with one value per step.
    pub(crate) scalars: Vec<Vec<f64>>,
    /// The position of annotations: that of the first argument.
    pub(crate) span: Span,
    /// The series that are probably not counters, for annotations of `rate` and `increase`.
    pub(crate) counters: CounterNames,
    /// True if the function uses start timestamps and the feature is enabled.
    pub(crate) uses_starts: bool,
    /// The overhang of an anchored or smoothed selector, `None` for a plain one.
    pub(crate) overhang: Option<Overhang>,
    /// The cancel flag, set when the row is no longer needed.
    pub(crate) cancel: Cancel,
}

/// A call, and the steps for which it is computed.
pub(crate) struct View<'a> {
    /// The call of the window function, with its arguments.
    pub(crate) call: &'a RangeCall,
    /// The steps for which the call is computed, which may be a part of those of the query.
    pub(crate) grid: &'a Grid,
    /// The window of a step, including any overhang of the selector.
    pub(crate) reach: &'a Reach,
    /// Returns the metric name of the current series, for annotations. Allocates.
    pub(crate) name: &'a dyn Fn() -> Vec<u8>,
}

impl RangeCall {
    /// Returns whether every window that contains samples has a result.
    pub(crate) fn is_of_every_window(&self) -> bool {
        self.window.is_some_and(|window| window.samples_min == 1)
    }

    /// Returns the evaluation time and the scalar arguments at a step.
    pub(crate) fn arguments(&self, grid: &Grid, step: usize) -> StepArguments {
        let mut scalars = [0.0; 2];
        for (out, values) in scalars.iter_mut().zip(&self.scalars) {
            *out = values[step];
        }
        StepArguments {
            time: grid.time(step),
            scalars,
        }
    }

    /// Checks the scalar arguments at the given steps, whose windows contain samples. Adds
    /// annotations, and fails if a smoothing factor is invalid.
    pub(crate) fn check(
        &self,
        mut steps: impl Iterator<Item = usize>,
        notes: &mut Annotations,
    ) -> Result<(), QueryError> {
        let scalar = |at: usize, step: usize| self.scalars[at][step];
        match self.function {
            RangeFunction::Quantile => {
                for step in steps {
                    if !(0.0..=1.0).contains(&scalar(0, step)) {
                        notes.add(Annotation::invalid_quantile(self.span, scalar(0, step)));
                    }
                }
                Ok(())
            }
            RangeFunction::Smoothing => {
                let mut wrong = |at: usize, what: &str, symbol: &str| {
                    let invalid = |value: f64| value <= 0.0 || value >= 1.0;
                    let step = steps.find(|step| invalid(scalar(at, *step)))?;
                    let got = format_fixed(scalar(at, step));
                    Some(QueryError::Execution(format!(
                        "invalid {what} factor. Expected: 0 < {symbol} < 1, got: {got}"
                    )))
                };
                wrong(0, "smoothing", "sf").map_or(Ok(()), Err)
            }
            _ => Ok(()),
        }
    }
}
