//! `/api/v1/status/tsdb/blocks`: the blocks of the store, and the progress of cuts and compactions.

use super::call::Call;
use super::status;
use crate::http::failure::Failure;
use axum::response::Response;
use firn_model::sample::TimestampMs;
use firn_model::stats::{BlockStats, BlockWorkStats, BlocksStats};
use serde::Serialize;

/// Returns all blocks, sorted by time, with statistics of each and the state of running cuts and
/// compactions.
pub(crate) async fn blocks(call: Call) -> Result<Response, Failure> {
    let list = call.backend.blocks.clone();
    status::computed(&call, move |_| Ok(Document::from(list()))).await
}

/// Upstream's field `blocks`, and Firn's extension.
#[derive(Serialize)]
struct Document {
    blocks: Vec<Block>,
    firn: Works,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Works {
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_time: Option<TimestampMs>,
    cut: Work,
    compaction: Work,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Work {
    running: bool,
    series: u64,
    series_done: u64,
    written_bytes: u64,
    last_duration_seconds: f64,
}

/// A block with upstream's fields in upstream's order, without zero values, followed by Firn's own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    ulid: String,
    min_time: TimestampMs,
    max_time: TimestampMs,
    stats: Stats,
    compaction: Compaction,
    version: u32,
    firn: Own,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
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
struct Compaction {
    level: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Own {
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

impl From<BlocksStats> for Document {
    fn from(stats: BlocksStats) -> Self {
        Self {
            blocks: stats.blocks.into_iter().map(Block::from).collect(),
            firn: Works {
                cut_time: stats.cut_time,
                cut: stats.cut.into(),
                compaction: stats.compaction.into(),
            },
        }
    }
}

impl From<BlockWorkStats> for Work {
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

impl From<BlockStats> for Block {
    fn from(stats: BlockStats) -> Self {
        Self {
            ulid: stats.id,
            min_time: stats.range.min,
            max_time: stats.range.max.saturating_add(1),
            stats: Stats {
                num_samples: stats.samples,
                num_float_samples: stats.samples.saturating_sub(stats.histograms),
                num_histogram_samples: stats.histograms,
                num_series: stats.series,
                num_chunks: stats.columns,
            },
            compaction: Compaction {
                level: stats.level,
                sources: stats.sources,
            },
            version: 1,
            firn: Own {
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
