//! Range functions of a series that has native histograms, alone or among floats.
//!
//! Functions of floats pass over the histograms and say so; functions that take either kind refuse
//! a window with both. What would need arithmetic on histograms is an error, never a wrong value.

use crate::eval::annotations::{Annotation, Annotations};
use crate::eval::frame::{ABSENT, RowBuffer, samples_of};
use crate::eval::grid::{Grid, Reach};
use crate::eval::leaf::RangeCall;
use crate::eval::over_time::{self, Floats, RangeFunction};
use crate::eval::rate::RatePlan;
use crate::eval::window::Windows;
use crate::value::QueryError;
use firn_model::columns::SeriesColumns;
use firn_model::histogram::Histogram;
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale};
use std::sync::Arc;

/// What is computed, and for whom.
pub(crate) struct View<'a> {
    /// The function.
    pub(crate) call: &'a RangeCall,
    /// The steps.
    pub(crate) grid: &'a Grid,
    /// What a step sees.
    pub(crate) reach: &'a Reach,
    /// The metric's name.
    pub(crate) name: &'a dyn Fn() -> Vec<u8>,
}

/// The samples of a series by kind, without staleness markers.
#[derive(Default)]
struct Kinds<'a> {
    times: Vec<TimestampMs>,
    values: Vec<f64>,
    starts: Vec<TimestampMs>,
    histogram_times: Vec<TimestampMs>,
    histogram_starts: Vec<TimestampMs>,
    histograms: Vec<&'a Arc<Histogram>>,
}

impl<'a> Kinds<'a> {
    fn of(columns: &SeriesColumns<'a>, uses_starts: bool) -> Self {
        let mut kinds = Self::default();
        let mut histograms = columns.histograms.iter().peekable();
        for (at, time) in columns.times.iter().enumerate() {
            match histograms.next_if(|(index, _)| *index as usize == at) {
                Some((_, histogram)) if !histogram.is_stale() => {
                    kinds.histogram_times.push(*time);
                    let start = columns.start_times.get(at).filter(|_| uses_starts);
                    kinds
                        .histogram_starts
                        .push(start.copied().unwrap_or(START_UNKNOWN));
                    kinds.histograms.push(histogram);
                }
                Some(_) => {}
                None if is_stale(columns.values[at]) => {}
                None => {
                    kinds.times.push(*time);
                    kinds.values.push(columns.values[at]);
                    if uses_starts {
                        kinds.starts.extend(columns.start_times.get(at));
                    }
                }
            }
        }
        kinds
    }

    fn floats(&self) -> Floats<'_> {
        Floats {
            times: &self.times,
            values: &self.values,
            starts: &self.starts,
        }
    }
}

/// The window of a step by kind.
struct Window<'a> {
    floats: Floats<'a>,
    histogram_times: &'a [TimestampMs],
    histograms: &'a [&'a Arc<Histogram>],
    /// Whether the first histogram began to count inside the window.
    starts_inside: bool,
}

impl Window<'_> {
    /// The kinds of the samples in time order; `true` is a histogram.
    fn kinds(&self) -> impl DoubleEndedIterator<Item = bool> {
        let floats = self.floats.times.iter().map(|t| (*t, false));
        let histograms = self.histogram_times.iter().map(|t| (*t, true));
        let mut all: Vec<(TimestampMs, bool)> = floats.chain(histograms).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, is_histogram)| is_histogram)
    }
}

/// What a step gets.
enum Outcome {
    /// What the floats alone gave.
    OfFloats,
    /// Another float.
    Float(f64),
    /// A histogram.
    Histogram(Arc<Histogram>),
    /// Nothing, because both kinds are there.
    Mixed,
    /// What the floats alone gave, and a remark that histograms were ignored.
    Ignored,
    /// What Firn cannot compute.
    Unsupported,
}

/// Computes the row; returns how many samples were read.
pub(crate) fn fill(
    view: &View<'_>,
    columns: &SeriesColumns<'_>,
    row: &mut RowBuffer,
    notes: &mut Annotations,
) -> Result<u64, QueryError> {
    let kinds = Kinds::of(columns, view.call.uses_starts);
    let mut of_floats = Windows::default();
    of_floats.fill(&kinds.times, view.grid, view.reach);
    fill_from_floats(view, &kinds, &of_floats, row);
    let mut of_histograms = Windows::default();
    of_histograms.fill(&kinds.histogram_times, view.grid, view.reach);
    let mut read = of_floats.samples();
    let filled = |step: &usize| of_floats.at(*step).0 < of_floats.at(*step).1;
    view.call
        .check((0..view.grid.count).filter(filled), notes)?;
    for (step, start, end) in of_histograms.iter() {
        let (float_start, float_end) = of_floats.at(step);
        let window = Window {
            floats: kinds.floats().slice(float_start, float_end),
            histogram_times: &kinds.histogram_times[start..end],
            histograms: &kinds.histograms[start..end],
            starts_inside: {
                let edge = view.reach.end(view.grid.time(step));
                let began = kinds.histogram_starts[start];
                let inside = began > edge - view.reach.range_ms;
                began != START_UNKNOWN && inside && began < kinds.histogram_times[start]
            },
        };
        read += window.histograms.iter().map(|h| samples_of(h)).sum::<u64>();
        settle(view, step, outcome(view.call.function, &window), row, notes)?;
    }
    Ok(read)
}

fn fill_from_floats(view: &View<'_>, kinds: &Kinds<'_>, windows: &Windows, row: &mut RowBuffer) {
    let floats = kinds.floats();
    let function = view.call.function;
    if let RangeFunction::Extrapolated(how) = function {
        let mut plan = RatePlan::default();
        plan.fill(floats.times, view.grid, view.reach, how);
        how.fill(&plan, floats.values, view.reach, &mut row.values);
        return;
    }
    let arguments = |step| view.call.arguments(view.grid, step);
    over_time::fill(function, windows, &floats, arguments, &mut row.values);
}

fn settle(
    view: &View<'_>,
    step: usize,
    outcome: Outcome,
    row: &mut RowBuffer,
    notes: &mut Annotations,
) -> Result<(), QueryError> {
    match outcome {
        Outcome::OfFloats => {}
        Outcome::Float(value) => row.values[step] = value,
        Outcome::Histogram(histogram) => {
            row.values[step] = ABSENT;
            row.histograms.push((step as u32, histogram));
        }
        Outcome::Mixed => {
            row.values[step] = ABSENT;
            notes.add(Annotation::mixed_range(view.call.span, &(view.name)()));
        }
        Outcome::Ignored => {
            notes.add(Annotation::ignored_in_range(view.call.span, &(view.name)()));
        }
        Outcome::Unsupported => return Err(unsupported(view.call.name)),
    }
    Ok(())
}

/// The error of a function that cannot take native histograms.
pub(crate) fn unsupported(function: &str) -> QueryError {
    QueryError::Execution(format!(
        "{function}: native histograms are not supported here"
    ))
}

/// What becomes of a window that holds at least one histogram.
fn outcome(function: RangeFunction, window: &Window<'_>) -> Outcome {
    use RangeFunction as F;
    let (floats, histograms) = (window.floats.values.len(), window.histograms.len());
    match function {
        F::Extrapolated(_) if floats > 0 => Outcome::Mixed,
        F::Extrapolated(how) if histograms < 2 && !(how.counter && window.starts_inside) => {
            Outcome::OfFloats
        }
        F::Mean | F::Sum if floats > 0 => Outcome::Mixed,
        F::Extrapolated(_) | F::Mean | F::Sum => Outcome::Unsupported,
        F::LastChange { .. } => {
            let mut last = window.kinds().rev();
            match (last.next(), last.next()) {
                (Some(false), Some(false)) => Outcome::OfFloats,
                (Some(true), Some(true)) => Outcome::Unsupported,
                (Some(_), Some(_)) => Outcome::Mixed,
                _ => Outcome::OfFloats,
            }
        }
        F::Resets | F::Changes => neighbours(function, window),
        F::Count => Outcome::Float((floats + histograms) as f64),
        F::Present => Outcome::Float(1.0),
        F::First | F::Last | F::FirstTime | F::LastTime => edge(function, window),
        F::Slope
        | F::Prediction
        | F::Smoothing
        | F::Min
        | F::Max
        | F::MinTime
        | F::MaxTime
        | F::Deviation
        | F::Variance
        | F::Quantile
        | F::MedianDeviation => match floats {
            0 => Outcome::OfFloats,
            _ => Outcome::Ignored,
        },
    }
}

/// Resets or changes: a change of kind is one; comparing two histograms is not possible here.
fn neighbours(function: RangeFunction, window: &Window<'_>) -> Outcome {
    let (mut floats, mut events) = (0..window.floats.values.len(), 0.0);
    let mut before: Option<Option<usize>> = None;
    for is_histogram in window.kinds() {
        let sample = if is_histogram { None } else { floats.next() };
        match (before, sample) {
            (None, _) => {}
            (Some(None), None) => return Outcome::Unsupported,
            (Some(Some(a)), Some(b)) => {
                let pair = window.floats.slice(a, b + 1);
                events += over_time::events(function, &pair);
            }
            (Some(_), _) => events += 1.0,
        }
        before = Some(sample);
    }
    Outcome::Float(events)
}

/// The first or the last sample, or its time.
fn edge(function: RangeFunction, window: &Window<'_>) -> Outcome {
    let float_times = window.floats.times;
    let first = matches!(function, RangeFunction::First | RangeFunction::FirstTime);
    let (float, histogram) = match first {
        true => (float_times.first(), window.histogram_times.first()),
        false => (float_times.last(), window.histogram_times.last()),
    };
    let of_histogram = match (float, histogram) {
        (Some(float), Some(histogram)) if first => histogram < float,
        (Some(float), Some(histogram)) => histogram > float,
        (float, _) => float.is_none(),
    };
    let time = if of_histogram { histogram } else { float };
    match function {
        RangeFunction::FirstTime | RangeFunction::LastTime => {
            time.map_or(Outcome::OfFloats, |t| Outcome::Float(*t as f64 / 1000.0))
        }
        _ if !of_histogram => Outcome::OfFloats,
        _ => {
            let at = if first {
                0
            } else {
                window.histograms.len() - 1
            };
            Outcome::Histogram(window.histograms[at].clone())
        }
    }
}
