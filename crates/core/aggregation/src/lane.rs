//! A lane: a share of a group's outputs, assigned by a hash, with their sources and open intervals.
//! It is a state machine that depends on no other lane, no clock and no store.
//!
//! ```text
//! sample --counter--> increment -> pending of its interval ---.
//!       \---gauge--> waiting for the end of its interval -----+-- flush(end) -> results
//! ```
//!
//! Every change is one of the operations in [`super::ops`], which are written to the journal, and
//! depends only on the previous state. Invariant: replaying the operations, after a snapshot or
//! from the start, reproduces the state.

mod flush;
mod native;
mod snapshot;

use super::entries::{SourceEntry, SourceEntryTable};
use super::failpoints::{self, AggregationFlaw};
use super::ops::LaneOps;
use super::output::{AggregationOutput, OutputSampleType};
use super::spec::{AggregatedMetricKind, AggregationGroupSpec};
use firn_model::fingerprint::Fingerprint;
use firn_model::labels::Labels;
use firn_model::sample::{START_UNKNOWN, is_stale};
use native::LaneHistograms;
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) use flush::FlushResults;

/// The time parameters of a group, in milliseconds. A change of them moves open intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneParams {
    pub(super) interval_ms: i64,
    pub(super) lookback_ms: i64,
}

impl LaneParams {
    /// Returns the parameters of `group`, each at least 1.
    pub(super) fn from_group(group: &AggregationGroupSpec) -> Self {
        Self {
            interval_ms: group.interval_ms.max(1),
            lookback_ms: group.lookback_ms.max(1),
        }
    }

    /// Returns the end of the interval that contains `time`, or `next` if that is later; `next`
    /// must be the end of an interval.
    #[inline]
    fn interval_end_from(&self, time: i64, next: i64) -> i64 {
        // Nearly all samples are in the first two open intervals, and the division takes as long as
        // all other work for a sample.
        let second = next.saturating_add(self.interval_ms);
        match time {
            _ if time <= next => next,
            _ if time <= second => second,
            _ => self.interval_end(time),
        }
    }

    /// Returns the end of the interval that contains `time`; an end belongs to the interval before
    /// it.
    #[inline]
    pub(super) fn interval_end(&self, time: i64) -> i64 {
        match time.rem_euclid(self.interval_ms) {
            0 => time,
            behind => time.saturating_add(self.interval_ms - behind),
        }
    }
}

/// A float sample of a source, of which staleness markers are a special value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SourceSample {
    pub(super) time: i64,
    /// Start timestamp, or [`START_UNKNOWN`].
    pub(super) start: i64,
    pub(super) value: f64,
}

/// The outcome of adding a sample, which metrics count for each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleVerdict {
    /// The sample counts in its result.
    Counted,
    /// The sample is not newer than the newest one of its source.
    Repeated,
    /// The interval of the sample is written already.
    Late,
    /// The sample ended its source, whose entry was removed.
    Ended,
    /// The sample is incompatible with the result: a float in a histogram result, or other bucket
    /// types.
    Mixed,
}

impl SampleVerdict {
    /// Number of verdicts.
    pub(super) const COUNT: usize = 5;
}

/// A gauge sample whose interval is still open, so that it has no effect yet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WaitingGaugeSample {
    entry: u32,
    time: i64,
    value: f64,
}

/// The state of a lane: sources, outputs, and samples of open intervals. It is written to the
/// journal as a snapshot once in each round.
#[derive(Debug)]
pub(super) struct AggregationLane {
    pub(super) params: LaneParams,
    /// End of the newest written interval; `i64::MIN` before the first.
    pub(super) written: i64,
    pub(super) entries: SourceEntryTable,
    /// Lower bound for the newest timestamps of all sources.
    oldest: i64,
    outputs: Vec<Option<AggregationOutput>>,
    by_result: HashMap<(u64, Labels), u32>,
    open: BTreeMap<i64, Vec<WaitingGaugeSample>>,
    natives: LaneHistograms,
}

impl AggregationLane {
    /// Returns a lane without sources whose intervals up to `written` are written.
    pub(super) fn new(params: LaneParams, written: i64) -> Self {
        Self {
            params,
            written,
            entries: SourceEntryTable::default(),
            oldest: i64::MIN,
            outputs: Vec::new(),
            by_result: HashMap::new(),
            open: BTreeMap::new(),
            natives: LaneHistograms::default(),
        }
    }

    /// Returns whether the lane has no outputs and no waiting samples.
    pub(super) fn is_idle(&self) -> bool {
        self.by_result.is_empty() && self.open.is_empty() && self.natives.is_idle()
    }

    /// Returns the number of outputs.
    pub(super) fn output_count(&self) -> usize {
        self.by_result.len()
    }

    /// Returns the output with the number `at`. Returns `None` if the number is free.
    #[inline]
    pub(super) fn output(&self, at: u32) -> Option<&AggregationOutput> {
        self.outputs.get(at as usize)?.as_ref()
    }

    /// Returns the sample type of the result that the source `at` contributes to. Returns `None` if
    /// the source does not exist.
    pub(super) fn output_type_of_source(&self, at: u32) -> Option<&OutputSampleType> {
        let entry = self.entries.get(at)?;
        self.output(entry.output).map(|output| &output.form)
    }

    /// Returns the number of the output with these labels that belongs to the rule with the
    /// identity `rule`.
    pub(super) fn find_output(&self, rule: u64, labels: &Labels) -> Option<u32> {
        self.by_result.get(&(rule, labels.clone())).copied()
    }

    /// Returns the number that the next output will get.
    pub(super) fn next_output_number(&self) -> u32 {
        let free = self.outputs.iter().position(Option::is_none);
        free.unwrap_or(self.outputs.len()) as u32
    }

    /// Stores an output at the number `at`, which must be free, and makes it findable by its
    /// labels.
    pub(super) fn put_output(&mut self, at: u32, output: AggregationOutput) {
        let at_index = at as usize;
        if self.outputs.len() <= at_index {
            self.outputs.resize_with(at_index + 1, || None);
        }
        let key = (output.rule, output.labels.clone());
        self.by_result.insert(key, at);
        self.outputs[at_index] = Some(output);
    }

    /// Sets the index of an output's rule in the current configuration.
    pub(super) fn set_rule_index(&mut self, at: u32, index: usize) {
        if let Some(Some(output)) = self.outputs.get_mut(at as usize) {
            output.index = index;
        }
    }

    /// Creates a source of output `output` at the number `at`; does nothing if the output does not
    /// exist.
    pub(super) fn create_source(&mut self, at: u32, print: Fingerprint, output: u32) {
        if let Some(Some(of)) = self.outputs.get_mut(output as usize) {
            of.entries += 1;
            // The new source has no sample yet.
            self.oldest = i64::MIN;
            self.entries.insert(at, SourceEntry::new(print, output));
        }
    }

    /// Removes a source and its waiting samples.
    pub(super) fn remove_source(&mut self, at: u32) {
        if let Some(entry) = self.entries.remove(at)
            && let Some(Some(output)) = self.outputs.get_mut(entry.output as usize)
        {
            output.entries = output.entries.saturating_sub(1);
            self.forget_samples(&[(at, entry)]);
        }
    }

    /// Drops the data of removed sources. Scans the waiting samples once, and only if one of the
    /// sources has any: most are removed because they fell silent.
    fn forget_samples(&mut self, removed: &[(u32, SourceEntry)]) {
        removed
            .iter()
            .for_each(|(at, _)| self.natives.remove_newest(*at));
        let waits = removed.iter().filter(|(_, entry)| entry.waiting > 0);
        let waits: HashSet<u32> = waits.map(|(at, _)| *at).collect();
        if waits.is_empty() {
            return;
        }
        self.natives.forget_waiting(&waits);
        for waiting in self.open.values_mut() {
            waiting.retain(|waiting| !waits.contains(&waiting.entry));
        }
    }

    /// Adds a sample of the source `at`, and appends the change to `ops`.
    #[inline]
    pub(super) fn add_sample(
        &mut self,
        at: u32,
        sample: &SourceSample,
        ops: &mut LaneOps,
    ) -> SampleVerdict {
        let Some(entry) = self.entries.get_mut(at) else {
            return SampleVerdict::Repeated;
        };
        let Some(Some(output)) = self.outputs.get_mut(entry.output as usize) else {
            return SampleVerdict::Repeated;
        };
        if !output.form.accepts_floats() {
            return SampleVerdict::Mixed;
        }
        let (params, written) = (self.params, self.written);
        if let Some(verdict) = check_ignored(entry, output.kind, sample.time, params, written) {
            return verdict;
        }
        ops.push_sample(at, entry.value, sample);
        if output.kind == AggregatedMetricKind::Gauge || is_stale(sample.value) {
            return self.apply_sample(at, sample);
        }
        count_increment(entry, output, sample, params, written);
        SampleVerdict::Counted
    }

    /// Applies a sample that [`AggregationLane::add_sample`] has accepted.
    pub(super) fn apply_sample(&mut self, at: u32, sample: &SourceSample) -> SampleVerdict {
        let Some(entry) = self.entries.get_mut(at) else {
            return SampleVerdict::Repeated;
        };
        let Some(Some(output)) = self.outputs.get_mut(entry.output as usize) else {
            return SampleVerdict::Repeated;
        };
        if output.kind == AggregatedMetricKind::Gauge {
            entry.waiting = entry.waiting.saturating_add(1);
            let waiting = WaitingGaugeSample {
                entry: at,
                time: sample.time,
                value: sample.value,
            };
            let end = self.params.interval_end(sample.time);
            self.open.entry(end).or_default().push(waiting);
            return SampleVerdict::Counted;
        }
        if !is_stale(sample.value) {
            count_increment(entry, output, sample, self.params, self.written);
            return SampleVerdict::Counted;
        }
        let output = entry.output;
        self.end_source(at, output, sample.time)
    }

    /// Applies a staleness marker at `time` of the source `at`, a counter of output `output`.
    fn end_source(&mut self, at: u32, output: u32, time: i64) -> SampleVerdict {
        if failpoints::has(AggregationFlaw::GoesOnAfterEnd) {
            return SampleVerdict::Counted;
        }
        self.remove_source(at);
        if let Some(Some(output)) = self.outputs.get_mut(output as usize) {
            output.end_source(time);
        }
        SampleVerdict::Ended
    }

    /// Applies the parameters and rules of `group`, which contains this lane. Returns the sources
    /// that no rule matches any more. Their outputs end: `ends` is called for those with written
    /// results.
    pub(super) fn configure(
        &mut self,
        group: &AggregationGroupSpec,
        ends: &mut dyn FnMut(&AggregationOutput, i64),
    ) -> Vec<(u32, SourceEntry)> {
        let known: HashMap<u64, usize> = (group.rules.iter().enumerate())
            .map(|(index, rule)| (rule.identity_hash(), index))
            .collect();
        let end = self.written.saturating_add(self.params.interval_ms);
        for place in &mut self.outputs {
            let Some(output) = place else { continue };
            match known.get(&output.rule) {
                Some(index) => {
                    output.index = *index;
                    // A state written by a version that did not count histogram series lacks this
                    // form.
                    if group.rules[*index].op.ignores_values() {
                        output.form = OutputSampleType::Any;
                    }
                }
                None => {
                    if output.is_written {
                        ends(output, end);
                    }
                    self.by_result.remove(&(output.rule, output.labels.clone()));
                    *place = None;
                }
            }
        }
        let outputs = &self.outputs;
        let is_orphan = |entry: &SourceEntry| outputs[entry.output as usize].is_none();
        let all = self.entries.iter().map(|(at, entry)| (at, *entry));
        let orphans: Vec<(u32, SourceEntry)> = all.filter(|(_, entry)| is_orphan(entry)).collect();
        for (at, _) in &orphans {
            self.entries.remove(*at);
        }
        self.forget_samples(&orphans);
        for (_, entry) in self.entries.iter_mut() {
            let output = self.outputs[entry.output as usize].as_ref();
            let drops = output.is_some_and(|output| group.rules[output.index].drops);
            entry.set_flag(SourceEntry::DROPS, drops);
        }
        self.set_params(LaneParams::from_group(group));
        orphans
    }

    /// Applies other parameters: open intervals are moved to the resulting ends.
    fn set_params(&mut self, params: LaneParams) {
        let before = std::mem::replace(&mut self.params, params);
        if before.interval_ms == params.interval_ms || self.written == i64::MIN {
            return;
        }
        self.written = params.interval_end(self.written);
        let next = self.written.saturating_add(params.interval_ms);
        for output in self.outputs.iter_mut().flatten() {
            for (end, sum) in std::mem::take(&mut output.pending) {
                output
                    .pending
                    .push((params.interval_end(end).max(next), sum));
            }
            if let OutputSampleType::Native(total) = &mut output.form {
                for (end, _) in &mut total.pending {
                    *end = params.interval_end(*end).max(next);
                }
            }
            for (from, _) in &mut output.spans {
                *from = params.interval_end(*from).max(next);
            }
        }
        for waiting in std::mem::take(&mut self.open).into_values().flatten() {
            let end = params.interval_end(waiting.time).max(next);
            self.open.entry(end).or_default().push(waiting);
        }
        self.natives
            .move_waiting(|time| params.interval_end(time).max(next));
    }

    /// Removes all sources, because some are incomplete; the totals continue.
    pub(super) fn forget_sources(&mut self) {
        self.entries = SourceEntryTable::default();
        self.open.clear();
        self.natives = LaneHistograms::default();
        for output in self.outputs.iter_mut().flatten() {
            output.entries = 0;
        }
    }

    /// Returns an estimate of the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let outputs = self
            .outputs
            .iter()
            .flatten()
            .map(AggregationOutput::memory_bytes);
        let waiting = self.open.values().map(Vec::capacity).sum::<usize>();
        self.entries.memory_bytes()
            + outputs.sum::<usize>()
            + self.by_result.capacity() * size_of::<((u64, Labels), u32)>()
            + waiting * size_of::<WaitingGaugeSample>()
            + self.natives.memory_bytes()
    }
}

/// Returns why a sample must be ignored in a lane that has written up to `written`; `None` if it
/// counts.
#[inline]
fn check_ignored(
    entry: &SourceEntry,
    kind: AggregatedMetricKind,
    time: i64,
    params: LaneParams,
    written: i64,
) -> Option<SampleVerdict> {
    if time <= entry.time && !failpoints::has(AggregationFlaw::CountsRepeated) {
        return Some(SampleVerdict::Repeated);
    }
    let is_late = || params.interval_end(time) <= written;
    let is_full = || entry.waiting == u16::MAX;
    (kind == AggregatedMetricKind::Gauge && (is_late() || is_full())).then_some(SampleVerdict::Late)
}

/// Counts a counter sample that is newer than the previous one of its source, in a lane that has
/// written up to `written`.
#[inline]
fn count_increment(
    entry: &mut SourceEntry,
    output: &mut AggregationOutput,
    sample: &SourceSample,
    params: LaneParams,
    written: i64,
) {
    let increment = compute_increase(entry, sample, params.lookback_ms);
    (entry.time, entry.value) = (sample.time, sample.value);
    let next = written.saturating_add(params.interval_ms);
    let is_lost =
        failpoints::has(AggregationFlaw::LosesLate) && params.interval_end(sample.time) < next;
    let increment = if is_lost { 0.0 } else { increment };
    let end = params.interval_end_from(sample.time, next);
    output.add_increment(sample.time, end, increment, params.lookback_ms);
}

/// Returns the increase of a counter with a sample that is newer than the previous one. Like
/// `increase()`: after a decrease the counter restarted at zero, and so it did if its start
/// timestamp is later than the previous sample. A first sample counts only if its start is recent
/// enough that an earlier sample would be remembered.
#[inline]
fn compute_increase(entry: &SourceEntry, sample: &SourceSample, lookback_ms: i64) -> f64 {
    let has_start = sample.start != START_UNKNOWN && sample.start <= sample.time;
    let remembered = sample.time.saturating_sub(lookback_ms);
    let is_forgotten =
        entry.time <= remembered && !failpoints::has(AggregationFlaw::RemembersSilent);
    let is_first = is_forgotten || entry.time == i64::MIN;
    let increment = if is_first {
        let begins_within = has_start && sample.start > remembered;
        if begins_within { sample.value } else { 0.0 }
    } else {
        let is_reset = (has_start && sample.start >= entry.time) || sample.value < entry.value;
        if is_reset {
            sample.value
        } else {
            sample.value - entry.value
        }
    };
    // A total with NaN or infinity would never recover.
    if increment.is_finite() {
        increment
    } else {
        0.0
    }
}
