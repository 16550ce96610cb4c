//! Compares query results with the expected values of a script.

use super::almost::almost_equal;
use super::command::Expected;
use super::histogram::describe;
use super::sequence::{SampleValue, Sequence};
use crate::grid::Grid;
use crate::value::{MatrixSeries, PointValue, Value, VectorElement};
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;

/// Compares the value of a query with the expected value. `grid` contains the times of a matrix. If
/// `ordered` is true, the elements of a vector must have the order of the script.
pub(super) fn compare(
    expected: &Expected,
    found: &Value,
    grid: Option<Grid>,
    ordered: bool,
) -> Result<(), String> {
    match (expected, found) {
        (Expected::Scalar(expected), Value::Scalar(_, found)) => {
            if almost_equal(*expected, *found) {
                return Ok(());
            }
            Err(format!("expected scalar {expected}, got {found}"))
        }
        (Expected::String(expected), Value::String(_, found)) => {
            if expected == found {
                return Ok(());
            }
            let (expected, found) = (expected.escape_ascii(), found.escape_ascii());
            Err(format!("expected string \"{expected}\", got \"{found}\""))
        }
        (Expected::Series(series), Value::Vector(found)) => compare_vector(series, found, ordered),
        (Expected::Series(series), Value::Matrix(found)) => match grid {
            Some(grid) => compare_matrix(series, found, grid),
            None => Err("expected a vector, got a matrix".into()),
        },
        (Expected::RangeVector(grid, series), Value::Matrix(found)) => {
            compare_matrix(series, found, *grid)
        }
        _ => Err(format!(
            "expected {}, got {}",
            kind_expected(expected),
            kind_found(found)
        )),
    }
}

fn kind_expected(expected: &Expected) -> &'static str {
    match expected {
        Expected::Scalar(_) => "a scalar",
        Expected::String(_) => "a string",
        Expected::Series(_) => "series",
        Expected::RangeVector(..) => "a range vector",
    }
}

fn kind_found(found: &Value) -> &'static str {
    match found {
        Value::Scalar(..) => "a scalar",
        Value::String(..) => "a string",
        Value::Vector(_) => "a vector",
        Value::Matrix(_) => "a matrix",
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
        let missing = SampleValue::Float(0.0);
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

fn compare_point(labels: &Labels, wanted: &SampleValue, found: &PointValue) -> Result<(), String> {
    let is_same = match (wanted, found) {
        (SampleValue::Float(a), PointValue::Float(b)) => almost_equal(*a, *b),
        (SampleValue::Histogram(a), PointValue::Histogram(b)) => a.matches(b),
        _ => false,
    };
    if is_same {
        return Ok(());
    }
    let (wanted, found) = (wanted.describe(), describe_point(found));
    Err(format!("{labels}: expected {wanted}, got {found}"))
}

fn describe_point(point: &PointValue) -> String {
    match point {
        PointValue::Float(value) => value.to_string(),
        PointValue::Histogram(histogram) => describe(histogram),
    }
}

fn compare_matrix(
    expected: &[(Labels, Sequence)],
    found: &[MatrixSeries],
    grid: Grid,
) -> Result<(), String> {
    check_sorted(found)?;
    for series in found {
        let labels = &series.labels;
        let wanted = expected.iter().find(|(wanted, _)| wanted == labels);
        let Some((_, values)) = wanted else {
            return Err(format!("unexpected series {labels} {:?}", points(series)));
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
    grid: Grid,
) -> Result<(), String> {
    let found = points(found);
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
fn points(series: &MatrixSeries) -> Vec<(TimestampMs, PointValue)> {
    let floats = series
        .floats
        .iter()
        .map(|(time, value)| (*time, PointValue::Float(*value)));
    let histograms = series.histograms.iter();
    let histograms = histograms.map(|(time, h)| (*time, PointValue::Histogram(h.clone())));
    let mut points: Vec<_> = floats.chain(histograms).collect();
    points.sort_by_key(|(time, _)| *time);
    points
}

/// Returns the points of a matrix at one time as a vector, in the order of the matrix.
pub(super) fn column(matrix: &[MatrixSeries], at: TimestampMs) -> Vec<VectorElement> {
    let mut elements = Vec::new();
    for series in matrix {
        let point = points(series).into_iter().find(|(time, _)| *time == at);
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
