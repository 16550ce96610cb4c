//! Functions of windows for series that contain native histograms, with or without floats.
//!
//! A function of floats ignores histograms. If the window also contains floats, it adds an
//! annotation. `rate`, `sum_over_time` and similar functions reject windows with both types;
//! `count_over_time`, `changes`, `first_over_time` and others use both. [`compute_outcome`] lists
//! all cases. The histograms of a series are decoded once, and their resets
//! are detected once, for all windows.

mod growth;

use crate::eval::annotations::{Annotation, HistogramOperation, QueryAnnotations};
use crate::eval::kernels::histogram_remarks::HistogramRemarks;
use crate::eval::kernels::over_time;
use crate::eval::kernels::range_call::RangeCallView;
use crate::eval::kernels::rate::{RatePlan, is_non_decreasing};
use crate::eval::kernels::samples::SampleSlices;
use crate::eval::kernels::window::StepWindows;
use crate::eval::rows::row::{ABSENT, StepRowBuffer, histogram_samples};
use crate::functions::RangeFunction;
use crate::grid::{SelectorWindow, StepGrid};
use crate::value::PromqlError;
use firn_model::columns::SeriesColumns;
use firn_model::histogram::Histogram;
use firn_model::histogram::float::{FloatHistogram, HistogramAccumulator, HistogramAggregate};
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale};
use std::sync::Arc;

/// The samples of a series by type, without staleness markers.
#[derive(Default)]
pub(crate) struct SamplesByKind<'a> {
    /// The timestamps of the floats in ascending order.
    pub(crate) times: Vec<TimestampMs>,
    values: Vec<f64>,
    starts: Vec<TimestampMs>,
    /// The timestamps of the histograms in ascending order.
    pub(crate) histogram_times: Vec<TimestampMs>,
    histogram_starts: Vec<TimestampMs>,
    /// The stored histograms in time order, without stale ones.
    pub(crate) histograms: Vec<&'a Arc<Histogram>>,
}

impl<'a> SamplesByKind<'a> {
    /// Splits the samples of a series. Start timestamps are included if `uses_starts` is set.
    pub(crate) fn from_columns(columns: &SeriesColumns<'a>, uses_starts: bool) -> Self {
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

    fn started(&self) -> SampleSlices<'_> {
        SampleSlices {
            times: &self.histogram_times,
            values: &[],
            starts: &self.histogram_starts,
        }
    }

    /// Decodes the histograms into the form for computations. Allocates for each histogram.
    pub(crate) fn decode_histograms(&self) -> Vec<FloatHistogram> {
        let stored = self.histograms.iter();
        stored.map(|h| FloatHistogram::from(&***h)).collect()
    }

    /// Returns a view of the floats, with start timestamps if they are used.
    pub(crate) fn floats(&self) -> SampleSlices<'_> {
        SampleSlices {
            times: &self.times,
            values: &self.values,
            starts: &self.starts,
        }
    }
}

/// The samples of a series by type, and the windows of all steps.
pub(crate) struct MixedSeries<'a> {
    /// The samples of the series by type, without staleness markers.
    pub(crate) kinds: SamplesByKind<'a>,
    /// The windows of the floats, as indexes into the floats.
    pub(crate) of_floats: StepWindows,
    /// The windows of the histograms, as indexes into the histograms.
    pub(crate) of_histograms: StepWindows,
}

impl<'a> MixedSeries<'a> {
    /// Computes the windows of a series. Start timestamps are included if `uses_starts` is set.
    pub(crate) fn from_columns(
        columns: &SeriesColumns<'a>,
        uses_starts: bool,
        grid: &StepGrid,
        reach: &SelectorWindow,
    ) -> Self {
        let kinds = SamplesByKind::from_columns(columns, uses_starts);
        let (mut of_floats, mut of_histograms) = (StepWindows::default(), StepWindows::default());
        of_floats.fill(&kinds.times, grid, reach);
        of_histograms.fill(&kinds.histogram_times, grid, reach);
        Self {
            kinds,
            of_floats,
            of_histograms,
        }
    }
}

/// The decoded histograms of a series. Empty if the function does not need them.
#[derive(Default)]
pub(crate) struct DecodedHistograms {
    /// The decoded histograms in time order, one for each stored histogram.
    pub(crate) histograms: Vec<FloatHistogram>,
    /// For each histogram, whether the counter was reset since the previous one. For `changes`:
    /// whether it differs from the previous one.
    pub(crate) events: Vec<bool>,
}

impl DecodedHistograms {
    /// Decodes the histograms if `function` needs them, and detects resets or changes.
    pub(crate) fn decode(kinds: &SamplesByKind<'_>, function: RangeFunction) -> Self {
        use RangeFunction as F;
        if !matches!(
            function,
            F::Extrapolated(_) | F::LastChange { .. } | F::Mean | F::Sum | F::Resets | F::Changes
        ) {
            return Self::default();
        }
        let histograms = kinds.decode_histograms();
        let resets_matter = match function {
            F::Extrapolated(how) => how.counter,
            F::LastChange { counter } => counter,
            function => function == F::Resets,
        };
        let started = kinds.started();
        let event = |at: usize| match at.checked_sub(1) {
            None => false,
            Some(before) if resets_matter => {
                started.has_restarted(at) || histograms[at].is_reset_after(&histograms[before])
            }
            Some(before) => {
                function == F::Changes && !histograms[at].is_equivalent(&histograms[before])
            }
        };
        Self {
            events: (0..histograms.len()).map(event).collect(),
            histograms,
        }
    }
}

/// The window of a step, by type of samples.
struct MixedWindow<'a> {
    floats: SampleSlices<'a>,
    /// The timestamps and start timestamps of the histograms in the window.
    times: SampleSlices<'a>,
    histograms: &'a [&'a Arc<Histogram>],
    ready: &'a [FloatHistogram],
    events: &'a [bool],
    /// The right edge of the window in milliseconds.
    edge: TimestampMs,
    range_ms: i64,
}

/// Returns, in time order, whether the samples at these timestamps are histograms.
fn are_histograms(
    floats: &[TimestampMs],
    histograms: &[TimestampMs],
) -> impl DoubleEndedIterator<Item = bool> {
    let floats = floats.iter().map(|t| (*t, false));
    let histograms = histograms.iter().map(|t| (*t, true));
    let mut all: Vec<(TimestampMs, bool)> = floats.chain(histograms).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, is_histogram)| is_histogram)
}

/// The result of a step whose window contains at least one histogram.
enum MixedOutcome {
    /// The result that was already computed from the floats alone.
    OfFloats,
    /// A float that replaces the result of the floats alone.
    Float(f64),
    /// A histogram that replaces the result of the floats alone.
    Histogram(Arc<Histogram>),
    /// No result, because the window contains floats and histograms. An annotation is added.
    Mixed,
    /// The result of the floats alone, with an annotation that histograms were ignored.
    Ignored,
}

impl MixedOutcome {
    /// Returns the outcome of a computed histogram, or no value if there is none.
    fn from_computed(histogram: Option<FloatHistogram>) -> Self {
        match histogram {
            Some(histogram) => MixedOutcome::Histogram(Arc::new(histogram.into())),
            None => MixedOutcome::Float(ABSENT),
        }
    }
}

/// Computes the row of a series. Returns the number of samples read.
pub(crate) fn fill(
    view: &RangeCallView<'_>,
    columns: &SeriesColumns<'_>,
    row: &mut StepRowBuffer,
    notes: &mut QueryAnnotations,
) -> Result<u64, PromqlError> {
    let MixedSeries {
        kinds,
        of_floats,
        of_histograms,
    } = MixedSeries::from_columns(columns, view.call.uses_starts, view.grid, view.reach);
    let filled =
        |windows: &StepWindows, step: usize| windows.window_at(step).0 < windows.window_at(step).1;
    let mut overlaps = fill_from_floats(view, &kinds, &of_floats, row);
    // A window with both types only has the annotation about this.
    overlaps.retain(|step| !filled(&of_histograms, *step));
    if !overlaps.is_empty() {
        let (span, name) = (view.call.span, (view.name)());
        notes.add(Annotation::start_time_overlap(span, &name, overlaps.len()));
    }
    let mut read = of_floats.samples();
    let function = view.call.function;
    // An invalid smoothing factor is an error for histograms, too.
    let checked = |step: &usize| {
        filled(&of_floats, *step)
            || (function == RangeFunction::Smoothing && filled(&of_histograms, *step))
    };
    view.call
        .check((0..view.grid.count).filter(checked), notes)?;
    let prepared = DecodedHistograms::decode(&kinds, function);
    for (step, start, end) in of_histograms.iter() {
        // If the query is canceled, the caller does not read the row.
        if view.call.cancel.reason().is_some() {
            break;
        }
        let (float_start, float_end) = of_floats.window_at(step);
        let window = MixedWindow {
            floats: kinds.floats().slice(float_start, float_end),
            times: kinds.started().slice(start, end),
            histograms: &kinds.histograms[start..end],
            ready: prepared.histograms.get(start..end).unwrap_or(&[]),
            events: prepared.events.get(start..end).unwrap_or(&[]),
            edge: view.reach.end(view.grid.time(step)),
            range_ms: view.reach.range_ms,
        };
        read += window
            .histograms
            .iter()
            .map(|h| histogram_samples(h))
            .sum::<u64>();
        let mut remarks = HistogramRemarks::new(view.call.span, view.name);
        let outcome = compute_outcome(function, &window, &mut remarks);
        remarks.append_to(notes);
        settle(view, step, outcome, row, notes);
    }
    Ok(read)
}

/// Computes the result of the floats alone. Returns the steps in whose windows start timestamps
/// overlap with samples.
fn fill_from_floats(
    view: &RangeCallView<'_>,
    kinds: &SamplesByKind<'_>,
    windows: &StepWindows,
    row: &mut StepRowBuffer,
) -> Vec<usize> {
    let floats = kinds.floats();
    let function = view.call.function;
    let RangeFunction::Extrapolated(how) = function else {
        let arguments = |step| view.call.arguments(view.grid, step);
        let cancel = &view.call.cancel;
        over_time::fill(
            function,
            false,
            windows,
            &floats,
            arguments,
            cancel,
            &mut row.values,
        );
        return Vec::new();
    };
    let mut plan = RatePlan::default();
    plan.fill(floats.times, view.grid, view.reach, how);
    let out = &mut row.values;
    if how.counter && !floats.starts.is_empty() {
        return how.fill_with_starts(&plan, &floats, view.grid, view.reach, out);
    }
    let rising = is_non_decreasing(floats.values);
    how.fill(&plan, &floats, rising, view.grid, view.reach, out);
    Vec::new()
}

fn settle(
    view: &RangeCallView<'_>,
    step: usize,
    outcome: MixedOutcome,
    row: &mut StepRowBuffer,
    notes: &mut QueryAnnotations,
) {
    match outcome {
        MixedOutcome::OfFloats => {}
        MixedOutcome::Float(value) => row.values[step] = value,
        MixedOutcome::Histogram(histogram) => {
            row.values[step] = ABSENT;
            row.histograms.push((step as u32, histogram));
        }
        MixedOutcome::Mixed => {
            row.values[step] = ABSENT;
            notes.add(Annotation::mixed_range(view.call.span, &(view.name)()));
        }
        MixedOutcome::Ignored => {
            notes.add(Annotation::ignored_in_range(view.call.span, &(view.name)()));
        }
    }
}

/// Returns the result of a window that contains at least one histogram.
fn compute_outcome(
    function: RangeFunction,
    window: &MixedWindow<'_>,
    remarks: &mut HistogramRemarks<'_>,
) -> MixedOutcome {
    use RangeFunction as F;
    let (floats, histograms) = (window.floats.values.len(), window.histograms.len());
    match function {
        F::Extrapolated(_) | F::Mean | F::Sum if floats > 0 => MixedOutcome::Mixed,
        F::Extrapolated(how) => {
            MixedOutcome::from_computed(window.extrapolate_growth(how, remarks))
        }
        F::Mean => {
            MixedOutcome::from_computed(accumulate(HistogramAggregate::Mean, window, remarks))
        }
        F::Sum => MixedOutcome::from_computed(accumulate(HistogramAggregate::Sum, window, remarks)),
        F::LastChange { counter } => {
            let mut last = are_histograms(window.floats.times, window.times.times).rev();
            match (last.next(), last.next()) {
                (Some(false), Some(false)) => MixedOutcome::OfFloats,
                (Some(true), Some(true)) => {
                    MixedOutcome::from_computed(window.last_change(counter, remarks))
                }
                (Some(_), Some(_)) => MixedOutcome::Mixed,
                _ => MixedOutcome::OfFloats,
            }
        }
        F::Resets | F::Changes => MixedOutcome::Float(count_events(
            function,
            &window.floats,
            window.times.times,
            window.events,
        )),
        F::Count => MixedOutcome::Float((floats + histograms) as f64),
        F::Present => MixedOutcome::Float(1.0),
        F::First | F::Last | F::FirstTime | F::LastTime => edge_sample(function, window),
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
            0 => MixedOutcome::OfFloats,
            _ => MixedOutcome::Ignored,
        },
    }
}

/// Returns the number of resets or changes among floats and histograms. The events of histograms
/// are passed with their timestamps. A change between float and histogram counts as an event.
pub(crate) fn count_events(
    function: RangeFunction,
    floats: &SampleSlices<'_>,
    times: &[TimestampMs],
    histogram_events: &[bool],
) -> f64 {
    let (mut next_float, mut next_histogram) = (0, 0);
    let (mut events, mut before) = (0.0, None);
    for is_histogram in are_histograms(floats.times, times) {
        let next = if is_histogram {
            &mut next_histogram
        } else {
            &mut next_float
        };
        let at = *next;
        *next += 1;
        events += match before {
            None => 0.0,
            Some(was_histogram) if was_histogram != is_histogram => 1.0,
            Some(true) => f64::from(u8::from(histogram_events[at])),
            Some(false) => over_time::count_events(function, &floats.slice(at - 1, at + 1)),
        };
        before = Some(is_histogram);
    }
    events
}

/// Returns the sum or the mean of a window of histograms.
fn accumulate(
    of: HistogramAggregate,
    window: &MixedWindow<'_>,
    remarks: &mut HistogramRemarks<'_>,
) -> Option<FloatHistogram> {
    let (first, rest) = window.ready.split_first()?;
    let mut total = HistogramAccumulator::new(of, first.clone());
    let mut reconciled = false;
    for histogram in rest {
        match total.add(histogram) {
            Ok(joined) => reconciled |= joined.bounds_reconciled,
            Err(_) => {
                remarks.add_named(Annotation::mixed_schemas);
                return None;
            }
        }
    }
    if total.hints_conflict() {
        remarks.add_unnamed(
            HistogramOperation::Aggregation,
            Annotation::conflicting_resets,
        );
    }
    if reconciled {
        remarks.add_unnamed(
            HistogramOperation::Aggregation,
            Annotation::reconciled_bounds,
        );
    }
    Some(total.finish())
}

/// Returns the first or the last sample of a window, or its timestamp.
fn edge_sample(function: RangeFunction, window: &MixedWindow<'_>) -> MixedOutcome {
    let float_times = window.floats.times;
    let first = matches!(function, RangeFunction::First | RangeFunction::FirstTime);
    let (float, histogram) = if first {
        (float_times.first(), window.times.times.first())
    } else {
        (float_times.last(), window.times.times.last())
    };
    let of_histogram = match (float, histogram) {
        (Some(float), Some(histogram)) if first => histogram < float,
        (Some(float), Some(histogram)) => histogram > float,
        (float, _) => float.is_none(),
    };
    let time = if of_histogram { histogram } else { float };
    match function {
        RangeFunction::FirstTime | RangeFunction::LastTime => time
            .map_or(MixedOutcome::OfFloats, |t| {
                MixedOutcome::Float(*t as f64 / 1000.0)
            }),
        _ if !of_histogram => MixedOutcome::OfFloats,
        _ => {
            let at = if first {
                0
            } else {
                window.histograms.len() - 1
            };
            MixedOutcome::Histogram(window.histograms[at].clone())
        }
    }
}
