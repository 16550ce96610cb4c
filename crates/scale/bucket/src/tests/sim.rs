//! The simulated store: reproducible, linearizable without faults, and each fault as described.

use super::*;
use crate::sim::{SimBucket, SimFault, SimFaults, SimOutage, SimStore};
use firn_model::env::sim::SimRng;
use std::sync::Mutex;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// Starts a creation and returns where its result will be.
fn create(bucket: &SimBucket, name: &str, content: &str) -> Arc<Mutex<Option<Creation>>> {
    let result = Arc::new(Mutex::new(None));
    let into = result.clone();
    let done = move |creation| *into.lock().unwrap() = Some(creation);
    bucket.put_new(&key(name), content.to_owned().into(), Box::new(done));
    result
}

fn text(store: &SimStore, name: &str) -> Option<String> {
    let object = store.object(&key(name))?;
    Some(String::from_utf8(object.to_vec()).unwrap())
}

#[test]
fn operations_without_faults_have_their_effect() {
    let store = SimStore::new(1);
    store.complete_inline();
    check_operations(&store.client(SimFaults::none()));
}

#[test]
fn operation_completes_only_when_its_events_run() {
    let store = SimStore::new(2);
    let bucket = store.client(SimFaults::none());
    let result = create(&bucket, "a", "x");
    assert_eq!((text(&store, "a"), store.event_count()), (None, 1));
    let applied = store.next_event().unwrap();
    assert_eq!(store.run_until(applied - Duration::from_nanos(1)), 0);
    assert_eq!(store.run_until(applied), 1);
    assert_eq!(text(&store, "a").as_deref(), Some("x"));
    assert_eq!(*result.lock().unwrap(), None, "applied, and not answered");
    assert_eq!(store.run_until(LONG), 1);
    assert_eq!(*result.lock().unwrap(), Some(Creation::Stored));
    assert_eq!((store.now(), store.next_event()), (LONG, None));
}

#[test]
fn creation_with_a_fault_has_its_result_and_its_effect() {
    // The content when the answer arrives, and in the end.
    for (fault, expected, answered, finally) in [
        (SimFault::AppliedTimeout, "ambiguous", "new", "new"),
        (SimFault::AppliedLate, "ambiguous", "", "new"),
        (SimFault::Lost, "ambiguous", "", ""),
        (SimFault::AppliedExists, "exists", "new", "new"),
        (SimFault::Conflict, "ambiguous", "", ""),
        (SimFault::ErrorBefore, "ambiguous", "", ""),
        (SimFault::ErrorAfter, "ambiguous", "new", "new"),
        (SimFault::SlowDown, "ambiguous", "", ""),
        (SimFault::ConditionStripped, "stored", "new", "new"),
    ] {
        for seed in 0..20 {
            let store = SimStore::new(seed);
            let bucket = store.client(SimFaults::none());
            store.fail_next(fault);
            let result = create(&bucket, "a", "new");
            while result.lock().unwrap().is_none() {
                assert!(store.run_nth(0), "{fault:?}");
            }
            let found = text(&store, "a").unwrap_or_default();
            assert_eq!(found, answered, "{fault:?} seed {seed}");
            store.run_all();
            assert_eq!(text(&store, "a").unwrap_or_default(), finally, "{fault:?}");
            assert_eq!(
                kind(result.lock().unwrap().as_ref().unwrap()).0,
                expected,
                "{fault:?}"
            );
            let again = create(&bucket, "a", "other");
            store.run_all();
            let is_stored = *again.lock().unwrap() == Some(Creation::Stored);
            assert_eq!(
                is_stored,
                finally.is_empty(),
                "the fault was for one operation"
            );
        }
    }
}

#[test]
fn stripped_condition_replaces_the_object() {
    let store = SimStore::new(1);
    store.complete_inline();
    let bucket = store.client(SimFaults::none());
    create(&bucket, "a", "old");
    store.fail_next(SimFault::ConditionStripped);
    let result = create(&bucket, "a", "new");
    assert_eq!(*result.lock().unwrap(), Some(Creation::Stored));
    assert_eq!(text(&store, "a").as_deref(), Some("new"));
}

#[test]
fn read_list_and_delete_have_their_faults() {
    let store = SimStore::new(1);
    store.complete_inline();
    let bucket = store.client(SimFaults::none());
    create(&bucket, "a/1", "x");
    store.run_until(LONG);
    create(&bucket, "a/2", "x");
    let blocking = BlockingBucket(&bucket);
    store.fail_next(SimFault::CutBody);
    assert_eq!(
        blocking.head(&key("a/1")).unwrap().unwrap().bytes,
        1,
        "not a fault of HEAD"
    );
    let error = blocking.get(&key("a/1")).unwrap_err();
    assert_eq!(error.failure, BucketFailure::Damaged);
    store.fail_next(SimFault::StaleList);
    assert_eq!(keys(&blocking.list(&list("a/")).unwrap()), ["a/1"]);
    assert_eq!(keys(&blocking.list(&list("a/")).unwrap()), ["a/1", "a/2"]);
    store.fail_next(SimFault::ErrorAfter);
    assert_eq!(
        blocking.delete(&key("a/2")).unwrap_err().failure,
        BucketFailure::Server
    );
    assert_eq!(keys(&blocking.list(&list("a/")).unwrap()), ["a/1"]);
    store.fail_next(SimFault::StaleList);
    let stale = blocking.list(&list("a/")).unwrap();
    assert_eq!(
        keys(&stale),
        ["a/1"],
        "the deleted object is younger than the lag"
    );
}

#[test]
fn outage_refuses_or_swallows_operations_until_it_ends() {
    let store = SimStore::new(1);
    store.complete_inline();
    let bucket = store.client(SimFaults::none());
    for (outage, expected) in [
        (
            SimOutage::Refusing,
            ("refused", Some(BucketFailure::Connection)),
        ),
        (
            SimOutage::Silent,
            ("ambiguous", Some(BucketFailure::Timeout)),
        ),
    ] {
        store.set_outage(Some(outage));
        let result = create(&bucket, "a", "x");
        assert_eq!(kind(result.lock().unwrap().as_ref().unwrap()), expected);
        assert!(BlockingBucket(&bucket).list(&list("")).is_err());
        store.set_outage(None);
        assert_eq!(BlockingBucket(&bucket).get(&key("a")), Ok(None));
    }
}

#[test]
fn crashed_client_gets_no_answers_and_its_operations_may_take_effect() {
    let store = SimStore::new(1);
    let bucket = store.client(SimFaults::none());
    let result = create(&bucket, "a", "x");
    bucket.crash();
    store.run_all();
    assert_eq!(*result.lock().unwrap(), None);
    assert_eq!(text(&store, "a").as_deref(), Some("x"));
}

/// Runs three writers for the same keys, each of which resolves ambiguous results by reading, and
/// returns a log of all results. Checks that each key has exactly one writer that knows it.
fn history(seed: u64) -> Vec<String> {
    let store = SimStore::new(seed);
    let rng = SimRng::new(seed ^ 0x5eed);
    let log = Arc::new(Mutex::new(Vec::new()));
    let writers = [0, 1, 2].map(|_| store.client(SimFaults::tolerated(4)));
    for index in 0..10 {
        let name = format!("log/{index}");
        let results: Vec<_> = writers
            .iter()
            .enumerate()
            .map(|(writer, bucket)| create(bucket, &name, &format!("{writer}")))
            .collect();
        // Any order of events, not only that of time.
        while results
            .iter()
            .any(|result| result.lock().unwrap().is_none())
        {
            let count = store.event_count() as u64;
            assert!(store.run_nth(rng.next_below(count) as usize));
        }
        let found = text(&store, &name);
        let results: Vec<Creation> = results
            .iter()
            .map(|result| result.lock().unwrap().clone().unwrap())
            .collect();
        let stored = results
            .iter()
            .filter(|result| **result == Creation::Stored)
            .count();
        assert!(stored <= 1, "seed {seed}: {results:?}");
        if let Some(winner) = results
            .iter()
            .position(|result| *result == Creation::Stored)
        {
            assert_eq!(found, Some(format!("{winner}")), "seed {seed}");
        }
        if let Some(found) = &found {
            let owner = &results[found.parse::<usize>().unwrap()];
            assert!(!matches!(owner, Creation::Refused(_)), "seed {seed}");
        }
        log.lock()
            .unwrap()
            .push(format!("{name} {found:?} {results:?}"));
    }
    store.run_all();
    for writer in &writers {
        writer.crash();
    }
    let log = log.lock().unwrap();
    log.clone()
}

#[test]
fn history_depends_on_the_seed_alone() {
    let mut distinct = std::collections::BTreeSet::new();
    for seed in 0..150 {
        let first = history(seed);
        assert_eq!(first, history(seed), "seed {seed}");
        distinct.insert(first);
    }
    assert!(distinct.len() > 140, "{} histories", distinct.len());
}

#[test]
fn call_back_may_start_the_next_operation() {
    let store = SimStore::new(9);
    store.complete_inline();
    let bucket = Arc::new(store.client(SimFaults::none()));
    fn next(bucket: &Arc<SimBucket>, index: u32) {
        if index == 100 {
            return;
        }
        let again = bucket.clone();
        let done = move |creation| {
            assert_eq!(creation, Creation::Stored);
            next(&again, index + 1);
        };
        bucket.put_new(&key(&format!("a/{index}")), Bytes::new(), Box::new(done));
    }
    next(&bucket, 0);
    assert_eq!(store.keys().len(), 100);
}
