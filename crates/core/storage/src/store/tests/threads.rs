//! Writers and readers in parallel, on real threads.

use super::*;
use firn_model::env::real;
use std::sync::atomic::AtomicUsize;

const SERIES: usize = 200;
const BATCHES: usize = 150;

/// The simulated disk with real threads, because the subject of the test is the head and not the
/// file system.
fn env() -> SimEnv {
    let mut sim = sim::sim_env(3);
    sim.env.compute = real::system_env().unwrap().compute;
    sim
}

/// One writer sends to all series in each batch; every reader must find the same number of samples
/// in each.
#[test]
fn select_while_batches_are_written_never_sees_half_of_one() {
    let sim = env();
    let store = open(
        &sim,
        StoreOptions {
            shards: 4,
            ..options()
        },
    );
    let written = Arc::new(AtomicUsize::new(0));
    let (writer_store, writer_count) = (store.clone(), written.clone());
    let write = move || {
        let names: Vec<String> = (0..SERIES).map(|i| format!("m{i}")).collect();
        for time in 0..BATCHES as i64 {
            let samples = [(time, time as f64)];
            let all: Vec<_> = names.iter().map(|n| (n.as_str(), &samples[..])).collect();
            append(&writer_store, &batch(&all), ALWAYS);
            writer_count.store(time as usize + 1, Ordering::SeqCst);
        }
    };
    sim.env.compute.spawn(JobKind::Background, Box::new(write));
    loop {
        let acked = written.load(Ordering::SeqCst);
        let seen = contents(&store, TimeRange::ALL);
        let counts: Vec<usize> = seen.iter().map(|(_, samples)| samples.len()).collect();
        let first = counts.first().copied().unwrap_or(0);
        assert!(
            counts.iter().all(|n| *n == first),
            "half a batch: {counts:?}"
        );
        assert!(
            first == 0 || counts.len() == SERIES,
            "some series: {}",
            counts.len()
        );
        assert!(first >= acked, "acked {acked}, seen {first}");
        if acked == BATCHES {
            break;
        }
    }
}

/// Several writers share the series: each creates some and appends to those of others.
#[test]
fn append_from_several_threads_stores_every_sample_once() {
    let sim = env();
    let store = open(
        &sim,
        StoreOptions {
            shards: 4,
            ..options()
        },
    );
    let names: Vec<String> = (0..SERIES).map(|i| format!("m{i}")).collect();
    let stored = AtomicUsize::new(0);
    let compute = sim.env.compute.clone();
    compute.for_each(4, &|writer| {
        for round in 0..40 {
            let samples = [(round, writer as f64)];
            let some = names
                .iter()
                .skip(round as usize % 7)
                .step_by(1 + writer % 3);
            let some: Vec<_> = some.map(|n| (n.as_str(), &samples[..])).collect();
            let appended = append(&store, &batch(&some), ALWAYS);
            stored.fetch_add(appended.stored, Ordering::SeqCst);
            store.tick();
        }
    });
    let count = |store: &Store| -> usize {
        let all = contents(store, TimeRange::ALL);
        assert!(
            all.iter()
                .all(|(_, s)| s.windows(2).all(|w| w[0].0 < w[1].0))
        );
        all.iter().map(|(_, samples)| samples.len()).sum()
    };
    let held = contents(&store, TimeRange::ALL);
    assert_eq!(count(&store), stored.load(Ordering::SeqCst));
    store.close().unwrap();
    drop(store);
    sim.disk.crash();
    assert_eq!(contents(&open(&sim, options()), TimeRange::ALL), held);
}
