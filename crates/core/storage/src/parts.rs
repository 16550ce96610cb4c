//! The state shared by appends, reads, maintenance and replay: the log, the head, the index, the
//! pages, the blocks and the registry of damage.
//!
//! Each of these modules holds the parts and adds its own state. Invariant: nothing here starts
//! background work or waits for more than one lock.

pub(crate) mod block_work;
pub(crate) mod head;
pub(crate) mod head_usage;
pub(crate) mod journal;
pub(crate) mod metrics;
pub(crate) mod numbers;
pub(crate) mod options;
pub(crate) mod retention;
pub(crate) mod retention_rules;
pub(crate) mod series_limits;

use crate::blocks::Blocks;
use crate::damage::{Damage, DamageList};
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::exemplars::ExemplarStorage;
use crate::sealed::SealedPages;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::fingerprint::{Fingerprint, SeriesHash};
use firn_model::labels::LabelsRef;
use firn_model::log::DurableLog;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::MetadataBatch;
use firn_model::metrics::Gauge;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::StoreVersion;
use head::StoreHead;
use head_usage::HeadSize;
use journal::JournalTracker;
use metrics::StoreMetrics;
use options::{LogTrimming, StoreOptions};
use retention::RetentionState;
use series_limits::LiveSeriesLimits;
use std::sync::{Arc, OnceLock};

/// The shared parts of a store. Created by the store when it is opened.
pub(crate) struct StoreParts {
    /// Identifies the open store in this process.
    pub(crate) id: u64,
    pub(crate) options: StoreOptions,
    pub(crate) env: Env,
    pub(crate) dir: DataDir,
    pub(crate) log: Box<dyn DurableLog>,
    pub(crate) trimming: LogTrimming,
    pub(crate) metrics: StoreMetrics,
    /// The hash from which the fingerprints of series keys are computed.
    pub(crate) hash: SeriesHash,
    pub(crate) head: StoreHead,
    pub(crate) sealed: Arc<SealedPages>,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) exemplars: Arc<ExemplarStorage>,
    pub(crate) retaining: RetentionState,
    pub(crate) series_limits: LiveSeriesLimits,
    /// Damage found since the store was opened.
    pub(crate) damages: Arc<DamageList>,
    /// The journal that another component writes to the log.
    pub(crate) journal: Arc<JournalTracker>,
    /// Callback that returns the metadata of metrics.
    pub(crate) learn_metadata: OnceLock<MetadataSource>,
}

/// Callback that returns the current metadata (type, unit, help) of metrics, to be stored in
/// blocks.
pub type MetadataSource = Box<dyn Fn() -> MetadataBatch + Send + Sync>;

impl StoreParts {
    /// Returns the current version of the samples. Each change counts before it is visible and, if
    /// it is not a batch, again after it.
    pub(crate) fn version(&self) -> StoreVersion {
        StoreVersion {
            store: self.id,
            batch: self.head.watermark.visible(),
            rewrites: self.blocks.rewrites.count() + self.damages.total(),
            kept_from: self.retention_policy().kept_from(),
            part: String::new(),
        }
    }

    /// Returns the time of the oldest sample in pages and head. Visits every series.
    pub(crate) fn oldest(&self) -> Option<TimestampMs> {
        let pages = self.sealed.directory.summary().oldest;
        pages.into_iter().chain(self.head.oldest()).min()
    }

    /// Returns the fingerprint of a label set: the hash of its key in the format of the store.
    /// `key` is working memory.
    pub(crate) fn fingerprint_of(&self, labels: LabelsRef<'_>, key: &mut Vec<u8>) -> Fingerprint {
        self.hash.hash_labels(labels, key)
    }

    /// Returns the memory by part, as of the last sweep.
    pub(crate) fn memory(&self) -> [(&'static str, &Gauge); 7] {
        let m = &self.metrics;
        [
            ("chunks", &m.chunk_memory),
            ("late", &m.late_memory),
            ("index", &m.index_memory),
            ("newborn", &m.new_series_memory),
            ("tables", &m.table_memory),
            ("pages", &self.sealed.cache.held_bytes),
            ("blocks", &self.blocks.cache.held_bytes),
        ]
    }

    /// Returns the memory of the store in bytes, as of the last sweep: chunks, late samples, index,
    /// tables, exemplars, and cached pages and blocks.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_metrics = self.memory();
        let bytes: i64 = of_metrics.iter().map(|(_, gauge)| gauge.get()).sum();
        usize::try_from(bytes).unwrap_or(0) + self.exemplars.memory_bytes()
    }

    /// Records the use of this head, and returns that of all heads that share its limits.
    pub(crate) fn record_head_usage(&self) -> HeadSize {
        let evicted = self.head.index.evicted_count() / 16;
        self.head.usage.record(HeadSize {
            series: self.head.series_count() + evicted,
            bytes: self.memory_bytes(),
        })
    }

    /// Rejects a write if sealing lags too far behind. Without this limit, log and head would grow
    /// until disk or memory are full. The sender must retry.
    pub(crate) fn check_sealing_lag(&self) -> Result<(), Error> {
        let bytes = self.log.pressure().unsealed_bytes;
        let limit = self.options.backlog_bytes_max;
        if bytes <= limit {
            return Ok(());
        }
        self.metrics.backlog_refusals.inc();
        Err(StorageError::Backlog { bytes, limit }.into())
    }

    /// Returns an error if the data folder is scratch, since `operation` needs all samples to be in
    /// it.
    pub(crate) fn require_local_log(&self, operation: &'static str) -> Result<(), StorageError> {
        match self.trimming {
            LogTrimming::Sealed => Ok(()),
            LogTrimming::ByCut | LogTrimming::Never => {
                Err(StorageError::NeedsLocalLog { operation })
            }
        }
    }

    /// Returns the reported losses of samples in `range`, of any series.
    pub(crate) fn losses_in(&self, range: TimeRange) -> DataLossWarnings {
        warnings_of(self.damages.list_in_range(range))
    }

    /// Returns the losses that may affect lookups of labels and exemplars in `range`.
    pub(crate) fn list_lookup_losses(&self, range: TimeRange) -> DataLossWarnings {
        warnings_of(self.damages.list_for_lookups(range))
    }
}

fn warnings_of(damages: Vec<Damage>) -> DataLossWarnings {
    let losses = DataLossWarnings::default();
    for damage in damages {
        losses.add(&damage.warning());
    }
    losses
}
