//! The end of an interval: totals take in what waited, gauges are folded, silent sources go.

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

/// Where results go: the rules say what is made of gauges.
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

/// What a result is at an end.
#[derive(Clone, Debug)]
enum Value {
    Float(f64),
    Native(Histogram),
}

/// What is made of gauges.
#[derive(Clone, Debug)]
enum AnyFold {
    Float(Fold),
    Native(Box<NativeFold>),
}

/// What the sources of an output came to at an end.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// Some source has a sample that counts.
    is_live: bool,
    fold: Option<AnyFold>,
}

impl Lane {
    /// Ends the interval up to `end`, the one behind [`Lane::written`], and gives the results if
    /// they are wanted. Returns the sources that are forgotten.
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

    /// Goes on behind `end` at once, where there is nothing to write before it.
    pub(in crate::aggregation) fn skip_to(&mut self, end: i64) {
        debug_assert!(self.is_idle(), "intervals with results are not passed over");
        self.written = self.written.max(end);
    }

    /// Lets the samples of gauges up to `end` be the newest of their sources.
    fn settle_gauges(&mut self, end: i64) {
        self.natives.settle(end, &mut self.entries);
        while let Some(first) = self.open.first_entry() {
            if *first.key() > end && !failpoints::has(Flaw::SettlesEarly) {
                break;
            }
            for waiting in first.remove() {
                if let Some(entry) = self.entries.get_mut(waiting.entry) {
                    entry.waiting = entry.waiting.saturating_sub(1);
                    // Of two at one time the first stays, as in the store.
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

    /// Whether something follows from the sources themselves at `end`: the results of gauges, or
    /// that one of them is forgotten. A look at each takes about as long as a sample of each.
    fn must_tally(&self, end: i64) -> bool {
        let is_gauge = |output: &Output| output.kind == Kind::Gauge;
        self.oldest <= self.forgotten(end) || self.outputs.iter().flatten().any(is_gauge)
    }

    /// Sources without a sample behind this are forgotten at `end`: after twice the look-back, for
    /// samples that are late by no more than that.
    fn forgotten(&self, end: i64) -> i64 {
        let lookback_ms = self.params.lookback_ms;
        end.saturating_sub(lookback_ms).saturating_sub(lookback_ms)
    }

    /// Counts the sources that are there at `end`; returns those that are forgotten.
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

/// What an output is at `end`; nothing if it has no source then.
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
        // What does not add up ends the result as long as it is so, with a replay too.
        (Kind::Gauge, Some(AnyFold::Native(fold))) => match fold.result() {
            Some(histogram) => Some(Value::Native(histogram)),
            None => tally.is_live.then_some(Value::Float(stale_nan())),
        },
        // Results are not wanted: any value will do.
        (Kind::Gauge, None) => tally.is_live.then_some(Value::Float(0.0)),
    }
}
