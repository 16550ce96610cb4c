//! Tests of records that are held back for the following one: the events that end the wait.

use super::{Answers, LocalLog, LogOptions, append, contents, open, world};
use crate::payload::batch_of;
use firn_model::log::{DurableCallbacks, DurableLog, LogBatch, LogPosition};
use firn_model::sync::lock;

/// Appends a record that is marked as followed by another one.
fn append_followed(log: &LocalLog, payload: &[u8]) -> Answers {
    let answers = Answers::default();
    let sink = answers.clone();
    let batch = LogBatch {
        is_followed: true,
        ..batch_of(payload)
    };
    log.append(
        batch,
        DurableCallbacks::new(move |outcome| lock(&sink).push(outcome)),
    );
    answers
}

/// Creates a log with a record that is held back. `ends` must end the wait and make the record
/// durable.
fn check_held(options: LogOptions, ends: impl FnOnce(&LocalLog)) {
    let sim = world();
    let log = open(&sim, options).unwrap();
    let held = append_followed(&log, b"held");
    assert!(lock(&held).is_empty(), "it waits");
    assert!(contents(&log).is_empty());
    ends(&log);
    assert_eq!(*lock(&held), [Ok(LogPosition(1))]);
    sim.disk.crash();
    let log = open(&sim, LogOptions::default()).unwrap();
    assert_eq!(contents(&log)[0], "held");
}

#[test]
fn log_record_that_is_followed_is_written_with_what_follows_or_before_a_wait() {
    let all = LogOptions::default;
    check_held(all(), |log| {
        let behind = append(log, b"behind");
        assert_eq!(*lock(&behind), [Ok(LogPosition(2))]);
    });
    check_held(all(), |log| log.write_held_records());
    check_held(all(), |log| log.close().unwrap());
    check_held(all(), |log| log.sync().unwrap());
    check_held(all(), |log| log.begin_unit().unwrap());
    // There is no room for another one: the held record is written first, although the other one is
    // followed too.
    let little = LogOptions {
        queue_bytes_max: 1,
        ..all()
    };
    check_held(little, |log| {
        let behind = append_followed(log, b"behind");
        assert!(lock(&behind).is_empty());
        log.write_held_records();
        assert_eq!(*lock(&behind), [Ok(LogPosition(2))]);
    });
}

#[test]
fn log_record_and_the_one_that_it_waited_for_take_one_sync() {
    for (is_followed, groups) in [(true, 1), (false, 2)] {
        let log = open(&world(), LogOptions::default()).unwrap();
        if is_followed {
            append_followed(&log, b"a")
        } else {
            append(&log, b"a")
        };
        append(&log, b"b");
        assert_eq!(log.0.metrics.groups.get(), groups);
    }
}
