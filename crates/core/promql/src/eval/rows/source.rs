//! The sources of samples for the leaves of a plan: a selection of the store, or the rows of a
//! subquery.

use crate::eval::account::{QueryAccount, storage_error};
use crate::eval::meter::{EvalMeter, NodePlace};
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::row::is_absent;
use crate::eval::rows::row_labels::{HeldColumn, LabelSource};
use crate::grid::StepGrid;
use crate::value::PromqlError;
use firn_model::columns::{HISTOGRAM_PLACEHOLDER, SeriesBatch};
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::store::Selection;
use std::ops::Range;
use std::sync::Arc;

/// Series whose samples can be read in batches. Samples may have any timestamps.
pub(crate) trait SampleSource: LabelSource {
    /// Returns whether all series certainly have the same metric name.
    fn has_one_name(&self) -> bool;

    /// Appends the samples of `series` to `into`, one series after another. Fails if the store
    /// does.
    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), PromqlError>;
}

/// The series of a selection in the store, for instant and range selectors.
pub(crate) struct SelectionSource {
    selection: Arc<dyn Selection>,
    has_one_name: bool,
    /// Measures the reads for their selector, if the query is analyzed.
    meter: Option<SelectionMeter>,
}

/// The meter of the query, and the nodes between which the time of reads is moved.
pub(crate) struct SelectionMeter {
    /// The meter of the query.
    pub(crate) meter: Arc<EvalMeter>,
    /// The node that selects the series.
    pub(crate) selector: NodePlace,
    /// The node to which the time of reads is assigned before it is moved.
    pub(crate) consumer: NodePlace,
}

impl SelectionSource {
    /// Creates a source from the result of a look-up with `matchers`.
    pub(crate) fn new(selection: Arc<dyn Selection>, matchers: &[Matcher]) -> Self {
        let fixes_name = |m: &Matcher| {
            m.name() == METRIC_NAME && m.op() == MatchOp::Equal && !m.value().is_empty()
        };
        Self {
            selection,
            has_one_name: matchers.iter().any(fixes_name),
            meter: None,
        }
    }

    /// Measures the reads with `meter`.
    pub(crate) fn with_meter(mut self, meter: Option<SelectionMeter>) -> Self {
        if let Some(SelectionMeter {
            meter, selector, ..
        }) = &meter
        {
            meter.add_selection(*selector, &*self.selection);
        }
        self.meter = meter;
        self
    }
}

impl Drop for SelectionSource {
    fn drop(&mut self) {
        if let Some(SelectionMeter {
            meter, selector, ..
        }) = &self.meter
        {
            meter.add_reads(*selector, self.selection.read_costs());
        }
    }
}

impl LabelSource for SelectionSource {
    fn len(&self) -> usize {
        self.selection.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.selection.labels(series)
    }

    fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError> {
        let mut memory = account.reserve(0)?;
        let column = self
            .selection
            .label_column(name, account.cancel(), &mut memory);
        Ok((column.map_err(storage_error)?, memory))
    }

    fn drops_name(&self, _series: usize) -> bool {
        false
    }
}

impl SampleSource for SelectionSource {
    fn has_one_name(&self) -> bool {
        self.has_one_name
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), PromqlError> {
        let Some(SelectionMeter {
            meter,
            selector,
            consumer,
        }) = &self.meter
        else {
            return self.selection.read(series, into).map_err(storage_error);
        };
        let begin = meter.thread_time();
        let outcome = self.selection.read(series, into);
        let time = meter.thread_time().saturating_sub(begin);
        meter.move_time(*consumer, *selector, time);
        outcome.map_err(storage_error)
    }
}

/// The rows of a subquery, presented as samples at the times of its own grid.
pub(crate) struct SubquerySource {
    frame: SeriesFrame,
    times: Vec<i64>,
}

impl SubquerySource {
    /// Creates a source from the rows of `frame`, whose steps are those of `grid`.
    pub(crate) fn new(frame: SeriesFrame, grid: &StepGrid) -> Self {
        let (steps, count) = (frame.steps(), grid.count);
        assert_eq!(steps, count, "steps of the rows, and of the subquery");
        Self {
            frame,
            times: grid.times().collect(),
        }
    }
}

impl LabelSource for SubquerySource {
    fn len(&self) -> usize {
        self.frame.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.frame.labels(series)
    }

    fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError> {
        self.frame.label_column(name, account)
    }

    fn drops_name(&self, series: usize) -> bool {
        self.frame.drops_name(series)
    }
}

impl SampleSource for SubquerySource {
    fn has_one_name(&self) -> bool {
        false
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), PromqlError> {
        let (mut times, mut values) = (Vec::new(), Vec::new());
        for index in series {
            let row = self.frame.row(index);
            if row.histograms.is_empty() && row.values.iter().all(|v| !is_absent(*v)) {
                into.push(&self.times, row.values, &[], []);
                continue;
            }
            times.clear();
            values.clear();
            let mut histograms = Vec::new();
            for (step, time) in self.times.iter().enumerate() {
                if let Some(histogram) = row.histogram(step) {
                    histograms.push((times.len() as u32, without_hint(histogram)));
                    times.push(*time);
                    values.push(HISTOGRAM_PLACEHOLDER);
                } else if !is_absent(row.values[step]) {
                    times.push(*time);
                    values.push(row.values[step]);
                }
            }
            into.push(&times, &values, &[], histograms);
        }
        Ok(())
    }
}

/// Returns the histogram without a counter reset hint. A subquery may omit or repeat samples, so
/// hints about neighbouring samples are no longer valid.
fn without_hint(histogram: &Arc<Histogram>) -> Arc<Histogram> {
    match histogram.reset_hint {
        ResetHint::Unknown | ResetHint::Gauge => histogram.clone(),
        ResetHint::Reset | ResetHint::NotReset => Arc::new(Histogram {
            reset_hint: ResetHint::Unknown,
            ..Histogram::clone(histogram)
        }),
    }
}
