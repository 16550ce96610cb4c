//! What a [`crate::store::Store`] is told when it is opened.

use crate::log;
use firn_model::tenant::TenantId;
use std::path::PathBuf;
use std::time::Duration;

/// Between syncs in [`SyncMode::Interval`]: what power loss costs at most.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// When a batch counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// After the sync of its block: survives power loss.
    #[default]
    Always,
    /// After the write of its block, a sync following soon: survives the end of the process, and
    /// power loss costs at most 200 ms under load, a second when idle.
    Interval,
    /// After the write of its block: survives the end of the process.
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

/// Log bytes that pile up before the first checkpoint: a second or two of replay.
pub const CHECKPOINT_LOG_BYTES: u64 = 256 << 20;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The data folder; created if it does not exist.
    pub dir: PathBuf,
    /// Whose samples they are: the store takes and gives no others.
    pub tenant: TenantId,
    /// Shards of the head: more let more writers work at once. With one shard series are born in
    /// the order of their batch and everything is deterministic.
    pub shards: usize,
    /// When a batch counts as durable.
    pub sync: SyncMode,
    /// Chunks wholly older than the newest sample by this much are dropped, and series without any.
    pub retention_ms: i64,
    /// Samples older than the newest sample of the store by more than this are refused.
    pub lateness_max_ms: i64,
    /// Series that the store holds at most.
    pub series_max: usize,
    /// A checkpoint is written when the log has grown since the last one by this many bytes, or by
    /// the size of that checkpoint if it is larger: at most as many bytes again are written as were
    /// logged.
    pub checkpoint_log_bytes: u64,
}

impl StoreOptions {
    /// The defaults for a store in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            shards: 8,
            sync: SyncMode::default(),
            tenant: TenantId::anonymous(),
            retention_ms: RETENTION_MS,
            lateness_max_ms: LATENESS_MAX_MS,
            series_max: usize::MAX,
            checkpoint_log_bytes: CHECKPOINT_LOG_BYTES,
        }
    }
}
