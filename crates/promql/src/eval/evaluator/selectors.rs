//! Reads samples for the plan: instant selectors, range selectors and subqueries.

use super::reuse::{RangeVector, SharedValue};
use super::{Evaluator, not_a_vector};
use crate::ast::{Edges, ValueType};
use crate::eval::account::storage_error;
use crate::eval::kernels::edges::Overhang;
use crate::eval::kernels::leaf::{Leaf, LeafKind};
use crate::eval::operators::stream::same_labelset;
use crate::eval::rows::frame::Frame;
use crate::eval::rows::source::{Resampled, Selected, Source};
use crate::grid::{Grid, Reach};
use crate::plan::{Node, NodeKind, Selector, Subquery};
use crate::value::QueryError;
use firn_model::budget::Reservation;
use firn_model::store::SelectRequest;
use std::sync::Arc;

impl Evaluator<'_> {
    /// Creates a leaf with the series that an instant selector finds.
    pub(super) fn selector_leaf(
        &mut self,
        node: &Node,
        selector: &Selector,
        kind: LeafKind,
        grid: Grid,
    ) -> Result<Leaf, QueryError> {
        let lookback_ms = self.run.options.lookback_ms;
        let mut reach = Reach {
            range_ms: lookback_ms,
            offset_ms: selector.offset_ms,
            at: selector.at,
        };
        let ahead_ms = match selector.edges {
            // A smoothed selector reads as far ahead as back.
            Edges::Smoothed => lookback_ms,
            _ => 0,
        };
        let loaded = Reach {
            range_ms: lookback_ms.saturating_add(ahead_ms),
            offset_ms: reach.offset_ms.saturating_sub(ahead_ms),
            ..reach
        };
        let source = match &node.shared {
            Some(shared) if shared.of_samples => {
                let value = self.once(shared, grid, |evaluator| {
                    let source = evaluator.select(selector, &loaded, &grid, false)?;
                    Ok(SharedValue::Series(source))
                })?;
                match value {
                    SharedValue::Series(source) => source,
                    _ => return Err(not_a_vector(node)),
                }
            }
            _ => {
                let is_newest = matches!(kind, LeafKind::Newest | LeafKind::NewestTime);
                // All steps use the same sample.
                let newest_only =
                    is_newest && grid.count == 1 && loaded == reach && reach.at.is_none();
                self.select(selector, &loaded, &grid, newest_only)?
            }
        };
        match kind {
            LeafKind::Smoothed(_) => reach = loaded,
            LeafKind::NewestTime | LeafKind::NewestStart if reach.at.is_some() => {
                // Prometheus uses the time of `@` here, with the samples that remain after applying
                // the offset.
                let later_ms = reach.offset_ms.saturating_neg().max(0);
                reach.offset_ms = loaded.offset_ms.max(0);
                let range_ms = lookback_ms.saturating_sub(reach.offset_ms);
                reach.range_ms = range_ms.saturating_sub(later_ms).max(0);
            }
            _ => {}
        }
        Ok(Leaf {
            source,
            kind,
            grid,
            reach,
            statistics_only: selector.statistics_only,
            tally: self.window_tally(node, grid)?,
            idle: Default::default(),
        })
    }

    fn select(
        &mut self,
        selector: &Selector,
        reach: &Reach,
        grid: &Grid,
        newest_only: bool,
    ) -> Result<Arc<dyn Source>, QueryError> {
        let request = SelectRequest {
            tenant: self.run.ctx.tenant,
            matchers: &selector.matchers,
            range: reach.time_range(grid),
            newest_only,
            cancel: self.run.ctx.cancel,
            budget: self.run.ctx.budget,
            series: self.run.account.series(),
            span: None,
        };
        let selection = self.run.ctx.store.select(request).map_err(storage_error)?;
        self.run.account.reads_from(&*selection);
        Ok(Arc::new(Selected::new(selection, &selector.matchers)))
    }

    /// Returns the samples of a range vector: those of a selector, or the values of a subquery at
    /// its inner steps.
    pub(crate) fn matrix(&mut self, node: &Node, grid: Grid) -> Result<RangeVector, QueryError> {
        let Some(shared) = &node.shared else {
            return self.matrix_of(node, grid);
        };
        let value = self.once(shared, grid, |evaluator| {
            Ok(SharedValue::Range(evaluator.matrix_of(node, grid)?))
        })?;
        match value {
            SharedValue::Range(range) => Ok(range),
            _ => Err(not_a_vector(node)),
        }
    }

    fn matrix_of(&mut self, node: &Node, grid: Grid) -> Result<RangeVector, QueryError> {
        match &node.kind {
            NodeKind::Matrix(selector, range_ms) => {
                let mut reach = Reach {
                    range_ms: *range_ms,
                    offset_ms: selector.offset_ms,
                    at: selector.at,
                };
                let overhang = Overhang::of(selector.edges, self.run.options.lookback_ms);
                if let Some(overhang) = overhang {
                    reach = overhang.widen(reach);
                }
                let source = self.select(selector, &reach, &grid, false)?;
                Ok((source, reach, overhang))
            }
            NodeKind::Subquery(subquery) => {
                let before = self.run.account.total();
                let (frame, inner, reach) = self.subquery(subquery, grid)?;
                // The samples of the rows are counted when windows are created from them.
                self.run.account.set_total(before);
                Ok((Arc::new(Resampled::new(frame, &inner)), reach, None))
            }
            _ => Err(not_a_vector(node)),
        }
    }

    /// Evaluates the inner expression of a subquery at all multiples of its step within its
    /// windows.
    pub(super) fn subquery(
        &mut self,
        subquery: &Subquery,
        grid: Grid,
    ) -> Result<(Frame, Grid, Reach), QueryError> {
        let reach = subquery.reach();
        let inner_grid = subquery.grid(grid, self.run.options.default_subquery_step_ms);
        let memory = self.reserve_steps(&inner_grid)?;
        let around = std::mem::replace(&mut self.within_invariant, false);
        let mut frame = match subquery.inner.value_type {
            ValueType::Scalar => {
                let values = self.scalar(&subquery.inner, inner_grid)?;
                Frame::of_scalars(&values)
            }
            _ => self.own_frame(&subquery.inner, inner_grid)?,
        };
        self.within_invariant = around;
        if frame.holds_both() {
            // A range vector has only one sample at each timestamp.
            return Err(same_labelset());
        }
        frame.keep(memory);
        Ok((frame, inner_grid, reach))
    }

    /// Reserves the memory that operators need per step, regardless of the number of series: row
    /// buffers, windows and scalars. The length of a subquery's grid depends only on the query
    /// text, so this memory is reserved before anything is allocated.
    fn reserve_steps(&self, grid: &Grid) -> Result<Reservation, QueryError> {
        const STEP_BYTES: usize = 64;
        self.run.account.admit(grid.count as u64)?;
        let threads = self.run.ctx.compute.threads().max(1);
        let bytes = grid.count.saturating_mul(STEP_BYTES);
        self.run.account.reserve(bytes.saturating_mul(threads))
    }
}
