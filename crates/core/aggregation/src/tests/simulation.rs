//! Compares aggregation with a model that keeps every sample. Crashes lose any part of the newest
//! records, and everything that was not acknowledged is sent again. The test must detect all flaws.

use super::natives::{counts, histogram};
use super::{
    AggregatedMetricKind, AggregationOp, AggregationRuleSpec, AggregationState, group, hashing,
    rule,
};
use crate::failpoints::{AggregationFlaw, with_flaw};
use crate::spec::AggregationSpec;
use firn_model::batch::{Batch, HistogramSample};
use firn_model::env::sim::SimRng;
use firn_model::histogram::ResetHint;
use firn_model::labels::Labels;
use firn_model::log::JournalRecord;
use firn_model::sample::{START_UNKNOWN, is_stale, stale_nan};
use std::collections::BTreeMap;
use std::sync::Arc;

const INTERVAL: i64 = 10_000;
const LOOKBACK: i64 = 25_000;

/// A sample with the properties that its sender has.
#[derive(Clone, Copy, Debug)]
struct Sent {
    job: usize,
    pod: usize,
    is_counter: bool,
    time: i64,
    value: f64,
    start: i64,
}

/// A sample that the model keeps.
#[derive(Clone, Copy, Debug)]
struct Kept {
    time: i64,
    value: f64,
}

type Key = (bool, usize, usize);
/// Results by kind (true for counters) and job: value at each interval end.
type Results = BTreeMap<(bool, usize), BTreeMap<i64, f64>>;

/// A model that keeps every sample and scans all of them for each result.
#[derive(Clone, Debug, Default)]
struct Model {
    /// All samples of gauges, and those of remembered sources of counters.
    samples: BTreeMap<Key, Vec<Kept>>,
    /// Interval ends and increments of all counters of a job.
    counted: BTreeMap<usize, Vec<(i64, f64)>>,
    /// Periods in which the counters of a job have a source: interval ends from the first to before
    /// the second.
    spans: BTreeMap<usize, Vec<(i64, i64)>>,
    /// Timestamp of the newest sample of a job's counters that is not a staleness marker.
    newest: BTreeMap<usize, i64>,
    data_time: Option<i64>,
    written: i64,
    late: u64,
    results: Results,
}

fn end_of(time: i64) -> i64 {
    (time + INTERVAL - 1).div_euclid(INTERVAL) * INTERVAL
}

impl Model {
    fn take(&mut self, batch: &[Sent]) {
        let oldest = batch.iter().map(|sent| sent.time).min().unwrap();
        if self.data_time.is_none() {
            self.written = (oldest - 1).div_euclid(INTERVAL) * INTERVAL;
        }
        for sent in batch {
            if sent.is_counter {
                self.take_counter(*sent)
            } else {
                self.take_gauge(*sent)
            }
        }
        let newest = batch.iter().map(|sent| sent.time).max().unwrap();
        let data_time = self.data_time.unwrap_or(newest).max(newest);
        self.data_time = Some(data_time);
        while self.written + INTERVAL <= data_time {
            self.written += INTERVAL;
            self.write(self.written);
        }
    }

    fn take_gauge(&mut self, sent: Sent) {
        let samples = self.samples.entry((false, sent.job, sent.pod)).or_default();
        if samples.iter().any(|known| known.time == sent.time) {
            return;
        }
        if end_of(sent.time) <= self.written {
            self.late += 1;
            return;
        }
        samples.push(Kept {
            time: sent.time,
            value: sent.value,
        });
        samples.sort_by_key(|kept| kept.time);
    }

    fn take_counter(&mut self, sent: Sent) {
        let key = (true, sent.job, sent.pod);
        let known = self
            .samples
            .get(&key)
            .and_then(|samples| samples.last())
            .copied();
        if known.is_some_and(|known| sent.time <= known.time) {
            return;
        }
        let newest = self.newest.get(&sent.job).copied().unwrap_or(i64::MIN / 2);
        let spans = self.spans.entry(sent.job).or_default();
        if is_stale(sent.value) {
            if known.is_some() {
                self.samples.remove(&key);
                let has_other = self
                    .samples
                    .keys()
                    .any(|(c, job, _)| *c && *job == sent.job);
                if let Some((_, until @ i64::MAX)) = spans.last_mut()
                    && !has_other
                {
                    *until = sent.time;
                }
            }
            return;
        }
        let end = end_of(sent.time).max(self.written + INTERVAL);
        let began = sent.start != START_UNKNOWN;
        let increment = match known.filter(|known| sent.time - known.time < LOOKBACK) {
            None if began && sent.time - sent.start < LOOKBACK => sent.value,
            None => 0.0,
            Some(known) if began && sent.start >= known.time => sent.value,
            Some(known) if sent.value < known.value => sent.value,
            Some(known) => sent.value - known.value,
        };
        self.counted
            .entry(sent.job)
            .or_default()
            .push((end, increment));
        self.newest.insert(sent.job, newest.max(sent.time));
        match spans.last_mut() {
            Some((from, i64::MAX)) if sent.time < newest + LOOKBACK => *from = end.min(*from),
            Some((_, until)) => {
                *until = (newest + LOOKBACK).min(*until);
                spans.push((end, i64::MAX));
            }
            None => spans.push((end, i64::MAX)),
        }
        let (time, value) = (sent.time, sent.value);
        self.samples.insert(key, vec![Kept { time, value }]);
    }

    fn write(&mut self, end: i64) {
        for job in 0..3 {
            for is_counter in [true, false] {
                let value = if is_counter {
                    self.counter_at(job, end)
                } else {
                    self.gauge_at(job, end)
                };
                let row = self.results.entry((is_counter, job)).or_default();
                let newest = row.last_key_value();
                match value {
                    Some(value) => drop(row.insert(end, value)),
                    None if newest.is_some_and(|(_, value)| !is_stale(*value)) => {
                        row.insert(end, stale_nan());
                    }
                    None => {}
                }
            }
        }
    }

    fn counter_at(&mut self, job: usize, end: i64) -> Option<f64> {
        self.samples.retain(|key, samples| {
            !key.0 || samples.iter().any(|kept| kept.time > end - 2 * LOOKBACK)
        });
        let silent_from = self
            .newest
            .get(&job)
            .map_or(i64::MIN, |newest| newest + LOOKBACK);
        let spans = self.spans.entry(job).or_default();
        spans.retain(|(_, until)| end < silent_from.min(*until));
        let has_source = spans.iter().any(|(from, _)| *from <= end);
        let counted = self.counted.entry(job).or_default();
        let has_grown = counted.iter().any(|(at, more)| *at == end && *more != 0.0);
        if has_source || has_grown {
            let until = counted.iter().filter(|(at, _)| *at <= end);
            return Some(until.map(|(_, more)| more).sum());
        }
        let has_more = counted.iter().any(|(at, more)| *at > end && *more != 0.0);
        let is_known = self.samples.keys().any(|key| key.0 && key.1 == job);
        if spans.is_empty() && !has_more && !is_known {
            // Later increments count from zero, with another start timestamp.
            counted.clear();
            self.newest.remove(&job);
        }
        None
    }

    fn gauge_at(&self, job: usize, end: i64) -> Option<f64> {
        let newest = |samples: &Vec<Kept>| {
            let until = samples.iter().rev().find(|kept| kept.time <= end)?;
            (!is_stale(until.value) && until.time > end - LOOKBACK).then_some(until.value)
        };
        let all = self.samples.iter();
        let of_job = all.filter(|(key, _)| (key.0, key.1) == (false, job));
        let values: Vec<f64> = of_job.filter_map(|(_, samples)| newest(samples)).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

fn spec() -> AggregationSpec {
    let counter = AggregationRuleSpec {
        record: "c".into(),
        drops: true,
        kind: Some(AggregatedMetricKind::Counter),
        ..rule(AggregationOp::Sum, "counter")
    };
    let gauge = AggregationRuleSpec {
        record: "g".into(),
        ..rule(AggregationOp::Sum, "gauge")
    };
    group(&[counter, gauge])
}

/// Converts samples to floats, or to histograms with these counts, where each pod has its own
/// bucket and schema.
fn to_batch(sent: &[Sent], is_native: bool) -> Batch {
    let mut batch = Batch::default();
    for sent in sent {
        let name = if sent.is_counter { "counter" } else { "gauge" };
        let (job, pod) = (sent.job.to_string(), sent.pod.to_string());
        let pairs = [("__name__", name), ("job", &job), ("pod", &pod)];
        batch
            .label_bytes()
            .extend_from_slice(Labels::from_pairs(pairs).as_bytes());
        match sent.start {
            start if is_native => {
                let hint = if sent.is_counter {
                    ResetHint::Unknown
                } else {
                    ResetHint::Gauge
                };
                let bucket = (sent.pod as i32 % 3, sent.pod as i32);
                batch.push_histogram(HistogramSample {
                    time: sent.time,
                    start_time: start,
                    histogram: histogram(sent.value, bucket, hint),
                });
            }
            START_UNKNOWN => batch.push_float(sent.time, sent.value),
            start => batch.push_float_with_start(sent.time, sent.value, start),
        }
        batch.end_series();
    }
    batch
}

/// A fleet that sends counters and gauges.
struct Fleet {
    rng: SimRng,
    now: i64,
    pods: BTreeMap<Key, (f64, i64)>,
}

impl Fleet {
    /// Returns samples with integer values, so that sums are exact in any order; with resets, ends,
    /// silence, restarts with a start timestamp, and late samples.
    fn send(&mut self) -> Vec<Sent> {
        let rng = &self.rng;
        self.now += rng.next_below(4_000) as i64;
        if rng.one_in(60) {
            self.now += 40_000;
        }
        let mut batch = Vec::new();
        for _ in 0..=rng.next_below(6) {
            let is_counter = rng.one_in(2);
            let key = (
                is_counter,
                rng.next_below(3) as usize,
                rng.next_below(4) as usize,
            );
            let behind = if rng.one_in(4) {
                rng.next_below(20_000) as i64
            } else {
                0
            };
            let time = self.now - behind;
            let (value, newest) = self.pods.entry(key).or_insert((0.0, i64::MIN));
            let time = time.max(newest.saturating_add(1));
            let mut start = START_UNKNOWN;
            *value += rng.next_below(9) as f64;
            if rng.one_in(10) {
                *value = rng.next_below(5) as f64;
                if rng.one_in(2) {
                    start = time - rng.next_below(5_000) as i64;
                }
            }
            let sent = if rng.one_in(12) { stale_nan() } else { *value };
            *newest = time;
            batch.push(Sent {
                job: key.1,
                pod: key.2,
                is_counter,
                time,
                value: sent,
                start,
            });
        }
        batch
    }
}

/// A step: the sent samples, and the state of machine and model after it.
struct Step {
    sent: Vec<Sent>,
    journal: JournalRecord,
    results: Results,
    model: Model,
}

/// Returns the records of a log from the start of a replay.
fn replayed(steps: &[Step], first: &[JournalRecord]) -> Vec<Vec<u8>> {
    let all: Vec<&JournalRecord> = first
        .iter()
        .chain(steps.iter().map(|s| &s.journal))
        .collect();
    let (mut begun, mut from) = (0, 0);
    for (i, journal) in all.iter().enumerate() {
        if journal.is_state_start() {
            begun = i;
        }
        if journal.is_state_end() {
            from = begun;
        }
    }
    let records = all[from..].iter().filter(|journal| !journal.is_empty());
    records.map(|journal| journal.bytes.clone()).collect()
}

fn read(batch: &Batch, into: &mut Results) -> Result<(), String> {
    for series in batch.iter() {
        let is_counter = series.labels.get("__name__") == b"c";
        let job = String::from_utf8_lossy(series.labels.get("job"))
            .parse()
            .unwrap();
        let row = into.entry((is_counter, job)).or_default();
        let floats = series.times.iter().copied();
        let floats = floats.zip(series.values.iter().copied());
        for (time, value) in floats.chain(counts(series.histograms)) {
            if row.insert(time, value).is_some() {
                return Err(format!("a result of {time} is written twice"));
            }
        }
    }
    Ok(())
}

fn compare(found: &Results, model: &Results) -> Result<(), String> {
    let bits = |results: &Results| -> Vec<_> {
        let rows = results.iter().filter(|(_, row)| !row.is_empty());
        rows.map(|(key, row)| {
            let row: Vec<_> = row
                .iter()
                .map(|(end, value)| (*end, value.to_bits()))
                .collect();
            (*key, row)
        })
        .collect()
    };
    let (found, model) = (bits(found), bits(model));
    if found == model {
        Ok(())
    } else {
        let differs = found.iter().find(|row| !model.contains(row));
        let other = differs.and_then(|row| model.iter().find(|other| other.0 == row.0));
        let shown = |row: Option<&(_, Vec<(i64, u64)>)>| {
            let rows = row.map(|(key, row): &((bool, usize), _)| {
                let row = row
                    .iter()
                    .map(|(end, bits)| (end / 1000, f64::from_bits(*bits)));
                (*key, row.collect::<Vec<_>>())
            });
            format!("{rows:?}")
        };
        Err(format!("{}\nmodel {}", shown(differs), shown(other)))
    }
}

/// Simulates a fleet with crashes; returns the first difference to the model as an error.
fn simulate(seed: u64, is_native: bool) -> Result<(), String> {
    let rng = SimRng::new(seed);
    let fleet_rng = SimRng::new(seed ^ 0xf1ee7);
    let mut fleet = Fleet {
        rng: fleet_rng,
        now: 1_000_000,
        pods: BTreeMap::new(),
    };
    let new = || AggregationState::new(hashing(seed), usize::MAX, Arc::new(|_| None));
    let mut machine = new();
    machine.configure(&spec());
    let mut first = machine.encode_whole_state();
    let mut steps: Vec<Step> = Vec::new();
    let mut again: Vec<Vec<Sent>> = Vec::new();
    for _ in 0..200 {
        let sent = match again.pop() {
            Some(sent) => sent,
            None if rng.one_in(10) && !steps.is_empty() => {
                // A sender that did not receive the response.
                steps[steps.len() - 1].sent.clone()
            }
            None => fleet.send(),
        };
        let (mut results, mut model) = match steps.last() {
            Some(step) => (step.results.clone(), step.model.clone()),
            None => Default::default(),
        };
        let batch = to_batch(&sent, is_native);
        let taken = machine
            .aggregate_batch(&mut &batch, i64::MAX)
            .map_err(|e| e.message)?;
        read(&taken.results, &mut results)?;
        model.take(&sent);
        compare(&results, &model.results)?;
        let journal = taken.journal;
        steps.push(Step {
            sent,
            journal,
            results,
            model,
        });
        if rng.one_in(15) {
            let lost = rng.next_below(4).min(steps.len() as u64) as usize;
            let behind = steps.split_off(steps.len() - lost);
            let mut resent: Vec<_> = behind.into_iter().map(|step| step.sent).collect();
            again.reverse();
            resent.append(&mut again);
            again = resent;
            again.reverse();
            let before = (lost == 0).then(|| machine.state_for_tests());
            machine = new();
            let hit = machine.restore(&replayed(&steps, &first));
            if before.is_some_and(|before| before != machine.state_for_tests()) {
                return Err("another state is restored".into());
            }
            if hit > 0 {
                return Err(format!("{hit} lanes were lost"));
            }
            machine.configure(&spec());
            match steps.last_mut() {
                Some(step) => {
                    // The state that a start writes anew follows the newest record.
                    let whole = machine.encode_whole_state().pop().unwrap();
                    step.journal = whole;
                }
                None => first = machine.encode_whole_state(),
            }
        }
    }
    Ok(())
}

#[test]
fn aggregation_over_crashes_is_what_a_model_of_all_samples_says() {
    for seed in 0..400 {
        let is_native = seed % 4 == 3;
        simulate(seed, is_native).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn flaws_of_aggregation_are_caught() {
    for flaw in AggregationFlaw::ALL {
        for is_native in [false, true] {
            let fails = |seed| with_flaw(flaw, || simulate(seed, is_native).is_err());
            assert!(
                (0..400).any(fails),
                "{flaw:?} is not caught, native {is_native}"
            );
        }
    }
}
