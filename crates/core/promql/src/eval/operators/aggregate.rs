//! Aggregations: the operators that fold the rows of a group into one row.
//!
//! Each part of the series folds its rows directly into dense rows of its groups, and the parts are
//! merged in order. Nothing is retained of a series. Operators that need all values of a group at
//! once (`quantile`, `topk`, ...) are in separate modules.

mod bits;
pub(crate) mod cells;
mod histograms;

use crate::ast::{AggregateOp, PositionRange};
use crate::eval::account::{QueryAccount, grow_to};
use crate::eval::annotations::{Annotation, HistogramOperation, QueryAnnotations};
use crate::eval::operators::grouping::SeriesGroups;
use crate::eval::operators::stream::SeriesStream;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::parts::{SERIES_PER_PART, run_in_parts};
use crate::eval::rows::row::{ABSENT, HistogramPoint, StepRow, StepRowBuffer, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::eval::run::EvalContext;
use crate::grid::StepGrid;
use crate::plan::PlanAggregate;
use crate::value::PromqlError;
use bits::Magnitudes;
use cells::{AggregateFold, GroupCells};
use firn_model::budget::Reservation;
use firn_model::kahan::RunningMean;
use firn_model::labels::METRIC_NAME;
use histograms::{GroupHistogramRemarks, GroupHistogramResult};
use std::ops::Range;
use std::sync::Arc;

/// The parameters for folding a part of a stream, shared by all threads.
struct FoldParams<'a> {
    stream: &'a SeriesStream,
    groups: &'a SeriesGroups,
    account: &'a QueryAccount<'a>,
    node: &'a PlanAggregate,
    fold: AggregateFold,
    steps: usize,
    /// True if the parts record the magnitudes of their values.
    records_magnitudes: bool,
}

/// The cells of a part, the reservation for their memory, and the annotations of the part.
type Folded = (GroupCells, Reservation, QueryAnnotations);

impl FoldParams<'_> {
    fn fold_part(&self, part: Range<usize>) -> Result<Folded, PromqlError> {
        let mut notes = QueryAnnotations::default();
        let groups = self.groups.len().min(part.len());
        let mut cells = GroupCells::new(self.fold, self.steps, groups);
        cells.magnitudes = self.records_magnitudes.then(Magnitudes::default);
        let mut memory = self.account.reserve(0)?;
        let (mut samples, mut ignored) = (0, false);
        let mut each = |series: usize, row: &mut StepRowBuffer, _: &mut QueryAnnotations| {
            let row = row.row();
            ignored |= !row.histograms.is_empty();
            let group = self.groups.of_series[series];
            let drops_name = self.stream.drops_name(series);
            samples += cells.add(group, series as u32, row, drops_name);
            grow_to(&mut memory, cells.bytes())
        };
        self.stream
            .scan(part, self.account, &mut notes, &mut each)?;
        self.account.hold_samples(samples)?;
        if ignored && self.fold.ignores_histograms() {
            let name = self.node.op.as_str();
            notes.add(Annotation::ignored_in_aggregation(
                self.node.input.span,
                name,
            ));
        }
        self.add_remarks(cells.take_remarks(), &mut notes);
        Ok((cells, memory, notes))
    }

    /// Adds the annotations about additions of histograms to `notes`, with the position of the
    /// input.
    fn add_remarks(&self, remarks: GroupHistogramRemarks, notes: &mut QueryAnnotations) {
        let span = self.node.input.span;
        for series in remarks.incompatible {
            let labels = self.stream.labels(series as usize);
            notes.add(Annotation::mixed_schemas(span, labels.get(METRIC_NAME)));
        }
        if remarks.reconciled {
            let operation = HistogramOperation::Aggregation;
            notes.add(Annotation::reconciled_bounds(span, operation));
        }
    }
}

/// Evaluates an aggregation that folds one value after another.
pub(crate) fn evaluate_fold(
    run: &mut EvalContext<'_>,
    node: &PlanAggregate,
    input: SeriesStream,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    let fold = match node.op {
        AggregateOp::Sum => AggregateFold::Sum,
        AggregateOp::Avg => AggregateFold::Mean,
        AggregateOp::Min => AggregateFold::Min,
        AggregateOp::Max => AggregateFold::Max,
        AggregateOp::Group => AggregateFold::Group,
        AggregateOp::Stddev => AggregateFold::Variance { root: true },
        AggregateOp::Stdvar => AggregateFold::Variance { root: false },
        _ => AggregateFold::Count,
    };
    let stream = input.with_distinct_series(run)?;
    let groups = SeriesGroups::from_stream(&stream, &node.grouping, run)?;
    let account = run.account;
    let folding = FoldParams {
        stream: &stream,
        groups: &groups,
        account,
        node,
        fold,
        steps: grid.count,
        records_magnitudes: needs_magnitudes(run, fold),
    };
    let mut total: Option<GroupCells> = None;
    let mut reserved = Vec::new();
    let all_notes = &mut run.notes;
    let merge = |(mut cells, memory, notes): Folded| {
        all_notes.merge(notes);
        match &mut total {
            None => {
                cells.reserve_groups(groups.len());
                total = Some(cells);
                reserved.push(memory);
            }
            Some(total) => {
                let before = total.bytes();
                total.merge(cells);
                folding.add_remarks(total.take_remarks(), all_notes);
                let more = total.bytes().saturating_sub(before);
                reserved.push(account.reserve(more)?);
            }
        }
        Ok(())
    };
    run_in_parts(
        run.ctx.compute,
        stream.len(),
        fold.series_per_part(stream.len(), grid.count),
        |part| folding.fold_part(part),
        merge,
    )?;
    let mut frame = match &mut total {
        None => SeriesFrame::new(grid.count),
        Some(cells) => {
            if cells.has_overflowed() {
                recompute_means(&stream, &groups, run, cells)?;
            }
            finish(cells, &groups, node.input.span, &mut run.notes)
        }
    };
    reserved
        .into_iter()
        .for_each(|memory| frame.hold_reservation(memory));
    Ok(frame)
}

/// Marks the result as dependent on the range of the query if the function is computed in the order
/// of the series. Returns whether the magnitudes of the values determine this dependence.
fn needs_magnitudes(run: &mut EvalContext<'_>, fold: AggregateFold) -> bool {
    if matches!(fold, AggregateFold::Variance { .. }) {
        run.notes.mark_range_dependent();
    }
    run.options.detects_range_dependence && fold.is_sum()
}

/// Recomputes means whose sum overflows, value by value, as Prometheus computes all means.
fn recompute_means(
    stream: &SeriesStream,
    groups: &SeriesGroups,
    run: &EvalContext<'_>,
    cells: &mut GroupCells,
) -> Result<(), PromqlError> {
    let steps = stream.steps();
    let mut means: Vec<Option<RunningMean>> = vec![None; groups.len() * steps];
    let _memory = run
        .account
        .reserve(means.len() * size_of::<Option<RunningMean>>())?;
    stream.close_tallies();
    let mut each = |series: usize, row: &mut StepRowBuffer, _: &mut QueryAnnotations| {
        let group = groups.of_series[series] as usize;
        let means = &mut means[group * steps..(group + 1) * steps];
        for (mean, value) in means.iter_mut().zip(&row.values) {
            match mean {
                _ if is_absent(*value) => {}
                Some(mean) => mean.add(*value),
                None => *mean = Some(RunningMean::new(*value)),
            }
        }
        Ok(())
    };
    for start in (0..stream.len()).step_by(SERIES_PER_PART) {
        let part = start..(start + SERIES_PER_PART).min(stream.len());
        let mut seen_before = QueryAnnotations::default();
        stream.scan(part, run.account, &mut seen_before, &mut each)?;
    }
    cells.set_means(|group, step| means[group as usize * steps + step].map(|mean| mean.value()));
    Ok(())
}

fn finish(
    cells: &mut GroupCells,
    groups: &SeriesGroups,
    span: PositionRange,
    notes: &mut QueryAnnotations,
) -> SeriesFrame {
    let slots = cells.slots_in_order();
    let mut frame = SeriesFrame::with_capacity(cells.steps(), slots.len());
    let mut row = Vec::new();
    for slot in slots {
        if !cells.finish(slot, &mut row) {
            notes.mark_range_dependent();
        }
        let histograms = finish_histograms(cells, slot, &mut row, |remark| {
            notes.add(match remark {
                GroupRemark::Histograms => return notes.mark_range_dependent(),
                GroupRemark::Mix => Annotation::mixed_aggregation(span),
                GroupRemark::ConflictingResets => {
                    Annotation::conflicting_resets(span, HistogramOperation::Aggregation)
                }
            });
        });
        let labels = groups.labels[cells.group(slot) as usize].clone();
        let drops_name = cells.drops_name(slot);
        let row = StepRow {
            histograms: &histograms,
            ..StepRow::from_floats(&row)
        };
        frame.push(RowLabels { labels, drops_name }, row);
    }
    frame
}

/// A reason for an annotation about a group at a step.
enum GroupRemark {
    /// Histograms were added, whose sums depend on the order of the series.
    Histograms,
    /// The group contains floats and histograms, so it has no value.
    Mix,
    /// Some histograms are counter resets and others are not.
    ConflictingResets,
}

/// Returns the histograms of a group. At their steps, floats are removed from its `row`.
fn finish_histograms(
    cells: &mut GroupCells,
    slot: usize,
    row: &mut [f64],
    mut remark: impl FnMut(GroupRemark),
) -> Vec<HistogramPoint> {
    let mut points = Vec::new();
    for (step, outcome) in cells.take_histograms(slot) {
        remark(GroupRemark::Histograms);
        let has_float = !is_absent(std::mem::replace(&mut row[step], ABSENT));
        match outcome {
            GroupHistogramResult::Total(_) if has_float => remark(GroupRemark::Mix),
            GroupHistogramResult::Nothing { is_mix: true } => remark(GroupRemark::Mix),
            GroupHistogramResult::Nothing { is_mix: false } => {}
            GroupHistogramResult::Total(total) => {
                if total.hints_conflict() {
                    remark(GroupRemark::ConflictingResets);
                }
                let mut total = total.finish();
                total.compact();
                points.push((step as u32, Arc::new(total.into())));
            }
        }
    }
    points
}
