//! Computes the rows of `anchored` and `smoothed` selectors: the windows of all steps of one
//! series.

use crate::ast::PositionRange;
use crate::eval::annotations::{Annotation, QueryAnnotations};
use crate::eval::kernels::edges::histograms::WindowHistograms;
use crate::eval::kernels::edges::{SelectorOverhang, smoothed_value};
use crate::eval::kernels::histogram_remarks::HistogramRemarks;
use crate::eval::kernels::mixed::{DecodedHistograms, MixedSeries};
use crate::eval::kernels::range_call::RangeCallView;
use crate::eval::kernels::samples::SampleSlices;
use crate::eval::rows::row::StepRowBuffer;
use crate::functions::RangeFunction;
use crate::grid::{SelectorWindow, StepGrid};
use crate::value::PromqlError;
use firn_model::columns::SeriesColumns;
use std::sync::Arc;

fn floats<'a>(seen: &'a MixedSeries<'_>, step: usize) -> SampleSlices<'a> {
    let (start, end) = seen.of_floats.window_at(step);
    seen.kinds.floats().slice(start, end)
}

fn histograms<'a>(
    seen: &'a MixedSeries<'_>,
    step: usize,
    prepared: &'a DecodedHistograms,
) -> WindowHistograms<'a> {
    let (start, end) = seen.of_histograms.window_at(step);
    WindowHistograms {
        times: &seen.kinds.histogram_times[start..end],
        histograms: prepared.histograms.get(start..end).unwrap_or(&[]),
        events: prepared.events.get(start..end).unwrap_or(&[]),
    }
}

/// Computes the row of a window function. Returns the number of samples read.
pub(crate) fn fill(
    view: &RangeCallView<'_>,
    overhang: SelectorOverhang,
    columns: &SeriesColumns<'_>,
    row: &mut StepRowBuffer,
    notes: &mut QueryAnnotations,
) -> Result<u64, PromqlError> {
    let call = view.call;
    let seen = MixedSeries::from_columns(columns, call.uses_starts, view.grid, view.reach);
    let prepared = if columns.histograms.is_empty() {
        DecodedHistograms::default()
    } else {
        DecodedHistograms::decode(&seen.kinds, call.function)
    };
    for (step, time) in view.grid.times().enumerate() {
        // If the query is canceled, the caller does not read the row.
        if call.cancel.reason().is_some() {
            break;
        }
        let range = overhang.range_at(view.reach, time);
        let (floats, histograms) = (floats(&seen, step), histograms(&seen, step, &prepared));
        if histograms.times.is_empty() {
            let apply = || overhang.apply_function(call.function, &floats, range);
            let value = (!floats.times.is_empty()).then(apply).flatten();
            value.into_iter().for_each(|value| row.values[step] = value);
            continue;
        }
        let RangeFunction::Extrapolated(how) = call.function else {
            let value = histograms.count_events(call.function, &floats, range);
            value.into_iter().for_each(|value| row.values[step] = value);
            continue;
        };
        if !floats.times.is_empty() {
            notes.add(Annotation::mixed_range(call.span, &(view.name)()));
            continue;
        }
        let mut remarks = HistogramRemarks::new(call.span, view.name);
        let change = histograms.compute_change(overhang, how, range, &mut remarks);
        remarks.append_to(notes);
        if let Some(change) = change {
            row.histograms.push((step as u32, Arc::new(change.into())));
        }
    }
    Ok(seen.of_floats.samples() + seen.of_histograms.samples())
}

/// Computes the row of a smoothed instant selector: interpolated floats or histograms at each step.
pub(crate) fn fill_smoothed(
    columns: &SeriesColumns<'_>,
    grid: &StepGrid,
    wide: &SelectorWindow,
    span: PositionRange,
    name: &dyn Fn() -> Vec<u8>,
    row: &mut StepRowBuffer,
    notes: &mut QueryAnnotations,
) -> Result<(), PromqlError> {
    let seen = MixedSeries::from_columns(columns, false, grid, wide);
    let prepared = DecodedHistograms {
        histograms: seen.kinds.decode_histograms(),
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
                if let Some(value) = smoothed_value(&floats, time) {
                    row.values[step] = value;
                }
            }
            (true, false) => {
                let mut remarks = HistogramRemarks::new(span, name);
                let histogram = histograms.smoothed_histogram(time, &mut remarks);
                remarks.append_to(notes);
                if let Some(histogram) = histogram {
                    let point = (step as u32, Arc::new(histogram.into()));
                    row.histograms.push(point);
                }
            }
        }
    }
    Ok(())
}
