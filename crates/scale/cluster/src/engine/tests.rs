//! Random histories of writers on one simulated bucket, with faults, kills and zombies: the log has
//! each acked record once, at its position.

use super::bucket_log::TIMER_SLACK;
use super::*;
use crate::ids::{ClusterId, PartitionId};
use crate::log::{LogCoreOptions, LogState};
use firn_bucket::sim::{SimBucket, SimFaults, SimOutage, SimStore};
use firn_model::env::sim::{self, SimEnv, SimRng};
use firn_model::error::ErrorKind;
use firn_model::log::{DecimalHint, DurableCallbacks, DurableLog, FloatRow, LogBatch, LogPosition};
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The seeds of an ordinary run, unless `FIRN_SEEDS` is set.
const SEEDS: u64 = 40;

const PUMP: Duration = Duration::from_millis(10);

/// The outcomes of appends by the value of their sample: a position, or a failure.
type Outcomes = Arc<Mutex<BTreeMap<u64, Result<LogPosition, ErrorKind>>>>;

/// A process that writes the log, or believes so.
struct Writer {
    log: BucketLog,
    client: Arc<SimBucket>,
}

struct World {
    store: SimStore,
    sim: SimEnv,
    outcomes: Outcomes,
    delayed: Arc<Mutex<Vec<ErrorKind>>>,
    next_id: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            store: SimStore::new(seed),
            sim: sim::sim_env(seed),
            outcomes: Outcomes::default(),
            delayed: Arc::default(),
            next_id: 1,
        }
    }

    fn start(&self, faults: SimFaults) -> Writer {
        let core = LogCoreOptions {
            cluster: ClusterId(7),
            partition: PartitionId(3),
            window: 4,
            lease: Duration::from_millis(200),
            flush_interval: Duration::from_millis(50),
            segment_bytes: 200,
            queue_bytes: usize::MAX,
            flaw: None,
        };
        let store = self.store.clone();
        let mut options = BucketLogOptions::new(core, Arc::new(move || store.now()));
        options.unit_bytes = 400;
        let client = Arc::new(self.store.client(faults));
        let log = BucketLog::take_over(
            client.clone(),
            self.sim.env.clone(),
            options,
            Arc::default(),
        );
        Writer { log, client }
    }

    fn pump(&self, writers: &[&Writer], steps: u32) {
        for _ in 0..steps {
            self.store.run_until(self.store.now() + PUMP);
            writers.iter().for_each(|writer| writer.log.run_timers());
        }
    }

    /// Runs until `is_done`, for at most five simulated minutes.
    #[track_caller]
    fn pump_until(&self, writer: &Writer, is_done: impl Fn(&BucketLog) -> bool) {
        for _ in 0..30_000 {
            if is_done(&writer.log) {
                return;
            }
            self.pump(&[writer], 1);
        }
        panic!("{:?} {:?}", writer.log.state(), writer.log.ended());
    }

    fn append(&mut self, writer: &Writer) {
        let id = self.next_id;
        self.next_id += 1;
        let mut batch = LogBatch::default();
        let row = FloatRow {
            slot: id % 5,
            time: id as i64,
            start: 0,
            value: id as f64,
        };
        batch.floats.push(row, DecimalHint::NONE);
        let (outcomes, delayed) = (self.outcomes.clone(), self.delayed.clone());
        let done = DurableCallbacks::new(move |outcome| {
            let outcome = outcome.map_err(|e| e.kind);
            let before = lock(&outcomes).insert(id, outcome);
            assert!(before.is_none(), "two outcomes");
        });
        let done = done.or_delayed(move |e| lock(&delayed).push(e.kind));
        writer.log.append(batch, done);
    }

    /// Takes over without faults and returns the values of the records by position.
    fn replay(&self) -> BTreeMap<u64, u64> {
        let writer = self.start(SimFaults::none());
        self.pump_until(&writer, |log| {
            matches!(log.state(), LogState::Leading { .. })
        });
        let mut reader = writer.log.read_from(LogPosition(1));
        let mut found = BTreeMap::new();
        while let Some(record) = reader.next().unwrap() {
            let record = record.unwrap();
            let value = record.batch.floats.values[0] as u64;
            let before = found.insert(record.position.0, value);
            assert!(before.is_none(), "two records at one position");
        }
        found
    }

    /// Checks that the log has each acked record at its position, and no record twice.
    fn check(&self, context: &str) -> usize {
        let found = self.replay();
        let mut values: Vec<u64> = found.values().copied().collect();
        values.sort_unstable();
        let count = values.len();
        values.dedup();
        assert_eq!(values.len(), count, "{context}: a record is stored twice");
        let outcomes = lock(&self.outcomes);
        let mut acked = 0;
        for (id, outcome) in outcomes.iter() {
            if let Ok(position) = outcome {
                acked += 1;
                assert_eq!(found.get(&position.0), Some(id), "{context}: record {id}");
            }
        }
        acked
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    match number("FIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FIRN_SEEDS").unwrap_or(SEEDS),
    }
}

#[test]
fn random_histories_lose_and_repeat_no_acked_record() {
    let mut acked = 0;
    for seed in seeds() {
        let rng = SimRng::new(seed);
        let mut world = World::new(seed);
        let faults = || SimFaults::tolerated(4 + rng.next_below(20));
        let mut leader = world.start(faults());
        let mut zombies: Vec<Writer> = Vec::new();
        for _ in 0..150 {
            match rng.next_below(40) {
                0 => {
                    leader.client.crash();
                    leader = world.start(faults());
                }
                1 => {
                    let successor = world.start(faults());
                    zombies.push(std::mem::replace(&mut leader, successor));
                }
                2 => {
                    leader.log.begin_hand_off();
                    world.pump(&[&leader], 20);
                    let successor = world.start(faults());
                    zombies.push(std::mem::replace(&mut leader, successor));
                }
                3 => leader.log.abandon(),
                4 if !zombies.is_empty() => {
                    let zombie = rng.next_below(zombies.len() as u64) as usize;
                    world.append(&zombies[zombie]);
                }
                5..20 => {
                    let mut writers: Vec<&Writer> = vec![&leader];
                    writers.extend(zombies.iter().filter(|_| rng.one_in(2)));
                    world.pump(&writers, 1 + rng.next_below(60) as u32);
                }
                _ => world.append(&leader),
            }
        }
        world.pump(&[&leader], 500);
        acked += world.check(&format!("FIRN_SEED={seed}"));
    }
    assert!(
        acked > seeds().count() * 10,
        "only {acked} records were acked"
    );
}

#[test]
fn outage_rejects_writes_and_ends_by_itself() {
    let mut world = World::new(1);
    let writer = world.start(SimFaults::none());
    world.pump_until(&writer, |log| log.check_append().is_ok());
    world.append(&writer);
    world.pump(&[&writer], 100);
    assert_eq!(lock(&world.outcomes).len(), 1);
    world.store.set_outage(Some(SimOutage::Refusing));
    world.append(&writer);
    world.pump(&[&writer], 300);
    let refusal = writer.log.check_append().unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Unavailable);
    let start = "the bucket does not store the log, writes are retried: ";
    assert!(refusal.message.starts_with(start), "{refusal}");
    assert_eq!(*lock(&world.delayed), [ErrorKind::Unavailable]);
    assert_eq!(lock(&world.outcomes).len(), 1, "the record is kept");
    world.store.set_outage(None);
    world.pump(&[&writer], 500);
    assert_eq!(writer.log.check_append().map_err(|e| e.message), Ok(()));
    assert_eq!(world.check("after the outage"), 2);
}

#[test]
fn timers_pause_until_the_oldest_record_is_due_unless_more_may_be() {
    let mut world = World::new(1);
    let writer = world.start(SimFaults::none());
    let (ms, pause) = (Duration::from_millis, Duration::from_millis(5));
    assert_eq!(writer.log.timer_pause(pause), pause, "a takeover");
    let is_ready = |log: &BucketLog| log.state() == LogState::Leading { is_ready: true };
    world.pump_until(&writer, is_ready);
    world.pump(&[&writer], 100);
    let idle = ms(50) + TIMER_SLACK;
    assert_eq!(writer.log.timer_pause(pause), idle);
    world.append(&writer);
    world.store.run_until(world.store.now() + ms(20));
    assert_eq!(writer.log.timer_pause(pause), ms(30) + TIMER_SLACK);
    world
        .store
        .run_until(world.store.now() + writer.log.timer_pause(pause));
    writer.log.run_timers();
    assert_eq!(writer.log.timer_pause(pause), pause, "a creation");
    world.store.run_until(world.store.now() + ms(10_000));
    assert_eq!(lock(&world.outcomes).len(), 1, "the segment was created");
    assert_eq!(writer.log.timer_pause(pause), idle);
    world.store.set_outage(Some(SimOutage::Refusing));
    world.append(&writer);
    world.pump(&[&writer], 100);
    assert_eq!(writer.log.timer_pause(pause), pause, "an outage");
}

#[test]
fn fenced_writer_ends_and_rejects_appends() {
    let mut world = World::new(1);
    let old = world.start(SimFaults::none());
    world.pump_until(&old, |log| log.check_append().is_ok());
    let new = world.start(SimFaults::none());
    world.pump_until(&new, |log| log.check_append().is_ok());
    world.append(&old);
    world.pump(&[&old, &new], 100);
    assert_eq!(
        lock(&world.outcomes).get(&1),
        Some(&Err(ErrorKind::Unavailable))
    );
    let reason = old.log.ended().expect("it is fenced");
    assert!(
        reason.starts_with("another writer created segment "),
        "{reason}"
    );
    assert_eq!(
        old.log.check_append().unwrap_err().kind,
        ErrorKind::Unavailable
    );
    world.append(&new);
    world.pump(&[&old, &new], 100);
    assert_eq!(world.check("after the fence"), 1);
}
