//! Random replays of replicas with skew, jitter, deaths, flapping and backlogs, checked against the
//! guarantees in `docs/limits.md`.
//!
//! A round creates the samples of some replicas, delivers them in some order, and compares the
//! stored samples with those that were sent. `FIRN_HA_SEED` repeats one round.

use super::cluster::{ClusterChanges, HaClusterState, OfferedSeries, SeriesSelection};
use firn_model::batch::{Batch, SeriesSamples};
use firn_model::env::sim::SimRng;
use firn_model::fingerprint::Fingerprint;
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use firn_model::store::NewestSampleTimes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Number of rounds; `FIRN_SEEDS` sets another one.
const ROUNDS: u64 = 1_000;

/// Number of scrapes in a round.
const SCRAPES: i64 = 60;

/// A sample of a replica: its data time, and the time at which it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sent {
    time: TimestampMs,
    replica: u8,
    arrival: i64,
}

/// A cluster with one series, and its stored samples.
struct World {
    state: HaClusterState,
    stored: BTreeMap<TimestampMs, u8>,
    /// Times whose append fails once.
    failing: Vec<TimestampMs>,
}

fn print_of(number: u64) -> Fingerprint {
    Fingerprint {
        high: number,
        low: number,
    }
}

fn new_state() -> HaClusterState {
    HaClusterState::new(Arc::new(AtomicUsize::new(0)), 1_000)
}

/// Creates a float sample whose value is the number of its replica.
fn batch(times: &[TimestampMs], value: f64) -> Batch {
    let mut batch = Batch::default();
    let samples: Vec<(TimestampMs, f64)> = times.iter().map(|time| (*time, value)).collect();
    batch.push_series(Labels::from_pairs([("a", "b")]).as_ref(), &samples);
    batch
}

impl World {
    fn new() -> Self {
        Self {
            state: new_state(),
            stored: BTreeMap::new(),
            failing: Vec::new(),
        }
    }

    /// Restarts the process: only the stored samples are known.
    fn restart(&mut self) {
        self.state = new_state();
    }

    fn newest(&self) -> Option<NewestSampleTimes> {
        let mut times = self.stored.keys().rev();
        Some(NewestSampleTimes {
            newest: *times.next()?,
            before: times.next().copied(),
        })
    }

    /// Sends samples of a replica in one request, and again if the append fails.
    fn send(&mut self, replica: u8, times: &[TimestampMs]) {
        let sent = batch(times, f64::from(replica));
        let samples = sent.series(0);
        loop {
            let (selection, changes) = self.select(replica, samples);
            let is_failing = |time: &TimestampMs| self.failing.contains(time);
            let failing = times.iter().copied().find(is_failing);
            if let Some(failing) = failing {
                self.failing.retain(|time| *time != failing);
                self.state.revert(changes);
                continue;
            }
            return self.store(replica, samples, selection);
        }
    }

    fn select(
        &mut self,
        replica: u8,
        samples: SeriesSamples<'_>,
    ) -> (SeriesSelection, ClusterChanges) {
        let name = format!("r{replica}");
        let number = self
            .state
            .replica(print_of(u64::from(replica)), name.as_bytes());
        let offered = OfferedSeries {
            print: print_of(0),
            replica: number,
            samples,
        };
        let mut changes = ClusterChanges::default();
        let newest = self.newest();
        let selection = self
            .state
            .select(offered, newest, TimestampMs::MAX, &mut changes);
        self.state.sweep_if_due();
        (selection, changes)
    }

    fn store(&mut self, replica: u8, samples: SeriesSamples<'_>, selection: SeriesSelection) {
        match selection {
            SeriesSelection::Nothing => {}
            SeriesSelection::All => {
                let times = samples.times.iter().map(|time| (*time, replica));
                self.stored.extend(times);
            }
            SeriesSelection::Some(selected) => {
                let mut released = Batch::default();
                for held in selected.released {
                    held.push_to(&mut released);
                }
                released.end_series();
                let released = released.series(0);
                let released = released.times.iter().zip(released.values);
                self.stored
                    .extend(released.map(|(time, value)| (*time, *value as u8)));
                for (time, is_stored) in samples.times.iter().zip(selected.floats) {
                    if is_stored {
                        self.stored.insert(*time, replica);
                    }
                }
            }
        }
    }
}

/// Settings of a round.
#[derive(Debug)]
struct Round {
    interval: i64,
    /// Maximum deviation of a sample from its due time.
    jitter: i64,
    replicas: u8,
    /// Maximum time from a sample to its arrival.
    delay: i64,
    /// One of this many scrapes fails; 0 for none.
    missed_one_in: u64,
    /// Maximum number of scrapes, in addition to one, for which a replica is dead or alive; 0 if it
    /// never dies. Two consecutive scrapes determine the interval.
    life: u64,
    /// Dead replicas go on scraping and deliver their samples at the end of the outage.
    keeps_backlog: bool,
    restarts: bool,
    fails: bool,
}

impl Round {
    fn random(rng: &SimRng) -> Self {
        let interval = [1_000, 5_000, 15_000, 60_000][rng.next_below(4) as usize];
        let life = [0, 2, 5, 30][rng.next_below(4) as usize];
        let missed_one_in = [0, 0, 20, 8][rng.next_below(4) as usize];
        let of = |percent: u64| rng.next_below(interval as u64 * percent / 100 + 1) as i64;
        Self {
            interval,
            jitter: of(3),
            replicas: 2 + u8::from(rng.one_in(8)),
            delay: of([0, 0, 20, 90][rng.next_below(4) as usize]),
            // Both together would hide the interval.
            missed_one_in: if matches!(life, 2 | 5) {
                0
            } else {
                missed_one_in
            },
            life,
            keeps_backlog: rng.one_in(3),
            restarts: rng.one_in(4),
            fails: rng.one_in(4),
        }
    }

    /// Returns the samples of all replicas in the order in which they arrive.
    fn samples(&self, rng: &SimRng) -> Vec<Sent> {
        let mut all = Vec::new();
        for replica in 0..self.replicas {
            let offset = rng.next_below(self.interval as u64) as i64;
            // The first scrapes determine the interval.
            let (mut is_dead, mut left) = (false, 3 + rng.next_below(10));
            let mut waiting: Vec<Sent> = Vec::new();
            let mut arrived = 0;
            for scrape in 0..SCRAPES {
                if self.life > 0 && left == 0 {
                    is_dead = !is_dead;
                    left = 2 + rng.next_below(self.life);
                }
                left = left.saturating_sub(1);
                let deviation = rng.next_below(2 * self.jitter as u64 + 1) as i64 - self.jitter;
                let time = 1_000_000 + scrape * self.interval + offset + deviation;
                let is_missed = self.missed_one_in > 0 && rng.one_in(self.missed_one_in);
                // A replica sends its samples in order.
                arrived = arrived.max(time + rng.next_below(self.delay as u64 + 1) as i64);
                let sent = Sent {
                    time,
                    replica,
                    arrival: arrived,
                };
                match (is_dead, is_missed) {
                    (_, true) | (true, false) if is_missed || !self.keeps_backlog => {}
                    (true, _) => waiting.push(sent),
                    (false, _) => {
                        let backlog = waiting.drain(..).map(|sent| Sent {
                            arrival: arrived,
                            ..sent
                        });
                        all.extend(backlog);
                        all.push(sent);
                    }
                }
            }
        }
        all.sort_by_key(|sent| sent.arrival);
        all
    }
}

/// Returns an error if the stored samples break a guarantee.
fn judge(
    round: &Round,
    sent: &[Sent],
    world: &World,
    restarted: Option<i64>,
) -> Result<(), String> {
    let times: Vec<TimestampMs> = world.stored.keys().copied().collect();
    let (near, wide) = (round.interval * 3 / 10, round.interval * 16 / 10);
    let is_measuring = |from: i64| restarted.is_some_and(|at| from - 4 * round.interval <= at);
    for pair in times.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        if to - from < near {
            return Err(format!("{from} and {to} are {} apart", to - from));
        }
        // The first scrapes determine the interval, and may be missed.
        if to - from <= wide || from < times[0] + 6 * round.interval {
            continue;
        }
        // The error of the estimated interval is below a tenth.
        let fitting = near * 11 / 10;
        let fills = |sent: &&Sent| sent.time - from >= fitting && to - sent.time >= fitting;
        // Held samples and gaps do not survive a restart, after which the interval is measured
        // again.
        if is_measuring(from) {
            continue;
        }
        if let Some(filling) = sent.iter().find(fills) {
            return Err(format!("{filling:?} would have filled {from}..{to}"));
        }
    }
    let newest = sent.iter().map(|sent| sent.time).max().unwrap_or_default();
    let last = times.last().copied().unwrap_or_default();
    if newest - last > wide && !is_measuring(last) {
        return Err(format!(
            "the last stored sample is {last}, the newest {newest}"
        ));
    }
    let is_calm = round.life == 0 && round.missed_one_in == 0 && !round.restarts;
    if is_calm && round.delay == 0 {
        let first = sent.first().map(|sent| sent.replica);
        let of_first = sent.iter().filter(|sent| Some(sent.replica) == first);
        let expected: Vec<TimestampMs> = of_first.map(|sent| sent.time).collect();
        if times != expected {
            return Err("not exactly the samples of one replica".to_owned());
        }
    }
    Ok(())
}

fn run(seed: u64) -> Result<(), String> {
    let rng = SimRng::new(seed);
    let round = Round::random(&rng);
    let sent = round.samples(&rng);
    let mut world = World::new();
    let restart = round
        .restarts
        .then(|| rng.next_below(sent.len().max(1) as u64) as usize);
    if round.fails {
        let failing = sent.iter().filter(|_| rng.one_in(10));
        world.failing = failing.map(|sent| sent.time).collect();
    }
    let (mut next, mut restarted) = (0, None);
    while let Some(first) = sent.get(next) {
        if restart.is_some_and(|at| at <= next) && restarted.is_none() {
            world.restart();
            restarted = Some(first.arrival);
        }
        let together = sent[next..].iter();
        let together = together
            .take_while(|sent| (sent.replica, sent.arrival) == (first.replica, first.arrival));
        let times: Vec<TimestampMs> = together.map(|sent| sent.time).collect();
        next += times.len();
        world.send(first.replica, &times);
    }
    let judged = judge(&round, &sent, &world, restarted);
    judged.map_err(|e| format!("seed {seed}: {e}\n{round:?}\n{sent:?}\n{:?}", world.stored))
}

#[test]
fn random_replicas_leave_no_gap_and_no_duplicate() {
    if let Some(seed) = std::env::var("FIRN_HA_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
    {
        run(seed).unwrap();
        return;
    }
    let rounds = std::env::var("FIRN_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok());
    let rounds: u64 = rounds.unwrap_or(ROUNDS);
    println!("seeds 0..{rounds}");
    let failed: Vec<String> = (0..rounds).filter_map(|seed| run(seed).err()).collect();
    assert!(
        failed.is_empty(),
        "{} failed, the first: {}",
        failed.len(),
        failed[0]
    );
}

/// Sends one sample of a series that is not tracked. Returns whether it is stored, with the changes.
fn send_untracked(
    state: &mut HaClusterState,
    replica: u8,
    time: TimestampMs,
    time_max: TimestampMs,
) -> (bool, ClusterChanges) {
    let print = print_of(u64::from(replica));
    let number = state.replica(print, format!("r{replica}").as_bytes());
    let sent = batch(&[time], 1.0);
    let offered = OfferedSeries {
        print: print_of(0),
        replica: number,
        samples: sent.series(0),
    };
    let mut changes = ClusterChanges::default();
    let selection = state.select(offered, None, time_max, &mut changes);
    let _ = state.elect(number, &mut changes);
    (matches!(selection, SeriesSelection::All), changes)
}

#[test]
fn untracked_series_follow_the_elected_replica() {
    let mut state = HaClusterState::new(Arc::new(AtomicUsize::new(0)), 0);
    // Replica, time, latest accepted time, whether the append fails, whether the sample is selected.
    let steps = [
        (1, 0, 100_000, false, true),
        (2, 1_000, 100_000, false, false),
        (1, 15_000, 100_000, false, true),
        (2, 44_999, 100_000, false, false),
        // The store rejects samples of the future, which elect no replica.
        (2, 900_000, 100_000, false, true),
        (1, 20_000, 100_000, false, true),
        // An election by a failed append is reverted.
        (2, 50_000, 100_000, true, true),
        (1, 21_000, 100_000, false, true),
        (2, 51_000, 100_000, false, true),
        (1, 52_000, 100_000, false, false),
    ];
    for (replica, time, time_max, is_failing, expected) in steps {
        let (is_stored, changes) = send_untracked(&mut state, replica, time, time_max);
        assert_eq!(is_stored, expected, "replica {replica} at {time}");
        if is_failing {
            state.revert(changes);
        }
    }
}
