//! Computes the rows of `anchored` and `smoothed` selectors: the windows of all steps of one
//! series.

use crate::ast::Span;
use crate::eval::annotations::{Annotation, Annotations};
use crate::eval::kernels::edges::histograms::Points;
use crate::eval::kernels::edges::{Overhang, smoothed_at};
use crate::eval::kernels::histogram_remarks::Remarks;
use crate::eval::kernels::mixed::{Prepared, Seen};
use crate::eval::kernels::range_call::View;
use crate::eval::kernels::samples::Samples;
use crate::eval::rows::row::RowBuffer;
use crate::functions::RangeFunction;
use crate::grid::{Grid, Reach};
use crate::value::QueryError;
use firn_model::columns::SeriesColumns;
use std::sync::Arc;

fn floats<'a>(seen: &'a Seen<'_>, step: usize) -> Samples<'a> {
    let (start, end) = seen.of_floats.at(step);
    seen.kinds.floats().slice(start, end)
}

fn histograms<'a>(seen: &'a Seen<'_>, step: usize, prepared: &'a Prepared) -> Points<'a> {
    let (start, end) = seen.of_histograms.at(step);
    Points {
        times: &seen.kinds.histogram_times[start..end],
        histograms: prepared.histograms.get(start..end).unwrap_or(&[]),
        events: prepared.events.get(start..end).unwrap_or(&[]),
    }
}

/// Computes the row of a window function. Returns the number of samples read.
pub(crate) fn fill(
    view: &View<'_>,
    overhang: Overhang,
    columns: &SeriesColumns<'_>,
    row: &mut RowBuffer,
    notes: &mut Annotations,
) -> Result<u64, QueryError> {
    let call = view.call;
    let seen = Seen::of(columns, call.uses_starts, view.grid, view.reach);
    let prepared = match columns.histograms.is_empty() {
        true => Prepared::default(),
        false => Prepared::of(&seen.kinds, call.function),
    };
    for (step, time) in view.grid.times().enumerate() {
        // If the query is canceled, the caller does not read the row.
        if call.cancel.reason().is_some() {
            break;
        }
        let range = overhang.range_at(view.reach, time);
        let (floats, histograms) = (floats(&seen, step), histograms(&seen, step, &prepared));
        if histograms.times.is_empty() {
            let apply = || overhang.apply(call.function, &floats, range);
            let value = (!floats.times.is_empty()).then(apply).flatten();
            value.into_iter().for_each(|value| row.values[step] = value);
            continue;
        }
        let RangeFunction::Extrapolated(how) = call.function else {
            let value = histograms.events_among(call.function, &floats, range);
            value.into_iter().for_each(|value| row.values[step] = value);
            continue;
        };
        if !floats.times.is_empty() {
            notes.add(Annotation::mixed_range(call.span, &(view.name)()));
            continue;
        }
        let mut remarks = Remarks::new(call.span, view.name);
        let change = histograms.change((overhang, how), range, &mut remarks);
        remarks.say(notes);
        if let Some(change) = change {
            row.histograms.push((step as u32, Arc::new(change.into())));
        }
    }
    Ok(seen.of_floats.samples() + seen.of_histograms.samples())
}

/// Computes the row of a smoothed instant selector: interpolated floats or histograms at each step.
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
        let (floats, histograms) = (floats(&seen, step), histograms(&seen, step, &prepared));
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
