//! Values that several places of a query need: each is made where it is needed first, and freed
//! where it is needed last.
//!
//! The cost and the remarks of a value are kept beside it. Wherever it is taken again
//! the remarks are made again, with their places there, and its samples count again: limits and
//! statistics are those of upstream, which evaluates every place by itself. Bytes count once.

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

/// Series of a range vector, what a step sees of them, and how much of that lies beyond the range
/// of an anchored or smoothed one.
pub(crate) type RangeVector = (Arc<dyn Source>, Reach, Option<Overhang>);

/// A value in one of the forms in which values are shared.
#[derive(Clone)]
pub(crate) enum SharedValue {
    /// All rows of a vector.
    Rows(Arc<Frame>),
    /// One number a step.
    Numbers(Arc<[f64]>),
    /// The series of an instant selector.
    Series(Arc<dyn Source>),
    /// A range vector.
    Range(RangeVector),
}

/// A value that is needed again.
struct Kept {
    grid: Grid,
    value: SharedValue,
    notes: Annotations,
    cost: Cost,
    uses_left: u32,
}

/// The values that an evaluation needs again, by class.
#[derive(Default)]
pub(crate) struct SharedValues(FxHashMap<u32, Kept>);

impl Evaluator<'_> {
    /// The value of a node that is marked as `shared`: a known one, or what `evaluate` makes.
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

    /// A value that was made for another place, given up with its last use.
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
