//! What flags, config and memory say of the store.

use crate::serve::{metadata, rules};
use crate::settings::Settings;
use crate::settings::config::{Config, WalSync};
use firn_model::shares::Shares;
use firn_storage::store::{self, NewSeriesBudget, Sealing, StoreOptions, SyncMode};
use firn_wire::remote_write::KEY_FORMAT;
use std::path::PathBuf;

/// The feature without which exemplars are not kept.
const EXEMPLAR_STORAGE: &str = "exemplar-storage";

/// Memory that a series takes with its labels, its place in the index and its open chunk: a quarter
/// more than one with eleven labels and eighty samples. When the share of the head is full, new
/// series are refused and the old ones go on.
const SERIES_BYTES: usize = 512;

/// The log goes by segments: so many fit in its backlog.
const BACKLOG_SEGMENTS: usize = 8;

/// The least segment of the log: smaller ones cost a sync and a file each for little.
const LOG_SEGMENT_BYTES_MIN: usize = 1 << 20;

/// Files of the data folder that are not the store's and that a snapshot has, by their paths there.
pub fn files_beside() -> Vec<PathBuf> {
    vec![rules::state_file(), metadata::pushed_file()]
}

/// The options of a store that keeps what `retention` says, in its share of memory.
pub fn store_options(
    settings: &Settings,
    config: &Config,
    retention: store::Retention,
    shares: &Shares,
) -> StoreOptions {
    let defaults = StoreOptions::new(&settings.data_dir);
    StoreOptions {
        key_format: KEY_FORMAT,
        sync: match config.wal_sync {
            WalSync::Always => SyncMode::Always,
            WalSync::Interval => SyncMode::Interval,
            WalSync::None => SyncMode::None,
        },
        retention_ms: retention.time_ms,
        retention_bytes: retention.bytes,
        retention_percent: retention.percent,
        late_window_ms: late_window_ms(config),
        duplicates: config.duplicates,
        beside: files_beside(),
        series_max: shares.head / SERIES_BYTES,
        head_bytes_max: shares.head,
        memory_max: shares.limit,
        new_series: NewSeriesBudget {
            all: config.new_series.all.unwrap_or(usize::MAX),
            of_job: config.new_series.of_job.unwrap_or(usize::MAX),
        },
        exemplars_max: match keeps_exemplars(settings) {
            true => config.exemplars_max,
            false => 0,
        },
        // In the head what is not sealed takes about as many bytes as in the log: from half of the
        // backlog on everything is sealed at once, which is when the share of the head is full.
        backlog_bytes_max: defaults.backlog_bytes_max.min(2 * shares.head as u64),
        log_segment_bytes: log_segment_bytes(defaults.log_segment_bytes, shares.head),
        page_cache_bytes: defaults.page_cache_bytes.min(shares.pages),
        is_jittered: config.is_sealing_jittered,
        sealing: match config.seals_in_background {
            true => Sealing::Background,
            false => Sealing::WithWrites,
        },
        ..defaults
    }
}

/// Bytes of a segment of the log where `head` bytes may wait to be sealed: the usual ones, or as
/// many as let some segments be closed, and removed, before the backlog is full.
fn log_segment_bytes(usual: u64, head: usize) -> u64 {
    let fitting = (head / BACKLOG_SEGMENTS).max(LOG_SEGMENT_BYTES_MIN);
    usual.min(fitting as u64)
}

/// How far behind the newest sample late ones are taken.
pub fn late_window_ms(config: &Config) -> i64 {
    i64::try_from(config.late_window.as_millis()).unwrap_or(i64::MAX)
}

/// Whether exemplars are kept, as far as the command line says.
pub fn keeps_exemplars(settings: &Settings) -> bool {
    settings
        .features
        .iter()
        .any(|name| name == EXEMPLAR_STORAGE)
}
