//! Import: writes samples of any age directly into late blocks, without log and head.
//!
//! ```text
//! series in block order -> Import::block -> a block of its own
//! samples in any order  -> Buffer, sorted in memory -> one block for each window that they touch
//!                       -> Import::commit: all blocks of the import at once, or none
//! ```
//!
//! Invariants: an import is invisible before its commit, and completely visible after it. Existing
//! samples take precedence at equal times, because imported ones count as late. A crash before the
//! commit leaves folders that are not in the manifest, which the next start removes. The source of
//! the samples does not matter: text, blocks of another system, or a request.

mod buffer;

pub use crate::block::BlockId;
pub use crate::chunk::{ChunkSample, SampleColumns};
pub use buffer::ImportBuffer;

use crate::block::{Block, BlockCache, BlockMeta, BlockSpec, BlockWriter, MetricMetadataSet};
use crate::blocks::{BlockEntry, BlockKind, BlockList, Blocks};
use crate::damage::DamageList;
use crate::data_dir::DataDir;
use crate::failpoints::{self, StoreFlaw};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use firn_model::log::LogPosition;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

/// Memory of the block cache for a folder that no server uses, in bytes.
const CACHE_BYTES: usize = 32 << 20;

/// The blocks of a store as the target of imports.
#[derive(Clone)]
pub struct ImportTarget {
    env: Env,
    blocks: Arc<Blocks>,
    /// Held to lock a folder that no server uses.
    _dir: Option<Arc<DataDir>>,
}

/// One import: a set of blocks that are committed together. Created by [`ImportTarget::begin`].
pub struct BlockImport {
    target: ImportTarget,
    /// Id of the original block, if the samples come from one: each written block names it as a
    /// source.
    origin: Option<BlockId>,
    written: Vec<BlockMeta>,
    /// Metadata of the metrics, stored in blocks that are written later.
    said: MetadataBatch,
}

/// Summary of one or several imports: the blocks and samples written to the blocks folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Number of blocks with at least one sample.
    pub blocks: usize,
    /// Number of their series, counted once per block.
    pub series: u64,
    /// Number of samples in these blocks.
    pub samples: u64,
    /// Size of their files in bytes.
    pub bytes: u64,
}

impl ImportTarget {
    /// Returns the target for the data folder at `root`, which is created if it does not exist.
    /// Locks the folder, so it fails while a server uses it.
    pub fn open_folder(env: &Env, root: &Path) -> Result<Self, Error> {
        let mut dir = DataDir::open(env, root)?;
        dir.upgrade(env)?;
        let cache = Arc::new(BlockCache::new(CACHE_BYTES));
        let damages = Arc::new(DamageList::default());
        let blocks = Blocks::open(env, &dir.blocks(), cache, damages)?;
        Ok(Self {
            env: env.clone(),
            blocks: Arc::new(blocks),
            _dir: Some(Arc::new(dir)),
        })
    }

    /// Returns the target for the blocks of a running store.
    pub(crate) fn from_blocks(env: &Env, blocks: &Arc<Blocks>) -> Self {
        Self {
            env: env.clone(),
            blocks: blocks.clone(),
            _dir: None,
        }
    }

    /// Returns whether a block with this id was imported or exists, so that a repeated import can
    /// skip it.
    pub fn has_block(&self, id: BlockId) -> bool {
        let view = self.blocks.view();
        let mut metas = view.blocks.iter().map(|open| open.block.meta());
        metas.any(|meta| meta.id == id || meta.sources.contains(&id))
    }

    /// Returns a block id that no other block has.
    pub fn new_id(&self, time_ms: i64) -> BlockId {
        let rest = u128::from(self.env.rng.next_u64()) << 16
            | u128::from(self.env.rng.next_u64() & 0xffff);
        BlockId::new(time_ms, rest)
    }

    /// Starts an import of samples that are not from an existing block. Nothing is visible before
    /// its commit.
    pub fn begin(&self) -> BlockImport {
        BlockImport {
            target: self.clone(),
            origin: None,
            written: Vec::new(),
            said: MetadataBatch::default(),
        }
    }

    /// Starts the import of the block with this id: after the commit, [`ImportTarget::has_block`]
    /// returns true for it.
    pub fn begin_for_block(&self, origin: BlockId) -> BlockImport {
        BlockImport {
            origin: Some(origin),
            ..self.begin()
        }
    }
}

impl BlockImport {
    /// Sets the metadata of metrics: blocks that are written later store the metadata of their
    /// metrics.
    pub fn set_metadata(&mut self, said: MetadataBatch) {
        self.said = said;
    }

    /// Writes one block: `fill` adds its series in block order. A block without samples is dropped.
    pub fn write_block(
        &mut self,
        id: BlockId,
        range: Option<TimeRange>,
        fill: impl FnOnce(&mut ImportSeriesWriter<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut sources = vec![id];
        sources.extend(self.origin.filter(|origin| *origin != id));
        let source = BlockSpec {
            id,
            is_late: true,
            level: 1,
            sources,
            range,
        };
        let ImportTarget { env, blocks, .. } = &self.target;
        let mut writer = BlockWriter::create(env, &blocks.prepare_block_dir(id)?, source)?;
        if let Err(e) = fill(&mut ImportSeriesWriter(&mut writer)) {
            let _ = writer.abandon();
            return Err(e);
        }
        if writer.sample_count() == 0 {
            let _ = writer.abandon();
            return Ok(());
        }
        if let Some(range) = writer.sample_range() {
            writer.push_metadata(&MetricMetadataSet::from_batch(range, &self.said))?;
        }
        self.written.push(writer.finish()?);
        Ok(())
    }

    /// Reads back every written byte and decodes every sample. Returns the first damage as an
    /// error, otherwise the summary.
    pub fn verify(&self) -> Result<ImportSummary, Error> {
        let ImportTarget { env, blocks, .. } = &self.target;
        for meta in &self.written {
            let block = Block::open(env, &blocks.block_dir(meta.id), &blocks.cache)?;
            let mut damage = None;
            block.verify(&mut |fault| {
                damage.get_or_insert(fault.error);
            });
            if let Some(damage) = damage {
                return Err(damage.into());
            }
        }
        Ok(ImportSummary::from_written_blocks(&self.written))
    }

    /// Commits the written blocks: they are durable on return, and visible to every reader that
    /// begins later.
    pub fn commit(self) -> Result<ImportSummary, Error> {
        self.commit_as(|_| {})
    }

    /// Like [`BlockImport::commit`], for late samples of the log: afterwards all late samples up to
    /// `position` are in blocks.
    pub(crate) fn commit_late_through(self, position: LogPosition) -> Result<ImportSummary, Error> {
        self.commit_as(|list| list.late_through = list.late_through.max(position))
    }

    /// Commits the written blocks to the manifest together with another `change` of it.
    fn commit_as(self, change: impl FnOnce(&mut BlockList)) -> Result<ImportSummary, Error> {
        let written = self.written;
        if written.is_empty() {
            return Ok(ImportSummary::default());
        }
        let mut rest = &written[..];
        let _rewrite = self.target.blocks.rewrites.begin();
        if failpoints::has(StoreFlaw::CommitsApart) {
            self.target
                .blocks
                .commit(|list| add_late(list, &written[..1]))?;
            rest = &written[1..];
            failpoints::turn();
        }
        self.target.blocks.commit(|list| {
            change(list);
            add_late(list, rest);
        })?;
        Ok(ImportSummary::from_written_blocks(&written))
    }
}

fn add_late(list: &mut BlockList, written: &[BlockMeta]) {
    for meta in written {
        let sequence = list.next_sequence();
        list.add(BlockEntry::from_meta(meta, BlockKind::Late, sequence));
    }
}

impl ImportSummary {
    fn from_written_blocks(written: &[BlockMeta]) -> Self {
        Self {
            blocks: written.len(),
            series: written.iter().map(|meta| u64::from(meta.series)).sum(),
            samples: written.iter().map(|meta| meta.samples).sum(),
            bytes: written.iter().map(BlockMeta::file_bytes).sum(),
        }
    }

    /// Adds the counts of another import to these.
    pub fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.series += other.series;
        self.samples += other.samples;
        self.bytes += other.bytes;
    }
}

/// Receives the series of a block that is being written.
pub struct ImportSeriesWriter<'a>(&'a mut BlockWriter);

impl ImportSeriesWriter<'_> {
    /// Adds a series with its samples in ascending order of time. It must follow the previous
    /// series in block order (by metric name, then by labels).
    pub fn push(&mut self, labels: LabelsRef<'_>, columns: &SampleColumns) -> Result<(), Error> {
        Ok(self.0.push(labels, columns)?)
    }

    /// Adds samples to the last series, which must be later than its previous ones.
    pub fn extend_last_series(&mut self, columns: &SampleColumns) -> Result<(), Error> {
        Ok(self.0.push_more(columns)?)
    }

    /// Returns the number of samples so far.
    pub fn sample_count(&self) -> u64 {
        self.0.sample_count()
    }
}
