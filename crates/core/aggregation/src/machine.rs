//! The state machine of aggregation: its input are batches, its output are the series to drop,
//! results and the journal.
//!
//! ```text
//! batch -> look up (by key; labels only of unknown series) -> operations on lanes
//!       -> data time -> lanes whose interval has ended are flushed -> results
//!       -> snapshots of a share of the lanes -> journal
//! ```
//!
//! Sources are found by the hash of their key: a known source costs one lookup, and a series whose
//! metric no rule selects costs none. Sources are assigned to the lanes of their group by the
//! labels of their results. A source that several rules select has an entry for each.
//!
//! Invariant: the machine uses no clock, no thread and no store, and the journal contains every
//! change.

mod group;
mod look_up;
mod recent;
mod resolve;
mod round;
mod slot;
mod sources;

use super::entries::SourceEntry;
use super::hashing::SourceHashing;
use super::lane::{AggregationLane, FlushResults, LaneParams, SampleVerdict, SourceSample};
use super::metrics::{AggregationGroupCounts, AggregationGroupSizes};
use super::output::AggregationOutput;
use super::spec::{
    AggregatedMetricKind, AggregationGroupSpec, AggregationRuleSpec, AggregationSpec,
};
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::fingerprint::Fingerprint;
use firn_model::log::JournalRecord;
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale, stale_nan};
use group::{AggregationGroup, newest_interval_end, removed_group_spec};
use look_up::{SourceLookup, SourceLookupResult};
use round::SnapshotRound;
use slot::{LaneSlot, SourceSampleRef};
use sources::{SourceRef, SourceTable};
use std::sync::Arc;

/// Number of lanes in a group, which write their results one after another.
pub(super) const LANES: usize = 16;

/// The lanes of a group are flushed during this fraction (one eighth) of the shorter of interval
/// and delay, before the delay ends.
const SPREAD: i64 = 8;

/// Approximate limit for the results of one call: further due results are written by the next call.
const RESULTS_MAX: usize = 10_000;

/// Largest number of intervals of a lane that one call writes: one hour of one-second intervals.
const ENDS_MAX: usize = 3_600;

/// Returns the kind of a metric, if its metadata is known. Provided by the server, which searches
/// pushed and scraped metadata.
pub type KindOf = Arc<dyn Fn(&[u8]) -> Option<AggregatedMetricKind> + Send + Sync>;

/// The result of aggregating a batch, which the caller stores in one step.
#[derive(Debug, Default)]
pub(super) struct AggregatedBatch {
    /// Indexes of the series that must not be stored, ascending.
    pub(super) dropped: Vec<u32>,
    /// Number of samples of those series.
    pub(super) dropped_samples: usize,
    /// Results that are due, with the end of their interval as timestamp.
    pub(super) results: Batch,
    /// Journal record to be logged with the results; may be empty.
    pub(super) journal: JournalRecord,
}

/// The state of aggregation, with all groups and lanes. The caller serializes all calls by a lock.
pub(super) struct AggregationState {
    groups: Vec<AggregationGroup>,
    lanes: Vec<Option<LaneSlot>>,
    sources: SourceTable,
    look_up: SourceLookup,
    /// Sources that ended in the current batch, with the indexes of their lanes.
    ended: Vec<(usize, SourceEntry)>,
    round: SnapshotRound,
    /// Largest number of sources in all groups together.
    sources_max: usize,
    /// Newest timestamp of any sample; `i64::MIN` before the first.
    data_time: TimestampMs,
    /// Number of the next journal record.
    sequence: u64,
    kind_of: KindOf,
}

impl AggregationState {
    /// Returns a machine without state that hashes keys with `hashing` and accepts at most
    /// `sources_max` sources.
    pub(super) fn new(hashing: SourceHashing, sources_max: usize, kind_of: KindOf) -> Self {
        Self {
            groups: Vec::new(),
            lanes: Vec::new(),
            sources: SourceTable::default(),
            look_up: SourceLookup::new(hashing),
            ended: Vec::new(),
            round: SnapshotRound::default(),
            sources_max,
            data_time: i64::MIN,
            sequence: 0,
            kind_of,
        }
    }

    /// Returns whether no group is configured.
    pub(super) fn has_no_groups(&self) -> bool {
        self.groups.is_empty()
    }

    /// Applies a configuration and returns the staleness markers of the results that end. The
    /// caller must log the whole state ([`AggregationState::whole`]) before the next batch.
    pub(super) fn configure(&mut self, spec: &AggregationSpec) -> Batch {
        let mut ends = Batch::default();
        let mut push_end = |output: &AggregationOutput, end: i64| {
            let labels = output.labels.as_bytes();
            ends.label_bytes().extend_from_slice(labels);
            ends.push_float(end, stale_nan());
            ends.end_series();
        };
        let before = std::mem::take(&mut self.groups);
        let mut gone = Vec::new();
        for (place, slot) in self.lanes.iter_mut().enumerate() {
            let Some(lane) = slot else { continue };
            let group = spec.groups.iter().find(|group| group.name == lane.group);
            let nothing = removed_group_spec(&lane.lane);
            let orphans = lane
                .lane
                .configure(group.unwrap_or(&nothing), &mut push_end);
            let orphans = orphans.into_iter();
            gone.extend(orphans.map(|(at, entry)| (SourceRef::new(place, at), entry.print)));
        }
        for (reference, print) in gone {
            self.sources.unlink_entry(&mut self.lanes, reference, print);
        }
        for slot in &mut self.lanes {
            let is_known = |slot: &mut LaneSlot| spec.groups.iter().any(|g| g.name == slot.group);
            slot.take_if(|slot| !is_known(slot));
        }
        for group in &spec.groups {
            let known = before.iter().find(|known| known.spec.name == group.name);
            let counts = known.map(|known| known.counts.clone()).unwrap_or_default();
            let base = self.reserve_lanes(group);
            self.groups.push(AggregationGroup {
                identities: group
                    .rules
                    .iter()
                    .map(AggregationRuleSpec::identity_hash)
                    .collect(),
                spec: group.clone(),
                base,
                counts,
            });
        }
        self.look_up.apply_rules(spec);
        ends
    }

    /// Returns the index of the first lane of `group`: its existing lanes, or new ones at a free
    /// position.
    fn reserve_lanes(&mut self, group: &AggregationGroupSpec) -> usize {
        let is_own = |slot: &Option<LaneSlot>| slot.as_ref().is_some_and(|s| s.group == group.name);
        let known = self.lanes.iter().position(is_own);
        let base = match known {
            Some(place) => place / LANES * LANES,
            None => {
                let mut blocks = self.lanes.chunks(LANES);
                let free = blocks.position(|block| block.iter().all(Option::is_none));
                free.map_or(self.lanes.len(), |block| block * LANES)
            }
        };
        if self.lanes.len() < base + LANES {
            self.lanes.resize_with(base + LANES, || None);
        }
        for number in 0..LANES {
            self.lanes[base + number].get_or_insert_with(|| {
                let lane = AggregationLane::new(LaneParams::from_group(group), i64::MIN);
                LaneSlot::new(&group.name, number, lane)
            });
        }
        base
    }

    /// Aggregates the samples of `source` up to `time_max`. If it fails, because the source is
    /// invalid, the state is unchanged.
    pub(super) fn aggregate_batch(
        &mut self,
        source: &mut dyn BatchSource,
        time_max: TimestampMs,
    ) -> Result<AggregatedBatch, Error> {
        self.look_up_all(source, time_max)?;
        self.ended.clear();
        let batch = source.batch();
        let mut taken = AggregatedBatch::default();
        if self.look_up.oldest > self.look_up.newest {
            // The batch has no sample that the store would accept.
            return Ok(taken);
        }
        if self.data_time == i64::MIN {
            // The interval of the oldest sample has not ended.
            self.data_time = self.look_up.oldest.saturating_sub(1);
        }
        self.start_lanes();
        for i in 0..batch.series_count() {
            if self.aggregate_series(batch, i, time_max) && is_fully_aggregated(batch, i, time_max)
            {
                taken.dropped.push(i as u32);
                let samples = batch.series(i);
                taken.dropped_samples += samples.times.len() + samples.histograms.len();
            }
        }
        self.data_time = self.data_time.max(self.look_up.newest);
        self.look_up.advance_time(self.data_time);
        self.flush_due(&mut taken.results);
        self.count_verdicts();
        taken.journal = self.take_journal();
        Ok(taken)
    }

    /// Aggregates series `i`. Returns true if its raw samples must not be stored; incompatible
    /// samples are stored.
    #[inline]
    fn aggregate_series(&mut self, batch: &Batch, i: usize, time_max: TimestampMs) -> bool {
        let first = match self.look_up.found[i] {
            SourceLookupResult::Passes => return false,
            SourceLookupResult::Known(first) => first,
            SourceLookupResult::Unknown => match self.resolve_series(batch, i, time_max) {
                (Some(first), _) => first,
                (None, drops) => return drops,
            },
        };
        let print = self.look_up.prints[i];
        if let Some(drops) = self.aggregate_single_float(batch, i, time_max, first, print) {
            return drops;
        }
        let (mut drops, mut fits) = (false, true);
        let mut next = Some(first);
        while let Some(reference) = next {
            let (place, at) = reference.lane_and_entry();
            let slot = self.lanes[place].as_ref();
            let entry = slot.and_then(|slot| slot.lane.entries.get(at)).copied();
            let Some(entry) = entry.filter(|entry| entry.print == print) else {
                return (self.aggregate_ended_series(batch, i, time_max, print) || drops) && fits;
            };
            next = if entry.has_flag(SourceEntry::HAS_NEXT) {
                self.sources.next_of_source(reference)
            } else {
                None
            };
            drops |= entry.has_flag(SourceEntry::DROPS);
            fits &= self.add_series_samples(batch, i, time_max, place, Some(at), entry);
        }
        drops && fits
    }

    /// Fast path for a series with one float and one entry, as nearly all are: returns whether its
    /// raw sample must not be stored, or `None`, without changes, for any other series.
    #[inline]
    fn aggregate_single_float(
        &mut self,
        batch: &Batch,
        i: usize,
        time_max: TimestampMs,
        reference: SourceRef,
        print: Fingerprint,
    ) -> Option<bool> {
        let (time, value) = batch.single_float(i)?;
        let (place, at) = reference.lane_and_entry();
        let slot = self.lanes[place].as_mut()?;
        let entry = slot.lane.entries.get(at)?;
        let is_other = entry.print != print || entry.has_flag(SourceEntry::HAS_NEXT);
        if is_other || time > time_max || is_stale(value) {
            return None;
        }
        let drops = entry.has_flag(SourceEntry::DROPS);
        let start = START_UNKNOWN;
        let sample = SourceSample { time, start, value };
        let verdict = slot.lane.add_sample(at, &sample, &mut slot.ops);
        slot.verdicts[verdict as usize] += 1;
        Some(drops && verdict != SampleVerdict::Mixed)
    }

    /// Aggregates series `i`, whose source ended with an earlier series of the same batch.
    #[cold]
    fn aggregate_ended_series(
        &mut self,
        batch: &Batch,
        i: usize,
        time_max: TimestampMs,
        print: Fingerprint,
    ) -> bool {
        let ended = self.ended.iter().filter(|(_, entry)| entry.print == print);
        let ended: Vec<(usize, SourceEntry)> = ended.copied().collect();
        let mut fits = true;
        for (place, entry) in &ended {
            fits &= self.add_series_samples(batch, i, time_max, *place, None, *entry);
        }
        fits && ended
            .iter()
            .any(|(_, entry)| entry.has_flag(SourceEntry::DROPS))
    }

    /// Adds the samples of series `i` to one of its entries; returns whether all of them are
    /// compatible with its result.
    #[inline]
    fn add_series_samples(
        &mut self,
        batch: &Batch,
        i: usize,
        time_max: TimestampMs,
        place: usize,
        mut at: Option<u32>,
        entry: SourceEntry,
    ) -> bool {
        let mut fits = true;
        let mut take = |time, start, value| {
            if time <= time_max {
                let sample = SourceSampleRef::Float(SourceSample { time, start, value });
                fits &= self.add_sample_to_entry(place, &mut at, entry, sample);
            }
        };
        if let Some((time, value)) = batch.single_float(i) {
            take(time, START_UNKNOWN, value);
            return fits;
        }
        let samples = batch.series(i);
        for (k, (time, value)) in samples.times.iter().zip(samples.values).enumerate() {
            let start = samples.start_times.get(k).copied();
            take(*time, start.unwrap_or(START_UNKNOWN), *value);
        }
        for sample in samples.histograms {
            if sample.time <= time_max {
                let sample = SourceSampleRef::Histogram(sample);
                fits &= self.add_sample_to_entry(place, &mut at, entry, sample);
            }
        }
        fits
    }

    /// Adds a sample to the source that `entry` was at the start of its series; if that has ended
    /// since, creates a new one. Updates `at` to the number of the source, or `None` if the sample
    /// ended it. Returns whether the sample is compatible with its result.
    #[inline]
    fn add_sample_to_entry(
        &mut self,
        place: usize,
        at: &mut Option<u32>,
        entry: SourceEntry,
        sample: SourceSampleRef<'_>,
    ) -> bool {
        if at.is_none() && !sample.is_stale() {
            *at = self.recreate_source(place, entry);
        }
        let (Some(number), Some(slot)) = (*at, self.lanes[place].as_mut()) else {
            return true;
        };
        let verdict = slot.add_sample(number, sample);
        slot.verdicts[verdict as usize] += 1;
        if verdict == SampleVerdict::Ended {
            self.ended.push((place, entry));
            let reference = SourceRef::new(place, number);
            self.sources
                .unlink_entry(&mut self.lanes, reference, entry.print);
            *at = None;
        }
        verdict != SampleVerdict::Mixed
    }

    /// Creates a source like `entry`, which has ended; returns `None` if the lane is full.
    #[cold]
    fn recreate_source(&mut self, place: usize, entry: SourceEntry) -> Option<u32> {
        let slot = self.lanes[place].as_mut()?;
        let at = slot.lane.entries.next_number()?;
        slot.create_source(at, entry);
        let reference = SourceRef::new(place, at);
        self.sources
            .link_entry(&mut self.lanes, reference, entry.print);
        Some(at)
    }

    /// Adds the verdicts of a batch to the metrics of their groups.
    fn count_verdicts(&mut self) {
        for group in &self.groups {
            for slot in self.lanes[group.base..][..LANES].iter_mut().flatten() {
                group
                    .counts
                    .add_verdicts(std::mem::take(&mut slot.verdicts));
            }
        }
    }

    /// Starts lanes without written intervals at the newest interval that has ended.
    fn start_lanes(&mut self) {
        for group in &self.groups {
            for slot in self.lanes[group.base..][..LANES].iter_mut().flatten() {
                if slot.lane.written == i64::MIN {
                    let end = newest_interval_end(&group.spec, self.data_time, group.spec.delay_ms);
                    slot.ops.push_skip(end);
                    slot.lane.skip_intervals(end);
                }
            }
        }
    }

    /// Flushes the intervals that have ended by data time, within the limits for one call.
    fn flush_due(&mut self, results: &mut Batch) {
        let mut gone = Vec::new();
        for group in &self.groups {
            let spec = &group.spec;
            let spread = spec.interval_ms.min(spec.delay_ms).max(0) / SPREAD;
            for number in 0..LANES {
                let place = group.base + number;
                let Some(slot) = &mut self.lanes[place] else {
                    continue;
                };
                let early = spread * number as i64 / LANES as i64;
                let due = newest_interval_end(spec, self.data_time, spec.delay_ms - early);
                for _ in 0..ENDS_MAX {
                    if slot.lane.written >= due || results.sample_count() >= RESULTS_MAX {
                        break;
                    }
                    if slot.lane.is_idle() {
                        slot.ops.push_skip(due);
                        slot.lane.skip_intervals(due);
                        break;
                    }
                    let end = slot.lane.written.saturating_add(spec.interval_ms);
                    slot.ops.push_flush(end);
                    let before = results.sample_count();
                    let wanted = FlushResults {
                        rules: &spec.rules,
                        batch: results,
                    };
                    for (at, entry) in slot.lane.flush_interval(end, Some(wanted)) {
                        gone.push((SourceRef::new(place, at), entry.print));
                    }
                    let written = results.sample_count() - before;
                    group.counts.results.add(written as u64);
                }
            }
        }
        for (reference, print) in gone {
            self.sources.unlink_entry(&mut self.lanes, reference, print);
        }
    }

    /// Returns the groups with their counters and the size of their state.
    pub(super) fn group_sizes(
        &self,
    ) -> Vec<(String, Arc<AggregationGroupCounts>, AggregationGroupSizes)> {
        let of_group = |group: &AggregationGroup| {
            let mut sizes = AggregationGroupSizes::default();
            for slot in self.lanes[group.base..][..LANES].iter().flatten() {
                sizes.sources += slot.lane.entries.len();
                sizes.outputs += slot.lane.output_count();
                sizes.bytes += slot.lane.memory_bytes();
            }
            // All groups share one table of sources: split its memory by their numbers of sources.
            sizes.bytes += sizes.sources * self.sources.memory_bytes() / self.sources.len().max(1);
            (group.spec.name.clone(), group.counts.clone(), sizes)
        };
        self.groups.iter().map(of_group).collect()
    }

    /// Returns the state without caches, for tests that compare states.
    #[cfg(test)]
    pub(super) fn state_for_tests(&self) -> Vec<u8> {
        let mut state = Vec::new();
        for slot in self.lanes.iter().flatten() {
            slot.lane.encode(&mut state);
        }
        state
    }
}

/// Returns whether all samples of series `i` were aggregated. A series with samples after
/// `time_max` is stored, whether or not the rule drops its series.
#[inline]
fn is_fully_aggregated(batch: &Batch, i: usize, time_max: TimestampMs) -> bool {
    match batch.single_float(i) {
        Some((time, _)) => time <= time_max,
        None => {
            let samples = batch.series(i);
            let of_histograms = samples.histograms.iter().map(|sample| sample.time);
            let mut times = samples.times.iter().copied().chain(of_histograms);
            times.all(|time| time <= time_max)
        }
    }
}
