//! Deliberately broken variants of the store, each of which a test must detect: the simulation of
//! [`super::crashes`] or, if the failure needs a rare order of steps, a specific test.

use super::crashes::first_trouble;
use super::*;
use crate::failpoints::{StoreFlaw, with_flaw, with_turns};
use crate::maintenance::coverage::DueGroup;
use crate::sealed::GROUP_SLOTS;
use std::cell::Cell;
use std::rc::Rc;

/// Number of seeds within which the simulation detects each flaw. Without a flaw it passes them.
const SEEDS: u64 = 400;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

#[test]
fn store_with_a_flaw_is_caught_by_the_simulation() {
    // Each with the seed that the simulation tries first: the one that detected it last.
    let flaws = [
        (StoreFlaw::TrimsTooFar, 1),
        (StoreFlaw::SkipsPageSync, 2),
        (StoreFlaw::DropsBeforeWrite, 0),
        (StoreFlaw::SealsUnseen, 5),
        (StoreFlaw::ClaimsShortRange, 1),
        (StoreFlaw::ForgetsLastSlot, 0),
        (StoreFlaw::MarksTimeFirst, 8),
        (StoreFlaw::LosesEvicted, 6),
        (StoreFlaw::EvictsAppending, 17),
        (StoreFlaw::RemovesSealed, 1),
        (StoreFlaw::UnlinksEarly, 3),
        (StoreFlaw::ReadsPagesFirst, 2),
        (StoreFlaw::CutsTooFar, 3),
        (StoreFlaw::SkipsBlockSync, 0),
        (StoreFlaw::ShowsOutOfOrder, 23),
        (StoreFlaw::KeepsContext, 0),
        (StoreFlaw::MixesContexts, 0),
        (StoreFlaw::SkipsLateSealed, 8),
        (StoreFlaw::TrimsLate, 39),
        (StoreFlaw::ShowsLateEarly, 26),
        (StoreFlaw::HalvesSlots, 1),
        (StoreFlaw::IgnoresEra, 1),
        (StoreFlaw::SkipsCopySync, 5),
        (StoreFlaw::CopiesLogFirst, 2),
        (StoreFlaw::CommitsApart, 2),
        (StoreFlaw::RemovesBeforeCommit, 83),
    ];
    for (flaw, likely) in flaws {
        let caught = with_flaw(flaw, || {
            first_trouble(std::iter::once(likely).chain(0..SEEDS))
        });
        println!("{flaw:?}: {caught:?}");
        assert!(caught.is_some(), "{flaw:?} is missed");
    }
}

/// Samples that are visible to a new reader and hidden from an old one are not sealed, so the log
/// must keep them.
fn sample_hidden_from_a_reader_survives() -> bool {
    let sim = sim::sim_env(1);
    let short = StoreOptions {
        window_ms: MINUTE,
        is_jittered: false,
        log_segment_bytes: 1,
        ..options()
    };
    let store = open(&sim, short.clone());
    let send = |store: &Arc<Store>, time| {
        append(store, &batch(&[("a", &[(time, 1.0)])]), ALWAYS);
        store.tick();
    };
    send(&store, 0);
    let (writer, is_first) = (store.clone(), Cell::new(true));
    let write = move || {
        if is_first.replace(false) {
            send(&writer, MINUTE / 2);
            send(&writer, 2 * MINUTE + MINUTE / 2);
        }
    };
    with_turns(write, || select(&store, &[], TimeRange::ALL));
    store.tick();
    drop(store);
    sim.disk.crash();
    contents(&open(&sim, short), TimeRange::ALL)[0].1.len() == 3
}

#[test]
fn mark_of_batches_that_were_not_sealed_keeps_the_log() {
    assert!(sample_hidden_from_a_reader_survives());
    assert!(!with_flaw(
        StoreFlaw::TrustsUnsealedMark,
        sample_hidden_from_a_reader_survives
    ));
}

/// A group without series in the head is not due any more. Returns whether a sample of a restored
/// series survives while the log is trimmed further.
fn sample_of_a_series_that_comes_back_survives() -> bool {
    let sim = sim::sim_env(1);
    let short = StoreOptions {
        window_ms: MINUTE,
        is_jittered: false,
        lateness_max_ms: MINUTE,
        log_segment_bytes: 1,
        tick_ms: i64::MAX,
        ..options()
    };
    let store = open(&sim, short.clone());
    let old: Vec<String> = (0..GROUP_SLOTS).map(|i| format!("old{i}")).collect();
    let first: Vec<(&str, &[(i64, f64)])> = old
        .iter()
        .map(|name| (name.as_str(), &[(0, 1.0)][..]))
        .collect();
    append(&store, &batch(&first), ALWAYS);
    let send = |name, time| append(&store, &batch(&[(name, &[(time, 2.0)])]), ALWAYS);
    for minute in 1..40 {
        send("new", minute * MINUTE);
        (0..4).for_each(|_| store.tick());
    }
    assert_eq!(store.parts.head.index.evicted_count(), GROUP_SLOTS as usize);
    let groups = |store: &Store| {
        lock(&store.maintenance.state)
            .coverage
            .list_all_groups(0)
            .len()
    };
    assert_eq!(groups(&store), 1, "the group of those that retired is gone");
    // Its window continues; others are sealed in the meantime.
    send("old3", 40 * MINUTE);
    for second in 1..50 {
        send("new", 40 * MINUTE + second * 1_000);
        store.tick();
        let all = lock(&store.maintenance.state)
            .coverage
            .list_all_groups(i64::MAX);
        let newer: Vec<_> = all.into_iter().filter(|due| due.group.0 > 0).collect();
        let due: Vec<_> = newer
            .into_iter()
            .map(|due| DueGroup {
                end: 40 * MINUTE + second * 1_000,
                ..due
            })
            .collect();
        store
            .maintenance
            .workers()
            .sealer
            .seal_groups(&mut lock(&store.maintenance.state), &due, 0)
            .unwrap();
    }
    store.tick();
    drop(store);
    sim.disk.crash();
    let store = open(&sim, short);
    let held = contents(&store, TimeRange::new(40 * MINUTE, 40 * MINUTE));
    held.iter().any(|(name, _)| name == "old3")
}

#[test]
fn group_whose_series_retired_is_known_again_when_one_comes_back() {
    assert!(sample_of_a_series_that_comes_back_survives());
    assert!(!with_flaw(
        StoreFlaw::ForgetsRestored,
        sample_of_a_series_that_comes_back_survives
    ));
}

/// Returns the number of chunks in the head after a start with two series, one of which is sealed.
fn chunks_after_a_start() -> u64 {
    let sim = sim::sim_env(1);
    let short = StoreOptions {
        window_ms: MINUTE,
        is_jittered: false,
        tick_ms: i64::MAX,
        ..options()
    };
    let store = open(&sim, short.clone());
    append(&store, &batch(&[("sealed", &[(0, 1.0), (1, 2.5)])]), ALWAYS);
    store.tick();
    append(&store, &batch(&[("newest", &[(HOUR, 1.0)])]), ALWAYS);
    (0..2).for_each(|_| store.tick());
    drop(store);
    sim.disk.crash();
    let store = open(&sim, short);
    assert_eq!(contents(&store, TimeRange::ALL).len(), 2);
    store.stats(0).chunks
}

/// Query results would be equal, because samples that are there twice are merged.
#[test]
fn head_after_a_start_has_what_no_page_has() {
    assert_eq!(chunks_after_a_start(), 1);
    assert_eq!(with_flaw(StoreFlaw::ReplaysSealed, chunks_after_a_start), 2);
}

/// An evicted series without samples gets a sample in turn `number` of the tick that removes it.
/// Returns whether the sample is found, or `None` if the tick has fewer turns.
fn series_back_in_turn_is_found(number: u32) -> Option<bool> {
    let sim = sim::sim_env(1);
    let short = StoreOptions {
        retention_ms: 3 * HOUR,
        cut_ms: 1_000 * HOUR,
        // Prevents ticks by data time before the turns.
        tick_ms: i64::MAX,
        ..options()
    };
    let store = open(&sim, short);
    let send = |store: &Arc<Store>, name, time| {
        append(store, &batch(&[(name, &[(time, 1.0)])]), ALWAYS);
    };
    send(&store, "old", 0);
    for time in (HOUR..5 * HOUR).step_by(HOUR as usize / 2) {
        send(&store, "new", time);
        (0..4).for_each(|_| store.tick());
    }
    assert_eq!(
        store.parts.head.index.evicted_count(),
        1,
        "old is still in its pages"
    );
    send(&store, "new", 6 * HOUR);
    let turns = Rc::new(Cell::new(0));
    let (writer, taken) = (store.clone(), turns.clone());
    let write = move || {
        if taken.replace(taken.get() + 1) == number {
            send(&writer, "old", 6 * HOUR);
        }
    };
    with_turns(write, || store.tick());
    (0..8).for_each(|_| store.tick());
    let seen = contents(&store, TimeRange::new(6 * HOUR, 6 * HOUR));
    (number < turns.get()).then(|| seen.iter().any(|(name, _)| name == "old"))
}

#[test]
fn series_that_returns_while_it_is_removed_is_found() {
    let found = || -> Vec<bool> { (0..).map_while(series_back_in_turn_is_found).collect() };
    let of_turns = found();
    assert!(of_turns.len() > 2 && !of_turns.contains(&false));
    let of_turns = with_flaw(StoreFlaw::RemovesUnlocked, found);
    assert!(of_turns.contains(&false), "{of_turns:?}");
}
