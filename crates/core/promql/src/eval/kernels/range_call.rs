//! A call of a window function: the function, its scalar arguments and its window.

use crate::ast::PositionRange;
use crate::eval::annotations::{Annotation, QueryAnnotations};
use crate::eval::kernels::counter_names::CounterNames;
use crate::eval::kernels::edges::SelectorOverhang;
use crate::eval::kernels::over_time::StepArguments;
use crate::functions::{FunctionWindow, RangeFunction};
use crate::go_format::format_fixed;
use crate::grid::{SelectorWindow, StepGrid};
use crate::value::PromqlError;
use firn_model::cancel::CancelToken;

/// A function of a range vector with its other arguments.
#[derive(Debug)]
pub(crate) struct RangeCall {
    /// The function that is called, by which the kernel is selected.
    pub(crate) function: RangeFunction,
    /// The requirements of the function on its window. `None` if the function table contains none.
    pub(crate) window: Option<FunctionWindow>,
    /// True if the result keeps the metric name, because it is the same metric.
    pub(crate) keeps_name: bool,
    /// The scalar arguments in order, each with one value per step.
    pub(crate) scalars: Vec<Vec<f64>>,
    /// The position of annotations: that of the first argument.
    pub(crate) span: PositionRange,
    /// The series that are probably not counters, for annotations of `rate` and `increase`.
    pub(crate) counters: CounterNames,
    /// True if the function uses start timestamps and the feature is enabled.
    pub(crate) uses_starts: bool,
    /// The overhang of an anchored or smoothed selector, `None` for a plain one.
    pub(crate) overhang: Option<SelectorOverhang>,
    /// The cancel flag, set when the row is no longer needed.
    pub(crate) cancel: CancelToken,
}

/// A call, and the steps for which it is computed.
pub(crate) struct RangeCallView<'a> {
    /// The call of the window function, with its arguments.
    pub(crate) call: &'a RangeCall,
    /// The steps for which the call is computed, which may be a part of those of the query.
    pub(crate) grid: &'a StepGrid,
    /// The window of a step, including any overhang of the selector.
    pub(crate) reach: &'a SelectorWindow,
    /// Returns the metric name of the current series, for annotations. Allocates.
    pub(crate) name: &'a dyn Fn() -> Vec<u8>,
}

impl RangeCall {
    /// Returns whether every window that contains samples has a result.
    pub(crate) fn has_result_in_every_window(&self) -> bool {
        self.window.is_some_and(|window| window.samples_min == 1)
    }

    /// Returns the evaluation time and the scalar arguments at a step.
    pub(crate) fn arguments(&self, grid: &StepGrid, step: usize) -> StepArguments {
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
        notes: &mut QueryAnnotations,
    ) -> Result<(), PromqlError> {
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
                    Some(PromqlError::Execution(format!(
                        "invalid {what} factor. Expected: 0 < {symbol} < 1, got: {got}"
                    )))
                };
                wrong(0, "smoothing", "sf").map_or(Ok(()), Err)
            }
            _ => Ok(()),
        }
    }
}
