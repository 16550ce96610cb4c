//! Tests of a disk that is full or nearly full.

use super::*;
use firn_model::env::sim::SimDiskOperation;
use firn_model::log::LogHealth;

const MIB: u64 = 1 << 20;
const MINUTE: i64 = 60_000;

/// Returns a store with a window to seal after its second batch.
fn store_with_a_window(sim: &SimEnv) -> Arc<Store> {
    let by_hand = StoreOptions {
        tick_ms: i64::MAX,
        ..options()
    };
    let store = open(sim, by_hand);
    append(&store, &batch(&[("a", &[(1, 1.0)])]), ALWAYS);
    store.tick();
    append(&store, &batch(&[("a", &[(70 * MINUTE, 1.0)])]), ALWAYS);
    store
}

/// Returns the numbers of failed ticks and of sealed pages.
fn outcomes(store: &Store) -> (u64, u64) {
    let m = &store.parts.metrics;
    (m.seal_failures.get(), m.sealed_pages.get())
}

#[test]
fn sealing_that_would_eat_the_reserve_of_the_log_waits_and_tries_again_later() {
    let sim = sim::sim_env(1);
    let store = store_with_a_window(&sim);
    sim.disk.set_free_bytes(64 * MIB - 1);
    store.tick();
    store.tick();
    assert_eq!(outcomes(&store), (1, 0));
    sim.disk.set_free_bytes(129 * MIB);
    store.tick();
    assert_eq!(outcomes(&store), (1, 0), "it pauses after a failure");
    sim.clock.advance_ms(60_000);
    store.tick();
    assert_eq!(outcomes(&store), (1, 1));
}

#[test]
fn sealing_for_a_log_that_refuses_takes_half_of_the_reserve_and_all_samples() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    store.tick();
    sim.disk.set_free_bytes(100 * MIB);
    let mut is_refused = false;
    for time in 0..10 {
        sim.clock.advance_ms(if time == 5 { 250 } else { 0 });
        let one = batch(&[("a", &[(time, 1.0)])]);
        is_refused |= store
            .append(&TenantId::anonymous(), &one, ALWAYS)
            .wait()
            .is_err();
    }
    assert!(is_refused);
    let held = contents(&store, TimeRange::ALL);
    store.tick();
    assert_eq!(outcomes(&store), (0, 1));
    assert_eq!(store.parts.metrics.chunk_memory.get(), 0);
    assert_eq!(contents(&store, TimeRange::ALL), held);
}

#[test]
fn store_on_a_disk_that_was_full_has_all_that_it_took_and_goes_on() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    let send = |time| {
        let one = batch(&[("a", &[(time, time as f64)])]);
        store.append(&TenantId::anonymous(), &one, ALWAYS).wait()
    };
    assert!(send(1).is_ok());
    sim.disk.set_free_bytes(7);
    let refusal = send(2).unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Unavailable);
    assert!(
        refusal.message.starts_with("the disk is full, "),
        "{}",
        refusal.message
    );
    assert!(send(3).is_err(), "refused before it touches the head");
    assert!(matches!(store.health(), LogHealth::NoRoom(_)));
    assert_eq!(contents(&store, TimeRange::ALL)[0].1, [(1, 1.0)]);
    sim.disk.set_capacity_bytes(u64::MAX);
    sim.clock.advance_ms(1_000);
    store.tick();
    assert_eq!(store.health(), LogHealth::Sound);
    // The retried sample is already stored.
    assert_eq!(send(2).unwrap().stored, 1);
    assert!(send(3).is_ok());
    drop(store);
    sim.disk.crash();
    let held = contents(&open(&sim, options()), TimeRange::ALL);
    assert_eq!(held[0].1, [(1, 1.0), (2, 2.0), (3, 3.0)]);
}

#[test]
fn store_that_starts_on_a_full_disk_is_read_and_goes_on_once_there_is_room() {
    let sim = sim::sim_env(1);
    let send = |store: &Store, time| {
        let one = batch(&[("a", &[(time, time as f64)])]);
        store.append(&TenantId::anonymous(), &one, ALWAYS).wait()
    };
    assert!(send(&open(&sim, options()), 1).is_ok());
    sim.disk.crash();
    sim.disk.set_free_bytes(7);
    let store = open(&sim, options());
    assert_eq!(store.damages(), []);
    assert_eq!(contents(&store, TimeRange::ALL)[0].1, [(1, 1.0)]);
    let refusal = send(&store, 2).unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Unavailable);
    store.tick();
    sim.disk.set_capacity_bytes(u64::MAX);
    sim.clock.advance_ms(60_000);
    store.tick();
    assert!(send(&store, 3).is_ok());
    assert!(store.close().is_ok());
    drop(store);
    let store = open(&sim, options());
    assert_eq!(store.damages(), []);
    let held = contents(&store, TimeRange::ALL);
    assert_eq!(held[0].1.last(), Some(&(3, 3.0)));
}

/// No start relies on an abandoned segment of pages: the log contains its samples.
#[test]
fn segment_of_which_nothing_became_durable_is_not_missed_after_a_power_loss() {
    let mut failed = 0;
    for seed in 0..200 {
        let operations = seed % 24;
        let sim = sim::sim_env(seed);
        let store = store_with_a_window(&sim);
        sim.disk.fail_after(SimDiskOperation::Sync, operations);
        store.tick();
        failed += store.parts.metrics.seal_failures.get();
        drop(store);
        sim.disk.crash();
        let store = open(&sim, options());
        assert_eq!(store.damages(), [], "seed {seed}");
        let held = contents(&store, TimeRange::ALL);
        assert_eq!(held[0].1, [(1, 1.0), (70 * MINUTE, 1.0)], "seed {seed}");
    }
    assert!(failed > 0, "no seal failed");
}

/// A sync fails while pages are sealed, completed and deleted by retention. Soon or later the
/// process is killed, and then the power fails.
#[test]
fn sync_that_fails_once_costs_nothing_and_makes_nothing_seem_lost() {
    const HOUR: i64 = 60 * MINUTE;
    const QUARTERS: i64 = 28;
    let short = StoreOptions {
        retention_ms: 3 * HOUR,
        cut_ms: 1_000 * HOUR,
        page_segment_bytes: 700,
        tick_ms: i64::MAX,
        ..options()
    };
    for seed in (0..400).step_by(3) {
        let sim = sim::sim_env(seed);
        let store = open(&sim, short.clone());
        sim.disk.fail_after(SimDiskOperation::Sync, seed % 100);
        let killed_at = 4 + (seed / 100) as i64 * 8;
        for quarter in 0..killed_at {
            let sample = [(quarter * 15 * MINUTE, 1.0)];
            append(&store, &batch(&[("a", &sample), ("b", &sample)]), ALWAYS);
            sim.clock.advance_ms(120_000);
            store.tick();
        }
        if killed_at == QUARTERS {
            // Every failed operation was retried.
            let m = &store.parts.metrics;
            assert!(
                m.sealed_pages.get() > 10 && m.removed_segments.get() > 2,
                "{seed}"
            );
        }
        drop(store);
        sim.disk.fail_after(SimDiskOperation::Sync, u64::MAX);
        sim.disk.kill();
        for _ in 0..2 {
            let store = open(&sim, short.clone());
            assert_eq!(store.damages(), [], "seed {seed}");
            let held = contents(&store, TimeRange::new(4 * HOUR, 7 * HOUR));
            let kept = held.first().map_or(0, |(_, samples)| samples.len());
            assert_eq!(kept, (killed_at - 16).max(0) as usize, "seed {seed}");
            drop(store);
            sim.disk.crash();
        }
    }
}
