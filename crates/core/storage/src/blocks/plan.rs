//! The compaction plan: a pure function from the manifest to the blocks that are merged next.
//!
//! ```text
//! windows of 2 h, 8 h, 32 h, ... of data time, aligned, up to a tenth of the retention
//! a window before the cut with two or more main blocks    -> one main block
//! a window with a main block and late blocks               -> one main block, once that pays
//! late blocks alone, in the largest window                 -> one late block, once that pays
//! ```
//!
//! The planner treats the shards of one merge as one block: it always merges them together, and
//! never only because there are several. Invariants: main blocks do not overlap in time, or, for
//! shards, in label sets. If a merge takes a late block, it also takes all overlapping late blocks
//! that arrived earlier; otherwise a later sample could win over an earlier one at the same time.
//! Windows that end after the cut
//! are not merged, because their main block does not exist yet.

use super::list::{BlockEntry, BlockKind, BlockList, BlockSet};
use crate::block::BlockId;
use firn_model::sample::{TimeRange, TimestampMs};

/// The ratio of the length of each window to the next smaller one.
const STEP: i64 = 4;

/// Number of late blocks that justifies a merge. Merging a late block rewrites the main block, so
/// late blocks are merged once there are this many or once they reach a quarter of its size.
const LATE_MAX: usize = 4;

/// A merge that is due: its inputs and the properties of the resulting block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MergePlan {
    /// The input blocks in order of precedence at equal times.
    pub(crate) inputs: Vec<BlockEntry>,
    /// The window that the inputs are in.
    pub(crate) range: TimeRange,
    pub(crate) kind: BlockKind,
    pub(crate) sequence: u64,
    pub(crate) level: u32,
}

impl MergePlan {
    /// Returns the id of the output block with the number `shard`, derived from the ids of the
    /// inputs.
    pub(crate) fn output_id(&self, shard: u32) -> BlockId {
        let mut sum: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        // FNV-1a with 128 bits: the ids need no protection against deliberate collisions.
        let mut add = |byte: u8| {
            sum = (sum ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        };
        for input in &self.inputs {
            input.id.to_string().bytes().for_each(&mut add);
        }
        if shard > 0 {
            shard.to_le_bytes().into_iter().for_each(add);
        }
        BlockId::new(self.range.max.saturating_add(1), sum >> 48)
    }
}

/// Returns the merge that is due in the smallest window, the oldest of several. The smallest
/// windows are `window_min` milliseconds long, and no block covers more than `window_max`.
pub(crate) fn plan_next_merge(
    list: &BlockList,
    window_min: i64,
    window_max: i64,
) -> Option<MergePlan> {
    let mut window = window_min;
    loop {
        let is_top = window.saturating_mul(STEP) > window_max;
        if let Some(merge) = plan_merge_in_window(list, window, is_top) {
            return Some(merge);
        }
        if is_top {
            return None;
        }
        window *= STEP;
    }
}

/// Returns the rewrites that remove the deleted samples from blocks, one for each set of blocks
/// with tombstones.
pub(crate) fn plan_cleaning(list: &BlockList) -> Vec<MergePlan> {
    let has_tombstones = |set: &BlockSet<'_>| {
        let mut blocks = set.blocks().iter();
        blocks.any(|block| list.tombstones.of_block(block.id).is_some())
    };
    let sets = BlockSet::split_into_sets(&list.blocks).filter(has_tombstones);
    sets.map(plan_rewrite).collect()
}

/// Returns the merge of a single set of blocks, which omits its deleted and expired samples.
pub(crate) fn plan_rewrite(set: BlockSet<'_>) -> MergePlan {
    MergePlan {
        inputs: set.blocks().to_vec(),
        range: set.range(),
        kind: set.kind(),
        sequence: set.sequence(),
        level: set.level() + 1,
    }
}

/// Returns the first merge that is due in the windows of this length.
fn plan_merge_in_window(list: &BlockList, window: i64, is_top: bool) -> Option<MergePlan> {
    let sound: Vec<BlockSet<'_>> = BlockSet::split_into_sets(&list.blocks)
        .filter(|set| !set.is_bad())
        .collect();
    let starts = sound.iter();
    let mut starts: Vec<TimestampMs> = starts
        .filter_map(|set| window_start(set.range(), window))
        .collect();
    starts.sort_unstable();
    starts.dedup();
    let ends_before_cut = |start: &TimestampMs| start.saturating_add(window) <= list.cut;
    let closed = starts.into_iter().filter(ends_before_cut);
    closed
        .filter_map(|start| build_merge(&sound, start, window, is_top))
        .next()
}

/// Returns the start of the window that contains all of `range`, or `None` if it spans several.
fn window_start(range: TimeRange, window: i64) -> Option<TimestampMs> {
    let number = range.min.div_euclid(window);
    (number == range.max.div_euclid(window)).then(|| number.saturating_mul(window))
}

fn build_merge(
    sound: &[BlockSet<'_>],
    start: TimestampMs,
    window: i64,
    is_top: bool,
) -> Option<MergePlan> {
    let range = TimeRange::new(start, start.saturating_add(window - 1));
    let is_inside = |set: &BlockSet<'_>| {
        let own = set.range();
        range.min <= own.min && own.max <= range.max
    };
    let (inside, others): (Vec<BlockSet<'_>>, Vec<_>) =
        sound.iter().partition(|set| is_inside(set));
    // A late block larger than the window is merged only in a larger one. Late blocks that arrived
    // after it must wait for that merge, too.
    let beyond = others.iter().filter(|set| set.range().overlaps(&range));
    let late_beyond = beyond.filter(|set| set.kind() == BlockKind::Late);
    let first_beyond = late_beyond.map(BlockSet::sequence).min();
    let is_taken = |set: &&BlockSet<'_>| {
        set.kind() == BlockKind::Main || first_beyond.is_none_or(|first| set.sequence() < first)
    };
    let taken: Vec<BlockSet<'_>> = inside.iter().filter(is_taken).copied().collect();
    let (main, late): (Vec<BlockSet<'_>>, Vec<_>) =
        taken.iter().partition(|set| set.kind() == BlockKind::Main);
    let bytes = |sets: &[BlockSet<'_>]| {
        let bytes = sets.iter().map(BlockSet::bytes);
        bytes.fold(0, u64::saturating_add)
    };
    let late_pays = !late.is_empty()
        && (late.len() >= LATE_MAX || bytes(&late).saturating_mul(4) >= bytes(&main))
        && (is_top || !main.is_empty());
    let is_due = taken.len() > 1 && (main.len() > 1 || late_pays);
    if !is_due {
        return None;
    }
    let kind = if main.is_empty() {
        BlockKind::Late
    } else {
        BlockKind::Main
    };
    let of_kind = taken.iter().filter(|set| set.kind() == kind);
    Some(MergePlan {
        range,
        kind,
        sequence: of_kind.map(BlockSet::sequence).min()?,
        level: taken.iter().map(BlockSet::level).max()? + 1,
        inputs: taken.iter().flat_map(BlockSet::blocks).cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// Creates a list of blocks, each given as (kind, sequence, first hour, hour after the last,
    /// bytes).
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

    /// Checks the next merge, given as sequence numbers and the hours of its window.
    #[track_caller]
    fn check(list: &BlockList, expected: Option<(&[u64], (i64, i64))>) {
        let merge = plan_next_merge(list, 2 * HOUR, 32 * HOUR);
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
        let merge = plan_next_merge(&list, 2 * HOUR, 32 * HOUR).unwrap();
        assert_eq!((merge.kind, merge.sequence, merge.level), (Main, 5, 2));
        assert_eq!(merge.output_id(0), merge.output_id(0));
        assert_ne!(merge.output_id(0), merge.inputs[0].id);
        assert_ne!(merge.output_id(0), merge.output_id(1));
    }

    /// Creates a list of shards, each given as (sequence, first hour, hour after the last).
    fn shards(cut: i64, blocks: &[(u64, i64, i64)]) -> BlockList {
        let main = |(sequence, from, to): &(u64, i64, i64)| (Main, *sequence, *from, *to, 9);
        let mut list = list(cut, &blocks.iter().map(main).collect::<Vec<_>>());
        for (number, block) in (1..).zip(&mut list.blocks) {
            block.id = BlockId::new(number, 0);
        }
        list
    }

    #[test]
    fn shards_of_one_merge_are_merged_with_others_and_not_with_each_other() {
        check(&shards(8, &[(1, 0, 8), (1, 0, 8), (1, 0, 8)]), None);
        // A shard whose series lived for only an hour is still part of its set.
        check(&shards(8, &[(1, 0, 8), (1, 0, 1)]), None);
        let with_late = {
            let mut list = shards(8, &[(1, 0, 8), (1, 0, 1)]);
            list.blocks[0].bytes = 40;
            list.add(BlockEntry {
                kind: Late,
                sequence: 2,
                range: TimeRange::new(0, HOUR / 2),
                bytes: 12,
                ..list.blocks[1].clone()
            });
            list
        };
        // A quarter of both shards, and within the window of both.
        check(&with_late, None);
        check(
            &shards(32, &[(1, 0, 8), (1, 0, 1), (2, 8, 16), (2, 8, 16)]),
            Some((&[1, 1, 2, 2], (0, 32))),
        );
        let mut bad = shards(32, &[(1, 0, 8), (1, 0, 1), (2, 8, 16), (3, 16, 24)]);
        bad.blocks[1].is_bad = true;
        check(&bad, Some((&[2, 3], (0, 32))));
    }
}
