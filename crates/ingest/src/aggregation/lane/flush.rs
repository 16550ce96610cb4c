//! Writes the results at the end of an interval: adds pending increments to totals, aggregates
//! gauges, forgets silent sources.

use super::Lane;
use crate::aggregation::entries::Entry;
use crate::aggregation::failpoints::{self, Flaw};
use crate::aggregation::fold::Fold;
use crate::aggregation::native::NativeFold;
use crate::aggregation::output::{Form, Output};
use crate::aggregation::spec::{Kind, RuleSpec};
use firn_model::batch::{Batch, HistogramSample};
use firn_model::histogram::Histogram;
use firn_model::sample::{START_UNKNOWN, is_stale, stale_nan};

/// The destination of results, with the rules that aggregate gauges. A replay has none.
pub(in crate::aggregation) struct Results<'a> {
    pub(in crate::aggregation) rules: &'a [RuleSpec],
    pub(in crate::aggregation) batch: &'a mut Batch,
}

impl Results<'_> {
    fn push(&mut self, output: &Output, end: i64, value: Value) {
        let labels = output.labels.as_bytes();
        self.batch.label_bytes().extend_from_slice(labels);
        let is_counter = output.kind == Kind::Counter;
        match value {
            Value::Float(value) if is_counter && !is_stale(value) => {
                self.batch.push_float_with_start(end, value, output.start);
            }
            Value::Float(value) => self.batch.push_float(end, value),
            Value::Native(histogram) => self.batch.push_histogram(HistogramSample {
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
enum Value {
    Float(f64),
    Native(Histogram),
}

/// The aggregation of gauges of either sample type.
#[derive(Clone, Debug)]
enum AnyFold {
    Float(Fold),
    Native(Box<NativeFold>),
}

/// The sources of an output at the end of an interval, collected in one pass over all entries.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// True if some source has a sample within the look-back.
    is_live: bool,
    fold: Option<AnyFold>,
}

impl Lane {
    /// Closes the interval that ends at `end`, the next one after [`Lane::written`], and writes its
    /// results to `results` if given. Returns the removed silent sources.
    pub(in crate::aggregation) fn flush(
        &mut self,
        end: i64,
        mut results: Option<Results<'_>>,
    ) -> Vec<(u32, Entry)> {
        self.settle_gauges(end);
        let lookback_ms = self.params.lookback_ms;
        let mut tallies = self.tallies(results.as_ref());
        let silent = match self.must_tally(end) {
            true => self.tally(end, &mut tallies),
            false => Vec::new(),
        };
        for (at, _) in &silent {
            self.remove(*at);
        }
        for (place, tally) in self.outputs.iter_mut().zip(tallies) {
            let Some(output) = place else { continue };
            let value = value_of(output, end, lookback_ms, tally);
            let is_there = value.is_some();
            if let Some(results) = &mut results {
                match value {
                    Some(value) => results.push(output, end, value),
                    None if output.is_written => {
                        results.push(output, end, Value::Float(stale_nan()));
                    }
                    None => {}
                }
            }
            output.is_written = is_there;
            if output.is_over() {
                self.by_result.remove(&(output.rule, output.labels.clone()));
                *place = None;
            }
        }
        self.written = end;
        silent
    }

    /// Skips the intervals up to `end`, which have no results.
    pub(in crate::aggregation) fn skip_to(&mut self, end: i64) {
        debug_assert!(self.is_idle(), "intervals with results are not passed over");
        self.written = self.written.max(end);
    }

    /// Makes the waiting gauge samples of intervals up to `end` the newest values of their sources.
    fn settle_gauges(&mut self, end: i64) {
        self.natives.settle(end, &mut self.entries);
        while let Some(first) = self.open.first_entry() {
            if *first.key() > end && !failpoints::has(Flaw::SettlesEarly) {
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

    fn tallies(&self, results: Option<&Results<'_>>) -> Vec<Tally> {
        let tally = |output: &Option<Output>| Tally {
            is_live: false,
            fold: match (output, results) {
                (Some(output), Some(results)) if output.kind == Kind::Gauge => {
                    let rule = results.rules.get(output.index);
                    rule.map(|rule| match output.form {
                        Form::Native(_) => {
                            AnyFold::Native(Box::new(NativeFold::new(rule.op.of_natives())))
                        }
                        Form::Float | Form::Any => AnyFold::Float(Fold::new(rule.op)),
                    })
                }
                _ => None,
            },
        };
        self.outputs.iter().map(tally).collect()
    }

    /// Returns whether all sources must be visited at `end`, to aggregate gauges or to forget
    /// silent ones. A visit costs about as much as a sample of each source.
    fn must_tally(&self, end: i64) -> bool {
        let is_gauge = |output: &Output| output.kind == Kind::Gauge;
        self.oldest <= self.forgotten(end) || self.outputs.iter().flatten().any(is_gauge)
    }

    /// Returns the timestamp at which sources without a newer sample are forgotten: twice the
    /// look-back before `end`, which accepts samples that are late by up to one look-back.
    fn forgotten(&self, end: i64) -> i64 {
        let lookback_ms = self.params.lookback_ms;
        end.saturating_sub(lookback_ms).saturating_sub(lookback_ms)
    }

    /// Counts the live sources at `end` and adds the gauges; returns the silent sources to remove.
    fn tally(&mut self, end: i64, tallies: &mut [Tally]) -> Vec<(u32, Entry)> {
        let lookback_ms = self.params.lookback_ms;
        let since = end.saturating_sub(lookback_ms);
        let forgotten = self.forgotten(end);
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
                    Some(AnyFold::Float(fold)) => fold.add(entry.time, entry.value),
                    Some(AnyFold::Native(fold)) => {
                        if let Some(newest) = self.natives.newest(at) {
                            fold.add(entry.time, newest);
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
fn value_of(output: &mut Output, end: i64, lookback_ms: i64, tally: Tally) -> Option<Value> {
    match (output.kind, tally.fold) {
        (Kind::Counter, _) => {
            let has_grown = output.settle(end);
            let has_source = output.has_source(end, lookback_ms);
            match &output.form {
                _ if !has_source && !has_grown => None,
                Form::Native(total) => total.value().map(Value::Native),
                Form::Float | Form::Any => Some(Value::Float(output.total.total())),
            }
        }
        (Kind::Gauge, Some(AnyFold::Float(fold))) => fold.result().map(Value::Float),
        // Incompatible histograms end the result as long as they are present, also during a replay.
        (Kind::Gauge, Some(AnyFold::Native(fold))) => match fold.result() {
            Some(histogram) => Some(Value::Native(histogram)),
            None => tally.is_live.then_some(Value::Float(stale_nan())),
        },
        // A replay needs no value, only whether the result exists.
        (Kind::Gauge, None) => tally.is_live.then_some(Value::Float(0.0)),
    }
}
