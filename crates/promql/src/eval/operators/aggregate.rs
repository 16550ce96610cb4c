//! Aggregations: the operators that fold the rows of a group into one row.
//!
//! Each part of the series folds its rows directly into dense rows of its groups, and the parts are
//! merged in order. Nothing is retained of a series. Operators that need all values of a group at
//! once (`quantile`, `topk`, ...) are in separate modules.

pub(crate) mod cells;
mod histograms;

use crate::ast::{AggregateOp, Span};
use crate::eval::account::{Account, grow_to};
use crate::eval::annotations::{Annotation, Annotations, HistogramOperation};
use crate::eval::operators::grouping::Groups;
use crate::eval::operators::stream::Stream;
use crate::eval::rows::frame::Frame;
use crate::eval::rows::parts::{SERIES_PER_PART, in_parts};
use crate::eval::rows::row::{ABSENT, HistogramPoint, Row, RowBuffer, is_absent};
use crate::eval::rows::row_labels::RowLabels;
use crate::eval::run::Run;
use crate::grid::Grid;
use crate::plan::Aggregate;
use crate::value::QueryError;
use cells::{Cells, Fold};
use firn_model::budget::Reservation;
use firn_model::kahan::Mean;
use firn_model::labels::METRIC_NAME;
use histograms::{Outcome, Remarks};
use std::ops::Range;
use std::sync::Arc;

/// The parameters for folding a part of a stream, shared by all threads.
struct Folding<'a> {
    stream: &'a Stream,
    groups: &'a Groups,
    account: &'a Account<'a>,
    node: &'a Aggregate,
    fold: Fold,
    steps: usize,
}

/// The cells of a part, the reservation for their memory, and the annotations of the part.
type Folded = (Cells, Reservation, Annotations);

impl Folding<'_> {
    fn part(&self, part: Range<usize>) -> Result<Folded, QueryError> {
        let mut notes = Annotations::default();
        let groups = self.groups.len().min(part.len());
        let mut cells = Cells::new(self.fold, self.steps, groups);
        let mut memory = self.account.reserve(0)?;
        let (mut samples, mut ignored) = (0, false);
        let mut each = |series: usize, row: &mut RowBuffer, _: &mut Annotations| {
            let row = row.row();
            ignored |= !row.histograms.is_empty();
            let group = self.groups.of_series[series];
            let drops_name = self.stream.drops_name(series);
            samples += cells.add(group, series as u32, row, drops_name);
            grow_to(&mut memory, cells.bytes())
        };
        self.stream
            .scan(part, self.account, &mut notes, &mut each)?;
        self.account.hold(samples)?;
        if ignored && self.fold.ignores_histograms() {
            let name = self.node.op.as_str();
            notes.add(Annotation::ignored_in_aggregation(
                self.node.input.span,
                name,
            ));
        }
        self.remark(cells.take_remarks(), &mut notes);
        Ok((cells, memory, notes))
    }

    /// Adds the annotations about additions of histograms to `notes`, with the position of the
    /// input.
    fn remark(&self, remarks: Remarks, notes: &mut Annotations) {
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
pub(crate) fn frame(
    run: &mut Run<'_>,
    node: &Aggregate,
    input: Stream,
    grid: Grid,
) -> Result<Frame, QueryError> {
    let fold = match node.op {
        AggregateOp::Sum => Fold::Sum,
        AggregateOp::Avg => Fold::Mean,
        AggregateOp::Min => Fold::Min,
        AggregateOp::Max => Fold::Max,
        AggregateOp::Group => Fold::Group,
        AggregateOp::Stddev => Fold::Variance { root: true },
        AggregateOp::Stdvar => Fold::Variance { root: false },
        _ => Fold::Count,
    };
    let stream = input.with_distinct_series(run)?;
    let groups = Groups::of(&stream, &node.grouping, run)?;
    let account = run.account;
    let folding = Folding {
        stream: &stream,
        groups: &groups,
        account,
        node,
        fold,
        steps: grid.count,
    };
    let mut total: Option<Cells> = None;
    let mut reserved = Vec::new();
    let all_notes = &mut run.notes;
    let merge = |(mut cells, memory, notes): Folded| {
        all_notes.merge(notes);
        match &mut total {
            None => {
                cells.expect(groups.len());
                total = Some(cells);
                reserved.push(memory);
            }
            Some(total) => {
                let before = total.bytes();
                total.merge(cells);
                folding.remark(total.take_remarks(), all_notes);
                let more = total.bytes().saturating_sub(before);
                reserved.push(account.reserve(more)?);
            }
        }
        Ok(())
    };
    in_parts(
        run.ctx.compute,
        stream.len(),
        fold.series_per_part(stream.len(), grid.count),
        |part| folding.part(part),
        merge,
    )?;
    let mut frame = match &mut total {
        None => Frame::new(grid.count),
        Some(cells) => {
            if cells.overflowed() {
                means_one_by_one(&stream, &groups, run, cells)?;
            }
            finish(cells, &groups, node.input.span, &mut run.notes)
        }
    };
    reserved.into_iter().for_each(|memory| frame.keep(memory));
    Ok(frame)
}

/// Recomputes means whose sum overflows, value by value, as Prometheus computes all means.
fn means_one_by_one(
    stream: &Stream,
    groups: &Groups,
    run: &Run<'_>,
    cells: &mut Cells,
) -> Result<(), QueryError> {
    let steps = stream.steps();
    let mut means: Vec<Option<Mean>> = vec![None; groups.len() * steps];
    let _memory = run
        .account
        .reserve(means.len() * size_of::<Option<Mean>>())?;
    stream.close_tallies();
    let mut each = |series: usize, row: &mut RowBuffer, _: &mut Annotations| {
        let group = groups.of_series[series] as usize;
        let means = &mut means[group * steps..(group + 1) * steps];
        for (mean, value) in means.iter_mut().zip(&row.values) {
            match mean {
                _ if is_absent(*value) => {}
                Some(mean) => mean.add(*value),
                None => *mean = Some(Mean::of(*value)),
            }
        }
        Ok(())
    };
    for start in (0..stream.len()).step_by(SERIES_PER_PART) {
        let part = start..(start + SERIES_PER_PART).min(stream.len());
        let mut seen_before = Annotations::default();
        stream.scan(part, run.account, &mut seen_before, &mut each)?;
    }
    cells.set_means(|group, step| means[group as usize * steps + step].map(|mean| mean.value()));
    Ok(())
}

fn finish(cells: &mut Cells, groups: &Groups, span: Span, notes: &mut Annotations) -> Frame {
    let slots = cells.slots_in_order();
    let mut frame = Frame::with_room(cells.steps(), slots.len());
    let mut row = Vec::new();
    for slot in slots {
        cells.finish(slot, &mut row);
        let histograms = finish_histograms(cells, slot, &mut row, |remark| {
            notes.add(match remark {
                Remark::Mix => Annotation::mixed_aggregation(span),
                Remark::ConflictingResets => {
                    Annotation::conflicting_resets(span, HistogramOperation::Aggregation)
                }
            });
        });
        let labels = groups.labels[cells.group(slot) as usize].clone();
        let drops_name = cells.drops_name(slot);
        let row = Row {
            histograms: &histograms,
            ..Row::of_floats(&row)
        };
        frame.push(RowLabels { labels, drops_name }, row);
    }
    frame
}

/// A reason for an annotation about a group at a step.
enum Remark {
    /// The group contains floats and histograms, so it has no value.
    Mix,
    /// Some histograms are counter resets and others are not.
    ConflictingResets,
}

/// Returns the histograms of a group. At their steps, floats are removed from its `row`.
fn finish_histograms(
    cells: &mut Cells,
    slot: usize,
    row: &mut [f64],
    mut remark: impl FnMut(Remark),
) -> Vec<HistogramPoint> {
    let mut points = Vec::new();
    for (step, outcome) in cells.take_histograms(slot) {
        let has_float = !is_absent(std::mem::replace(&mut row[step], ABSENT));
        match outcome {
            Outcome::Total(_) if has_float => remark(Remark::Mix),
            Outcome::Nothing { is_mix: true } => remark(Remark::Mix),
            Outcome::Nothing { is_mix: false } => {}
            Outcome::Total(total) => {
                if total.hints_conflict() {
                    remark(Remark::ConflictingResets);
                }
                let mut total = total.finish();
                total.compact();
                points.push((step as u32, Arc::new(total.into())));
            }
        }
    }
    points
}
