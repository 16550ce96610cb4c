//! The invariants of the model: which promises a state of the bucket must keep.
//!
//! The log is read here by a few lines of their own, which follow the format and not the code of
//! the core.

use super::world::{Content, NOW, Object, Records, World};
use crate::ids::SegmentSequence;
use crate::segment::SegmentKind;
use std::rc::Rc;

/// Checks a state, and notes the first broken invariant in it.
pub fn judge(world: &mut World, window: u64) {
    if let Err(text) = check(world, window) {
        world.broken(|| text);
    }
}

fn check(world: &World, window: u64) -> Result<(), String> {
    let kept = recoverable(world, window)?;
    let promises = &world.promises;
    let rules = [
        ("acknowledged and lost", promises.acked & !kept),
        ("shown and lost", promises.seen & !kept),
        ("rejected and in the log", promises.never & kept),
        (
            "in one replay and not in a later one",
            promises.found & promises.missed,
        ),
        (
            "acknowledged and not in a replay",
            promises.acked & promises.missed,
        ),
        ("shown and not in a replay", promises.seen & promises.missed),
    ];
    for (text, records) in rules {
        if records != 0 {
            return Err(format!("records {records:b} are {text}"));
        }
    }
    for (i, process) in world.processes.iter().enumerate() {
        let needed = promises.acked | promises.seen;
        let missing = needed & !process.view();
        if process.core.is_leased(NOW) && missing != 0 {
            return Err(format!("a read at {i} would lack records {missing:b}"));
        }
    }
    Ok(())
}

/// The records that a takeover would find now. Each must occur once, in the order of positions.
fn recoverable(world: &World, window: u64) -> Result<Records, String> {
    let newest = world.newest();
    let from = &newest.head.replay_from;
    let (mut key, mut owner) = (from.sequence, (from.epoch, from.writer));
    let (mut records, mut next) = (newest.covered, from.position);
    let mut version = None;
    while let Some(object) = world.object(key) {
        let header = &object.segment.header;
        if header.kind == SegmentKind::Fence {
            if header.epoch <= owner.0 {
                return Err(format!("the epoch of segment {key} does not ascend"));
            }
            owner = (header.epoch, header.writer);
            key = key.plus(window);
            continue;
        }
        if (header.epoch, header.writer) != owner {
            return Err(format!("segment {key} is of an earlier epoch"));
        }
        for (position, content) in &object.frames {
            if *position != next {
                return Err(format!("segment {key} is at position {}", position.0));
            }
            next = next.next();
            match content {
                Content::Record(record) if records & 1 << record != 0 => {
                    return Err(format!("record {record} occurs twice"));
                }
                Content::Record(record) => records |= 1 << record,
                Content::Commit { version: found, .. } => {
                    if version.is_some_and(|before: u64| before + 1 != *found) {
                        return Err(format!("commit {found} is out of order"));
                    }
                    version = Some(*found);
                }
            }
        }
        key = key.next();
    }
    Ok(records)
}

/// A line about each object, for traces.
pub fn describe(objects: &[Option<Rc<Object>>]) -> String {
    let mut text = String::new();
    for (key, object) in objects.iter().enumerate().skip(1) {
        let Some(object) = object else {
            text.push_str(" -");
            continue;
        };
        let header = &object.segment.header;
        debug_assert_eq!(header.sequence, SegmentSequence(key as u64));
        let epoch = header.epoch;
        match header.kind {
            SegmentKind::Fence => text.push_str(&format!(" F{epoch}")),
            SegmentKind::HandOff => text.push_str(&format!(" H{epoch}")),
            SegmentKind::Data => {
                for (_, content) in &object.frames {
                    text.push_str(&match content {
                        Content::Record(record) => format!(" {record}@{epoch}"),
                        Content::Commit { version, .. } => format!(" C{version}@{epoch}"),
                    });
                }
            }
        }
    }
    text
}
