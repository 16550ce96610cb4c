//! Compares random histories of appends in any order of time, restarts, crashes, sealing and time
//! steps with plain maps.

use super::*;
use crate::failpoints::{InjectedFaults, set_faults};
use firn_model::batch::HistogramSample;
use firn_model::env::Rng;
use firn_model::env::sim::{DeferredCompute, SimRng, sim_env_with};
use firn_model::histogram::{Histogram, HistogramCounts, ResetHint};
use firn_model::store::{DeleteRequest, LateSamplePolicy};
use std::collections::{BTreeMap, BTreeSet};

const HOUR: i64 = 3_600_000;
const RETENTION_MS: i64 = 30 * HOUR;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    /// As bits, so that NaNs are equal to themselves.
    Float(u64),
    Histogram(Histogram),
}

type Samples = BTreeMap<i64, Value>;

/// The accepted samples of a series.
#[derive(Clone, Debug, Default)]
struct Taken {
    in_order: Samples,
    /// Times of deleted in-order samples.
    deleted: BTreeSet<i64>,
    /// In order of arrival: by number of batch, floats first within a batch.
    late: BTreeMap<i64, Vec<(u64, bool, Value)>>,
}

impl Taken {
    /// Returns all samples at a time, in-order samples first.
    fn at(&self, time: i64) -> impl Iterator<Item = &Value> {
        let late = self.late.get(&time).into_iter().flatten();
        let late = late.map(|(.., value)| value);
        let in_order = self.in_order.get(&time);
        let is_left = |_: &&Value| !self.deleted.contains(&time);
        in_order.filter(is_left).into_iter().chain(late)
    }

    /// Returns the times in `range`, in ascending order.
    fn times(&self, range: TimeRange) -> Vec<i64> {
        let in_order = self
            .in_order
            .keys()
            .filter(|time| !self.deleted.contains(time));
        let all = in_order.chain(self.late.keys()).copied();
        let mut times: Vec<i64> = all.filter(|time| range.contains(*time)).collect();
        times.sort_unstable();
        times.dedup();
        times
    }

    fn delete(&mut self, range: TimeRange) {
        let in_order = self.in_order.keys().filter(|time| range.contains(**time));
        self.deleted.extend(in_order);
        self.late.retain(|time, _| !range.contains(*time));
    }

    /// Returns the sample at a time that takes precedence.
    fn stays(&self, time: i64, duplicates: DuplicatePolicy) -> Option<&Value> {
        match duplicates {
            DuplicatePolicy::KeepFirst => self.at(time).next(),
            DuplicatePolicy::KeepLast => self.at(time).last(),
            DuplicatePolicy::Max => {
                let is_histogram = |value: &&Value| matches!(value, Value::Histogram(_));
                let greater = |a, b| if exceeds(b, a) { b } else { a };
                let histogram = self.at(time).filter(is_histogram).last();
                histogram.or_else(|| self.at(time).reduce(greater))
            }
        }
    }
}

fn exceeds(a: &Value, b: &Value) -> bool {
    let float = |value: &Value| match value {
        Value::Float(bits) => f64::from_bits(*bits),
        Value::Histogram(_) => f64::INFINITY,
    };
    float(a) > float(b) || float(b).is_nan() && !float(a).is_nan()
}

type Contents = BTreeMap<Labels, Taken>;

struct World {
    seed: u64,
    rng: SimRng,
    sim: SimEnv,
    jobs: Arc<DeferredCompute>,
    store: Option<Arc<Store>>,
    options: StoreOptions,
    /// The samples that a reader must see, and those that the head accepted.
    visible: Contents,
    applied: Contents,
    in_flight: Vec<(Ticket, AppendOutcome)>,
    now: i64,
    newest_ever: i64,
    batches: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let rng = SimRng::new(seed);
        let jobs = Arc::new(DeferredCompute::default());
        let sim = sim_env_with(seed, jobs.clone());
        let options = StoreOptions {
            shards: 1 + rng.next_below(4) as usize,
            retention_ms: RETENTION_MS,
            window_ms: [HOUR / 60, HOUR / 2, 3 * HOUR][rng.next_below(3) as usize],
            block_max: BlockSizeLimit {
                series: [5, 40, 1_000][rng.next_below(3) as usize],
                bytes: 1 << 30,
            },
            cut_ms: [HOUR / 4, 2 * HOUR, 5 * HOUR][rng.next_below(3) as usize],
            log_segment_bytes: 200,
            page_segment_bytes: 400,
            page_cache_bytes: rng.next_below(2_000) as usize,
            late_window_ms: [0, HOUR / 2, 4 * HOUR][rng.next_below(3) as usize],
            duplicates: [
                DuplicatePolicy::KeepFirst,
                DuplicatePolicy::KeepLast,
                DuplicatePolicy::Max,
            ][rng.next_below(3) as usize],
            ..StoreOptions::new("/data")
        };
        let store = open(&sim, options.clone());
        Self {
            seed,
            now: rng.next_below(100) as i64 * HOUR - 50 * HOUR,
            rng,
            sim,
            jobs,
            store: Some(store),
            options,
            visible: Contents::new(),
            applied: Contents::new(),
            in_flight: Vec::new(),
            newest_ever: i64::MIN,
            batches: 0,
        }
    }

    fn store(&self) -> Arc<Store> {
        self.store.clone().unwrap()
    }

    fn reopen(&mut self) {
        self.store = None;
        self.applied = self.visible.clone();
        self.store = Some(open(&self.sim, self.options.clone()));
    }

    fn step(&mut self) {
        match self.rng.next_below(40) {
            0 => {
                self.settle();
                let store = self.store();
                store.close().unwrap();
                drop(store);
                self.reopen();
            }
            1 => {
                // Records that were not written yet are lost, and so are their batches.
                self.jobs.discard();
                self.in_flight.clear();
                self.store = None;
                self.sim.disk.crash();
                self.reopen();
            }
            2 => {
                self.settle();
                self.sim.disk.kill();
                self.reopen();
            }
            3 => self.now += self.rng.next_below(20) as i64 * HOUR,
            4..8 => {
                self.store().tick();
                self.settle();
            }
            8..14 => self.settle(),
            14..20 => self.check(),
            20 => self.delete(),
            21 if self.rng.one_in(4) => {
                self.settle();
                self.store().clean_tombstones().unwrap();
            }
            _ => {
                self.now += self.rng.next_below(30_000) as i64;
                self.append();
            }
        }
    }

    /// Deletes samples of some series. Only visible ones are deleted, so records in progress become
    /// durable first.
    fn delete(&mut self) {
        self.settle();
        let (name, value) = match self.rng.next_below(3) {
            0 => ("__name__", format!("m{}", self.rng.next_below(30))),
            1 => ("__name__", ".*".to_owned()),
            _ => ("l", format!("m{}", self.rng.next_below(3))),
        };
        let op = if value == ".*" {
            MatchOp::Regex
        } else {
            MatchOp::Equal
        };
        let matcher = Matcher::new(name, op, value.as_bytes()).unwrap();
        let from = self.now - self.rng.next_below(30) as i64 * HOUR;
        let range = match self.rng.next_below(3) {
            0 => TimeRange::new(from, from + self.rng.next_below(5) as i64 * HOUR),
            1 => TimeRange::new(from, i64::MAX),
            _ => TimeRange::ALL,
        };
        let deleted = self.store().delete_series(DeleteRequest {
            tenant: &TenantId::anonymous(),
            sets: &[vec![matcher.clone()]],
            range,
            cancel: &CancelToken::new(),
            budget: &Budget::new("delete", usize::MAX),
        });
        deleted.unwrap();
        for contents in [&mut self.visible, &mut self.applied] {
            let matching = contents.iter_mut();
            let matching = matching.filter(|(labels, _)| matcher.matches(labels.get(name)));
            matching.for_each(|(_, taken)| taken.delete(range));
        }
    }

    /// Lets the records in progress become durable: their tickets must resolve as the model
    /// expects.
    fn settle(&mut self) {
        self.jobs.run();
        for (ticket, expected) in self.in_flight.drain(..) {
            assert_eq!(ticket.wait().unwrap(), expected, "seed {}", self.seed);
        }
        self.visible = self.applied.clone();
    }

    /// Returns the time of the newest in-order sample.
    fn newest(&self) -> Option<i64> {
        let series = self.applied.values();
        series
            .filter_map(|s| s.in_order.keys().next_back())
            .max()
            .copied()
    }

    fn append(&mut self) {
        self.batches += 1;
        let mut newest = self.newest();
        let window_ms = self.options.late_window_ms;
        let lateness_ms = self.options.lateness_max_ms.max(window_ms);
        let oldest = newest.map_or(i64::MIN, |t| t - lateness_ms);
        // Some batches are backfill.
        let time_max = self.now + 60_000;
        let bounds = if self.rng.one_in(6) {
            AppendBounds::any_age_up_to(time_max, self.now - HOUR)
        } else {
            AppendBounds::up_to(time_max)
        };
        let fills_in = bounds.late == LateSamplePolicy::OfAnyAge;
        // The floor of the store may be above the limit of the model: a crash may have lost the
        // sample that triggered the cut.
        let floor = self.store().parts.head.floor.load(Ordering::Relaxed);
        let cut_max = self
            .newest_ever
            .saturating_sub(self.options.lateness_max_ms);
        assert!(floor <= cut_max, "seed {}: {floor}, {cut_max}", self.seed);
        let oldest = oldest.max(bounds.in_order_min).max(floor);
        let mut batch = Batch::default();
        let mut expected = AppendOutcome::default();
        for _ in 0..self.rng.next_below(12) {
            let name = format!("m{}", self.rng.next_below(30));
            let labels = Labels::from_pairs([("__name__", &name), ("l", &name[..2].to_owned())]);
            batch.label_bytes().extend_from_slice(labels.as_bytes());
            let samples: Vec<(i64, Value)> = (0..1 + self.rng.next_below(3))
                .map(|_| self.sample(&labels, oldest, fills_in))
                .collect();
            // Floats precede histograms in a batch, whatever their times.
            let (floats, histograms): (Vec<_>, Vec<_>) = samples
                .into_iter()
                .partition(|(_, v)| matches!(v, Value::Float(_)));
            for (time, value) in floats.into_iter().chain(histograms) {
                // The first sample of an empty store counts as the newest one.
                let late_from = if fills_in {
                    i64::MIN
                } else {
                    *newest.get_or_insert(time) - window_ms
                };
                match &value {
                    Value::Float(bits) => batch.push_float(time, f64::from_bits(*bits)),
                    Value::Histogram(histogram) => batch.push_histogram(HistogramSample {
                        time,
                        start_time: 0,
                        histogram: histogram.clone(),
                    }),
                }
                let oldest = (oldest, late_from);
                let series = (&labels, batch.series_count());
                self.expect(&mut expected, series, (time, value), oldest, bounds);
            }
            batch.end_series();
        }
        let ticket = self.store().append(&TenantId::anonymous(), &batch, bounds);
        self.in_flight.push((ticket, expected));
        self.newest_ever = self.newest_ever.max(self.newest().unwrap_or(i64::MIN));
    }

    fn sample(&mut self, labels: &Labels, oldest: i64, fills_in: bool) -> (i64, Value) {
        let known = self.applied.get(labels);
        if let Some(known) = known
            && self.rng.one_in(8)
        {
            // Another value, or the same, at the time of an earlier sample.
            let times = known.times(TimeRange::new(oldest, self.now));
            let at = self.rng.next_below(times.len().max(1) as u64) as usize;
            if let Some(time) = times.get(at) {
                let value = Value::Float((self.rng.next_below(9) as f64).to_bits());
                return (*time, value);
            }
        }
        let newest = known.and_then(|s| s.in_order.last_key_value());
        if let Some((time, value)) = newest
            && *time >= oldest
            && self.rng.one_in(8)
        {
            return (*time, value.clone());
        }
        let time = match self.rng.next_below(10) {
            0..5 if fills_in => self.now - self.rng.next_below(2 * RETENTION_MS as u64) as i64,
            0 => self.now - self.rng.next_below(3 * HOUR as u64) as i64,
            1 => self.now + self.rng.next_below(120_000) as i64,
            _ => self.now + self.rng.next_below(5) as i64,
        };
        let value = match self.rng.next_below(12) {
            0 => Value::Float(self.rng.next_u64()),
            1 => Value::Histogram(histogram(self.rng.next_below(4) as f64)),
            _ => Value::Float((self.rng.next_below(4) as f64).to_bits()),
        };
        (time, value)
    }

    /// Returns the expected result for a sample.
    fn expect(
        &mut self,
        expected: &mut AppendOutcome,
        (labels, number): (&Labels, usize),
        (time, value): (i64, Value),
        (oldest, late_from): (i64, i64),
        bounds: AppendBounds,
    ) {
        let taken = self.applied.get(labels);
        let known = taken.and_then(|s| s.in_order.last_key_value());
        let takes_late =
            self.options.late_window_ms > 0 || bounds.late == LateSamplePolicy::OfAnyAge;
        let is_deleted = taken.is_some_and(|s| s.deleted.contains(&time));
        let rejection = match known {
            // After a delete, the same sample is a new one.
            Some((last, same)) if *last == time && *same == value && is_deleted && takes_late => {
                Some(SampleRejection::OutOfOrder)
            }
            Some((last, same)) if *last == time && *same == value => None,
            _ if time < oldest => Some(SampleRejection::OutOfBounds),
            Some((last, _)) if *last == time => Some(SampleRejection::DuplicateTimestamp),
            Some((last, _)) if *last > time => Some(SampleRejection::OutOfOrder),
            _ if time > bounds.time_max => Some(SampleRejection::TooFarInFuture),
            _ => None,
        };
        let is_late = match rejection {
            Some(SampleRejection::OutOfOrder | SampleRejection::OutOfBounds) => true,
            Some(SampleRejection::DuplicateTimestamp) => {
                self.options.duplicates != DuplicatePolicy::KeepFirst || is_deleted
            }
            _ => false,
        };
        let rejection = match (is_late && takes_late, rejection) {
            (true, _) if time < late_from => SampleRejection::TooOld,
            (false, Some(rejection)) => rejection,
            (takes_late, _) => {
                expected.stored += 1;
                expected.stored_histograms += usize::from(matches!(value, Value::Histogram(_)));
                let taken = self.applied.entry(labels.clone()).or_default();
                if takes_late {
                    let is_histogram = matches!(value, Value::Histogram(_));
                    let late = taken.late.entry(time).or_default();
                    late.push((self.batches, is_histogram, value));
                    late.sort_by_key(|(batch, is_histogram, _)| (*batch, *is_histogram));
                } else {
                    drop(taken.in_order.insert(time, value))
                }
                return;
            }
        };
        let same = expected
            .rejected
            .iter_mut()
            .find(|r| r.rejection == rejection);
        match same {
            Some(rejected) => rejected.count += 1,
            None => expected.rejected.push(firn_model::store::RejectedSamples {
                rejection,
                count: 1,
                first_labels: labels.clone(),
                first_time: time,
                first_series: number,
                limit: None,
            }),
        }
    }

    /// Compares the visible samples in a range. Samples beyond the retention may still be there.
    fn check(&mut self) {
        let context = format!("seed {}", self.seed);
        let kept_from = self.newest().map_or(i64::MIN, |t| t - RETENTION_MS);
        let duplicates = self.options.duplicates;
        let range = match self.rng.next_below(3) {
            0 => TimeRange::ALL,
            1 => TimeRange::new(self.now - self.rng.next_below(40) as i64 * HOUR, self.now),
            _ => TimeRange::new(i64::MIN, self.now - 20 * HOUR),
        };
        let newest_only = self.rng.one_in(2);
        let selection = select_of(&self.store(), &[], (range, newest_only));
        let mut columns = SeriesBatch::default();
        selection.read(0..selection.len(), &mut columns).unwrap();
        let mut found: BTreeMap<Labels, Samples> = BTreeMap::new();
        for i in 0..selection.len() {
            let samples = samples_of(&columns, i);
            let expected = self.visible.get(&selection.labels(i));
            for (time, value) in &samples {
                assert!(range.contains(*time), "{time}, {context}");
                let stays = expected.and_then(|e| e.stays(*time, duplicates));
                // A sample with precedence may have been deleted by retention.
                let mut sent = expected.into_iter().flat_map(|e| e.at(*time));
                let may_stay = *time < kept_from && sent.any(|sent| sent == value);
                if !may_stay {
                    let labels = selection.labels(i);
                    let sent: Vec<_> = expected.into_iter().flat_map(|e| e.at(*time)).collect();
                    let context = format!("{context}, {duplicates:?} of {sent:?}");
                    assert_eq!(stays, Some(value), "{labels}, {time}, {context}");
                }
            }
            assert!(
                found.insert(selection.labels(i), samples).is_none(),
                "{context}"
            );
        }
        for (labels, taken) in &self.visible {
            let kept = TimeRange {
                min: kept_from.max(range.min),
                ..range
            };
            let wanted = if newest_only { 1 } else { usize::MAX };
            for time in taken.times(kept).into_iter().rev().take(wanted) {
                let seen = found.get(labels).and_then(|s| s.get(&time));
                let stays = taken.stays(time, duplicates);
                assert_eq!(seen, stays, "{labels}, {time}, {context}");
            }
        }
    }
}

fn samples_of(batch: &SeriesBatch, i: usize) -> Samples {
    let columns = batch.series(i);
    let values = columns.values.iter().map(|v| Value::Float(v.to_bits()));
    let mut samples: Vec<_> = columns.times.iter().copied().zip(values).collect();
    for (at, histogram) in columns.histograms {
        // The head computes counter reset hints itself.
        samples[*at as usize].1 = Value::Histogram(Histogram {
            reset_hint: ResetHint::Unknown,
            ..Histogram::clone(histogram)
        });
    }
    samples.into_iter().collect()
}

fn histogram(count: f64) -> Histogram {
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 2,
        zero_threshold: 0.0,
        sum: count * 3.0,
        counts: HistogramCounts::Float {
            count,
            zero_count: count,
            positive: Vec::new(),
            negative: Vec::new(),
        },
        positive_spans: Vec::new(),
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    }
}

#[test]
fn store_in_random_histories_holds_what_the_model_holds() {
    for seed in 0..10 {
        set_faults(InjectedFaults {
            turns_eras: seed % 2 == 1,
            ..InjectedFaults::NONE
        });
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
        }
        world.settle();
        world.check();
    }
}
