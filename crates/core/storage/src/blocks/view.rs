//! The view of the blocks that a reader holds. It stays unchanged while blocks are added and
//! removed.

use super::list::BlockEntry;
use crate::block::Block;
use crate::tombstones::StoreTombstones;
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::Matcher;
use firn_model::sample::{TimeRange, TimestampMs};
use std::path::PathBuf;
use std::sync::Arc;

/// An open block of a view, with its manifest entry and its folder.
#[derive(Debug)]
pub(crate) struct OpenBlock {
    pub(crate) entry: BlockEntry,
    pub(crate) block: Block,
    pub(super) dir: PathBuf,
}

impl OpenBlock {
    /// Returns whether a series of the block may match. The range of metric names of a shard can
    /// rule this out.
    pub(crate) fn may_match(&self, matchers: &[Matcher]) -> bool {
        let Some(shard) = &self.block.meta().shard else {
            return true;
        };
        let of_metric = matchers.iter().filter(|m| m.name() == METRIC_NAME);
        of_metric
            .filter_map(Matcher::literal_set)
            .all(|names| names.iter().any(|name| shard.may_contain_metric(name)))
    }
}

/// An immutable snapshot of the open blocks and the cut time. A query holds one view for as long as
/// it reads.
#[derive(Debug)]
pub(crate) struct BlocksView {
    /// The blocks own the in-order samples before this time, in milliseconds.
    pub(crate) cut: TimestampMs,
    /// The blocks in order of precedence: of samples with the same series and time, the first wins.
    pub(crate) blocks: Vec<Arc<OpenBlock>>,
    /// The deleted samples of blocks, pages and head.
    pub(crate) tombstones: Arc<StoreTombstones>,
}

impl BlocksView {
    /// Returns the blocks that may contain samples in `range` of series that match.
    pub(crate) fn find_matching<'a>(
        &'a self,
        range: TimeRange,
        matchers: &'a [Matcher],
    ) -> impl Iterator<Item = &'a Arc<OpenBlock>> {
        let blocks = self.find_overlapping(range);
        blocks.filter(|open| open.may_match(matchers))
    }

    /// Returns the blocks that may contain samples in `range`, in order of precedence.
    pub(crate) fn find_overlapping(
        &self,
        range: TimeRange,
    ) -> impl Iterator<Item = &Arc<OpenBlock>> {
        let blocks = self.blocks.iter();
        blocks.filter(move |open| open.entry.range.overlaps(&range))
    }
}
