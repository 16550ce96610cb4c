//! The aggregation `quantile`, which needs all values of a group at a step at once.

use crate::eval::account::QueryAccount;
use crate::eval::annotations::{Annotation, QueryAnnotations};
use crate::eval::operators::grouping::SeriesGroups;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::parts::run_in_parts;
use crate::eval::rows::row::{ABSENT, StepRow, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::eval::run::EvalContext;
use crate::grid::StepGrid;
use crate::math::float;
use crate::math::float::{FloatRank, quantile};
use crate::plan::PlanAggregate;
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use std::ops::Range;
use std::sync::Arc;

/// Number of steps in a part: their values of one series share a cache line.
const STEPS_PER_PART: usize = 8;

/// The extreme values of a parameter over all steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParamExtremes {
    /// The smallest value; NaN if any value is NaN.
    pub(crate) min: f64,
    /// The largest value; NaN if any value is NaN.
    pub(crate) max: f64,
    /// True if any value of the parameter is NaN.
    pub(crate) any_nan: bool,
}

impl ParamExtremes {
    /// Returns the extremes of the values of all steps.
    pub(crate) fn from_params(values: &[f64]) -> Self {
        Self {
            min: values.iter().copied().fold(f64::MAX, float::min),
            max: values.iter().copied().fold(-f64::MAX, float::max),
            any_nan: values.iter().any(|v| v.is_nan()),
        }
    }
}

/// Evaluates the aggregation. `params` contains the quantile of each step.
pub(crate) fn evaluate_quantiles(
    run: &mut EvalContext<'_>,
    node: &PlanAggregate,
    params: Vec<f64>,
    input: Arc<SeriesFrame>,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    assert_eq!(params.len(), grid.count, "quantiles, and steps");
    assert_eq!(
        input.steps(),
        grid.count,
        "steps of the input, and of the grid"
    );
    let groups = SeriesGroups::from_frame(&input, &node.grouping, run)?;
    let (compute, account) = (run.ctx.compute, run.account);
    add_remarks(run, node, &params, &input);
    let _members = account.reserve(groups.members_bytes())?;
    let members = groups.members();
    let choice = QuantileInputs {
        input: &input,
        members: &members,
        params: &params,
        account,
    };
    // All rows, and their copies in the result, with capacity for twice as many.
    let memory = account.reserve(3 * groups.len() * grid.count * size_of::<f64>())?;
    let mut rows = vec![ABSENT; groups.len() * grid.count];
    let merge = |part: GroupQuantiles| {
        for (row, values) in rows.chunks_mut(grid.count).zip(part.iter_groups()) {
            row[part.steps.clone()].copy_from_slice(values);
        }
        Ok(())
    };
    let task = |steps| choice.compute_steps(steps);
    run_in_parts(compute, grid.count, STEPS_PER_PART, task, merge)?;
    let mut out = SeriesFrame::new(grid.count);
    out.hold_reservation(memory);
    for (group, values) in rows.chunks(grid.count).enumerate() {
        account.check()?;
        let mut members = members[group].iter();
        let drops_name = members.any(|series| input.drops_name(*series as usize));
        let labels = groups.labels[group].clone();
        out.push(
            RowLabels { labels, drops_name },
            StepRow::from_floats(values),
        );
    }
    Ok(out)
}

fn add_remarks(
    run: &mut EvalContext<'_>,
    node: &PlanAggregate,
    params: &[f64],
    input: &SeriesFrame,
) {
    let extremes = ParamExtremes::from_params(params);
    let notes: &mut QueryAnnotations = &mut run.notes;
    let span = node.param.as_ref().map_or(node.input.span, |p| p.span);
    if input.len() > 0 || !params.is_empty() {
        if extremes.any_nan {
            notes.add(Annotation::invalid_quantile(span, f64::NAN));
        }
        if extremes.max > 1.0 {
            notes.add(Annotation::invalid_quantile(span, extremes.max));
        }
        if extremes.min < 0.0 {
            notes.add(Annotation::invalid_quantile(span, extremes.min));
        }
    }
    if input.has_histograms() {
        let name = node.op.as_str();
        notes.add(Annotation::ignored_in_aggregation(node.input.span, name));
    }
}

/// The inputs of the computation, shared by all threads.
struct QuantileInputs<'a> {
    input: &'a SeriesFrame,
    members: &'a [Vec<u32>],
    params: &'a [f64],
    account: &'a QueryAccount<'a>,
}

/// The quantiles of all groups at some steps, computed by one thread.
struct GroupQuantiles {
    steps: Range<usize>,
    /// The values ordered by group, then by step; absent if a group has no value.
    values: Vec<f64>,
    _memory: Reservation,
}

impl GroupQuantiles {
    fn iter_groups(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks(self.steps.len())
    }
}

impl QuantileInputs<'_> {
    /// Computes the quantiles of some steps. Reads each series once for all of them.
    fn compute_steps(&self, steps: Range<usize>) -> Result<GroupQuantiles, PromqlError> {
        let largest = self.members.iter().map(Vec::len).max().unwrap_or(0);
        let columns_bytes = steps.len() * largest * size_of::<FloatRank>();
        let _columns = self.account.reserve(columns_bytes)?;
        let values_bytes = self.members.len() * steps.len() * size_of::<f64>();
        let memory = self.account.reserve(values_bytes)?;
        let column = |_| Vec::with_capacity(largest);
        let mut columns: Vec<Vec<FloatRank>> = steps.clone().map(column).collect();
        let mut values = Vec::with_capacity(self.members.len() * steps.len());
        for members in self.members {
            columns.iter_mut().for_each(Vec::clear);
            for member in members {
                self.account.check()?;
                let row = &self.input.row(*member as usize).values[steps.clone()];
                for (column, value) in columns.iter_mut().zip(row) {
                    if !is_absent(*value) {
                        column.push(FloatRank::from_float(*value));
                    }
                }
            }
            for (column, param) in columns.iter_mut().zip(&self.params[steps.clone()]) {
                self.account.check()?;
                values.push(if column.is_empty() {
                    ABSENT
                } else {
                    quantile(*param, column)
                });
            }
        }
        Ok(GroupQuantiles {
            steps,
            values,
            _memory: memory,
        })
    }
}
