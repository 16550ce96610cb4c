//! Tests of late samples: which are accepted, the results of queries, and that none is lost.

use super::*;
use crate::failpoints::{StoreFlaw, with_flaw, with_turns};
use crate::index::{EPOCH_MS, epoch_from_time};
use firn_model::histogram::ResetHint;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

type Series<'a> = (&'a str, &'a [(i64, f64)]);

/// Everything in a store as (name, samples).
type Held = Vec<(String, Vec<(i64, f64)>)>;

fn with_window(late_window_ms: i64) -> StoreOptions {
    StoreOptions {
        late_window_ms,
        // Prevents ticks by data time between the steps of a test.
        tick_ms: i64::MAX,
        ..options()
    }
}

fn send(store: &Store, series: &[Series<'_>]) -> AppendOutcome {
    append(store, &batch(series), ALWAYS)
}

fn held(store: &Store) -> Held {
    contents(store, TimeRange::ALL)
}

fn expected(series: &[Series<'_>]) -> Held {
    let each = series.iter();
    each.map(|(name, samples)| ((*name).to_owned(), samples.to_vec()))
        .collect()
}

/// Checks the result for one sample of a series with the samples `held`, if the newest sample of
/// the store is at 10 h.
#[track_caller]
fn check(
    options: StoreOptions,
    held: &[(i64, f64)],
    sample: (i64, f64),
    verdict: Option<SampleRejection>,
) {
    let store = open(&sim::sim_env(1), options.clone());
    send(&store, &[("newest", &[(10 * HOUR, 1.0)])]);
    if !held.is_empty() {
        let appended = send(&store, &[("m", held)]);
        assert_eq!(appended.stored, held.len());
    }
    let appended = send(&store, &[("m", &[sample])]);
    let refused: Vec<SampleRejection> = appended.rejected.iter().map(|r| r.rejection).collect();
    let context = format!("{} ms, {held:?}, {sample:?}", options.late_window_ms);
    assert_eq!(
        refused,
        verdict.into_iter().collect::<Vec<_>>(),
        "{context}"
    );
    assert_eq!(appended.stored, usize::from(verdict.is_none()), "{context}");
}

/// Same rules as upstream, version 3.14: `tsdb/head_append.go`.
#[test]
fn sample_that_cannot_be_appended_in_order_is_late_or_refused() {
    use SampleRejection::{DuplicateTimestamp, OutOfBounds, OutOfOrder, TooOld};
    let newest = 10 * HOUR;
    let known = [(newest - 10, 1.0)];
    let half = 30 * MINUTE;
    let far = 5 * HOUR;
    let none: &[(i64, f64)] = &[];
    let known = &known[..];
    let cases = [
        (0, known, (newest - 11, 1.0), Some(OutOfOrder)),
        (0, known, (newest - HOUR, 1.0), Some(OutOfOrder)),
        (0, known, (newest - HOUR - 1, 1.0), Some(OutOfBounds)),
        (0, known, (newest - 10, 2.0), Some(DuplicateTimestamp)),
        (0, known, (newest - 10, 1.0), None),
        (0, none, (newest - HOUR - 1, 1.0), Some(OutOfBounds)),
        (half, known, (newest - 11, 1.0), None),
        (half, known, (newest - half, 1.0), None),
        (half, known, (newest - half - 1, 1.0), Some(TooOld)),
        (half, known, (newest - 2 * HOUR, 1.0), Some(TooOld)),
        (half, known, (newest - 10, 2.0), Some(DuplicateTimestamp)),
        (half, known, (newest - 10, 1.0), None),
        // Its series has no newer sample: in order within an hour, whatever the window.
        (half, none, (newest - HOUR, 1.0), None),
        (half, none, (newest - HOUR - 1, 1.0), Some(TooOld)),
        (far, known, (newest - far, 1.0), None),
        (far, none, (newest - far, 1.0), None),
        (i64::MAX, known, (-1_000_000 * HOUR, 1.0), None),
    ];
    for (window, held, sample, verdict) in cases {
        check(with_window(window), held, sample, verdict);
    }
}

#[test]
fn sample_at_the_time_of_the_newest_is_taken_if_another_may_stay() {
    let refused = Some(SampleRejection::DuplicateTimestamp);
    let cases = [
        (DuplicatePolicy::KeepFirst, refused),
        (DuplicatePolicy::KeepLast, None),
        (DuplicatePolicy::Max, None),
    ];
    for (duplicates, verdict) in cases {
        let options = StoreOptions {
            duplicates,
            ..with_window(HOUR)
        };
        check(options, &[(10 * HOUR, 1.0)], (10 * HOUR, 2.0), verdict);
    }
}

#[test]
fn late_samples_stand_among_the_others_for_every_reader_and_after_a_restart() {
    for duplicates in [
        DuplicatePolicy::KeepFirst,
        DuplicatePolicy::KeepLast,
        DuplicatePolicy::Max,
    ] {
        let sim = sim::sim_env(1);
        let options = StoreOptions {
            duplicates,
            ..with_window(HOUR)
        };
        let store = open(&sim, options.clone());
        send(
            &store,
            &[
                ("a", &[(10, 1.0), (20, 2.0), (40, 3.0)]),
                ("b", &[(40, 1.0)]),
            ],
        );
        let again = send(&store, &[("a", &[(30, 5.0), (20, 9.0), (5, 1.0)])]);
        assert_eq!(again.stored, 3);
        assert_eq!(send(&store, &[("a", &[(30, 4.0)])]).stored, 1);
        let (at_20, at_30) = match duplicates {
            DuplicatePolicy::KeepFirst => (2.0, 5.0),
            DuplicatePolicy::KeepLast => (9.0, 4.0),
            DuplicatePolicy::Max => (9.0, 5.0),
        };
        let a = [(5, 1.0), (10, 1.0), (20, at_20), (30, at_30), (40, 3.0)];
        let wanted = expected(&[("a", &a), ("b", &[(40, 1.0)])]);
        assert_eq!(held(&store), wanted, "{duplicates:?}");
        drop(store);
        sim.disk.crash();
        let store = open(&sim, options.clone());
        assert_eq!(held(&store), wanted, "{duplicates:?} after a crash");
        for _ in 0..3 {
            store.tick();
        }
        store.close().unwrap();
        drop(store);
        let store = open(&sim, options);
        assert_eq!(held(&store), wanted, "{duplicates:?} after a clean stop");
        let range = TimeRange::new(15, 25);
        assert_eq!(contents(&store, range)[0].1, [(20, at_20)]);
    }
}

#[test]
fn late_window_that_changes_counts_from_the_next_batch_on() {
    let store = open(&sim::sim_env(1), with_window(0));
    send(&store, &[("a", &[(HOUR, 1.0)])]);
    let late = [("a", &[(HOUR - 5, 1.0)][..])];
    assert_eq!(
        rejections(&send(&store, &late))[0].0,
        SampleRejection::OutOfOrder
    );
    store.set_late_window_ms(10);
    assert_eq!(send(&store, &late).stored, 1);
    store.set_late_window_ms(4);
    assert_eq!(
        rejections(&send(&store, &late))[0].0,
        SampleRejection::TooOld
    );
}

#[test]
fn newest_sample_is_found_whether_it_was_late_or_not() {
    let store = open(&sim::sim_env(1), with_window(HOUR));
    send(&store, &[("a", &[(10, 1.0), (40, 4.0)])]);
    send(&store, &[("a", &[(30, 3.0)])]);
    store.parts.head.raise_in_order_min(60);
    // In order it would be the newest of its series.
    send(&store, &[("a", &[(50, 5.0)])]);
    let newest = |max: i64| {
        let range = TimeRange::new(0, max);
        let selection = select_of(&store, &[], (range, true));
        let mut columns = SeriesBatch::default();
        selection.read(0..1, &mut columns).unwrap();
        let series = columns.series(0);
        series
            .times
            .last()
            .copied()
            .zip(series.values.last().copied())
    };
    let cases = [
        (20, (10, 1.0)),
        (35, (30, 3.0)),
        (45, (40, 4.0)),
        (100, (50, 5.0)),
    ];
    for (max, sample) in cases {
        assert_eq!(newest(max), Some(sample), "up to {max}");
    }
}

#[test]
fn floor_that_rises_makes_older_samples_late_or_refuses_them() {
    for (window, verdict) in [(HOUR, None), (0, Some(SampleRejection::OutOfBounds))] {
        let store = open(&sim::sim_env(1), with_window(window));
        send(
            &store,
            &[("a", &[(10 * MINUTE, 1.0)]), ("b", &[(MINUTE, 1.0)])],
        );
        store.parts.head.raise_in_order_min(5 * MINUTE);
        let first = [
            ("b", &[(5 * MINUTE - 1, 2.0)][..]),
            ("new", &[(2 * MINUTE, 1.0)]),
        ];
        let appended = send(&store, &first);
        let refused = appended.rejected.first().map(|r| (r.rejection, r.count));
        assert_eq!(refused, verdict.map(|verdict| (verdict, 2)), "{window}");
        let behind = [
            ("b", &[(5 * MINUTE, 3.0)][..]),
            ("new", &[(6 * MINUTE, 1.0)]),
        ];
        assert_eq!(send(&store, &behind).stored, 2, "{window}");
        let late: usize = store
            .parts
            .head
            .shards
            .iter()
            .map(|s| lock(s).late.iter().count())
            .sum();
        assert_eq!(late, if window > 0 { 2 } else { 0 });
    }
}

/// A series with only a late sample in the head must survive a crash.
#[test]
fn series_with_late_samples_alone_survives_a_crash_and_the_sweep() {
    let sim = sim::sim_env(1);
    let options = with_window(100 * HOUR);
    let store = open(&sim, options.clone());
    send(&store, &[("new", &[(50 * HOUR, 1.0)])]);
    store.parts.head.raise_in_order_min(45 * HOUR);
    send(&store, &[("old", &[(2 * HOUR, 7.0)])]);
    send(&store, &[("old", &[(HOUR, 6.0)])]);
    for _ in 0..20 {
        store.tick();
    }
    let wanted = expected(&[
        ("new", &[(50 * HOUR, 1.0)]),
        ("old", &[(HOUR, 6.0), (2 * HOUR, 7.0)]),
    ]);
    assert_eq!(held(&store), wanted);
    drop(store);
    sim.disk.crash();
    let store = open(&sim, options.clone());
    assert_eq!(held(&store), wanted);
    // Its creation is logged once more.
    send(&store, &[("old", &[(50 * HOUR, 8.0)])]);
    drop(store);
    sim.disk.crash();
    let store = open(&sim, options);
    assert_eq!(
        held(&store)[1].1,
        [(HOUR, 6.0), (2 * HOUR, 7.0), (50 * HOUR, 8.0)]
    );
}

#[test]
fn late_samples_older_than_every_epoch_that_is_kept_are_found() {
    let store = open(&sim::sim_env(1), with_window(100 * HOUR));
    send(
        &store,
        &[("a", &[(50 * HOUR, 1.0)]), ("b", &[(50 * HOUR, 1.0)])],
    );
    send(
        &store,
        &[("b", &[(9 * HOUR, 1.0)]), ("a", &[(11 * HOUR, 1.0)])],
    );
    store
        .parts
        .head
        .index
        .drop_epochs_before(epoch_from_time(10 * HOUR));
    send(&store, &[("b", &[(3 * HOUR, 1.0)])]);
    let names = |min: i64, max: i64| -> Vec<String> {
        let found = contents(&store, TimeRange::new(min, max));
        found.into_iter().map(|(name, _)| name).collect()
    };
    let cases: [(i64, i64, &[&str]); 6] = [
        (0, 20 * HOUR, &["a", "b"]),
        (0, 10 * HOUR - 1, &["b"]),
        (9 * HOUR, 9 * HOUR, &["b"]),
        (4 * HOUR, 8 * HOUR, &[]),
        (10 * HOUR, 12 * HOUR, &["a"]),
        (0, 2 * HOUR, &[]),
    ];
    for (min, max, wanted) in cases {
        assert_eq!(names(min, max), wanted, "{min} to {max}");
    }
    let values = |max: i64| {
        let request = SelectRequest {
            tenant: &TenantId::anonymous(),
            matchers: &[],
            range: TimeRange::new(0, max),
            newest_only: false,
            cancel: &CancelToken::new(),
            budget: &Budget::new("query", usize::MAX),
            series: &SeriesLimit::unlimited(),
            span: None,
        };
        store.label_values("__name__", request).unwrap()
    };
    assert!(values(EPOCH_MS).is_empty());
    // A late sample of the other series is before it, and its epoch is dropped.
    assert_eq!(values(4 * HOUR), [b"a".to_vec(), b"b".to_vec()]);
}

/// Seals everything possible, so that only late samples remain in the log alone.
fn seal_and_trim(store: &Store, minutes: std::ops::Range<i64>) {
    for minute in minutes {
        send(store, &[("a", &[(minute * MINUTE, 1.0)])]);
        (0..4).for_each(|_| store.tick());
    }
}

/// Keeps late samples in the head.
fn pause_flushes(store: &Store) {
    lock(&store.maintenance.state).flush_not_before = Duration::MAX;
}

/// Returns whether a late sample survives that was sent before many others were sealed and trimmed.
fn late_sample_survives_trimming() -> bool {
    let sim = sim::sim_env(1);
    let options = StoreOptions {
        window_ms: MINUTE,
        log_segment_bytes: 1,
        ..with_window(HOUR)
    };
    let store = open(&sim, options.clone());
    pause_flushes(&store);
    seal_and_trim(&store, 0..5);
    send(&store, &[("a", &[(MINUTE / 2, 5.0)])]);
    let late_at = store.parts.log.positions().last;
    seal_and_trim(&store, 5..20);
    let first = store.parts.log.positions().first;
    assert!(first > LogPosition(1), "nothing was trimmed");
    let is_kept = first <= late_at;
    drop(store);
    sim.disk.crash();
    let store = open(&sim, options.clone());
    let is_found = |store: &Store| held(store)[0].1.contains(&(MINUTE / 2, 5.0));
    let after_a_crash = is_found(&store);
    store.close().unwrap();
    drop(store);
    let after_a_stop = is_found(&open(&sim, options));
    assert_eq!(is_kept, after_a_crash);
    after_a_crash && after_a_stop
}

#[test]
fn log_is_kept_for_late_samples_and_read_whatever_is_sealed() {
    assert!(late_sample_survives_trimming());
    for flaw in [StoreFlaw::TrimsLate, StoreFlaw::SkipsLateSealed] {
        let survives = || std::panic::catch_unwind(late_sample_survives_trimming);
        let survived = with_flaw(flaw, survives);
        assert!(!matches!(survived, Ok(true)), "{flaw:?} is missed");
    }
}

#[test]
fn late_samples_that_left_the_head_let_the_log_go() {
    let sim = sim::sim_env(1);
    let options = StoreOptions {
        window_ms: MINUTE,
        log_segment_bytes: 1,
        ..with_window(HOUR)
    };
    let store = open(&sim, options);
    pause_flushes(&store);
    seal_and_trim(&store, 0..5);
    send(&store, &[("a", &[(MINUTE / 2, 5.0), (MINUTE / 3, 4.0)])]);
    send(&store, &[("b", &[(4 * MINUTE, 1.0)])]);
    store.parts.head.raise_in_order_min(4 * MINUTE + 1);
    send(&store, &[("b", &[(MINUTE, 2.0)])]);
    let maintenance = &store.maintenance;
    let flusher = maintenance.workers().flusher;
    assert!(!flusher.is_due(&lock(&maintenance.state)));
    seal_and_trim(&store, 5..8);
    let mut state = lock(&maintenance.state);
    assert!(flusher.is_due(&state), "they are two windows old");
    let (sequence, position) = store.parts.head.watermark.visible_position();
    drop(state);
    send(&store, &[("b", &[(MINUTE / 2, 3.0)])]);
    let due = flusher.collect_due_series(sequence);
    let rows: Vec<(u32, Vec<i64>)> = due
        .iter()
        .map(|due| {
            (
                due.slot.0,
                due.rows(sequence).map(|(row, _)| row.time).collect(),
            )
        })
        .collect();
    assert_eq!(rows, [(0, vec![MINUTE / 3, MINUTE / 2]), (1, vec![MINUTE])]);
    state = lock(&maintenance.state);
    flusher.drop_rows(&mut state, due, |row| row.sequence <= sequence);
    assert!(state.late.covered_position() >= position);
    assert!(!flusher.is_due(&state));
    drop(state);
    let minute = |series: &[(String, Vec<(i64, f64)>)]| -> Vec<Vec<(i64, f64)>> {
        let early = |samples: &Vec<(i64, f64)>| {
            let early = samples.iter().filter(|(time, _)| *time % MINUTE != 0);
            early.copied().collect()
        };
        series.iter().map(|(_, samples)| early(samples)).collect()
    };
    assert_eq!(minute(&held(&store)), [vec![], vec![(MINUTE / 2, 3.0)]]);
    // Only the last one is found where it may be.
    store.parts.head.index.drop_epochs_before(1);
    assert_eq!(contents(&store, TimeRange::new(0, MINUTE / 2)).len(), 1);
    assert!(contents(&store, TimeRange::new(0, MINUTE / 3)).is_empty());
    let bytes: usize = store
        .parts
        .head
        .shards
        .iter()
        .map(|s| lock(s).late.memory_bytes())
        .sum();
    assert_eq!(store.parts.metrics.late_memory.get(), bytes as i64);
}

/// Returns a store with late samples that the next tick flushes, and its contents.
fn store_with_due_rows(sim: &SimEnv) -> (Arc<Store>, Held) {
    let options = StoreOptions {
        window_ms: MINUTE,
        log_segment_bytes: 1,
        ..with_window(HOUR)
    };
    let store = open(sim, options);
    pause_flushes(&store);
    seal_and_trim(&store, 0..5);
    send(&store, &[("a", &[(MINUTE / 2, 5.0), (MINUTE / 3, 4.0)])]);
    send(&store, &[("b", &[(4 * MINUTE, 1.0)])]);
    send(&store, &[("b", &[(3 * MINUTE, 2.0)])]);
    seal_and_trim(&store, 5..9);
    lock(&store.maintenance.state).flush_not_before = Duration::ZERO;
    let all = held(&store);
    (store, all)
}

#[test]
fn late_samples_that_are_flushed_are_in_blocks_and_free_head_and_log() {
    let sim = sim::sim_env(1);
    let (store, all) = store_with_due_rows(&sim);
    let log_first = store.parts.log.positions().first;
    seal_and_trim(&store, 9..10);
    let with_newest = held(&store);
    assert_eq!(with_newest[1], all[1]);
    assert_eq!(with_newest[0].1[..all[0].1.len()], all[0].1);
    assert_eq!(store.parts.metrics.flushed_samples.get(), 3);
    assert_eq!(store.parts.metrics.late_memory.get(), 0);
    assert!(store.parts.log.positions().first > log_first);
    let options = store.parts.options.clone();
    drop(store);
    sim.disk.crash();
    assert_eq!(held(&open(&sim, options)), with_newest);
}

/// Returns for each step of a tick that flushes whether a reader sees everything.
fn readers_during_a_flush_see_all() -> Vec<bool> {
    let (store, all) = store_with_due_rows(&sim::sim_env(1));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (reader, log) = (store.clone(), seen.clone());
    with_turns(
        move || log.borrow_mut().push(held(&reader) == all),
        || store.tick(),
    );
    assert_eq!(store.parts.metrics.flushed_samples.get(), 3);
    seen.take()
}

#[test]
fn readers_during_a_flush_see_late_samples_once() {
    let seen = readers_during_a_flush_see_all();
    assert!(seen.len() > 2 && !seen.contains(&false), "{seen:?}");
    let seen = with_flaw(StoreFlaw::DropsLateFirst, readers_during_a_flush_see_all);
    assert!(seen.contains(&false), "{seen:?}");
}

/// Returns whether a reader sees everything if late samples are flushed in its turn `number`;
/// `None` if it has fewer turns.
fn reader_with_a_flush_in_turn_sees_all(number: u32) -> Option<bool> {
    let (store, all) = store_with_due_rows(&sim::sim_env(1));
    let (other, turns) = (store.clone(), Rc::new(Cell::new(0)));
    let taken = turns.clone();
    let flush = move || {
        if taken.replace(taken.get() + 1) == number {
            // Active readers postpone a flush.
            (0..2).for_each(|_| other.tick());
        }
    };
    let selection = with_turns(flush, || select(&store, &[], TimeRange::ALL));
    (number < turns.get()).then(|| contents_of(&*selection) == all)
}

#[test]
fn reader_sees_late_samples_that_are_flushed_meanwhile() {
    let seen = || -> Vec<bool> {
        let turns = (0..).map_while(reader_with_a_flush_in_turn_sees_all);
        turns.collect()
    };
    let of_turns = seen();
    assert!(of_turns.len() > 2 && !of_turns.contains(&false));
    let of_turns = with_flaw(StoreFlaw::ViewsBlocksFirst, seen);
    assert!(of_turns.contains(&false), "{of_turns:?}");
}

/// In each turn of a reader a batch arrives, a part of which is late, and is flushed.
#[test]
fn reader_sees_all_of_a_batch_or_nothing_although_its_late_samples_are_flushed() {
    for number in 0.. {
        let store = open(&sim::sim_env(1), with_window(HOUR));
        send(&store, &[("a", &[(10, 1.0)])]);
        let (other, turns) = (store.clone(), Rc::new(Cell::new(0)));
        let taken = turns.clone();
        let come = move || {
            if taken.replace(taken.get() + 1) == number {
                send(&other, &[("a", &[(5, 2.0)]), ("b", &[(20, 2.0)])]);
                let maintenance = &other.maintenance;
                maintenance
                    .workers()
                    .flusher
                    .flush(&mut lock(&maintenance.state))
                    .unwrap();
            }
        };
        let selection = with_turns(come, || select(&store, &[], TimeRange::ALL));
        let held = contents_of(&*selection);
        let samples: usize = held.iter().map(|(_, samples)| samples.len()).sum();
        assert!(matches!(samples, 1 | 3), "turn {number}: {held:?}");
        if number >= turns.get() {
            break;
        }
    }
}

#[test]
fn time_ranges_cover_late_samples_before_all_others() {
    let store = open(&sim::sim_env(1), with_window(i64::MAX));
    let newest = [(9 * HOUR, 1.0)];
    send(&store, &[("a", &newest), ("b", &newest)]);
    send(&store, &[("a", &[(HOUR, 1.0), (2 * HOUR, 1.0)])]);
    send(&store, &[("b", &[(-5 * HOUR, 1.0)])]);
    let mut ranges = store.time_ranges();
    ranges.sort_unstable_by_key(|range| range.min);
    let wanted = [(-5, -5), (1, 2), (9, 9)].map(|(a, b)| TimeRange::new(a * HOUR, b * HOUR));
    assert_eq!(ranges, wanted);
}

#[test]
fn late_samples_beyond_their_memory_are_refused_and_those_in_order_stored() {
    let store = open(&sim::sim_env(1), with_window(HOUR));
    send(&store, &[("a", &[(10, 1.0)]), ("b", &[(10, 1.0)])]);
    let full = 2 * store.parts.options.late_bytes_max() as i64 + 1;
    store.parts.metrics.late_memory.add(full);
    let both = batch(&[("a", &[(5, 1.0)]), ("b", &[(20, 2.0)])]);
    let refused = store
        .append(&TenantId::anonymous(), &both, ALWAYS)
        .wait()
        .unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    let limit = full - 1;
    let text = format!("too many late samples in memory: {full} bytes, limit {limit}");
    assert_eq!(refused.message, text);
    assert_eq!(
        held(&store),
        expected(&[("a", &[(10, 1.0)]), ("b", &[(10, 1.0), (20, 2.0)])])
    );
    store.parts.metrics.late_memory.add(-full);
    assert_eq!(append(&store, &both, ALWAYS).stored, 2);
    assert_eq!(held(&store)[0].1, [(5, 1.0), (10, 1.0)]);
    let metrics = &store.parts.metrics;
    let counts = [
        &metrics.late_samples,
        &metrics.late_repeated,
        &metrics.late_refused,
    ];
    assert_eq!(counts.map(|c| c.get()), [1, 0, 1]);
}

#[test]
fn selection_with_late_samples_holds_them_in_the_budget() {
    let store = open(&sim::sim_env(1), with_window(HOUR));
    let held_by = |store: &Store| {
        let budget = Budget::new("query", usize::MAX);
        let request = SelectRequest {
            tenant: &TenantId::anonymous(),
            matchers: &[],
            range: TimeRange::ALL,
            newest_only: false,
            cancel: &CancelToken::new(),
            budget: &budget,
            series: &SeriesLimit::unlimited(),
            span: None,
        };
        let _selection = store.select(request).unwrap();
        budget.used_bytes()
    };
    send(&store, &[("a", &[(10_000, 1.0)])]);
    let before = held_by(&store);
    for time in 0..1_000 {
        send(&store, &[("a", &[(time, 1.0)])]);
    }
    let bytes: usize = store
        .parts
        .head
        .shards
        .iter()
        .map(|s| lock(s).late.memory_bytes())
        .sum();
    assert!(bytes >= 32_000, "{bytes}");
    assert!(held_by(&store) >= before + 32_000);
}

#[test]
fn reader_sees_all_late_samples_of_a_batch_or_none() {
    let see = || {
        let jobs = Arc::new(firn_model::env::sim::DeferredCompute::default());
        let sim = sim::sim_env_with(1, jobs.clone());
        let store = open(&sim, with_window(HOUR));
        let ticket = store.append(
            &TenantId::anonymous(),
            &batch(&[("a", &[(10, 1.0)])]),
            ALWAYS,
        );
        jobs.run();
        ticket.wait().unwrap();
        let late = batch(&[("a", &[(5, 1.0), (6, 1.0)])]);
        let ticket = store.append(&TenantId::anonymous(), &late, ALWAYS);
        let before = held(&store)[0].1.len();
        jobs.run();
        ticket.wait().unwrap();
        (before, held(&store)[0].1.len())
    };
    assert_eq!(see(), (1, 3));
    assert_eq!(with_flaw(StoreFlaw::ShowsLateEarly, see), (3, 3));
}

#[test]
fn late_samples_that_arrived_later_than_others_do_so_after_a_restart() {
    let value_at_5 = || {
        let sim = sim::sim_env(1);
        let options = StoreOptions {
            duplicates: DuplicatePolicy::KeepLast,
            ..with_window(HOUR)
        };
        let store = open(&sim, options.clone());
        send(&store, &[("a", &[(10, 1.0)])]);
        // Batches get sequence numbers in order of arrival, and reach the log in any order.
        let row = |value: f64, order: u64| {
            let mut batch = firn_model::log::LogBatch::default();
            let row = firn_model::log::FloatRow {
                slot: 0,
                time: 5,
                start: 0,
                value,
            };
            batch
                .late_floats
                .push(row, firn_model::log::DecimalHint::NONE);
            batch.late_order = order;
            batch
        };
        for (value, order) in [(7.0, 9), (6.0, 8)] {
            let done = firn_model::log::DurableCallbacks::new(|outcome| assert!(outcome.is_ok()));
            store.parts.log.append(row(value, order), done);
        }
        drop(store);
        sim.disk.kill();
        let store = open(&sim, options);
        let found = held(&store)[0].1[0];
        send(&store, &[("a", &[(5, 8.0)])]);
        (found, held(&store)[0].1[0])
    };
    assert_eq!(value_at_5(), ((5, 7.0), (5, 8.0)));
    assert_eq!(
        with_flaw(StoreFlaw::NumbersLateByPosition, value_at_5).0,
        (5, 6.0)
    );
}

#[test]
fn late_histograms_stand_among_the_others_and_say_nothing_of_resets() {
    let sim = sim::sim_env(1);
    let store = open(&sim, with_window(HOUR));
    let send_at = |time: i64| {
        assert_eq!(
            append(&store, &histogram_at(time), ALWAYS).stored,
            1,
            "{time}"
        );
    };
    [10, 20, 30, 40, 25].into_iter().for_each(send_at);
    assert_eq!(send(&store, &[("h", &[(27, 1.5)])]).stored, 1);
    let see = |store: &Store| {
        let selection = select(store, &[], TimeRange::ALL);
        let mut columns = SeriesBatch::default();
        selection.read(0..1, &mut columns).unwrap();
        let series = columns.series(0);
        let hints = series.histograms.iter();
        let hints: Vec<_> = hints
            .map(|(at, h)| (series.times[*at as usize], h.reset_hint))
            .collect();
        (series.times.to_vec(), hints, series.start_times.to_vec())
    };
    use ResetHint::{NotReset, Unknown};
    let times = vec![10, 20, 25, 27, 30, 40];
    let hints = vec![
        (10, Unknown),
        (20, NotReset),
        (25, Unknown),
        (30, Unknown),
        (40, NotReset),
    ];
    let starts = vec![3, 3, 3, 0, 3, 3];
    assert_eq!(see(&store), (times.clone(), hints.clone(), starts.clone()));
    drop(store);
    sim.disk.crash();
    assert_eq!(see(&open(&sim, with_window(HOUR))), (times, hints, starts));
}

/// A batch reads the floor when it is applied, however long it was in progress before.
#[test]
fn floor_that_rises_while_a_batch_is_under_way_holds_for_it_until_it_is_applied() {
    let in_order_at = |turn: u32| {
        let store = open(&sim::sim_env(1), with_window(HOUR));
        send(&store, &[("a", &[(1, 1.0)])]);
        let (other, turns) = (store.clone(), Cell::new(0));
        let raise = move || {
            if turns.replace(turns.get() + 1) == turn {
                other.parts.head.raise_in_order_min(5);
            }
        };
        let appended = with_turns(raise, || {
            send(&store, &[("a", &[(3, 1.0)]), ("b", &[(4, 1.0)])])
        });
        assert_eq!(appended.stored, 2, "turn {turn}");
        let late = store.parts.metrics.late_samples.get();
        assert_eq!(contents(&store, TimeRange::ALL).len(), 2, "turn {turn}");
        2 - late
    };
    // Before the creation, before the samples are applied, and after that.
    assert_eq!([0, 1, 2].map(in_order_at), [0, 0, 2]);
}
