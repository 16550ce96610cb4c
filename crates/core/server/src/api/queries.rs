//! `/api/v1/status/active_queries`, `/top_queries`, `/query_history` and `/metric_names_stats`: the
//! queries of this process, and the end of one by an administrator.

use super::call::ApiCall;
use super::form::{parse_integer, unescape_path};
use super::status::json_document;
use super::times::format_rfc3339;
use crate::admission::history::{EndedQuery, QueryTotal};
use crate::admission::metric_names::MetricNameStat;
use crate::admission::run::QueryRun;
use crate::http::blocking::run_blocking;
use crate::http::failure::{ApiFailure, FailureCause};
use axum::response::Response;
use firn_model::error::ErrorKind;
use firn_model::tenant::TenantId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Default and maximum number of expressions of each list in `top_queries`.
const TOP: usize = 20;
const TOP_MAX: usize = 1_000;

/// Default and maximum number of queries in `query_history`.
const HISTORY: usize = 100;
const HISTORY_MAX: usize = 2_000;

/// Default and maximum number of names in `metric_names_stats`.
const METRIC_NAMES: usize = 1_000;
const METRIC_NAMES_MAX: usize = 2_000;

#[derive(Serialize)]
struct QueriesDocument<T> {
    queries: Vec<T>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ActiveQueryDocument {
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    query_id: Option<String>,
    query: String,
    handler: &'static str,
    tenant: String,
    client: String,
    age_seconds: f64,
    samples: u64,
    bytes: usize,
    phase: &'static str,
}

impl From<Arc<QueryRun>> for ActiveQueryDocument {
    fn from(run: Arc<QueryRun>) -> Self {
        let question = &run.question;
        Self {
            id: run.id,
            query_id: question.query_id.clone(),
            query: question.expression.clone(),
            handler: question.handler,
            tenant: question.tenant.as_str().to_owned(),
            client: question.client.clone(),
            age_seconds: run.age().as_secs_f64(),
            samples: run.samples(),
            bytes: run.bytes(),
            phase: run.phase().name(),
        }
    }
}

/// Returns the queries that wait, run or are being answered, the oldest first.
pub(crate) async fn active(call: ApiCall) -> Result<Response, ApiFailure> {
    let mut runs = call.app.registry.active();
    runs.retain(|run| is_visible(&call, &run.question.tenant));
    respond(&call, move || QueriesDocument {
        queries: documents::<ActiveQueryDocument, _>(runs),
    })
    .await
}

/// Returns whether the request may see a query of `tenant`, which stands for several tenants if the
/// query reads them. All of them must be tenants of the request.
fn is_visible(call: &ApiCall, tenant: &TenantId) -> bool {
    tenant
        .members()
        .iter()
        .all(|member| call.has_tenant(member))
}

fn documents<D: From<T>, T>(found: Vec<T>) -> Vec<D> {
    found.into_iter().map(D::from).collect()
}

/// Returns a 200 response with the result of `collect`. It does not wait in the query queue, which
/// may be the subject of the request, and is encoded on a blocking thread, because it may be long.
async fn respond<T: Serialize>(
    call: &ApiCall,
    collect: impl FnOnce() -> T + Send + 'static,
) -> Result<Response, ApiFailure> {
    let document = run_blocking(move || json_document(&collect())).await?;
    Ok(call.json(document?))
}

/// Ends the query with the number at the end of the path.
pub(crate) async fn end(call: ApiCall) -> Result<Response, ApiFailure> {
    let id = unescape_path(call.path.rsplit('/').next().unwrap_or_default())?;
    let run = id.parse().ok().and_then(|id| call.app.registry.find(id));
    let run = run.filter(|run| is_visible(&call, &run.question.tenant));
    let Some(run) = run else {
        let cause = FailureCause::Request(ErrorKind::NotFound);
        return Err(ApiFailure::new(cause, format!("no active query {id:?}")));
    };
    run.end();
    call.app.metrics.queries_ended.inc();
    tracing::info!(
        id = run.id,
        expression = run.question.expression,
        client = run.question.client,
        phase = run.phase().name(),
        "query ended by an administrator"
    );
    respond(&call, move || QueriesDocument {
        queries: documents::<ActiveQueryDocument, _>(vec![run]),
    })
    .await
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TopQueriesDocument {
    top_by_count: Vec<TopQueryDocument>,
    top_by_avg_duration: Vec<TopQueryDocument>,
    top_by_sum_duration: Vec<TopQueryDocument>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TopQueryDocument {
    query: String,
    count: u64,
    avg_duration_seconds: f64,
    sum_duration_seconds: f64,
}

/// Returns the expressions with the most queries, the longest mean and the longest total duration.
pub(crate) async fn top(call: ApiCall) -> Result<Response, ApiFailure> {
    let limit = number(&call, "topN", TOP, TOP_MAX)?;
    let totals = call.app.registry.totals();
    let visible = totals.into_iter();
    let visible = visible.filter(|((tenant, _), _)| is_visible(&call, tenant));
    let totals = add_up(visible.map(|((_, expression), total)| (expression, total)));
    respond(&call, move || TopQueriesDocument {
        top_by_count: top_by(&totals, limit, |total| total.count),
        top_by_avg_duration: top_by(&totals, limit, QueryTotal::mean),
        top_by_sum_duration: top_by(&totals, limit, |total| total.duration),
    })
    .await
}

/// Returns the total of each expression, which several tenants may have evaluated.
fn add_up(totals: impl Iterator<Item = (Arc<str>, QueryTotal)>) -> Vec<(Arc<str>, QueryTotal)> {
    let mut sums: BTreeMap<Arc<str>, QueryTotal> = BTreeMap::new();
    for (expression, total) in totals {
        sums.entry(expression).or_default().add(total);
    }
    sums.into_iter().collect()
}

fn top_by<K: Ord>(
    totals: &[(Arc<str>, QueryTotal)],
    limit: usize,
    key: impl Fn(&QueryTotal) -> K,
) -> Vec<TopQueryDocument> {
    let mut order: Vec<_> = totals.iter().collect();
    order.sort_by(|(a, x), (b, y)| key(y).cmp(&key(x)).then_with(|| a.cmp(b)));
    let document = |(query, total): &(Arc<str>, QueryTotal)| TopQueryDocument {
        query: query.to_string(),
        count: total.count,
        avg_duration_seconds: total.mean().as_secs_f64(),
        sum_duration_seconds: total.duration.as_secs_f64(),
    };
    order.into_iter().take(limit).map(document).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndedQueryDocument {
    query: String,
    tenant: String,
    client: String,
    started_at: String,
    duration_seconds: f64,
}

impl From<EndedQuery> for EndedQueryDocument {
    fn from(ended: EndedQuery) -> Self {
        Self {
            query: ended.expression.to_string(),
            tenant: ended.tenant.as_str().to_owned(),
            client: ended.client,
            started_at: format_rfc3339(ended.started),
            duration_seconds: ended.duration.as_secs_f64(),
        }
    }
}

/// Returns queries that have ended, the newest first.
pub(crate) async fn history(call: ApiCall) -> Result<Response, ApiFailure> {
    let limit = number(&call, "limit", HISTORY, HISTORY_MAX)?;
    let text = call.form.get("search");
    let is_found = |tenant: &TenantId| is_visible(&call, tenant);
    let found = call.app.registry.find_ended(text, limit, is_found);
    respond(&call, move || QueriesDocument {
        queries: documents::<EndedQueryDocument, _>(found),
    })
    .await
}

#[derive(Serialize)]
struct MetricNamesDocument {
    records: Vec<MetricNameDocument>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MetricNameDocument {
    metric_name: String,
    requests_count: u64,
    /// Time in seconds since the epoch.
    last_request_timestamp: i64,
    queries: Vec<String>,
}

/// Returns the metric names that queries have selected, the most frequent first.
pub(crate) async fn metric_names(call: ApiCall) -> Result<Response, ApiFailure> {
    let limit = number(&call, "limit", METRIC_NAMES, METRIC_NAMES_MAX)?;
    let names = call.app.registry.metric_names();
    let visible = names.into_iter();
    let visible = visible.filter(|((tenant, _), _)| is_visible(&call, tenant));
    let mut names: Vec<_> = visible.map(|((_, name), stat)| (name, stat)).collect();
    respond(&call, move || {
        names.sort_by(|(a, x), (b, y)| y.count.cmp(&x.count).then_with(|| a.cmp(b)));
        names.truncate(limit);
        let record = |(name, stat): (String, MetricNameStat)| MetricNameDocument {
            metric_name: name,
            requests_count: stat.count,
            last_request_timestamp: stat.last.div_euclid(1000),
            queries: stat.expressions,
        };
        MetricNamesDocument {
            records: names.into_iter().map(record).collect(),
        }
    })
    .await
}

/// Parses a number of results. Fails if it is not from 1 to `max`.
fn number(call: &ApiCall, name: &str, default: usize, max: usize) -> Result<usize, ApiFailure> {
    let text = call.form.get(name);
    if text.is_empty() {
        return Ok(default);
    }
    let number = parse_integer(text)
        .ok()
        .and_then(|n| usize::try_from(n).ok());
    number
        .filter(|number| (1..=max).contains(number))
        .ok_or_else(|| ApiFailure::parameter(name, format!("expected 1 to {max}, got {text:?}")))
}
