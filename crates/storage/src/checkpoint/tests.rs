//! Checkpoints written, lost, damaged and recorded.

use super::*;
use firn_model::env::sim::{self, Operation, Sim};

const DIR: &str = "checkpoints";

fn world() -> Sim {
    let sim = sim::env(1);
    sim.env.disk.create_dir_all(Path::new(DIR)).unwrap();
    sim
}

fn write(sim: &Sim, position: u64, payloads: &[&[u8]]) -> Result<u64, StorageError> {
    let mut writer = CheckpointWriter::begin(&sim.env, Path::new(DIR), Position(position))?;
    for payload in payloads {
        writer.push(payload)?;
    }
    writer.finish()
}

fn path(position: u64) -> PathBuf {
    checkpoint_path(Path::new(DIR), Position(position))
}

fn damage(sim: &Sim, position: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = sim.disk.contents(&path(position)).unwrap();
    change(&mut bytes);
    sim.disk.overwrite(&path(position), &bytes);
}

/// What opening yields: the position and the payloads as text, damage as `!`.
fn contents(sim: &Sim, log_first: Option<u64>) -> Option<(u64, Vec<String>)> {
    let log_first = log_first.map(Position);
    let checkpoint = open_newest(&sim.env, Path::new(DIR), log_first).unwrap()?;
    let mut items = Vec::new();
    for chunk in 0..checkpoint.chunk_count() {
        checkpoint.read_chunk(chunk, &mut |item| {
            items.push(match item {
                Ok(payload) => String::from_utf8(payload.to_vec()).unwrap(),
                Err(_) => "!".to_owned(),
            });
        });
    }
    Some((checkpoint.position().0, items))
}

#[track_caller]
fn check(sim: &Sim, log_first: Option<u64>, expected: Option<(u64, &[&str])>) {
    let expected = expected.map(|(p, items)| (p, items.iter().map(|i| i.to_string()).collect()));
    assert_eq!(contents(sim, log_first), expected);
}

/// A folder with sound checkpoints at 3 and 7.
fn two() -> Sim {
    let sim = world();
    write(&sim, 3, &[b"old"]).unwrap();
    write(&sim, 7, &[b"new", b"er"]).unwrap();
    sim
}

#[test]
fn checkpoint_finished_survives_a_crash() {
    let sim = two();
    sim.disk.crash();
    check(&sim, None, Some((7, &["new", "er"])));
}

#[test]
fn checkpoint_without_payloads_is_complete() {
    let sim = world();
    check(&sim, None, None);
    write(&sim, 0, &[]).unwrap();
    check(&sim, None, Some((0, &[])));
}

#[test]
fn checkpoint_cut_off_by_power_loss_anywhere_leaves_the_older_one() {
    for changes in 0..5 {
        let sim = two();
        sim.disk.power_off_after(changes);
        assert!(write(&sim, 9, &[b"newest"]).is_err());
        sim.disk.crash();
        let (position, items) = contents(&sim, None).unwrap();
        let newest = vec!["newest".to_owned()];
        assert!(
            position == 7 || items == newest,
            "after {changes}: {items:?}"
        );
        let names = sim.env.disk.list(Path::new(DIR)).unwrap();
        let temporary = |n: &PathBuf| n.to_string_lossy().ends_with("tmp");
        assert!(!names.iter().any(temporary), "after {changes}: {names:?}");
    }
}

#[test]
fn checkpoint_that_fails_leaves_no_temporary_file() {
    let sim = two();
    sim.disk.fail_after(Operation::Write, 0);
    let refusal = write(&sim, 9, &[b"newest"]).unwrap_err();
    assert_eq!(refusal.kind(), firn_model::error::ErrorKind::Unavailable);
    assert_eq!(sim.env.disk.list(Path::new(DIR)).unwrap().len(), 2);
}

#[test]
fn checkpoint_damaged_is_replaced_by_an_older_one_that_the_log_continues() {
    let flips: [fn(&mut Vec<u8>); 4] = [
        |b| b[30] ^= 1,
        |b| b[2] ^= 1,
        |b| b.truncate(40),
        |b| *b.last_mut().unwrap() ^= 1,
    ];
    for flip in flips {
        let sim = two();
        damage(&sim, 7, flip);
        check(&sim, Some(4), Some((3, &["old"])));
    }
}

#[test]
fn checkpoint_damaged_when_the_log_holds_everything_is_not_needed() {
    let sim = world();
    write(&sim, 7, &[b"new"]).unwrap();
    damage(&sim, 7, |b| b[30] ^= 1);
    check(&sim, Some(1), None);
}

#[test]
fn checkpoint_damaged_and_irreplaceable_is_read_for_what_is_left() {
    let sim = two();
    damage(&sim, 7, |b| b[30] ^= 1);
    check(&sim, Some(5), Some((7, &["!", "er", "!"])));
    check(&sim, None, Some((7, &["!", "er", "!"])));
}

#[test]
fn checkpoint_in_a_newer_format_is_refused() {
    let sim = world();
    write(&sim, 7, &[]).unwrap();
    damage(&sim, 7, |b| {
        b[8] = 2;
        let crc = crc32c::crc32c(&b[..20]);
        b[20..24].copy_from_slice(&crc.to_le_bytes());
    });
    let refusal = open_newest(&sim.env, Path::new(DIR), None).err().unwrap();
    assert_eq!(
        refusal.to_string(),
        format!(
            "{} has format 2, this version reads format 1",
            path(7).display()
        )
    );
}

#[test]
fn checkpoint_larger_than_a_chunk_is_read_in_chunks() {
    let sim = world();
    let payload = vec![7; 3 << 20];
    write(&sim, 1, &[payload.as_slice(); 5]).unwrap();
    let checkpoint = open_newest(&sim.env, Path::new(DIR), None)
        .unwrap()
        .unwrap();
    let mut counts = Vec::new();
    for chunk in 0..checkpoint.chunk_count() {
        let mut count = 0;
        checkpoint.read_chunk(chunk, &mut |item| {
            assert_eq!(item.unwrap(), payload);
            count += 1;
        });
        counts.push(count);
    }
    assert_eq!(counts, [2, 2, 1]);
}

#[test]
fn older_checkpoints_are_removed_on_request() {
    let sim = two();
    remove_older(&sim.env, Path::new(DIR), Position(7)).unwrap();
    sim.disk.crash();
    let names = sim.env.disk.list(Path::new(DIR)).unwrap();
    assert_eq!(names, [Path::new("00000000000000000007.checkpoint")]);
}

#[test]
fn checkpoint_as_recorded_is_read_and_written_alike() {
    let golden = include_bytes!("../../tests/fixtures/format-1/00000000000000000007.checkpoint");
    let sim = world();
    sim.disk.overwrite(&path(7), golden);
    check(&sim, None, Some((7, &["one", "two"])));
    write(&sim, 7, &[b"one", b"two"]).unwrap();
    assert_eq!(sim.disk.contents(&path(7)).unwrap(), golden);
}
