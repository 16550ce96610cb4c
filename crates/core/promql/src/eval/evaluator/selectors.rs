//! Reads samples for the plan: instant selectors, range selectors and subqueries.

use super::reuse::{RangeVector, SharedValue};
use super::{Evaluator, not_a_vector};
use crate::ast::{ValueType, WindowEdges};
use crate::eval::account::storage_error;
use crate::eval::kernels::edges::SelectorOverhang;
use crate::eval::kernels::leaf::{EvalLeaf, EvalLeafKind};
use crate::eval::operators::stream::same_labelset_error;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::source::{SampleSource, SelectionMeter, SelectionSource, SubquerySource};
use crate::grid::{SelectorWindow, StepGrid};
use crate::plan::{PlanNode, PlanNodeKind, PlanSelector, PlanSubquery};
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::store::SelectRequest;
use std::sync::Arc;

impl Evaluator<'_> {
    /// Creates a leaf with the series that an instant selector finds.
    pub(super) fn build_selector_leaf(
        &mut self,
        node: &PlanNode,
        selector: &PlanSelector,
        kind: EvalLeafKind,
        grid: StepGrid,
    ) -> Result<EvalLeaf, PromqlError> {
        let lookback_ms = self.run.options.lookback_ms;
        let mut reach = SelectorWindow {
            range_ms: lookback_ms,
            offset_ms: selector.offset_ms,
            at: selector.at,
        };
        let ahead_ms = match selector.edges {
            // A smoothed selector reads as far ahead as back.
            WindowEdges::Smoothed => lookback_ms,
            _ => 0,
        };
        let loaded = SelectorWindow {
            range_ms: lookback_ms.saturating_add(ahead_ms),
            offset_ms: reach.offset_ms.saturating_sub(ahead_ms),
            ..reach
        };
        let source = match &node.shared {
            Some(shared) if shared.of_samples => {
                let value = self.get_or_evaluate(shared, grid, |evaluator| {
                    let source = evaluator.select(node, selector, &loaded, &grid, false)?;
                    Ok(SharedValue::Series(source))
                })?;
                match value {
                    SharedValue::Series(source) => source,
                    _ => return Err(not_a_vector(node)),
                }
            }
            _ => {
                let is_newest = matches!(kind, EvalLeafKind::Newest | EvalLeafKind::NewestTime);
                // All steps use the same sample.
                let newest_only =
                    is_newest && grid.count == 1 && loaded == reach && reach.at.is_none();
                self.select(node, selector, &loaded, &grid, newest_only)?
            }
        };
        match kind {
            EvalLeafKind::Smoothed(_) => reach = loaded,
            EvalLeafKind::NewestTime | EvalLeafKind::NewestStart if reach.at.is_some() => {
                // Prometheus uses the time of `@` here, with the samples that remain after applying
                // the offset.
                let later_ms = reach.offset_ms.saturating_neg().max(0);
                reach.offset_ms = loaded.offset_ms.max(0);
                let range_ms = lookback_ms.saturating_sub(reach.offset_ms);
                reach.range_ms = range_ms.saturating_sub(later_ms).max(0);
            }
            _ => {}
        }
        Ok(EvalLeaf {
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
        node: &PlanNode,
        selector: &PlanSelector,
        reach: &SelectorWindow,
        grid: &StepGrid,
        newest_only: bool,
    ) -> Result<Arc<dyn SampleSource>, PromqlError> {
        let request = SelectRequest {
            tenant: self.run.ctx.tenant,
            matchers: &selector.matchers,
            range: reach.time_range(grid),
            newest_only,
            cancel: self.run.ctx.cancel,
            budget: self.run.ctx.budget,
            series: self.run.account.series_limit(),
            span: None,
        };
        let selection = self.run.ctx.store.select(request).map_err(storage_error)?;
        self.run.account.register_selection(&*selection);
        let meter = self.run.account.meter().map(|meter| {
            let is_range = node.value_type == ValueType::Matrix;
            let selector = meter.place(node);
            SelectionMeter {
                meter: meter.clone(),
                selector,
                consumer: meter.consumer_of(selector, is_range),
            }
        });
        let source = SelectionSource::new(selection, &selector.matchers);
        let source = Arc::new(source.with_meter(meter));
        if self.run.options.detects_range_dependence {
            self.note_metadata_labels(&*source)?;
        }
        Ok(source)
    }

    /// Marks the result as dependent on its range if the series have metadata labels. Functions
    /// remove these labels and fail if two series become equal, even without a common step.
    fn note_metadata_labels(&mut self, source: &dyn SampleSource) -> Result<(), PromqlError> {
        for name in ["__type__", "__unit__"] {
            let (column, _memory) = source.label_column(name, self.run.account)?;
            if column.values.iter().any(|value| !value.is_empty()) {
                self.run.notes.mark_range_dependent();
            }
        }
        Ok(())
    }

    /// Returns the samples of a range vector: those of a selector, or the values of a subquery at
    /// its inner steps.
    pub(crate) fn evaluate_matrix(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<RangeVector, PromqlError> {
        let Some(shared) = &node.shared else {
            return self.measure(node, |evaluator| {
                evaluator.evaluate_unshared_matrix(node, grid)
            });
        };
        let value = self.get_or_evaluate(shared, grid, |evaluator| {
            Ok(SharedValue::Range(
                evaluator.evaluate_unshared_matrix(node, grid)?,
            ))
        })?;
        match value {
            SharedValue::Range(range) => Ok(range),
            _ => Err(not_a_vector(node)),
        }
    }

    fn evaluate_unshared_matrix(
        &mut self,
        node: &PlanNode,
        grid: StepGrid,
    ) -> Result<RangeVector, PromqlError> {
        match &node.kind {
            PlanNodeKind::Matrix(selector, range_ms) => {
                let mut reach = SelectorWindow {
                    range_ms: *range_ms,
                    offset_ms: selector.offset_ms,
                    at: selector.at,
                };
                let overhang =
                    SelectorOverhang::from_edges(selector.edges, self.run.options.lookback_ms);
                if let Some(overhang) = overhang {
                    reach = overhang.widen(reach);
                }
                let source = self.select(node, selector, &reach, &grid, false)?;
                Ok((source, reach, overhang))
            }
            PlanNodeKind::Subquery(subquery) => {
                let before = self.run.account.total();
                let (frame, inner, reach) = self.evaluate_subquery(subquery, grid)?;
                if let Some(meter) = self.run.account.meter() {
                    meter.add_series(meter.place(node), frame.len());
                }
                // The samples of the rows are counted when windows are created from them.
                self.run.account.set_total(before);
                Ok((Arc::new(SubquerySource::new(frame, &inner)), reach, None))
            }
            _ => Err(not_a_vector(node)),
        }
    }

    /// Evaluates the inner expression of a subquery at all multiples of its step within its
    /// windows.
    pub(super) fn evaluate_subquery(
        &mut self,
        subquery: &PlanSubquery,
        grid: StepGrid,
    ) -> Result<(SeriesFrame, StepGrid, SelectorWindow), PromqlError> {
        let reach = subquery.window();
        let inner_grid = subquery.grid(grid, self.run.options.default_subquery_step_ms);
        let memory = self.reserve_steps(&inner_grid)?;
        let around = std::mem::replace(&mut self.within_invariant, false);
        let mut frame = match subquery.inner.value_type {
            ValueType::Scalar => {
                let values = self.evaluate_scalar(&subquery.inner, inner_grid)?;
                SeriesFrame::from_scalars(&values)
            }
            _ => self.evaluate_owned_frame(&subquery.inner, inner_grid)?,
        };
        self.within_invariant = around;
        if frame.has_mixed_steps() {
            // A range vector has only one sample at each timestamp.
            return Err(same_labelset_error());
        }
        frame.hold_reservation(memory);
        Ok((frame, inner_grid, reach))
    }

    /// Reserves the memory that operators need per step, regardless of the number of series: row
    /// buffers, windows and scalars. The length of a subquery's grid depends only on the query
    /// text, so this memory is reserved before anything is allocated.
    fn reserve_steps(&self, grid: &StepGrid) -> Result<Reservation, PromqlError> {
        const STEP_BYTES: usize = 64;
        self.run.account.check_samples(grid.count as u64)?;
        let threads = self.run.ctx.compute.threads().max(1);
        let bytes = grid.count.saturating_mul(STEP_BYTES);
        self.run.account.reserve(bytes.saturating_mul(threads))
    }
}
