//! `/api/v1/status/cluster`: the nodes and partitions of a cluster as this node sees them.
//!
//! Invariant: the endpoint answers before the store is open, so that a node that joins or replays
//! is visible.

use super::status::json_document;
use crate::app::ServerApp;
use crate::http::blocking::run_blocking;
use crate::http::produce::{ResponseEncoding, respond};
use axum::extract::Request;
use axum::response::Response;
use firn_model::cluster_status::{ClusterStatus, MemberStatus, PartitionStatus};
use firn_model::sample::TimestampMs;
use serde::Serialize;

/// Returns the state of the cluster, or `"enabled": false` on a single server.
pub(crate) async fn cluster(app: ServerApp, request: Request) -> Response {
    let encoding = ResponseEncoding::from_request(&request);
    let time = app.parts.env.clock.now_ms();
    let text = match app.parts.cluster.as_ref().map(|c| c.status.clone()) {
        None => json_document(&SingleDocument { enabled: false }),
        Some(status) => {
            let status = run_blocking(move || status()).await;
            status.and_then(|status| json_document(&ClusterDocument::new(status, time)))
        }
    };
    match text {
        Ok(text) => respond(text, "application/json", encoding),
        Err(failure) => failure.into_json(),
    }
}

/// The document of a server that is not a node of a cluster.
#[derive(Serialize)]
struct SingleDocument {
    enabled: bool,
}

/// The state of a cluster. Times are milliseconds since the Unix epoch; `time` is the current one
/// of the node, from which readers compute ages.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterDocument {
    enabled: bool,
    cluster: String,
    node: String,
    version: String,
    draining: bool,
    time: TimestampMs,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    nodes: Vec<MemberDocument>,
    partitions: Vec<PartitionDocument>,
}

/// A node. Without `seenSecondsAgo` it is the reporting one, or has never answered.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberDocument {
    name: String,
    address: String,
    version: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_seconds_ago: Option<f64>,
    partitions_led: usize,
}

/// A partition. Unknown fields are omitted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PartitionDocument {
    partition: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    epoch: u64,
    state: &'static str,
    position: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_time: Option<TimestampMs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_commit_time: Option<TimestampMs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

impl ClusterDocument {
    fn new(status: ClusterStatus, time: TimestampMs) -> Self {
        let partitions = status.partitions.into_iter();
        Self {
            enabled: true,
            cluster: status.cluster,
            node: status.node,
            version: status.version,
            draining: status.is_draining,
            time,
            fault: status.fault,
            nodes: status.nodes.into_iter().map(MemberDocument::from).collect(),
            partitions: partitions.map(PartitionDocument::from).collect(),
        }
    }
}

impl From<MemberStatus> for MemberDocument {
    fn from(status: MemberStatus) -> Self {
        Self {
            name: status.name,
            address: status.address,
            version: status.version,
            state: status.state.as_str(),
            seen_seconds_ago: status.seen_ago.map(|ago| ago.as_millis() as f64 / 1e3),
            partitions_led: status.partitions_led,
        }
    }
}

impl From<PartitionStatus> for PartitionDocument {
    fn from(status: PartitionStatus) -> Self {
        Self {
            partition: status.partition,
            leader: status.leader,
            epoch: status.epoch,
            state: status.state.as_str(),
            position: status.position,
            series: status.series,
            cut_time: status.cut_ms,
            last_commit_time: status.last_commit_ms,
            log_bytes: status.log_bytes,
            fault: status.fault,
        }
    }
}
