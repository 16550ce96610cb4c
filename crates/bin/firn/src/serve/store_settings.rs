//! Settings of the store, derived from flags, config and the available memory.

use crate::serve::{metadata, rules};
use firn_cluster::tenants::{LimitsOfTenant, TenantStoreLimits, TenantStoreSettings};
use firn_config::Settings;
use firn_config::config::{Config, WalSync};
use firn_config::features::Feature;
use firn_model::shares::BudgetShares;
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::TenantLimits;
use firn_storage::store::{
    NewSeriesBudget, RetentionLimits, SealingThread, SeriesLimits, StoreOptions, StoreSyncMode,
};
use firn_wire::remote_write::KEY_FORMAT;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Memory in bytes of a series with its labels, its index entry and its open chunk: a quarter more
/// than one with eleven labels and eighty samples. When the head's share of memory is full, new
/// series are rejected and existing ones continue.
const SERIES_BYTES: usize = 512;

/// Number of WAL segments in a full backlog. The WAL is removed by whole segments.
const BACKLOG_SEGMENTS: usize = 8;

/// Minimum size of a WAL segment in bytes. Smaller segments would cost a sync and a file each for
/// little data.
const LOG_SEGMENT_BYTES_MIN: usize = 1 << 20;

/// Returns the files of the data folder that a snapshot contains in addition to those of the store,
/// relative to the data folder.
pub fn list_snapshot_files() -> Vec<PathBuf> {
    vec![rules::state_file(), metadata::pushed_file()]
}

/// Returns the options of a store with the given retention, within its shares of memory.
pub fn store_options(
    settings: &Settings,
    config: &Config,
    retention: RetentionLimits,
    shares: &BudgetShares,
) -> StoreOptions {
    let defaults = StoreOptions::new(&settings.data_dir);
    let own = TenantId::anonymous();
    let retention = retention_of(config, retention, &own);
    StoreOptions {
        key_format: KEY_FORMAT,
        sync: match config.wal_sync {
            WalSync::Always => StoreSyncMode::Always,
            WalSync::Interval => StoreSyncMode::Interval,
            WalSync::None => StoreSyncMode::None,
        },
        retention_ms: retention.time_ms,
        retention_rules: retention.rules,
        retention_bytes: retention.bytes,
        retention_percent: retention.percent,
        late_window_ms: late_window_ms(config, &own),
        duplicates: config.duplicates,
        beside: list_snapshot_files(),
        series_max: shares.head / SERIES_BYTES,
        head_bytes_max: shares.head,
        memory_max: shares.limit,
        exemplars_max: if keeps_exemplars(settings) {
            config.exemplars_max
        } else {
            0
        },
        // Unsealed samples take about as many bytes in the head as in the WAL. From half of the
        // backlog on everything is sealed at once; at that point the head's share is full.
        backlog_bytes_max: defaults.backlog_bytes_max.min(2 * shares.head as u64),
        log_segment_bytes: log_segment_bytes(defaults.log_segment_bytes, shares.head),
        page_cache_bytes: defaults.page_cache_bytes.min(shares.pages),
        is_jittered: config.is_sealing_jittered,
        sealing: if config.seals_in_background {
            SealingThread::Background
        } else {
            SealingThread::WithWrites
        },
        ..defaults
    }
}

/// Returns the size of a WAL segment if `head` bytes may wait to be sealed: the usual size, or
/// smaller, so that some segments can be closed and removed before the backlog is full.
fn log_segment_bytes(usual: u64, head: usize) -> u64 {
    let fitting = (head / BACKLOG_SEGMENTS).max(LOG_SEGMENT_BYTES_MIN);
    usual.min(fitting as u64)
}

/// Returns the limits of series of a tenant: its own, or those of the config.
pub fn series_limits(config: &Config, tenant: &TenantId) -> SeriesLimits {
    let of_tenant = config.overrides.limits_of(tenant);
    let limits = config.new_series;
    let all = of_tenant.new_series_max.or(limits.all);
    SeriesLimits {
        active: of_tenant.active_series_max.unwrap_or(usize::MAX),
        new: NewSeriesBudget {
            all: all.unwrap_or(usize::MAX),
            of_job: limits.of_job.unwrap_or(usize::MAX),
        },
        window_ms: i64::try_from(limits.window.as_millis()).unwrap_or(i64::MAX),
    }
}

/// Returns the limits of every tenant. `retention` is that of tenants without one of their own.
pub fn limits_by_tenant(config: &Arc<Config>, retention: RetentionLimits) -> LimitsOfTenant {
    let config = config.clone();
    Arc::new(move |tenant| TenantStoreLimits {
        series: series_limits(&config, tenant),
        late_window_ms: late_window_ms(&config, tenant),
        retention: retention_of(&config, retention.clone(), tenant),
    })
}

/// Returns the settings of the stores of tenants, or `None` without multitenancy.
pub fn tenancy(config: &Arc<Config>, retention: RetentionLimits) -> Option<TenantStoreSettings> {
    config.is_multitenant.then(|| TenantStoreSettings {
        idle_after: config.tenant_idle_time,
        limits: limits_by_tenant(config, retention),
    })
}

/// Returns the retention limits of a tenant: `common`, with its own time if it has one.
pub fn retention_of(
    config: &Config,
    common: RetentionLimits,
    tenant: &TenantId,
) -> RetentionLimits {
    let own = config.overrides.limits_of(tenant).retention;
    RetentionLimits {
        time_ms: own.map_or(common.time_ms, to_ms),
        ..common
    }
}

/// Returns the maximum lateness of accepted samples of a tenant behind the newest one, in
/// milliseconds.
pub fn late_window_ms(config: &Config, tenant: &TenantId) -> i64 {
    let own = config.overrides.limits_of(tenant).late_window;
    to_ms(own.unwrap_or(config.late_window))
}

/// Returns the limits of a tenant: its own, or those of the config for all tenants. `retention` is
/// the retention time of all tenants.
pub fn effective_limits(
    config: &Config,
    retention: Option<Duration>,
    tenant: &TenantId,
) -> TenantLimits {
    let own = config.overrides.limits_of(tenant);
    TenantLimits {
        new_series_max: own.new_series_max.or(config.new_series.all),
        late_window: own.late_window.or(Some(config.late_window)),
        retention: own.retention.or(retention),
        ..TenantLimits::clone(own)
    }
}

fn to_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Returns whether the command line enables the storage of exemplars.
pub fn keeps_exemplars(settings: &Settings) -> bool {
    settings.has_feature(Feature::ExemplarStorage)
}
