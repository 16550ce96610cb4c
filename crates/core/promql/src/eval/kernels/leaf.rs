//! The leaves of a plan: read series from a source and convert them to rows, one part at a time.
//!
//! A leaf retains nothing of a series except its row. Window plans are shared by the series of a
//! part that have the same time column. A series with staleness markers or histograms in its range
//! has a time column of its own.

use crate::ast::PositionRange;
use crate::eval::account::{QueryAccount, grow_to};
use crate::eval::annotations::{Annotation, QueryAnnotations};
use crate::eval::kernels::dispatch::{self, ColumnPlans, FloatSeries, RowFillCounts};
use crate::eval::kernels::edges::rows;
use crate::eval::kernels::histogram_statistics::SampleReadOrder;
use crate::eval::kernels::mixed;
use crate::eval::kernels::range_call::{RangeCall, RangeCallView};
use crate::eval::kernels::rate::is_non_decreasing;
use crate::eval::kernels::samples::SampleSlices;
use crate::eval::rows::reads::ReadBuffer;
use crate::eval::rows::row::{ABSENT, StepRow, StepRowBuffer, count_absent};
use crate::eval::rows::source::SampleSource;
use crate::eval::tally::{HeldSamples, SeriesWindows, WindowExtent, WindowTally};
use crate::grid::{SelectorWindow, StepGrid};
use crate::value::PromqlError;
use firn_model::columns::SeriesColumns;
use firn_model::labels::METRIC_NAME;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs, is_stale};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The value that is computed from the samples of a series.
#[derive(Debug)]
pub(crate) enum EvalLeafKind {
    /// The newest sample of the window, as an instant selector returns it.
    Newest,
    /// The timestamp of the newest sample, in seconds, for the function `timestamp`.
    NewestTime,
    /// The start timestamp of the newest sample, in seconds.
    NewestStart,
    /// The sample at the step, or the value interpolated between its neighbours. Contains the
    /// position of the selector.
    Smoothed(PositionRange),
    /// A function of the samples in a window, such as `rate`.
    Range(RangeCall),
}

/// The series of a source and the computation that is applied to each.
pub(crate) struct EvalLeaf {
    /// The source of the series, which is shared by all threads.
    pub(crate) source: Arc<dyn SampleSource>,
    /// The computation that is applied to the samples of each series.
    pub(crate) kind: EvalLeafKind,
    /// The steps of the evaluation, one for each value of a row.
    pub(crate) grid: StepGrid,
    /// The window of a step, relative to its evaluation time.
    pub(crate) reach: SelectorWindow,
    /// True if only the count and the sum of histograms are needed.
    pub(crate) statistics_only: bool,
    /// The tally for the windows, if samples are counted.
    pub(crate) tally: Option<Arc<WindowTally>>,
    /// The working memory of finished parts, for reuse by other parts.
    pub(crate) idle: Mutex<Vec<LeafScratch>>,
}

/// If at most one in `FEW_STEPS` steps has a sample of a series in its window, these steps are
/// computed separately.
const FEW_STEPS: usize = 4;

/// A consumer of rows. It is called with the index of the series and may change the row.
pub(crate) type Each<'a> =
    dyn FnMut(usize, &mut StepRowBuffer, &mut QueryAnnotations) -> Result<(), PromqlError> + 'a;

/// The working memory of a part, which is reused for all its series and for later parts.
#[derive(Debug, Default)]
pub(crate) struct LeafScratch {
    buffer: ReadBuffer,
    row: StepRowBuffer,
    few: StepRowBuffer,
    plans: ColumnPlans,
    compacted: CompactedSamples,
}

/// A copy of the samples of a series without staleness markers.
#[derive(Debug, Default)]
struct CompactedSamples {
    times: Vec<TimestampMs>,
    values: Vec<f64>,
    starts: Vec<TimestampMs>,
}

/// The sample counts of a part, which are added to the account at its end.
#[derive(Debug, Default)]
struct LeafCounts {
    /// Number of samples in all windows of the part.
    read: u64,
    /// Number of samples in the largest window of the part.
    window_max: u64,
}

impl EvalLeaf {
    /// Computes the rows of all series of `part` and passes them to `each`, in order.
    pub(crate) fn scan(
        &self,
        part: Range<usize>,
        account: &QueryAccount<'_>,
        notes: &mut QueryAnnotations,
        each: &mut Each<'_>,
    ) -> Result<(), PromqlError> {
        let mut scratch = self.lock_idle().pop().unwrap_or_default();
        let outcome = self.scan_with(&mut scratch, part, account, notes, each);
        self.lock_idle().push(scratch);
        outcome
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<LeafScratch>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scan_with(
        &self,
        scratch: &mut LeafScratch,
        part: Range<usize>,
        account: &QueryAccount<'_>,
        notes: &mut QueryAnnotations,
        each: &mut Each<'_>,
    ) -> Result<(), PromqlError> {
        let LeafScratch {
            buffer,
            row,
            few,
            plans,
            compacted,
        } = scratch;
        let mut noted = vec![false; self.remarks()];
        let mut counts = LeafCounts::default();
        let mut windows = WindowExtent::default();
        let mut memory = account.reserve(0)?;
        let (steps, first) = (self.grid.count, part.start);
        buffer.read(&*self.source, part, steps, account, |stretch, batch| {
            plans.reset();
            // Each batch numbers its columns from zero.
            let mut known = None;
            let mut worker = LeafWorker {
                leaf: self,
                series: stretch.start,
                few,
                plans,
                compacted,
                counts: &mut counts,
            };
            for (at, series) in stretch.enumerate() {
                row.reset_unfilled(steps);
                worker.series = series;
                let columns = batch.series(at);
                let statistics;
                let columns = if self.statistics_only && !columns.histograms.is_empty() {
                    statistics = self.read_order().strip_buckets(&columns);
                    SeriesColumns {
                        histograms: &statistics,
                        ..columns
                    }
                } else {
                    columns
                };
                worker.fill(&columns, row, notes)?;
                if self.tally.is_some() {
                    self.record_windows(&columns, row.row(), &mut known, &mut windows);
                }
                account.check()?;
                if !row.histograms.is_empty() {
                    grow_to(&mut memory, row.row().histogram_bytes())?;
                }
                self.add_counter_remark(series, row.row(), &mut noted, notes);
                each(series, row, notes)?;
            }
            Ok(())
        })?;
        if let Some(tally) = &self.tally {
            tally.add(first, windows);
        }
        account.count_read(counts.read);
        account.record_peak(counts.window_max)
    }

    /// Records the windows of the series from which `row` was computed.
    ///
    /// Series with the same timestamps have the same windows. `known` contains the windows of a
    /// time column for reuse. A series with staleness markers or histograms has windows of its own.
    fn record_windows(
        &self,
        columns: &SeriesColumns<'_>,
        row: StepRow<'_>,
        known: &mut Option<(usize, SeriesWindows)>,
        windows: &mut WindowExtent,
    ) {
        let stays = match self.kind {
            EvalLeafKind::Range(_) => HeldSamples::Results(row.count_samples()),
            EvalLeafKind::Smoothed(_) => HeldSamples::Window,
            EvalLeafKind::Newest | EvalLeafKind::NewestTime | EvalLeafKind::NewestStart => return,
        };
        let is_plain = columns.histograms.is_empty() && count_absent(columns.values) == 0;
        let column = columns.time_column;
        if let Some((of_column, of_series)) = known
            && is_plain
            && *of_column == column
        {
            return windows.add_series(of_series, stays);
        }
        let of_series = SeriesWindows::from_series(columns, &self.grid, &self.reach);
        windows.add_series(&of_series, stays);
        if is_plain {
            *known = Some((column, of_series));
        }
    }

    /// Returns the order in which Prometheus reads the samples of a series.
    fn read_order(&self) -> SampleReadOrder<'_> {
        let range_ms = self.reach.range_ms;
        let (behind_ms, later_behind_ms) = match &self.kind {
            // All samples that were read once remain in the buffer.
            EvalLeafKind::Smoothed(_) => (i64::MAX, i64::MAX),
            EvalLeafKind::Range(_) => (range_ms, range_ms.min(self.grid.step_ms)),
            EvalLeafKind::Newest | EvalLeafKind::NewestTime | EvalLeafKind::NewestStart => {
                (range_ms, range_ms)
            }
        };
        SampleReadOrder {
            grid: &self.grid,
            reach: &self.reach,
            behind_ms,
            later_behind_ms,
        }
    }

    /// Returns the metric name of a series, for annotations. Allocates.
    fn name(&self, series: usize) -> Vec<u8> {
        let labels = self.source.labels(series);
        labels.get(METRIC_NAME).to_vec()
    }

    fn remarks(&self) -> usize {
        match &self.kind {
            EvalLeafKind::Range(call) => call.counters.len(),
            _ => 0,
        }
    }

    /// Adds the annotation that the series is probably not a counter, once per part.
    fn add_counter_remark(
        &self,
        series: usize,
        row: StepRow<'_>,
        noted: &mut [bool],
        notes: &mut QueryAnnotations,
    ) {
        let EvalLeafKind::Range(call) = &self.kind else {
            return;
        };
        let Some((index, remark)) = call.counters.remark(series) else {
            return;
        };
        if !noted[index] && row.has_floats() {
            noted[index] = true;
            notes.add(remark.clone());
        }
    }
}

/// Computes the rows of a part, one series after another.
struct LeafWorker<'a> {
    leaf: &'a EvalLeaf,
    series: usize,
    /// The row buffer for steps that are computed separately.
    few: &'a mut StepRowBuffer,
    plans: &'a mut ColumnPlans,
    compacted: &'a mut CompactedSamples,
    counts: &'a mut LeafCounts,
}

impl LeafWorker<'_> {
    /// Returns whether [`dispatch::fill`] computes the row; it writes all steps.
    fn fills_floats(&self, columns: &SeriesColumns<'_>) -> bool {
        let has_floats = !columns.times.is_empty() && columns.histograms.is_empty();
        has_floats
            && matches!(&self.leaf.kind, EvalLeafKind::Range(call) if call.overhang.is_none())
    }

    /// Computes the row of a series and writes all its steps. The row must have been begun.
    fn fill(
        &mut self,
        columns: &SeriesColumns<'_>,
        row: &mut StepRowBuffer,
        notes: &mut QueryAnnotations,
    ) -> Result<(), PromqlError> {
        let (times, values) = (columns.times, columns.values);
        let (count, steps) = (times.len(), self.leaf.grid.count);
        assert_eq!(count, values.len(), "times, and values of a series");
        let (first, last) = (times.first(), times.last());
        assert!(first <= last, "times from {first:?} to {last:?}");
        assert_eq!(row.values.len(), steps, "places of a row, and steps");
        if !self.fills_floats(columns) {
            row.values.fill(ABSENT);
        }
        if columns.times.is_empty() {
            return Ok(());
        }
        match &self.leaf.kind {
            EvalLeafKind::Range(call) => self.fill_range(call, columns, row, notes),
            EvalLeafKind::Smoothed(span) => {
                let (leaf, name) = (self.leaf, || self.leaf.name(self.series));
                let (grid, reach) = (&leaf.grid, &leaf.reach);
                rows::fill_smoothed(columns, grid, reach, *span, &name, row, notes)
            }
            _ => {
                self.fill_newest(columns, row);
                Ok(())
            }
        }
    }

    /// Returns the steps whose windows may contain a sample, if they are few. Nothing is planned or
    /// computed for the other steps. Series are created and end, so in a long range most steps of a
    /// series often have no sample.
    fn few_steps(&self, times: &[TimestampMs]) -> Option<Range<usize>> {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return None;
        };
        let EvalLeaf { grid, reach, .. } = self.leaf;
        let steps = grid.steps_covering(TimeRange::new(*first, *last), reach);
        (steps.len() <= grid.count / FEW_STEPS).then_some(steps)
    }

    fn fill_newest(&mut self, columns: &SeriesColumns<'_>, row: &mut StepRowBuffer) {
        let leaf = self.leaf;
        let steps = self.few_steps(columns.times).unwrap_or(0..leaf.grid.count);
        if steps.is_empty() {
            return;
        }
        let (plan, is_new) = self.plans.windows.plan_for_column(columns.time_column);
        if is_new {
            plan.fill(columns.times, &leaf.grid.slice(&steps), &leaf.reach);
        }
        let plain = columns.histograms.is_empty();
        if plain && matches!(leaf.kind, EvalLeafKind::Newest) {
            plan.gather_newest(columns.values, &mut row.values[steps]);
            self.counts.read += row.row().count_samples();
            return;
        }
        for (of_part, index) in plan.newest() {
            let step = steps.start + of_part;
            let histogram = histogram_at(columns, index);
            let stale = match histogram {
                Some(h) => h.is_stale(),
                None => is_stale(columns.values[index]),
            };
            if stale {
                continue;
            }
            match (&leaf.kind, histogram) {
                (EvalLeafKind::NewestTime, _) => {
                    row.values[step] = columns.times[index] as f64 / 1000.0;
                }
                (EvalLeafKind::NewestStart, _) => {
                    let start = columns.start_times.get(index).copied();
                    row.values[step] = start.unwrap_or(START_UNKNOWN) as f64 / 1000.0;
                }
                (_, Some(h)) => row.histograms.push((step as u32, h.clone())),
                (_, None) => row.values[step] = columns.values[index],
            }
        }
        self.counts.read += row.row().count_samples();
    }

    fn fill_range(
        &mut self,
        call: &RangeCall,
        columns: &SeriesColumns<'_>,
        row: &mut StepRowBuffer,
        notes: &mut QueryAnnotations,
    ) -> Result<(), PromqlError> {
        let (leaf, at) = (self.leaf, self.series);
        let name = || leaf.name(at);
        let view = RangeCallView {
            call,
            grid: &leaf.grid,
            reach: &leaf.reach,
            name: &name,
        };
        if let Some(overhang) = call.overhang {
            self.counts.read += rows::fill(&view, overhang, columns, row, notes)?;
            return Ok(());
        }
        if !columns.histograms.is_empty() {
            self.counts.read += mixed::fill(&view, columns, row, notes)?;
            return Ok(());
        }
        // Scalar arguments are indexed by step of the whole grid.
        let few = self
            .few_steps(columns.times)
            .filter(|_| call.scalars.is_empty());
        let starts = if call.uses_starts {
            columns.start_times
        } else {
            &[]
        };
        // A rising series contains no NaN, and therefore no staleness marker.
        let rising = call.function.is_growth() && is_non_decreasing(columns.values);
        // A staleness marker has the same bits as a missing float.
        let is_compacted = !rising && count_absent(columns.values) > 0;
        let mut own;
        let (series, plans) = if is_compacted {
            own = ColumnPlans::default();
            (self.compacted.of(columns, starts), &mut own)
        } else {
            let samples = SampleSlices {
                times: columns.times,
                values: columns.values,
                starts,
            };
            let series = FloatSeries {
                samples,
                rising,
                column: columns.time_column,
            };
            (series, &mut *self.plans)
        };
        let filled = match few {
            None => dispatch::fill(&view, &series, plans, row, notes)?,
            Some(steps) => fill_few(&view, &steps, &series, plans, self.few, row, notes)?,
        };
        self.counts.read += filled.read;
        self.counts.window_max = self.counts.window_max.max(filled.window_max);
        if filled.overlaps > 0 {
            let remark = Annotation::start_time_overlap(call.span, &name(), filled.overlaps);
            notes.add(remark);
        }
        Ok(())
    }
}

/// Computes some steps of a row separately, in the first of both buffers. The windows of all other
/// steps contain no sample.
fn fill_few(
    view: &RangeCallView<'_>,
    steps: &Range<usize>,
    series: &FloatSeries<'_>,
    plans: &mut ColumnPlans,
    few: &mut StepRowBuffer,
    row: &mut StepRowBuffer,
    notes: &mut QueryAnnotations,
) -> Result<RowFillCounts, PromqlError> {
    row.values.fill(ABSENT);
    if steps.is_empty() {
        return Ok(RowFillCounts::default());
    }
    let view = RangeCallView {
        grid: &view.grid.slice(steps),
        ..*view
    };
    few.reset_unfilled(steps.len());
    let filled = dispatch::fill(&view, series, plans, few, notes)?;
    row.values[steps.clone()].copy_from_slice(&few.values);
    Ok(filled)
}

impl CompactedSamples {
    /// Copies the series without its staleness markers. The copied times are not a column of the
    /// batch.
    fn of(&mut self, columns: &SeriesColumns<'_>, starts: &[TimestampMs]) -> FloatSeries<'_> {
        self.times.clear();
        self.values.clear();
        self.starts.clear();
        for (at, value) in columns.values.iter().enumerate() {
            if !is_stale(*value) {
                self.times.push(columns.times[at]);
                self.values.push(*value);
                self.starts.extend(starts.get(at));
            }
        }
        FloatSeries {
            samples: SampleSlices {
                times: &self.times,
                values: &self.values,
                starts: &self.starts,
            },
            rising: is_non_decreasing(&self.values),
            column: 0,
        }
    }
}

/// Returns the histogram at an index of a series, or `None` if the sample is a float.
fn histogram_at<'a>(
    columns: &SeriesColumns<'a>,
    index: usize,
) -> Option<&'a Arc<firn_model::histogram::Histogram>> {
    let at = columns
        .histograms
        .binary_search_by_key(&index, |(i, _)| *i as usize);
    at.ok().map(|i| &columns.histograms[i].1)
}
