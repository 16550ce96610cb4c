//! Concurrent batches, reads, sealing, eviction and removal in one store.

use super::check;
use crate::failpoints::StoreFlaw;
use crate::store::{Store, StoreOptions};
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::sim::{self, SimEnv};
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Append, AppendBounds, Select, SelectRequest, Ticket};
use firn_model::tenant::TenantId;
use shuttle::thread::{spawn, yield_now};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

fn options() -> StoreOptions {
    StoreOptions {
        shards: 2,
        window_ms: 10 * MINUTE,
        retention_ms: 3 * HOUR,
        // Pages are deleted only by retention.
        cut_ms: 1_000 * HOUR,
        // Prevents ticks by data time before the threads that race with them.
        tick_ms: i64::MAX,
        ..StoreOptions::new("/data")
    }
}

fn open(sim: &SimEnv) -> Arc<Store> {
    Store::open(sim.env.clone(), options()).unwrap()
}

/// Waits like a sender: another thread may be the one that makes the batch durable.
fn wait(mut ticket: Ticket) -> usize {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut ticket).poll(&mut context) {
            Poll::Ready(appended) => return appended.unwrap().stored,
            Poll::Pending => yield_now(),
        }
    }
}

/// Sends one sample at `time` for each series. Returns the number of stored samples.
fn send(store: &Store, names: &[&str], time: i64) -> usize {
    let mut batch = Batch::default();
    for name in names {
        let labels = Labels::from_pairs([("__name__", *name)]);
        batch.push_series(labels.as_ref(), &[(time, time as f64)]);
    }
    let bounds = AppendBounds::up_to(i64::MAX);
    wait(store.append(&TenantId::anonymous(), &batch, bounds))
}

/// Returns the times of each series. Panics if a name is there twice.
fn contents(store: &Store) -> BTreeMap<String, Vec<i64>> {
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: &[],
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    let selection = store.select(request).unwrap();
    let mut columns = SeriesBatch::default();
    selection.read(0..selection.len(), &mut columns).unwrap();
    let mut contents = BTreeMap::new();
    for i in 0..selection.len() {
        let name = selection.labels(i).get("__name__").to_vec();
        let name = String::from_utf8(name).unwrap();
        let times = columns.series(i).times.to_vec();
        assert_eq!(contents.insert(name, times), None, "there twice");
    }
    contents
}

#[test]
fn store_reader_sees_all_of_a_batch_or_nothing_while_it_is_sealed() {
    check(300, &[StoreFlaw::ReadsPagesFirst], || {
        let sim = sim::sim_env(1);
        let store = open(&sim);
        let writer = {
            let store = store.clone();
            spawn(move || {
                for time in 0..4 {
                    send(&store, &["a", "b", "c"], time * 15 * MINUTE);
                }
            })
        };
        let sealer = {
            let store = store.clone();
            spawn(move || (0..4).for_each(|_| store.tick()))
        };
        let readers = (0..2).map(|_| {
            let store = store.clone();
            spawn(move || {
                for _ in 0..3 {
                    let seen = contents(&store);
                    let first = seen.values().next().cloned().unwrap_or_default();
                    assert!(seen.values().all(|times| *times == first), "{seen:?}");
                    assert!([0, 3].contains(&seen.len()), "{seen:?}");
                    let whole = first.iter().zip(0..).all(|(t, n)| *t == n * 15 * MINUTE);
                    assert!(whole, "{first:?}");
                }
            })
        });
        let threads: Vec<_> = readers.chain([writer, sealer]).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(contents(&store).values().all(|times| times.len() == 4));
    });
}

/// Sends samples to two series that were silent up to `end`, while they are evicted or removed
/// because data time reaches `newest`. The samples must be found once, before and after a restart.
fn send_while_they_leave(end: i64, newest: i64) {
    let sim = sim::sim_env(1);
    let store = open(&sim);
    send(&store, &["old", "older"], 0);
    for time in (HOUR / 2..end).step_by(HOUR as usize / 2) {
        send(&store, &["new"], time);
        (0..3).for_each(|_| store.tick());
    }
    send(&store, &["new"], newest);
    let keeper = {
        let store = store.clone();
        spawn(move || (0..3).for_each(|_| store.tick()))
    };
    let writers = ["old", "older"].map(|name| {
        let store = store.clone();
        spawn(move || {
            let stored = send(&store, &[name], newest - MINUTE);
            assert_eq!(stored + send(&store, &[name], newest), 2, "{name}");
        })
    });
    for thread in writers.into_iter().chain([keeper]) {
        thread.join().unwrap();
    }
    let check = |store: &Store| {
        let seen = contents(store);
        for name in ["old", "older"] {
            let of_name = seen.get(name).into_iter().flatten();
            let late: Vec<i64> = of_name.copied().filter(|t| *t > 0).collect();
            assert_eq!(late, [newest - MINUTE, newest], "{name}");
        }
    };
    check(&store);
    drop(store);
    sim.disk.crash();
    check(&open(&sim));
}

#[test]
fn series_that_gets_a_sample_while_it_is_evicted_is_found_once() {
    let flaws = [StoreFlaw::EvictsAppending, StoreFlaw::LosesEvicted];
    let newest = HOUR + HOUR / 2;
    check(150, &flaws, move || send_while_they_leave(newest, newest));
}

#[test]
fn series_that_gets_a_sample_while_it_is_removed_is_found_once() {
    let leave = || send_while_they_leave(5 * HOUR, 6 * HOUR);
    check(150, &[StoreFlaw::RemovesUnlocked], leave);
}
