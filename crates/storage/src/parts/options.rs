//! The options with which a [`crate::store::Store`] is opened.

use crate::chunk::Duplicates;
use crate::log;
use crate::parts::retention::Retention;
use firn_model::log::Replaying;
use firn_model::series_key::{CanonicalKeys, KeyFormat};
use firn_model::tenant::TenantId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Between syncs in [`SyncMode::Interval`]: what power loss costs at most.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// When a batch counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// After the sync of its record: survives power loss.
    #[default]
    Always,
    /// After the write of its record, a sync following soon: survives the end of the process, and
    /// power loss costs at most 200 ms under load, a second when idle.
    Interval,
    /// After the write of its record: survives the end of the process.
    None,
}

impl From<SyncMode> for log::SyncMode {
    fn from(mode: SyncMode) -> Self {
        match mode {
            SyncMode::Always => Self::Always,
            SyncMode::Interval => Self::Interval(SYNC_INTERVAL),
            SyncMode::None => Self::None,
        }
    }
}

/// Retention when nothing else is said: Prometheus's 15 days.
pub const RETENTION_MS: i64 = 15 * 24 * 3_600_000;

/// How far behind the newest sample of the store a sample may lie: half of Prometheus's two-hour
/// block, as upstream without an out-of-order window.
pub const LATENESS_MAX_MS: i64 = 3_600_000;

/// The window that a page covers: 128 scrapes at 15 s. Shorter ones make more pages and more bytes
/// a sample, longer ones more log to replay and more samples in memory in their larger form.
pub const WINDOW_MS: i64 = 32 * 60_000;

/// The data time that a cut moves into a block: Prometheus's.
pub const CUT_MS: i64 = 2 * 3_600_000;

/// Data time between ticks at most: a 64th of a window, so that a replay at any speed meets as many
/// ticks in a window as sealing needs to spread its work.
pub const TICK_MS: i64 = 30_000;

/// Bytes of log that may wait to be sealed: 45 minutes of a million samples a second, and a minute
/// of replay after a crash.
pub const BACKLOG_BYTES_MAX: u64 = 4 << 30;

/// Bytes of opened pages in memory: two hours of 300,000 series.
pub const PAGE_CACHE_BYTES: usize = 64 << 20;

/// The least bound on bytes of late samples in memory.
const LATE_BYTES_MIN: usize = 8 << 20;

/// Where samples are sealed into pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sealing {
    /// By ticks, on the background thread: writers wait for no page.
    #[default]
    Background,
    /// By the write that finds a window full, before it returns. Only to show what the background
    /// is worth.
    WithWrites,
}

/// New series that are taken in an hour of data time; more are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSeriesBudget {
    /// Series altogether.
    pub all: usize,
    /// Series of each job.
    pub of_job: usize,
}

impl NewSeriesBudget {
    /// No bound.
    pub const NONE: Self = Self {
        all: usize::MAX,
        of_job: usize::MAX,
    };
}

/// How large a block becomes by a merge. What is more goes into a further one, which begins where
/// that ends in the order of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMax {
    /// Its series.
    pub series: u32,
    /// Its bytes.
    pub bytes: u64,
}

impl BlockMax {
    /// Eight million series: terms and lists wait in memory while a block is written, some ten
    /// bytes a series. 32 GiB: 64 files of pages, each of which is open while the block is.
    pub const DEFAULT: Self = Self {
        series: 8 << 20,
        bytes: 32 << 30,
    };
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The data folder; created if it does not exist.
    pub dir: PathBuf,
    /// Whose samples they are: the store takes and gives no others.
    pub tenant: TenantId,
    /// The format of series keys under which the store finds series without their labels. The
    /// labels of samples that come with keys of another format are always read.
    pub key_format: &'static dyn KeyFormat,
    /// Shards of the head: more let more writers work at once. With one shard series are created in
    /// the order of their batch and everything is deterministic.
    pub shards: usize,
    /// When a batch counts as durable.
    pub sync: SyncMode,
    /// Samples older than the newest one by this much are dropped, and series without any. This and
    /// the two after it change with [`crate::store::Store::set_retention`].
    pub retention_ms: i64,
    /// Bytes that the files may take.
    pub retention_bytes: Option<u64>,
    /// Hundredths of their file system that the files may take.
    pub retention_percent: Option<f64>,
    /// Samples older than the newest sample of the store by more than this are refused.
    pub lateness_max_ms: i64,
    /// How far behind the newest sample of the store a sample may lie that cannot be appended in
    /// order: it is taken as a late one. 0 is not at all. See
    /// [`crate::store::Store::set_late_window_ms`].
    pub late_window_ms: i64,
    /// Which of two samples of a series at one time stays.
    pub duplicates: Duplicates,
    /// Files that other rooms keep in the folder and a snapshot takes along, by their paths in it.
    /// Each grows or is replaced by another one, and says no more than the log does at that moment.
    pub beside: Vec<PathBuf>,
    /// Series that the store holds at most.
    pub series_max: usize,
    /// Bytes of memory of the head beyond which it takes no new series: series with long labels
    /// take more than others.
    pub head_bytes_max: usize,
    /// Bytes of memory for everything: a folder whose series take more is not opened.
    pub memory_max: usize,
    /// New series that are taken in an hour of data time; more are refused as beyond a limit.
    pub new_series: NewSeriesBudget,
    /// The window of data time that a page covers.
    pub window_ms: i64,
    /// The data time that a cut moves into a block, and of the smallest window of compaction.
    pub cut_ms: i64,
    /// How large a block becomes by a merge.
    pub block_max: BlockMax,
    /// Whether the windows of neighbouring series end at different times, so that the work is
    /// spread. Off only to show what that is worth.
    pub is_jittered: bool,
    /// Where samples are sealed into pages.
    pub sealing: Sealing,
    /// The store ticks by itself when so much data time has passed since the last tick.
    pub tick_ms: i64,
    /// A segment of the log is closed at this size: so much may lie in the log that is sealed.
    pub log_segment_bytes: u64,
    /// Bytes of the log, which holds what is not sealed, beyond which writes are refused until
    /// sealing has caught up. From half of it on everything is sealed at once.
    pub backlog_bytes_max: u64,
    /// A segment of pages is closed at this size, or with its two hours of data time.
    pub page_segment_bytes: u64,
    /// Bytes of opened pages in memory.
    pub page_cache_bytes: usize,
    /// Exemplars that are kept: 48 bytes and their labels each, which are 128 characters at most.
    pub exemplars_max: usize,
    /// Is told how far the log is replayed.
    pub replaying: Arc<Replaying>,
}

impl StoreOptions {
    /// The defaults for a store in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            shards: 8,
            sync: SyncMode::default(),
            tenant: TenantId::anonymous(),
            key_format: &CanonicalKeys,
            retention_ms: RETENTION_MS,
            retention_bytes: None,
            retention_percent: None,
            lateness_max_ms: LATENESS_MAX_MS,
            late_window_ms: 0,
            duplicates: Duplicates::default(),
            beside: Vec::new(),
            series_max: usize::MAX,
            head_bytes_max: usize::MAX,
            memory_max: usize::MAX,
            new_series: NewSeriesBudget::NONE,
            window_ms: WINDOW_MS,
            cut_ms: CUT_MS,
            block_max: BlockMax::DEFAULT,
            is_jittered: true,
            sealing: Sealing::default(),
            tick_ms: TICK_MS,
            log_segment_bytes: 16 << 20,
            backlog_bytes_max: BACKLOG_BYTES_MAX,
            page_segment_bytes: 128 << 20,
            page_cache_bytes: PAGE_CACHE_BYTES,
            exemplars_max: 0,
            replaying: Arc::default(),
        }
    }

    /// Bytes of late samples in memory from which on they are due to leave it: a sixteenth of what
    /// there is, and at least what is small beside any store.
    pub(crate) fn late_bytes_max(&self) -> usize {
        (self.memory_max / 16).max(LATE_BYTES_MIN)
    }

    /// How far behind the newest sample everything is taken in order and sealed: a group is sealed
    /// at most a window and its grace after the end of its window.
    pub(crate) fn open_ms(&self) -> i64 {
        self.lateness_max_ms.max(2 * self.window_ms)
    }

    /// How long, and how much, is kept.
    pub(crate) fn retention(&self) -> Retention {
        Retention {
            time_ms: self.retention_ms,
            bytes: self.retention_bytes,
            percent: self.retention_percent,
        }
    }
}
