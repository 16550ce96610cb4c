//! Tests of the body log on simulated disks: crashes at any operation, failed writes, damaged
//! bytes.

use super::*;
use firn_model::env::sim::{self, SimEnv, SimRng};
use std::sync::atomic::{AtomicBool, Ordering};

const DIR: &str = "/mirror";

/// A small segment size, so that a few bodies fill several segments.
const SEGMENT: u64 = 256;

fn open(sim: &SimEnv) -> BodyLog {
    let opened = BodyLog::open_with(sim.env.clone(), Path::new(DIR), 0, SEGMENT);
    opened.expect("a simulated disk that works opens")
}

fn write(number: u64, bytes: usize) -> ReceivedWrite {
    let mut body = number.to_string().into_bytes();
    body.resize(bytes.max(body.len()), b'.');
    ReceivedWrite {
        headers: vec![(0, Bytes::from_static(b"application/x-protobuf"))],
        contents: None,
        body: body.into(),
    }
}

/// Appends a body. Jobs run inline in the simulation, so that the result is available immediately.
fn append(bodies: &BodyLog, write: ReceivedWrite) -> Result<(), String> {
    let outcome = Arc::new(Mutex::new(None));
    let told = outcome.clone();
    bodies.append(write, Box::new(move |outcome| *lock(&told) = Some(outcome)));
    let told = lock(&outcome).take();
    told.expect("an outcome")
}

/// Returns the numbers of all bodies from `at` on, and how often damage was found.
fn read_all(bodies: &BodyLog, mut at: u64) -> (Vec<u64>, usize) {
    let (mut numbers, mut damages) = (Vec::new(), 0);
    loop {
        match bodies.read(at).expect("a simulated disk that works reads") {
            BodyLogRead::Entries(entries) if entries.is_empty() => return (numbers, damages),
            BodyLogRead::Entries(entries) => {
                for entry in entries {
                    if let Some(recent) = bodies.recent(at) {
                        assert_eq!(recent[0], entry);
                    }
                    assert_eq!(entry.at, at);
                    assert_eq!(bodies.peek(at).unwrap(), (entry.end, entry.time_ms, None));
                    at = entry.end;
                    let text = String::from_utf8(entry.write.body.to_vec()).unwrap();
                    numbers.push(text.trim_end_matches('.').parse().unwrap());
                }
            }
            BodyLogRead::Damaged { to, .. } => {
                assert!(to > at);
                at = to;
                damages += 1;
            }
        }
    }
}

#[test]
fn log_over_crashes_at_any_change_keeps_every_acked_body_in_order() {
    for seed in 0..200 {
        let rng = SimRng::new(seed);
        let sim = sim::sim_env(seed);
        let mut acked = Vec::new();
        let mut number = 0;
        for _ in 0..4 {
            let bodies = open(&sim);
            sim.disk.power_off_after(rng.next_below(40));
            while !sim.disk.is_off() {
                number += 1;
                sim.clock.advance_ms(2_000);
                if append(&bodies, write(number, rng.next_below(100) as usize)).is_ok() {
                    acked.push(number);
                }
            }
            drop(bodies);
            sim.disk.crash();
            let bodies = open(&sim);
            let (found, damages) = read_all(&bodies, bodies.start());
            assert_eq!(damages, 0, "seed {seed}");
            assert!(found.is_sorted(), "seed {seed}: {found:?}");
            let missing = acked.iter().find(|n| !found.contains(n));
            assert_eq!(missing, None, "seed {seed}: {found:?}");
            // A body that was reported as lost may exist nevertheless; the sender repeats it.
            acked = found;
            sim.disk.kill();
        }
    }
}

#[test]
fn log_after_failed_writes_and_syncs_goes_on_by_itself_and_keeps_acked_bodies_once() {
    use sim::SimDiskOperation;
    for operation in [SimDiskOperation::Write, SimDiskOperation::Sync] {
        for count in 0..12 {
            let sim = sim::sim_env(count);
            let bodies = open(&sim);
            sim.disk.fail_after(operation, count);
            let mut acked = Vec::new();
            for number in 0..20 {
                match append(&bodies, write(number, 60)) {
                    Ok(()) => acked.push(number),
                    Err(why) => {
                        assert!(why.contains(DIR), "{why}");
                        assert_eq!(bodies.fault(), Some(why));
                        // During the pause no write is attempted.
                        assert!(append(&bodies, write(99, 60)).is_err());
                        sim.clock.advance_ms(FAULT_PAUSE.as_millis() as i64);
                    }
                }
            }
            assert_eq!(acked.len(), 19, "{operation:?} {count}");
            assert_eq!(bodies.fault(), None);
            assert_eq!(read_all(&bodies, 0), (acked.clone(), 0));
            sim.disk.kill();
            assert_eq!(read_all(&open(&sim), 0), (acked, 0));
        }
    }
}

#[test]
fn log_on_a_full_disk_refuses_and_takes_again_once_there_is_room() {
    let sim = sim::sim_env(1);
    let bodies = open(&sim);
    append(&bodies, write(1, 60)).unwrap();
    sim.disk.set_free_bytes(20);
    for _ in 0..3 {
        sim.clock.advance_ms(1_000);
        assert!(append(&bodies, write(2, 60)).is_err());
    }
    sim.disk.set_free_bytes(1 << 20);
    sim.clock.advance_ms(1_000);
    append(&bodies, write(3, 60)).unwrap();
    assert_eq!(read_all(&bodies, 0), (vec![1, 3], 0));
    sim.disk.kill();
    assert_eq!(read_all(&open(&sim), 0), (vec![1, 3], 0));
}

#[test]
fn log_that_fills_the_disk_itself_makes_room_once_no_target_needs_it() {
    let sim = sim::sim_env(1);
    let bodies = open(&sim);
    append(&bodies, write(1, 100)).unwrap();
    sim.disk.set_free_bytes(0);
    assert!(append(&bodies, write(2, 60)).is_err());
    let end = bodies.end();
    bodies.trim(end - 1).unwrap();
    assert_eq!(bodies.start(), 0);
    bodies.trim(end).unwrap();
    assert_eq!((bodies.start(), bodies.bytes()), (end, 0));
    sim.clock.advance_ms(1_000);
    append(&bodies, write(3, 10)).unwrap();
    assert_eq!(read_all(&bodies, end), (vec![3], 0));
}

#[test]
fn damaged_byte_costs_the_rest_of_its_segment_at_most_and_stops_nothing() {
    let sim = sim::sim_env(1);
    let bodies = open(&sim);
    for number in 0..20 {
        append(&bodies, write(number, 60)).unwrap();
    }
    let files = sim.disk.files();
    let segments: Vec<&PathBuf> = files
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "bodies"))
        .collect();
    assert!(segments.len() > 4, "{files:?}");
    let middle = segments[2];
    let whole = sim.disk.contents(middle).unwrap();
    for at in HEADER_BYTES..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        sim.disk.overwrite(middle, &damaged);
        let (found, damages) = read_all(&bodies, 0);
        assert_eq!(damages, 1, "{at}");
        assert!(found.is_sorted() && found.len() >= 16, "{at}: {found:?}");
        assert!(found.contains(&0) && found.contains(&19), "{at}: {found:?}");
    }
    sim.disk.remove_durably(middle);
    let (found, damages) = read_all(&bodies, 0);
    assert_eq!(damages, 1);
    assert!(found.len() >= 16, "{found:?}");
}

#[test]
fn trimmed_log_keeps_the_newest_segment_and_its_positions() {
    let sim = sim::sim_env(1);
    let bodies = open(&sim);
    for number in 0..20 {
        append(&bodies, write(number, 60)).unwrap();
    }
    let end = bodies.end();
    bodies.trim(end).unwrap();
    assert!(bodies.bytes() <= SEGMENT + 128, "{}", bodies.bytes());
    assert!(bodies.start() > 0);
    drop(bodies);
    sim.disk.kill();
    let bodies = open(&sim);
    assert_eq!(bodies.end(), end);
    append(&bodies, write(20, 10)).unwrap();
    assert_eq!(read_all(&bodies, end), (vec![20], 0));
    // Positions are kept even if the files are lost.
    let elsewhere = sim::sim_env(2);
    let opened = BodyLog::open_with(elsewhere.env.clone(), Path::new(DIR), 500, SEGMENT);
    assert_eq!(opened.unwrap().end(), 500);
}

#[test]
fn bodies_that_come_during_a_sync_go_in_one_group() {
    let deferred = Arc::new(sim::DeferredCompute::default());
    let sim = sim::sim_env_with(1, deferred.clone());
    let bodies = open(&sim);
    let was_told = Arc::new(AtomicBool::new(false));
    for number in 0..5 {
        let told = was_told.clone();
        let done = move |outcome: Result<(), String>| {
            assert_eq!(outcome, Ok(()));
            told.store(true, Ordering::Relaxed);
        };
        bodies.append(write(number, 60), Box::new(done));
    }
    assert!(!was_told.load(Ordering::Relaxed));
    assert_eq!(bodies.end(), 0);
    // One sync of the file and one of the directory: a second group would hit the failure.
    sim.disk.fail_after(sim::SimDiskOperation::Sync, 2);
    deferred.run();
    assert!(was_told.load(Ordering::Relaxed));
    assert_eq!(read_all(&bodies, 0), ((0..5).collect(), 0));
}

#[test]
fn second_process_on_a_folder_is_refused() {
    let sim = sim::sim_env(1);
    let _bodies = open(&sim);
    let second = BodyLog::open(sim.env.clone(), Path::new(DIR), 0);
    let message = second.err().map(|e| e.message);
    assert_eq!(
        message.as_deref(),
        Some("/mirror is in use by another process")
    );
}
