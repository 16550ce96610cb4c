//! Rows of `anchored` and `smoothed` selectors: every step's window of one series.

use crate::ast::Span;
use crate::eval::annotations::{Annotation, Annotations};
use crate::eval::kernels::edges::histograms::Points;
use crate::eval::kernels::edges::{Overhang, smoothed_at};
use crate::eval::kernels::histogram_remarks::Remarks;
use crate::eval::kernels::mixed::{Kinds, Prepared};
use crate::eval::kernels::over_time::Floats;
use crate::eval::kernels::range_call::RangeCall;
use crate::eval::kernels::window::Windows;
use crate::eval::rows::row::RowBuffer;
use crate::functions::RangeFunction;
use crate::grid::{Grid, Reach};
use crate::value::QueryError;
use firn_model::columns::SeriesColumns;
use std::sync::Arc;

/// The samples of a series by kind, without staleness markers, and what each step sees of them.
struct Seen<'a> {
    kinds: Kinds<'a>,
    of_floats: Windows,
    of_histograms: Windows,
}

impl<'a> Seen<'a> {
    fn of(columns: &SeriesColumns<'a>, uses_starts: bool, grid: &Grid, wide: &Reach) -> Self {
        let mut seen = Seen {
            kinds: Kinds::of(columns, uses_starts),
            of_floats: Windows::default(),
            of_histograms: Windows::default(),
        };
        seen.of_floats.fill(&seen.kinds.times, grid, wide);
        let times = &seen.kinds.histogram_times;
        seen.of_histograms.fill(times, grid, wide);
        seen
    }

    fn floats(&self, step: usize) -> Floats<'_> {
        let (start, end) = self.of_floats.at(step);
        self.kinds.floats().slice(start, end)
    }

    fn histograms<'p>(&'p self, step: usize, prepared: &'p Prepared) -> Points<'p> {
        let (start, end) = self.of_histograms.at(step);
        Points {
            times: &self.kinds.histogram_times[start..end],
            histograms: prepared.histograms.get(start..end).unwrap_or(&[]),
            events: prepared.events.get(start..end).unwrap_or(&[]),
        }
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
        let function = self.call.function;
        let prepared = match columns.histograms.is_empty() {
            true => Prepared::default(),
            false => Prepared::of(&seen.kinds, function),
        };
        for (step, time) in self.grid.times().enumerate() {
            // The caller of a cancelled query reads no row.
            if self.call.cancel.reason().is_some() {
                break;
            }
            let range = self.overhang.range_at(self.wide, time);
            let (floats, histograms) = (seen.floats(step), seen.histograms(step, &prepared));
            if histograms.times.is_empty() {
                let apply = || self.overhang.apply(function, &floats, range);
                let value = (!floats.times.is_empty()).then(apply).flatten();
                value.into_iter().for_each(|value| row.values[step] = value);
                continue;
            }
            let RangeFunction::Extrapolated(how) = function else {
                let value = histograms.events_among(function, &floats, range);
                value.into_iter().for_each(|value| row.values[step] = value);
                continue;
            };
            if !floats.times.is_empty() {
                notes.add(Annotation::mixed_range(self.call.span, &(self.name)()));
                continue;
            }
            let mut remarks = Remarks::new(self.call.span, self.name);
            let change = histograms.change((self.overhang, how), range, &mut remarks);
            remarks.say(notes);
            if let Some(change) = change {
                row.histograms.push((step as u32, Arc::new(change.into())));
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
    let prepared = Prepared {
        histograms: seen.kinds.ready(),
        events: Vec::new(),
    };
    let lookback_ms = wide.range_ms / 2;
    for (step, time) in grid.times().enumerate() {
        let time = wide.end(time).saturating_sub(lookback_ms);
        let (floats, histograms) = (seen.floats(step), seen.histograms(step, &prepared));
        match (floats.times.is_empty(), histograms.times.is_empty()) {
            (true, true) => {}
            (false, false) => notes.add(Annotation::mixed_range(span, &name())),
            (false, true) => {
                if let Some(value) = smoothed_at(&floats, time) {
                    row.values[step] = value;
                }
            }
            (true, false) => {
                let mut remarks = Remarks::new(span, name);
                let histogram = histograms.smoothed_at(time, &mut remarks);
                remarks.say(notes);
                if let Some(histogram) = histogram {
                    let point = (step as u32, Arc::new(histogram.into()));
                    row.histograms.push(point);
                }
            }
        }
    }
    Ok(())
}
