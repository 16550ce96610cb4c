//! From the rows of the last operator to the value of the query.

use crate::ast::ValueType;
use crate::eval::account::{Account, grow};
use crate::eval::edges::{Overhang, Range};
use crate::eval::evaluator::{Evaluator, scalar_frame};
use crate::eval::frame::{Frame, histogram_bytes, is_absent};
use crate::eval::grid::Grid;
use crate::eval::label_sets::without_metadata;
use crate::eval::order::ordered;
use crate::eval::over_time::Floats;
use crate::eval::reads::ReadBuffer;
use crate::eval::source::Source;
use crate::eval::stream::{Collision, merge_equal};
use crate::plan::{Node, NodeKind, QueryTimes};
use crate::value::{MatrixSeries, PointValue, QueryError, Value, VectorElement};
use firn_model::budget::Reservation;
use firn_model::columns::SeriesColumns;
use firn_model::labels::Labels;
use firn_model::sample::{TimestampMs, is_stale};
use std::sync::Arc;

/// Evaluates the whole plan; returns the value and the memory that it takes.
pub(crate) fn value_of(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    times: &QueryTimes,
    is_range: bool,
) -> Result<(Value, Reservation), QueryError> {
    let grid = times.grid();
    let account = evaluator.account;
    match (node.value_type, &node.kind) {
        (ValueType::String, NodeKind::Text(text)) => {
            let memory = account.reserve(text.len())?;
            Ok((Value::String(times.start, text.clone()), memory))
        }
        (ValueType::Scalar, _) => {
            let values = evaluator.scalar(node, grid)?;
            account.hold(values.len() as u64)?;
            match (is_range, values.first()) {
                (false, Some(value)) => {
                    Ok((Value::Scalar(times.start, *value), account.reserve(0)?))
                }
                _ => matrix_of(&scalar_frame(&values), &grid, account),
            }
        }
        (ValueType::Matrix, _) => {
            let (mut series, mut memory) = range_vector(evaluator, node, grid)?;
            let order = by_labels(series.len(), account, |at| &series[at].labels)?;
            grow(&mut memory, size_of_val(&series[..]))?;
            let series = order.into_iter().map(|at| std::mem::take(&mut series[at]));
            Ok((Value::Matrix(series.collect()), memory))
        }
        _ => {
            let frame = without_names(evaluator, node, grid)?;
            match is_range {
                true => matrix_of(&frame, &grid, account),
                false => vector_of(&frame, times.start, account),
            }
        }
    }
}

/// The rows of a vector, the names dropped whose removal was put off.
fn without_names(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    grid: Grid,
) -> Result<Arc<Frame>, QueryError> {
    if !evaluator.delays_names() {
        return evaluator.frame(node, grid);
    }
    let mut frame = evaluator.own_frame(node, grid)?;
    let mut memory = evaluator.account.reserve(0)?;
    for head in frame.heads_mut().iter_mut().filter(|h| h.drops_name) {
        evaluator.account.check()?;
        grow(&mut memory, head.labels.as_bytes().len())?;
        head.labels = without_metadata(head.labels.as_ref());
    }
    frame.keep(memory);
    merge_equal(frame, Collision::MergedByKind, evaluator.account).map(Arc::new)
}

/// Bytes of the labels and histograms of a frame, which values made of it share.
fn shared_bytes(frame: &Frame, series: usize) -> usize {
    frame.head(series).labels.as_bytes().len() + frame.row(series).histogram_bytes()
}

fn vector_of(
    frame: &Frame,
    time: TimestampMs,
    account: &Account<'_>,
) -> Result<(Value, Reservation), QueryError> {
    let mut memory = account.reserve(frame.len() * size_of::<VectorElement>())?;
    for series in 0..frame.len() {
        account.check()?;
        grow(&mut memory, shared_bytes(frame, series))?;
    }
    let element = |series: usize| {
        let row = frame.row(series);
        let value = match row.histograms.first() {
            Some((_, histogram)) => PointValue::Histogram(histogram.clone()),
            None => PointValue::Float(row.values[0]),
        };
        VectorElement {
            labels: frame.head(series).labels.clone(),
            time,
            value,
        }
    };
    let elements = (0..frame.len()).map(element).collect();
    Ok((Value::Vector(elements), memory))
}

/// The numbers of `count` series in the order of their labels.
fn by_labels<'a>(
    count: usize,
    account: &Account<'_>,
    labels: impl Fn(usize) -> &'a Labels,
) -> Result<Vec<usize>, QueryError> {
    let _memory = account.reserve(count * size_of::<usize>())?;
    let mut order: Vec<usize> = (0..count).collect();
    ordered(&mut order, account, |a, b| labels(a).cmp(labels(b)))?;
    Ok(order)
}

fn matrix_of(
    frame: &Frame,
    grid: &Grid,
    account: &Account<'_>,
) -> Result<(Value, Reservation), QueryError> {
    let series = |series: usize| {
        let row = frame.row(series);
        let present = row.values.iter().filter(|value| !is_absent(**value));
        let mut floats = Vec::with_capacity(present.count());
        let steps = row.values.iter().enumerate();
        let steps = steps.filter(|(_, value)| !is_absent(**value));
        floats.extend(steps.map(|(step, value)| (grid.time(step), *value)));
        MatrixSeries {
            labels: frame.head(series).labels.clone(),
            floats,
            histograms: row
                .histograms
                .iter()
                .map(|(step, histogram)| (grid.time(*step as usize), histogram.clone()))
                .collect(),
        }
    };
    let order = by_labels(frame.len(), account, |at| &frame.head(at).labels)?;
    let mut memory = account.reserve(frame.len() * size_of::<MatrixSeries>())?;
    let mut all = Vec::with_capacity(frame.len());
    for at in order {
        account.check()?;
        let points = frame.steps() * size_of::<(TimestampMs, f64)>();
        grow(&mut memory, points + shared_bytes(frame, at))?;
        let one = series(at);
        let unused = points - size_of_val(&one.floats[..]);
        memory.shrink_to(memory.bytes() - unused);
        all.push(one);
    }
    Ok((Value::Matrix(all), memory))
}

/// The samples themselves, for an instant query of a range vector.
fn range_vector(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    grid: Grid,
) -> Result<(Vec<MatrixSeries>, Reservation), QueryError> {
    let (source, reach, overhang) = evaluator.matrix(node, grid)?;
    let newest = reach.end(grid.start);
    let oldest = newest.saturating_sub(reach.range_ms);
    let range = overhang.map(|overhang| (overhang, overhang.range_at(&reach, grid.start)));
    let account = evaluator.account;
    let mut memory = account.reserve(0)?;
    let mut out = Vec::new();
    let all = 0..source.len();
    ReadBuffer::default().read(&*source, all, 0, account, |stretch, batch| {
        for (at, series) in stretch.enumerate() {
            account.check()?;
            let labels = labels_of(evaluator, &*source, series);
            let mut series = samples_of(labels, &batch.series(at), oldest, newest);
            if let Some((overhang, range)) = range {
                extend(&mut series, overhang, range)?;
            }
            let samples = (series.floats.len() + series.histograms.len()) as u64;
            account.hold(samples)?;
            account.count_read(samples);
            if samples > 0 {
                grow(&mut memory, bytes_of(&series))?;
                out.push(series);
            }
        }
        Ok(())
    })?;
    Ok((out, memory))
}

/// Gives a window of floats its values at the edges.
fn extend(series: &mut MatrixSeries, overhang: Overhang, range: Range) -> Result<(), QueryError> {
    if !series.histograms.is_empty() {
        return Err(QueryError::Execution(format!(
            "{} modifier is not supported with histograms",
            overhang.name()
        )));
    }
    let (times, values): (Vec<_>, Vec<_>) = series.floats.iter().copied().unzip();
    let window = Floats {
        times: &times,
        values: &values,
        starts: &[],
    };
    series.floats = overhang.extend(&window, range);
    Ok(())
}

fn bytes_of(series: &MatrixSeries) -> usize {
    size_of::<MatrixSeries>()
        + series.labels.as_bytes().len()
        + series.floats.capacity() * size_of::<(TimestampMs, f64)>()
        + histogram_bytes(&series.histograms)
}

fn labels_of(evaluator: &Evaluator<'_>, source: &dyn Source, series: usize) -> Labels {
    let labels = source.labels(series);
    match evaluator.delays_names() && source.drops_name(series) {
        true => without_metadata(labels.as_ref()),
        false => labels,
    }
}

fn samples_of(
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
