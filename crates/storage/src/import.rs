//! Import: samples of any age that become late blocks without passing log and head.
//!
//! ```text
//! series in block order -> Import::block -> a block of its own
//! samples in any order  -> Buffer, sorted in memory -> one block for each window that they touch
//!                       -> Import::commit: all blocks of the import at once, or none
//! ```
//!
//! Invariants: nothing of an import is seen before it is committed, and then all of it; what was
//! there at one time stays, since an import is late. A crash before the commit leaves folders that
//! no manifest names, which the next start removes. An import does not know where its samples come
//! from: text, another system's blocks, or a request.

mod buffer;

pub use crate::block::BlockId;
pub use crate::chunk::{Columns, Sample};
pub use buffer::Buffer;

use crate::block::{Block, BlockCache, BlockMeta, BlockWriter, Sayings, Source};
use crate::blocks::{BlockEntry, BlockKind, BlockList, Blocks};
use crate::damage::Damages;
use crate::data_dir::DataDir;
use crate::failpoints::{self, Flaw};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use firn_model::log::Position;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use std::path::Path;
use std::sync::Arc;

/// Bytes of blocks that are kept in memory of a folder that no server uses.
const CACHE_BYTES: usize = 32 << 20;

/// Where imports go: the blocks of a store.
#[derive(Clone)]
pub struct Target {
    env: Env,
    blocks: Arc<Blocks>,
    /// Held for a folder that no server uses.
    _dir: Option<Arc<DataDir>>,
}

/// One import: blocks that are committed together.
pub struct Import {
    target: Target,
    /// What the samples were before, if it has a name: each block names it as a source.
    origin: Option<BlockId>,
    written: Vec<BlockMeta>,
    /// What is known of metrics.
    said: MetadataBatch,
}

/// What was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Blocks that were written.
    pub blocks: usize,
    /// Their series, counted once for each block.
    pub series: u64,
    /// Their samples.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Target {
    /// The blocks of the data folder at `root`, which no server must use and which is created if
    /// there is none.
    pub fn folder(env: &Env, root: &Path) -> Result<Self, Error> {
        let mut dir = DataDir::open(env, root)?;
        dir.upgrade(env)?;
        let cache = Arc::new(BlockCache::new(CACHE_BYTES));
        let damages = Arc::new(Damages::default());
        let blocks = Blocks::open(env, &dir.blocks(), cache, damages)?;
        Ok(Self {
            env: env.clone(),
            blocks: Arc::new(blocks),
            _dir: Some(Arc::new(dir)),
        })
    }

    /// The blocks of a store that runs.
    pub(crate) fn of(env: &Env, blocks: &Arc<Blocks>) -> Self {
        Self {
            env: env.clone(),
            blocks: blocks.clone(),
            _dir: None,
        }
    }

    /// Whether a block was made of the one with this name, or is it: an import that begins anew
    /// passes over what it has done.
    pub fn has(&self, id: BlockId) -> bool {
        let view = self.blocks.view();
        let mut metas = view.blocks.iter().map(|open| open.block.meta());
        metas.any(|meta| meta.id == id || meta.sources.contains(&id))
    }

    /// A name that no other block has.
    pub fn new_id(&self, time_ms: i64) -> BlockId {
        let rest = u128::from(self.env.rng.next_u64()) << 16
            | u128::from(self.env.rng.next_u64() & 0xffff);
        BlockId::new(time_ms, rest)
    }

    /// Begins an import.
    pub fn begin(&self) -> Import {
        Import {
            target: self.clone(),
            origin: None,
            written: Vec::new(),
            said: MetadataBatch::default(),
        }
    }

    /// Begins the import of what has this name: once it is committed, [`Target::has`] knows it.
    pub fn begin_of(&self, origin: BlockId) -> Import {
        Import {
            origin: Some(origin),
            ..self.begin()
        }
    }
}

impl Import {
    /// Knows of metrics what `said` says: blocks that are written from here on keep it of theirs.
    pub fn know(&mut self, said: MetadataBatch) {
        self.said = said;
    }

    /// Writes one block: `fill` pushes its series in block order. A block without samples is none.
    pub fn block(
        &mut self,
        id: BlockId,
        range: Option<TimeRange>,
        fill: impl FnOnce(&mut Series<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut sources = vec![id];
        sources.extend(self.origin.filter(|origin| *origin != id));
        let source = Source {
            id,
            is_late: true,
            level: 1,
            sources,
            range,
        };
        let Target { env, blocks, .. } = &self.target;
        let mut writer = BlockWriter::create(env, &blocks.dir_to_write(id)?, source)?;
        if let Err(e) = fill(&mut Series(&mut writer)) {
            let _ = writer.abandon();
            return Err(e);
        }
        if writer.sample_count() == 0 {
            let _ = writer.abandon();
            return Ok(());
        }
        if let Some(range) = writer.sample_range() {
            writer.say(&Sayings::at(range, &self.said))?;
        }
        self.written.push(writer.finish()?);
        Ok(())
    }

    /// Reads back every byte that was written and decodes every sample; fails with what is damaged.
    /// Returns what is there.
    pub fn verify(&self) -> Result<Imported, Error> {
        let Target { env, blocks, .. } = &self.target;
        for meta in &self.written {
            let block = Block::open(env, &blocks.dir_of(meta.id), &blocks.cache)?;
            let mut damage = None;
            block.verify(&mut |e| {
                damage.get_or_insert(e);
            });
            if let Some(damage) = damage {
                return Err(damage.into());
            }
        }
        Ok(Imported::of(&self.written))
    }

    /// Makes the blocks that were written part of the store: durable on return, and seen by every
    /// reader that begins later.
    pub fn commit(self) -> Result<Imported, Error> {
        self.commit_as(|_| {})
    }

    /// The same of late samples of the log, which has none up to `position` then that are not in
    /// blocks.
    pub(crate) fn commit_through(self, position: Position) -> Result<Imported, Error> {
        self.commit_as(|list| list.late_through = list.late_through.max(position))
    }

    fn commit_as(self, change: impl FnOnce(&mut BlockList)) -> Result<Imported, Error> {
        let written = self.written;
        if written.is_empty() {
            return Ok(Imported::default());
        }
        let mut rest = &written[..];
        if failpoints::has(Flaw::CommitsApart) {
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
        Ok(Imported::of(&written))
    }
}

fn add_late(list: &mut BlockList, written: &[BlockMeta]) {
    for meta in written {
        let sequence = list.take_sequence();
        list.add(BlockEntry::of(meta, BlockKind::Late, sequence));
    }
}

impl Imported {
    fn of(written: &[BlockMeta]) -> Self {
        Self {
            blocks: written.len(),
            series: written.iter().map(|meta| u64::from(meta.series)).sum(),
            samples: written.iter().map(|meta| meta.samples).sum(),
            bytes: written.iter().map(BlockMeta::file_bytes).sum(),
        }
    }

    /// Adds what another import brought.
    pub fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.series += other.series;
        self.samples += other.samples;
        self.bytes += other.bytes;
    }
}

/// Takes the series of a block that is written.
pub struct Series<'a>(&'a mut BlockWriter);

impl Series<'_> {
    /// A series behind the one before in block order (by metric name, then by labels), with its
    /// samples by ascending time.
    pub fn push(&mut self, labels: LabelsRef<'_>, columns: &Columns) -> Result<(), Error> {
        Ok(self.0.push(labels, columns)?)
    }

    /// More samples of the newest series, later than all it has.
    pub fn push_more(&mut self, columns: &Columns) -> Result<(), Error> {
        Ok(self.0.push_more(columns)?)
    }

    /// Samples so far.
    pub fn sample_count(&self) -> u64 {
        self.0.sample_count()
    }
}
