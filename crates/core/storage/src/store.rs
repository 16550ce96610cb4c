//! The store: combines log, head, index, pages and blocks behind the traits that the other crates
//! use.
//!
//! ```text
//! append:      head (at once, hidden) -> log -> visible and acked
//! read:        index -> head, visible samples -> pages and blocks
//! maintenance: sealing moves samples into pages; old log records and old samples are removed
//! replay:      at startup, catalogue and pages, then the log after them
//! ```
//!
//! This file only wires the parts. Invariants: every later reader, also after a restart, finds each
//! acked sample exactly once; a reader sees a batch in full or not at all; the log contains the
//! unsealed samples and at most a segment more. The store belongs to one tenant. It is independent
//! of HTTP, and of wall time except for times that callers pass in.

mod block_stats;
mod files;
mod select;
mod stats;
#[cfg(test)]
mod tests;

pub use crate::chunk::DuplicatePolicy;
pub use crate::parts::head_usage::{HeadSize, HeadUsage};
pub use crate::parts::options::{
    BACKLOG_BYTES_MAX, BlockSizeLimit, LATENESS_MAX_MS, LogTrimming, NewSeriesBudget, RETENTION_MS,
    RetentionLimits, SealingThread, StoreOptions, StoreSyncMode, WINDOW_MS,
};
pub use crate::parts::retention_rules::{RetentionRule, RetentionRules};
pub use crate::parts::series_limits::SeriesLimits;

use crate::append::Appender;
use crate::block::BlockCache;
use crate::blocks::Blocks;
use crate::blocks::home::{BlockHome, CatalogueSource};
use crate::damage::{Damage, DamageList};
use crate::data_dir::DataDir;
use crate::exemplars::ExemplarStorage;
use crate::import::ImportTarget;
use crate::maintenance::Maintenance;
use crate::maintenance::catalogue::CatalogueWriter;
use crate::maintenance::coverage::{Coverage, SealWindows};
use crate::maintenance::cut_marks::CutMarks;
use crate::maintenance::state::MaintenanceState;
use crate::parts::head::StoreHead;
use crate::parts::metrics::StoreMetrics;
use crate::parts::retention::RetentionState;
use crate::parts::series_limits::LiveSeriesLimits;
use crate::parts::{MetadataSource, StoreParts};
use crate::read::StoreReader;
use crate::replay::{StartupPages, replay};
use crate::sealed::SealedPages;
use files::{GivenLog, StoreFiles};
use firn_model::batch::{Batch, BatchSource};
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{Fingerprint, HashKeys, SeriesHash};
use firn_model::log::{DurableLog, LogHealth};
use firn_model::metrics::{Collect, MetricSink};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendBounds, DeleteRequest, NewestSampleTimes, Ticket};
use firn_model::tenant::TenantId;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

/// The local store of one tenant. Created by [`Store::open`] and shared by all writers, readers and
/// the background thread.
pub struct Store {
    parts: Arc<StoreParts>,
    pub(crate) appender: Appender,
    reader: StoreReader,
    maintenance: Arc<Maintenance>,
}

/// Returns a number that no other store of this process has.
fn next_store_id() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Returns the windows in which the groups of a store are sealed.
fn seal_windows(options: &StoreOptions) -> SealWindows {
    SealWindows {
        window_ms: options.window_ms.max(1),
        is_jittered: options.is_jittered,
    }
}

/// Returns the rule for the records of a log in the folder, or of a given one.
fn trimming_rule(given: Option<&GivenLog>) -> LogTrimming {
    match given {
        None => LogTrimming::Sealed,
        Some(given) if given.home.is_some() => LogTrimming::ByCut,
        Some(_) => LogTrimming::Never,
    }
}

/// Returns a source of the series of a store for checkpoints. It holds no reference to the store,
/// which holds the home.
fn catalogue_source(parts: &Arc<StoreParts>) -> CatalogueSource {
    let parts = Arc::downgrade(parts);
    Box::new(move || {
        let Some(parts) = parts.upgrade() else {
            let text = "the store was closed".to_owned();
            return Err(Error::new(ErrorKind::Unavailable, text));
        };
        let (head, metrics) = (&parts.head, &parts.metrics);
        Ok(CatalogueWriter { head, metrics }.encode_all()?)
    })
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.parts.options.dir.display())
    }
}

impl Store {
    /// Opens the store in `options.dir` and restores everything that was acked. Damage is logged
    /// and counted, and all readable data is kept. Fails if the folder is in use, has another
    /// format or cannot be written.
    pub fn open(env: Env, options: StoreOptions) -> Result<Arc<Store>, Error> {
        let dir = DataDir::open(&env, &options.dir)?;
        Self::open_in(dir, env, options)
    }

    /// Like [`Store::open`], with the folder of the options already locked by this process.
    pub fn open_in(dir: DataDir, env: Env, options: StoreOptions) -> Result<Arc<Store>, Error> {
        Self::open_files(dir, env, options, None)
    }

    /// Opens a store whose log is elsewhere, and restores everything in the log. `options.dir` is
    /// scratch: it must be empty or the scratch folder of an earlier life, and is emptied. The
    /// store keeps all records of the log ([`LogTrimming::Never`]). `keys` are the same for all
    /// stores of this log, since other processes route by them.
    ///
    /// The store takes the samples of the log as they are, so the caller must be the only writer of
    /// the log. It ends with [`Store::hand_off`], or with [`Store::abandon`] if another process
    /// became the writer. Fails like [`Store::open`], and if the folder contains other data.
    pub fn open_with_log(
        env: Env,
        options: StoreOptions,
        log: Box<dyn DurableLog>,
        keys: HashKeys,
    ) -> Result<Arc<Store>, Error> {
        let dir = DataDir::open_scratch(&env, &options.dir)?;
        let home = None;
        Self::open_files(dir, env, options, Some(GivenLog { log, keys, home }))
    }

    /// Opens a store whose log and blocks are elsewhere, like [`Store::open_with_log`]. `home`
    /// keeps the blocks and begins the replay at its last checkpoint, so that the log is trimmed
    /// ([`LogTrimming::ByCut`]).
    pub fn open_with_home(
        env: Env,
        options: StoreOptions,
        log: Box<dyn DurableLog>,
        home: Arc<dyn BlockHome>,
        keys: HashKeys,
    ) -> Result<Arc<Store>, Error> {
        let dir = DataDir::open_scratch(&env, &options.dir)?;
        let home = Some(home);
        Self::open_files(dir, env, options, Some(GivenLog { log, keys, home }))
    }

    fn open_files(
        dir: DataDir,
        env: Env,
        options: StoreOptions,
        given: Option<GivenLog>,
    ) -> Result<Arc<Store>, Error> {
        let home = given.as_ref().and_then(|given| given.home.clone());
        let trimming = trimming_rule(given.as_ref());
        let mut restored = home.as_ref().map(|h| h.restored()).unwrap_or_default();
        let catalogue = std::mem::take(&mut restored.catalogue);
        let damages = Arc::new(DamageList::default());
        let files = StoreFiles::open(&env, dir, &options, given, &damages)?;
        let (found, log, keys) = (files.found, files.log, files.keys);
        let coverage = Coverage::new(seal_windows(&options), log.positions().first.previous());
        let sealed = SealedPages::new(
            options.page_cache_bytes,
            found.segments.files().clone(),
            damages.clone(),
        );
        let block_cache = BlockCache::new(options.page_cache_bytes).with_damages(damages.clone());
        let folder = files.dir.blocks();
        let (cache, damaged) = (Arc::new(block_cache), damages.clone());
        let blocks = match home.clone() {
            None => Blocks::open(&env, &folder, cache, damaged)?,
            Some(home) => Blocks::open_home(&env, &folder, cache, damaged, home, restored)?,
        };
        let mut state = MaintenanceState::new(
            found.segments,
            files.catalogue,
            files.exemplars,
            coverage,
            files.manifest,
        );
        let first = log.positions().first;
        state.cut_marks = (trimming == LogTrimming::ByCut).then(|| CutMarks::new(first.previous()));
        let parts = Arc::new(StoreParts {
            head: StoreHead::new(&options, keys.clone(), blocks.view().cut),
            sealed: Arc::new(sealed),
            blocks: Arc::new(blocks),
            damages,
            env,
            dir: files.dir,
            log,
            trimming,
            metrics: StoreMetrics::default(),
            hash: SeriesHash {
                keys,
                format: options.key_format,
            },
            exemplars: Arc::new(ExemplarStorage::new(options.exemplars_max)),
            retaining: RetentionState::new(options.retention()),
            series_limits: LiveSeriesLimits::new(SeriesLimits::for_new(options.new_series)),
            journal: Arc::default(),
            learn_metadata: OnceLock::new(),
            id: next_store_id(),
            options,
        });
        let found = StartupPages {
            pages: found.pages,
            is_whole: files.has_all_pages,
            missing_log: files.missing_log,
            late_from: parts.blocks.list().late_through,
            catalogue,
        };
        if let Some(home) = home {
            home.set_catalogue_source(catalogue_source(&parts));
        }
        replay(&parts, &mut state, found)?;
        Ok(Self::start(parts, state))
    }

    /// Returns the store of replayed parts, whose background work can begin.
    fn start(parts: Arc<StoreParts>, state: MaintenanceState) -> Arc<Store> {
        let maintenance = Maintenance::new(parts.clone(), state);
        maintenance.restore_floor();
        Arc::new(Store {
            appender: Appender::new(parts.clone(), maintenance.clone()),
            reader: StoreReader {
                parts: parts.clone(),
            },
            maintenance,
            parts,
        })
    }

    /// Schedules background work that is due. The binary calls it once a second. The store also
    /// calls it after [`StoreOptions::tick_ms`] of data time, so that it keeps up with samples that
    /// arrive faster than real time.
    pub fn tick(&self) {
        self.maintenance.schedule_tick();
    }

    /// Returns whether background work of the store is queued or running. Afterwards only
    /// [`Store::tick`] and appends begin any.
    pub fn has_background_work(&self) -> bool {
        self.maintenance.has_jobs()
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

    /// Shuts down cleanly: later appends fail, and every sample that was appended in order is
    /// sealed into a page. The log is removed, unless it contains late samples that are in no
    /// block. A store whose log is elsewhere is handed off.
    pub fn close(&self) -> Result<(), Error> {
        self.maintenance.close()
    }

    /// Stops a store whose log is elsewhere, so that another process can open one on the same log:
    /// later appends fail, and all earlier ones are durable in the log. Fails if the log cannot
    /// write; acked samples are in the log nevertheless.
    pub fn hand_off(&self) -> Result<(), Error> {
        self.maintenance.hand_off()
    }

    /// Stops a store that is not the writer of its log any more: later appends fail, those without
    /// an outcome fail too, and nothing more is written to the log. Acked samples are in the log.
    /// Readers see the samples of before; the owner drops the store.
    pub fn abandon(&self) {
        self.maintenance.abandon();
    }

    /// Returns the journal that another component wrote to the log before this start, in order,
    /// from the last record at which its state can be restored. Later calls return nothing.
    pub fn take_journal(&self) -> Vec<Vec<u8>> {
        self.parts.journal.take_found()
    }

    /// Returns the target for imports of samples of any age. Fails in a scratch folder, which would
    /// lose them with its blocks.
    pub fn import_target(&self) -> Result<ImportTarget, Error> {
        self.parts.require_local_log("an import")?;
        Ok(ImportTarget::from_blocks(
            &self.parts.env,
            &self.parts.blocks,
        ))
    }

    /// Sets the maximum number of exemplars, and drops the oldest ones above it.
    pub fn set_exemplars_max(&self, max: usize) {
        self.parts.exemplars.set_max(max);
    }

    /// Sets the source of metric metadata: a cut stores the metadata of its metrics in the block.
    pub fn set_metadata_source(&self, learn: MetadataSource) {
        // A process sets it only once.
        let _ = self.parts.learn_metadata.set(learn);
    }

    /// Sets the maximum size of the page cache and of the block cache, each in bytes, and evicts
    /// entries until both fit. See [`StoreOptions::page_cache_bytes`].
    pub fn set_cache_bytes(&self, bytes: usize) {
        self.parts.sealed.cache.set_bytes_max(bytes);
        self.parts.blocks.cache.set_bytes_max(bytes);
    }

    /// Sets the out-of-order window in milliseconds, counted back from the newest sample; 0 rejects
    /// late samples.
    pub fn set_late_window_ms(&self, window_ms: i64) {
        self.parts.head.set_late_window_ms(window_ms);
    }

    /// Creates a data folder with the current contents, `snapshots/<name>` in the folder of the
    /// store: everything acked before the call, or with `skips_head` only the sealed samples. It is
    /// durable on return. Appends and queries continue; files that never change are hard links, so
    /// it takes little space. The name is a time and a number, `20060102T150405Z-0123456789abcdef`.
    /// Fails if the log is not in the folder of the store.
    pub fn snapshot(&self, name: &str, skips_head: bool) -> Result<(), Error> {
        self.parts.require_local_log("a snapshot")?;
        self.maintenance.take_snapshot(name, skips_head)
    }

    /// Deletes the samples of a request that are visible now; samples that arrive later are kept,
    /// whatever their time. On return they are invisible, durably. Their space on disk becomes free
    /// when their blocks are merged, or by [`Store::clean_tombstones`]. Fails if the log is not in
    /// the folder of the store, or if a block in the time range cannot be read.
    pub fn delete_series(&self, request: DeleteRequest<'_>) -> Result<(), Error> {
        self.check_tenant(request.tenant)?;
        self.parts.require_local_log("a delete")?;
        self.maintenance.delete_series(request)
    }

    /// Rewrites the blocks that contain deleted samples without them. Appends and queries continue.
    /// Fails if the log is not in the folder of the store.
    pub fn clean_tombstones(&self) -> Result<(), Error> {
        self.parts.require_local_log("a cleanup of tombstones")?;
        self.maintenance.clean_tombstones()
    }

    /// Changes the retention limits. Data beyond them is deleted soon after; no data is rewritten.
    pub fn set_retention(&self, retention: RetentionLimits) {
        let _rewrite = self.parts.blocks.rewrites.begin();
        self.parts.retaining.set(retention);
        self.maintenance.schedule_tick();
    }

    /// Changes the limits of new series. The counts of the current window remain.
    pub fn set_series_limits(&self, limits: SeriesLimits) {
        self.parts.series_limits.set(limits);
    }

    /// Returns the memory of the store in bytes as of the last sweep: chunks, index, tables,
    /// exemplars and cached pages.
    pub fn memory_bytes(&self) -> usize {
        self.parts.memory_bytes()
    }

    /// Returns the number of series with a sample in the last 20 minutes of data time, as of the
    /// last sweep.
    pub fn active_series(&self) -> usize {
        self.parts.head.active_series()
    }

    /// Returns whether the log accepts writes, or why it does not.
    pub fn health(&self) -> LogHealth {
        self.parts.log.health()
    }

    /// Returns the damage found since the store was opened, in the order in which it was found.
    pub fn damages(&self) -> Vec<Damage> {
        self.parts.damages.list()
    }
}

/// Writes the metrics of the store and its log.
impl Collect for Store {
    fn collect(&self, sink: &mut dyn MetricSink) {
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
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        match self.check_tenant(tenant) {
            Ok(()) => self.appender.append_batch(source, bounds),
            Err(e) => Ticket::resolved(Err(e)),
        }
    }

    fn check_append(&self, tenant: &TenantId) -> Result<(), Error> {
        self.check_tenant(tenant)?;
        self.appender.check_admission()
    }

    fn first_sample_times(
        &self,
        _tenant: &TenantId,
        bounds: AppendBounds,
    ) -> RangeInclusive<TimestampMs> {
        self.parts.head.window(bounds, || None).times()
    }

    fn begin_log_unit(&self, tenant: &TenantId) -> Result<(), Error> {
        self.check_tenant(tenant)?;
        self.parts.log.begin_unit()
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        Some(self.parts.hash.clone())
    }

    fn write_held_record(&self) {
        self.parts.log.write_held_records();
    }

    fn newest_time(&self, tenant: &TenantId) -> Option<TimestampMs> {
        let is_own = *tenant == self.parts.options.tenant;
        self.parts.head.newest().filter(|_| is_own)
    }

    fn newest_sample_times(
        &self,
        tenant: &TenantId,
        prints: &[Fingerprint],
    ) -> Vec<Option<NewestSampleTimes>> {
        let is_own = *tenant == self.parts.options.tenant;
        let head = &self.parts.head;
        let newest = |print: &Fingerprint| head.newest_times_of(*print).filter(|_| is_own);
        prints.iter().map(newest).collect()
    }

    fn can_store_exemplars(&self) -> bool {
        self.parts.exemplars.is_on()
    }

    fn may_wait(&self) -> bool {
        self.parts.options.sealing == SealingThread::WithWrites
            || self.parts.log.pressure().is_crowded
    }
}
