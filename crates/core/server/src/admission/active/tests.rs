//! Tests that active queries are recorded and found again, with disk errors and damaged files.

use super::record::ActiveQueryRange;
use super::*;
use firn_model::env::sim::{self, SimEnv};
use std::path::PathBuf;

const SLOTS: usize = 3;

/// A slot that was encoded by an implementation independent of Firn's.
const GOLDEN: &[u8] = b"\x38\x00\x00\x00\
    \xba\x9a\x1a\xd3\
    \xdc\x05\x00\x00\x00\x00\x00\x00\
    \xff\xff\xff\xff\xff\xff\xff\xff\
    \x60\xea\x00\x00\x00\x00\x00\x00\
    \x98\x3a\x00\x00\x00\x00\x00\x00\
    \x02\x00\x00\x00\x00\x00\x00\x00\
    \x0bquery_range\
    \x01t\
    up";

fn folder(sim: &SimEnv) -> PathBuf {
    let dir = PathBuf::from("/data");
    sim.disk.create_dir_all(&dir).unwrap();
    dir
}

fn record(expression: &str) -> ActiveQueryRecord<'_> {
    ActiveQueryRecord {
        handler: "query_range",
        tenant: "anonymous",
        started: 1_500,
        range: Some(ActiveQueryRange {
            start: -1,
            end: 60_000,
            step_ms: 15_000,
        }),
        expression,
        expression_bytes: expression.len(),
    }
}

/// Simulates a restart. Returns the expressions that it finds, and the file for `slots` queries.
fn reopen(sim: &SimEnv, slots: usize) -> (ActiveQueries, Vec<String>) {
    sim.disk.kill();
    let dir = folder(sim);
    let left = match sim.disk.open(&dir.join(NAME), OpenMode::Read) {
        Ok(file) => read_left(&*file).unwrap(),
        Err(_) => Vec::new(),
    };
    let expressions = left.into_iter().map(|left| left.expression).collect();
    (ActiveQueries::open(&sim.env, &dir, slots), expressions)
}

#[test]
fn query_active_at_the_end_is_found_once_and_one_that_ended_is_not() {
    let sim = sim::sim_env(1);
    let (queries, left) = reopen(&sim, SLOTS);
    assert!(left.is_empty());
    let first = queries.enter(0, &record("first"));
    let _second = queries.enter(1, &record("second"));
    drop(first);
    let _third = queries.enter(0, &record("3"));
    let _fourth = queries.enter(2, &record("fourth"));
    assert!(queries.enter(3, &record("beyond")).is_none());
    let (_, left) = reopen(&sim, SLOTS);
    assert_eq!(left, ["3", "second", "fourth"]);
    let (_, left) = reopen(&sim, SLOTS);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn record_comes_back_as_it_was_but_for_what_does_not_fit() {
    let long = "é".repeat(SLOT_BYTES);
    for (record, cut_bytes) in [
        (record("sum(up)"), 0),
        (
            ActiveQueryRecord {
                range: None,
                ..record("")
            },
            0,
        ),
        // 4096 bytes minus frame, numbers, the two short texts with their lengths, and one byte
        // that would split a character.
        (record(&long), 2 * 4096 - (4096 - 8 - 40 - 12 - 10)),
    ] {
        let bytes = record.encode();
        assert!(bytes.len() <= SLOT_BYTES);
        let found = RecoveredQuery::decode(&bytes).unwrap();
        assert_eq!(found.cut_bytes, cut_bytes);
        assert!(record.expression.starts_with(&found.expression));
        assert_eq!(
            found.expression.len() as u64 + cut_bytes,
            record.expression.len() as u64
        );
        assert_eq!(found.handler, record.handler);
        assert_eq!(found.tenant, record.tenant);
        assert_eq!((found.started, found.range), (record.started, record.range));
    }
}

#[test]
fn record_has_the_bytes_that_the_format_says() {
    let bytes = ActiveQueryRecord {
        tenant: "t",
        ..record("up")
    };
    assert_eq!(bytes.encode(), GOLDEN);
    assert_eq!(RecoveredQuery::decode(GOLDEN).unwrap().expression, "up");
}

#[test]
fn slot_with_any_byte_damaged_is_no_record() {
    let sound = record("up").encode();
    for at in 0..sound.len() {
        for bit in 0..8 {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << bit;
            assert_eq!(
                RecoveredQuery::decode(&damaged),
                None,
                "byte {at}, bit {bit}"
            );
        }
        assert_eq!(RecoveredQuery::decode(&sound[..at]), None, "{at} bytes");
    }
}

#[test]
fn payload_with_a_sound_checksum_and_any_lengths_does_not_panic() {
    for payload_bytes in [1, 39, 40, 41, 42, 60] {
        for byte in [0, 1, 255] {
            let payload = vec![byte; payload_bytes];
            let mut slot = (payload_bytes as u32).to_le_bytes().to_vec();
            slot.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
            slot.extend_from_slice(&payload);
            // Any result is valid, as long as decoding does not panic.
            let _ = RecoveredQuery::decode(&slot);
        }
    }
}

#[test]
fn file_of_something_else_is_written_anew() {
    let foreign: [&[u8]; 4] = [b"[{\"query\":\"up\"", &[0xff; 100_000], b"", &[0; 10]];
    for bytes in foreign {
        let sim = sim::sim_env(1);
        let dir = folder(&sim);
        sim.disk.overwrite(&dir.join(NAME), bytes);
        let (queries, left) = reopen(&sim, SLOTS);
        assert!(left.is_empty());
        let bytes = sim.disk.contents(&dir.join(NAME)).unwrap();
        assert_eq!(bytes.len(), (1 + SLOTS) * SLOT_BYTES);
        let _entry = queries.enter(2, &record("up")).unwrap();
        assert_eq!(reopen(&sim, SLOTS).1, ["up"]);
    }
}

#[test]
fn file_follows_the_number_of_slots() {
    let sim = sim::sim_env(1);
    let mut entries = Vec::new();
    for slots in [3, 1, 5] {
        let (queries, left) = reopen(&sim, slots);
        assert_eq!(left.len(), entries.len().min(1));
        entries.push(queries.enter(slots - 1, &record("up")).unwrap());
    }
}

#[test]
fn disk_that_fills_up_later_takes_every_query() {
    let sim = sim::sim_env(1);
    let (queries, _) = reopen(&sim, SLOTS);
    sim.disk.set_free_bytes(0);
    let _entries: Vec<_> = (0..SLOTS)
        .map(|place| queries.enter(place, &record("up")).unwrap())
        .collect();
    assert!(!queries.has_failed.load(Ordering::Relaxed));
    let (queries, left) = reopen(&sim, SLOTS);
    assert_eq!(left.len(), SLOTS, "a full disk at the start, too");
    assert_eq!(queries.slots, SLOTS);
}

#[test]
fn disk_without_room_at_the_start_costs_slots_and_nothing_else() {
    for (free_bytes, slots) in [(0, 0), (SLOT_BYTES, 0), (3 * SLOT_BYTES + 1, 2)] {
        let sim = sim::sim_env(1);
        folder(&sim);
        sim.disk.set_free_bytes(free_bytes as u64);
        let (queries, _) = reopen(&sim, SLOTS);
        assert_eq!(queries.slots, slots, "{free_bytes} bytes free");
        assert_eq!(queries.enter(2, &record("up")).is_some(), slots > 2);
        drop(queries.enter(0, &record("up")));
    }
}

#[test]
fn disk_that_is_read_only_or_fails_leaves_a_server_without_the_file() {
    let sim = sim::sim_env(1);
    let dir = folder(&sim);
    sim.disk.set_read_only(true);
    assert_eq!(ActiveQueries::open(&sim.env, &dir, SLOTS).slots, 0);
    sim.disk.set_read_only(false);
    let queries = ActiveQueries::open(&sim.env, &dir, SLOTS);
    sim.disk.set_read_only(true);
    drop(queries.enter(0, &record("up")));
    assert!(queries.has_failed.load(Ordering::Relaxed));
}
