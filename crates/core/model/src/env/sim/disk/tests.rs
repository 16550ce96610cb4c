//! Tests of file and folder names after crashes.

use super::*;
use std::collections::BTreeSet;

/// Creates a disk with a folder that contains a durable file.
fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new("a/b")).unwrap();
    disk.overwrite(Path::new("a/b/x"), b"bytes");
    disk
}

fn names(disk: &SimDisk, dir: &str) -> Vec<PathBuf> {
    disk.list(Path::new(dir)).unwrap()
}

#[test]
fn folder_that_is_not_empty_or_not_there_is_not_removed() {
    let disk = disk(1);
    let removed = |dir: &str| disk.remove_dir(Path::new(dir)).map_err(|e| e.kind());
    assert_eq!(removed("a/b"), Err(ErrorKind::DirectoryNotEmpty));
    assert_eq!(removed("a"), Err(ErrorKind::DirectoryNotEmpty));
    assert_eq!(removed("a/c"), Err(ErrorKind::NotFound));
    disk.remove_file(Path::new("a/b/x")).unwrap();
    assert_eq!(removed("a/b"), Ok(()));
    assert!(names(&disk, "a").is_empty());
    assert_eq!(removed("a/b"), Err(ErrorKind::NotFound));
    assert!(disk.open(Path::new("a/b/y"), OpenMode::CreateNew).is_err());
}

#[test]
fn removed_folder_is_durable_once_the_one_above_is_synced() {
    for seed in 0..50 {
        let disk = disk(seed);
        disk.remove_file(Path::new("a/b/x")).unwrap();
        disk.remove_dir(Path::new("a/b")).unwrap();
        disk.sync_dir(Path::new("a")).unwrap();
        disk.crash();
        assert!(names(&disk, "a").is_empty(), "seed {seed}");
        assert!(disk.files().is_empty(), "seed {seed}");
    }
}

#[test]
fn removed_folder_that_was_not_synced_is_there_with_its_files_or_gone_with_them() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let disk = disk(seed);
        disk.remove_file(Path::new("a/b/x")).unwrap();
        disk.remove_dir(Path::new("a/b")).unwrap();
        disk.crash();
        let is_there = !names(&disk, "a").is_empty();
        let has_file = !disk.files().is_empty();
        assert!(
            is_there || !has_file,
            "a file without a folder, seed {seed}"
        );
        seen.insert((is_there, has_file));
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn folder_that_is_created_again_stays() {
    for seed in 0..100 {
        let disk = disk(seed);
        disk.remove_file(Path::new("a/b/x")).unwrap();
        disk.remove_dir(Path::new("a/b")).unwrap();
        disk.create_dir_all(Path::new("a/b")).unwrap();
        disk.open(Path::new("a/b/y"), OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new("a/b")).unwrap();
        disk.crash();
        assert!(
            names(&disk, "a/b").contains(&PathBuf::from("y")),
            "seed {seed}"
        );
    }
}

#[test]
fn linked_file_has_two_names_and_its_bytes_once() {
    let disk = disk(1);
    let (from, to) = (Path::new("a/b/x"), Path::new("a/y"));
    disk.set_free_bytes(7);
    disk.link(from, to).unwrap();
    assert_eq!(disk.free_bytes(Path::new("a")).unwrap(), 7);
    let taken = disk.link(from, to).map_err(|e| e.kind());
    assert_eq!(taken, Err(ErrorKind::AlreadyExists));
    let lacks = disk.link(Path::new("a/none"), Path::new("a/z"));
    assert_eq!(lacks.map_err(|e| e.kind()), Err(ErrorKind::NotFound));
    let file = disk.open(to, OpenMode::Write).unwrap();
    file.write_all_at(0, b"other").unwrap();
    file.sync_data().unwrap();
    disk.remove_file(from).unwrap();
    assert_eq!(disk.contents(to).unwrap(), b"other");
}

#[test]
fn link_is_durable_once_its_folder_is_synced() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let disk = disk(seed);
        let (from, to) = (Path::new("a/b/x"), Path::new("a/y"));
        disk.link(from, to).unwrap();
        let is_synced = seed % 2 == 0;
        if is_synced {
            disk.sync_dir(Path::new("a")).unwrap();
        }
        disk.crash();
        let is_there = disk.contents(to).is_some();
        assert!(is_there || !is_synced, "seed {seed}");
        assert_eq!(disk.contents(from).unwrap(), b"bytes");
        seen.insert((is_synced, is_there));
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn power_that_goes_off_with_a_change_of_a_name_fails_it() {
    let disk = disk(3);
    disk.power_off_after(0);
    assert!(disk.link(Path::new("a/b/x"), Path::new("a/y")).is_err());
    disk.crash();
    disk.remove_file(Path::new("a/b/x")).unwrap();
    disk.power_off_after(0);
    assert!(disk.remove_dir(Path::new("a/b")).is_err());
    assert!(disk.is_off());
}
