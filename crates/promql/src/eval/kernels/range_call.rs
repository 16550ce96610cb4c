//! A call of a function of windows: the function, its scalars and what it may see.

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
    /// The function.
    pub(crate) function: RangeFunction,
    /// What it needs of its window.
    pub(crate) window: Option<Window>,
    /// Whether the result is the same metric.
    pub(crate) keeps_name: bool,
    /// The scalar arguments in order, each with one value a step.
    pub(crate) scalars: Vec<Vec<f64>>,
    /// Where the first argument stands.
    pub(crate) span: Span,
    /// Names for which `rate` is questionable.
    pub(crate) counters: CounterNames,
    /// Whether start timestamps are read.
    pub(crate) uses_starts: bool,
    /// What an anchored or smoothed selector sees beyond its range.
    pub(crate) overhang: Option<Overhang>,
    /// Set when the row is no longer wanted.
    pub(crate) cancel: Cancel,
}

/// A call and the steps that it is computed for.
pub(crate) struct View<'a> {
    /// The call.
    pub(crate) call: &'a RangeCall,
    /// The steps.
    pub(crate) grid: &'a Grid,
    /// All that a step sees.
    pub(crate) reach: &'a Reach,
    /// The metric's name.
    pub(crate) name: &'a dyn Fn() -> Vec<u8>,
}

impl RangeCall {
    /// Whether every window that holds samples has a result.
    pub(crate) fn is_of_every_window(&self) -> bool {
        self.window.is_some_and(|window| window.samples_min == 1)
    }

    /// The arguments at a step.
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

    /// Checks the scalar arguments at the steps whose window holds samples.
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
