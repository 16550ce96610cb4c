//! Samples that are as far apart as timestamps permit.

use super::*;

const NOW: i64 = 1_700_000_000_000;

/// Checks that a store keeps samples at `times` through a sweep, and restores them from log and
/// pages.
fn check(times: &[i64]) {
    let sim = sim::sim_env(1);
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

/// The end of a page represents the newest sample of a series in it, and may be in an epoch in
/// which the series has none.
#[test]
fn series_whose_page_went_on_without_it_is_found_by_its_next_sample() {
    const HOUR: i64 = 3_600_000;
    let sim = sim::sim_env(1);
    let options = StoreOptions {
        window_ms: 100 * HOUR,
        ..options()
    };
    let send = |series: &[(&str, &[(i64, f64)])]| {
        let store = open(&sim, options.clone());
        let appended = append(&store, &batch(series), ALWAYS);
        assert!(appended.rejected.is_empty());
        store.close().unwrap();
    };
    send(&[("a", &[(0, 1.0)]), ("b", &[(0, 1.0), (5 * HOUR, 1.0)])]);
    send(&[("c", &[(6 * HOUR + 1, 1.0)])]);
    let store = open(&sim, options.clone());
    append(&store, &batch(&[("a", &[(6 * HOUR - 1, 2.0)])]), ALWAYS);
    let held = contents(&store, TimeRange::new(5 * HOUR, 6 * HOUR));
    let of_a = held.iter().find(|(name, _)| name == "a");
    assert_eq!(
        of_a.map(|(_, samples)| &samples[..]),
        Some(&[(6 * HOUR - 1, 2.0)][..])
    );
}
