//! All of aggregation as one state machine: batches in; what of them is not stored, results and
//! journal out.
//!
//! ```text
//! batch -> look up (by key; labels only of unknown series) -> operations on lanes
//!       -> data time -> lanes whose interval is over are flushed -> results
//!       -> a share of the state is told anew -> journal
//! ```
//!
//! A source is found by the hash of its key, so a known one costs a look into one table, and a
//! series whose metric no rule names costs none. Sources are spread over the lanes of their group
//! by the labels of their results; a source of several rules has an entry for each.
//!
//! Invariant: it knows no clock, no thread and no store, and the journal says all that changes.

mod look_up;
mod recent;
mod resolve;
mod round;
mod sources;

use super::entries::Entry;
use super::hashing::Hashing;
use super::lane::{Lane, Params, Results, Sample, Verdict};
use super::metrics::{GroupCounts, Sizes};
use super::native::stale_histogram;
use super::ops::Ops;
use super::output::{Form, Output};
use super::spec::{AggregationSpec, GroupSpec, Kind, RuleSpec};
use firn_model::batch::{Batch, HistogramSample, Source};
use firn_model::error::Error;
use firn_model::fingerprint::Fingerprint;
use firn_model::log::Journal;
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale, stale_nan};
use look_up::{Found, LookUp};
use round::Round;
use sources::{Reference, Sources};
use std::sync::Arc;

/// Lanes of a group: its results are written in so many parts.
pub(super) const LANES: usize = 16;

/// The lanes of a group are written over this part of the shorter of interval and delay, before the
/// delay is over.
const SPREAD: i64 = 8;

/// Results of one call, about: what is due beyond them comes with the next.
const RESULTS_MAX: usize = 10_000;

/// Ends of a lane that are written in one call; an hour of seconds.
const ENDS_MAX: usize = 3_600;

/// Says what a metric is, if metadata is known of it.
pub type KindOf = Arc<dyn Fn(&[u8]) -> Option<Kind> + Send + Sync>;

/// A group that is configured.
#[derive(Debug)]
struct Group {
    spec: GroupSpec,
    /// The identities of its rules.
    identities: Vec<u64>,
    /// The number of its first lane.
    base: usize,
    counts: Arc<GroupCounts>,
}

/// A lane, whose it is, and what of it the journal does not have yet.
#[derive(Debug)]
struct Slot {
    group: String,
    /// Its number in the group.
    number: usize,
    lane: Lane,
    ops: Ops,
    /// Of a replay: something before its next snapshot is missing.
    is_lost: bool,
    /// Verdicts that are not counted yet.
    verdicts: [u64; Verdict::COUNT],
}

impl Slot {
    /// Lane `number` of the group, without state.
    fn new(group: &str, number: usize, lane: Lane) -> Self {
        Self {
            group: group.to_owned(),
            number,
            lane,
            ops: Ops::default(),
            is_lost: false,
            verdicts: [0; Verdict::COUNT],
        }
    }

    /// Takes a sample of the source `at`, in the form that its result is made of.
    #[inline]
    fn take(&mut self, at: u32, sample: AnySample<'_>) -> Verdict {
        match sample {
            AnySample::Float(sample) if is_stale(sample.value) => self.take_end(at, &sample),
            AnySample::Float(sample) => self.lane.take(at, &sample, &mut self.ops),
            AnySample::Histogram(sample) => self.take_histogram(at, sample),
        }
    }

    /// Takes the end of the source `at`, which is a float whatever its samples are.
    fn take_end(&mut self, at: u32, sample: &Sample) -> Verdict {
        if !matches!(self.lane.form_of(at), Some(Form::Native(_))) {
            return self.lane.take(at, sample, &mut self.ops);
        }
        let end = HistogramSample {
            time: sample.time,
            start_time: START_UNKNOWN,
            histogram: stale_histogram(),
        };
        self.lane.take_histogram(at, &end, &mut self.ops)
    }

    /// Takes a histogram of the source `at`.
    fn take_histogram(&mut self, at: u32, sample: &HistogramSample) -> Verdict {
        let is_stale = sample.histogram.is_stale();
        if !is_stale && sample.histogram.validate().is_err() {
            // The store refuses it, and says why.
            return Verdict::Mixed;
        }
        let presence = Sample {
            time: sample.time,
            start: START_UNKNOWN,
            value: if is_stale { stale_nan() } else { 0.0 },
        };
        match self.lane.form_of(at) {
            Some(Form::Native(_)) => self.lane.take_histogram(at, sample, &mut self.ops),
            Some(Form::Any) => self.lane.take(at, &presence, &mut self.ops),
            Some(Form::Float) if is_stale => self.lane.take(at, &presence, &mut self.ops),
            Some(Form::Float) => Verdict::Mixed,
            None => Verdict::Repeated,
        }
    }

    /// Puts a source like `entry` in the place `at`.
    fn create(&mut self, at: u32, entry: Entry) {
        self.ops.push_create(at, entry.print, entry.output);
        self.lane.create(at, entry.print, entry.output);
        if let Some(created) = self.lane.entries.get_mut(at) {
            created.generation = entry.generation;
            created.set(Entry::DROPS, entry.has(Entry::DROPS));
        }
    }
}

/// A sample of a batch.
#[derive(Clone, Copy, Debug)]
enum AnySample<'a> {
    Float(Sample),
    Histogram(&'a HistogramSample),
}

impl AnySample<'_> {
    fn is_stale(self) -> bool {
        match self {
            Self::Float(sample) => is_stale(sample.value),
            Self::Histogram(sample) => sample.histogram.is_stale(),
        }
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Series that are not to be stored, ascending.
    pub(super) dropped: Vec<u32>,
    /// Samples of those.
    pub(super) dropped_samples: usize,
    /// Results that are due.
    pub(super) results: Batch,
    /// What is to be logged with them; perhaps nothing.
    pub(super) journal: Journal,
}

/// See the module.
pub(super) struct Machine {
    groups: Vec<Group>,
    lanes: Vec<Option<Slot>>,
    sources: Sources,
    look_up: LookUp,
    /// Sources that ended with the batch under way, with their lanes.
    ended: Vec<(usize, Entry)>,
    round: Round,
    /// Sources that there may be.
    sources_max: usize,
    /// The newest time of any sample; the least number before the first.
    data_time: TimestampMs,
    /// Of the next record.
    sequence: u64,
    kind_of: KindOf,
}

impl Machine {
    /// A machine without state that hashes keys by `hashing` and takes so many sources.
    pub(super) fn new(hashing: Hashing, sources_max: usize, kind_of: KindOf) -> Self {
        Self {
            groups: Vec::new(),
            lanes: Vec::new(),
            sources: Sources::default(),
            look_up: LookUp::new(hashing),
            ended: Vec::new(),
            round: Round::default(),
            sources_max,
            data_time: i64::MIN,
            sequence: 0,
            kind_of,
        }
    }

    /// Whether nothing is configured.
    pub(super) fn is_off(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes over a configuration. Returns the staleness markers of the results that end. The
    /// caller must log the whole state ([`Machine::whole`]) before it goes on.
    pub(super) fn configure(&mut self, spec: &AggregationSpec) -> Batch {
        let mut ends = Batch::default();
        let mut push_end = |output: &Output, end: i64| {
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
            let nothing = gone_group(&lane.lane);
            let orphans = lane
                .lane
                .configure(group.unwrap_or(&nothing), &mut push_end);
            let orphans = orphans.into_iter();
            gone.extend(orphans.map(|(at, entry)| (Reference::new(place, at), entry.print)));
        }
        for (reference, print) in gone {
            self.sources.unlink(&mut self.lanes, reference, print);
        }
        for slot in &mut self.lanes {
            let is_known = |slot: &mut Slot| spec.groups.iter().any(|g| g.name == slot.group);
            slot.take_if(|slot| !is_known(slot));
        }
        for group in &spec.groups {
            let known = before.iter().find(|known| known.spec.name == group.name);
            let counts = known.map(|known| known.counts.clone()).unwrap_or_default();
            let base = self.lanes_of(group);
            self.groups.push(Group {
                identities: group.rules.iter().map(RuleSpec::identity).collect(),
                spec: group.clone(),
                base,
                counts,
            });
        }
        self.look_up.configure(spec);
        ends
    }

    /// The first lane of `group`: those it had, or new ones in a place that is free.
    fn lanes_of(&mut self, group: &GroupSpec) -> usize {
        let is_own = |slot: &Option<Slot>| slot.as_ref().is_some_and(|s| s.group == group.name);
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
                let lane = Lane::new(Params::of(group), i64::MIN);
                Slot::new(&group.name, number, lane)
            });
        }
        base
    }

    /// Takes the samples of `source` up to `time_max`. An error says that the source cannot stand,
    /// and nothing changed.
    pub(super) fn take(
        &mut self,
        source: &mut dyn Source,
        time_max: TimestampMs,
    ) -> Result<Taken, Error> {
        self.find_all(source, time_max)?;
        self.ended.clear();
        let batch = source.batch();
        let mut taken = Taken::default();
        if self.look_up.oldest > self.look_up.newest {
            // No sample that the store would take.
            return Ok(taken);
        }
        if self.data_time == i64::MIN {
            // The interval of the oldest sample is not over.
            self.data_time = self.look_up.oldest.saturating_sub(1);
        }
        self.begin_lanes();
        for i in 0..batch.series_count() {
            if self.take_series(batch, i, time_max) && is_taken_whole(batch, i, time_max) {
                taken.dropped.push(i as u32);
                let samples = batch.series(i);
                taken.dropped_samples += samples.times.len() + samples.histograms.len();
            }
        }
        self.data_time = self.data_time.max(self.look_up.newest);
        self.look_up.advance(self.data_time);
        self.flush_due(&mut taken.results);
        self.count();
        taken.journal = self.record();
        Ok(taken)
    }

    /// Takes the samples of series `i`; whether it is not to be stored. What does not add up with a
    /// result is.
    #[inline]
    fn take_series(&mut self, batch: &Batch, i: usize, time_max: TimestampMs) -> bool {
        let first = match self.look_up.found[i] {
            Found::Passes => return false,
            Found::Known(first) => first,
            Found::Unknown => match self.resolve(batch, i, time_max) {
                (Some(first), _) => first,
                (None, drops) => return drops,
            },
        };
        let print = self.look_up.prints[i];
        if let Some(drops) = self.take_sole(batch, i, time_max, (first, print)) {
            return drops;
        }
        let (mut drops, mut fits) = (false, true);
        let mut next = Some(first);
        while let Some(reference) = next {
            let (place, at) = reference.split();
            let slot = self.lanes[place].as_ref();
            let entry = slot.and_then(|slot| slot.lane.entries.get(at)).copied();
            let Some(entry) = entry.filter(|entry| entry.print == print) else {
                return (self.take_ended(batch, i, time_max, print) || drops) && fits;
            };
            next = match entry.has(Entry::HAS_NEXT) {
                true => self.sources.behind(reference),
                false => None,
            };
            drops |= entry.has(Entry::DROPS);
            fits &= self.take_samples(batch, i, time_max, (place, Some(at)), entry);
        }
        drops && fits
    }

    /// Takes the sample of a series that has one float and one entry, as nearly all have; whether
    /// it is not to be stored. For all others it does nothing.
    #[inline]
    fn take_sole(
        &mut self,
        batch: &Batch,
        i: usize,
        time_max: TimestampMs,
        (reference, print): (Reference, Fingerprint),
    ) -> Option<bool> {
        let (time, value) = batch.sole_float(i)?;
        let (place, at) = reference.split();
        let slot = self.lanes[place].as_mut()?;
        let entry = slot.lane.entries.get(at)?;
        let is_other = entry.print != print || entry.has(Entry::HAS_NEXT);
        if is_other || time > time_max || is_stale(value) {
            return None;
        }
        let drops = entry.has(Entry::DROPS);
        let start = START_UNKNOWN;
        let sample = Sample { time, start, value };
        let verdict = slot.lane.take(at, &sample, &mut slot.ops);
        slot.verdicts[verdict as usize] += 1;
        Some(drops && verdict != Verdict::Mixed)
    }

    /// Takes the samples of series `i` whose source ended with an earlier series of the batch.
    #[cold]
    fn take_ended(
        &mut self,
        batch: &Batch,
        i: usize,
        time_max: TimestampMs,
        print: Fingerprint,
    ) -> bool {
        let ended = self.ended.iter().filter(|(_, entry)| entry.print == print);
        let ended: Vec<(usize, Entry)> = ended.copied().collect();
        let mut fits = true;
        for (place, entry) in &ended {
            fits &= self.take_samples(batch, i, time_max, (*place, None), *entry);
        }
        fits && ended.iter().any(|(_, entry)| entry.has(Entry::DROPS))
    }

    /// Takes the samples of series `i` for one of its entries; whether all of them add up with its
    /// result.
    #[inline]
    fn take_samples(
        &mut self,
        batch: &Batch,
        i: usize,
        time_max: TimestampMs,
        (place, mut at): (usize, Option<u32>),
        entry: Entry,
    ) -> bool {
        let mut fits = true;
        let mut take = |time, start, value| {
            if time <= time_max {
                let sample = AnySample::Float(Sample { time, start, value });
                fits &= self.take_sample(place, &mut at, entry, sample);
            }
        };
        if let Some((time, value)) = batch.sole_float(i) {
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
                let sample = AnySample::Histogram(sample);
                fits &= self.take_sample(place, &mut at, entry, sample);
            }
        }
        fits
    }

    /// Takes a sample of the source that `entry` was when its series came; where it ended since, a
    /// new one begins. Leaves in `at` where the source is then, unless it ended. Returns whether
    /// the sample adds up with its result.
    #[inline]
    fn take_sample(
        &mut self,
        place: usize,
        at: &mut Option<u32>,
        entry: Entry,
        sample: AnySample<'_>,
    ) -> bool {
        if at.is_none() && !sample.is_stale() {
            *at = self.create_again(place, entry);
        }
        let (Some(number), Some(slot)) = (*at, self.lanes[place].as_mut()) else {
            return true;
        };
        let verdict = slot.take(number, sample);
        slot.verdicts[verdict as usize] += 1;
        if verdict == Verdict::Ended {
            self.ended.push((place, entry));
            let reference = Reference::new(place, number);
            self.sources.unlink(&mut self.lanes, reference, entry.print);
            *at = None;
        }
        verdict != Verdict::Mixed
    }

    /// A source like `entry`, which ended; none if there is no place.
    #[cold]
    fn create_again(&mut self, place: usize, entry: Entry) -> Option<u32> {
        let slot = self.lanes[place].as_mut()?;
        let at = slot.lane.entries.next()?;
        slot.create(at, entry);
        let reference = Reference::new(place, at);
        self.sources.link(&mut self.lanes, reference, entry.print);
        Some(at)
    }

    /// Counts what became of the samples of a batch.
    fn count(&mut self) {
        for group in &self.groups {
            for slot in self.lanes[group.base..][..LANES].iter_mut().flatten() {
                group.counts.add(std::mem::take(&mut slot.verdicts));
            }
        }
    }

    /// Lets lanes that never wrote begin with the intervals that are not over.
    fn begin_lanes(&mut self) {
        for group in &self.groups {
            for slot in self.lanes[group.base..][..LANES].iter_mut().flatten() {
                if slot.lane.written == i64::MIN {
                    let end = newest_end(&group.spec, self.data_time, group.spec.delay_ms);
                    slot.ops.push_skip(end);
                    slot.lane.skip_to(end);
                }
            }
        }
    }

    /// Ends the intervals that are over by data time.
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
                let due = newest_end(spec, self.data_time, spec.delay_ms - early);
                for _ in 0..ENDS_MAX {
                    if slot.lane.written >= due || results.sample_count() >= RESULTS_MAX {
                        break;
                    }
                    if slot.lane.is_idle() {
                        slot.ops.push_skip(due);
                        slot.lane.skip_to(due);
                        break;
                    }
                    let end = slot.lane.written.saturating_add(spec.interval_ms);
                    slot.ops.push_flush(end);
                    let before = results.sample_count();
                    let wanted = Results {
                        rules: &spec.rules,
                        batch: results,
                    };
                    for (at, entry) in slot.lane.flush(end, Some(wanted)) {
                        gone.push((Reference::new(place, at), entry.print));
                    }
                    let written = results.sample_count() - before;
                    group.counts.results.add(written as u64);
                }
            }
        }
        for (reference, print) in gone {
            self.sources.unlink(&mut self.lanes, reference, print);
        }
    }

    /// The groups, what they counted, and how large their state is.
    pub(super) fn sizes(&self) -> Vec<(String, Arc<GroupCounts>, Sizes)> {
        let of_group = |group: &Group| {
            let mut sizes = Sizes::default();
            for slot in self.lanes[group.base..][..LANES].iter().flatten() {
                sizes.sources += slot.lane.entries.len();
                sizes.outputs += slot.lane.output_count();
                sizes.bytes += slot.lane.memory_bytes();
            }
            // One table knows the sources of all groups.
            sizes.bytes += sizes.sources * self.sources.memory_bytes() / self.sources.len().max(1);
            (group.spec.name.clone(), group.counts.clone(), sizes)
        };
        self.groups.iter().map(of_group).collect()
    }

    /// Everything but what is found again: for tests that compare states.
    #[cfg(test)]
    pub(super) fn state(&self) -> Vec<u8> {
        let mut state = Vec::new();
        for slot in self.lanes.iter().flatten() {
            slot.lane.encode(&mut state);
        }
        state
    }
}

/// Whether all that series `i` brings was taken. Samples of the future are not: what has some goes
/// to the store, whatever the rule says.
#[inline]
fn is_taken_whole(batch: &Batch, i: usize, time_max: TimestampMs) -> bool {
    match batch.sole_float(i) {
        Some((time, _)) => time <= time_max,
        None => {
            let samples = batch.series(i);
            let of_histograms = samples.histograms.iter().map(|sample| sample.time);
            let mut times = samples.times.iter().copied().chain(of_histograms);
            times.all(|time| time <= time_max)
        }
    }
}

/// The end of the newest interval that is over for so long at `time`.
fn newest_end(spec: &GroupSpec, time: TimestampMs, for_ms: i64) -> TimestampMs {
    let over = time.saturating_sub(for_ms.max(0));
    let interval_ms = spec.interval_ms.max(1);
    over.saturating_sub(over.rem_euclid(interval_ms))
}

/// A group without rules that has the times of `lane`.
fn gone_group(lane: &Lane) -> GroupSpec {
    GroupSpec {
        name: String::new(),
        interval_ms: lane.params.interval_ms,
        delay_ms: 0,
        lookback_ms: lane.params.lookback_ms,
        rules: Arc::default(),
    }
}
