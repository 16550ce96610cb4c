//! Writes a new block with all readable data of a damaged one: intact columns and their labels.
//!
//! A series without readable labels or samples is dropped. A series with several pages also loses
//! some samples next to the damaged page. The id of the new block is a function of the id of the
//! damaged one, so a repair that was interrupted writes the same block again.

use crate::block::{
    Block, BlockId, BlockMeta, BlockSpec, BlockWriter, LabelsReader, MetricMetadataSet,
};
use crate::chunk::SampleColumns;
use crate::error::StorageError;
use crate::tombstones::{DeletedRuns, hide_deleted};
use firn_model::env::Env;
use firn_model::exemplar::SeriesExemplars;
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use std::path::Path;

/// Number of times that the range around an unreadable page is halved, down to a 64th of the block.
const HALVINGS: u32 = 6;

/// Returns the id of the block that replaces the block `id`.
pub(super) fn replacement_id(id: BlockId) -> BlockId {
    let number = u128::from_be_bytes(id.to_bytes());
    BlockId::new(id.time_ms(), !number)
}

/// Writes the new block into its folder in `folder`, without the samples in `deleted`. Returns
/// `None` if no series is readable.
pub(super) fn rewrite(
    env: &Env,
    folder: &Path,
    block: &Block,
    deleted: Option<&DeletedRuns>,
) -> Result<Option<BlockMeta>, StorageError> {
    let meta = block.meta();
    let source = BlockSpec {
        id: replacement_id(meta.id),
        is_late: meta.is_late,
        level: meta.level,
        sources: meta.sources.clone(),
        range: meta.nominal,
    };
    let dir = folder.join(source.id.to_string());
    let mut writer = BlockWriter::create(env, &dir, source)?;
    writer.expect_exemplars(block.exemplar_count());
    let mut labels = LabelsReader::for_whole_block();
    for ordinal in 0..block.series_count() {
        let mut own = Labels::default();
        let read = labels.read(block, [ordinal], &mut |_, found| own = found.to_owned());
        let mut columns = read_columns(block, ordinal);
        if let Some(deleted) = deleted {
            let times = deleted.find(u64::from(ordinal));
            hide_deleted(&mut columns, 0, times);
            if !times.is_empty() {
                columns.forget_reset_hints();
            }
        }
        if none_if_damaged(read)?.is_none() || columns.times.is_empty() {
            continue;
        }
        writer.push(own.as_ref(), &columns)?;
        let mut exemplars = SeriesExemplars::default();
        let read = block.read_exemplars(&[ordinal], |_, exemplar| {
            exemplars.push(0, exemplar);
            Ok(())
        });
        none_if_damaged(read)?;
        writer.push_exemplars(exemplars.iter().map(|(_, exemplar)| exemplar))?;
    }
    if writer.series_count() == 0 {
        writer.abandon()?;
        return Ok(None);
    }
    let mut metadata = MetricMetadataSet::default();
    none_if_damaged(block.read_metadata(None, &mut metadata))?;
    writer.push_metadata(&metadata)?;
    let written = match &meta.shard {
        Some(shard) => writer.finish_shard(shard.set, shard.number, shard.is_last),
        None => writer.finish(),
    };
    written.map(Some)
}

/// Returns the value that was read, or `None` if its bytes are damaged.
fn none_if_damaged<T>(read: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
    match read {
        Err(StorageError::Damaged { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Returns the readable samples of a series, skipping the time ranges of damaged pages.
fn read_columns(block: &Block, ordinal: u32) -> SampleColumns {
    let mut columns = SampleColumns::default();
    read_around(block, ordinal, block.range(), HALVINGS, &mut columns);
    columns
}

fn read_around(
    block: &Block,
    ordinal: u32,
    range: TimeRange,
    halvings: u32,
    into: &mut SampleColumns,
) {
    let read = block.reader().read(ordinal, range, into);
    if read.is_ok() || halvings == 0 || range.min >= range.max {
        return;
    }
    let middle = range.min.midpoint(range.max);
    for half in [
        TimeRange::new(range.min, middle),
        TimeRange::new(middle + 1, range.max),
    ] {
        read_around(block, ordinal, half, halvings - 1, into);
    }
}
