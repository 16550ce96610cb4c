//! Groups with samples that cannot be sealed: they affect no other group.

use super::*;
use crate::damage::DamageKind;
use crate::failpoints::{InjectedFaults, set_faults};
use crate::ids::SeriesRef;
use std::collections::BTreeMap;

const MINUTE: i64 = 60_000;

/// Two groups of series, and a few series of a third.
const SERIES: usize = 1_100;

/// The samples of every series.
type Sent = Vec<(i64, f64)>;

const BROKEN_SERIES: InjectedFaults = InjectedFaults {
    malformed: Some(7),
    ..InjectedFaults::NONE
};

const BROKEN_GROUP: InjectedFaults = InjectedFaults {
    page_bytes: Some((1, 50)),
    ..InjectedFaults::NONE
};

fn short() -> StoreOptions {
    StoreOptions {
        window_ms: MINUTE,
        is_jittered: false,
        log_segment_bytes: 10_000,
        tick_ms: i64::MAX,
        ..options()
    }
}

/// Checks that every series has the sent samples, except those in `lacking`, which have the samples
/// listed there.
fn check(store: &Store, sent: &Sent, lacking: &BTreeMap<usize, Sent>) {
    let held = contents(store, TimeRange::ALL);
    assert_eq!(held.len(), SERIES);
    for (number, (name, samples)) in held.iter().enumerate() {
        let wanted = lacking.get(&number).unwrap_or(sent);
        assert_eq!(samples, wanted, "{name}");
    }
}

/// Returns the series with samples in the head that are older than the last windows.
fn left_behind(store: &Store, sent: &Sent) -> Vec<SeriesRef> {
    let newest = sent.last().map_or(0, |(time, _)| *time);
    let shard = lock(&store.parts.head.shards[0]);
    let is_old = |range: TimeRange| range.min < newest - 3 * MINUTE;
    let old = shard.iter().filter(|(_, s)| s.range().is_some_and(is_old));
    old.map(|(_, s)| s.slot).collect()
}

/// Sends twenty minutes of data time in eighty minutes of clock time.
fn run(sim: &SimEnv, store: &Arc<Store>) -> Sent {
    let mut sent = Sent::new();
    for round in 0..80 {
        let sample = (round * 15_000, round as f64 + 0.5);
        let mut batch = Batch::default();
        for number in 0..SERIES {
            batch.push_series(labels(&format!("m{number:04}")).as_ref(), &[sample]);
        }
        let ticket = store.append(&TenantId::anonymous(), &batch, ALWAYS);
        ticket.wait().unwrap();
        sent.push(sample);
        sim.clock.advance_ms(60_000);
        store.tick();
    }
    (0..16).for_each(|_| store.tick());
    sent
}

#[test]
fn series_that_cannot_be_decoded_keeps_no_other_from_being_sealed() {
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    set_faults(BROKEN_SERIES);
    let sent = run(&sim, &store);
    assert_eq!(store.parts.metrics.seal_failures.get(), 0);
    assert_eq!(store.parts.metrics.stuck_groups.get(), 1);
    // Pauses grow from one minute to sixteen.
    let tries = store.parts.metrics.stuck_seals.get();
    assert!((4..12).contains(&tries), "{tries}");
    check(&store, &sent, &BTreeMap::new());
    sim.clock.advance_ms(16 * MINUTE);
    (0..16).for_each(|_| store.tick());
    assert_eq!(left_behind(&store, &sent), [SeriesRef(7)]);
    // The log is kept for it, through a crash and a clean stop.
    drop(store);
    sim.disk.crash();
    let store = open(&sim, short());
    check(&store, &sent, &BTreeMap::new());
    assert!(store.close().is_err());
    drop(store);
    set_faults(InjectedFaults::NONE);
    let store = open(&sim, short());
    check(&store, &sent, &BTreeMap::new());
    (0..40).for_each(|_| store.tick());
    assert_eq!(left_behind(&store, &sent), Vec::<SeriesRef>::new());
    assert!(store.damages().is_empty());
    store.close().unwrap();
}

#[test]
fn page_that_no_frame_holds_costs_its_group_alone() {
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    set_faults(BROKEN_GROUP);
    let sent = run(&sim, &store);
    let left = left_behind(&store, &sent);
    assert_eq!(left, (512..1_024).map(SeriesRef).collect::<Vec<_>>());
    set_faults(InjectedFaults::NONE);
    sim.clock.advance_ms(16 * MINUTE);
    (0..16).for_each(|_| store.tick());
    assert_eq!(left_behind(&store, &sent), Vec::<SeriesRef>::new());
    assert_eq!(store.parts.metrics.stuck_groups.get(), 0);
    check(&store, &sent, &BTreeMap::new());
}

#[test]
fn page_that_is_too_large_is_sealed_in_parts() {
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    set_faults(InjectedFaults {
        part_bytes: Some(2_000),
        ..InjectedFaults::NONE
    });
    let sent = run(&sim, &store);
    assert_eq!(left_behind(&store, &sent), Vec::<SeriesRef>::new());
    let pages = store.parts.metrics.sealed_pages.get();
    assert!(pages > 3 * 4 * 15, "{pages}");
    check(&store, &sent, &BTreeMap::new());
    drop(store);
    sim.disk.crash();
    let store = open(&sim, short());
    check(&store, &sent, &BTreeMap::new());
    store.close().unwrap();
    drop(store);
    check(&open(&sim, short()), &sent, &BTreeMap::new());
}

#[test]
fn group_that_pins_half_of_the_log_is_given_up_and_writes_go_on() {
    for (faults, series) in [(BROKEN_SERIES, 7..8), (BROKEN_GROUP, 512..1_024)] {
        let sim = sim::sim_env(1);
        let small = StoreOptions {
            backlog_bytes_max: 200_000,
            ..short()
        };
        let store = open(&sim, small.clone());
        set_faults(faults);
        let sent = run(&sim, &store);
        set_faults(InjectedFaults::NONE);
        let damages = store.damages();
        let lost: u64 = damages.iter().filter_map(|damage| damage.samples).sum();
        assert!(damages.iter().all(|damage| damage.kind == DamageKind::Head));
        // The lost samples belong to those series, and are older than their remaining ones.
        let held = contents(&store, TimeRange::ALL);
        let of_series = series
            .clone()
            .map(|number| (number, held[number].1.clone()));
        let lacking: BTreeMap<usize, Sent> = of_series.collect();
        assert!(lacking.values().all(|held| sent.ends_with(held)));
        let missing = lacking.values().map(|held| sent.len() - held.len());
        assert_eq!(lost, missing.sum::<usize>() as u64);
        assert!(lost > 0);
        check(&store, &sent, &lacking);
        let told = select(&store, &[], TimeRange::ALL).loss_warnings().texts();
        let start = format!(
            "damage: memory is damaged: {} series of group",
            series.len()
        );
        assert!(told[0].starts_with(&start), "{told:?}");
        drop(store);
        sim.disk.crash();
        check(&open(&sim, small), &sent, &lacking);
    }
}
