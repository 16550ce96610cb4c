//! Samples as far apart as timestamps can be.

use super::*;

const NOW: i64 = 1_700_000_000_000;

/// A store keeps what `times` say, sweeps, and brings it back from log and pages.
fn check(times: &[i64]) {
    let sim = sim::env(1);
    let all_kept = StoreOptions {
        retention_ms: i64::MAX,
        lateness_max_ms: i64::MAX,
        ..options()
    };
    let store = open(&sim, all_kept.clone());
    let samples: Vec<(i64, f64)> = times.iter().map(|time| (*time, 1.5)).collect();
    let appended = append(&store, &batch(&[("a", &samples), ("b", &samples)]), ALWAYS);
    assert_eq!(appended.stored, 2 * times.len(), "{times:?}");
    let kept_from = times.last().unwrap().saturating_sub(i64::MAX);
    let range = TimeRange::new(kept_from, i64::MAX);
    let held = contents(&store, range);
    assert_eq!(
        held[0].1.len(),
        times.iter().filter(|t| **t >= kept_from).count()
    );
    store.tick();
    drop(store);
    let store = open(&sim, all_kept.clone());
    assert_eq!(contents(&store, range), held, "from the log, {times:?}");
    store.close().unwrap();
    drop(store);
    let store = open(&sim, all_kept);
    assert_eq!(contents(&store, range), held, "from pages, {times:?}");
    for time in times.iter().filter(|time| **time >= kept_from) {
        let at = contents(&store, TimeRange::new(*time, *time));
        assert_eq!(at.len(), 2, "{time} of {times:?}");
    }
}

#[test]
fn store_with_samples_at_the_ends_of_time_starts_again() {
    check(&[0, NOW]);
    check(&[i64::MIN, NOW]);
    check(&[i64::MIN, i64::MIN + 1, 0, i64::MAX - 1, i64::MAX]);
    check(&[i64::MAX]);
    check(&[i64::MIN]);
}
