//! Tests of backfill: samples of any age, regardless of the out-of-order window.

use super::*;

const HOUR: i64 = 3_600_000;
const YEAR: i64 = 8_766 * HOUR;
const NOW: i64 = 56 * YEAR;

/// Samples of any age up to now + 1 h; those before now - 1 h are late.
const ANY: AppendBounds = AppendBounds::any_age_up_to(NOW + HOUR, NOW - HOUR);

type Series<'a> = (&'a str, &'a [(i64, f64)]);

fn with_window(late_window_ms: i64) -> StoreOptions {
    StoreOptions {
        late_window_ms,
        retention_ms: i64::MAX,
        // Prevents ticks by data time between the steps of a test.
        tick_ms: i64::MAX,
        ..options()
    }
}

fn fill(store: &Store, series: &[Series<'_>]) -> AppendOutcome {
    append(store, &batch(series), ANY)
}

fn held(store: &Store) -> Vec<(String, Vec<(i64, f64)>)> {
    let mut held = contents(store, TimeRange::ALL);
    held.sort_by(|a, b| a.0.cmp(&b.0));
    held
}

fn flush(store: &Store) {
    let mut state = lock(&store.maintenance.state);
    store
        .maintenance
        .workers()
        .flusher
        .flush(&mut state)
        .unwrap();
}

/// Backfills a store that contains `before`, and checks it at once, after a crash, after a flush,
/// and after a clean stop.
fn check(late_window_ms: i64, before: &[Series<'_>]) {
    let sim = sim::sim_env(1);
    let options = with_window(late_window_ms);
    let store = open(&sim, options.clone());
    if !before.is_empty() {
        append(&store, &batch(before), ALWAYS);
    }
    let past = [
        (-YEAR, 0.5),
        (0, 1.0),
        (46 * YEAR, 2.0),
        (NOW - 2 * HOUR, 3.0),
    ];
    let filled = fill(&store, &[("old", &past), ("up", &past[1..3])]);
    assert_eq!((filled.stored, rejections(&filled)), (6, Vec::new()));
    let refused = fill(&store, &[("old", &[(NOW + HOUR + 1, 1.0)])]);
    let too_far = (SampleRejection::TooFarInFuture, 1, NOW + HOUR + 1);
    assert_eq!(rejections(&refused), [too_far]);
    let mut up = past[1..3].to_vec();
    up.extend(
        before
            .iter()
            .flat_map(|(_, samples)| samples.iter().copied()),
    );
    let wanted = [("old".to_owned(), past.to_vec()), ("up".to_owned(), up)];
    let context = format!("window of {late_window_ms} ms, behind {before:?}");
    assert_eq!(held(&store), wanted, "{context}, at once");
    drop(store);
    sim.disk.crash();
    let store = open(&sim, options.clone());
    assert_eq!(held(&store), wanted, "{context}, after a crash");
    flush(&store);
    assert_eq!(store.parts.metrics.late_memory.get(), 0);
    assert_eq!(held(&store), wanted, "{context}, in blocks");
    fill(&store, &[("old", &[(YEAR, 9.0)])]);
    store.close().unwrap();
    drop(store);
    let store = open(&sim, options);
    let mut wanted = wanted;
    wanted[0].1.insert(2, (YEAR, 9.0));
    assert_eq!(held(&store), wanted, "{context}, after a clean end");
}

#[test]
fn samples_of_any_age_are_stored_whatever_is_taken_late_otherwise() {
    let now = [(NOW, 7.0)];
    for late_window_ms in [0, HOUR, i64::MAX] {
        check(late_window_ms, &[("up", &now)]);
        check(late_window_ms, &[]);
    }
}

#[test]
fn past_of_an_empty_store_is_not_its_present() {
    let store = open(&sim::sim_env(1), with_window(0));
    fill(&store, &[("a", &[(YEAR, 1.0), (2 * YEAR, 1.0)])]);
    assert_eq!(store.parts.head.newest(), None);
    fill(&store, &[("a", &[(NOW, 1.0)])]);
    assert_eq!(store.parts.head.newest(), Some(NOW));
    // Normal writes are checked as before.
    let pushed = append(&store, &batch(&[("a", &[(3 * YEAR, 1.0)])]), ALWAYS);
    assert_eq!(
        rejections(&pushed),
        [(SampleRejection::OutOfBounds, 1, 3 * YEAR)]
    );
}

#[test]
fn past_of_an_empty_store_leaves_the_head_when_it_takes_too_much_memory() {
    let store = open(&sim::sim_env(1), with_window(0));
    fill(&store, &[("a", &[(YEAR, 1.0)])]);
    store.tick();
    assert!(store.parts.metrics.late_memory.get() > 0, "it is not due");
    let full = store.parts.options.late_bytes_max() as i64 + 1;
    store.parts.metrics.late_memory.add(full);
    store.tick();
    assert_eq!(store.parts.metrics.late_memory.get(), full);
    assert_eq!(held(&store), [("a".to_owned(), vec![(YEAR, 1.0)])]);
}
