//! Audits of damaged buckets: each damage has its finding.

use super::world::{Flaws, Process, World};
use super::{append_units, lead};
use crate::audit::audit;
use firn_bucket::sim::SimFaults;
use firn_bucket::{BlockingBucket, Bucket, ObjectKey};
use firn_model::log::DurableLog;

/// Returns a world with a checkpoint, two listed blocks and a log of some segments.
fn build_world() -> (World, Process) {
    let mut world = World::new(5, Flaws::default());
    let (leader, _) = lead(&mut world);
    append_units(&mut world, &leader, 2);
    let end = leader.log.positions().last.next();
    let commit = world.build_commit(2, 0, end);
    world.publish(&leader, &commit).unwrap();
    append_units(&mut world, &leader, 3);
    (world, leader)
}

/// Returns the text of an audit, and whether it has no findings.
fn audit_text(world: &World) -> (String, bool) {
    let client = world.store.client(SimFaults::none());
    let report = audit(&client, &world.format()).unwrap();
    (report.to_string(), report.is_sound())
}

fn keys_with(world: &World, prefix: &str) -> Vec<ObjectKey> {
    let mut keys = world.store.keys();
    keys.retain(|key| key.as_str().starts_with(prefix));
    keys
}

fn put(world: &World, key: &ObjectKey, bytes: &'static [u8]) {
    let client = world.store.client(SimFaults::none());
    client.delete(key, Box::new(|_| {}));
    BlockingBucket(&client).put_new(key, bytes.into());
}

fn delete(world: &World, key: &ObjectKey) {
    let client = world.store.client(SimFaults::none());
    client.delete(key, Box::new(|_| {}));
}

#[test]
fn audit_of_a_sound_partition_is_a_table_without_findings() {
    let (world, _leader) = build_world();
    let (text, is_sound) = audit_text(&world);
    assert!(is_sound, "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.starts_with("partition      segments  "), "{text}");
}

#[test]
fn audit_finds_each_damage() {
    let check = |damage: fn(&World), expected: &str| {
        let (world, _leader) = build_world();
        damage(&world);
        let (text, is_sound) = audit_text(&world);
        assert!(!is_sound, "{text}");
        assert!(text.contains(expected), "{text}");
    };
    check(|w| delete(w, &keys_with(w, "blk/")[0]), " is missing\n");
    check(
        |w| put(w, &keys_with(w, "blk/")[0], &[0; 200]),
        " has 200 bytes, expected ",
    );
    check(
        |w| {
            let log = keys_with(w, "log/");
            delete(w, &log[log.len() - 10]);
        },
        " is missing before segment ",
    );
    check(
        |w| put(w, &keys_with(w, "log/")[30], b"no segment"),
        " is shorter than its header",
    );
    check(
        |w| put(w, &keys_with(w, "state/")[0], b"no checkpoint"),
        ": checkpoint is damaged",
    );
}

#[test]
fn audit_counts_files_in_no_list_and_foreign_objects() {
    let (world, _leader) = build_world();
    let orphan = "blk/anonymous/0/00000000000000000000000000.0000000000000000/index";
    put(&world, &ObjectKey::new(orphan).unwrap(), b"orphan");
    put(&world, &ObjectKey::new("other/key").unwrap(), b"foreign");
    put(
        &world,
        &ObjectKey::new("log/1/00000000000000000001").unwrap(),
        b"?",
    );
    let client = world.store.client(SimFaults::none());
    let report = audit(&client, &world.format()).unwrap();
    assert!(report.is_sound());
    let partition = &report.partitions[0];
    assert_eq!((partition.orphans, partition.orphan_bytes), (1, 6));
    let text = report.to_string();
    let expected = "foreign objects: 2 (log/1/00000000000000000001, other/key)";
    assert!(text.contains(expected), "{text}");
}
