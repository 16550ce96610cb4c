//! Memory after a peak: the memory of many series is released after they fall silent.

use super::*;
use crate::head::series::MemSeries;
use crate::head::slabs::SLAB_ITEMS;
use firn_model::fingerprint::Fingerprint;

const MINUTE: i64 = 60_000;

/// Returns the bytes of the head's tables when a store has one series, and again after many series
/// came and fell silent. Checks that all their samples are still there.
fn tables_around(crowd: usize) -> (usize, usize) {
    let sim = sim::sim_env(1);
    let store = open(
        &sim,
        StoreOptions {
            shards: 2,
            window_ms: MINUTE,
            is_jittered: false,
            lateness_max_ms: MINUTE,
            ..options()
        },
    );
    let tables = || store.parts.metrics.table_memory.get() as usize;
    let send = |minute: i64| {
        append(
            &store,
            &batch(&[("stays", &[(minute * MINUTE, 1.0)])]),
            ALWAYS,
        );
        (0..40).for_each(|_| store.tick());
    };
    send(0);
    let before = tables();
    let names: Vec<String> = (0..crowd).map(|number| format!("crowd{number}")).collect();
    let sample = [(MINUTE, 2.0)];
    let series: Vec<(&str, &[(i64, f64)])> = names
        .iter()
        .map(|name| (name.as_str(), &sample[..]))
        .collect();
    append(&store, &batch(&series), ALWAYS);
    (2..30).for_each(send);
    assert_eq!(store.parts.head.index.evicted_count(), crowd);
    let found = contents(&store, TimeRange::ALL);
    assert_eq!(found.len(), crowd + 1);
    // Evicted series can be restored.
    append(
        &store,
        &batch(&[(&names[crowd - 1], &[(30 * MINUTE, 3.0)])]),
        ALWAYS,
    );
    assert_eq!(store.parts.head.index.evicted_count(), crowd - 1);
    let after = tables();
    (before, after)
}

#[test]
fn tables_of_the_head_after_a_crowd_are_as_small_as_before() {
    let (before, after) = tables_around(10_000);
    // In each shard a slab with a series and a free one in reserve; ten at the peak.
    let slab = SLAB_ITEMS * (size_of::<Option<MemSeries>>() + size_of::<Fingerprint>());
    assert!(after <= before + 4 * slab, "{before} before, {after} after");
}

#[test]
fn evicted_crowd_leaves_within_seconds_once_its_hours_left_the_head() {
    let sim = sim::sim_env(1);
    let store = open(
        &sim,
        StoreOptions {
            window_ms: MINUTE,
            is_jittered: false,
            lateness_max_ms: MINUTE,
            retention_ms: 4 * 60 * MINUTE,
            ..options()
        },
    );
    let send = |time: i64| append(&store, &batch(&[("stays", &[(time, 1.0)])]), ALWAYS);
    let crowd = 100_000;
    let names: Vec<String> = (0..crowd).map(|number| format!("crowd{number}")).collect();
    let sample = [(0, 2.0)];
    let series: Vec<(&str, &[(i64, f64)])> = names
        .iter()
        .map(|name| (name.as_str(), &sample[..]))
        .collect();
    append(&store, &batch(&series), ALWAYS);
    for minute in 1..5 {
        send(minute * MINUTE);
        (0..40).for_each(|_| store.tick());
    }
    assert_eq!(store.parts.head.index.evicted_count(), crowd);
    send(8 * 60 * MINUTE);
    (0..20).for_each(|_| store.tick());
    assert_eq!(store.parts.head.index.evicted_count(), 0);
}
