//! Values that several parts of a query use. Each value is computed at its first use and freed
//! after its last use.
//!
//! The cost and the annotations of a value are stored with it. Each further use adds the
//! annotations with their positions at that place, and counts the samples again, because limits and
//! statistics equal those of Prometheus, which evaluates each place separately. Bytes are counted
//! once.

use super::Evaluator;
use crate::eval::account::Cost;
use crate::eval::annotations::Annotations;
use crate::eval::kernels::edges::Overhang;
use crate::eval::rows::frame::Frame;
use crate::eval::rows::source::Source;
use crate::grid::{Grid, Reach};
use crate::plan::Shared;
use crate::value::QueryError;
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The series of a range vector, the window of a step, and the extension of the window beyond the
/// range for anchored and smoothed selectors.
pub(crate) type RangeVector = (Arc<dyn Source>, Reach, Option<Overhang>);

/// A shared value, in one of several representations. Cloning it is cheap.
#[derive(Clone)]
pub(crate) enum SharedValue {
    /// All rows of an instant vector, computed at all steps.
    Rows(Arc<Frame>),
    /// The numbers of a scalar, one for each step.
    Numbers(Arc<[f64]>),
    /// The series found by an instant selector, whose samples each use reads again.
    Series(Arc<dyn Source>),
    /// The series and windows of a range vector, whose samples each use reads again.
    Range(RangeVector),
}

/// A value that will be used again, with the grid, annotations and cost of its evaluation.
struct Kept {
    grid: Grid,
    value: SharedValue,
    notes: Annotations,
    cost: Cost,
    uses_left: u32,
}

/// The values that an evaluation will use again, by class.
#[derive(Default)]
pub(crate) struct SharedValues(FxHashMap<u32, Kept>);

impl Evaluator<'_> {
    /// Returns the value of a node that is marked as `shared`: a stored value, or the result of
    /// `evaluate`, which is stored for further uses.
    pub(crate) fn once(
        &mut self,
        shared: &Shared,
        grid: Grid,
        evaluate: impl FnOnce(&mut Self) -> Result<SharedValue, QueryError>,
    ) -> Result<SharedValue, QueryError> {
        if let Some(value) = self.known(shared, grid)? {
            return Ok(value);
        }
        let before = self.run.account.begin();
        let around = std::mem::take(&mut self.run.notes);
        let made = evaluate(self);
        let notes = std::mem::replace(&mut self.run.notes, around);
        let cost = self.run.account.cost_since(before);
        let value = made?;
        self.run.notes.merge(notes.clone().moved(&shared.places));
        let kept = Kept {
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
    fn known(&mut self, shared: &Shared, grid: Grid) -> Result<Option<SharedValue>, QueryError> {
        let Some(kept) = self.shared.0.get_mut(&shared.class) else {
            return Ok(None);
        };
        if kept.grid != grid {
            return Ok(None);
        }
        self.run.account.repeat(&kept.cost)?;
        self.run
            .notes
            .merge(kept.notes.clone().moved(&shared.places));
        kept.uses_left -= 1;
        let value = match kept.uses_left {
            0 => self.shared.0.remove(&shared.class).map(|kept| kept.value),
            _ => Some(kept.value.clone()),
        };
        Ok(value)
    }
}
