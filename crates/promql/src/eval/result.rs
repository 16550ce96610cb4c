//! From the rows of the last operator to the value of the query.

use crate::ast::ValueType;
use crate::eval::edges::{Overhang, Range};
use crate::eval::evaluator::{Evaluator, scalar_frame};
use crate::eval::frame::{Frame, is_absent};
use crate::eval::grid::Grid;
use crate::eval::label_sets::without_metadata;
use crate::eval::over_time::Floats;
use crate::eval::reads::ReadBuffer;
use crate::eval::source::Source;
use crate::eval::stream::{Collision, merge_equal};
use crate::plan::{Node, NodeKind, QueryTimes};
use crate::value::{MatrixSeries, PointValue, QueryError, Value, VectorElement};
use firn_model::columns::SeriesColumns;
use firn_model::labels::Labels;
use firn_model::sample::{TimestampMs, is_stale};
use std::sync::Arc;

/// Evaluates the whole plan.
pub(crate) fn value_of(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    times: &QueryTimes,
    is_range: bool,
) -> Result<Value, QueryError> {
    let grid = times.grid();
    match (node.value_type, &node.kind) {
        (ValueType::String, NodeKind::Text(text)) => Ok(Value::String(times.start, text.clone())),
        (ValueType::Scalar, _) => {
            let values = evaluator.scalar(node, grid)?;
            evaluator.account.hold(values.len() as u64)?;
            match (is_range, values.first()) {
                (false, Some(value)) => Ok(Value::Scalar(times.start, *value)),
                _ => Ok(Value::Matrix(matrix_of(&scalar_frame(&values), &grid))),
            }
        }
        (ValueType::Matrix, _) => {
            let mut series = range_vector(evaluator, node, grid)?;
            series.sort_by(|a, b| a.labels.cmp(&b.labels));
            Ok(Value::Matrix(series))
        }
        _ => {
            let frame = without_names(evaluator, node, grid)?;
            if is_range {
                let mut series = matrix_of(&frame, &grid);
                series.sort_by(|a, b| a.labels.cmp(&b.labels));
                return Ok(Value::Matrix(series));
            }
            Ok(Value::Vector(vector_of(&frame, times.start)))
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
    for head in frame.heads_mut().iter_mut().filter(|h| h.drops_name) {
        head.labels = without_metadata(head.labels.as_ref());
    }
    merge_equal(frame, Collision::MergedByKind, evaluator.account).map(Arc::new)
}

fn vector_of(frame: &Frame, time: TimestampMs) -> Vec<VectorElement> {
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
    (0..frame.len()).map(element).collect()
}

fn matrix_of(frame: &Frame, grid: &Grid) -> Vec<MatrixSeries> {
    let series = |series: usize| {
        let row = frame.row(series);
        let floats = row.values.iter().enumerate();
        MatrixSeries {
            labels: frame.head(series).labels.clone(),
            floats: floats
                .filter(|(_, value)| !is_absent(**value))
                .map(|(step, value)| (grid.time(step), *value))
                .collect(),
            histograms: row
                .histograms
                .iter()
                .map(|(step, histogram)| (grid.time(*step as usize), histogram.clone()))
                .collect(),
        }
    };
    (0..frame.len()).map(series).collect()
}

/// The samples themselves, for an instant query of a range vector.
fn range_vector(
    evaluator: &mut Evaluator<'_>,
    node: &Node,
    grid: Grid,
) -> Result<Vec<MatrixSeries>, QueryError> {
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
            let labels = labels_of(evaluator, &*source, series);
            let mut series = samples_of(labels, &batch.series(at), oldest, newest);
            if let Some((overhang, range)) = range {
                extend(&mut series, overhang, range)?;
            }
            let samples = (series.floats.len() + series.histograms.len()) as u64;
            account.hold(samples)?;
            account.count_read(samples);
            if samples > 0 {
                memory
                    .grow(bytes_of(&series))
                    .map_err(|e| QueryError::Limited(e.message))?;
                out.push(series);
            }
        }
        Ok(())
    })?;
    Ok(out)
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
        + size_of_val(&series.floats[..])
        + size_of_val(&series.histograms[..])
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
