//! The native histograms of a lane: the newest of each source, and those whose interval is open.
//!
//! They are stored apart from the floats, which most sources have: the timestamp is in the table of
//! all entries, and the value there only distinguishes staleness markers.

use super::{AggregationLane, SampleVerdict, check_ignored};
use crate::code::{AggregationJournalError, AggregationJournalReader, push_signed};
use crate::entries::{SourceEntry, SourceEntryTable};
use crate::failpoints::{self, AggregationFlaw};
use crate::native::{compute_increase, push_histogram, read_histogram};
use crate::ops::LaneOps;
use crate::output::OutputSampleType;
use crate::spec::AggregatedMetricKind;
use firn_model::batch::HistogramSample;
use firn_model::histogram::Histogram;
use firn_model::labels::push_uvarint;
use firn_model::sample::stale_nan;
use std::collections::{BTreeMap, HashSet};

/// Newest and waiting histograms of the sources in a lane; empty for lanes of floats.
#[derive(Debug, Default)]
pub(super) struct LaneHistograms {
    /// Newest histogram of each source that has one, by entry number.
    newest: BTreeMap<u32, Histogram>,
    /// Waiting gauge samples with their entry numbers, by the end of their interval.
    open: BTreeMap<i64, Vec<(u32, HistogramSample)>>,
}

impl LaneHistograms {
    /// Returns whether no sample is waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the newest histogram of a source. Returns `None` if it has none.
    pub(super) fn newest_histogram(&self, at: u32) -> Option<&Histogram> {
        self.newest.get(&at)
    }

    /// Removes the newest histogram of a source. Does nothing if it has none.
    pub(super) fn remove_newest(&mut self, at: u32) {
        self.newest.remove(&at);
    }

    /// Removes the waiting samples of these sources.
    pub(super) fn forget_waiting(&mut self, sources: &HashSet<u32>) {
        for waiting in self.open.values_mut() {
            waiting.retain(|(entry, _)| !sources.contains(entry));
        }
    }

    /// Makes the waiting gauge samples of intervals up to `end` the newest values of their
    /// sources.
    pub(super) fn settle(&mut self, end: i64, entries: &mut SourceEntryTable) {
        while let Some(first) = self.open.first_entry() {
            if *first.key() > end && !failpoints::has(AggregationFlaw::SettlesEarly) {
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
    pub(super) fn move_waiting(&mut self, end_of: impl Fn(i64) -> i64) {
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
        let all: Vec<_> = if failpoints::has(AggregationFlaw::ForgetsWaiting) {
            Vec::new()
        } else {
            all.flat_map(|(end, waiting)| waiting.iter().map(move |waiting| (end, waiting)))
                .collect()
        };
        push_uvarint(out, all.len() as u64);
        for (end, (at, sample)) in all {
            push_signed(out, *end);
            push_uvarint(out, u64::from(*at));
            push_histogram(out, sample.time, &sample.histogram);
        }
    }

    /// Reads the state that [`LaneHistograms::encode`] wrote. Fails if it is malformed.
    pub(super) fn decode(
        reader: &mut AggregationJournalReader<'_>,
        entries: &mut SourceEntryTable,
    ) -> Result<Self, AggregationJournalError> {
        let mut natives = Self::default();
        if reader.is_empty() {
            return Ok(natives);
        }
        for _ in 0..reader.read_unsigned()? {
            let at = reader.read_small()?;
            entries
                .get(at)
                .ok_or(AggregationJournalError("histogram of no source"))?;
            let newest = read_histogram(reader)?.histogram;
            natives.newest.insert(at, newest);
        }
        for _ in 0..reader.read_unsigned()? {
            let end = reader.read_signed()?;
            let at = reader.read_small()?;
            let entry = entries.get_mut(at);
            let entry = entry.ok_or(AggregationJournalError("histogram of no source"))?;
            entry.waiting = entry.waiting.saturating_add(1);
            let sample = read_histogram(reader)?;
            natives.open.entry(end).or_default().push((at, sample));
        }
        Ok(natives)
    }
}

/// Records `sample` as the newest one of a source.
fn set_newest(entry: &mut SourceEntry, sample: &HistogramSample) {
    entry.time = sample.time;
    entry.value = if sample.histogram.is_stale() {
        stale_nan()
    } else {
        0.0
    };
}

impl AggregationLane {
    /// Adds a histogram of the source `at`, and appends the change to `ops`.
    pub(crate) fn add_histogram(
        &mut self,
        at: u32,
        sample: &HistogramSample,
        ops: &mut LaneOps,
    ) -> SampleVerdict {
        let Some(entry) = self.entries.get(at) else {
            return SampleVerdict::Repeated;
        };
        let Some(output) = self.output(entry.output) else {
            return SampleVerdict::Repeated;
        };
        if let OutputSampleType::Native(total) = &output.form
            && !sample.histogram.is_stale()
            && !total.is_compatible(&sample.histogram)
        {
            return SampleVerdict::Mixed;
        }
        if let Some(verdict) =
            check_ignored(entry, output.kind, sample.time, self.params, self.written)
        {
            return verdict;
        }
        ops.push_histogram(at, sample);
        self.apply_histogram(at, sample)
    }

    /// Applies a histogram that [`AggregationLane::add_histogram`] has accepted.
    pub(crate) fn apply_histogram(&mut self, at: u32, sample: &HistogramSample) -> SampleVerdict {
        let Some(entry) = self.entries.get_mut(at) else {
            return SampleVerdict::Repeated;
        };
        let Some(Some(output)) = self.outputs.get_mut(entry.output as usize) else {
            return SampleVerdict::Repeated;
        };
        let OutputSampleType::Native(total) = &mut output.form else {
            return SampleVerdict::Mixed;
        };
        let end = self.params.interval_end(sample.time);
        if output.kind == AggregatedMetricKind::Gauge {
            entry.waiting = entry.waiting.saturating_add(1);
            let waiting = self.natives.open.entry(end).or_default();
            waiting.push((at, sample.clone()));
            return SampleVerdict::Counted;
        }
        if sample.histogram.is_stale() {
            let output = entry.output;
            return self.end_source(at, output, sample.time);
        }
        let lookback_ms = self.params.lookback_ms;
        let since = sample.time.saturating_sub(lookback_ms);
        let is_remembered = entry.time > since || failpoints::has(AggregationFlaw::RemembersSilent);
        let newest = self.natives.newest.get(&at).filter(|_| is_remembered);
        let increment = compute_increase(newest.map(|newest| (entry.time, newest)), sample, since);
        set_newest(entry, sample);
        let next = self.written.saturating_add(self.params.interval_ms);
        let is_lost = end < next && failpoints::has(AggregationFlaw::LosesLate);
        let increment = increment.filter(|_| !is_lost);
        let end = end.max(next);
        total.add_increment(end, &sample.histogram, increment);
        output.add_increment(sample.time, end, 0.0, lookback_ms);
        self.natives.newest.insert(at, sample.histogram.clone());
        SampleVerdict::Counted
    }
}
