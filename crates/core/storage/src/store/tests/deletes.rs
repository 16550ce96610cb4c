//! Deletes in a working store: the hidden samples of head, pages, late samples and blocks through
//! restarts, cuts and merges; samples stored after a delete; the freed space.

use super::*;
use crate::blocks::BlockKind;
use crate::failpoints::{self, StoreFlaw, with_flaw};
use firn_model::error::ErrorKind;
use firn_model::store::DeleteRequest;
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// Samples of a series, one every minute of ten hours.
const SAMPLES: i64 = 10 * 60;

fn by_name(name: &str) -> Matcher {
    Matcher::new("__name__", MatchOp::Equal, name.as_bytes()).unwrap()
}

fn try_delete(store: &Store, sets: &[Vec<Matcher>], range: TimeRange) -> Result<(), Error> {
    store.delete_series(DeleteRequest {
        tenant: &TenantId::anonymous(),
        sets,
        range,
        cancel: &CancelToken::new(),
        budget: &Budget::new("delete", usize::MAX),
    })
}

fn delete(store: &Store, name: &str, range: TimeRange) {
    try_delete(store, &[vec![by_name(name)]], range).unwrap();
}

fn small() -> StoreOptions {
    StoreOptions {
        late_window_ms: 100 * HOUR,
        retention_ms: i64::MAX,
        ..options()
    }
}

/// A store with ten hours of the series `a` and `b`: in blocks, pages and head, with late samples
/// in all places.
struct Filled {
    sim: SimEnv,
    store: Option<Arc<Store>>,
    options: StoreOptions,
}

impl Filled {
    fn new() -> Self {
        let sim = sim::sim_env(1);
        let options = small();
        let store = open(&sim, options.clone());
        for minute in 0..SAMPLES {
            let time = minute * MINUTE;
            let samples = [(time, minute as f64)];
            // Every tenth sample of `b` arrives three hours late.
            let late = [(time - 3 * HOUR, -1.0)];
            let mut sent = vec![("a", &samples[..])];
            if minute % 10 != 0 {
                sent.push(("b", &samples));
            } else if minute >= 180 {
                sent.push(("b", &late));
            }
            append(&store, &batch(&sent), ALWAYS);
            store.tick();
        }
        (0..300).for_each(|_| store.tick());
        // After the cut, so that no merge takes it.
        append(&store, &batch(&[("b", &[(530 * MINUTE, -2.0)])]), ALWAYS);
        let flusher = store.maintenance.workers().flusher;
        flusher.flush(&mut lock(&store.maintenance.state)).unwrap();
        append(&store, &batch(&[("b", &[(520 * MINUTE, -3.0)])]), ALWAYS);
        let blocks = store.parts.blocks.list().blocks;
        let has = |kind| blocks.iter().any(|block| block.kind == kind);
        assert!(has(BlockKind::Main) && has(BlockKind::Late), "{blocks:?}");
        let late = store.parts.head.oldest_late_sequence();
        assert!(late.is_some(), "late samples in the head");
        Self {
            sim,
            store: Some(store),
            options,
        }
    }

    fn store(&self) -> Arc<Store> {
        self.store.clone().unwrap()
    }

    fn times(&self, name: &str) -> Vec<i64> {
        let found = contents_of(&*select(&self.store(), &[by_name(name)], TimeRange::ALL));
        let samples = found.into_iter().flat_map(|(_, samples)| samples);
        samples.map(|(time, _)| time).collect()
    }

    /// Restarts after a power loss.
    fn crash(&mut self) {
        self.store = None;
        self.sim.disk.crash();
        self.store = Some(open(&self.sim, self.options.clone()));
    }

    /// Restarts after a clean stop.
    fn restart(&mut self) {
        self.store().close().unwrap();
        self.store = None;
        self.store = Some(open(&self.sim, self.options.clone()));
    }

    /// Appends hours of another series, so that everything older gets into blocks that are merged.
    fn go_on(&mut self, hours: i64) {
        let store = self.store();
        let newest = store.newest_time(&TenantId::anonymous()).unwrap();
        for minute in 1..=hours * 60 {
            append(
                &store,
                &batch(&[("c", &[(newest + minute * MINUTE, 0.0)])]),
                ALWAYS,
            );
            store.tick();
        }
        (0..300).for_each(|_| store.tick());
    }

    fn names(&self, range: TimeRange) -> Vec<String> {
        let request = SelectRequest {
            tenant: &TenantId::anonymous(),
            matchers: &[],
            range,
            newest_only: false,
            cancel: &CancelToken::new(),
            budget: &Budget::new("query", usize::MAX),
            series: &SeriesLimit::unlimited(),
            span: None,
        };
        let store = self.store();
        let selection = store.select_labels(request).unwrap();
        let name = |i| String::from_utf8(selection.labels(i).get("__name__").to_vec()).unwrap();
        let mut names: Vec<String> = (0..selection.len()).map(name).collect();
        names.sort();
        let values = store.label_values("__name__", request).unwrap();
        let values = values
            .into_iter()
            .map(|value| String::from_utf8(value).unwrap());
        assert_eq!(values.collect::<Vec<_>>(), names, "{range:?}");
        let labels = store.label_names(request).unwrap();
        assert_eq!(labels.is_empty(), names.is_empty(), "{range:?}");
        names
    }

    fn tombstone_files(&self) -> Vec<PathBuf> {
        let names = self
            .sim
            .env
            .disk
            .list(&self.store().parts.dir.blocks())
            .unwrap();
        let is_it = |name: &PathBuf| name.to_string_lossy().starts_with("TOMBSTONES");
        names.into_iter().filter(is_it).collect()
    }
}

fn minutes(first: i64, end: i64) -> TimeRange {
    TimeRange::new(first * MINUTE, end * MINUTE - 1)
}

#[test]
fn deleted_samples_are_gone_at_once_and_after_restarts_merges_and_cuts() {
    for range in [
        TimeRange::ALL,
        minutes(0, 590),
        minutes(30, 31),
        minutes(100, 570),
    ] {
        let mut filled = Filled::new();
        let kept = |times: Vec<i64>| -> Vec<i64> {
            times
                .into_iter()
                .filter(|time| !range.contains(*time))
                .collect()
        };
        let (of_a, of_b) = (filled.times("a"), kept(filled.times("b")));
        assert!(of_b.len() < filled.times("b").len(), "{range:?}");
        delete(&filled.store(), "b", range);
        let check = |filled: &Filled, when: &str| {
            assert_eq!(filled.times("a"), of_a, "{range:?} {when}");
            assert_eq!(filled.times("b"), of_b, "{range:?} {when}");
        };
        check(&filled, "at once");
        filled.crash();
        check(&filled, "after a crash");
        filled.go_on(1);
        check(&filled, "an hour later");
        filled.restart();
        check(&filled, "after a clean stop");
        filled.go_on(14);
        check(&filled, "after cuts and merges");
        filled.store().clean_tombstones().unwrap();
        check(&filled, "after the cleanup");
        assert_eq!(filled.tombstone_files(), Vec::<PathBuf>::new(), "{range:?}");
        filled.crash();
        check(&filled, "at the end");
    }
}

#[test]
fn series_without_a_sample_left_in_the_range_is_not_listed() {
    let mut filled = Filled::new();
    delete(&filled.store(), "b", minutes(100, 200));
    let check = |filled: &Filled, when: &str| {
        let cases = [
            (TimeRange::ALL, vec!["a", "b"]),
            (minutes(110, 120), vec!["a"]),
            (minutes(100, 200), vec!["a"]),
            (minutes(90, 120), vec!["a", "b"]),
            (minutes(199, 202), vec!["a", "b"]),
        ];
        for (range, names) in cases {
            assert_eq!(filled.names(range), names, "{range:?} {when}");
        }
    };
    check(&filled, "at once");
    filled.crash();
    check(&filled, "after a crash");
    filled.store().clean_tombstones().unwrap();
    assert_eq!(filled.names(TimeRange::ALL), ["a", "b"]);
    delete(&filled.store(), "b", TimeRange::ALL);
    assert_eq!(filled.names(TimeRange::ALL), ["a"]);
    filled.crash();
    assert_eq!(filled.names(TimeRange::ALL), ["a"]);
}

#[test]
fn whole_series_leave_the_index_and_the_disk() {
    let mut filled = Filled::new();
    delete(&filled.store(), "b", TimeRange::ALL);
    delete(&filled.store(), "a", TimeRange::ALL);
    assert_eq!(filled.names(TimeRange::ALL), Vec::<String>::new());
    filled.store().clean_tombstones().unwrap();
    filled.go_on(8);
    let stored = filled.store().parts.blocks.list().blocks;
    let samples: u64 = stored.iter().map(|block| block.samples).sum();
    let series: u64 = stored.iter().map(|block| block.series).sum();
    assert_eq!(series, stored.len() as u64, "only c is stored");
    assert!(samples <= 8 * 60, "{samples}");
    (0..600).for_each(|_| filled.store().tick());
    assert_eq!(
        filled.store().parts.head.index.series_count(),
        1,
        "only c is indexed"
    );
    filled.restart();
    filled.store().tick();
    assert_eq!(filled.tombstone_files(), Vec::<PathBuf>::new());
}

#[test]
fn samples_that_arrive_after_the_delete_are_kept() {
    let mut filled = Filled::new();
    let newest = (SAMPLES - 1) * MINUTE;
    delete(&filled.store(), "b", TimeRange::ALL);
    let sent = [
        // The time and value of a sample in a block, of a late one, of the newest one, and a new
        // sample.
        (7 * MINUTE, 7.0),
        (10 * MINUTE, -1.0),
        (newest - MINUTE / 2, 1.0),
        (newest, (SAMPLES - 1) as f64),
        (newest + MINUTE, 2.0),
    ];
    let appended = append(&filled.store(), &batch(&[("b", &sent)]), ALWAYS);
    assert_eq!(appended.stored, sent.len());
    let check = |filled: &Filled, when: &str| {
        let found = contents_of(&*select(&filled.store(), &[by_name("b")], TimeRange::ALL));
        assert_eq!(found, [("b".to_owned(), sent.to_vec())], "{when}");
    };
    check(&filled, "at once");
    let newest_only = select_of(&filled.store(), &[by_name("b")], (TimeRange::ALL, true));
    let found = contents_of(&*newest_only);
    assert_eq!(found[0].1.last(), sent.last());
    filled.crash();
    check(&filled, "after a crash");
    filled.go_on(14);
    check(&filled, "after merges");
    filled.store().clean_tombstones().unwrap();
    check(&filled, "after the cleanup");
}

#[test]
fn newest_sample_left_is_found_if_only_it_is_needed() {
    let filled = Filled::new();
    let last = SAMPLES - 1;
    delete(&filled.store(), "a", minutes(last - 2, SAMPLES));
    let range = minutes(last - 8, SAMPLES);
    let found = contents_of(&*select_of(&filled.store(), &[by_name("a")], (range, true)));
    assert_eq!(
        found[0].1.last(),
        Some(&((last - 3) * MINUTE, (last - 3) as f64))
    );
}

#[test]
fn several_sets_are_united_and_no_set_deletes_nothing() {
    let filled = Filled::new();
    try_delete(&filled.store(), &[], TimeRange::ALL).unwrap();
    try_delete(&filled.store(), &[vec![by_name("a")]], TimeRange::new(5, 4)).unwrap();
    try_delete(&filled.store(), &[vec![by_name("none")]], TimeRange::ALL).unwrap();
    assert_eq!(filled.tombstone_files(), Vec::<PathBuf>::new());
    let both = vec![by_name("a"), by_name("b")];
    try_delete(&filled.store(), &[both], TimeRange::ALL).unwrap();
    assert_eq!(filled.names(TimeRange::ALL), ["a", "b"]);
    let each = [vec![by_name("a")], vec![by_name("b")], vec![by_name("a")]];
    try_delete(&filled.store(), &each, TimeRange::ALL).unwrap();
    assert_eq!(filled.names(TimeRange::ALL), Vec::<String>::new());
}

/// A batch whose record is not durable when the series are deleted. Returns the samples that are
/// found once it is.
fn with_batch_in_flight() -> Vec<(i64, f64)> {
    let jobs = Arc::new(sim::DeferredCompute::default());
    let sim = sim::sim_env_with(1, jobs.clone());
    let store = open(&sim, small());
    let ticket = store.append(
        &TenantId::anonymous(),
        &batch(&[("a", &[(1_000, 1.0)])]),
        ALWAYS,
    );
    jobs.run();
    ticket.wait().unwrap();
    let later = [(500, 0.5), (2_000, 2.0), (3_000, 3.0)];
    let ticket = store.append(&TenantId::anonymous(), &batch(&[("a", &later)]), ALWAYS);
    delete(&store, "a", TimeRange::ALL);
    jobs.run();
    ticket.wait().unwrap();
    drop(store);
    sim.disk.crash();
    let store = Store::open(sim.env.clone(), small()).unwrap();
    let found = contents_of(&*select(&store, &[], TimeRange::ALL));
    found.into_iter().flat_map(|(_, samples)| samples).collect()
}

#[test]
fn batch_in_flight_is_not_deleted() {
    assert_eq!(
        with_batch_in_flight(),
        [(500, 0.5), (2_000, 2.0), (3_000, 3.0)]
    );
    let found = with_flaw(StoreFlaw::DeletesLaterSamples, with_batch_in_flight);
    assert_eq!(
        found,
        [(500, 0.5)],
        "the flaw hides samples that were stored later"
    );
}

/// Deletes a late sample and crashes. Returns whether it is found again.
fn late_sample_returns() -> bool {
    let sim = sim::sim_env(1);
    let store = open(&sim, small());
    append(&store, &batch(&[("a", &[(HOUR, 1.0)])]), ALWAYS);
    append(&store, &batch(&[("a", &[(1_000, 2.0)])]), ALWAYS);
    delete(&store, "a", TimeRange::new(0, 2_000));
    // Its batch number is lower than that of the deleted one after the next start.
    drop(store);
    sim.disk.crash();
    let store = open(&sim, small());
    append(&store, &batch(&[("a", &[(1_500, 3.0)])]), ALWAYS);
    drop(store);
    sim.disk.crash();
    let store = open(&sim, small());
    let found = contents(&store, TimeRange::ALL).swap_remove(0).1;
    assert!(found.contains(&(1_500, 3.0)) && found.contains(&(HOUR, 1.0)));
    found.contains(&(1_000, 2.0))
}

#[test]
fn deleted_late_sample_stays_deleted_in_the_log() {
    assert!(!late_sample_returns());
    assert!(with_flaw(
        StoreFlaw::ReplaysDeletedLate,
        late_sample_returns
    ));
}

/// The work during which a series is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MovingWork {
    Cut,
    Merge,
}

/// Deletes `b` while its samples are moved to another block. Returns whether any is found then.
fn deleted_during(work: MovingWork) -> bool {
    let filled = Filled::new();
    let store = filled.store();
    let is_deleted = Rc::new(Cell::new(false));
    let (deleter, deleted) = (store.clone(), is_deleted.clone());
    let act = move || {
        let is_merging = deleter.parts.metrics.merging.stats().is_running;
        if work == MovingWork::Merge && is_merging && !deleted.replace(true) {
            delete(&deleter, "b", TimeRange::ALL);
        }
    };
    let newest = store.newest_time(&TenantId::anonymous()).unwrap();
    failpoints::with_turns(act, || {
        for minute in 1..=14 * 60 {
            let samples = [(newest + minute * MINUTE, 0.0)];
            append(&store, &batch(&[("c", &samples)]), ALWAYS);
            store.tick();
            let is_writing = lock(&store.maintenance.state).cut.is_writing();
            if work == MovingWork::Cut && is_writing && !is_deleted.replace(true) {
                delete(&store, "b", TimeRange::ALL);
            }
        }
    });
    assert!(is_deleted.get(), "{work:?}");
    !filled.times("b").is_empty()
}

#[test]
fn snapshot_has_the_tombstones() {
    let filled = Filled::new();
    delete(&filled.store(), "b", TimeRange::ALL);
    let name = "20060102T150405Z-0123456789abcdef";
    filled.store().snapshot(name, false).unwrap();
    let copy = StoreOptions {
        dir: filled.store().parts.dir.snapshots().join(name),
        ..filled.options.clone()
    };
    let copy = open(&filled.sim, copy);
    let names: Vec<String> = contents(&copy, TimeRange::ALL)
        .into_iter()
        .map(|s| s.0)
        .collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn delete_in_a_block_that_cannot_be_read_is_rejected() {
    let mut filled = Filled::new();
    let block = filled.store().parts.blocks.list().blocks[0].clone();
    let dir = filled.store().parts.blocks.block_dir(block.id);
    filled.store = None;
    for name in ["index", "index.copy", "meta.json"] {
        filled.sim.disk.overwrite(&dir.join(name), b"damaged");
    }
    filled.store = Some(open(&filled.sim, filled.options.clone()));
    let sets = [vec![by_name("a")]];
    let refused = try_delete(&filled.store(), &sets, block.range).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Corrupt);
    assert!(refused.message.contains(&block.id.to_string()), "{refused}");
    let behind = TimeRange::new(block.range.max + 1, i64::MAX);
    try_delete(&filled.store(), &sets, behind).unwrap();
}

#[test]
fn damaged_tombstones_are_reported_and_everything_else_works() {
    let mut filled = Filled::new();
    let all = filled.times("b");
    delete(&filled.store(), "b", TimeRange::ALL);
    let path = filled
        .store()
        .parts
        .dir
        .blocks()
        .join(&filled.tombstone_files()[0]);
    filled.store = None;
    let sound = filled.sim.disk.contents(&path).unwrap();
    for at in [0, sound.len() / 2, sound.len() - 1] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        filled.sim.disk.overwrite(&path, &bytes);
        let found = crate::verify::verify(&filled.sim.env, std::path::Path::new("/data")).unwrap();
        assert!(
            found.findings.iter().any(|f| f.damage.file == path),
            "{found:?}"
        );
    }
    filled.store = Some(open(&filled.sim, filled.options.clone()));
    let damages = filled.store().damages();
    assert!(
        damages.iter().any(|damage| damage.file == path),
        "{damages:?}"
    );
    // Late samples of the head were in the log, which still has them.
    assert_eq!(filled.times("b"), all);
    delete(&filled.store(), "b", TimeRange::ALL);
    filled.crash();
    assert_eq!(filled.times("b"), Vec::<i64>::new());
    assert_eq!(filled.store().damages(), []);
}

#[test]
fn delete_during_a_merge_or_a_cut_hides_the_samples_of_its_block() {
    for work in [MovingWork::Merge, MovingWork::Cut] {
        assert!(!deleted_during(work), "{work:?}");
        let found = with_flaw(StoreFlaw::KeepsTombstonedResult, || deleted_during(work));
        assert!(found, "{work:?}");
    }
}

/// Returns whether deleted samples are visible again after a power loss on one of several disks.
fn deleted_samples_return_after_a_power_loss() -> bool {
    (0..16).any(|seed| {
        let sim = sim::sim_env(seed);
        let store = open(&sim, small());
        let samples = [(0, 1.0), (MINUTE, 2.0)];
        append(&store, &batch(&[("a", &samples)]), ALWAYS);
        delete(&store, "a", TimeRange::ALL);
        drop(store);
        sim.disk.crash();
        let store = open(&sim, small());
        let left = select(&store, &[by_name("a")], TimeRange::ALL);
        !contents_of(&*left).is_empty()
    })
}

#[test]
fn delete_survives_a_power_loss() {
    assert!(!deleted_samples_return_after_a_power_loss());
    let flaw = StoreFlaw::SkipsTombstoneSync;
    assert!(with_flaw(flaw, deleted_samples_return_after_a_power_loss));
}
