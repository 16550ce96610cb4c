//! `/api/v1/status/...` and `/version`: small documents about the process, its configuration and
//! the head.

use super::answer::{ResponseAnnotations, document};
use super::call::ApiCall;
use super::form::parse_integer;
use super::times::format_rfc3339;
use crate::admission::run::QueryRun;
use crate::app::ServerApp;
use crate::http::failure::ApiFailure;
use crate::http::produce::{ResponseEncoding, respond};
use crate::json::escape_html;
use crate::parts::{BuildInfo, RuntimeInfo};
use axum::body::Bytes;
use axum::extract::Request;
use axum::response::Response;
use firn_model::damage::Damage;
use firn_model::stats::{NamedStat, StoreStats};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

/// Default number of lines of a table in `/status/tsdb`, the same as upstream's.
const TABLE_LINES: i64 = 10;

/// Maximum number of lines that a request may select, the same as upstream's.
const TABLE_LINES_MAX: i64 = 10_000;

/// Returns a 200 response with `data`. The data must be small, because it is encoded on the async
/// thread without waiting in the query queue.
pub(crate) fn ok_response(call: &ApiCall, data: &impl Serialize) -> Result<Response, ApiFailure> {
    Ok(call.json(json_document(data)?))
}

/// Returns a 200 response with the result of `job`, which runs in the query queue; see
/// [`ApiCall::compute`]. The result is encoded there as well, because it may be long.
pub(crate) async fn run_and_respond<T: Serialize>(
    call: &ApiCall,
    job: impl FnOnce(&Arc<QueryRun>) -> Result<T, ApiFailure> + Send + 'static,
) -> Result<Response, ApiFailure> {
    let document = call.compute(move |run| json_document(&job(run)?));
    Ok(call.json(document.await?))
}

/// Returns `data` in the envelope of a successful response, encoded on the calling thread.
pub(super) fn json_document(data: &impl Serialize) -> Result<Bytes, ApiFailure> {
    let data = serde_json::to_vec(data).map_err(|e| ApiFailure::internal(e.to_string()))?;
    let data = escape_html(data);
    Ok(document(&data, &ResponseAnnotations::default()).into())
}

/// Returns the build information. If rules can be edited, it includes Mimir's feature flag, on
/// which Grafana enables its rule editor.
pub(crate) async fn build_info(call: ApiCall) -> Result<Response, ApiFailure> {
    let parts = &call.app.parts;
    let features = (parts.edits_rules)().then_some(EditorFeatures {
        ruler_config_api: "true",
    });
    let build = &parts.build;
    ok_response(&call, &BuildDocument { build, features })
}

#[derive(Serialize)]
struct BuildDocument<'a> {
    #[serde(flatten)]
    build: &'a BuildInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<EditorFeatures>,
}

/// Feature flags with Mimir's names. The value is a string, as Grafana expects.
#[derive(Serialize)]
struct EditorFeatures {
    ruler_config_api: &'static str,
}

/// Returns the body of `/version`: the build information without an envelope.
pub(crate) fn version(app: &ServerApp) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(&app.parts.build).map(Bytes::from)
}

/// Returns the progress of the log replay under Prometheus's names. Available while the server
/// starts.
pub(crate) async fn replay(app: ServerApp, request: Request) -> Response {
    let replayed = app.parts.replaying.positions();
    let document = ReplayDocument {
        min: replayed.first.0,
        max: replayed.last.0,
        current: replayed.at.0,
    };
    match json_document(&document) {
        Ok(text) => respond(
            text,
            "application/json",
            ResponseEncoding::from_request(&request),
        ),
        Err(failure) => failure.into_json(),
    }
}

#[derive(Serialize)]
struct ReplayDocument {
    min: u64,
    max: u64,
    current: u64,
}

/// Returns properties of the running process, with upstream's field names.
pub(crate) async fn runtime_info(call: ApiCall) -> Result<Response, ApiFailure> {
    let info = (call.app.parts.runtime)();
    let now = call.app.parts.env.clock.now_ms();
    ok_response(&call, &RuntimeDocument::new(info, format_rfc3339(now)))
}

/// Upstream's fields in upstream's order. Fields about Go's garbage collector are empty.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeDocument {
    start_time: String,
    #[serde(rename = "CWD")]
    working_dir: String,
    hostname: String,
    server_time: String,
    reload_config_success: bool,
    last_config_time: String,
    corruption_count: u64,
    goroutine_count: u64,
    #[serde(rename = "GOMAXPROCS")]
    cores: u64,
    #[serde(rename = "GOMEMLIMIT")]
    memory_limit_bytes: u64,
    #[serde(rename = "GOGC")]
    gc_percent: &'static str,
    #[serde(rename = "GODEBUG")]
    debug: &'static str,
    storage_retention: String,
}

impl RuntimeDocument {
    fn new(info: RuntimeInfo, server_time: String) -> Self {
        Self {
            start_time: format_rfc3339(info.start_time),
            working_dir: info.working_dir,
            hostname: info.hostname,
            server_time,
            reload_config_success: info.reload_config_success,
            last_config_time: format_rfc3339(info.last_config_time),
            corruption_count: info.corruption_count,
            goroutine_count: info.thread_count,
            cores: info.cores,
            memory_limit_bytes: info.memory_limit_bytes,
            gc_percent: "",
            debug: "",
            storage_retention: info.storage_retention,
        }
    }
}

/// Returns the flags with values, defaults and descriptions, in the order of `--help`.
pub(crate) async fn settings(call: ApiCall) -> Result<Response, ApiFailure> {
    ok_response(&call, &json!({ "settings": call.app.parts.settings }))
}

/// Returns all flags of the command line with their values, as strings.
pub(crate) async fn flags(call: ApiCall) -> Result<Response, ApiFailure> {
    ok_response(&call, &call.app.parts.flags)
}

/// Returns the running configuration as a YAML text in JSON.
pub(crate) async fn config(call: ApiCall) -> Result<Response, ApiFailure> {
    ok_response(&call, &json!({ "yaml": (call.app.parts.config)() }))
}

/// Returns statistics of the head. Runs in the query queue, because counting may take long.
pub(crate) async fn tsdb(call: ApiCall) -> Result<Response, ApiFailure> {
    let lines = match call.form.get("limit") {
        "" => TABLE_LINES,
        text => parse_integer(text)
            .ok()
            .filter(|lines| *lines >= 1)
            .ok_or_else(|| ApiFailure::bad_data("limit must be a positive number"))?,
    };
    if lines > TABLE_LINES_MAX {
        let message = format!("limit must not exceed {TABLE_LINES_MAX}");
        return Err(ApiFailure::bad_data(message));
    }
    call.require_one_tenant()?;
    let (count, tenant) = (call.backend.stats.clone(), call.tenant.clone());
    run_and_respond(&call, move |_| {
        let stats = count(&tenant, lines as usize).map_err(ApiFailure::execution)?;
        Ok(TsdbDocument::from(stats))
    })
    .await
}

/// Upstream's fields in upstream's order, followed by Firn's extensions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TsdbDocument {
    head_stats: HeadStatsDocument,
    series_count_by_metric_name: Vec<CardinalityEntry>,
    label_value_count_by_label_name: Vec<CardinalityEntry>,
    memory_in_bytes_by_label_name: Vec<CardinalityEntry>,
    series_count_by_label_value_pair: Vec<CardinalityEntry>,
    /// Extension: jobs that exceeded their limit of new series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_series_count_by_job: Vec<CardinalityEntry>,
    /// Extension: damage that was found since the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damages: Vec<DamageDocument>,
}

/// A damaged part of the data. Unknown fields are omitted.
#[derive(Serialize)]
struct DamageDocument {
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HeadStatsDocument {
    num_series: u64,
    num_label_pairs: u64,
    chunk_count: u64,
    min_time: i64,
    max_time: i64,
}

#[derive(Serialize)]
struct CardinalityEntry {
    name: String,
    value: u64,
}

impl From<StoreStats> for TsdbDocument {
    fn from(stats: StoreStats) -> Self {
        Self {
            head_stats: HeadStatsDocument {
                num_series: stats.series,
                num_label_pairs: stats.label_pairs,
                chunk_count: stats.chunks,
                // Upstream's values for a head without samples.
                min_time: stats.min_time.unwrap_or(i64::MAX),
                max_time: stats.max_time.unwrap_or(i64::MIN),
            },
            series_count_by_metric_name: lines(stats.series_count_by_metric_name),
            label_value_count_by_label_name: lines(stats.label_value_count_by_label_name),
            memory_in_bytes_by_label_name: lines(stats.memory_in_bytes_by_label_name),
            series_count_by_label_value_pair: lines(stats.series_count_by_label_value_pair),
            refused_series_count_by_job: lines(stats.refused_series_by_job),
            damages: stats
                .damages
                .into_iter()
                .map(DamageDocument::from)
                .collect(),
        }
    }
}

impl From<Damage> for DamageDocument {
    fn from(damage: Damage) -> Self {
        Self {
            kind: damage.kind.as_str(),
            file: damage.file.display().to_string(),
            offset: damage.offset,
            what: damage.what,
            samples: damage.samples,
            from: damage.range.map(|range| range.min),
            to: damage.range.map(|range| range.max),
        }
    }
}

fn lines(stats: Vec<NamedStat>) -> Vec<CardinalityEntry> {
    let line = |stat: NamedStat| CardinalityEntry {
        name: stat.name,
        value: stat.value,
    };
    stats.into_iter().map(line).collect()
}
