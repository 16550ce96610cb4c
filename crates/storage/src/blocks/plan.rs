//! Which blocks are merged next: a pure function of what the manifest says.
//!
//! ```text
//! windows of 2 h, 8 h, 32 h, ... of data time, aligned, up to a tenth of the retention
//! a window behind the cut with two main blocks or more   -> one main block
//! a window with late blocks beside its main one           -> one main block, once that pays
//! ```
//!
//! Invariants: main blocks stay apart. A merge leaves out no late block that came before one that
//! it takes and that overlaps it, so that what came first stays first. Nothing is merged that lies
//! behind the cut: its main block is not there yet.

use super::list::{BlockEntry, BlockKind, BlockList};
use crate::block::BlockId;
use firn_model::sample::{TimeRange, TimestampMs};

/// Each window is so many of the one below.
const STEP: i64 = 4;

/// A main block has to be written anew for a late one that is merged into it: late blocks wait for
/// company, or until they are a quarter of it.
const LATE_MAX: usize = 4;

/// What is merged, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    /// In the order in which they win at one time.
    pub(crate) inputs: Vec<BlockEntry>,
    /// The window.
    pub(crate) range: TimeRange,
    pub(crate) kind: BlockKind,
    pub(crate) sequence: u64,
    pub(crate) level: u32,
}

impl Merge {
    /// The name of the result: a function of the names of its inputs.
    pub(crate) fn id(&self) -> BlockId {
        let mut sum: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for input in &self.inputs {
            for byte in input.id.to_string().bytes() {
                // FNV-1a, 128 bits: names are no secret and collide with nothing else.
                sum = (sum ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
            }
        }
        BlockId::new(self.range.max.saturating_add(1), sum >> 48)
    }
}

/// The merge that is due, the one of the smallest and oldest window first. The smallest windows are
/// `window_min` of data time, and no block covers more than `window_max`.
pub(crate) fn next(list: &BlockList, window_min: i64, window_max: i64) -> Option<Merge> {
    let mut window = window_min;
    loop {
        let is_top = window.saturating_mul(STEP) > window_max;
        if let Some(merge) = next_of(list, window, is_top) {
            return Some(merge);
        }
        if is_top {
            return None;
        }
        window *= STEP;
    }
}

/// The merge that is due in windows of this length.
fn next_of(list: &BlockList, window: i64, is_top: bool) -> Option<Merge> {
    let starts = list.blocks.iter().filter(|block| !block.is_bad);
    let mut starts: Vec<TimestampMs> = starts
        .filter_map(|block| window_of(block.range, window))
        .collect();
    starts.sort_unstable();
    starts.dedup();
    let ends_before_cut = |start: &TimestampMs| start.saturating_add(window) <= list.cut;
    let closed = starts.into_iter().filter(ends_before_cut);
    closed
        .filter_map(|start| merge_of(list, start, window, is_top))
        .next()
}

/// Where the window begins that holds all of `range`, if there is one.
fn window_of(range: TimeRange, window: i64) -> Option<TimestampMs> {
    let number = range.min.div_euclid(window);
    (number == range.max.div_euclid(window)).then(|| number.saturating_mul(window))
}

fn merge_of(list: &BlockList, start: TimestampMs, window: i64, is_top: bool) -> Option<Merge> {
    let range = TimeRange::new(start, start.saturating_add(window - 1));
    let is_inside =
        |block: &&BlockEntry| range.min <= block.range.min && block.range.max <= range.max;
    let sound = list.blocks.iter().filter(|block| !block.is_bad);
    let inside: Vec<&BlockEntry> = sound.clone().filter(is_inside).collect();
    // What came before a late block that is larger than the window is merged only with it.
    let beyond = sound.filter(|block| block.range.overlaps(&range) && !is_inside(block));
    let late_beyond = beyond.filter(|block| block.kind == BlockKind::Late);
    let first_beyond = late_beyond.map(|block| block.sequence).min();
    let is_taken = |block: &&&BlockEntry| {
        block.kind == BlockKind::Main || first_beyond.is_none_or(|first| block.sequence < first)
    };
    let inputs: Vec<BlockEntry> = inside
        .iter()
        .filter(is_taken)
        .map(|b| (*b).clone())
        .collect();
    let (main, late): (Vec<_>, Vec<_>) = inputs.iter().partition(|b| b.kind == BlockKind::Main);
    let bytes = |blocks: &[&BlockEntry]| blocks.iter().map(|block| block.bytes).sum::<u64>();
    let late_pays = !late.is_empty()
        && (late.len() >= LATE_MAX || bytes(&late).saturating_mul(4) >= bytes(&main))
        && (is_top || !main.is_empty());
    let is_due = inputs.len() > 1 && (main.len() > 1 || late_pays);
    if !is_due {
        return None;
    }
    let kind = if main.is_empty() {
        BlockKind::Late
    } else {
        BlockKind::Main
    };
    let of_kind = inputs.iter().filter(|block| block.kind == kind);
    Some(Merge {
        range,
        kind,
        sequence: of_kind.map(|block| block.sequence).min()?,
        level: inputs.iter().map(|block| block.level).max()? + 1,
        inputs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// A list of blocks, each as (kind, sequence, first hour, hour behind its last, bytes).
    fn list(cut: i64, blocks: &[(BlockKind, u64, i64, i64, u64)]) -> BlockList {
        let mut list = BlockList {
            cut: cut * HOUR,
            ..BlockList::default()
        };
        for (kind, sequence, from, to, bytes) in blocks {
            list.add(BlockEntry {
                id: BlockId::new(from * HOUR, u128::from(*sequence)),
                kind: *kind,
                is_bad: false,
                sequence: *sequence,
                level: 1,
                range: TimeRange::new(from * HOUR, to * HOUR - 1),
                bytes: *bytes,
                series: 1,
                samples: 1,
            });
        }
        list
    }

    /// What is merged next, as sequence numbers, and the hours of the window.
    #[track_caller]
    fn check(list: &BlockList, expected: Option<(&[u64], (i64, i64))>) {
        let merge = next(list, 2 * HOUR, 32 * HOUR);
        let found = merge.as_ref().map(|merge| {
            let inputs: Vec<u64> = merge.inputs.iter().map(|block| block.sequence).collect();
            (
                inputs,
                (merge.range.min / HOUR, (merge.range.max + 1) / HOUR),
            )
        });
        let expected = expected.map(|(inputs, hours)| (inputs.to_vec(), hours));
        assert_eq!(found, expected);
    }

    use BlockKind::{Late, Main};

    #[test]
    fn main_blocks_of_a_window_behind_the_cut_are_merged() {
        let four = [
            (Main, 1, 0, 2, 9),
            (Main, 2, 2, 4, 9),
            (Main, 3, 4, 6, 9),
            (Main, 4, 6, 8, 9),
        ];
        check(&list(8, &four), Some((&[1, 2, 3, 4], (0, 8))));
        check(&list(6, &four[..3]), None);
        check(&list(10, &four[..1]), None);
        check(&list(8, &four[2..]), Some((&[3, 4], (0, 8))));
        let large = [
            (Main, 1, 0, 8, 9),
            (Main, 2, 8, 16, 9),
            (Main, 3, 32, 34, 9),
        ];
        check(&list(34, &large), Some((&[1, 2], (0, 32))));
        let top = [(Main, 1, 0, 32, 9), (Main, 2, 32, 64, 9)];
        check(&list(66, &top), None);
    }

    #[test]
    fn late_blocks_are_merged_with_their_window_once_it_pays() {
        let small = [(Main, 1, 0, 2, 100), (Late, 2, 0, 1, 9)];
        check(&list(4, &small), None);
        let large = [(Main, 1, 0, 2, 100), (Late, 2, 0, 1, 25)];
        check(&list(4, &large), Some((&[1, 2], (0, 2))));
        let before_cut = [(Late, 2, 0, 1, 25), (Late, 3, 0, 1, 25)];
        check(&list(0, &before_cut), None);
        let mut many = vec![(Main, 1, 0, 2, 1_000)];
        many.extend((2..6).map(|sequence| (Late, sequence, 0, 1, 1)));
        check(&list(4, &many), Some((&[1, 2, 3, 4, 5], (0, 2))));
    }

    #[test]
    fn late_blocks_alone_are_merged_in_the_largest_window() {
        let alone = [(Late, 2, 0, 1, 25), (Late, 3, 0, 1, 25)];
        check(&list(64, &alone), Some((&[2, 3], (0, 32))));
    }

    #[test]
    fn late_block_behind_a_larger_one_waits_for_it() {
        let blocks = [
            (Main, 1, 0, 2, 10),
            (Main, 2, 2, 4, 10),
            (Late, 3, 0, 20, 10),
            (Late, 4, 0, 2, 10),
        ];
        check(&list(8, &blocks), Some((&[1, 2], (0, 8))));
        check(&list(32, &blocks[2..]), Some((&[3, 4], (0, 32))));
        let merged = [
            (Main, 1, 0, 4, 10),
            (Late, 3, 0, 20, 10),
            (Late, 4, 0, 2, 10),
        ];
        check(&list(32, &merged), Some((&[1, 3, 4], (0, 32))));
    }

    #[test]
    fn merge_of_a_main_block_takes_its_place() {
        let list = list(4, &[(Main, 5, 0, 2, 1), (Late, 2, 0, 1, 25)]);
        let merge = next(&list, 2 * HOUR, 32 * HOUR).unwrap();
        assert_eq!((merge.kind, merge.sequence, merge.level), (Main, 5, 2));
        assert_eq!(merge.id(), merge.id());
        assert_ne!(merge.id(), merge.inputs[0].id);
    }
}
