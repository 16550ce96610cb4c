//! `/api/v1/user_stats`, `/api/v1/user_limits` and `/distributor/all_user_stats`: usage and limits
//! of tenants, in Mimir's documents with further fields.
//!
//! Counts start with the process. In a cluster they are those of the requests to this node.

use super::call::{ApiCall, not_ready};
use crate::admission::run::QueryRun;
use crate::app::ServerApp;
use crate::http::blocking::run_blocking;
use crate::http::failure::ApiFailure;
use crate::http::produce::{ResponseEncoding, respond};
use crate::metrics::ServerEndpoint;
use crate::parts::Backend;
use axum::body::Bytes;
use axum::extract::Request;
use axum::response::Response;
use firn_ingest::{AttributionReport, AttributionRow, TenantUsageReport};
use firn_model::columns::SeriesBatch;
use firn_model::error::Error;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{SelectRequest, Selection};
use firn_model::tenant::TenantId;
use firn_model::units::format_duration;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// Age of the newest sample behind that of the store up to which a series counts for its value, in
/// milliseconds: the time of one block.
const IN_MEMORY_MS: i64 = 2 * 3_600_000;

/// Number of series whose newest samples are read at once.
const SERIES_PER_READ: usize = 1024;

/// Mimir's fields of a tenant, followed by Firn's.
#[derive(Serialize)]
struct UserStatsDocument {
    #[serde(rename = "ingestionRate")]
    ingestion_rate: f64,
    #[serde(rename = "numSeries")]
    num_series: u64,
    #[serde(rename = "APIIngestionRate")]
    api_ingestion_rate: f64,
    #[serde(rename = "RuleIngestionRate")]
    rule_ingestion_rate: f64,
    samples: u64,
    bytes: u64,
    queries: u64,
}

impl UserStatsDocument {
    fn new(series: u64, usage: &TenantUsageReport, queries: u64) -> Self {
        Self {
            ingestion_rate: usage.api_rate + usage.rule_rate,
            num_series: series,
            api_ingestion_rate: usage.api_rate,
            rule_ingestion_rate: usage.rule_rate,
            samples: usage.stored.samples,
            bytes: usage.stored.bytes,
            queries,
        }
    }
}

/// The statistics of one tenant with the usage by value.
#[derive(Serialize)]
struct AttributedStatsDocument {
    #[serde(flatten)]
    stats: UserStatsDocument,
    attribution: Vec<Map<String, Value>>,
}

/// The statistics of one tenant in the list of all tenants.
#[derive(Serialize)]
struct NamedStatsDocument {
    #[serde(rename = "userID")]
    user_id: String,
    #[serde(flatten)]
    stats: UserStatsDocument,
}

/// Returns the usage of the tenant of the request.
pub(crate) async fn user_stats(app: ServerApp, request: Request) -> Response {
    let answer = async |call: ApiCall| {
        call.require_one_tenant()?;
        let queries = call.app.registry.query_count(&call.tenant);
        let (backend, tenant) = (call.backend.clone(), call.tenant.clone());
        let document = call.compute(move |run| {
            let document = read_stats(&backend, &tenant, queries, run);
            encode(&document.map_err(ApiFailure::execution)?)
        });
        Ok(call.json(document.await?))
    };
    respond_plainly(app, request, answer).await
}

/// Answers a request with the result of `answer`. Errors are plain text, as in Mimir.
async fn respond_plainly<F>(
    app: ServerApp,
    request: Request,
    answer: impl FnOnce(ApiCall) -> F,
) -> Response
where
    F: Future<Output = Result<Response, ApiFailure>>,
{
    let backend = match app.backend() {
        Ok(backend) => backend,
        Err(state) => return not_ready(state),
    };
    let answered = match ApiCall::read(&app, backend, ServerEndpoint::Status, request).await {
        Ok(call) => answer(call).await,
        Err(failure) => Err(failure),
    };
    answered.unwrap_or_else(ApiFailure::into_plain)
}

fn encode(document: &impl Serialize) -> Result<Bytes, ApiFailure> {
    let text = serde_json::to_vec(document);
    let text = text.map_err(|e| ApiFailure::internal(e.to_string()))?;
    Ok(text.into())
}

fn read_stats(
    backend: &Backend,
    tenant: &TenantId,
    queries: u64,
    run: &QueryRun,
) -> Result<AttributedStatsDocument, Error> {
    let head = (backend.stats)(tenant, 0)?;
    let usage = backend.pipeline.usage(tenant);
    let mut attribution = Vec::new();
    if let Some(mut report) = backend.pipeline.attribution(tenant) {
        if let Some(newest) = head.max_time {
            count_series(backend, tenant, newest, run, &mut report)?;
        }
        attribution = attribution_documents(report);
    }
    Ok(AttributedStatsDocument {
        stats: UserStatsDocument::new(head.series, &usage, queries),
        attribution,
    })
}

/// Adds the series in memory to `report`, the most frequent values first. Reads the newest sample
/// of each series; `newest` is the time of the newest one of all.
fn count_series(
    backend: &Backend,
    tenant: &TenantId,
    newest: TimestampMs,
    run: &QueryRun,
    report: &mut AttributionReport,
) -> Result<(), Error> {
    let selection = backend.local.select(SelectRequest {
        tenant,
        matchers: &[],
        range: TimeRange::new(newest.saturating_sub(IN_MEMORY_MS), i64::MAX),
        newest_only: true,
        cancel: run.cancel(),
        budget: run.budget(),
        series: &SeriesLimit::unlimited(),
        span: None,
    })?;
    let mut memory = run.budget().create_reservation();
    let column = selection.label_column(&report.label, run.cancel(), &mut memory)?;
    memory.grow(column.values.len() * size_of::<(u64, &[u8])>())?;
    let values = column.values.iter().map(|value| (0, &**value));
    let mut counts: Vec<(u64, &[u8])> = values.collect();
    visit_with_samples(&*selection, run, |index| {
        counts[column.ids[index] as usize].0 += 1;
    })?;
    counts.sort_by_key(|(count, value)| (Reverse(*count), *value));
    for (count, value) in counts.into_iter().filter(|(count, _)| *count > 0) {
        report.add_series(value, count);
    }
    Ok(())
}

/// Calls `visit` with the index of each series that has a sample in the range of the selection.
fn visit_with_samples(
    selection: &dyn Selection,
    run: &QueryRun,
    mut visit: impl FnMut(usize),
) -> Result<(), Error> {
    let mut batch = SeriesBatch::default();
    for start in (0..selection.len()).step_by(SERIES_PER_READ) {
        run.cancel().check()?;
        let read = start..selection.len().min(start + SERIES_PER_READ);
        batch.clear();
        selection.read(read.clone(), &mut batch)?;
        let has_samples = |index: &usize| !batch.series(index - start).times.is_empty();
        read.filter(has_samples).for_each(&mut visit);
    }
    Ok(())
}

/// Returns an entry for each value, which is in a field with the name of the label.
fn attribution_documents(report: AttributionReport) -> Vec<Map<String, Value>> {
    let label = report.label.clone();
    let document = |(value, row): (String, AttributionRow)| {
        let fields = [
            (label.clone(), Value::from(value)),
            ("series".to_owned(), row.series.into()),
            ("samples".to_owned(), row.usage.samples.into()),
            ("bytes".to_owned(), row.usage.bytes.into()),
        ];
        Map::from_iter(fields)
    };
    report.into_rows().into_iter().map(document).collect()
}

/// Returns the usage of all tenants with a usage since the start or an open store, those with the
/// most series first.
pub(crate) async fn all_user_stats(app: ServerApp, request: Request) -> Response {
    let backend = match app.backend() {
        Ok(backend) => backend,
        Err(state) => return not_ready(state),
    };
    let encoding = ResponseEncoding::from_request(&request);
    let document = run_blocking(move || encode(&read_all_stats(&app, &backend)?)).await;
    match document.and_then(|document| document) {
        Ok(document) => respond(document, "application/json", encoding),
        Err(failure) => failure.into_plain(),
    }
}

fn read_all_stats(
    app: &ServerApp,
    backend: &Backend,
) -> Result<Vec<NamedStatsDocument>, ApiFailure> {
    let open = BTreeSet::from_iter((backend.open_tenants)());
    let mut tenants = BTreeSet::from_iter(backend.pipeline.tenants_with_usage());
    tenants.extend(open.iter().cloned());
    let mut all = Vec::with_capacity(tenants.len());
    for tenant in tenants {
        let mut series = 0;
        // The series of a closed store are on the disk.
        if open.contains(&tenant) {
            let head = (backend.stats)(&tenant, 0).map_err(ApiFailure::execution)?;
            series = head.series;
        }
        let usage = backend.pipeline.usage(&tenant);
        let queries = app.registry.query_count(&tenant);
        all.push(NamedStatsDocument {
            user_id: tenant.as_str().to_owned(),
            stats: UserStatsDocument::new(series, &usage, queries),
        });
    }
    all.sort_by_key(|one| Reverse(one.stats.num_series));
    Ok(all)
}

/// Returns the limits of the tenant of the request.
pub(crate) async fn user_limits(app: ServerApp, request: Request) -> Response {
    let answer = async |call: ApiCall| {
        call.require_one_tenant()?;
        Ok(call.json(encode(&limits_document(&call))?))
    };
    respond_plainly(app, request, answer).await
}

/// Returns the limits with the keys of Mimir and those of `firn.overrides`. Zero is no limit, also
/// for the limits that Firn does not have.
fn limits_document(call: &ApiCall) -> Value {
    let (parts, tenant) = (&call.app.parts, &call.tenant);
    let (limits, pipeline) = ((parts.tenant_limits)(tenant), &call.backend.pipeline);
    let queries = (parts.query.limits)(tenant);
    let rate = limits.rate;
    let retention = limits.retention.filter(|time| *time != Duration::MAX);
    let retention = retention.unwrap_or_default();
    let (attribution, replicas) = (limits.attribution.as_ref(), limits.replicas.as_ref());
    let labels_max = pipeline.limits().wire.label_count_max;
    json!({
        "compactor_blocks_retention_period_seconds": retention.as_secs(),
        "ingestion_rate": rate.map_or(0.0, |rate| rate.per_second),
        "ingestion_burst_size": rate.and_then(|rate| rate.burst).unwrap_or_default(),
        "ingestion_burst_factor": 0,
        "max_global_series_per_user": number(limits.active_series_max),
        "max_global_series_per_metric": 0,
        "max_global_exemplars_per_user": 0,
        "max_fetched_chunks_per_query": 0,
        "max_fetched_series_per_query": number(Some(queries.series_max)),
        "max_fetched_chunk_bytes_per_query": 0,
        "ruler_max_rules_per_rule_group": 0,
        "ruler_max_rule_groups_per_tenant": 0,
        "new_series_limit": number(limits.new_series_max),
        "max_label_names_per_series": number(limits.labels_max.or(Some(labels_max))),
        "max_request_body_size": number(Some(pipeline.body_bytes_max(tenant))),
        "max_samples_per_query": number(usize::try_from(queries.samples_max).ok()),
        "query_timeout": format_duration(call.app.query_timeout(tenant)),
        "max_concurrent_queries": number(queries.queries_max),
        "compactor_blocks_retention_period": format_duration(retention),
        "out_of_order_time_window": format_duration(limits.late_window.unwrap_or_default()),
        "accept_ha_samples": replicas.is_some(),
        "ha_cluster_label": replicas.map_or("", |replicas| &replicas.cluster_label),
        "ha_replica_label": replicas.map_or("", |replicas| &replicas.replica_label),
        "ha_max_clusters": number(replicas.map(|replicas| replicas.clusters_max)),
        "cost_attribution_labels": attribution.map_or("", |settings| &settings.label),
        "max_cost_attribution_cardinality": number(attribution.map(|settings| settings.values_max)),
    })
}

/// Returns a limit in the form of the API: zero if there is none.
fn number(limit: Option<usize>) -> usize {
    limit.filter(|max| *max != usize::MAX).unwrap_or_default()
}
