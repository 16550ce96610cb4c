//! The blocks of a store and the work on them, for `/api/v1/status/tsdb/blocks`.

use super::Store;
use crate::block::BlockId;
use crate::blocks::{BlockEntry, BlockKind, OpenBlock};
use firn_model::sample::TimestampMs;
use firn_model::stats::{BlockStats, BlockStoreStats};

impl Store {
    /// Returns the start time of the oldest block, if there is one.
    pub fn first_block_ms(&self) -> Option<TimestampMs> {
        let view = self.parts.blocks.view();
        view.blocks.iter().map(|open| open.entry.range.min).min()
    }

    /// Returns the time before which blocks contain all samples in order, if there was a cut. Does
    /// not wait for a commit under way.
    pub fn cut_ms(&self) -> Option<TimestampMs> {
        let cut = self.parts.blocks.view().cut;
        (cut != i64::MIN).then_some(cut)
    }

    /// Returns the blocks in the manifest in order of time, and the progress of cut and merge.
    /// Waits for a commit under way, which uploads files if the blocks have a home.
    pub fn block_stats(&self) -> BlockStoreStats {
        let parts = &*self.parts;
        let (list, view) = parts.blocks.list_and_view();
        let opened = |id: BlockId| view.blocks.iter().find(|open| open.entry.id == id);
        let blocks = list.blocks.iter();
        let mut blocks: Vec<BlockStats> = blocks
            .map(|entry| stats_of(entry, opened(entry.id).map(|open| &**open)))
            .collect();
        blocks.sort_by(|a, b| {
            let key = |stats: &BlockStats| (stats.range.min, stats.range.max);
            (key(a), a.shard, &a.id).cmp(&(key(b), b.shard, &b.id))
        });
        BlockStoreStats {
            blocks,
            cut_time: (list.cut != i64::MIN).then_some(list.cut),
            cut: parts.metrics.cutting.stats(),
            compaction: parts.metrics.merging.stats(),
        }
    }
}

/// Returns the statistics of a block. For a damaged block they come from the manifest alone.
fn stats_of(entry: &BlockEntry, open: Option<&OpenBlock>) -> BlockStats {
    let said = BlockStats {
        id: entry.id.to_string(),
        range: entry.range,
        sample_range: entry.range,
        samples: entry.samples,
        histograms: 0,
        series: entry.series,
        columns: 0,
        exemplars: 0,
        level: entry.level,
        sources: Vec::new(),
        bytes: entry.bytes,
        is_late: entry.kind == BlockKind::Late,
        is_bad: entry.is_bad || open.is_none(),
        shard: None,
    };
    let Some(open) = open else { return said };
    let meta = open.block.meta();
    BlockStats {
        range: meta.nominal.unwrap_or(meta.range),
        histograms: meta.histograms,
        columns: meta.columns,
        exemplars: open.block.exemplar_count(),
        sources: meta.sources.iter().map(BlockId::to_string).collect(),
        shard: meta.shard.as_ref().map(|shard| shard.number),
        ..said
    }
}
