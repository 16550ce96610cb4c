//! Limits of new series that change while a store is open, and the newest times of its series.

use super::*;
use firn_model::store::NewestSampleTimes;

fn send(store: &Store, names: &[&str], time: i64) -> Vec<(SampleRejection, usize, Option<u64>)> {
    let series: Vec<(&str, [(i64, f64); 1])> =
        names.iter().map(|name| (*name, [(time, 1.0)])).collect();
    let mut batch = Batch::default();
    for (name, samples) in &series {
        batch.push_series(labels(name).as_ref(), samples);
    }
    let appended = append(store, &batch, ALWAYS);
    let rejected = appended.rejected.iter();
    rejected
        .map(|rejected| (rejected.rejection, rejected.count, rejected.limit))
        .collect()
}

fn new_series(all: usize, of_job: usize) -> SeriesLimits {
    SeriesLimits {
        new: NewSeriesBudget { all, of_job },
        window_ms: 60_000,
        ..SeriesLimits::default()
    }
}

#[test]
fn limits_of_series_change_while_the_store_is_open_and_are_in_the_rejections() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    assert_eq!(send(&store, &["a", "b"], 1), []);
    store.set_series_limits(SeriesLimits {
        active: 3,
        ..SeriesLimits::default()
    });
    let active = SampleRejection::ActiveSeriesLimit;
    assert_eq!(
        send(&store, &["a", "b", "c", "d", "e"], 2),
        [(active, 2, Some(3))]
    );
    store.set_series_limits(new_series(2, usize::MAX));
    let new = SampleRejection::NewSeriesLimit;
    assert_eq!(send(&store, &["d", "e", "f", "a"], 3), [(new, 1, Some(2))]);
    assert_eq!(send(&store, &["a", "b", "c", "d", "e"], 60_000), []);
    store.set_series_limits(new_series(usize::MAX, 1));
    let job = SampleRejection::JobSeriesLimit;
    assert_eq!(send(&store, &["f", "g"], 60_001), [(job, 1, Some(1))]);
    store.set_series_limits(SeriesLimits::default());
    assert_eq!(send(&store, &["g", "h", "i"], 60_002), []);
}

#[test]
fn newest_times_of_series_are_those_of_the_head_also_after_a_restart() {
    let sim = sim::sim_env(1);
    let times = |store: &Store, name: &str| {
        let hash = store.series_hash().unwrap();
        let print = hash.hash_labels(labels(name).as_ref(), &mut Vec::new());
        store.newest_sample_times(&TenantId::anonymous(), &[print])[0]
    };
    let check = |store: &Store| {
        let newest = |newest, before| Some(NewestSampleTimes { newest, before });
        assert_eq!(times(store, "a"), newest(30, Some(20)));
        assert_eq!(times(store, "b"), newest(20, None));
        assert_eq!(times(store, "c"), None);
    };
    let store = open(&sim, options());
    for (names, time) in [(&["a"][..], 10), (&["a", "b"], 20), (&["a"], 30)] {
        send(&store, names, time);
    }
    check(&store);
    let print = Fingerprint::default();
    let other = TenantId::new("other").unwrap();
    assert_eq!(store.newest_sample_times(&other, &[print]), [None]);
    drop(store);
    sim.disk.crash();
    check(&open(&sim, options()));
}
