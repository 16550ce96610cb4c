//! Rows of `anchored` and `smoothed` selectors: every step's window of one series.

use crate::ast::Span;
use crate::eval::annotations::{Annotation, Annotations};
use crate::eval::edges::{Overhang, smoothed_at};
use crate::eval::frame::RowBuffer;
use crate::eval::grid::{Grid, Reach};
use crate::eval::leaf::RangeCall;
use crate::eval::over_time::{Floats, RangeFunction};
use crate::eval::window::Windows;
use crate::value::QueryError;
use firn_model::columns::SeriesColumns;
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::sample::{TimestampMs, is_stale};
use std::sync::Arc;

/// The samples of a series by kind, without staleness markers, and what each step sees of them.
struct Seen<'a> {
    times: Vec<TimestampMs>,
    values: Vec<f64>,
    starts: Vec<TimestampMs>,
    histogram_times: Vec<TimestampMs>,
    histograms: Vec<&'a Arc<Histogram>>,
    of_floats: Windows,
    of_histograms: Windows,
}

impl<'a> Seen<'a> {
    fn of(columns: &SeriesColumns<'a>, uses_starts: bool, grid: &Grid, wide: &Reach) -> Self {
        let mut seen = Seen {
            times: Vec::new(),
            values: Vec::new(),
            starts: Vec::new(),
            histogram_times: Vec::new(),
            histograms: Vec::new(),
            of_floats: Windows::default(),
            of_histograms: Windows::default(),
        };
        let mut histograms = columns.histograms.iter().peekable();
        for (at, time) in columns.times.iter().enumerate() {
            match histograms.next_if(|(index, _)| *index as usize == at) {
                Some((_, histogram)) if !histogram.is_stale() => {
                    seen.histogram_times.push(*time);
                    seen.histograms.push(histogram);
                }
                None if !is_stale(columns.values[at]) => {
                    seen.times.push(*time);
                    seen.values.push(columns.values[at]);
                    let start = columns.start_times.get(at).filter(|_| uses_starts);
                    seen.starts.extend(start);
                }
                _ => {}
            }
        }
        seen.of_floats.fill(&seen.times, grid, wide);
        seen.of_histograms.fill(&seen.histogram_times, grid, wide);
        seen
    }

    fn floats(&self, step: usize) -> Floats<'_> {
        let (start, end) = self.of_floats.at(step);
        let all = Floats {
            times: &self.times,
            values: &self.values,
            starts: &self.starts,
        };
        all.slice(start, end)
    }

    fn histograms(&self, step: usize) -> (&[TimestampMs], &[&'a Arc<Histogram>]) {
        let (start, end) = self.of_histograms.at(step);
        (
            &self.histogram_times[start..end],
            &self.histograms[start..end],
        )
    }
}

/// What a row of a range function is computed for.
pub(crate) struct View<'a> {
    /// The function.
    pub(crate) call: &'a RangeCall,
    /// What it sees beyond the range.
    pub(crate) overhang: Overhang,
    /// The steps.
    pub(crate) grid: &'a Grid,
    /// All that a step sees.
    pub(crate) wide: &'a Reach,
    /// The metric's name.
    pub(crate) name: &'a dyn Fn() -> Vec<u8>,
}

impl View<'_> {
    /// Computes the row; returns how many samples were read.
    pub(crate) fn fill(
        &self,
        columns: &SeriesColumns<'_>,
        row: &mut RowBuffer,
        notes: &mut Annotations,
    ) -> Result<u64, QueryError> {
        let seen = Seen::of(columns, self.call.uses_starts, self.grid, self.wide);
        for (step, time) in self.grid.times().enumerate() {
            let range = self.overhang.range_at(self.wide, time);
            let (floats, (_, histograms)) = (seen.floats(step), seen.histograms(step));
            let extrapolates = matches!(self.call.function, RangeFunction::Extrapolated(_));
            match (floats.times.is_empty(), histograms.is_empty()) {
                (true, true) => {}
                (false, true) => {
                    let value = self.overhang.apply(self.call.function, &floats, range);
                    if let Some(value) = value {
                        row.values[step] = value;
                    }
                }
                (false, false) if extrapolates => {
                    notes.add(Annotation::mixed_range(self.call.span, &(self.name)()));
                }
                _ => return Err(unsupported(self.call.name)),
            }
        }
        Ok(seen.of_floats.samples() + seen.of_histograms.samples())
    }
}

/// Computes the row of a smoothed instant selector.
pub(crate) fn fill_smoothed(
    columns: &SeriesColumns<'_>,
    (grid, wide): (&Grid, &Reach),
    (span, name): (Span, &dyn Fn() -> Vec<u8>),
    row: &mut RowBuffer,
    notes: &mut Annotations,
) -> Result<(), QueryError> {
    let seen = Seen::of(columns, false, grid, wide);
    let lookback_ms = wide.range_ms / 2;
    for (step, time) in grid.times().enumerate() {
        let time = wide.end(time).saturating_sub(lookback_ms);
        let (floats, (times, histograms)) = (seen.floats(step), seen.histograms(step));
        match (floats.times.is_empty(), histograms.is_empty()) {
            (true, true) => {}
            (false, false) => notes.add(Annotation::mixed_range(span, &name())),
            (false, true) => {
                if let Some(value) = smoothed_at(&floats, time) {
                    row.values[step] = value;
                }
            }
            (true, false) => {
                if let Some(histogram) = smoothed_histogram(times, histograms, time)? {
                    row.histograms.push((step as u32, histogram));
                }
            }
        }
    }
    Ok(())
}

/// As [`smoothed_at`], of histograms. One that is carried on says nothing of resets.
fn smoothed_histogram(
    times: &[TimestampMs],
    histograms: &[&Arc<Histogram>],
    time: TimestampMs,
) -> Result<Option<Arc<Histogram>>, QueryError> {
    let next = times.partition_point(|t| *t < time);
    match times.get(next) {
        Some(at) if *at == time => Ok(Some(histograms[next].clone())),
        Some(_) if next > 0 => Err(unsupported("smoothed")),
        Some(_) => Ok(None),
        None => Ok(histograms.last().map(|last| {
            Arc::new(Histogram {
                reset_hint: ResetHint::Unknown,
                ..Histogram::clone(last)
            })
        })),
    }
}

/// The error of a selector that cannot take native histograms.
fn unsupported(what: &str) -> QueryError {
    QueryError::Execution(format!("{what}: native histograms are not supported here"))
}
