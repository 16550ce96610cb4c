//! The store: log, head and active index behind the two traits that the other rooms see.
//!
//! ```text
//! append: head (at once, hidden) -> log -> visible and acked
//! select: index -> head, what is visible -> pages
//! upkeep: sealing moves windows of samples into pages; the log and what left the retention go
//! open:   catalogue and pages, then the log behind them
//! close:  everything is sealed, and the log is gone
//! ```
//!
//! Invariants: what was acked is found by every later reader and after every restart, once; a
//! reader sees all of a batch or nothing of it; the log is never longer than what is not sealed,
//! but for its segments' grain. The store knows one tenant; it knows nothing of HTTP, and of wall
//! time only what a caller passes in.

mod append;
mod coverage;
mod exemplars;
mod files;
mod metrics;
mod newcomers;
mod options;
mod replay;
mod seal;
mod select;
mod stats;
#[cfg(test)]
mod tests;
mod trim;
mod upkeep;
mod visible;

pub use newcomers::NewSeriesBudget;
pub use options::{
    BACKLOG_BYTES_MAX, LATENESS_MAX_MS, RETENTION_MS, Sealing, StoreOptions, SyncMode, WINDOW_MS,
};
pub use stats::{Stat, StoreStats};

use crate::damage::{Damage, Damages};
use crate::data_dir::DataDir;
use crate::exemplars::Exemplars;
use crate::fingerprint::HashKeys;
use crate::head::shard::Shard;
use crate::head::watermark::Watermark;
use crate::index::Index;
use crate::sealed::Sealed;
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use append::Scratch;
use coverage::{Coverage, Windows};
use files::Files;
use firn_model::batch::{Batch, Source};
use firn_model::env::{Env, Work};
use firn_model::error::{Error, ErrorKind};
use firn_model::exemplar::FoundExemplars;
use firn_model::log::{DurableLog, LogHealth, Position};
use firn_model::losses::Losses;
use firn_model::metrics::Collect;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{
    Append, AppendBounds, ExemplarRequest, Select, SelectRequest, Selection, Ticket,
};
use firn_model::tenant::TenantId;
use metrics::StoreMetrics;
use newcomers::Newcomers;
use std::sync::{Arc, PoisonError, Weak};
use upkeep::Upkeep;

/// More shards than threads that could write at once only make the passes over them longer.
const SHARDS_MAX: usize = 256;

/// The local store of one tenant.
pub struct Store {
    options: StoreOptions,
    env: Env,
    dir: DataDir,
    log: Box<dyn DurableLog>,
    metrics: StoreMetrics,
    keys: Arc<HashKeys>,
    index: Arc<Index>,
    shards: Box<[Mutex<Shard>]>,
    watermark: Arc<Watermark>,
    /// The newest time stored, `i64::MIN` before the first.
    newest: AtomicI64,
    sealed: Arc<Sealed>,
    scratch: Mutex<Vec<Scratch>>,
    /// Groups of which a retired series came back since the last mark.
    revived: Mutex<Vec<u32>>,
    newcomers: Mutex<Newcomers>,
    exemplars: Arc<Exemplars>,
    /// What was found damaged since the store was opened.
    damages: Arc<Damages>,
    /// Held by the background job.
    upkeep: Mutex<Upkeep>,
    upkeep_scheduled: AtomicBool,
    /// The newest time when the background job last began.
    upkept_at: AtomicI64,
    me: Weak<Store>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.options.dir.display())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The background job under way; the next may be scheduled when it ends, were it by a panic.
struct Scheduled(Arc<Store>);

impl Drop for Scheduled {
    fn drop(&mut self) {
        self.0.upkeep_scheduled.store(false, Ordering::Release);
    }
}

impl Store {
    /// Opens the store in `options.dir` and brings back everything that was acked. Damage is logged
    /// and counted, and what can be read behind it is kept.
    pub fn open(env: Env, options: StoreOptions) -> Result<Arc<Store>, Error> {
        let damages = Arc::new(Damages::default());
        let files = Files::open(&env, &options, &damages)?;
        let (found, log) = (files.found, files.log);
        let windows = Windows {
            window_ms: options.window_ms.max(1),
            is_jittered: options.is_jittered,
        };
        let coverage = Coverage::new(windows, log.positions().first.previous());
        let keys = Arc::new(HashKeys::new(&*env.rng));
        let shards = options.shards.clamp(1, SHARDS_MAX);
        let store = Arc::new_cyclic(|me| Store {
            index: Arc::new(Index::new(keys.clone())),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            sealed: Arc::new(Sealed::new(
                options.page_cache_bytes,
                found.segments.files().clone(),
                damages.clone(),
            )),
            damages,
            env,
            dir: files.dir,
            log,
            metrics: StoreMetrics::default(),
            keys,
            watermark: Arc::default(),
            newest: AtomicI64::new(i64::MIN),
            scratch: Mutex::default(),
            revived: Mutex::default(),
            newcomers: Mutex::default(),
            exemplars: Arc::new(Exemplars::new(options.exemplars_max)),
            upkeep: Mutex::new(Upkeep::new(
                found.segments,
                files.catalogue,
                files.exemplars,
                coverage,
                files.manifest,
            )),
            upkeep_scheduled: AtomicBool::new(false),
            options,
            upkept_at: AtomicI64::new(i64::MIN),
            me: me.clone(),
        });
        store.replay(found.pages, files.has_all_pages, files.missing_log)?;
        Ok(store)
    }

    /// Starts background work that is due. The binary calls it once a second; the store itself does
    /// when [`StoreOptions::tick_ms`] of data time have passed, so that samples that come faster
    /// than life are kept up with as those of life are.
    pub fn tick(self: &Arc<Self>) {
        // One job at a time; a tick that finds it running is made up for by the next one.
        if self.upkeep_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let scheduled = Scheduled(self.clone());
        let job = move || scheduled.0.keep_up();
        self.env.compute.spawn(Work::Background, Box::new(job));
    }

    /// Starts background work that is due by data time.
    fn tick_by_data_time(&self) {
        let newest = self.newest.load(Ordering::Relaxed);
        let since = newest.saturating_sub(self.upkept_at.load(Ordering::Relaxed));
        if since >= self.options.tick_ms
            && let Some(me) = self.me.upgrade()
        {
            me.tick();
        }
    }

    /// Ends cleanly: appends fail from here on, every sample is in a page, and the log is gone.
    pub fn close(&self) -> Result<(), Error> {
        // The job under way, if there is one, ends first.
        let mut upkeep = lock(&self.upkeep);
        self.log.close()?;
        let last = self.log.positions().last;
        if last > upkeep.trimmed().min(upkeep.coverage.covered()) {
            self.seal_all(&mut upkeep, last)?;
            self.write_exemplars(&mut upkeep)?;
            self.write_catalogue(&mut upkeep, last)?;
        }
        upkeep.segments.finish()?;
        self.write_last_manifest(&mut upkeep)?;
        self.log.remove_all()
    }

    /// Seals whatever the closed log holds up to its last record.
    fn seal_all(&self, upkeep: &mut Upkeep, last: Position) -> Result<(), Error> {
        // Only what every reader may see is sealed.
        self.watermark.wait_for_readers();
        self.leave_mark(upkeep);
        let all = upkeep.coverage.all(self.newest.load(Ordering::Acquire));
        loop {
            let before = self.metrics.sealed_samples.get();
            self.seal(upkeep, &all, 0)?;
            if upkeep.coverage.covered() >= last {
                return Ok(());
            }
            // A column too long for one page goes in parts.
            if self.metrics.sealed_samples.get() == before {
                let message = "samples are left that no page holds; the log is kept";
                return Err(Error::new(ErrorKind::Internal, message.to_owned()));
            }
        }
    }

    /// The newest time stored, if there is a sample.
    fn newest(&self) -> Option<TimestampMs> {
        let newest = self.newest.load(Ordering::Relaxed);
        (newest != i64::MIN).then_some(newest)
    }

    /// Whether the log takes writes, and why not.
    pub fn health(&self) -> LogHealth {
        self.log.health()
    }

    /// What was found damaged since the store was opened, in the order in which it was met.
    pub fn damages(&self) -> Vec<Damage> {
        self.damages.list()
    }

    /// The metrics of the store and its log.
    pub fn metrics(&self) -> &dyn Collect {
        self
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
        if *tenant != self.options.tenant {
            return Ticket::ready(Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "tenant {:?} is not kept here: this store is that of {:?}",
                    tenant.as_str(),
                    self.options.tenant.as_str()
                ),
            )));
        }
        self.append_batch(source, bounds)
    }

    fn takes_exemplars(&self) -> bool {
        self.exemplars.is_on()
    }

    fn may_wait(&self) -> bool {
        self.options.sealing == Sealing::WithWrites || self.log.pressure().is_crowded
    }
}

impl Select for Store {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_series(request)
    }

    fn losses(&self, tenant: &TenantId, range: TimeRange) -> Losses {
        match *tenant == self.options.tenant {
            true => self.losses_in(range),
            false => Losses::default(),
        }
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        if *request.tenant != self.options.tenant {
            return Ok(Vec::new());
        }
        request.bind_matchers();
        self.index
            .label_names(request.matchers, request.range, request.cancel)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        if *request.tenant != self.options.tenant {
            return Ok(Vec::new());
        }
        request.bind_matchers();
        self.index
            .label_values(name, request.matchers, request.range, request.cancel)
    }
    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<FoundExemplars>, Error> {
        self.select_exemplars(request)
    }
}
