//! Writes the results at the end of an interval: adds pending increments to totals, aggregates
//! gauges, forgets silent sources.

use super::AggregationLane;
use crate::entries::SourceEntry;
use crate::failpoints::{self, AggregationFlaw};
use crate::fold::FloatFold;
use crate::native::HistogramFold;
use crate::output::{AggregationOutput, OutputSampleType};
use crate::spec::{AggregatedMetricKind, AggregationRuleSpec};
use firn_model::batch::{Batch, HistogramSample};
use firn_model::histogram::Histogram;
use firn_model::sample::{START_UNKNOWN, is_stale, stale_nan};

/// The destination of results, with the rules that aggregate gauges. A replay has none.
pub(crate) struct FlushResults<'a> {
    pub(crate) rules: &'a [AggregationRuleSpec],
    pub(crate) batch: &'a mut Batch,
}

impl FlushResults<'_> {
    fn push_result(&mut self, output: &AggregationOutput, end: i64, value: OutputValue) {
        let labels = output.labels.as_bytes();
        self.batch.label_bytes().extend_from_slice(labels);
        let is_counter = output.kind == AggregatedMetricKind::Counter;
        match value {
            OutputValue::Float(value) if is_counter && !is_stale(value) => {
                self.batch.push_float_with_start(end, value, output.start);
            }
            OutputValue::Float(value) => self.batch.push_float(end, value),
            OutputValue::Native(histogram) => self.batch.push_histogram(HistogramSample {
                time: end,
                start_time: if is_counter {
                    output.start
                } else {
                    START_UNKNOWN
                },
                histogram,
            }),
        }
        self.batch.end_series();
    }
}

/// The value of a result at the end of an interval, of either sample type.
#[derive(Clone, Debug)]
enum OutputValue {
    Float(f64),
    Native(Histogram),
}

/// The aggregation of gauges of either sample type.
#[derive(Clone, Debug)]
enum GaugeFold {
    Float(FloatFold),
    Native(Box<HistogramFold>),
}

/// The sources of an output at the end of an interval, collected in one pass over all entries.
#[derive(Clone, Debug, Default)]
struct OutputTally {
    /// True if some source has a sample within the look-back.
    is_live: bool,
    fold: Option<GaugeFold>,
}

impl AggregationLane {
    /// Closes the interval that ends at `end`, the next one after [`AggregationLane::written`], and
    /// writes its results to `results` if given. Returns the removed silent sources.
    pub(crate) fn flush_interval(
        &mut self,
        end: i64,
        mut results: Option<FlushResults<'_>>,
    ) -> Vec<(u32, SourceEntry)> {
        self.settle_gauges(end);
        let lookback_ms = self.params.lookback_ms;
        let mut tallies = self.new_tallies(results.as_ref());
        let silent = if self.must_visit_sources(end) {
            self.tally_sources(end, &mut tallies)
        } else {
            Vec::new()
        };
        for (at, _) in &silent {
            self.remove_source(*at);
        }
        for (place, tally) in self.outputs.iter_mut().zip(tallies) {
            let Some(output) = place else { continue };
            let value = compute_value(output, end, lookback_ms, tally);
            let is_there = value.is_some();
            if let Some(results) = &mut results {
                match value {
                    Some(value) => results.push_result(output, end, value),
                    None if output.is_written => {
                        results.push_result(output, end, OutputValue::Float(stale_nan()));
                    }
                    None => {}
                }
            }
            output.is_written = is_there;
            if output.is_removable() {
                self.by_result.remove(&(output.rule, output.labels.clone()));
                *place = None;
            }
        }
        self.written = end;
        silent
    }

    /// Skips the intervals up to `end`, which have no results.
    pub(crate) fn skip_intervals(&mut self, end: i64) {
        debug_assert!(self.is_idle(), "intervals with results are not passed over");
        self.written = self.written.max(end);
    }

    /// Makes the waiting gauge samples of intervals up to `end` the newest values of their sources.
    fn settle_gauges(&mut self, end: i64) {
        self.natives.settle(end, &mut self.entries);
        while let Some(first) = self.open.first_entry() {
            if *first.key() > end && !failpoints::has(AggregationFlaw::SettlesEarly) {
                break;
            }
            for waiting in first.remove() {
                if let Some(entry) = self.entries.get_mut(waiting.entry) {
                    entry.waiting = entry.waiting.saturating_sub(1);
                    // Of two samples with the same timestamp the first one wins, as in the store.
                    if waiting.time > entry.time {
                        (entry.time, entry.value) = (waiting.time, waiting.value);
                    }
                }
            }
        }
    }

    fn new_tallies(&self, results: Option<&FlushResults<'_>>) -> Vec<OutputTally> {
        let tally = |output: &Option<AggregationOutput>| OutputTally {
            is_live: false,
            fold: match (output, results) {
                (Some(output), Some(results)) if output.kind == AggregatedMetricKind::Gauge => {
                    let rule = results.rules.get(output.index);
                    rule.map(|rule| match output.form {
                        OutputSampleType::Native(_) => GaugeFold::Native(Box::new(
                            HistogramFold::new(rule.op.histogram_fold()),
                        )),
                        OutputSampleType::Float | OutputSampleType::Any => {
                            GaugeFold::Float(FloatFold::new(rule.op))
                        }
                    })
                }
                _ => None,
            },
        };
        self.outputs.iter().map(tally).collect()
    }

    /// Returns whether all sources must be visited at `end`, to aggregate gauges or to forget
    /// silent ones. A visit costs about as much as a sample of each source.
    fn must_visit_sources(&self, end: i64) -> bool {
        let is_gauge = |output: &AggregationOutput| output.kind == AggregatedMetricKind::Gauge;
        self.oldest <= self.silence_limit(end) || self.outputs.iter().flatten().any(is_gauge)
    }

    /// Returns the timestamp at which sources without a newer sample are forgotten: twice the
    /// look-back before `end`, which accepts samples that are late by up to one look-back.
    fn silence_limit(&self, end: i64) -> i64 {
        let lookback_ms = self.params.lookback_ms;
        end.saturating_sub(lookback_ms).saturating_sub(lookback_ms)
    }

    /// Counts the live sources at `end` and adds the gauges; returns the silent sources to remove.
    fn tally_sources(&mut self, end: i64, tallies: &mut [OutputTally]) -> Vec<(u32, SourceEntry)> {
        let lookback_ms = self.params.lookback_ms;
        let since = end.saturating_sub(lookback_ms);
        let forgotten = self.silence_limit(end);
        let mut silent = Vec::new();
        let mut oldest = i64::MAX;
        for (at, entry) in self.entries.iter() {
            let is_ended = is_stale(entry.value);
            if (entry.time <= forgotten || is_ended) && entry.waiting == 0 {
                silent.push((at, *entry));
            } else {
                oldest = oldest.min(entry.time);
            }
            if entry.time > since && !is_ended {
                let tally = &mut tallies[entry.output as usize];
                tally.is_live = true;
                match &mut tally.fold {
                    Some(GaugeFold::Float(fold)) => fold.add_value(entry.time, entry.value),
                    Some(GaugeFold::Native(fold)) => {
                        if let Some(newest) = self.natives.newest_histogram(at) {
                            fold.add_histogram(entry.time, newest);
                        }
                    }
                    None => {}
                }
            }
        }
        self.oldest = oldest;
        silent
    }
}

/// Returns the value of an output at `end`; `None` if it has no live source.
fn compute_value(
    output: &mut AggregationOutput,
    end: i64,
    lookback_ms: i64,
    tally: OutputTally,
) -> Option<OutputValue> {
    match (output.kind, tally.fold) {
        (AggregatedMetricKind::Counter, _) => {
            let has_grown = output.settle_increments(end);
            let has_source = output.has_source_at(end, lookback_ms);
            match &output.form {
                _ if !has_source && !has_grown => None,
                OutputSampleType::Native(total) => total.to_histogram().map(OutputValue::Native),
                OutputSampleType::Float | OutputSampleType::Any => {
                    Some(OutputValue::Float(output.total.total()))
                }
            }
        }
        (AggregatedMetricKind::Gauge, Some(GaugeFold::Float(fold))) => {
            fold.result().map(OutputValue::Float)
        }
        // Incompatible histograms end the result as long as they are present, also during a replay.
        (AggregatedMetricKind::Gauge, Some(GaugeFold::Native(fold))) => match fold.result() {
            Some(histogram) => Some(OutputValue::Native(histogram)),
            None => tally.is_live.then_some(OutputValue::Float(stale_nan())),
        },
        // A replay needs no value, only whether the result exists.
        (AggregatedMetricKind::Gauge, None) => tally.is_live.then_some(OutputValue::Float(0.0)),
    }
}
