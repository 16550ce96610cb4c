//! The check of a store: right stores are accepted, wrong ones are refused for their fault, and
//! nothing remains.

use super::s3_server::S3Server;
use super::*;
use crate::sim::{SimFault, SimFaults, SimOutage, SimStore};
use firn_model::env::Clock;
use firn_model::env::sim::SimClock;
use std::time::Duration;

fn options(nonce: u64) -> CheckOptions {
    CheckOptions {
        pause: Duration::ZERO,
        ..CheckOptions::new(nonce)
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SimClock::default())
}

fn sim(seed: u64) -> SimStore {
    let store = SimStore::new(seed);
    store.complete_inline();
    store
}

#[test]
fn store_without_faults_is_accepted_and_left_empty() {
    let store = sim(1);
    let bucket = store.client(SimFaults::none());
    let other = key("check/other");
    BlockingBucket(&bucket).put_new(&other, Bytes::new());
    let report = check_store(&bucket, &clock(), &options(7));
    assert_eq!(report.verdict, StoreVerdict::Accepted, "{report}");
    assert_eq!(report.leftover, None);
    let steps: Vec<_> = report
        .steps
        .iter()
        .map(|s| (s.name, s.operation_count))
        .collect();
    let expected = [
        ("first list", 1),
        // Two HEADs, 16 creations and a read of each key.
        ("race", 40 * 19),
        ("create again", 80),
        // Pages of seven objects.
        ("list", 6),
        ("range", 40),
        ("delete", 120),
        ("last list", 1),
        ("clean up", 1),
    ];
    assert_eq!(steps, expected);
    assert_eq!(store.keys(), [other]);
    let report = canary(&bucket, &clock(), &options(8));
    assert_eq!(report.verdict, StoreVerdict::Accepted, "{report}");
    assert_eq!(store.keys().len(), 1);
}

#[test]
fn store_with_tolerated_faults_is_never_refused() {
    let mut accepted = 0;
    for seed in 0..60 {
        let store = sim(seed);
        let bucket = store.client(SimFaults::tolerated(12));
        let report = check_store(&bucket, &clock(), &options(seed));
        match &report.verdict {
            StoreVerdict::Accepted => accepted += 1,
            StoreVerdict::Unfinished(_) => {}
            StoreVerdict::Refused(reason) => panic!("seed {seed}: {reason}"),
        }
    }
    assert!(accepted > 50, "{accepted} of 60 accepted");
}

#[test]
fn wrong_store_is_refused_for_its_fault() {
    for (fault, part) in [
        (
            SimFault::ConditionStripped,
            "ignores the condition If-None-Match: 16 of 16",
        ),
        (
            SimFault::StaleList,
            "the list is not that of the existing objects",
        ),
    ] {
        let store = sim(3);
        let bucket = store.client(SimFaults::always(fault));
        let report = check_store(&bucket, &clock(), &options(3));
        let StoreVerdict::Refused(reason) = &report.verdict else {
            panic!("{report}")
        };
        assert!(reason.contains(part), "{reason}");
    }
    let store = sim(4);
    let bucket = store.client(SimFaults::always(SimFault::ConditionStripped));
    let report = canary(&bucket, &clock(), &options(4));
    assert!(
        matches!(report.verdict, StoreVerdict::Refused(_)),
        "{report}"
    );
    assert_eq!(store.keys(), []);
}

#[test]
fn condition_that_is_removed_once_is_found_in_every_step() {
    let mut refused = 0;
    for at in 0..20 {
        let store = sim(at);
        let bucket = store.client(SimFaults {
            one_in: 10 + at,
            faults: vec![SimFault::ConditionStripped],
        });
        let report = check_store(&bucket, &clock(), &options(at));
        refused += u32::from(matches!(report.verdict, StoreVerdict::Refused(_)));
    }
    // 600 creations of existing keys, of which some 20 replace the object.
    assert_eq!(refused, 20);
}

#[test]
fn store_in_an_outage_is_neither_accepted_nor_refused() {
    for outage in [SimOutage::Refusing, SimOutage::Silent] {
        let store = sim(5);
        store.set_outage(Some(outage));
        let bucket = store.client(SimFaults::none());
        let report = check_store(&bucket, &clock(), &options(5));
        assert!(
            matches!(report.verdict, StoreVerdict::Unfinished(_)),
            "{report}"
        );
        assert_eq!(report.leftover, None, "nothing was created");
    }
}

#[test]
fn outage_during_the_check_leaves_objects_and_reports_it() {
    let store = SimStore::new(6);
    store.complete_inline();
    let bucket = store.client(SimFaults::none());
    let outage = store.clone();
    // The check reads the clock before each operation.
    let clock: Arc<dyn Clock> = Arc::new(OutageClock(outage, Default::default()));
    let report = check_store(&bucket, &clock, &options(6));
    assert!(
        matches!(report.verdict, StoreVerdict::Unfinished(_)),
        "{report}"
    );
    assert!(report.leftover.is_some());
    assert!(!store.keys().is_empty());
    assert!(report.to_string().contains("may remain: "), "{report}");
}

/// A clock that starts an outage when it was read often enough.
struct OutageClock(SimStore, std::sync::atomic::AtomicUsize);

impl Clock for OutageClock {
    fn now_ms(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        let reads = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if reads == 300 {
            self.0.set_outage(Some(SimOutage::Silent));
        }
        Duration::ZERO
    }
}

#[test]
fn s3_and_folder_are_accepted_and_an_ignored_condition_is_refused() {
    let server = S3Server::start();
    let runtime = runtime();
    let bucket = open(
        "s3://bucket/prod",
        &super::s3::options(&server),
        runtime.handle(),
    );
    let report = check_store(&bucket, &clock(), &options(1));
    assert_eq!(report.verdict, StoreVerdict::Accepted, "{report}");
    assert!(server.state.lock().unwrap().objects.is_empty());
    server.state.lock().unwrap().ignores_condition = true;
    let report = check_store(&bucket, &clock(), &options(2));
    let StoreVerdict::Refused(reason) = &report.verdict else {
        panic!("{report}")
    };
    assert!(
        reason.starts_with("the store ignores the condition If-None-Match"),
        "{reason}"
    );
    assert!(server.state.lock().unwrap().objects.is_empty());
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let bucket = open(&url, &BucketOptions::default(), runtime.handle());
    let report = check_store(&bucket, &clock(), &options(3));
    assert_eq!(report.verdict, StoreVerdict::Accepted, "{report}");
    assert_eq!(
        BlockingBucket(&bucket).list(&list("")).unwrap(),
        ListPage::default()
    );
}
