//! Homes on a simulated bucket, with a fake store: random histories with faults, ends of
//! processes and zombies, and the planted flaws that they must find.

mod audits;
mod fused_bucket;
mod history;
mod world;

use super::*;
use crate::log::LogFlaw;
use firn_bucket::sim::{SimFault, SimOutage};
use firn_model::env::sim::SimDisk;
use firn_model::env::{Disk, OpenMode};
use firn_model::log::{DurableLog, LogPosition};
use firn_storage::home::HomeDisk;
use history::run_history;
use std::path::{Path, PathBuf};
use std::time::Duration;
use world::{FOLDER, Flaws, Process, World};

/// The seeds of an ordinary run, unless `FIRN_SEEDS` is set.
const SEEDS: u64 = 40;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    match number("FIRN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FIRN_SEEDS").unwrap_or(SEEDS),
    }
}

#[test]
fn random_histories_keep_the_list_its_files_and_the_log() {
    let mut commits = 0;
    for seed in seeds() {
        match run_history(seed, Flaws::default()) {
            Ok(count) => commits += count,
            Err(broken) => panic!("FIRN_SEED={seed}: {broken}"),
        }
    }
    let enough = seeds().count() as i64 * 5;
    assert!(commits > enough, "only {commits} commits");
}

#[track_caller]
fn check_flaw(flaws: Flaws) {
    let is_found = (0..100).any(|seed| run_history(seed, flaws).is_err());
    assert!(is_found, "{flaws:?} is not found");
}

#[test]
fn planted_flaws_of_the_home_are_found() {
    for flaw in [
        HomeFlaw::CommitsBeforeUpload,
        HomeFlaw::DeletesWithoutGrace,
        HomeFlaw::OmitsBarrier,
    ] {
        check_flaw(Flaws {
            home: Some(flaw),
            log: None,
        });
    }
}

#[test]
fn log_that_is_trimmed_before_its_checkpoint_is_found() {
    check_flaw(Flaws {
        home: None,
        log: Some(LogFlaw::TrimsBeforeCheckpoint),
    });
}

#[test]
fn fences_that_are_deleted_are_found() {
    check_flaw(Flaws {
        home: None,
        log: Some(LogFlaw::DeletesFences),
    });
}

fn lead(world: &mut World) -> (Process, u64) {
    let client = world.client();
    let led = world.take_over(client).expect("a sound takeover");
    led.expect("no end of the process")
}

/// Appends records, each in a unit of its own.
fn append_units(world: &mut World, process: &Process, count: u64) {
    for _ in 0..count {
        for _ in 0..20 {
            world.append(process);
        }
        world.pump(process, 2);
    }
}

#[test]
fn end_between_commit_and_checkpoint_is_completed_by_the_next_process() {
    let mut world = World::new(1, Flaws::default());
    let (first, takeovers) = lead(&mut world);
    assert_eq!(takeovers, 1);
    append_units(&mut world, &first, 3);
    let end = first.log.positions().last.next();
    let commit = world.build_commit(2, 0, end);
    let is_state = |world: &World| {
        let keys = world.store.keys();
        keys.iter().any(|key| key.as_str().starts_with("state/"))
    };
    let added = first.store.home.upload_added(&commit).unwrap();
    first.store.home.append_commit(&commit, added).unwrap();
    world.acked.cut = commit.cut;
    world.acked.late_through = commit.late_through.0;
    let entries = commit
        .added
        .iter()
        .map(|(entry, _)| (entry.id, entry.clone()));
    world.acked.blocks.extend(entries);
    assert!(!is_state(&world));
    first.bucket.burn();
    let (second, takeovers) = lead(&mut world);
    assert_eq!(takeovers, 2, "it takes over again from the checkpoint");
    assert!(is_state(&world));
    assert!(!second.store.home.needs_checkpoint());
    assert_eq!(second.store.restored.blocks.len(), 2);
    world.check().unwrap();
}

#[test]
fn failed_checkpoint_is_repeated_and_then_the_log_is_trimmed() {
    let mut world = World::new(1, Flaws::default());
    let (leader, _) = lead(&mut world);
    append_units(&mut world, &leader, 4);
    let kept = leader.log.pressure().kept_bytes;
    let end = leader.log.positions().last.next();
    let commit = world.build_commit(0, 0, end);
    let added = leader.store.home.upload_added(&commit).unwrap();
    leader.store.home.append_commit(&commit, added).unwrap();
    (world.acked.cut, world.acked.late_through) = (commit.cut, commit.late_through.0);
    world.store.fail_next(SimFault::ErrorBefore);
    leader.store.home.repeat_checkpoint(true);
    assert_eq!(leader.log.checkpoint_position(), LogPosition(0));
    assert_eq!(leader.log.positions().first, LogPosition(1));
    leader.store.home.run_maintenance();
    assert_eq!(leader.log.checkpoint_position(), LogPosition(0), "a pause");
    world.advance(Duration::from_secs(2));
    leader.store.home.run_maintenance();
    assert!(leader.log.checkpoint_position() > LogPosition(0));
    assert!(leader.log.positions().first > LogPosition(1));
    assert!(leader.log.pressure().kept_bytes < kept);
    assert_eq!(world.check().unwrap().untrimmed, 0);
}

#[test]
fn upload_that_fails_appends_no_commit_and_leaves_files_in_no_list() {
    let mut world = World::new(1, Flaws::default());
    let (leader, _) = lead(&mut world);
    let commit = world.build_commit(1, 0, LogPosition(1));
    world.store.set_outage(Some(SimOutage::Refusing));
    let error = leader.store.home.publish(&commit).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    world.store.set_outage(None);
    assert_eq!(leader.log.ended(), None);
    assert_eq!(leader.log.block_list().version, 0);
    leader.store.home.publish(&commit).unwrap();
    assert_eq!(leader.log.block_list().blocks.len(), 1);
}

#[test]
fn commit_that_does_not_fit_the_list_does_not_enter_the_log() {
    let mut world = World::new(1, Flaws::default());
    let (leader, _) = lead(&mut world);
    let commit = world.build_commit(1, 0, LogPosition(1));
    world.publish(&leader, &commit).unwrap();
    let mut change = BlockChange {
        removed: vec![leader.log.block_list().blocks[0].name.clone()],
        ..BlockChange::default()
    };
    change.removed[0].upload ^= 1;
    let last = leader.log.positions().last;
    let error = leader.log.commit(change, LogPosition(1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    assert!(error.message.contains("not listed"), "{error}");
    assert_eq!(leader.log.positions().last, last);
    let (second, _) = lead(&mut world);
    assert_eq!(second.log.block_list().blocks.len(), 1);
}

#[test]
fn block_disk_reads_local_files_first_and_ranges_of_the_bucket_otherwise() {
    let mut world = World::new(3, Flaws::default());
    let (leader, _) = lead(&mut world);
    let commit = world.build_commit(1, 0, LogPosition(1));
    world.publish(&leader, &commit).unwrap();
    let local = Arc::new(SimDisk::new(1));
    let disk = HomeDisk::new(local.clone(), FOLDER.into(), leader.store.home.files());
    let folder = &commit.added[0].1;
    let path = folder.join("data-000");
    let bytes = world.files[&path].clone();
    let file = disk.open(&path, OpenMode::Read).unwrap();
    let count = bytes.len();
    for start in 0..=count {
        let mut read = vec![0; 40];
        let done = file.read_at(start as u64, &mut read).unwrap();
        assert_eq!(read[..done], bytes[start..(start + 40).min(count)]);
    }
    world.store.set_outage(Some(SimOutage::Refusing));
    let error = file.read_at(0, &mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), firn_storage::home::HOME_FAULT);
    let names = disk.list(folder).unwrap();
    assert_eq!(names, ["data-000", "index", "meta.json"].map(PathBuf::from));
    let missing = |path: &Path| disk.open(path, OpenMode::Read).err().map(|e| e.kind());
    let not_found = Some(std::io::ErrorKind::NotFound);
    assert_eq!(missing(&folder.join("other")), not_found);
    assert_eq!(missing(Path::new("/elsewhere/data-000")), not_found);
    local.create_dir_all(folder).unwrap();
    let own = local.open(&path, OpenMode::CreateNew).unwrap();
    own.write_all_at(0, b"local").unwrap();
    let file = disk.open(&path, OpenMode::Read).unwrap();
    assert_eq!(file.len().unwrap(), 5);
}
