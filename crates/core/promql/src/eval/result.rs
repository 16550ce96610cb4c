//! Converts the rows of the last operator to the value of the query.

use crate::ast::ValueType;
use crate::eval::account::{QueryAccount, grow};
use crate::eval::evaluator::Evaluator;
use crate::eval::kernels::edges;
use crate::eval::kernels::edges::SelectorOverhang;
use crate::eval::kernels::samples::SampleSlices;
use crate::eval::operators::stream::{NameCollisionRule, merge_equal};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::label_sets::without_metadata;
use crate::eval::rows::order::sort_indexes;
use crate::eval::rows::parts::{SERIES_PER_PART, run_in_parts};
use crate::eval::rows::reads::ReadBuffer;
use crate::eval::rows::row::{histogram_bytes, is_absent};
use crate::eval::rows::source::SampleSource;
use crate::eval::tally::{HeldSamples, SeriesWindows, WindowExtent};
use crate::grid::StepGrid;
use crate::plan::{PlanNode, PlanNodeKind, QueryTimes};
use crate::value::{MatrixSeries, PromqlError, QueryPointValue, QueryValue, VectorElement};
use firn_model::budget::Reservation;
use firn_model::columns::SeriesColumns;
use firn_model::labels::Labels;
use firn_model::sample::{TimestampMs, is_stale};
use std::ops::Range;
use std::sync::Arc;

/// Evaluates the whole plan. Returns the value and the reservation for its memory.
pub(crate) fn evaluate_plan(
    evaluator: &mut Evaluator<'_>,
    node: &PlanNode,
    times: &QueryTimes,
    is_range: bool,
) -> Result<(QueryValue, Reservation), PromqlError> {
    let grid = times.grid();
    let account = evaluator.run.account;
    match (node.value_type, &node.kind) {
        (ValueType::String, PlanNodeKind::Text(text)) => {
            let memory = account.reserve(text.len())?;
            Ok((QueryValue::String(times.start, text.clone()), memory))
        }
        (ValueType::Scalar, _) => {
            let values = evaluator.evaluate_scalar(node, grid)?;
            account.hold_samples(values.len() as u64)?;
            match (is_range, values.first()) {
                (false, Some(value)) => {
                    Ok((QueryValue::Scalar(times.start, *value), account.reserve(0)?))
                }
                _ => build_matrix(evaluator, &SeriesFrame::from_scalars(&values), &grid),
            }
        }
        (ValueType::Matrix, _) => {
            let (series, memory) = evaluate_range_vector(evaluator, node, grid)?;
            Ok((QueryValue::Matrix(sort_by_labels(series, account)?), memory))
        }
        _ => {
            let frame = evaluate_without_names(evaluator, node, grid)?;
            if is_range {
                build_matrix(evaluator, &frame, &grid)
            } else {
                build_vector(evaluator, &frame, times.start)
            }
        }
    }
}

/// Evaluates an instant vector and removes the metric names whose removal was delayed.
fn evaluate_without_names(
    evaluator: &mut Evaluator<'_>,
    node: &PlanNode,
    grid: StepGrid,
) -> Result<Arc<SeriesFrame>, PromqlError> {
    if !evaluator.run.delays_names() {
        return evaluator.evaluate_mixed_frame(node, grid);
    }
    let mut frame = evaluator.evaluate_owned_frame(node, grid)?;
    let mut memory = evaluator.run.account.reserve(0)?;
    let all = frame.row_labels_mut(evaluator.run.account, &mut memory)?;
    for row_labels in all.iter_mut().filter(|l| l.drops_name) {
        evaluator.run.account.check()?;
        grow(&mut memory, row_labels.labels.as_bytes().len())?;
        row_labels.labels = without_metadata(row_labels.labels.as_ref());
    }
    frame.hold_reservation(memory);
    merge_equal(
        frame,
        NameCollisionRule::MergedByKind,
        evaluator.run.account,
    )
    .map(Arc::new)
}

fn build_vector(
    evaluator: &Evaluator<'_>,
    frame: &SeriesFrame,
    time: TimestampMs,
) -> Result<(QueryValue, Reservation), PromqlError> {
    let element = |series: usize| {
        let row = frame.row(series);
        let value = match row.histograms.first() {
            Some((_, histogram)) => QueryPointValue::Histogram(histogram.clone()),
            None => QueryPointValue::Float(row.values[0]),
        };
        VectorElement {
            labels: frame.labels(series),
            time,
            value,
        }
    };
    let element = |series: usize| {
        let element = element(series);
        let bytes = size_of::<VectorElement>() + element.labels.as_bytes().len();
        (element, bytes + frame.row(series).histogram_bytes())
    };
    let (elements, memory) = map_in_order(evaluator, frame.len(), element)?;
    Ok((QueryValue::Vector(elements), memory))
}

/// Sorts series by their labels. Fails if the query is canceled or memory is exceeded.
fn sort_by_labels(
    mut series: Vec<MatrixSeries>,
    account: &QueryAccount<'_>,
) -> Result<Vec<MatrixSeries>, PromqlError> {
    let list_bytes = series.len() * (size_of::<usize>() + size_of::<MatrixSeries>());
    let _lists = account.reserve(list_bytes)?;
    let mut order: Vec<usize> = (0..series.len()).collect();
    sort_indexes(&mut order, account, |a, b| {
        series[a].labels.cmp(&series[b].labels)
    })?;
    let sorted = order.into_iter().map(|at| std::mem::take(&mut series[at]));
    Ok(sorted.collect())
}

fn build_matrix(
    evaluator: &Evaluator<'_>,
    frame: &SeriesFrame,
    grid: &StepGrid,
) -> Result<(QueryValue, Reservation), PromqlError> {
    let series = |series: usize| {
        let row = frame.row(series);
        let present = row.values.iter().filter(|value| !is_absent(**value));
        let mut floats = Vec::with_capacity(present.count());
        let steps = row.values.iter().enumerate();
        let steps = steps.filter(|(_, value)| !is_absent(**value));
        floats.extend(steps.map(|(step, value)| (grid.time(step), *value)));
        MatrixSeries {
            labels: frame.labels(series),
            floats,
            histograms: row
                .histograms
                .iter()
                .map(|(step, histogram)| (grid.time(*step as usize), histogram.clone()))
                .collect(),
        }
    };
    let series = |at: usize| {
        let series = series(at);
        let bytes = series_bytes(&series);
        (series, bytes)
    };
    let (all, memory) = map_in_order(evaluator, frame.len(), series)?;
    Ok((
        QueryValue::Matrix(sort_by_labels(all, evaluator.run.account)?),
        memory,
    ))
}

/// Calls `make` for all series in parallel and returns the results in order. `make` also returns
/// the size of each result in bytes, which is reserved.
fn map_in_order<T: Send>(
    evaluator: &Evaluator<'_>,
    series: usize,
    make: impl Fn(usize) -> (T, usize) + Sync,
) -> Result<(Vec<T>, Reservation), PromqlError> {
    let account = evaluator.run.account;
    let mut memory = account.reserve(0)?;
    let mut out = Vec::with_capacity(series);
    let task = |part: Range<usize>| {
        let mut made = Vec::with_capacity(part.len());
        let mut memory = account.reserve(0)?;
        for series in part {
            account.check()?;
            let (one, bytes) = make(series);
            grow(&mut memory, bytes)?;
            made.push(one);
        }
        Ok((made, memory))
    };
    let merge = |(part, of_part): (Vec<T>, Reservation)| {
        grow(&mut memory, of_part.bytes())?;
        out.extend(part);
        Ok(())
    };
    run_in_parts(
        evaluator.run.ctx.compute,
        series,
        SERIES_PER_PART,
        task,
        merge,
    )?;
    Ok((out, memory))
}

/// Returns the samples of a range vector, for an instant query.
fn evaluate_range_vector(
    evaluator: &mut Evaluator<'_>,
    node: &PlanNode,
    grid: StepGrid,
) -> Result<(Vec<MatrixSeries>, Reservation), PromqlError> {
    let (source, reach, overhang) = evaluator.evaluate_matrix(node, grid)?;
    let newest = reach.end(grid.start);
    let oldest = newest.saturating_sub(reach.range_ms);
    let range = overhang.map(|overhang| (overhang, overhang.range_at(&reach, grid.start)));
    let account = evaluator.run.account;
    let mut memory = account.reserve(0)?;
    let mut out = Vec::new();
    let tally = evaluator.window_tally(node, grid)?;
    let mut windows = WindowExtent::default();
    let all = 0..source.len();
    ReadBuffer::default().read(&*source, all, 0, account, |stretch, batch| {
        for (at, series) in stretch.enumerate() {
            account.check()?;
            if tally.is_some() {
                let of_series = SeriesWindows::from_series(&batch.series(at), &grid, &reach);
                windows.add_series(&of_series, HeldSamples::Window);
            }
            let labels = final_labels(evaluator, &*source, series);
            let mut series = build_series(labels, &batch.series(at), oldest, newest);
            if let Some((overhang, range)) = range {
                extend_edges(&mut series, overhang, range)?;
            }
            let samples = (series.floats.len() + series.histograms.len()) as u64;
            account.hold_samples(samples)?;
            account.count_read(samples);
            if samples > 0 {
                grow(&mut memory, series_bytes(&series))?;
                out.push(series);
            }
        }
        Ok(())
    })?;
    if let Some(tally) = tally {
        tally.add(0, windows);
    }
    Ok((out, memory))
}

/// Adds interpolated values at the edges of a window. Fails if the window contains histograms.
fn extend_edges(
    series: &mut MatrixSeries,
    overhang: SelectorOverhang,
    range: edges::SelectorRange,
) -> Result<(), PromqlError> {
    if !series.histograms.is_empty() {
        return Err(PromqlError::Execution(format!(
            "{} modifier is not supported with histograms",
            overhang.name()
        )));
    }
    let (times, values): (Vec<_>, Vec<_>) = series.floats.iter().copied().unzip();
    let window = SampleSlices {
        times: &times,
        values: &values,
        starts: &[],
    };
    series.floats = overhang.extend(&window, range);
    Ok(())
}

fn series_bytes(series: &MatrixSeries) -> usize {
    size_of::<MatrixSeries>()
        + series.labels.as_bytes().len()
        + series.floats.capacity() * size_of::<(TimestampMs, f64)>()
        + histogram_bytes(&series.histograms)
}

fn final_labels(evaluator: &Evaluator<'_>, source: &dyn SampleSource, series: usize) -> Labels {
    let labels = source.labels(series);
    if evaluator.run.delays_names() && source.drops_name(series) {
        without_metadata(labels.as_ref())
    } else {
        labels
    }
}

fn build_series(
    labels: Labels,
    columns: &SeriesColumns<'_>,
    oldest: TimestampMs,
    newest: TimestampMs,
) -> MatrixSeries {
    let mut series = MatrixSeries {
        labels,
        ..MatrixSeries::default()
    };
    let mut histograms = columns.histograms.iter().peekable();
    for (index, time) in columns.times.iter().enumerate() {
        let histogram = histograms.next_if(|(at, _)| *at as usize == index);
        if *time <= oldest || *time > newest {
            continue;
        }
        match histogram {
            Some((_, histogram)) if !histogram.is_stale() => {
                series.histograms.push((*time, histogram.clone()));
            }
            None if !is_stale(columns.values[index]) => {
                series.floats.push((*time, columns.values[index]));
            }
            _ => {}
        }
    }
    series
}
