//! The options with which a [`crate::store::Store`] is opened.

use crate::chunk::DuplicatePolicy;
use crate::log;
use crate::parts::head_usage::HeadUsage;
use crate::parts::retention_rules::RetentionRules;
use firn_model::fingerprint::FingerprintSeed;
use firn_model::log::LogReplayProgress;
use firn_model::series_key::{CanonicalKeys, KeyFormat};
use firn_model::tenant::TenantId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time between syncs in [`StoreSyncMode::Interval`]: the maximum loss after a power failure.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// The point at which a batch counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreSyncMode {
    /// After the sync of its record. The batch survives a power loss.
    #[default]
    Always,
    /// After the write of its record, which is synced soon after. The batch survives the end of the
    /// process; a power loss costs at most 200 ms under load, and a second when idle.
    Interval,
    /// After the write of its record. The batch survives the end of the process.
    None,
}

impl From<StoreSyncMode> for log::LogSyncMode {
    fn from(mode: StoreSyncMode) -> Self {
        match mode {
            StoreSyncMode::Always => Self::Always,
            StoreSyncMode::Interval => Self::Interval(SYNC_INTERVAL),
            StoreSyncMode::None => Self::None,
        }
    }
}

/// Default retention, in milliseconds: Prometheus's 15 days.
pub const RETENTION_MS: i64 = 15 * 24 * 3_600_000;

/// Default maximum age of samples in order, relative to the newest sample of the store: half of
/// Prometheus's two-hour block, as upstream without an out-of-order window.
pub const LATENESS_MAX_MS: i64 = 3_600_000;

/// Default length of the window that a page covers: 128 scrapes at 15 s. Shorter windows mean more
/// pages and more bytes per sample, longer ones mean more log to replay and more samples in their
/// larger form in memory.
pub const WINDOW_MS: i64 = 32 * 60_000;

/// Default data time that a cut moves into a block: that of Prometheus.
pub const CUT_MS: i64 = 2 * 3_600_000;

/// Default maximum data time between ticks: a 64th of a window, so that a replay at any speed has
/// as many ticks per window as sealing needs to spread its work.
pub const TICK_MS: i64 = 30_000;

/// Default maximum bytes of unsealed log: 45 minutes of a million samples per second, and a minute
/// of replay after a crash.
pub const BACKLOG_BYTES_MAX: u64 = 4 << 30;

/// Default memory of cached pages, in bytes: two hours of 300,000 series.
pub const PAGE_CACHE_BYTES: usize = 64 << 20;

/// Minimum of the memory limit of late samples, in bytes.
const LATE_BYTES_MIN: usize = 8 << 20;

/// The records that the store deletes from its log. Each way to open a store has its own rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogTrimming {
    /// Records whose samples are in pages or blocks of the data folder, and whose series are in its
    /// catalogue. The rule of [`crate::store::Store::open`].
    #[default]
    Sealed,
    /// Records whose samples are in blocks of a home ([`crate::blocks::home`]), together with a
    /// catalogue of their series: the data folder is scratch. The rule of
    /// [`crate::store::Store::open_with_home`].
    ByCut,
    /// None: the data folder is scratch, and the log alone restores all samples. The rule of
    /// [`crate::store::Store::open_with_log`].
    Never,
}

/// The thread that seals samples into pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SealingThread {
    /// The background thread, by ticks: writes never wait for a page.
    #[default]
    Background,
    /// The thread of the write that finds a window full, before it returns. For benchmarks only.
    WithWrites,
}

/// Maximum number of new series per hour of data time; more are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSeriesBudget {
    /// Maximum number of new series in total.
    pub all: usize,
    /// Maximum number of new series per job.
    pub of_job: usize,
}

impl NewSeriesBudget {
    /// No limit on the number of new series.
    pub const NONE: Self = Self {
        all: usize::MAX,
        of_job: usize::MAX,
    };
}

/// Maximum size of a block that is the result of a merge. Further series go into another block,
/// which follows in block order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizeLimit {
    /// Maximum number of series in one block.
    pub series: u32,
    /// Maximum size of one block in bytes.
    pub bytes: u64,
}

impl BlockSizeLimit {
    /// Eight million series: terms and lists are held in memory while a block is written, about ten
    /// bytes per series. 32 GiB: 64 files of pages, each of which is open while the block is.
    pub const DEFAULT: Self = Self {
        series: 8 << 20,
        bytes: 32 << 30,
    };
}

/// Retention limits of a store, by time and by size.
#[derive(Clone, Debug, PartialEq)]
pub struct RetentionLimits {
    /// Samples older than the newest one by this many milliseconds are deleted; `i64::MAX` means no
    /// limit.
    pub time_ms: i64,
    /// Retention times of matching series, which replace `time_ms` for them.
    pub rules: RetentionRules,
    /// Maximum size of the files of the store, in bytes.
    pub bytes: Option<u64>,
    /// Maximum size of the files as a percentage of their file system. Takes precedence over
    /// `bytes`, unless the size of the file system is unavailable.
    pub percent: Option<f64>,
}

impl RetentionLimits {
    /// Returns the limits of one of `count` stores that divide samples evenly: the retention time,
    /// and an equal part of the size limits.
    pub fn divide_among(self, count: usize) -> Self {
        Self {
            time_ms: self.time_ms,
            rules: self.rules,
            bytes: self.bytes.map(|bytes| bytes.div_ceil(count as u64)),
            percent: self.percent.map(|percent| percent / count as f64),
        }
    }
}

/// The options of a store. [`StoreOptions::new`] returns the defaults.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The data folder; created if it does not exist.
    pub dir: PathBuf,
    /// The tenant of all samples: requests for other tenants are rejected.
    pub tenant: TenantId,
    /// The format of series keys with which the store finds series without their labels. For
    /// samples with keys of another format, the labels are always read.
    pub key_format: &'static dyn KeyFormat,
    /// Seed of the fingerprints in a new folder; random if there is none. An existing folder keeps
    /// its own.
    pub new_seed: Option<FingerprintSeed>,
    /// Number of shards of the head: more shards let more writers work at once. With one shard,
    /// series are created in the order of their batch and everything is deterministic.
    pub shards: usize,
    /// The point at which a batch counts as durable.
    pub sync: StoreSyncMode,
    /// Retention time in milliseconds: samples older than the newest one by this much are deleted,
    /// as are series without samples. [`crate::store::Store::set_retention`] changes this and the
    /// next three options.
    pub retention_ms: i64,
    /// Retention times of matching series, which replace `retention_ms` for them.
    pub retention_rules: RetentionRules,
    /// Maximum size of all files, in bytes.
    pub retention_bytes: Option<u64>,
    /// Maximum size of all files, as a percentage of their file system.
    pub retention_percent: Option<f64>,
    /// Maximum age of samples in order in milliseconds, relative to the newest sample of the store.
    pub lateness_max_ms: i64,
    /// The out-of-order window in milliseconds: samples that cannot be appended in order are
    /// accepted as late ones up to this age, relative to the newest sample of the store; 0 rejects
    /// them. See [`crate::store::Store::set_late_window_ms`].
    pub late_window_ms: i64,
    /// The rule for two samples of a series at the same time.
    pub duplicates: DuplicatePolicy,
    /// Files of other components in the folder that a snapshot includes, as paths relative to the
    /// folder. Each file grows or is replaced, and refers only to records that the log contains at
    /// that moment.
    pub beside: Vec<PathBuf>,
    /// The use of the head. Stores that are opened with clones of one value share the next two
    /// limits.
    pub head_usage: HeadUsage,
    /// Maximum number of series.
    pub series_max: usize,
    /// Memory of the head in bytes above which new series are rejected: series with long labels
    /// take more than others.
    pub head_bytes_max: usize,
    /// Memory limit for everything, in bytes: a folder whose series take more is not opened.
    pub memory_max: usize,
    /// Number of stores that may share the memory for late samples; 1 for a store alone.
    pub late_sharers: usize,
    /// Maximum number of new series per hour of data time; more are rejected like those beyond a
    /// limit.
    pub new_series: NewSeriesBudget,
    /// Length of the window of data time that a page covers, in milliseconds.
    pub window_ms: i64,
    /// Data time that a cut moves into a block, in milliseconds; also the smallest window of
    /// compaction.
    pub cut_ms: i64,
    /// Maximum size of a block that is the result of a merge.
    pub block_max: BlockSizeLimit,
    /// True if the windows of neighbouring series end at different times, so that the work is
    /// spread. False for benchmarks only.
    pub is_jittered: bool,
    /// The thread that seals samples into pages.
    pub sealing: SealingThread,
    /// Data time in milliseconds after which an append triggers a tick.
    pub tick_ms: i64,
    /// Size in bytes at which a segment of the log is closed: the maximum amount of sealed records
    /// that remain in the log.
    pub log_segment_bytes: u64,
    /// Size of the log, which contains the unsealed samples, above which writes are rejected until
    /// sealing has caught up. Above half of it, everything is sealed at once.
    pub backlog_bytes_max: u64,
    /// Size in bytes at which a segment of pages is closed; it is also closed after two hours of
    /// data time.
    pub page_segment_bytes: u64,
    /// Memory of cached pages, and of cached units of blocks, in bytes. See
    /// [`crate::store::Store::set_cache_bytes`].
    pub page_cache_bytes: usize,
    /// Maximum number of exemplars: 48 bytes each plus their labels, which have at most 128
    /// characters.
    pub exemplars_max: usize,
    /// Receives the progress of the replay of the log.
    pub replaying: Arc<LogReplayProgress>,
}

impl StoreOptions {
    /// Returns the default options for a store in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            shards: 8,
            sync: StoreSyncMode::default(),
            tenant: TenantId::anonymous(),
            key_format: &CanonicalKeys,
            new_seed: None,
            retention_ms: RETENTION_MS,
            retention_rules: RetentionRules::default(),
            retention_bytes: None,
            retention_percent: None,
            lateness_max_ms: LATENESS_MAX_MS,
            late_window_ms: 0,
            duplicates: DuplicatePolicy::default(),
            beside: Vec::new(),
            head_usage: HeadUsage::default(),
            series_max: usize::MAX,
            head_bytes_max: usize::MAX,
            memory_max: usize::MAX,
            late_sharers: 1,
            new_series: NewSeriesBudget::NONE,
            window_ms: WINDOW_MS,
            cut_ms: CUT_MS,
            block_max: BlockSizeLimit::DEFAULT,
            is_jittered: true,
            sealing: SealingThread::default(),
            tick_ms: TICK_MS,
            log_segment_bytes: 16 << 20,
            backlog_bytes_max: BACKLOG_BYTES_MAX,
            page_segment_bytes: 128 << 20,
            page_cache_bytes: PAGE_CACHE_BYTES,
            exemplars_max: 0,
            replaying: Arc::default(),
        }
    }

    /// Returns the memory of late samples in bytes at which a flush is due: a sixteenth of the
    /// memory limit, but not less than an amount that is small for any store.
    pub(crate) fn late_bytes_max(&self) -> usize {
        (self.memory_max / 16 / self.late_sharers.max(1)).max(LATE_BYTES_MIN)
    }

    /// Returns the time in milliseconds behind the newest sample after which everything is appended
    /// and sealed: a group is sealed at most a window and its grace period after the end of its
    /// window.
    pub(crate) fn open_ms(&self) -> i64 {
        self.lateness_max_ms.max(2 * self.window_ms)
    }

    /// Returns the retention limits.
    pub fn retention(&self) -> RetentionLimits {
        RetentionLimits {
            time_ms: self.retention_ms,
            rules: self.retention_rules.clone(),
            bytes: self.retention_bytes,
            percent: self.retention_percent,
        }
    }
}
