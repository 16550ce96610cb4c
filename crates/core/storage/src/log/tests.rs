//! Tests of the log, case by case; random histories are in `tests/log_simulation.rs`.

mod delta_coded;
mod held;

use super::*;
use crate::error::StorageError;
use crate::file::{frame, header, scan};
use crate::manifest::Manifest;
use crate::payload::{batch_of, bytes_of};
use firn_model::env::sim::{self, DeferredCompute, InlineCompute, SimDiskOperation, SimEnv};
use firn_model::env::{Compute, DiskFile, OpenMode, real};
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{DurableCallbacks, DurableLog, LogHealth, LogPosition};
use firn_model::sync::lock;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DIR: &str = "wal";
const FIRST_SEGMENT: &str = "wal/00000000000000000001.wal";

type Answers = Arc<Mutex<Vec<Result<LogPosition, Error>>>>;

fn world() -> SimEnv {
    world_with(Arc::new(InlineCompute))
}

fn world_with(compute: Arc<dyn Compute>) -> SimEnv {
    let sim = sim::sim_env_with(1, compute);
    sim.env.disk.create_dir_all(Path::new(DIR)).unwrap();
    sim
}

fn open(sim: &SimEnv, options: LogOptions) -> Result<LocalLog, StorageError> {
    let metrics = Arc::new(LogMetrics::default());
    LocalLog::open(&sim.env, Path::new(DIR), options, metrics)
}

fn append(log: &LocalLog, payload: &[u8]) -> Answers {
    let answers = Answers::default();
    let sink = answers.clone();
    log.append(
        batch_of(payload),
        DurableCallbacks::new(move |outcome| lock(&sink).push(outcome)),
    );
    answers
}

/// Options with which records are not padded to sectors, as with the system's cache.
fn unpadded() -> LogOptions {
    LogOptions {
        sync: LogSyncMode::Interval(Duration::ZERO),
        ..LogOptions::default()
    }
}

/// Options with which records are acknowledged long before they are synced.
fn unpadded_later() -> LogOptions {
    LogOptions {
        sync: LogSyncMode::Interval(Duration::from_secs(3_600)),
        ..LogOptions::default()
    }
}

/// Returns the payloads in the log as text, with `!` for damage.
fn contents(log: &LocalLog) -> Vec<String> {
    let mut items = Vec::new();
    let mut tail = log.read_from(LogPosition(0));
    while let Some(item) = tail.next().unwrap() {
        items.push(match item {
            Ok(record) => String::from_utf8(bytes_of(&record.batch)).unwrap(),
            Err(_) => "!".to_owned(),
        });
    }
    items
}

/// Writes a log with the records `a` to `e`, one group each, stops it, and applies `change` to the
/// bytes of its only segment. Checks the records that are read after a restart, a record that is
/// appended then, and the records after another restart.
#[track_caller]
fn check_damage(change: impl FnOnce(&mut Vec<u8>), expected: &[&str]) {
    let sim = world();
    let log = open(&sim, unpadded()).unwrap();
    for payload in ["a", "b", "c", "d", "e"] {
        append(&log, payload.as_bytes());
    }
    log.close().unwrap();
    let mut bytes = sim.disk.contents(Path::new(FIRST_SEGMENT)).unwrap();
    change(&mut bytes);
    sim.disk.overwrite(Path::new(FIRST_SEGMENT), &bytes);

    let log = open(&sim, unpadded()).unwrap();
    assert_eq!(contents(&log), expected);
    let added = append(&log, b"new");
    assert!(lock(&added)[0].is_ok());
    sim.disk.crash();
    let mut expected = expected.to_vec();
    expected.push("new");
    let log = open(&sim, unpadded()).unwrap();
    assert_eq!(contents(&log), expected);
}

/// Bytes of a record without its payload, if the payload is short.
const AROUND_BYTES: usize = 16;

/// Returns the offset of record `index` of [`check_damage`]; each has a payload of one byte.
fn block_at(index: usize) -> usize {
    FILE_HEADER + index * (frame::FRAME_HEADER_BYTES + AROUND_BYTES + 1)
}

const FILE_HEADER: usize = header::FILE_HEADER_BYTES as usize;

#[test]
fn log_after_a_clean_stop_holds_all() {
    check_damage(|_| {}, &["a", "b", "c", "d", "e"]);
}

#[test]
fn log_with_a_torn_last_block_loses_only_that() {
    check_damage(|b| b.truncate(b.len() - 1), &["a", "b", "c", "d"]);
    check_damage(|b| b.truncate(block_at(4) + 3), &["a", "b", "c", "d"]);
    check_damage(|b| *b.last_mut().unwrap() ^= 1, &["a", "b", "c", "d"]);
}

#[test]
fn log_with_a_tail_that_is_no_block_holds_all() {
    check_damage(|b| b.extend([0; 5000]), &["a", "b", "c", "d", "e"]);
    check_damage(|b| b.extend(b"garbage"), &["a", "b", "c", "d", "e"]);
}

#[test]
fn log_with_a_damaged_middle_reports_it_and_holds_the_rest() {
    check_damage(|b| b[block_at(1)] ^= 1, &["a", "!", "c", "d", "e"]);
    check_damage(|b| b[block_at(2) - 1] ^= 1, &["a", "!", "c", "d", "e"]);
    check_damage(|b| b[block_at(0) + 8] ^= 1, &["!", "b", "c", "d", "e"]);
    let stretch = block_at(1)..block_at(3) - 1;
    check_damage(|b| b[stretch].fill(0), &["a", "!", "d", "e"]);
}

#[test]
fn log_with_a_damaged_file_header_reports_it_and_holds_all() {
    check_damage(|b| b[9] ^= 1, &["!", "a", "b", "c", "d", "e"]);
}

#[test]
fn log_with_a_copied_block_takes_it_for_damage() {
    let copy = |b: &mut Vec<u8>| b.copy_within(block_at(3)..block_at(4), block_at(1));
    check_damage(copy, &["a", "!", "c", "d", "e"]);
}

#[test]
fn log_in_another_format_is_refused() {
    for other in [1, 3] {
        let sim = world();
        drop(open(&sim, LogOptions::default()).unwrap());
        let mut bytes = sim.disk.contents(Path::new(FIRST_SEGMENT)).unwrap();
        bytes[8] = other;
        let crc = crc32c::crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        sim.disk.overwrite(Path::new(FIRST_SEGMENT), &bytes);
        let refusal = open(&sim, LogOptions::default()).err().unwrap();
        assert_eq!(
            refusal.to_string(),
            format!("{FIRST_SEGMENT} has format {other}, but this version supports format 2")
        );
    }
}

/// Checks the response of a log in `mode` to a record during `fault`, and its health at that time.
#[track_caller]
fn check_fault(
    mode: LogSyncMode,
    fault: impl FnOnce(&SimEnv),
    expected: Result<(), &str>,
    health: LogHealth,
) -> (SimEnv, LocalLog) {
    let sim = world();
    let options = LogOptions {
        sync: mode,
        ..LogOptions::default()
    };
    let log = open(&sim, options).unwrap();
    append(&log, b"before");
    fault(&sim);
    let answers = Answers::default();
    let (done, delayed) = (answers.clone(), answers.clone());
    let hears = DurableCallbacks::new(move |outcome| lock(&done).push(outcome));
    let hears = hears.or_delayed(move |e| lock(&delayed).push(Err(e)));
    log.append(batch_of(b"hit"), hears);
    let answer = lock(&answers)[0].clone();
    let heard = answer.as_ref().map(|_| ()).map_err(|e| e.message.as_str());
    assert_eq!(heard, expected);
    if let Err(e) = &answer {
        assert_eq!(e.kind, ErrorKind::Unavailable);
        assert_eq!(log.check_append().unwrap_err().message, e.message);
    }
    assert_eq!(log.health(), health);
    (sim, log)
}

/// Checks that the delayed record and one after it are in the log once the disk writes again, also
/// after a crash.
#[track_caller]
fn check_goes_on(sim: &SimEnv, log: LocalLog, options: LogOptions) {
    let behind = append(&log, b"behind");
    assert!(lock(&behind).is_empty(), "it waits");
    assert_eq!(contents(&log), ["before"]);
    log.tick();
    assert!(lock(&behind).is_empty(), "it is not time to try again");
    sim.clock.advance_ms(60_000);
    log.tick();
    assert_eq!(*lock(&behind), [Ok(LogPosition(3))]);
    assert_eq!(log.health(), LogHealth::Sound);
    assert!(log.check_append().is_ok());
    let held = ["before", "hit", "behind"];
    assert_eq!(contents(&log), held);
    log.sync().unwrap();
    drop(log);
    sim.disk.crash();
    assert_eq!(contents(&open(sim, options).unwrap()), held);
}

#[test]
fn log_without_room_keeps_what_it_took_and_goes_on_by_itself() {
    let cause = format!("write segment {FIRST_SEGMENT}: no storage space");
    let refusal = format!("the disk is full, writes resume when space is free: {cause}");
    let no_room = |sim: &SimEnv| sim.disk.set_free_bytes(7);
    let health = LogHealth::NoRoom(cause.clone());
    for sync in [LogSyncMode::Always, LogSyncMode::None] {
        let (sim, log) = check_fault(sync, no_room, Err(&refusal), health.clone());
        assert!(log.pressure().is_disk_full);
        sim.clock.advance_ms(60_000);
        log.tick();
        assert_eq!(log.health(), LogHealth::NoRoom(cause.clone()));
        sim.disk.set_capacity_bytes(u64::MAX);
        let options = LogOptions {
            sync,
            ..LogOptions::default()
        };
        check_goes_on(&sim, log, options);
    }
}

/// Space may run out anywhere, also within the header of a next segment; then the records continue
/// in the previous segment.
#[test]
fn log_that_runs_out_of_room_anywhere_holds_all_that_it_took_later() {
    for (sync, room) in [LogSyncMode::Always, LogSyncMode::None]
        .into_iter()
        .flat_map(|sync| (0..3_000).step_by(6).map(move |room| (sync, room)))
    {
        let options = LogOptions {
            sync,
            segment_bytes: 1_000,
            ..LogOptions::default()
        };
        let sim = world();
        let log = open(&sim, options).unwrap();
        sim.disk.set_free_bytes(room);
        let payloads: Vec<String> = (0..16).map(|number| format!("{number:0>300}")).collect();
        let mut push = payloads.iter().map(|p| append(&log, p.as_bytes()));
        let taken: Vec<Answers> = push.by_ref().take(10).collect();
        sim.disk.set_capacity_bytes(u64::MAX);
        sim.clock.advance_ms(60_000);
        log.tick();
        for answers in taken.into_iter().chain(push) {
            let answers = lock(&answers);
            assert!(
                matches!(answers[..], [Ok(_)]),
                "{sync:?} {room} {answers:?}"
            );
        }
        log.sync().unwrap();
        drop(log);
        sim.disk.crash();
        let held = contents(&open(&sim, options).unwrap());
        assert_eq!(held, payloads, "{sync:?} {room}");
    }
}

/// A segment that fails before it contains a record is created again under its name, on a disk that
/// is full or loses power in the meantime.
#[test]
fn log_whose_segment_fails_twice_holds_all_that_it_took() {
    let payloads: Vec<String> = (0..8).map(|number| format!("{number:0>300}")).collect();
    for (sync, room) in (0..3).flat_map(|sync| (0..2_100).step_by(6).map(move |room| (sync, room)))
    {
        let sim = world();
        let log = open(&sim, LogOptions::default()).unwrap();
        sim.disk.fail_after(SimDiskOperation::Sync, sync);
        sim.disk.set_free_bytes(room);
        let mut push = payloads.iter().map(|p| append(&log, p.as_bytes()));
        let taken: Vec<Answers> = push.by_ref().take(4).collect();
        sim.disk.set_capacity_bytes(u64::MAX);
        sim.clock.advance_ms(60_000);
        log.tick();
        for answers in taken.into_iter().chain(push) {
            assert!(matches!(lock(&answers)[..], [Ok(_)]), "{sync} {room}");
        }
        drop(log);
        sim.disk.crash();
        let held = contents(&open(&sim, LogOptions::default()).unwrap());
        assert_eq!(held, payloads, "{sync} {room}");
    }
    for changes in 0..20 {
        let sim = world();
        let log = open(&sim, LogOptions::default()).unwrap();
        let known = Manifest {
            log: log.positions().growing,
            ..Manifest::default()
        };
        sim.disk.fail_after(SimDiskOperation::Sync, 0);
        sim.disk.power_off_after(changes);
        let answers = append(&log, payloads[0].as_bytes());
        let is_taken = matches!(lock(&answers)[..], [Ok(_)]);
        drop(log);
        sim.disk.crash();
        let log = open(&sim, LogOptions::default()).unwrap();
        assert_eq!(
            log.find_missing_records(LogPosition(0), &known),
            None,
            "{changes}"
        );
        assert!(!is_taken || contents(&log) == payloads[..1], "{changes}");
    }
}

#[test]
fn log_after_one_failed_write_or_sync_writes_the_group_in_a_new_segment() {
    for operation in [SimDiskOperation::Write, SimDiskOperation::Sync] {
        let once = |sim: &SimEnv| sim.disk.fail_after(operation, 0);
        let (sim, log) = check_fault(LogSyncMode::Always, once, Ok(()), LogHealth::Sound);
        assert_eq!(log.segments().len(), 2);
        assert_eq!(log.0.metrics.faults.get(), 1);
        append(&log, b"after");
        let held = ["before", "hit", "after"];
        assert_eq!(contents(&log), held);
        drop(log);
        sim.disk.crash();
        let log = open(&sim, LogOptions::default()).unwrap();
        assert_eq!(contents(&log), held);
    }
}

#[test]
fn log_on_a_disk_that_goes_on_failing_keeps_what_it_took_until_it_writes() {
    let cause = "sync segment wal/00000000000000000002.wal: input/output error";
    let refusal = format!("disk error, writes are retried: {cause}");
    let always = |sim: &SimEnv| sim.disk.fail_always(SimDiskOperation::Sync, true);
    let health = LogHealth::Failing(cause.to_owned());
    let (sim, log) = check_fault(LogSyncMode::Always, always, Err(&refusal), health);
    sim.clock.advance_ms(60_000);
    log.tick();
    assert!(matches!(log.health(), LogHealth::Failing(_)));
    sim.disk.fail_always(SimDiskOperation::Sync, false);
    check_goes_on(&sim, log, LogOptions::default());
}

#[test]
fn log_that_acknowledged_what_a_failed_sync_lost_is_poisoned() {
    let sim = world();
    let log = open(&sim, unpadded_later()).unwrap();
    append(&log, b"acknowledged");
    sim.disk.fail_after(SimDiskOperation::Sync, 0);
    let cause = format!("sync segment {FIRST_SEGMENT}: input/output error");
    assert_eq!(log.sync().unwrap_err().to_string(), cause);
    let refusal = lock(&append(&log, b"lost"))[0].clone().unwrap_err();
    let expected = format!("the log rejects writes until restart: {cause}");
    assert_eq!(refusal.message, expected);
    assert_eq!(log.health(), LogHealth::Poisoned(cause));
    assert_eq!(log.0.metrics.poisoned.get(), 1);
    assert_eq!(contents(&log), ["acknowledged"]);
    sim.disk.crash();
    let log = open(&sim, unpadded_later()).unwrap();
    assert!(lock(&append(&log, b"after"))[0].is_ok());
}

#[test]
fn unit_that_was_begun_outlives_what_was_before() {
    let sim = world();
    let log = open(&sim, LogOptions::default()).unwrap();
    log.begin_unit().unwrap();
    append(&log, b"a");
    append(&log, b"b");
    log.begin_unit().unwrap();
    log.begin_unit().unwrap();
    append(&log, b"c");
    let starts: Vec<LogPosition> = log.segments().iter().map(|s| s.first).collect();
    assert_eq!(starts, [LogPosition(1), LogPosition(3)]);
    log.trim(LogPosition(3)).unwrap();
    assert_eq!(contents(&log), ["c"]);
    log.close().unwrap();
    assert!(log.begin_unit().is_err());
    drop(log);
    sim.disk.crash();
    let log = open(&sim, LogOptions::default()).unwrap();
    assert_eq!(contents(&log), ["c"]);
    append(&log, b"d");
    assert_eq!(contents(&log), ["c", "d"]);
}

/// Starts a unit between two records during `fault`. Both records must be there after a crash.
#[track_caller]
fn check_unit(sync: LogSyncMode, fault: impl Fn(&SimEnv)) {
    let sim = world();
    let options = LogOptions {
        sync,
        ..LogOptions::default()
    };
    let log = open(&sim, options).unwrap();
    append(&log, b"a");
    log.sync().unwrap();
    fault(&sim);
    let _ = log.begin_unit();
    sim.disk.set_capacity_bytes(u64::MAX);
    let added = append(&log, b"b");
    assert!(matches!(lock(&added)[..], [Ok(_)]), "{added:?}");
    log.sync().unwrap();
    drop(log);
    sim.disk.crash();
    assert_eq!(contents(&open(&sim, options).unwrap()), ["a", "b"]);
}

#[test]
fn unit_that_cannot_be_begun_costs_no_record() {
    for sync in [LogSyncMode::Always, LogSyncMode::None] {
        for room in (0..600).step_by(4) {
            check_unit(sync, |sim| sim.disk.set_free_bytes(room));
        }
    }
    for operation in [SimDiskOperation::Write, SimDiskOperation::Sync] {
        for count in 0..4 {
            let fault = |sim: &SimEnv| sim.disk.fail_after(operation, count);
            check_unit(LogSyncMode::Always, fault);
        }
    }
    for changes in 0..12 {
        let sim = world();
        let log = open(&sim, LogOptions::default()).unwrap();
        append(&log, b"a");
        sim.disk.power_off_after(changes);
        let _ = log.begin_unit();
        drop(log);
        sim.disk.crash();
        let log = open(&sim, LogOptions::default()).unwrap();
        assert_eq!(contents(&log), ["a"], "{changes}");
    }
}

#[test]
fn log_that_ticked_tells_damage_to_its_last_block_from_a_torn_one() {
    for sync in [LogSyncMode::Always, LogSyncMode::Interval(Duration::ZERO)] {
        let options = LogOptions {
            sync,
            ..LogOptions::default()
        };
        let sim = world();
        let log = open(&sim, options).unwrap();
        append(&log, b"kept");
        append(&log, b"last");
        log.tick();
        let bytes = log.segments()[0].bytes;
        log.tick();
        assert_eq!(log.segments()[0].bytes, bytes, "it is said once");
        drop(log);
        sim.disk.kill();
        let path = Path::new(FIRST_SEGMENT);
        let mut bytes = sim.disk.contents(path).unwrap();
        let at = bytes.windows(4).position(|w| w == b"last").unwrap();
        bytes[at] ^= 1;
        sim.disk.overwrite(path, &bytes);
        let log = open(&sim, options).unwrap();
        assert_eq!(contents(&log), ["kept", "!"]);
        assert_eq!(*lock(&append(&log, b"next")), [Ok(LogPosition(3))]);
        assert_eq!(contents(&log), ["kept", "!", "next"]);
    }
}

#[test]
fn log_on_a_nearly_full_disk_refuses_until_there_is_space() {
    let sim = world();
    let log = open(&sim, LogOptions::default()).unwrap();
    assert!(log.check_append().is_ok());
    sim.disk.set_capacity_bytes(1 << 20);
    assert!(log.check_append().is_ok(), "it looked just now");
    sim.clock.advance_ms(250);
    let refusal = log.check_append().unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Unavailable);
    assert_eq!(
        refusal.message,
        "disk of wal is full: 1048552 bytes free, 134217728 required"
    );
    sim.disk.set_capacity_bytes(1 << 30);
    assert_eq!(log.check_append(), Ok(()));
    assert!(lock(&append(&log, b"a"))[0].is_ok());
}

#[test]
fn log_closed_refuses_blocks() {
    let sim = world();
    let log = open(&sim, LogOptions::default()).unwrap();
    log.close().unwrap();
    let refusal = lock(&append(&log, b"a"))[0].clone().unwrap_err();
    assert_eq!(refusal.message, "the log is closed");
}

#[test]
fn block_beyond_the_limit_is_refused() {
    let sim = world();
    let log = open(&sim, LogOptions::default()).unwrap();
    let refusal = lock(&append(&log, &vec![0; PAYLOAD_BYTES_MAX + 1]))[0].clone();
    assert_eq!(
        refusal.unwrap_err().message,
        "log record too large: 67108887 bytes, limit 67108864"
    );
}

#[test]
fn blocks_queued_while_a_group_waits_share_one_sync() {
    let deferred = Arc::new(DeferredCompute::default());
    let sim = world_with(deferred.clone());
    let log = open(&sim, LogOptions::default()).unwrap();
    let answers = [b"a", b"b", b"c"].map(|payload| append(&log, payload));
    assert!(answers.iter().all(|a| lock(a).is_empty()));
    deferred.run();
    let positions = answers.map(|a| lock(&a)[0].clone());
    assert_eq!(positions, [1, 2, 3].map(|p| Ok(LogPosition(p))));
    assert_eq!(log.0.metrics.groups.get(), 1);
    let syncs: u64 = log.0.metrics.fsync_duration.bucket_counts().iter().sum();
    assert_eq!(syncs, 1);
}

/// Appends five records with 100 ms between them and checks the number of syncs.
#[track_caller]
fn check_syncs(sync: LogSyncMode, expected: u64) {
    let sim = world();
    let log = open(
        &sim,
        LogOptions {
            sync,
            ..LogOptions::default()
        },
    );
    let log = log.unwrap();
    for _ in 0..5 {
        sim.clock.advance_ms(100);
        assert!(lock(&append(&log, b"a"))[0].is_ok());
    }
    let syncs: u64 = log.0.metrics.fsync_duration.bucket_counts().iter().sum();
    assert_eq!(syncs, expected);
}

#[test]
fn sync_mode_decides_how_often_the_log_syncs() {
    check_syncs(LogSyncMode::Always, 5);
    check_syncs(LogSyncMode::Interval(Duration::from_millis(200)), 2);
    check_syncs(LogSyncMode::None, 0);
}

#[test]
fn log_opened_behind_what_is_sealed_holds_nothing_of_it() {
    let sim = world();
    let mut options = LogOptions {
        segment_bytes: 60,
        ..LogOptions::default()
    };
    let log = open(&sim, options).unwrap();
    for payload in ["a", "b", "c", "d", "e"] {
        append(&log, payload.as_bytes());
    }
    log.close().unwrap();
    options.start_after = LogPosition(4);
    let log = open(&sim, options).unwrap();
    assert_eq!(contents(&log), ["e"]);
    assert_eq!(log.positions().last, LogPosition(5));
    // The log lost its end, but the lost records are in pages.
    options.start_after = LogPosition(9);
    let log = open(&sim, options).unwrap();
    assert_eq!(contents(&log), Vec::<String>::new());
    assert_eq!(*lock(&append(&log, b"j")), [Ok(LogPosition(10))]);
}

#[test]
fn log_with_many_writers_acknowledges_every_block_once() {
    let sim = world_with(real::system_env().unwrap().compute);
    let options = LogOptions {
        queue_bytes_max: 1000,
        segment_bytes: 10_000,
        ..LogOptions::default()
    };
    let log = open(&sim, options).unwrap();
    let answers = Answers::default();
    sim.env.compute.for_each(8, &|_| {
        for _ in 0..50 {
            let sink = answers.clone();
            log.append(
                batch_of(&[b'x'; 200]),
                DurableCallbacks::new(move |outcome| lock(&sink).push(outcome)),
            );
        }
    });
    log.close().unwrap();
    let expected: Vec<_> = (1..=400).map(|p| Ok(LogPosition(p))).collect();
    assert_eq!(*lock(&answers), expected);
    assert_eq!(contents(&log).len(), 400);
}

#[test]
fn segment_as_recorded_is_read_and_written_alike() {
    let packed = include_bytes!("../../tests/fixtures/format-2/00000000000000000001.wal");
    check_recorded(packed, 1);
    let padded = include_bytes!("../../tests/fixtures/format-2/padded.wal");
    check_recorded(padded, 512);
}

/// `golden` contains three frames, each a group of its own that ends at a sector boundary. Their
/// payloads are text and not batches, so that only frames are compared.
#[track_caller]
fn check_recorded(golden: &[u8], sector: u64) {
    let payloads = ["first block", "", "third block"];
    let sim = world();
    sim.disk.overwrite(Path::new(FIRST_SEGMENT), golden);
    let log = open(&sim, LogOptions::default()).unwrap();
    assert_eq!(log.positions().last, LogPosition(3));
    let file = sim
        .env
        .disk
        .open(Path::new(FIRST_SEGMENT), OpenMode::Read)
        .unwrap();
    let range = header::FILE_HEADER_BYTES..golden.len() as u64;
    let mut scanner = scan::FrameScanner::new(file, LogPosition(1), range);
    let mut read = Vec::new();
    while let Some(found) = scanner.next() {
        let scan::FrameScanItem::Frame { offset, header } = found else {
            panic!("{found:?}");
        };
        if header.kind == frame::FrameKind::Log {
            read.push(String::from_utf8(scanner.payload(offset, &header).to_vec()).unwrap());
        }
    }
    assert_eq!(read, payloads);

    let mut written = header::encode(&header::SEGMENT_MAGIC, LogPosition(1)).to_vec();
    for (payload, position) in payloads.into_iter().zip(1..) {
        push_frame(
            &mut written,
            position,
            frame::FrameKind::Log,
            payload.as_bytes(),
        );
        let end = written.len() as u64;
        if !end.is_multiple_of(sector) {
            let least = end + frame::FRAME_HEADER_BYTES as u64;
            let zeros = vec![0; (least.next_multiple_of(sector) - least) as usize];
            push_frame(&mut written, position, frame::FrameKind::Padding, &zeros);
        }
    }
    assert_eq!(written, golden);
}

/// Appends a frame that marks everything before it as durable.
fn push_frame(segment: &mut Vec<u8>, position: u64, kind: frame::FrameKind, payload: &[u8]) {
    let place = frame::FramePlace {
        first: LogPosition(1),
        offset: segment.len() as u64,
    };
    frame::encode(place, LogPosition(position), 0, kind, payload, segment);
}

#[test]
fn padded_log_cut_anywhere_loses_only_what_was_cut() {
    let sim = world();
    let log = open(&sim, LogOptions::default()).unwrap();
    let payloads = ["first block", "", "third block"];
    for payload in payloads {
        append(&log, payload.as_bytes());
    }
    let padded = sim.disk.contents(Path::new(FIRST_SEGMENT)).unwrap();
    let ends = [(FILE_HEADER, 0), (512, 1), (1024, 2)]
        .map(|(at, number)| at + frame::FRAME_HEADER_BYTES + AROUND_BYTES + payloads[number].len());
    for cut in FILE_HEADER..=padded.len() {
        let sim = world();
        sim.disk.overwrite(Path::new(FIRST_SEGMENT), &padded[..cut]);
        let log = open(&sim, LogOptions::default()).unwrap();
        let whole = ends.iter().filter(|end| cut >= **end).count();
        let mut expected = payloads[..whole].to_vec();
        assert_eq!(contents(&log), expected, "cut at {cut}");
        append(&log, b"new");
        sim.disk.crash();
        expected.push("new");
        let log = open(&sim, LogOptions::default()).unwrap();
        assert_eq!(contents(&log), expected, "cut at {cut}");
    }
}

#[test]
fn sector_that_cannot_be_read_costs_only_its_blocks() {
    struct BadSector(Arc<dyn DiskFile>);
    impl DiskFile for BadSector {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
            if offset < 8192 && offset + into.len() as u64 > 4096 {
                return Err(std::io::Error::other("input/output error"));
            }
            self.0.read_at(offset, into)
        }
        fn write_all_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
            self.0.write_all_at(offset, bytes)
        }
        fn sync_data(&self) -> std::io::Result<()> {
            self.0.sync_data()
        }
        fn set_len(&self, bytes: u64) -> std::io::Result<()> {
            self.0.set_len(bytes)
        }
        fn len(&self) -> std::io::Result<u64> {
            self.0.len()
        }
    }
    let sim = world();
    let log = open(&sim, unpadded()).unwrap();
    for _ in 0..30 {
        append(&log, &[b'x'; 475 - AROUND_BYTES - 2]);
    }
    let path = Path::new(FIRST_SEGMENT);
    let file = sim.env.disk.open(path, OpenMode::Read).unwrap();
    let bytes = file.len().unwrap();
    let range = header::FILE_HEADER_BYTES..bytes;
    let mut scanner = scan::FrameScanner::new(Arc::new(BadSector(file)), LogPosition(1), range);
    let found: Vec<_> = std::iter::from_fn(|| scanner.next()).collect();
    let blocks = |f: &&scan::FrameScanItem| matches!(f, scan::FrameScanItem::Frame { .. });
    // Records 9 to 17 of 500 bytes overlap bytes 4096 to 8191.
    assert_eq!(found.iter().filter(blocks).count(), 21);
    assert!(scanner.unreadable());
}
