//! Tests of snapshots: their contents, files that they must not change, and crashes.

use super::*;
use crate::failpoints::with_turns;
use crate::snapshot;
use crate::verify::verify;
use firn_model::env::sim::SimDiskOperation;
use firn_model::env::{Disk, OpenMode};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const MINUTE: i64 = 60_000;
const NAME: &str = "20060102T150405Z-0123456789abcdef";
const SERIES: [&str; 3] = ["a", "b", "c"];

/// Options with pages of a minute, and segments of a few records.
fn small() -> StoreOptions {
    StoreOptions {
        lateness_max_ms: MINUTE,
        window_ms: MINUTE,
        cut_ms: 4 * MINUTE,
        page_segment_bytes: 1_000,
        log_segment_bytes: 400,
        tick_ms: i64::MAX,
        exemplars_max: 10,
        ..options()
    }
}

fn place() -> PathBuf {
    Path::new("/data/snapshots").join(NAME)
}

fn small_at_snapshot() -> StoreOptions {
    StoreOptions {
        dir: place(),
        ..small()
    }
}

/// Sends the batch with this number: a sample of every series.
fn send(store: &Store, number: i64) {
    let sample = [(number * 10_000, number as f64)];
    let all = SERIES.map(|name| (name, &sample[..]));
    assert_eq!(append(store, &batch(&all), ALWAYS).stored, SERIES.len());
}

/// Returns a store with this number of batches, most of them sealed.
fn store_of(sim: &SimEnv, batches: i64) -> Arc<Store> {
    let store = open(sim, small());
    for number in 0..batches {
        send(&store, number);
        store.tick();
    }
    store
}

/// Returns the number of batches in the store. Checks that all series have them, from the first one
/// on.
#[track_caller]
fn batches(store: &Store) -> i64 {
    let found = contents(store, TimeRange::ALL);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.is_empty() || names == SERIES, "{names:?}");
    let count = found.first().map_or(0, |(_, samples)| samples.len()) as i64;
    let expected: Vec<(i64, f64)> = (0..count).map(|n| (n * 10_000, n as f64)).collect();
    for (name, samples) in found {
        assert_eq!(samples, expected, "{name}");
    }
    assert_eq!(store.damages(), []);
    count
}

/// Returns everything below `root` except the lock, with its bytes.
fn files_below(sim: &SimEnv, root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = sim.disk.files().into_iter();
    let inside = files.filter(|path| path.starts_with(root) && !path.ends_with("LOCK"));
    inside
        .map(|path| {
            let bytes = sim.disk.contents(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

#[test]
fn snapshot_is_a_whole_folder_with_all_that_was_acked() {
    let sim = sim::sim_env(1);
    let store = store_of(&sim, 100);
    store.snapshot(NAME, false).unwrap();
    sim.disk.crash();
    let report = verify(&sim.env, &place()).unwrap();
    assert!(report.is_whole() && report.remarks.is_empty(), "{report:?}");
    assert!(report.log_samples > 0 && report.page_samples > 0);
    assert!(!store.parts.blocks.list().blocks.is_empty());
    assert_eq!(batches(&open(&sim, small_at_snapshot())), 100);
    drop(store);
    assert_eq!(batches(&open(&sim, small())), 100);
}

#[test]
fn snapshot_contains_files_of_other_crates_unless_it_has_no_log() {
    let beside = vec![PathBuf::from("rules/state"), PathBuf::from("none/there")];
    let original = Path::new("/data/rules/state");
    let at = |place: PathBuf| place.join("rules/state");
    for (is_running, skips_head) in [(true, false), (true, true), (false, false)] {
        let sim = sim::sim_env(1);
        let store = open(
            &sim,
            StoreOptions {
                beside: beside.clone(),
                ..small()
            },
        );
        send(&store, 0);
        sim.disk.create_dir_all(Path::new("/data/rules")).unwrap();
        let file = sim.disk.open(original, OpenMode::CreateNew).unwrap();
        file.write_all_at(0, b"pending").unwrap();
        if is_running {
            store.snapshot(NAME, skips_head).unwrap()
        } else {
            store.close().unwrap();
            drop(store);
            let made = snapshot::create_snapshot(&sim.env, Path::new("/data"), NAME, &beside);
            assert_eq!(made.unwrap(), place());
        }
        // The copy is independent from here on.
        file.write_all_at(0, b"firing!").unwrap();
        sim.disk.crash();
        let copied = sim.disk.contents(&at(place()));
        let expected = (!skips_head).then(|| b"pending".to_vec());
        assert_eq!(copied, expected, "{is_running} {skips_head}");
        let expected = i64::from(!skips_head);
        assert_eq!(batches(&open(&sim, small_at_snapshot())), expected);
    }
}

/// A file of another component is as old as the log or older: everything it refers to is in the
/// snapshot.
#[test]
fn snapshot_has_no_file_of_another_room_that_is_ahead_of_its_log() {
    let sim = sim::sim_env(1);
    let store = open(
        &sim,
        StoreOptions {
            beside: vec![PathBuf::from("rules/state")],
            ..small()
        },
    );
    sim.disk.create_dir_all(Path::new("/data/rules")).unwrap();
    let path = Path::new("/data/rules/state");
    let file = sim.disk.open(path, OpenMode::CreateNew).unwrap();
    send(&store, 0);
    store.tick();
    // In each turn a batch is sent, and the number of batches is written to the file.
    let sent = Rc::new(Cell::new(1_i64));
    let (count, sender) = (sent.clone(), store.clone());
    let turn = move || {
        send(&sender, count.get());
        count.set(count.get() + 1);
        file.write_all_at(count.get() as u64 - 1, b".").unwrap();
    };
    with_turns(turn, || store.snapshot(NAME, false)).unwrap();
    assert!(sent.get() > 2, "{} turns", sent.get());
    let said = sim.disk.contents(&place().join("rules/state"));
    let said = said.unwrap().len() as i64;
    assert!(said > 0);
    let held = batches(&open(&sim, small_at_snapshot()));
    assert!(said <= held, "the file says {said}, the log has {held}");
}

#[test]
fn snapshot_shares_what_never_changes() {
    let sim = sim::sim_env(1);
    let store = store_of(&sim, 600);
    let free = || sim.env.disk.free_bytes(Path::new("/data")).unwrap();
    sim.disk.set_free_bytes(1 << 30);
    let before = free();
    store.snapshot(NAME, false).unwrap();
    let pages: usize = files_below(&sim, &place().join("pages"))
        .iter()
        .map(|(_, bytes)| bytes.len())
        .sum();
    let all: usize = files_below(&sim, &place())
        .iter()
        .map(|(_, bytes)| bytes.len())
        .sum();
    let taken = (before - free()) as usize;
    // Includes the directory of the last segment of pages.
    assert!(
        taken < all - pages + 1_000,
        "{taken} bytes for {all}, {pages} of pages"
    );
}

#[test]
fn snapshot_without_the_head_has_what_is_sealed_and_goes_on() {
    let sim = sim::sim_env(1);
    let store = store_of(&sim, 100);
    store.snapshot(NAME, true).unwrap();
    let report = verify(&sim.env, &place()).unwrap();
    assert!(report.is_whole() && report.log_samples == 0, "{report:?}");
    let copy = open(&sim, small_at_snapshot());
    let sealed = batches(&copy);
    assert!((50..100).contains(&sealed), "{sealed}");
    for number in sealed..120 {
        send(&copy, number);
        copy.tick();
    }
    drop(copy);
    sim.disk.kill();
    assert_eq!(batches(&open(&sim, small_at_snapshot())), 120);
}

#[test]
fn store_on_a_snapshot_writes_into_no_file_of_the_original() {
    let sim = sim::sim_env(1);
    let store = store_of(&sim, 100);
    store.snapshot(NAME, false).unwrap();
    let original = |sim: &SimEnv| {
        let files = files_below(sim, Path::new("/data")).into_iter();
        files
            .filter(|(path, _)| !path.starts_with(place()))
            .collect::<Vec<_>>()
    };
    let before = original(&sim);
    let copy = open(&sim, small_at_snapshot());
    for number in 100..200 {
        send(&copy, number);
        copy.tick();
    }
    copy.close().unwrap();
    assert!(original(&sim) == before, "the original changed");
    // Changes of the original do not affect the snapshot either.
    drop(copy);
    let before = files_below(&sim, &place());
    for number in 100..200 {
        send(&store, number);
        store.tick();
    }
    store.set_retention(RetentionLimits {
        time_ms: 5 * MINUTE,
        bytes: None,
        percent: None,
        rules: RetentionRules::default(),
    });
    store.close().unwrap();
    assert!(
        files_below(&sim, &place()) == before,
        "the snapshot changed"
    );
    assert_eq!(batches(&open(&sim, small_at_snapshot())), 200);
}

#[test]
fn snapshot_during_appends_has_all_acked_before_and_no_half_of_a_batch() {
    for sync in [
        StoreSyncMode::Always,
        StoreSyncMode::Interval,
        StoreSyncMode::None,
    ] {
        let sim = sim::sim_env(1);
        let options = StoreOptions { sync, ..small() };
        let store = open(&sim, options);
        for number in 0..100 {
            send(&store, number);
            store.tick();
        }
        let sent = Rc::new(Cell::new(100));
        let (writer, count) = (store.clone(), sent.clone());
        let turn = move || {
            send(&writer, count.get());
            count.set(count.get() + 1);
        };
        with_turns(turn, || store.snapshot(NAME, false)).unwrap();
        assert!(sent.get() > 103, "{}", sent.get());
        sim.disk.crash();
        let report = verify(&sim.env, &place()).unwrap();
        assert!(report.is_whole(), "{report:?}");
        let found = batches(&open(&sim, small_at_snapshot()));
        assert!(
            (100..=sent.get()).contains(&found),
            "{found} of {}",
            sent.get()
        );
    }
}

/// Cuts the power at each disk operation of a snapshot.
#[test]
fn snapshot_cut_off_by_power_loss_anywhere_is_whole_or_gone() {
    for skips_head in [false, true] {
        let (mut changes, mut gone, mut made) = (0, 0, 0);
        loop {
            let sim = sim::sim_env(changes);
            let store = store_of(&sim, 40);
            sim.disk.power_off_after(changes);
            let outcome = store.snapshot(NAME, skips_head);
            let was_off = sim.disk.is_off();
            assert_eq!(outcome.is_err(), was_off, "{changes}");
            drop(store);
            sim.disk.crash();
            let store = open(&sim, small());
            assert_eq!(batches(&store), 40, "{changes}");
            let is_there = !files_below(&sim, &place()).is_empty();
            if is_there {
                let found = batches(&open(&sim, small_at_snapshot()));
                assert!(
                    found == 40 || skips_head && found > 20,
                    "{changes}: {found}"
                );
            }
            gone += u32::from(!is_there);
            made += u32::from(is_there && was_off);
            if !was_off {
                assert!(is_there);
                break;
            }
            changes += 1;
        }
        assert!(gone > 30 && made > 0, "{gone} {made}");
    }
}

#[test]
fn snapshot_that_fails_half_way_leaves_nothing_and_the_store_goes_on() {
    for operation in [
        SimDiskOperation::Write,
        SimDiskOperation::Sync,
        SimDiskOperation::Read,
    ] {
        let sim = sim::sim_env(1);
        let store = store_of(&sim, 40);
        let mut failed = 0;
        for count in 0.. {
            sim.disk.fail_after(operation, count);
            if store.snapshot(NAME, false).is_ok() {
                break;
            }
            failed += 1;
            assert_eq!(files_below(&sim, &place()), [], "{operation:?} {count}");
        }
        sim.disk.fail_after(operation, u64::MAX);
        assert!(failed > 2, "{operation:?} {failed}");
        send(&store, 40);
        assert_eq!(batches(&store), 41);
        drop(store);
        sim.disk.kill();
        assert_eq!(batches(&open(&sim, small_at_snapshot())), 40);
        assert_eq!(batches(&open(&sim, small())), 41);
    }
}

#[test]
fn snapshot_needs_a_name_of_its_own() {
    let sim = sim::sim_env(1);
    let store = store_of(&sim, 10);
    let refused = store.snapshot("../mine", false).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid);
    store.snapshot(NAME, false).unwrap();
    let before = files_below(&sim, &place());
    assert!(store.snapshot(NAME, false).is_err());
    assert!(files_below(&sim, &place()) == before, "the first one stays");
}

#[test]
fn start_removes_unfinished_snapshots_and_nothing_else() {
    let sim = sim::sim_env(1);
    let store = store_of(&sim, 10);
    store.snapshot(NAME, false).unwrap();
    drop(store);
    let others = [
        "/data/snapshots/mine",
        "/data/snapshots/20060102T150405Z-0000000000000000",
    ];
    for folder in others.map(Path::new) {
        sim.env.disk.create_dir_all(folder).unwrap();
        sim.disk.overwrite(&folder.join("x"), b"x");
    }
    sim.disk.kill();
    drop(open(&sim, small()));
    let names = sim.env.disk.list(Path::new("/data/snapshots")).unwrap();
    assert_eq!(names, [Path::new(NAME), Path::new("mine")]);
}

#[test]
fn snapshot_of_a_folder_at_rest_has_all_of_it_and_changes_nothing() {
    for is_closed in [false, true] {
        let sim = sim::sim_env(1);
        let store = store_of(&sim, 100);
        if is_closed {
            store.close().unwrap();
        }
        drop(store);
        sim.disk.kill();
        let root = Path::new("/data");
        let before = files_below(&sim, root);
        let made = snapshot::create_snapshot(&sim.env, root, NAME, &[]).unwrap();
        assert_eq!(made, place());
        sim.disk.crash();
        let after = files_below(&sim, root).into_iter();
        let beside: Vec<_> = after
            .filter(|(path, _)| !path.starts_with(place()))
            .collect();
        assert!(beside == before, "the original changed");
        assert!(verify(&sim.env, &place()).unwrap().is_whole());
        assert_eq!(batches(&open(&sim, small_at_snapshot())), 100);
        let used = open(&sim, small());
        let refused = snapshot::create_snapshot(&sim.env, root, NAME, &[]).unwrap_err();
        assert!(refused.message.contains("locked"), "{refused:?}");
        drop(used);
    }
}

/// Takes snapshots between the steps of cuts and merges, which continue in the meantime.
#[test]
fn snapshot_at_any_moment_of_cuts_and_merges_opens_whole() {
    let sim = sim::sim_env(1);
    let store = open(&sim, small());
    for number in 0..200 {
        send(&store, number);
        store.tick();
        let name = format!("20060102T150405Z-{number:016x}");
        let skips_head = number % 4 == 3;
        store.snapshot(&name, skips_head).unwrap();
        let dir = Path::new("/data/snapshots").join(&name);
        let copy = open(&sim, StoreOptions { dir, ..small() });
        let found = batches(&copy);
        let missing = number + 1 - found;
        assert!(
            missing == 0 || skips_head && missing < 30,
            "{number}: {found}"
        );
    }
    let metrics = &store.parts.metrics;
    assert!(metrics.cuts.get() > 5 && metrics.compactions.get() > 0);
}
