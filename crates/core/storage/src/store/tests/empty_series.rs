//! Series without samples for a while: their samples are beyond the retention, or never existed.

use super::*;
use firn_model::env::sim::DeferredCompute;

const HOUR: i64 = 3_600_000;

fn short() -> StoreOptions {
    StoreOptions {
        retention_ms: 4 * HOUR,
        ..options()
    }
}

/// Returns a store in which `old` has lost its only chunk, is evicted and is not removed yet.
fn with_emptied_series(sim: &SimEnv, run: &dyn Fn()) -> Arc<Store> {
    let store = open(sim, short());
    for time in [0, 4 * HOUR + 1] {
        let name = if time == 0 { "old" } else { "new" };
        let both = batch(&[(name, &[(time, 1.0)])]);
        let ticket = store.append(&TenantId::anonymous(), &both, ALWAYS);
        run();
        assert_eq!(ticket.wait().unwrap().stored, 1);
    }
    for _ in 0..8 {
        store.tick();
        run();
    }
    assert_eq!((store.stats(0).series, store.stats(0).chunks), (1, 1));
    store
}

#[test]
fn series_without_samples_after_a_restart_is_removed() {
    let sim = sim::sim_env(1);
    with_emptied_series(&sim, &|| ()).close().unwrap();
    let store = open(&sim, short());
    assert_eq!(store.stats(0).series, 2);
    store.tick();
    assert_eq!(store.stats(0).series, 1);
    append(&store, &batch(&[("old", &[(5 * HOUR, 2.0)])]), ALWAYS);
    drop(store);
    let held = contents(&open(&sim, short()), TimeRange::ALL);
    assert_eq!(held[1], ("old".to_owned(), vec![(5 * HOUR, 2.0)]));
}

#[test]
fn series_that_returns_while_the_catalogue_is_written_survives() {
    let deferred = Arc::new(DeferredCompute::default());
    let sim = sim::sim_env_with(1, deferred.clone());
    let run = || {
        deferred.run();
    };
    let store = with_emptied_series(&sim, &run);
    let again = batch(&[("old", &[(5 * HOUR, 2.0)])]);
    let ticket = store.append(&TenantId::anonymous(), &again, ALWAYS);
    {
        let mut upkeep = lock(&store.maintenance.state);
        let trimmed = upkeep.trimmed_position();
        store
            .maintenance
            .workers()
            .trimmer
            .catalogue
            .write(&mut upkeep, trimmed)
            .unwrap();
    }
    run();
    assert_eq!(ticket.wait().unwrap().stored, 1);
    drop(store);
    // The log still contains samples beyond the retention.
    let held = contents(&open(&sim, short()), TimeRange::new(1, i64::MAX));
    assert_eq!(held[0], ("old".to_owned(), vec![(5 * HOUR, 2.0)]));
}
