//! Rebuilds the list of blocks from their folders when there is no readable manifest.
//!
//! An interrupted merge may have left some of its output shards, and a completed merge may have
//! left its inputs, so each merge is used either completely or not at all. Invariants: no sample is
//! in two main blocks. A block that cannot be opened is listed unless other blocks contain all of
//! its data, because a start would otherwise remove it.

use super::list::{BlockEntry, BlockKind, BlockList};
use super::{list_block_folders, tombstone_file};
use crate::block::{Block, BlockCache, BlockId, BlockMeta, BlockShard};
use crate::error::StorageError;
use firn_model::env::Env;
use firn_model::sample::TimeRange;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A folder whose block could not be opened, and the part of its metadata that is readable.
struct UnopenedBlock {
    id: BlockId,
    /// Content of its `meta.json`, if it is readable.
    meta: Option<BlockMeta>,
    /// True if the block could not be opened because of a disk fault.
    is_disk_fault: bool,
}

/// Returns a list of the complete blocks in `dir`, without those that were merged into others,
/// followed by the blocks that cannot be opened.
pub(crate) fn rebuild_list(
    env: &Env,
    dir: &Path,
    cache: &Arc<BlockCache>,
    version: u64,
) -> Result<BlockList, StorageError> {
    let (mut metas, mut unopened) = (Vec::new(), Vec::new());
    for id in list_block_folders(env, dir)? {
        let folder = dir.join(id.to_string());
        match Block::open(env, &folder, cache) {
            Ok(block) => metas.push(block.meta().clone()),
            Err(e) => unopened.push(UnopenedBlock {
                id,
                meta: Block::read_meta(env, &folder).ok(),
                is_disk_fault: e.is_disk_fault(),
            }),
        }
    }
    drop_replaced(&mut metas);
    metas.sort_by_key(|meta| (meta.is_late, position_in_set(meta)));
    let mut list = BlockList {
        version,
        tombstones: tombstone_file::read_newest(&*env.disk, dir)?,
        ..BlockList::default()
    };
    let mut newest = None;
    // If there was never a manifest, nothing was committed and a folder without `meta.json`, which
    // is written last, is an unfinished block.
    let is_unfinished =
        |one: &UnopenedBlock| version == 0 && one.meta.is_none() && !one.is_disk_fault;
    unopened.retain(|one| !is_unfinished(one) && !is_covered_by(&metas, one));
    for meta in metas {
        let set = Some(position_in_set(&meta).0);
        if newest != set {
            list.next_sequence();
            newest = set;
        }
        let sequence = list.next_sequence - 1;
        let kind = if meta.is_late {
            BlockKind::Late
        } else {
            BlockKind::Main
        };
        let entry = BlockEntry::from_meta(&meta, kind, sequence);
        if entry.kind == BlockKind::Main {
            let made_for = meta.nominal.unwrap_or(meta.range);
            list.cut = list.cut.max(made_for.max.saturating_add(1));
        }
        list.add(entry);
    }
    for one in unopened {
        let sequence = list.next_sequence();
        list.add(one.to_entry(sequence));
    }
    Ok(list)
}

impl UnopenedBlock {
    /// Returns its manifest entry as a late block, because its samples may overlap others. If its
    /// metadata is unreadable, the id provides the end of its time range.
    fn to_entry(&self, sequence: u64) -> BlockEntry {
        let end = self.id.time_ms().saturating_sub(1);
        let nothing_known = BlockEntry {
            id: self.id,
            kind: BlockKind::Late,
            is_bad: true,
            sequence,
            level: 1,
            range: TimeRange::new(end, end),
            bytes: 0,
            series: 0,
            samples: 0,
        };
        match &self.meta {
            Some(meta) => BlockEntry {
                is_bad: !self.is_disk_fault,
                ..BlockEntry::from_meta(meta, BlockKind::Late, sequence)
            },
            None => nothing_known,
        }
    }
}

/// Returns whether the blocks in `metas` contain all samples of a block that cannot be opened.
fn is_covered_by(metas: &[BlockMeta], one: &UnopenedBlock) -> bool {
    let is_had = |id: &BlockId| metas.iter().any(|meta| meta.sources.contains(id));
    let sources = one.meta.as_ref().map(|meta| &meta.sources);
    sources.is_some_and(|sources| sources.iter().all(is_had))
}

/// Returns the id of the set that a block belongs to, and its position in the set.
fn position_in_set(meta: &BlockMeta) -> (BlockId, u32) {
    let shard = meta.shard.as_ref();
    shard.map_or((meta.id, 0), |shard| (shard.set, shard.number))
}

/// Removes the blocks that were merged into another one, and the shards of an incomplete merge
/// whose inputs still exist.
fn drop_replaced(metas: &mut Vec<BlockMeta>) {
    let is_whole = |meta: &BlockMeta| {
        let of_set = metas
            .iter()
            .filter(|other| position_in_set(other).0 == position_in_set(meta).0);
        let shards: Vec<&BlockShard> = of_set.filter_map(|other| other.shard.as_ref()).collect();
        let last = shards.iter().find(|shard| shard.is_last);
        meta.shard.is_none() || last.is_some_and(|last| shards.len() == last.number as usize + 1)
    };
    let (whole, part): (Vec<&BlockMeta>, Vec<&BlockMeta>) =
        metas.iter().partition(|meta| is_whole(meta));
    let has_all =
        |one: &BlockMeta, of: &BlockMeta| of.sources.iter().all(|id| one.sources.contains(id));
    let has_any =
        |one: &BlockMeta, of: &BlockMeta| of.sources.iter().any(|id| one.sources.contains(id));
    let merged = metas.iter().filter(|meta| {
        let mut larger = whole.iter().filter(|other| other.level > meta.level);
        larger.any(|other| has_all(other, meta))
    });
    let begun = part.iter().copied().filter(|meta| {
        let mut others = whole
            .iter()
            .filter(|other| position_in_set(other).0 != position_in_set(meta).0);
        others.any(|other| has_any(other, meta))
    });
    let gone: BTreeSet<BlockId> = merged.chain(begun).map(|meta| meta.id).collect();
    metas.retain(|meta| !gone.contains(&meta.id));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i64) -> BlockId {
        BlockId::new(number, 0)
    }

    /// Creates a block of this level that was compacted from these sources.
    fn block(number: i64, level: u32, sources: &[i64]) -> BlockMeta {
        BlockMeta {
            format: 2,
            id: id(number),
            is_late: false,
            level,
            sources: sources.iter().map(|source| id(*source)).collect(),
            range: TimeRange::new(0, 1),
            nominal: None,
            samples: 1,
            histograms: 0,
            series: 1,
            columns: 1,
            shard: None,
            files: Vec::new(),
        }
    }

    /// Turns the block into a shard of the set with this id.
    fn shard((set, number, is_last): (i64, u32, bool), block: BlockMeta) -> BlockMeta {
        let shard = BlockShard {
            set: id(set),
            number,
            is_last,
            first_metric: String::new(),
            last_metric: None,
        };
        BlockMeta {
            shard: Some(shard),
            ..block
        }
    }

    #[track_caller]
    fn check(mut metas: Vec<BlockMeta>, kept: &[i64]) {
        drop_replaced(&mut metas);
        let found: Vec<i64> = metas.iter().map(|meta| meta.id.time_ms()).collect();
        assert_eq!(found, kept);
    }

    #[test]
    fn blocks_that_others_were_made_of_do_not_count() {
        check(vec![block(1, 1, &[1]), block(2, 1, &[2])], &[1, 2]);
        check(vec![block(1, 1, &[1]), block(7, 2, &[1, 2])], &[7]);
        let merged_twice = [
            block(1, 1, &[1]),
            block(3, 1, &[3]),
            block(7, 2, &[1, 2]),
            block(9, 3, &[1, 2, 4]),
        ];
        check(merged_twice.to_vec(), &[3, 9]);
    }

    #[test]
    fn shards_count_if_all_are_there_or_nothing_else_has_their_samples() {
        let inputs = [block(1, 1, &[1]), block(2, 1, &[2])];
        let (first, second) = ((7, 0, false), (7, 1, true));
        let (first, second) = (
            shard(first, block(7, 2, &[1, 2])),
            shard(second, block(8, 2, &[1, 2])),
        );
        let with = |shards: &[&BlockMeta], inputs: &[BlockMeta]| {
            let shards = shards.iter().map(|shard| (*shard).clone());
            shards.chain(inputs.iter().cloned()).collect::<Vec<_>>()
        };
        check(with(&[&first, &second], &inputs), &[7, 8]);
        check(with(&[&first], &inputs), &[1, 2]);
        check(with(&[&second], &inputs), &[1, 2]);
        check(with(&[&second], &inputs[..1]), &[1]);
        // The other shard is damaged; keeping this one preserves some of the data.
        check(with(&[&second], &[]), &[8]);
        let larger = block(9, 3, &[1, 2, 3]);
        let larger = std::slice::from_ref(&larger);
        check(with(&[&first, &second], larger), &[9]);
        check(with(&[&first], larger), &[9]);
    }
}
