//! `/api/v1/status/tsdb/blocks`: the blocks of the store, and the progress of cuts and compactions.

use super::call::ApiCall;
use super::status;
use crate::http::failure::ApiFailure;
use axum::response::Response;
use firn_model::sample::TimestampMs;
use firn_model::stats::{BlockStats, BlockStoreStats, BlockWorkStats};
use serde::Serialize;

/// Returns all blocks, sorted by time, with statistics of each and the state of running cuts and
/// compactions.
pub(crate) async fn blocks(call: ApiCall) -> Result<Response, ApiFailure> {
    call.require_one_tenant()?;
    let (list, tenant) = (call.backend.blocks.clone(), call.tenant.clone());
    status::run_and_respond(&call, move |_| {
        let blocks = list(&tenant).map_err(ApiFailure::execution)?;
        Ok(BlocksDocument::from(blocks))
    })
    .await
}

/// Upstream's field `blocks`, and Firn's extension.
#[derive(Serialize)]
struct BlocksDocument {
    blocks: Vec<BlockDocument>,
    firn: MaintenanceDocument,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MaintenanceDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_time: Option<TimestampMs>,
    cut: MaintenanceWorkDocument,
    compaction: MaintenanceWorkDocument,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MaintenanceWorkDocument {
    running: bool,
    series: u64,
    series_done: u64,
    written_bytes: u64,
    last_duration_seconds: f64,
}

/// A block with upstream's fields in upstream's order, without zero values, followed by Firn's own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockDocument {
    ulid: String,
    min_time: TimestampMs,
    max_time: TimestampMs,
    stats: BlockStatsDocument,
    compaction: BlockCompactionDocument,
    version: u32,
    firn: BlockExtensionDocument,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockStatsDocument {
    #[serde(skip_serializing_if = "is_zero")]
    num_samples: u64,
    #[serde(skip_serializing_if = "is_zero")]
    num_float_samples: u64,
    #[serde(skip_serializing_if = "is_zero")]
    num_histogram_samples: u64,
    #[serde(skip_serializing_if = "is_zero")]
    num_series: u64,
    #[serde(skip_serializing_if = "is_zero")]
    num_chunks: u64,
}

#[derive(Serialize)]
struct BlockCompactionDocument {
    level: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockExtensionDocument {
    bytes: u64,
    late: bool,
    bad: bool,
    first_time: TimestampMs,
    last_time: TimestampMs,
    num_exemplars: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u32>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl From<BlockStoreStats> for BlocksDocument {
    fn from(stats: BlockStoreStats) -> Self {
        Self {
            blocks: stats.blocks.into_iter().map(BlockDocument::from).collect(),
            firn: MaintenanceDocument {
                cut_time: stats.cut_time,
                cut: stats.cut.into(),
                compaction: stats.compaction.into(),
            },
        }
    }
}

impl From<BlockWorkStats> for MaintenanceWorkDocument {
    fn from(stats: BlockWorkStats) -> Self {
        Self {
            running: stats.is_running,
            series: stats.series,
            series_done: stats.series_done,
            written_bytes: stats.written_bytes,
            last_duration_seconds: stats.last_ms as f64 / 1e3,
        }
    }
}

impl From<BlockStats> for BlockDocument {
    fn from(stats: BlockStats) -> Self {
        Self {
            ulid: stats.id,
            min_time: stats.range.min,
            max_time: stats.range.max.saturating_add(1),
            stats: BlockStatsDocument {
                num_samples: stats.samples,
                num_float_samples: stats.samples.saturating_sub(stats.histograms),
                num_histogram_samples: stats.histograms,
                num_series: stats.series,
                num_chunks: stats.columns,
            },
            compaction: BlockCompactionDocument {
                level: stats.level,
                sources: stats.sources,
            },
            version: 1,
            firn: BlockExtensionDocument {
                bytes: stats.bytes,
                late: stats.is_late,
                bad: stats.is_bad,
                first_time: stats.sample_range.min,
                last_time: stats.sample_range.max,
                num_exemplars: stats.exemplars,
                shard: stats.shard,
            },
        }
    }
}
