//! Objects that another program deleted, for example by a lifecycle rule: the node reports the
//! first missing object, and does not append to a log with missing objects.

use super::*;

/// Returns a bucket with a trimmed log, checkpoints and blocks, and the times of its samples.
fn build_world() -> (World, Vec<i64>) {
    let world = World {
        pace_ms: 1,
        ..World::new()
    };
    let mut times = Vec::new();
    // A unit ends with each life, so that the log of the first one is trimmed.
    for life in 0..2 {
        let node = world.start(life as u64);
        for minute in life * 100..(life + 1) * 100 {
            assert_eq!(world.append(&node, 0, minute * MINUTE), Ok(()));
            times.push(minute * MINUTE);
            (0..4).for_each(|_| stores(&node)[0].tick());
        }
    }
    (world, times)
}

fn keys_with(world: &World, prefix: &str) -> Vec<ObjectKey> {
    let mut keys = world.store.keys();
    keys.retain(|key| key.as_str().starts_with(prefix));
    keys
}

fn delete(world: &World, key: &ObjectKey) {
    world.bucket().delete(key, Box::new(|_| {}));
}

/// Deletes the objects that `choose` returns, and returns the error of a node that starts then.
#[track_caller]
fn fault_after(choose: impl Fn(&World) -> Vec<ObjectKey>) -> String {
    let (world, _) = build_world();
    for key in choose(&world) {
        delete(&world, &key);
    }
    let before = keys_with(&world, "log/0/");
    let node = world.create(7);
    let error = node.lead_all().unwrap_err();
    assert_eq!(keys_with(&world, "log/0/"), before, "objects were added");
    let faults = node.last_faults();
    assert_eq!(faults, [(PartitionId(0), error.message.clone())]);
    error.message
}

#[test]
fn node_whose_log_was_deleted_leads_nothing_and_names_a_segment() {
    // Keys ascend: FENCE, then DATA.
    let missing = " is missing or does not follow the one before it";
    let all = fault_after(|world| keys_with(world, "log/0/"));
    assert!(all.contains(missing), "{all}");
    let one = fault_after(|world| {
        let keys = keys_with(world, "log/0/");
        vec![keys[keys.len() - 20].clone()]
    });
    assert!(one.contains(missing), "{one}");
    let checkpoints = fault_after(|world| keys_with(world, "state/0/"));
    assert!(checkpoints.contains(missing), "{checkpoints}");
}

#[test]
fn cluster_whose_format_was_deleted_is_not_created_again_by_a_start() {
    let (world, _) = build_world();
    let key = ObjectKey::new(&ObjectName::Format.to_string()).unwrap();
    let format = read_format(&*world.bucket()).unwrap().unwrap();
    delete(&world, &key);
    let before = world.store.keys();
    let bucket = world.store.client(SimFaults::none());
    let error = world.join(&bucket, 3, "0.1.0").unwrap_err();
    assert!(!error.is_transient(), "{error}");
    let text = error.to_string();
    assert!(text.contains("cluster/format is missing"), "{text}");
    assert!(text.contains("log/0/00000000000000000001"), "{text}");
    assert_eq!(world.store.keys(), before, "objects were added");
    // A running node has the content in memory.
    assert_eq!(restore_format(&bucket, &format), Ok(true));
    assert_eq!(restore_format(&bucket, &format), Ok(false));
    assert_eq!(world.join(&bucket, 3, "0.1.0").unwrap(), format);
}

#[test]
fn samples_of_a_deleted_block_are_named_and_others_are_read() {
    let (world, times_before) = build_world();
    let files = keys_with(&world, "blk/anonymous/0/");
    let newest = files.last().unwrap();
    let block = newest.as_str().rsplit_once('/').unwrap().0.to_owned();
    for key in keys_with(&world, &block) {
        delete(&world, &key);
    }
    let node = world.start(7);
    let store = stores(&node)[0].clone();
    let tenant = TenantId::anonymous();
    let losses = store.loss_warnings(&tenant, TimeRange::ALL);
    let found = times(&*store);
    assert!(
        found.as_ref().is_ok_and(|f| f.len() < times_before.len()),
        "{found:?}"
    );
    assert!(
        format!("{losses:?}").contains("does not exist"),
        "{losses:?}"
    );
}
