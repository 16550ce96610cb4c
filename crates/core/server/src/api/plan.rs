//! The parameters `explain` and `analyze` of queries: plans in JSON, and metric types for hints.
//!
//! ```text
//! {"plan": NODE} or {"resultType": ..., "result": ..., "analysis": NODE}
//! NODE = {"type", "text", "matchers", "resolution", figures, "hints", "children": [NODE, ...]}
//! ```

use super::answer::{ResponseAnnotations, document};
use super::call::ApiCall;
use crate::engine::QueryEngine;
use crate::http::failure::ApiFailure;
use crate::http::produce::RenderedText;
use crate::json::{html_string_bytes_max, push_html_string};
use crate::results_cache::ResultsCache;
use crate::watched::WatchedStore;
use axum::response::Response;
use firn_ingest::metadata::PushedMetadata;
use firn_ingest::targets::ScrapePoolView;
use firn_model::budget::Reservation;
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_model::metadata::MetricType;
use firn_model::store::MetadataRequest;
use firn_promql::depth::ensure_stack;
use firn_promql::report::{NodeFigures, PlanReport, ReportSources, SelectorReport};
use firn_promql::value::{PromqlError, QueryResult};
use firn_promql::{EvalTime, Options, QueryContext};
use std::sync::Arc;
use tokio::time::Instant;

/// Size of a node, a matcher or a hint in JSON without its texts, in bytes.
const ITEM_BYTES: usize = 512;

/// The report about a query that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryReport {
    /// The result alone.
    Nothing,
    /// The plan instead of a result.
    Plan,
    /// The plan with figures, in addition to the result.
    Analysis,
}

impl QueryReport {
    /// Reads the parameters of a request. `explain` has precedence.
    pub(super) fn from_form(call: &ApiCall) -> Result<Self, ApiFailure> {
        let (plan, analysis) = (call.form.flag("explain")?, call.form.flag("analyze")?);
        Ok(match (plan, analysis) {
            (true, _) => QueryReport::Plan,
            (false, true) => QueryReport::Analysis,
            (false, false) => QueryReport::Nothing,
        })
    }
}

/// The metadata of targets and pushes from which hints take the types of metrics.
pub(super) struct FamilyTypes {
    views: Vec<Arc<ScrapePoolView>>,
    pushed: Arc<PushedMetadata>,
}

impl FamilyTypes {
    /// Returns the metadata of the server that processes a request.
    pub(super) fn from_call(call: &ApiCall) -> Self {
        Self {
            views: (call.backend.scrape_pools)(),
            pushed: call.backend.pipeline.metadata().clone(),
        }
    }

    /// Returns a function that finds the type of a family in targets, pushes and blocks.
    fn bind<'a>(
        &'a self,
        context: &'a QueryContext<'a>,
    ) -> impl Fn(&str) -> Option<MetricType> + 'a {
        move |family| {
            let tenants = context.tenant.members();
            let targets = self.views.iter().flat_map(|view| view.active_targets());
            let mut targets = targets.filter(|active| tenants.contains(&active.target.tenant));
            let mut pushed = tenants.iter();
            let found = targets
                .find_map(|active| active.status.find_metadata(family))
                .or_else(|| pushed.find_map(|tenant| self.pushed.find_family(tenant, family)));
            if let Some(found) = found {
                return Some(MetricType::from_name(found.kind));
            }
            let request = MetadataRequest {
                tenant: context.tenant,
                metric: Some(family),
                cancel: context.cancel,
                budget: context.budget,
            };
            let stored = context.store.metadata(request).ok()?;
            stored.iter().next().map(|metadata| metadata.kind)
        }
    }
}

/// A query to report about.
pub(super) struct ReportedQuery {
    pub(super) text: String,
    pub(super) time: EvalTime,
    pub(super) options: Options,
    pub(super) report: QueryReport,
}

/// Evaluates a query, with cached steps if there is a `cache`, or analyzes it if there are
/// `families`. Returns its result and, for an analysis, its plan in JSON, whose memory is reserved
/// with the result.
pub(super) fn evaluate(
    engine: &dyn QueryEngine,
    cache: Option<&ResultsCache>,
    context: &QueryContext<'_>,
    families: Option<&FamilyTypes>,
    clock: &Arc<dyn Clock>,
    query: &ReportedQuery,
) -> Result<(QueryResult, Option<Vec<u8>>), PromqlError> {
    let (text, time, options) = (&query.text, query.time, &query.options);
    let Some(families) = families else {
        let result = match cache {
            Some(cache) => cache.query(engine, context, text, time, options)?,
            None => engine.query(context, text, time, options)?,
        };
        return Ok((result, None));
    };
    let family_type = families.bind(context);
    let sources = ReportSources {
        clock,
        family_type: &family_type,
    };
    let (mut result, report) = engine.analyze(context, sources, text, time, options)?;
    let document = render(&report, &mut result.memory).map_err(limited)?;
    Ok((result, Some(document)))
}

/// Answers a request with the plan of a query, without evaluating it. The request waits in the
/// queue like other queries, because its look-ups take time.
pub(super) async fn explain(
    call: ApiCall,
    query: ReportedQuery,
    deadline: Instant,
) -> Result<Response, ApiFailure> {
    let (app, store, tenant) = (
        call.app.clone(),
        call.backend.store.clone(),
        call.tenant.clone(),
    );
    let families = FamilyTypes::from_call(&call);
    let explained = call.compute_over(Some(query.time.into()), deadline, move |run, _| {
        let clock = app.parts.env.clock.clone();
        let store = WatchedStore::new(store, run, clock.clone());
        let context = run.context(&store, &tenant, &*app.parts.env.compute);
        let family_type = families.bind(&context);
        let sources = ReportSources {
            clock: &clock,
            family_type: &family_type,
        };
        let engine = &*app.parts.engine;
        let (text, options) = (&query.text, &query.options);
        let (report, mut memory) = engine.explain(&context, sources, text, query.time, options)?;
        let mut data = br#"{"plan":"#.to_vec();
        data.extend(render(&report, &mut memory).map_err(ApiFailure::execution)?);
        data.push(b'}');
        // The document is a copy of the data.
        memory.grow(data.len()).map_err(ApiFailure::execution)?;
        Ok((document(&data, &ResponseAnnotations::default()), memory))
    });
    let (text, memory) = explained.await?;
    Ok(call.json(RenderedText::new(text, memory)))
}

fn limited(error: Error) -> PromqlError {
    PromqlError::Limited(error.message)
}

/// Returns a plan in JSON, whose memory is reserved in `memory` before it is allocated.
fn render(report: &PlanReport, memory: &mut Reservation) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    push_node(&mut out, report, memory)?;
    Ok(out)
}

fn push_node(out: &mut Vec<u8>, node: &PlanReport, memory: &mut Reservation) -> Result<(), Error> {
    memory.grow(node_bytes_max(node))?;
    out.extend_from_slice(br#"{"type":"#);
    push_text(out, node.kind);
    out.extend_from_slice(br#","text":"#);
    push_text(out, &node.text);
    if let Some(selector) = &node.selector {
        push_selector(out, selector);
    }
    if let Some(figures) = &node.figures {
        push_figures(out, figures);
    }
    out.extend_from_slice(br#","hints":["#);
    for (index, hint) in node.hints.iter().enumerate() {
        push_comma(out, index);
        out.extend_from_slice(br#"{"kind":"#);
        push_text(out, hint.kind.name());
        out.extend_from_slice(br#","text":"#);
        push_text(out, &hint.text);
        out.push(b'}');
    }
    out.extend_from_slice(br#"],"children":["#);
    for (index, child) in node.children.iter().enumerate() {
        push_comma(out, index);
        ensure_stack(|| push_node(out, child, memory))?;
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

fn node_bytes_max(node: &PlanReport) -> usize {
    let matchers = node.selector.iter().flat_map(|s| &s.matchers);
    let texts = std::iter::once(&node.text)
        .chain(matchers.map(|matcher| &matcher.text))
        .chain(node.hints.iter().map(|hint| &hint.text));
    texts
        .map(|text| html_string_bytes_max(text.as_bytes()) + ITEM_BYTES)
        .sum()
}

fn push_selector(out: &mut Vec<u8>, selector: &SelectorReport) {
    out.extend_from_slice(br#","matchers":["#);
    for (index, matcher) in selector.matchers.iter().enumerate() {
        push_comma(out, index);
        out.extend_from_slice(br#"{"matcher":"#);
        push_text(out, &matcher.text);
        out.extend_from_slice(br#","series":"#);
        match matcher.cost.series {
            Some(series) => out.extend_from_slice(series.to_string().as_bytes()),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(br#","deferred":"#);
        let deferred = matcher.cost.is_deferred;
        out.extend_from_slice(deferred.to_string().as_bytes());
        out.push(b'}');
    }
    out.extend_from_slice(br#"],"resolution":"#);
    push_text(out, selector.resolution);
}

fn push_figures(out: &mut Vec<u8>, figures: &NodeFigures) {
    for (name, value) in [
        ("series", figures.series),
        ("samplesRead", figures.samples_read),
        ("totalQueryableSamples", figures.samples_total),
        ("bytesRead", figures.bytes_read),
        ("cacheHits", figures.cache_hits),
        ("cacheMisses", figures.cache_misses),
    ] {
        push_member(out, name, &value.to_string());
    }
    push_member(out, "cpuSeconds", &figures.cpu.as_secs_f64().to_string());
    push_member(out, "memoryBytes", &figures.memory_bytes.to_string());
}

/// Writes a member with a number after another member.
fn push_member(out: &mut Vec<u8>, name: &str, number: &str) {
    out.push(b',');
    push_text(out, name);
    out.push(b':');
    out.extend_from_slice(number.as_bytes());
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    push_html_string(out, text.as_bytes());
}

fn push_comma(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b',');
    }
}
