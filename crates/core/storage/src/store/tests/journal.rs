//! The journal of another component: it is restored after every start, from its last complete state
//! on, however much of the log is sealed in the meantime.

use super::*;
use crate::failpoints::{StoreFlaw, with_flaw};
use firn_model::log::{JournalMark, JournalRecord};

const MINUTE: i64 = 60_000;

/// Options with which everything possible is sealed and trimmed at once.
fn short() -> StoreOptions {
    StoreOptions {
        window_ms: MINUTE,
        is_jittered: false,
        log_segment_bytes: 1,
        ..options()
    }
}

/// Appends a sample of `a` at `minute` together with the journal.
fn log(store: &Arc<Store>, minute: i64, mark: JournalMark, bytes: &[u8]) {
    let mut batch = batch(&[("a", &[(minute * MINUTE, 1.0)])]);
    batch.set_journal(JournalRecord {
        mark,
        bytes: bytes.to_vec(),
    });
    append(store, &batch, ALWAYS);
    for _ in 0..20 {
        store.tick();
    }
}

/// Returns the journal that a start finds after these marks, each with its number as bytes.
fn found_after(marks: &[JournalMark], is_clean: bool) -> Vec<u8> {
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    for (number, mark) in marks.iter().enumerate() {
        log(&store, number as i64 * 3, *mark, &[number as u8]);
    }
    if is_clean {
        store.close().unwrap();
    }
    drop(store);
    sim.disk.crash();
    let store = open(&sim, short());
    assert_eq!(contents(&store, TimeRange::ALL)[0].1.len(), marks.len());
    let found = store.take_journal().concat();
    assert!(store.take_journal().is_empty());
    found
}

const MARKS: [JournalMark; 7] = [
    JournalMark::Whole,
    JournalMark::Continues,
    JournalMark::Begins,
    JournalMark::Continues,
    JournalMark::Complete,
    JournalMark::Continues,
    JournalMark::Begins,
];

#[test]
fn journal_comes_back_from_where_it_is_whole() {
    for is_clean in [false, true] {
        assert_eq!(found_after(&MARKS[..2], is_clean), [0, 1]);
        assert_eq!(found_after(&MARKS[..4], is_clean), [0, 1, 2, 3]);
        assert_eq!(found_after(&MARKS, is_clean), [2, 3, 4, 5, 6]);
        assert_eq!(found_after(&MARKS[1..2], is_clean), [0]);
    }
}

#[test]
fn journal_that_ended_lets_the_log_go() {
    let ended = [
        JournalMark::Whole,
        JournalMark::Continues,
        JournalMark::Ends,
    ];
    for is_clean in [false, true] {
        assert!(found_after(&ended, is_clean).is_empty());
    }
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    for (number, mark) in ended.iter().enumerate() {
        log(&store, number as i64 * 3, *mark, b"x");
    }
    store.close().unwrap();
    let is_log = |file: &std::path::PathBuf| file.to_string_lossy().contains("wal");
    assert!(
        !sim.disk.files().iter().any(is_log),
        "{:?}",
        sim.disk.files()
    );
}

#[test]
fn log_trimmed_although_its_journal_is_needed_is_caught() {
    let found = with_flaw(StoreFlaw::TrimsJournal, || found_after(&MARKS, false));
    assert_ne!(found, [2, 3, 4, 5, 6]);
}

#[test]
fn batch_with_a_journal_is_not_refused_and_one_without_is() {
    let sim = sim::sim_env(1);
    let options = StoreOptions {
        backlog_bytes_max: 0,
        window_ms: 1 << 40,
        ..options()
    };
    let store = open(&sim, options);
    log(&store, 0, JournalMark::Whole, b"x");
    let tenant = TenantId::anonymous();
    assert!(store.check_append(&tenant).is_err());
    let refused = store
        .append(&tenant, &batch(&[("a", &[(5, 1.0)])]), ALWAYS)
        .wait();
    assert!(refused.is_err());
    log(&store, 1, JournalMark::Continues, b"y");
    let other = TenantId::new("other").unwrap();
    assert!(store.check_append(&other).is_err());
}
