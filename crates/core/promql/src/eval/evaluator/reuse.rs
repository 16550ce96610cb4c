//! Values that several parts of a query use. Each value is computed at its first use and freed
//! after its last use.
//!
//! The cost and the annotations of a value are stored with it. Each further use adds the
//! annotations with their positions at that place, and counts the samples again, because limits and
//! statistics equal those of Prometheus, which evaluates each place separately. Bytes are counted
//! once.

use super::Evaluator;
use crate::eval::account::EvalCost;
use crate::eval::annotations::QueryAnnotations;
use crate::eval::kernels::edges::SelectorOverhang;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::source::SampleSource;
use crate::grid::{SelectorWindow, StepGrid};
use crate::plan::SharedNodeMark;
use crate::value::PromqlError;
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The series of a range vector, the window of a step, and the extension of the window beyond the
/// range for anchored and smoothed selectors.
pub(crate) type RangeVector = (
    Arc<dyn SampleSource>,
    SelectorWindow,
    Option<SelectorOverhang>,
);

/// A shared value, in one of several representations. Cloning it is cheap.
#[derive(Clone)]
pub(crate) enum SharedValue {
    /// All rows of an instant vector, computed at all steps.
    Rows(Arc<SeriesFrame>),
    /// The numbers of a scalar, one for each step.
    Numbers(Arc<[f64]>),
    /// The series found by an instant selector, whose samples each use reads again.
    Series(Arc<dyn SampleSource>),
    /// The series and windows of a range vector, whose samples each use reads again.
    Range(RangeVector),
}

/// A value that will be used again, with the grid, annotations and cost of its evaluation.
struct CachedEvaluation {
    grid: StepGrid,
    value: SharedValue,
    notes: QueryAnnotations,
    cost: EvalCost,
    uses_left: u32,
}

/// The values that an evaluation will use again, by class.
#[derive(Default)]
pub(crate) struct SharedValueCache(FxHashMap<u32, CachedEvaluation>);

impl Evaluator<'_> {
    /// Returns the value of a node that is marked as `shared`: a stored value, or the result of
    /// `evaluate`, which is stored for further uses.
    pub(crate) fn get_or_evaluate(
        &mut self,
        shared: &SharedNodeMark,
        grid: StepGrid,
        evaluate: impl FnOnce(&mut Self) -> Result<SharedValue, PromqlError>,
    ) -> Result<SharedValue, PromqlError> {
        if let Some(value) = self.take_stored(shared, grid)? {
            return Ok(value);
        }
        let before = self.run.account.begin_cost();
        let around = std::mem::take(&mut self.run.notes);
        let made = evaluate(self);
        let notes = std::mem::replace(&mut self.run.notes, around);
        let cost = self.run.account.cost_since(before);
        let value = made?;
        self.run
            .notes
            .merge(notes.clone().resolve_positions(&shared.places));
        let kept = CachedEvaluation {
            grid,
            value: value.clone(),
            notes,
            cost,
            uses_left: shared.uses - 1,
        };
        self.shared.0.insert(shared.class, kept);
        Ok(value)
    }

    /// Returns a stored value, and removes it if this is its last use. `None` if the value is not
    /// stored or has a different grid.
    fn take_stored(
        &mut self,
        shared: &SharedNodeMark,
        grid: StepGrid,
    ) -> Result<Option<SharedValue>, PromqlError> {
        let Some(kept) = self.shared.0.get_mut(&shared.class) else {
            return Ok(None);
        };
        if kept.grid != grid {
            return Ok(None);
        }
        self.run.account.repeat_cost(&kept.cost)?;
        self.run
            .notes
            .merge(kept.notes.clone().resolve_positions(&shared.places));
        kept.uses_left -= 1;
        let value = match kept.uses_left {
            0 => self.shared.0.remove(&shared.class).map(|kept| kept.value),
            _ => Some(kept.value.clone()),
        };
        Ok(value)
    }
}
