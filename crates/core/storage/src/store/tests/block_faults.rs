//! Blocks with disk faults or damaged bytes, and failed commits of blocks.

use super::blocks::{Churn, HOUR, indexes_of};
use super::*;
use crate::chunk::SampleColumns;
use crate::import::ImportSeriesWriter;
use firn_model::env::sim::SimDiskOperation;
use firn_model::error::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn folder(id: crate::block::BlockId) -> PathBuf {
    Path::new("/data/blocks").join(id.to_string())
}

/// Returns the folder of the first block and its time range.
fn first_block(churn: &Churn) -> (PathBuf, TimeRange) {
    let entry = churn.store().parts.blocks.list().blocks[0].clone();
    (folder(entry.id), entry.range)
}

/// Removes the samples in `range` from `model`.
fn without(churn: &mut Churn, range: TimeRange) {
    for samples in churn.model.values_mut() {
        samples.retain(|(time, _)| !range.contains(*time));
    }
}

fn values(store: &Store, name: &str) -> Vec<String> {
    let tenant = TenantId::anonymous();
    let request = SelectRequest {
        tenant: &tenant,
        matchers: &[],
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    let values = store.label_values(name, request).unwrap().into_iter();
    values.map(|v| String::from_utf8(v).unwrap()).collect()
}

/// Returns a store with eight hours of samples in four blocks that are due to be merged at the next
/// tick.
fn unmerged() -> Churn {
    static MINUTES: OnceLock<u32> = OnceLock::new();
    let send = |churn: &mut Churn| churn.send_minute(|store| store.tick());
    let merged_after = || {
        let mut churn = Churn::new(31);
        let mut minutes = 0;
        while churn.store().parts.metrics.compactions.get() == 0 {
            send(&mut churn);
            minutes += 1;
        }
        minutes
    };
    let minutes = *MINUTES.get_or_init(merged_after);
    let mut churn = Churn::new(31);
    (1..minutes).for_each(|_| send(&mut churn));
    churn
}

/// Merges the blocks while the sync after `syncs` others fails. Returns whether that was the sync
/// of the manifest, which is then on disk although the commit failed.
fn fail_in_merge(churn: &mut Churn, syncs: u64) -> bool {
    churn.sim.disk.fail_after(SimDiskOperation::Sync, syncs);
    churn.send_minute(|store| store.tick());
    let next = churn.store().parts.blocks.list().version + 1;
    let next = format!("/data/blocks/MANIFEST-{next}");
    let is_there = churn.sim.disk.contents(Path::new(&next)).is_some();
    is_there && churn.store().parts.metrics.compaction_failures.get() == 1
}

#[test]
fn merge_after_a_commit_that_failed_loses_nothing_wherever_it_is_killed() {
    let in_doubt = (0..40).find(|syncs| fail_in_merge(&mut unmerged(), *syncs));
    let syncs = in_doubt.expect("no sync of a merge leaves a commit in doubt");
    for changes in 0.. {
        let mut churn = unmerged();
        assert!(fail_in_merge(&mut churn, syncs));
        churn.sim.clock.advance_ms(61_000);
        churn.sim.disk.power_off_after(changes);
        churn.store().tick();
        let is_off = churn.sim.disk.is_off();
        churn.sim.disk.kill();
        churn.reopen();
        churn.check(TimeRange::ALL);
        if !is_off {
            assert!(changes > 10, "{changes}");
            return;
        }
    }
}

/// Imports one sample. The source of the import ends with the result `after`.
fn import(store: &Store, after: Result<(), Error>) -> Result<(), Error> {
    let target = store.import_target().unwrap();
    let mut import = target.begin();
    let columns = SampleColumns {
        times: vec![HOUR],
        values: vec![1.0],
        ..SampleColumns::default()
    };
    import.write_block(
        target.new_id(0),
        None,
        |series: &mut ImportSeriesWriter<'_>| {
            series.push(labels("imported").as_ref(), &columns)?;
            after
        },
    )?;
    import.commit().map(drop)
}

/// A start syncs the files that it found, so they survive the next power loss.
#[test]
fn import_that_failed_and_is_there_after_a_start_stays() {
    let mut found = 0;
    for (syncs, seed) in (0..20).flat_map(|syncs| (0..6).map(move |seed| (syncs, seed))) {
        let sim = sim::sim_env(seed);
        let store = open(&sim, options());
        append(&store, &batch(&[("a", &[(HOUR, 1.0)])]), ALWAYS);
        sim.disk.fail_after(SimDiskOperation::Sync, syncs);
        if import(&store, Ok(())).is_ok() {
            break;
        }
        drop(store);
        sim.disk.kill();
        let store = open(&sim, options());
        let held = contents(&store, TimeRange::ALL);
        drop(store);
        sim.disk.crash();
        let store = open(&sim, options());
        let context = format!("sync {syncs}, seed {seed}");
        assert_eq!(contents(&store, TimeRange::ALL), held, "{context}");
        found += usize::from(held.len() == 2);
    }
    assert!(found > 0, "no import fails with its manifest in place");
}

#[test]
fn import_that_fails_leaves_no_folder() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    let cut = Error::new(ErrorKind::Invalid, "the text ends here".to_owned());
    assert_eq!(
        import(&store, Err(cut)).unwrap_err().message,
        "the text ends here"
    );
    let left = sim.env.disk.list(Path::new("/data/blocks")).unwrap();
    let is_block = |name: &PathBuf| !crate::blocks::BlockList::is_manifest_name(name);
    assert!(!left.iter().any(is_block), "{left:?}");
}

/// Damages the manifest and files of a block. The block stays listed after every start.
#[track_caller]
fn check_without_manifest(files: &[&str], is_lost: bool, how: fn(&Churn, &Path)) {
    let mut churn = Churn::new(32);
    churn.send(8);
    let (folder, range) = first_block(&churn);
    let version = churn.store().parts.blocks.list().version;
    churn.store().close().unwrap();
    churn.store = None;
    let manifest = format!("/data/blocks/MANIFEST-{version}");
    churn.sim.disk.overwrite(Path::new(&manifest), b"x");
    let whole = churn.model.clone();
    let paths = files.iter().map(|file| folder.join(file));
    let sound: Vec<_> = paths
        .map(|path| (path.clone(), churn.sim.disk.contents(&path).unwrap()))
        .collect();
    sound.iter().for_each(|(path, _)| how(&churn, path));
    if is_lost {
        without(&mut churn, range);
    }
    for start in 0..3 {
        churn.reopen();
        churn.check(TimeRange::ALL);
        let damages = churn.store().damages();
        assert!(!damages.is_empty(), "{files:?}, start {start}");
    }
    churn.store = None;
    for (path, bytes) in sound {
        churn.sim.disk.set_unreadable(&path, None);
        churn.sim.disk.overwrite(&path, &bytes);
    }
    churn.model = whole;
    churn.reopen();
    churn.check_all();
    churn.send(16);
    churn.check_all();
}

#[test]
fn block_that_does_not_open_where_the_manifest_is_damaged_stays_until_it_is_whole() {
    for (files, is_lost) in [
        (&["index", "index.copy"][..], true),
        (&["meta.json"], false),
        (&["index"], false),
    ] {
        check_without_manifest(files, is_lost, |churn, path| {
            churn.sim.disk.overwrite(path, b"x");
        });
        check_without_manifest(files, is_lost, |churn, path| {
            churn.sim.disk.set_unreadable(path, Some(0..u64::MAX));
        });
    }
}

/// Looks up label values in a store with a changed index of a block. Returns whether values were
/// missing.
#[track_caller]
fn check_look_ups(churn: &Churn, range: TimeRange, context: &str) -> bool {
    let names = values(churn.store(), "__name__");
    assert!(names.contains(&"steady".to_owned()), "{context}: {names:?}");
    let is_lost = !names.contains(&"short0".to_owned());
    let tenant = TenantId::anonymous();
    let losses = |range| {
        churn
            .store()
            .label_loss_warnings(&tenant, range)
            .texts()
            .len()
    };
    assert_eq!(losses(range), usize::from(is_lost), "{context}");
    let behind = TimeRange::new(range.max + 1, i64::MAX);
    assert_eq!(losses(behind), 0, "{context}");
    let selection = select(churn.store(), &[], TimeRange::ALL);
    let held = contents_of(&*selection);
    let is_short = held.iter().all(|(name, _)| name != "short0");
    assert!(
        !is_short || !selection.loss_warnings().texts().is_empty(),
        "{context}"
    );
    is_lost
}

#[test]
fn look_ups_go_on_without_indexes_that_are_damaged_or_not_delivered() {
    let mut churn = Churn::new(33);
    churn.send(12);
    let (folder, range) = first_block(&churn);
    let indexes = indexes_of(&folder);
    let disk = churn.sim.disk.clone();
    let whole = disk.contents(&indexes[0]).unwrap();
    let mut lost = [0, 0];
    for part in 0..24 {
        let at = whole.len() * part / 24;
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        indexes
            .iter()
            .for_each(|index| disk.overwrite(index, &damaged));
        churn.reopen();
        // Otherwise the block could not be opened.
        if churn.store().damages().is_empty() {
            let context = format!("flipped byte at {at}");
            lost[0] += u32::from(check_look_ups(&churn, range, &context));
        }
        churn.store = None;
        indexes
            .iter()
            .for_each(|index| disk.overwrite(index, &whole));
        churn.reopen();
        for index in &indexes {
            disk.set_unreadable(index, Some(at as u64..at as u64 + 1));
        }
        let context = format!("byte at {at} is not read");
        lost[1] += u32::from(check_look_ups(&churn, range, &context));
        churn.store = None;
    }
    assert!(lost[0] > 0 && lost[1] > 0, "{lost:?}");
}

#[test]
fn merges_go_on_around_a_block_that_the_disk_does_not_deliver() {
    let mut churn = unmerged();
    let (folder, range) = first_block(&churn);
    let data = folder.join("data-000");
    churn.sim.disk.set_unreadable(&data, Some(0..u64::MAX));
    without(&mut churn, range);
    churn.send(24);
    churn.check(TimeRange::ALL);
    let blocks = &churn.store().parts.blocks;
    assert_eq!(blocks.apart.get(), 1);
    assert!(churn.store().parts.metrics.compactions.get() > 1);
    assert!(
        blocks
            .list()
            .blocks
            .iter()
            .any(|block| folder.ends_with(block.id.to_string()))
    );
}

#[test]
fn late_series_from_before_the_cut_is_named_before_it_is_in_a_block() {
    let mut churn = Churn::with(
        35,
        StoreOptions {
            late_window_ms: i64::MAX,
            ..options()
        },
    );
    churn.send(12);
    let sent = batch(&[("filled", &[(HOUR, 1.0)])]);
    let bounds = AppendBounds::any_age_up_to(i64::MAX, i64::MIN);
    assert_eq!(append(churn.store(), &sent, bounds).stored, 1);
    assert!(churn.store().parts.blocks.view().cut > HOUR);
    let names = values(churn.store(), "__name__");
    assert!(names.contains(&"filled".to_owned()), "{names:?}");
}

#[test]
fn cut_waits_for_pages_that_the_disk_does_not_deliver() {
    let mut churn = Churn::new(33);
    churn.send(3);
    churn.store().close().unwrap();
    let is_pages = |path: &PathBuf| path.extension().is_some_and(|e| e == "pages");
    let files = churn.sim.disk.files();
    let oldest = files.into_iter().find(is_pages).expect("pages are there");
    churn.sim.disk.set_unreadable(&oldest, Some(0..u64::MAX));
    churn.reopen();
    assert_eq!(churn.store().damages().len(), 1);
    churn.send(8);
    assert!(churn.store().parts.metrics.cut_failures.get() > 0);
    assert!(churn.store().parts.blocks.list().blocks.is_empty());
    churn.store().close().unwrap();
    churn.sim.disk.set_unreadable(&oldest, None);
    churn.reopen();
    churn.send(1);
    assert!(!churn.store().parts.blocks.list().blocks.is_empty());
    churn.check_all();
}
