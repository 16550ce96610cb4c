//! Tests of a log with delta-coded segments that are torn, damaged and continued.

use super::{FILE_HEADER, FIRST_SEGMENT, open, unpadded, world};
use super::{LocalLog, LogOptions};
use crate::failpoints::{StoreFlaw, with_flaw};
use crate::log::record::tests::hint;
use firn_model::env::sim::SimEnv;
use firn_model::log::{DurableCallbacks, DurableLog, FloatRow, LogBatch, LogPosition};
use std::path::Path;

/// The values of the series 1, 2 and 3.
type Values = [f64; 3];

const RECORDED: [Values; 5] = [
    [7.0, 7.0, 0.5],
    [9.0, 7.0, 0.2],
    [12.0, 1e6, -0.1],
    [f64::INFINITY, 0.5, 1.0 / 3.0],
    [13.0, 0.6, 1.0 / 3.0],
];

const TIMES: [i64; 5] = [1_000, 1_500, 2_000, 1_200, 1_300];

fn batch(time: i64, values: Values) -> LogBatch {
    let mut batch = LogBatch::default();
    for (slot, value) in (1..).zip(values) {
        let row = FloatRow {
            slot,
            time,
            start: 0,
            value,
        };
        batch.floats.push(row, hint(value));
    }
    batch
}

fn batches() -> impl Iterator<Item = LogBatch> {
    let recorded = TIMES.iter().zip(RECORDED);
    recorded.map(|(time, values)| batch(*time, values))
}

fn append(log: &LocalLog, batch: LogBatch) {
    log.append(
        batch,
        DurableCallbacks::new(|outcome| assert!(outcome.is_ok())),
    );
}

/// Returns the values in the log, with `None` for damage.
fn values(log: &LocalLog) -> Vec<Option<Vec<f64>>> {
    let mut items = Vec::new();
    let mut tail = log.read_from(LogPosition(0));
    while let Some(item) = tail.next().unwrap() {
        items.push(item.ok().map(|record| record.batch.floats.values));
    }
    items
}

fn expected(values: &[Values]) -> Vec<Option<Vec<f64>>> {
    values.iter().map(|v| Some(v.to_vec())).collect()
}

/// Returns the bytes of a log of the recorded batches.
fn written() -> Vec<u8> {
    let sim = world();
    let log = open(&sim, unpadded()).unwrap();
    batches().for_each(|batch| append(&log, batch));
    sim.disk.contents(Path::new(FIRST_SEGMENT)).unwrap()
}

fn world_of(segment: &[u8]) -> SimEnv {
    let sim = world();
    sim.disk.overwrite(Path::new(FIRST_SEGMENT), segment);
    sim
}

#[test]
fn delta_coded_segment_as_recorded_is_read_and_written_alike() {
    let golden = include_bytes!("../../../tests/fixtures/format-2/condensed.wal");
    let sim = world_of(golden);
    let log = open(&sim, unpadded()).unwrap();
    assert_eq!(values(&log), expected(&RECORDED));
    assert_eq!(written(), golden);
}

#[test]
fn delta_coded_segment_cut_anywhere_loses_only_what_was_cut() {
    let golden = written();
    let ends: Vec<usize> = (0..golden.len())
        .filter(|at| {
            let log = open(&world_of(&golden[..*at]), unpadded()).unwrap();
            *at > FILE_HEADER && log.segments()[0].bytes == *at as u64
        })
        .collect();
    assert_eq!(ends.len(), 4, "{ends:?}");
    for cut in FILE_HEADER..=golden.len() {
        let whole = ends.iter().filter(|end| cut >= **end).count();
        let whole = whole + usize::from(cut == golden.len());
        let sim = world_of(&golden[..cut]);
        let log = open(&sim, unpadded()).unwrap();
        assert_eq!(values(&log), expected(&RECORDED[..whole]), "cut at {cut}");
        // Continues in the same segment, with a new context.
        let [_, b, c, ..] = RECORDED;
        append(&log, batch(9_000, c));
        append(&log, batch(9_500, b));
        sim.disk.crash();
        let log = open(&sim, unpadded()).unwrap();
        let all = [&RECORDED[..whole], &[c, b]].concat();
        assert_eq!(values(&log), expected(&all), "cut at {cut}");
    }
}

#[test]
fn delta_coded_segment_changed_anywhere_yields_nothing_that_was_not_written() {
    let golden = written();
    for at in FILE_HEADER..golden.len() {
        for bit in 0..8 {
            let mut bytes = golden.clone();
            bytes[at] ^= 1 << bit;
            let log = open(&world_of(&bytes), unpadded()).unwrap();
            let read = values(&log);
            for found in read.iter().flatten() {
                let is_written = RECORDED.iter().any(|v| v.as_slice() == found.as_slice());
                assert!(is_written, "{at} {bit}: {found:?}");
            }
            assert!(read.len() <= 5 && read != expected(&RECORDED), "{at} {bit}");
        }
    }
}

/// Writes two segments of two records each and returns the values read back.
fn log_of_two_segments() -> Vec<Option<Vec<f64>>> {
    let sim = world();
    let options = LogOptions {
        segment_bytes: 110,
        ..unpadded()
    };
    let log = open(&sim, options).unwrap();
    let [_, b, c, ..] = RECORDED;
    for values in [b, c, b, c] {
        append(&log, batch(1_000, values));
    }
    assert_eq!(log.segments().len(), 3);
    values(&log)
}

#[test]
fn delta_coded_segment_needs_nothing_of_the_one_before() {
    let [_, b, c, ..] = RECORDED;
    assert_eq!(log_of_two_segments(), expected(&[b, c, b, c]));
    let read = with_flaw(StoreFlaw::KeepsContext, log_of_two_segments);
    assert_eq!(read[2..], [None, None]);
}

#[test]
fn delta_coded_log_read_from_its_middle_gives_the_rest() {
    let sim = world_of(&written());
    let log = open(&sim, unpadded()).unwrap();
    let mut positions = Vec::new();
    let mut tail = log.read_from(LogPosition(2));
    while let Some(item) = tail.next().unwrap() {
        positions.push(item.unwrap().position);
    }
    assert_eq!(positions, [2, 3, 4, 5].map(LogPosition));
}
