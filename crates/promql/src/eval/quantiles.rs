//! `quantile`: needs all values of a group at a step at once.

use crate::eval::account::Account;
use crate::eval::annotations::{Annotation, Annotations};
use crate::eval::evaluator::Evaluator;
use crate::eval::frame::{ABSENT, Frame, Row, is_absent};
use crate::eval::go_math::{self, quantile};
use crate::eval::grid::Grid;
use crate::eval::grouping::Groups;
use crate::eval::heads::Head;
use crate::eval::ranges::in_parts;
use crate::eval::stream::Stream;
use crate::plan::Aggregate;
use crate::value::QueryError;
use firn_model::budget::Reservation;
use std::ops::Range;

/// Groups in a part: few, because a group may be large.
const GROUPS_PER_PART: usize = 4;

/// The extremes of a parameter over all steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extremes {
    /// The least; NaN if there is a NaN.
    pub(crate) min: f64,
    /// The greatest; NaN if there is a NaN.
    pub(crate) max: f64,
    /// Whether there is a NaN.
    pub(crate) any_nan: bool,
}

impl Extremes {
    /// Of the values of all steps.
    pub(crate) fn of(values: &[f64]) -> Self {
        Self {
            min: values.iter().copied().fold(f64::MAX, go_math::min),
            max: values.iter().copied().fold(-f64::MAX, go_math::max),
            any_nan: values.iter().any(|v| v.is_nan()),
        }
    }
}

/// The value of the parameter at each step.
pub(crate) fn param(
    evaluator: &mut Evaluator<'_>,
    node: &Aggregate,
    grid: Grid,
) -> Result<Vec<f64>, QueryError> {
    match &node.param {
        Some(param) => evaluator.scalar(param, grid),
        None => Ok(vec![0.0; grid.count]),
    }
}

/// The value of the aggregation.
pub(crate) fn frame(
    evaluator: &mut Evaluator<'_>,
    node: &Aggregate,
    grid: Grid,
) -> Result<Frame, QueryError> {
    let params = param(evaluator, node, grid)?;
    let input = Stream::from(evaluator.frame(&node.input, grid)?);
    let groups = Groups::of(
        &input,
        &node.grouping,
        evaluator.ctx.compute,
        evaluator.account,
    )?;
    let (compute, account) = (evaluator.ctx.compute, evaluator.account);
    let input = input.into_frame(compute, account, &mut evaluator.notes)?;
    remark(evaluator, node, &params, &input);
    let _members = account.reserve(groups.members_bytes())?;
    let members = groups.members();
    let mut out = Frame::new(grid.count);
    let task = |part: Range<usize>| {
        // Rows, and their copies in the result, which may have room for as many again.
        let memory = account.reserve(3 * part.len() * grid.count * size_of::<f64>())?;
        let mut rows = Vec::with_capacity(part.len());
        for group in part {
            rows.push((group, of_group(&input, &members[group], &params, account)?));
        }
        Ok((rows, memory))
    };
    let merge = |(rows, memory): (Vec<(usize, Vec<f64>)>, Reservation)| {
        out.keep(memory);
        for (group, values) in rows {
            let drops_name = |series: &u32| input.drops_name(*series as usize);
            let head = Head {
                labels: groups.labels[group].clone(),
                drops_name: members[group].iter().any(drops_name),
            };
            let row = Row {
                values: &values,
                histograms: &[],
            };
            out.push(head, row);
        }
        Ok(())
    };
    in_parts(compute, groups.len(), GROUPS_PER_PART, task, merge)?;
    Ok(out)
}

fn remark(evaluator: &mut Evaluator<'_>, node: &Aggregate, params: &[f64], input: &Frame) {
    let extremes = Extremes::of(params);
    let notes: &mut Annotations = &mut evaluator.notes;
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

fn of_group(
    input: &Frame,
    members: &[u32],
    params: &[f64],
    account: &Account<'_>,
) -> Result<Vec<f64>, QueryError> {
    let place_bytes = size_of::<f64>() + size_of::<&[f64]>();
    let _values = account.reserve(members.len() * place_bytes)?;
    let rows: Vec<&[f64]> = members
        .iter()
        .map(|m| input.row(*m as usize).values)
        .collect();
    let mut values = Vec::with_capacity(members.len());
    let at_step = |(step, param): (usize, &f64)| {
        account.check()?;
        values.clear();
        let of_members = rows.iter().map(|row| row[step]);
        values.extend(of_members.filter(|value| !is_absent(*value)));
        if values.is_empty() {
            return Ok(ABSENT);
        }
        Ok(quantile(*param, &mut values))
    };
    params.iter().enumerate().map(at_step).collect()
}
