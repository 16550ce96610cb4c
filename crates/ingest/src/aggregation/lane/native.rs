//! The native histograms of a lane: the newest of each source, and those whose interval is open.
//!
//! They are stored apart from the floats, which most sources have: the timestamp is in the table of
//! all entries, and the value there only distinguishes staleness markers.

use super::{Lane, Verdict, refusal};
use crate::aggregation::code::{Malformed, Reader, push_signed};
use crate::aggregation::entries::{Entries, Entry};
use crate::aggregation::failpoints::{self, Flaw};
use crate::aggregation::native::{growth, push_histogram, read_histogram};
use crate::aggregation::ops::Ops;
use crate::aggregation::output::Form;
use crate::aggregation::spec::Kind;
use firn_model::batch::HistogramSample;
use firn_model::histogram::Histogram;
use firn_model::labels::push_uvarint;
use firn_model::sample::stale_nan;
use std::collections::{BTreeMap, HashSet};

/// Newest and waiting histograms of the sources in a lane; empty for lanes of floats.
#[derive(Debug, Default)]
pub(super) struct Natives {
    /// Newest histogram of each source that has one, by entry number.
    newest: BTreeMap<u32, Histogram>,
    /// Waiting gauge samples with their entry numbers, by the end of their interval.
    open: BTreeMap<i64, Vec<(u32, HistogramSample)>>,
}

impl Natives {
    /// Returns whether no sample is waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the newest histogram of a source. Returns `None` if it has none.
    pub(super) fn newest(&self, at: u32) -> Option<&Histogram> {
        self.newest.get(&at)
    }

    /// Removes the newest histogram of a source. Does nothing if it has none.
    pub(super) fn remove(&mut self, at: u32) {
        self.newest.remove(&at);
    }

    /// Removes the waiting samples of these sources.
    pub(super) fn forget_open(&mut self, sources: &HashSet<u32>) {
        for waiting in self.open.values_mut() {
            waiting.retain(|(entry, _)| !sources.contains(entry));
        }
    }

    /// Makes the waiting gauge samples of intervals up to `end` the newest values of their sources.
    pub(super) fn settle(&mut self, end: i64, entries: &mut Entries) {
        while let Some(first) = self.open.first_entry() {
            if *first.key() > end && !failpoints::has(Flaw::SettlesEarly) {
                break;
            }
            for (at, sample) in first.remove() {
                let Some(entry) = entries.get_mut(at) else {
                    continue;
                };
                entry.waiting = entry.waiting.saturating_sub(1);
                // Of two samples with the same timestamp the first one wins, as in the store.
                if sample.time > entry.time {
                    set_newest(entry, &sample);
                    self.newest.insert(at, sample.histogram);
                }
            }
        }
    }

    /// Moves waiting samples to other interval ends.
    pub(super) fn move_ends(&mut self, end_of: impl Fn(i64) -> i64) {
        for waiting in std::mem::take(&mut self.open).into_values().flatten() {
            let end = end_of(waiting.1.time);
            self.open.entry(end).or_default().push(waiting);
        }
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let open = self.open.values().flatten().map(|(_, s)| &s.histogram);
        let all = self.newest.values().chain(open);
        all.map(Histogram::memory_bytes).sum()
    }

    /// Appends the encoded state; nothing if it is empty.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if self.newest.is_empty() && self.open.is_empty() {
            return;
        }
        push_uvarint(out, self.newest.len() as u64);
        for (at, histogram) in &self.newest {
            push_uvarint(out, u64::from(*at));
            push_histogram(out, 0, histogram);
        }
        let all = self.open.iter();
        let all: Vec<_> = match failpoints::has(Flaw::ForgetsWaiting) {
            true => Vec::new(),
            false => all
                .flat_map(|(end, waiting)| waiting.iter().map(move |waiting| (end, waiting)))
                .collect(),
        };
        push_uvarint(out, all.len() as u64);
        for (end, (at, sample)) in all {
            push_signed(out, *end);
            push_uvarint(out, u64::from(*at));
            push_histogram(out, sample.time, &sample.histogram);
        }
    }

    /// Reads the state that [`Natives::encode`] wrote. Fails if it is malformed.
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        entries: &mut Entries,
    ) -> Result<Self, Malformed> {
        let mut natives = Self::default();
        if reader.is_empty() {
            return Ok(natives);
        }
        for _ in 0..reader.unsigned()? {
            let at = reader.small()?;
            entries.get(at).ok_or(Malformed("histogram of no source"))?;
            let newest = read_histogram(reader)?.histogram;
            natives.newest.insert(at, newest);
        }
        for _ in 0..reader.unsigned()? {
            let end = reader.signed()?;
            let at = reader.small()?;
            let entry = entries.get_mut(at);
            let entry = entry.ok_or(Malformed("histogram of no source"))?;
            entry.waiting = entry.waiting.saturating_add(1);
            let sample = read_histogram(reader)?;
            natives.open.entry(end).or_default().push((at, sample));
        }
        Ok(natives)
    }
}

/// Records `sample` as the newest one of a source.
fn set_newest(entry: &mut Entry, sample: &HistogramSample) {
    entry.time = sample.time;
    entry.value = match sample.histogram.is_stale() {
        true => stale_nan(),
        false => 0.0,
    };
}

impl Lane {
    /// Adds a histogram of the source `at`, and appends the change to `ops`.
    pub(in crate::aggregation) fn take_histogram(
        &mut self,
        at: u32,
        sample: &HistogramSample,
        ops: &mut Ops,
    ) -> Verdict {
        let Some(entry) = self.entries.get(at) else {
            return Verdict::Repeated;
        };
        let Some(output) = self.output(entry.output) else {
            return Verdict::Repeated;
        };
        if let Form::Native(total) = &output.form
            && !sample.histogram.is_stale()
            && !total.takes(&sample.histogram)
        {
            return Verdict::Mixed;
        }
        if let Some(verdict) = refusal(entry, output.kind, sample.time, (self.params, self.written))
        {
            return verdict;
        }
        ops.push_histogram(at, sample);
        self.apply_histogram(at, sample)
    }

    /// Applies a histogram that [`Lane::take_histogram`] has accepted.
    pub(in crate::aggregation) fn apply_histogram(
        &mut self,
        at: u32,
        sample: &HistogramSample,
    ) -> Verdict {
        let Some(entry) = self.entries.get_mut(at) else {
            return Verdict::Repeated;
        };
        let Some(Some(output)) = self.outputs.get_mut(entry.output as usize) else {
            return Verdict::Repeated;
        };
        let Form::Native(total) = &mut output.form else {
            return Verdict::Mixed;
        };
        let end = self.params.end_of(sample.time);
        if output.kind == Kind::Gauge {
            entry.waiting = entry.waiting.saturating_add(1);
            let waiting = self.natives.open.entry(end).or_default();
            waiting.push((at, sample.clone()));
            return Verdict::Counted;
        }
        if sample.histogram.is_stale() {
            let output = entry.output;
            return self.end(at, output, sample.time);
        }
        let lookback_ms = self.params.lookback_ms;
        let since = sample.time.saturating_sub(lookback_ms);
        let is_remembered = entry.time > since || failpoints::has(Flaw::RemembersSilent);
        let newest = self.natives.newest.get(&at).filter(|_| is_remembered);
        let increment = growth(newest.map(|newest| (entry.time, newest)), sample, since);
        set_newest(entry, sample);
        let next = self.written.saturating_add(self.params.interval_ms);
        let is_lost = end < next && failpoints::has(Flaw::LosesLate);
        let increment = increment.filter(|_| !is_lost);
        let end = end.max(next);
        total.count(end, &sample.histogram, increment);
        output.count(sample.time, end, 0.0, lookback_ms);
        self.natives.newest.insert(at, sample.histogram.clone());
        Verdict::Counted
    }
}
