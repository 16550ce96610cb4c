//! The store: log, head and active index behind the two traits that the other rooms see.
//!
//! ```text
//! append:      head (at once, hidden) -> log -> visible and acked
//! read:        index -> head, what is visible -> pages
//! maintenance: sealing moves windows of samples into pages; the log and what left the retention go
//! replay:      at a start, catalogue and pages, then the log behind them
//! ```
//!
//! This file wires them. Invariants: what was acked is found by every later reader and after every
//! restart, once; a reader sees all of a batch or nothing of it; the log is never longer than what
//! is not sealed, but for its segments' grain. The store knows one tenant; it knows nothing of
//! HTTP, and of wall time only what a caller passes in.

mod block_stats;
mod files;
mod stats;
#[cfg(test)]
mod tests;

pub use crate::chunk::Duplicates;
pub use crate::parts::options::{
    BACKLOG_BYTES_MAX, BlockMax, LATENESS_MAX_MS, NewSeriesBudget, RETENTION_MS, Sealing,
    StoreOptions, SyncMode, WINDOW_MS,
};
pub use crate::parts::retention::Retention;

use crate::append::Appender;
use crate::block::BlockCache;
use crate::blocks::Blocks;
use crate::damage::{Damage, Damages};
use crate::data_dir::DataDir;
use crate::exemplars::Exemplars;
use crate::import::Target;
use crate::index::Index;
use crate::maintenance::Maintenance;
use crate::maintenance::coverage::{Coverage, Windows};
use crate::maintenance::state::State;
use crate::parts::metrics::StoreMetrics;
use crate::parts::retention::Retaining;
use crate::parts::{LearnMetadata, Parts};
use crate::read::Reader;
use crate::replay::{FoundPages, replay};
use crate::sealed::Sealed;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicI64;
use files::Files;
use firn_model::batch::{Batch, Source};
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::FoundExemplars;
use firn_model::fingerprint::SeriesHash;
use firn_model::log::LogHealth;
use firn_model::losses::Losses;
use firn_model::metadata::MetadataBatch;
use firn_model::metrics::{Collect, Sink};
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{
    Append, AppendBounds, ExemplarRequest, MetadataRequest, Select, SelectRequest, Selection,
    Ticket,
};
use firn_model::tenant::TenantId;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

/// More shards than threads that could write at once only make the passes over them longer.
const SHARDS_MAX: usize = 256;

/// The local store of one tenant: its parts, and what appends to them, reads them and keeps them
/// small.
pub struct Store {
    parts: Arc<Parts>,
    pub(crate) appender: Appender,
    reader: Reader,
    maintenance: Arc<Maintenance>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.parts.options.dir.display())
    }
}

impl Store {
    /// Opens the store in `options.dir` and brings back everything that was acked. Damage is logged
    /// and counted, and what can be read behind it is kept.
    pub fn open(env: Env, options: StoreOptions) -> Result<Arc<Store>, Error> {
        let dir = DataDir::open(&env, &options.dir)?;
        Self::open_in(dir, env, options)
    }

    /// Like [`Store::open`], in a folder that this process took before: that of the options.
    pub fn open_in(dir: DataDir, env: Env, options: StoreOptions) -> Result<Arc<Store>, Error> {
        let damages = Arc::new(Damages::default());
        let files = Files::open(&env, dir, &options, &damages)?;
        let (found, log) = (files.found, files.log);
        let windows = Windows {
            window_ms: options.window_ms.max(1),
            is_jittered: options.is_jittered,
        };
        let coverage = Coverage::new(windows, log.positions().first.previous());
        let keys = files.keys;
        let shards = options.shards.clamp(1, SHARDS_MAX);
        let sealed = Sealed::new(
            options.page_cache_bytes,
            found.segments.files().clone(),
            damages.clone(),
        );
        let block_cache = Arc::new(BlockCache::new(options.page_cache_bytes));
        let blocks = Blocks::open(&env, &files.dir.blocks(), block_cache, damages.clone())?;
        let cut = blocks.view().cut;
        let mut state = State::new(
            found.segments,
            files.catalogue,
            files.exemplars,
            coverage,
            files.manifest,
        );
        let parts = Arc::new(Parts {
            index: Arc::new(Index::new(keys.clone())),
            numbers: Arc::default(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            sealed: Arc::new(sealed),
            blocks: Arc::new(blocks),
            damages,
            env,
            dir: files.dir,
            log,
            metrics: StoreMetrics::default(),
            hash: SeriesHash {
                keys,
                format: options.key_format,
            },
            watermark: Arc::default(),
            newest: AtomicI64::new(i64::MIN),
            late_window_ms: AtomicI64::new(options.late_window_ms),
            floor: AtomicI64::new(cut),
            evicted_to: AtomicI64::new(i64::MIN),
            exemplars: Arc::new(Exemplars::new(options.exemplars_max)),
            retaining: Retaining::new(options.retention()),
            restored_groups: Mutex::default(),
            journal: Arc::default(),
            learn_metadata: OnceLock::new(),
            options,
        });
        let found = FoundPages {
            pages: found.pages,
            is_whole: files.has_all_pages,
            missing_log: files.missing_log,
            late_from: parts.blocks.list().late_through,
        };
        replay(&parts, &mut state, found)?;
        let maintenance = Maintenance::new(parts.clone(), state);
        maintenance.restore_floor();
        Ok(Arc::new(Store {
            appender: Appender::new(parts.clone(), maintenance.clone()),
            reader: Reader(parts.clone()),
            maintenance,
            parts,
        }))
    }

    /// Starts background work that is due. The binary calls it once a second; the store itself does
    /// when [`StoreOptions::tick_ms`] of data time have passed, so that samples that come faster
    /// than life are kept up with as those of life are.
    pub fn tick(&self) {
        self.maintenance.tick();
    }

    fn check_tenant(&self, tenant: &TenantId) -> Result<(), Error> {
        if *tenant == self.parts.options.tenant {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "tenant {:?} is not in this store, which belongs to {:?}",
                tenant.as_str(),
                self.parts.options.tenant.as_str()
            ),
        ))
    }

    /// Ends cleanly: appends fail from here on, every sample is in a page, and the log is gone.
    pub fn close(&self) -> Result<(), Error> {
        self.maintenance.close()
    }

    /// What another room logged beside batches before this start: from where its state can be made
    /// again, in order. Each caller but the first gets nothing.
    pub fn take_journal(&self) -> Vec<Vec<u8>> {
        self.parts.journal.take_found()
    }

    /// Where samples of any age are imported to.
    pub fn imports(&self) -> Target {
        Target::of(&self.parts.env, &self.parts.blocks)
    }

    /// Makes room for `max` exemplars; the oldest go if they are more.
    pub fn set_exemplars_max(&self, max: usize) {
        self.parts.exemplars.set_max(max);
    }

    /// Has `learn` say what metrics are: a block that is cut keeps what is said of its own.
    pub fn learn_metadata_by(&self, learn: LearnMetadata) {
        // A process is wired once.
        let _ = self.parts.learn_metadata.set(learn);
    }

    /// Takes late samples up to so far behind the newest one from here on; 0 is not at all.
    pub fn set_late_window_ms(&self, window_ms: i64) {
        self.parts.set_late_window_ms(window_ms);
    }

    /// Makes a data folder of what is there now, `snapshots/<name>` in the store's own: all that
    /// was acknowledged before the call, or with `skips_head` what is sealed. It is durable on
    /// return. Appends and queries go on; the files that never change are shared, so it takes
    /// little room. The name is a time and a number, `20060102T150405Z-0123456789abcdef`.
    pub fn snapshot(&self, name: &str, skips_head: bool) -> Result<(), Error> {
        self.maintenance.take_snapshot(name, skips_head)
    }

    /// Keeps samples by `retention` from here on. What it does not cover goes soon after; nothing
    /// is written anew.
    pub fn set_retention(&self, retention: Retention) {
        self.parts.retaining.set(retention);
        self.maintenance.tick();
    }

    /// Bytes of memory of the store, as of the last sweep: chunks, index, tables, exemplars and the
    /// pages that are kept open.
    pub fn memory_bytes(&self) -> usize {
        self.parts.memory_bytes()
    }

    /// Series with a sample in the last 20 minutes of data time, as of the last sweep.
    pub fn active_series(&self) -> usize {
        self.parts.active_series()
    }

    /// Whether the log takes writes, and why not.
    pub fn health(&self) -> LogHealth {
        self.parts.log.health()
    }

    /// What was found damaged since the store was opened, in the order in which it was met.
    pub fn damages(&self) -> Vec<Damage> {
        self.parts.damages.list()
    }
}

/// The metrics of the store and its log.
impl Collect for Store {
    fn collect(&self, sink: &mut dyn Sink) {
        self.parts.collect(sink);
    }
}

impl Append for Store {
    fn append(&self, tenant: &TenantId, mut batch: &Batch, bounds: AppendBounds) -> Ticket {
        self.append_from(tenant, &mut batch, bounds)
    }

    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn Source,
        bounds: AppendBounds,
    ) -> Ticket {
        match self.check_tenant(tenant) {
            Ok(()) => self.appender.append_batch(source, bounds),
            Err(e) => Ticket::ready(Err(e)),
        }
    }

    fn admit(&self, tenant: &TenantId) -> Result<(), Error> {
        self.check_tenant(tenant)?;
        self.appender.admit()
    }

    fn first_sample_times(
        &self,
        _tenant: &TenantId,
        bounds: AppendBounds,
    ) -> RangeInclusive<TimestampMs> {
        self.parts.window(bounds, || None).times()
    }

    fn begin_log_unit(&self, tenant: &TenantId) -> Result<(), Error> {
        self.check_tenant(tenant)?;
        self.parts.log.begin_unit()
    }

    fn hashing(&self) -> Option<SeriesHash> {
        Some(self.parts.hash.clone())
    }

    fn write_held(&self) {
        self.parts.log.write_held();
    }

    fn takes_exemplars(&self) -> bool {
        self.parts.exemplars.is_on()
    }

    fn may_wait(&self) -> bool {
        self.parts.options.sealing == Sealing::WithWrites || self.parts.log.pressure().is_crowded
    }
}

impl Select for Store {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.reader.select(request)
    }

    fn losses(&self, tenant: &TenantId, range: TimeRange) -> Losses {
        match *tenant == self.parts.options.tenant {
            true => self.parts.look_up_losses_in(range),
            false => Losses::default(),
        }
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.reader.label_names(request)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.reader.label_values(name, request)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<FoundExemplars>, Error> {
        self.reader.select_exemplars(request)
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        self.reader.metadata(request)
    }
}
