//! Compares query results with the expected values of a script.

use super::almost::almost_equal;
use super::command::ExpectedValue;
use super::histogram::describe;
use super::sequence::{ScriptSampleValue, Sequence};
use crate::grid::StepGrid;
use crate::value::{MatrixSeries, QueryPointValue, QueryValue, VectorElement};
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;

/// Compares the value of a query with the expected value. `grid` contains the times of a matrix. If
/// `ordered` is true, the elements of a vector must have the order of the script.
pub(super) fn compare(
    expected: &ExpectedValue,
    found: &QueryValue,
    grid: Option<StepGrid>,
    ordered: bool,
) -> Result<(), String> {
    match (expected, found) {
        (ExpectedValue::Scalar(expected), QueryValue::Scalar(_, found)) => {
            if almost_equal(*expected, *found) {
                return Ok(());
            }
            Err(format!("expected scalar {expected}, got {found}"))
        }
        (ExpectedValue::String(expected), QueryValue::String(_, found)) => {
            if expected == found {
                return Ok(());
            }
            let (expected, found) = (expected.escape_ascii(), found.escape_ascii());
            Err(format!("expected string \"{expected}\", got \"{found}\""))
        }
        (ExpectedValue::Series(series), QueryValue::Vector(found)) => {
            compare_vector(series, found, ordered)
        }
        (ExpectedValue::Series(series), QueryValue::Matrix(found)) => match grid {
            Some(grid) => compare_matrix(series, found, grid),
            None => Err("expected a vector, got a matrix".into()),
        },
        (ExpectedValue::RangeVector(grid, series), QueryValue::Matrix(found)) => {
            compare_matrix(series, found, *grid)
        }
        _ => Err(format!(
            "expected {}, got {}",
            kind_expected(expected),
            kind_found(found)
        )),
    }
}

fn kind_expected(expected: &ExpectedValue) -> &'static str {
    match expected {
        ExpectedValue::Scalar(_) => "a scalar",
        ExpectedValue::String(_) => "a string",
        ExpectedValue::Series(_) => "series",
        ExpectedValue::RangeVector(..) => "a range vector",
    }
}

fn kind_found(found: &QueryValue) -> &'static str {
    match found {
        QueryValue::Scalar(..) => "a scalar",
        QueryValue::String(..) => "a string",
        QueryValue::Vector(_) => "a vector",
        QueryValue::Matrix(_) => "a matrix",
    }
}

fn compare_vector(
    expected: &[(Labels, Sequence)],
    found: &[VectorElement],
    ordered: bool,
) -> Result<(), String> {
    for (position, element) in found.iter().enumerate() {
        let labels = &element.labels;
        let place = expected.iter().position(|(wanted, _)| wanted == labels);
        let Some(place) = place else {
            return Err(format!(
                "unexpected {labels} {}",
                describe_point(&element.value)
            ));
        };
        if ordered && place != position {
            return Err(format!(
                "expected {labels} at place {place}, got it at {position}"
            ));
        }
        let missing = ScriptSampleValue::Float(0.0);
        let wanted = expected[place]
            .1
            .first()
            .and_then(Option::as_ref)
            .unwrap_or(&missing);
        compare_point(labels, wanted, &element.value)?;
    }
    let lost = expected
        .iter()
        .find(|(wanted, _)| !found.iter().any(|element| element.labels == *wanted));
    match lost {
        Some((labels, _)) => Err(format!("expected {labels}, not found")),
        None => Ok(()),
    }
}

fn compare_point(
    labels: &Labels,
    wanted: &ScriptSampleValue,
    found: &QueryPointValue,
) -> Result<(), String> {
    let is_same = match (wanted, found) {
        (ScriptSampleValue::Float(a), QueryPointValue::Float(b)) => almost_equal(*a, *b),
        (ScriptSampleValue::Histogram(a), QueryPointValue::Histogram(b)) => a.matches(b),
        _ => false,
    };
    if is_same {
        return Ok(());
    }
    let (wanted, found) = (wanted.describe(), describe_point(found));
    Err(format!("{labels}: expected {wanted}, got {found}"))
}

fn describe_point(point: &QueryPointValue) -> String {
    match point {
        QueryPointValue::Float(value) => value.to_string(),
        QueryPointValue::Histogram(histogram) => describe(histogram),
    }
}

fn compare_matrix(
    expected: &[(Labels, Sequence)],
    found: &[MatrixSeries],
    grid: StepGrid,
) -> Result<(), String> {
    check_sorted(found)?;
    for series in found {
        let labels = &series.labels;
        let wanted = expected.iter().find(|(wanted, _)| wanted == labels);
        let Some((_, values)) = wanted else {
            return Err(format!(
                "unexpected series {labels} {:?}",
                collect_points(series)
            ));
        };
        compare_points(labels, values, series, grid)?;
    }
    let lost = expected
        .iter()
        .find(|(wanted, _)| !found.iter().any(|series| series.labels == *wanted));
    match lost {
        Some((labels, _)) => Err(format!("expected series {labels}, not found")),
        None => Ok(()),
    }
}

/// Checks that the series are sorted by labels, which every matrix must be.
pub(super) fn check_sorted(found: &[MatrixSeries]) -> Result<(), String> {
    match found
        .windows(2)
        .find(|pair| pair[0].labels > pair[1].labels)
    {
        Some(pair) => Err(format!(
            "series {} stands before {}",
            pair[0].labels, pair[1].labels
        )),
        None => Ok(()),
    }
}

fn compare_points(
    labels: &Labels,
    values: &Sequence,
    found: &MatrixSeries,
    grid: StepGrid,
) -> Result<(), String> {
    let found = collect_points(found);
    let mut rest = found.iter();
    for (position, wanted) in values.iter().enumerate() {
        let time = grid.time(position);
        if time > grid.end {
            return Err(format!(
                "{labels}: a value is expected at {time}, after the end"
            ));
        }
        let Some(wanted) = wanted else { continue };
        match rest.next() {
            Some((at, point)) if *at == time => {
                compare_point(labels, wanted, point).map_err(|why| format!("at {time}: {why}"))?
            }
            Some((at, point)) => {
                let (wanted, point) = (wanted.describe(), describe_point(point));
                return Err(format!(
                    "{labels}: expected {wanted} at {time}, got {point} at {at}"
                ));
            }
            None => {
                let wanted = wanted.describe();
                return Err(format!("{labels}: expected {wanted} at {time}, not found"));
            }
        }
    }
    match rest.next() {
        None => Ok(()),
        Some((at, point)) => Err(format!(
            "{labels}: unexpected {} at {at}",
            describe_point(point)
        )),
    }
}

/// Returns all points of a series, floats and histograms, in time order.
fn collect_points(series: &MatrixSeries) -> Vec<(TimestampMs, QueryPointValue)> {
    let floats = series
        .floats
        .iter()
        .map(|(time, value)| (*time, QueryPointValue::Float(*value)));
    let histograms = series.histograms.iter();
    let histograms = histograms.map(|(time, h)| (*time, QueryPointValue::Histogram(h.clone())));
    let mut points: Vec<_> = floats.chain(histograms).collect();
    points.sort_by_key(|(time, _)| *time);
    points
}

/// Returns the points of a matrix at one time as a vector, in the order of the matrix.
pub(super) fn vector_at(matrix: &[MatrixSeries], at: TimestampMs) -> Vec<VectorElement> {
    let mut elements = Vec::new();
    for series in matrix {
        let point = collect_points(series)
            .into_iter()
            .find(|(time, _)| *time == at);
        if let Some((time, value)) = point {
            elements.push(VectorElement {
                labels: series.labels.clone(),
                time,
                value,
            });
        }
    }
    elements
}
