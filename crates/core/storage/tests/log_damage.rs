//! WAL segments with random damage: every record that is read was written, and nothing panics.
//!
//! A WAL of several segments is written, closed and damaged: bits are flipped, ranges are zeroed,
//! copied, inserted or cut out, and files are truncated, swapped or removed. Then it is opened and
//! read. In addition, a single flipped bit in a closed segment loses at most one record.
//! `FIRN_SEEDS=n` and `FIRN_SEED=s` select the seeds, as in the other tests.

mod payload;
mod seeds;

use firn_model::env::sim::{self, SimEnv, SimRng};
use firn_model::log::{DurableCallbacks, DurableLog, LogPosition};
use firn_storage::log::{LocalLog, LogMetrics, LogOptions};
use payload::{batch_of, bytes_of};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIR: &str = "wal";
const RECORDS: u64 = 40;

type Records = BTreeMap<LogPosition, Vec<u8>>;

fn open(sim: &SimEnv) -> LocalLog {
    let options = LogOptions {
        segment_bytes: 1_500,
        ..LogOptions::default()
    };
    let metrics = Arc::new(LogMetrics::default());
    LocalLog::open(&sim.env, Path::new(DIR), options, metrics).expect("no format is newer")
}

/// Returns a closed WAL, its records and the paths of its segments.
fn written(rng: &SimRng) -> (SimEnv, Records, Vec<PathBuf>) {
    let sim = sim::sim_env(0);
    let disk = &sim.env.disk;
    disk.create_dir_all(Path::new(DIR))
        .expect("the disk is new");
    let log = open(&sim);
    let mut records = Records::new();
    for number in 1..=RECORDS {
        let bytes = rng.next_below(200);
        let payload: Vec<u8> = (0..bytes).map(|_| rng.next_below(256) as u8).collect();
        let batch = batch_of(&payload);
        records.insert(LogPosition(number), payload);
        log.append(
            batch,
            DurableCallbacks::new(|outcome| assert!(outcome.is_ok())),
        );
    }
    log.close().expect("the disk is sound");
    let segments = log.segments().into_iter().map(|s| s.path).collect();
    sim.disk.kill();
    (sim, records, segments)
}

fn flip_a_bit(rng: &SimRng, bytes: &mut [u8]) {
    let at = rng.next_below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << rng.next_below(8);
}

fn mutate(rng: &SimRng, bytes: &mut Vec<u8>) {
    let len = bytes.len() as u64;
    let start = rng.next_below(len) as usize;
    let end = (start + rng.next_below(300) as usize).min(bytes.len());
    let stretch = bytes[start..end].to_vec();
    let at = rng.next_below(len) as usize;
    match rng.next_below(6) {
        0 => flip_a_bit(rng, bytes),
        1 => bytes[start..end].fill(0),
        2 => bytes.truncate(start),
        3 => {
            bytes.drain(start..end);
        }
        4 => {
            bytes.splice(at..at, stretch);
        }
        _ => {
            let end = (at + stretch.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&stretch[..end - at]);
        }
    }
}

/// Returns the records that the WAL yields, and the number of errors.
fn read(log: &LocalLog) -> (Records, usize) {
    let mut records = Records::new();
    let mut errors = 0;
    let mut tail = log.read_from(LogPosition(0));
    while let Some(item) = tail.next().expect("every segment can be opened") {
        match item {
            Ok(record) => {
                let again = records.insert(record.position, bytes_of(&record.batch));
                assert_eq!(again, None, "{:?} is there twice", record.position);
            }
            Err(_) => errors += 1,
        }
    }
    (records, errors)
}

fn assert_written(seed: u64, read: &Records, written: &Records) {
    for (position, payload) in read {
        let expected = written.get(position);
        assert_eq!(Some(payload), expected, "FIRN_SEED={seed} {position:?}");
    }
}

#[test]
fn log_with_random_damage_yields_only_what_was_written() {
    for seed in seeds::seeds(500) {
        let rng = SimRng::new(seed);
        let (sim, mut records, segments) = written(&rng);
        for _ in 0..=rng.next_below(3) {
            let path = &segments[rng.next_below(segments.len() as u64) as usize];
            let other = &segments[rng.next_below(segments.len() as u64) as usize];
            let contents = |path| sim.disk.contents(path).filter(|bytes| !bytes.is_empty());
            let Some(mut bytes) = contents(path) else {
                continue;
            };
            if rng.one_in(10) {
                bytes = contents(other).unwrap_or(bytes);
            } else {
                mutate(&rng, &mut bytes);
            }
            sim.disk.overwrite(path, &bytes);
        }
        let log = open(&sim);
        assert_written(seed, &read(&log).0, &records);
        // A record that is appended now is read with the others, and does not reuse a position.
        let payload = b"appended after the damage";
        log.append(
            batch_of(payload),
            DurableCallbacks::new(|outcome| assert!(outcome.is_ok())),
        );
        records.insert(log.positions().last, payload.to_vec());
        sim.disk.crash();
        assert_written(seed, &read(&open(&sim)).0, &records);
    }
}

#[test]
fn closed_segment_with_a_flipped_bit_loses_at_most_a_record_and_says_so() {
    for seed in seeds::seeds(500) {
        let rng = SimRng::new(seed);
        let (sim, records, segments) = written(&rng);
        let path = &segments[rng.next_below(segments.len() as u64 - 1) as usize];
        let mut bytes = sim.disk.contents(path).expect("a segment of the log");
        flip_a_bit(&rng, &mut bytes);
        sim.disk.overwrite(path, &bytes);
        let (held, errors) = read(&open(&sim));
        assert_written(seed, &held, &records);
        let lost = records.len() - held.len();
        // A marker after the last record of a segment contains no data: if it is damaged, it looks
        // like a torn write.
        let is_noticed = errors > 0 || lost == 0;
        assert!(is_noticed, "FIRN_SEED={seed}: the damage went unnoticed");
        assert!(lost <= 1, "FIRN_SEED={seed}: {lost} records are lost");
    }
}
