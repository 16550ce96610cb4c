//! `/api/v1/query`, `/api/v1/query_range`, `/api/v1/format_query` and `/api/v1/parse_query`:
//! evaluation, formatting and parsing of PromQL.

use super::answer::{QueryResponse, ResponseAnnotations, document};
use super::call::ApiCall;
use super::plan::{self, FamilyTypes, QueryReport, ReportedQuery};
use super::refusals::{QueryLanguage, check_ranges, check_texts};
use super::times::parse_duration_nanos;
use crate::http::failure::ApiFailure;
use crate::http::produce::RenderedText;
use crate::json;
use crate::json::tree;
use crate::query_log::LoggedQuery;
use crate::query_stats::{QueryTimings, StatsDocument};
use crate::watched::WatchedStore;
use axum::response::Response;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::sync::lock;
use firn_promql::value::{QueryResult, QueryValue};
use firn_promql::{EvalTime, Options, QueryContext};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

const NANOS_PER_MS: i64 = 1_000_000;

/// Ratio between the size of a syntax tree in JSON and in memory.
const DOCUMENT_FACTOR: usize = 3;

/// Evaluates an instant query at the parameter `time`, by default now. Answers when the result is
/// complete.
pub(crate) async fn instant(call: ApiCall) -> Result<Response, ApiFailure> {
    let limit = call.form.limit()?;
    let time = call
        .form
        .time_or("time", call.app.parts.env.clock.now_ms())?;
    evaluate(call, EvalTime::Instant(time), limit).await
}

/// Evaluates a range query over the parameters `start`, `end` and `step`. Rejects a range with too
/// many steps.
pub(crate) async fn range(call: ApiCall) -> Result<Response, ApiFailure> {
    let limit = call.form.limit()?;
    let start = call.form.time("start")?;
    let end = call.form.time("end")?;
    if end < start {
        let why = "end timestamp must not be before start time";
        return Err(ApiFailure::parameter("end", why));
    }
    let step_ns = call.form.duration_nanos("step")?;
    let time = EvalTime::Range {
        start,
        end,
        step_ns,
    };
    // Times are milliseconds, so a shorter step would not advance.
    if time.step_ms() <= 0 {
        let why = "zero or negative query resolution step widths are not accepted. \
                   Try a positive integer";
        return Err(ApiFailure::parameter("step", why));
    }
    check_steps(start, end, step_ns, call.app.limits().steps_max)?;
    check_ranges(&call, [TimeRange::new(start, end)])?;
    evaluate(call, time, limit).await
}

pub(super) fn check_steps(
    start: TimestampMs,
    end: TimestampMs,
    step_ns: i64,
    steps_max: i64,
) -> Result<(), ApiFailure> {
    let span_ns = (i128::from(end) - i128::from(start)) * i128::from(NANOS_PER_MS);
    if span_ns / i128::from(step_ns) > i128::from(steps_max) {
        return Err(ApiFailure::bad_data(format!(
            "exceeded maximum resolution of {} points per timeseries. \
             Try decreasing the query resolution (?step=XX)",
            with_thousands(steps_max)
        )));
    }
    Ok(())
}

/// Formats `11000` as `11,000`, as in upstream's message.
fn with_thousands(n: i64) -> String {
    if n < 1000 {
        return n.to_string();
    }
    format!("{},{:03}", with_thousands(n / 1000), n % 1000)
}

/// Returns the query in PromQL's canonical format, as a JSON string.
pub(crate) async fn format(call: ApiCall) -> Result<Response, ApiFailure> {
    let text = call.form.get("query").to_owned();
    let app = call.app.clone();
    let formatted = call.compute(move |run| {
        let mut memory = run.budget().create_reservation();
        let features = app.parts.query.features;
        let text = app.parts.engine.format(&text, features, &mut memory)?;
        let bytes = json::html_string_bytes_max(text.as_bytes());
        memory.grow(bytes).map_err(ApiFailure::execution)?;
        let mut data = Vec::with_capacity(bytes);
        json::push_html_string(&mut data, text.as_bytes());
        drop(text);
        memory.shrink_to(bytes);
        memory.grow(bytes).map_err(ApiFailure::execution)?;
        Ok((document(&data, &ResponseAnnotations::default()), memory))
    });
    let (text, memory) = formatted.await?;
    Ok(call.json(RenderedText::new(text, memory)))
}

/// Returns the syntax tree of the query as JSON, for the query explorer of UIs.
pub(crate) async fn parse(call: ApiCall) -> Result<Response, ApiFailure> {
    let text = call.form.get("query").to_owned();
    let app = call.app.clone();
    let tree = call.compute(move |run| {
        let mut memory = run.budget().create_reservation();
        let features = app.parts.query.features;
        let tree = app.parts.engine.tree(&text, features, &mut memory)?;
        // The JSON document takes several times the memory of the syntax tree.
        let document = DOCUMENT_FACTOR * memory.bytes();
        memory.grow(document).map_err(ApiFailure::execution)?;
        Ok((tree::to_json(&tree), memory))
    });
    let (tree, memory) = tree.await?;
    match tree {
        Ok(data) => {
            let text = document(&data, &ResponseAnnotations::default());
            Ok(call.json(RenderedText::new(text, memory)))
        }
        // Plain text as in upstream, where the encoder fails after the response has started.
        Err(why) => Ok(ApiFailure::internal(why).into_plain()),
    }
}

/// Reads and checks the query of a request.
async fn read_query(call: &ApiCall, time: EvalTime) -> Result<ReportedQuery, ApiFailure> {
    let query = ReportedQuery {
        options: options(call)?,
        text: call.form.get("query").to_owned(),
        time,
        report: QueryReport::from_form(call)?,
    };
    let texts = std::slice::from_ref(&query.text);
    check_texts(call, texts, QueryLanguage::Promql).await?;
    Ok(query)
}

/// Returns the entry of the query log, if there is a log.
fn logged_query(call: &ApiCall, query: &ReportedQuery) -> Option<LoggedQuery> {
    call.app.parts.query_log.is_on().then(|| LoggedQuery {
        query: query.text.clone(),
        time: query.time,
        origin: call.origin(),
        trace: call.trace(),
        by_step: reports_steps(call),
    })
}

async fn evaluate(
    call: ApiCall,
    time: EvalTime,
    limit: Option<usize>,
) -> Result<Response, ApiFailure> {
    let deadline = Instant::now() + timeout(&call)?;
    let query = read_query(&call, time).await?;
    if query.report == QueryReport::Plan {
        return plan::explain(call, query, deadline).await;
    }
    let is_cached = uses_cache(&call, time)? && query.report == QueryReport::Nothing;
    let is_analyzed = query.report == QueryReport::Analysis;
    let families = is_analyzed.then(|| FamilyTypes::from_call(&call));
    let logged = logged_query(&call, &query);
    let has_begun = Arc::new(AtomicBool::new(false));
    let (app, store, tenant) = (
        call.app.clone(),
        call.backend.store.clone(),
        call.tenant.clone(),
    );
    let clock = app.parts.env.clock.clone();
    let asked = clock.monotonic();
    let (begins, mut of_job) = (has_begun.clone(), logged.clone());
    let evaluated = call.compute_over(Some(time.into()), deadline, move |run, trace| {
        begins.store(true, Ordering::Relaxed);
        let begun = clock.monotonic();
        let store = WatchedStore::new(store, run, clock.clone());
        let failed = Mutex::default();
        let context = QueryContext {
            failed_counts: Some(&failed),
            ..run.context(&store, &tenant, &*app.parts.env.compute)
        };
        let cache = is_cached.then_some(&app.results);
        let engine = &*app.parts.engine;
        let outcome = plan::evaluate(engine, cache, &context, families.as_ref(), &clock, &query);
        let timings = QueryTimings {
            queue: begun.saturating_sub(asked),
            run: clock.monotonic().saturating_sub(begun),
            look_ups: store.spent(),
        };
        if let Some(logged) = &mut of_job {
            logged.trace = trace;
            let log = &app.parts.query_log;
            let counts = lock(&failed);
            let result = outcome.as_ref().map(|(result, _)| result);
            let result = result.map_err(|e| (e, &*counts));
            log.write_outcome(clock.now_ms(), logged, result, &timings);
        }
        let (result, analysis) = outcome?;
        Ok(EvaluatedQuery {
            result,
            analysis,
            timings,
        })
    });
    let evaluated = evaluated.await;
    if let (Err(failure), Some(logged), false) =
        (&evaluated, logged, has_begun.load(Ordering::Relaxed))
    {
        let queue = call.app.parts.env.clock.monotonic().saturating_sub(asked);
        log_unbegun(&call, logged, failure.message.clone(), queue).await;
    }
    Ok(respond(&call, evaluated?, time, limit))
}

/// A query that succeeded.
struct EvaluatedQuery {
    result: QueryResult,
    /// Its plan in JSON, if the request sets `analyze`.
    analysis: Option<Vec<u8>>,
    timings: QueryTimings,
}

/// Logs a query that waited for `queue` in the queue and was not started, on a blocking thread.
async fn log_unbegun(call: &ApiCall, logged: LoggedQuery, why: String, queue: Duration) {
    let (log, now) = (
        call.app.parts.query_log.clone(),
        call.app.parts.env.clock.now_ms(),
    );
    // Fails only after a panic, which is not counted either.
    let _ = spawn_blocking(move || log.write_unfinished(now, &logged, why, queue)).await;
}

fn respond(
    call: &ApiCall,
    evaluated: EvaluatedQuery,
    time: EvalTime,
    limit: Option<usize>,
) -> Response {
    let EvaluatedQuery {
        result,
        analysis,
        timings,
    } = evaluated;
    let mut annotations = ResponseAnnotations {
        warnings: result.warnings,
        infos: result.infos,
    };
    let mut value = result.value;
    if truncate(&mut value, limit) {
        annotations.add_truncated();
    }
    let stats = match call.form.get("stats") {
        "" => None,
        wanted => {
            if wanted != "true" && wanted != "all" {
                annotations.warnings.push(format!(
                    "value {wanted:?} for parameter \"stats\" is deprecated and will be rejected \
                     in the next major release, use \"true\" or \"all\""
                ));
            }
            let counts = result.counts.unwrap_or_default();
            let document = StatsDocument::from_stats(&timings, &counts, time, reports_steps(call));
            serde_json::to_vec(&document).ok()
        }
    };
    let stats = stats.map(|stats| ("stats", stats));
    let analysis = analysis.map(|analysis| ("analysis", analysis));
    let members = stats.into_iter().chain(analysis).collect();
    call.json(QueryResponse::new(
        value,
        time,
        members,
        annotations,
        result.memory,
    ))
}

/// Returns whether the response contains sample counts per step: if requested and enabled by a
/// feature flag.
fn reports_steps(call: &ApiCall) -> bool {
    call.app.parts.query.per_step_stats && call.form.get("stats") == "all"
}

/// Returns the timeout of the server, or that of the request if it is shorter. It covers waiting
/// and evaluation.
pub(super) fn timeout(call: &ApiCall) -> Result<Duration, ApiFailure> {
    let longest = call.app.query_timeout(&call.tenant);
    if call.form.get("timeout").is_empty() {
        return Ok(longest);
    }
    let nanos = call.form.duration_nanos("timeout")?;
    if nanos <= 0 {
        // As in upstream, where the queue reports the expired deadline.
        return Err(ApiFailure::parameter("query", "context deadline exceeded"));
    }
    Ok(longest.min(Duration::from_nanos(
        u64::try_from(nanos).unwrap_or_default(),
    )))
}

/// Returns whether the results cache may be used: for a range query, unless `nocache=1` is set.
fn uses_cache(call: &ApiCall, time: EvalTime) -> Result<bool, ApiFailure> {
    let is_bypassed = call.form.flag("nocache")?;
    Ok(!is_bypassed && matches!(time, EvalTime::Range { .. }))
}

fn options(call: &ApiCall) -> Result<Options, ApiFailure> {
    let settings = &call.app.parts.query;
    let lookback_ms = match call.form.get("lookback_delta") {
        "" => settings.lookback_ms,
        text => {
            let nanos = parse_duration_nanos(text).map_err(|e| {
                ApiFailure::bad_data(format!("error parsing lookback delta duration: {e}"))
            })?;
            // As in upstream, zero and negative values select the default.
            if nanos > 0 {
                nanos / NANOS_PER_MS
            } else {
                settings.lookback_ms
            }
        }
    };
    let counts_samples = !call.form.get("stats").is_empty() || call.app.parts.query_log.is_on();
    Ok(Options {
        lookback_ms,
        ..settings.options(&call.tenant, counts_samples)
    })
}

/// Truncates a vector or matrix to `limit` elements. Returns whether elements were removed, so that
/// a warning is added.
fn truncate(value: &mut QueryValue, limit: Option<usize>) -> bool {
    let Some(limit) = limit else { return false };
    match value {
        QueryValue::Vector(elements) if elements.len() > limit => elements.truncate(limit),
        QueryValue::Matrix(series) if series.len() > limit => series.truncate(limit),
        _ => return false,
    }
    true
}
