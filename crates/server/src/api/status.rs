//! `/api/v1/status/...` and `/version`: small documents about the process, its configuration and
//! the head.

use super::answer::{Annotations, document};
use super::call::Call;
use super::form::parse_integer;
use super::times::format_rfc3339;
use crate::app::App;
use crate::http::failure::Failure;
use crate::http::produce::{Encoding, respond};
use crate::json::escape_html;
use crate::parts::{BuildInfo, RuntimeInfo};
use axum::body::Bytes;
use axum::extract::Request;
use axum::response::Response;
use firn_model::cancel::Cancel;
use firn_model::damage::Damage;
use firn_model::stats::{Stat, StoreStats};
use serde::Serialize;
use serde_json::json;

/// Default number of lines of a table in `/status/tsdb`, the same as upstream's.
const TABLE_LINES: i64 = 10;

/// Maximum number of lines that a request may select, the same as upstream's.
const TABLE_LINES_MAX: i64 = 10_000;

/// Returns a 200 response with `data`. The data must be small, because it is encoded on the async
/// thread without waiting in the query queue.
pub(crate) fn ok(call: &Call, data: &impl Serialize) -> Result<Response, Failure> {
    Ok(call.json(json_document(data)?))
}

/// Returns a 200 response with the result of `job`, which runs in the query queue; see
/// [`Call::compute`]. The result is encoded there as well, because it may be long.
pub(crate) async fn computed<T: Serialize>(
    call: &Call,
    job: impl FnOnce(&Cancel) -> Result<T, Failure> + Send + 'static,
) -> Result<Response, Failure> {
    let document = call.compute(move |cancel| json_document(&job(cancel)?));
    Ok(call.json(document.await?))
}

fn json_document(data: &impl Serialize) -> Result<Bytes, Failure> {
    let data = serde_json::to_vec(data).map_err(|e| Failure::internal(e.to_string()))?;
    let data = escape_html(data);
    Ok(document(&data, &Annotations::default()).into())
}

/// Returns the build information. If rules can be edited, it includes Mimir's feature flag, on
/// which Grafana enables its rule editor.
pub(crate) async fn build_info(call: Call) -> Result<Response, Failure> {
    let parts = &call.app.parts;
    let features = (parts.edits_rules)().then_some(EditorFeatures {
        ruler_config_api: "true",
    });
    let build = &parts.build;
    ok(&call, &BuildDocument { build, features })
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
pub(crate) fn version(app: &App) -> Result<Bytes, serde_json::Error> {
    serde_json::to_vec(&app.parts.build).map(Bytes::from)
}

/// Returns the progress of the log replay under Prometheus's names. Available while the server
/// starts.
pub(crate) async fn replay(app: App, request: Request) -> Response {
    let replayed = app.parts.replaying.now();
    let document = ReplayDocument {
        min: replayed.first.0,
        max: replayed.last.0,
        current: replayed.at.0,
    };
    match json_document(&document) {
        Ok(text) => respond(text, "application/json", Encoding::of_request(&request)),
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
pub(crate) async fn runtime_info(call: Call) -> Result<Response, Failure> {
    let info = (call.app.parts.runtime)();
    let now = call.app.parts.env.clock.now_ms();
    ok(&call, &RuntimeDocument::new(info, format_rfc3339(now)))
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

/// Returns all flags of the command line with their values, as strings.
pub(crate) async fn flags(call: Call) -> Result<Response, Failure> {
    ok(&call, &call.app.parts.flags)
}

/// Returns the running configuration as a YAML text in JSON.
pub(crate) async fn config(call: Call) -> Result<Response, Failure> {
    ok(&call, &json!({ "yaml": (call.app.parts.config)() }))
}

/// Returns statistics of the head. Runs in the query queue, because counting may take long.
pub(crate) async fn tsdb(call: Call) -> Result<Response, Failure> {
    let lines = match call.form.get("limit") {
        "" => TABLE_LINES,
        text => parse_integer(text)
            .ok()
            .filter(|lines| *lines >= 1)
            .ok_or_else(|| Failure::bad_data("limit must be a positive number"))?,
    };
    if lines > TABLE_LINES_MAX {
        let message = format!("limit must not exceed {TABLE_LINES_MAX}");
        return Err(Failure::bad_data(message));
    }
    let count = call.backend.stats.clone();
    computed(&call, move |_| {
        Ok(TsdbDocument::from(count(lines as usize)))
    })
    .await
}

/// Upstream's fields in upstream's order, followed by Firn's extensions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TsdbDocument {
    head_stats: HeadStats,
    series_count_by_metric_name: Vec<Line>,
    label_value_count_by_label_name: Vec<Line>,
    memory_in_bytes_by_label_name: Vec<Line>,
    series_count_by_label_value_pair: Vec<Line>,
    /// Extension: jobs that exceeded their limit of new series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_series_count_by_job: Vec<Line>,
    /// Extension: damage that was found since the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damages: Vec<DamageLine>,
}

/// A damaged part of the data. Unknown fields are omitted.
#[derive(Serialize)]
struct DamageLine {
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
struct HeadStats {
    num_series: u64,
    num_label_pairs: u64,
    chunk_count: u64,
    min_time: i64,
    max_time: i64,
}

#[derive(Serialize)]
struct Line {
    name: String,
    value: u64,
}

impl From<StoreStats> for TsdbDocument {
    fn from(stats: StoreStats) -> Self {
        Self {
            head_stats: HeadStats {
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
            damages: stats.damages.into_iter().map(DamageLine::from).collect(),
        }
    }
}

impl From<Damage> for DamageLine {
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

fn lines(stats: Vec<Stat>) -> Vec<Line> {
    let line = |stat: Stat| Line {
        name: stat.name,
        value: stat.value,
    };
    stats.into_iter().map(line).collect()
}
