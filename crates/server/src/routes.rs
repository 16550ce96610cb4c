//! The routes: which handler answers which path and method.

use crate::api::call::{self, Call};
use crate::api::{
    admin, alertmanagers, blocks, exemplars, import, metadata, operations, origin, page, query,
    rule_editor, rules, series, status, targets, write,
};
use crate::app::App;
use crate::http::failure::{Cause, Failure};
use crate::http::measured;
use crate::metrics::Endpoint;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use firn_model::error::ErrorKind;
use std::any::Any;
use tower_http::catch_panic::CatchPanicLayer;

const GET: MethodFilter = MethodFilter::GET;
const GET_POST: MethodFilter = MethodFilter::GET.or(MethodFilter::POST);
const POST_PUT: MethodFilter = MethodFilter::POST.or(MethodFilter::PUT);

/// The whole server as a service.
pub fn router(app: App) -> Router {
    let all = Router::new()
        .nest("/api/v1", api())
        .nest("/config/v1/rules", rule_editor_routes())
        .nest("/prometheus", mimir_routes())
        .merge(operations_routes())
        .merge(page_routes());
    let prefix = app.parts.web.route_prefix.clone();
    let prefixed = if prefix.is_empty() {
        all
    } else {
        let home = format!("{prefix}/");
        let target = home.clone();
        let redirected = || on(GET, move || redirect(target));
        Router::new()
            .route("/", redirected.clone()())
            .route(&prefix, redirected())
            .nest(&home, all)
    };
    let panics = app.clone();
    prefixed
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(move |panic| {
            panicked(&panics, panic)
        }))
        .with_state(app)
}

fn api() -> Router<App> {
    use Endpoint::{
        Exemplars, FormatQuery, Import, LabelValues, Labels, Operations, ParseQuery, Query,
        QueryRange, Series, Targets, Write,
    };
    Router::new()
        .route("/query", api_route(GET_POST, Query, query::instant))
        .route(
            "/query_range",
            api_route(GET_POST, QueryRange, query::range),
        )
        .route(
            "/format_query",
            api_route(GET_POST, FormatQuery, query::format),
        )
        .route(
            "/parse_query",
            api_route(GET_POST, ParseQuery, query::parse),
        )
        .route(
            "/query_exemplars",
            api_route(GET_POST, Exemplars, exemplars::query),
        )
        .route("/series", api_route(GET_POST, Series, series::series))
        .route("/labels", api_route(GET_POST, Labels, series::label_names))
        .route(
            "/label/{name}/values",
            api_route(GET, LabelValues, series::label_values),
        )
        .route(
            "/write",
            plain_route(MethodFilter::POST, Write, write::remote_write),
        )
        .route(
            "/import/prometheus",
            plain_route(POST_PUT, Import, import::prometheus),
        )
        .route(
            "/scrape_pools",
            api_route(GET, Targets, targets::scrape_pools),
        )
        .route("/targets", api_route(GET, Targets, targets::targets))
        .route(
            "/targets/metadata",
            api_route(GET, Targets, metadata::by_target),
        )
        .route(
            "/targets/relabel_steps",
            api_route(GET, Targets, targets::relabel_steps),
        )
        .route("/metadata", api_route(GET, Targets, metadata::by_metric))
        .merge(rule_routes())
        .merge(status_routes())
        .route(
            "/admin/tsdb/snapshot",
            admin_route(Operations, admin::snapshot),
        )
}

fn status_routes() -> Router<App> {
    use Endpoint::Status;
    Router::new()
        .route(
            "/status/buildinfo",
            api_route(GET, Status, status::build_info),
        )
        .route(
            "/status/runtimeinfo",
            api_route(GET, Status, status::runtime_info),
        )
        .route("/status/flags", api_route(GET, Status, status::flags))
        .route("/status/config", api_route(GET, Status, status::config))
        .route("/status/tsdb", api_route(GET, Status, status::tsdb))
        .route(
            "/status/tsdb/blocks",
            api_route(GET, Status, blocks::blocks),
        )
}

fn rule_routes() -> Router<App> {
    use Endpoint::Rules;
    let backfills = api_route(GET, Rules, rules::backfills);
    // The same path answers the question of a browser once.
    let backfill = changing_route(Rules, rules::backfill);
    Router::new()
        .route("/rules", api_route(GET, Rules, rules::rules))
        .route("/alerts", api_route(GET, Rules, rules::alerts))
        .route("/rules/backfill", backfills.merge(backfill))
        .route(
            "/alertmanagers",
            api_route(GET, Rules, alertmanagers::alertmanagers),
        )
}

/// What Mimir has under its prefix for Prometheus's API, where its tools look.
fn mimir_routes() -> Router<App> {
    Router::new()
        .nest("/api/v1", api())
        .nest("/config/v1/rules", rule_editor_routes())
}

fn rule_editor_routes() -> Router<App> {
    let route = |filter| plain_route(filter, Endpoint::Rules, rule_editor::rules);
    let delete = MethodFilter::DELETE;
    Router::new()
        .route("/", route(GET))
        .route("/{namespace}", route(GET.or(MethodFilter::POST).or(delete)))
        .route("/{namespace}/{group}", route(GET.or(delete)))
}

fn operations_routes() -> Router<App> {
    use Endpoint::{Metrics, Operations};
    let post_only = |handler: MethodRouter<App>| {
        handler.merge(plain_route(GET, Operations, operations::only_post))
    };
    Router::new()
        .route("/metrics", plain_route(GET, Metrics, operations::metrics))
        .route(
            "/version",
            plain_route(GET, Operations, operations::version),
        )
        .route(
            "/-/healthy",
            plain_route(GET, Operations, operations::healthy),
        )
        .route("/-/ready", plain_route(GET, Operations, operations::ready))
        .route(
            "/-/reload",
            post_only(plain_route(POST_PUT, Operations, operations::reload)),
        )
        .route(
            "/-/quit",
            post_only(plain_route(POST_PUT, Operations, operations::quit)),
        )
        .route(
            "/debug/pprof",
            plain_route(GET, Operations, operations::profiles_folder),
        )
        .route(
            "/debug/pprof/",
            plain_route(GET, Operations, operations::profiles),
        )
        .route(
            "/debug/pprof/heap",
            plain_route(GET, Operations, operations::heap_profile),
        )
        .route(
            "/debug/pprof/profile",
            plain_route(GET, Operations, operations::cpu_profile),
        )
}

fn page_routes() -> Router<App> {
    let index = || plain_route(GET, Endpoint::Page, page::index);
    let asset = || plain_route(GET, Endpoint::Page, page::asset);
    Router::new()
        .route("/", index())
        .route("/graph", index())
        .route("/query", index())
        .route("/favicon.svg", asset())
        .route("/assets/{name}", asset())
}

/// A route of the JSON API.
fn api_route<H, F>(filter: MethodFilter, endpoint: Endpoint, handler: H) -> MethodRouter<App>
where
    H: FnOnce(Call) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let work = async move |State(app): State<App>, request: Request| {
        call::answer(app, endpoint, request, handler).await
    };
    on(filter, work).options(options)
}

/// A route of the JSON API that changes state, and is there for administrators.
fn admin_route<H, F>(endpoint: Endpoint, handler: H) -> MethodRouter<App>
where
    H: FnOnce(Call) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let work = async move |State(app): State<App>, request: Request| match admin::admit(
        &app,
        request.headers(),
    ) {
        Ok(()) => call::answer(app, endpoint, request, handler).await,
        Err(failure) => measure(&app, endpoint, async { failure.into_json() }).await,
    };
    on(POST_PUT, work).options(options)
}

/// A route of the JSON API that changes state: not for pages of other sites.
fn changing_route<H, F>(endpoint: Endpoint, handler: H) -> MethodRouter<App>
where
    H: FnOnce(Call) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    on(
        MethodFilter::POST,
        async move |State(app): State<App>, request: Request| match origin::check_same(
            &app.parts.web,
            request.headers(),
        ) {
            Ok(()) => call::answer(app, endpoint, request, handler).await,
            Err(failure) => measure(&app, endpoint, async { failure.into_json() }).await,
        },
    )
}

/// A route whose handler makes the whole response.
fn plain_route<H, F>(filter: MethodFilter, endpoint: Endpoint, handler: H) -> MethodRouter<App>
where
    H: FnOnce(App, Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    on(
        filter,
        async move |State(app): State<App>, request: Request| {
            measure(&app.clone(), endpoint, handler(app, request)).await
        },
    )
}

/// Waits for the answer that `work` makes and counts it under `endpoint`.
async fn measure(app: &App, endpoint: Endpoint, work: impl Future<Output = Response>) -> Response {
    measured::measure(&app.parts.env.clock, &app.metrics, endpoint, work).await
}

/// A browser asks whether a page of another site may call the API.
async fn options(State(app): State<App>, request: Request) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let origin = request.headers().get(header::ORIGIN);
    origin::allow(&app.parts.web, origin, response.headers_mut());
    response
}

async fn redirect(target: String) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    if let Ok(target) = HeaderValue::from_str(&target) {
        response.headers_mut().insert(header::LOCATION, target);
    }
    response
}

async fn not_found(State(app): State<App>) -> Response {
    let cause = Cause::Request(ErrorKind::NotFound);
    let failure = Failure::new(cause, "404 page not found");
    measure(&app, Endpoint::Other, async { failure.into_plain() }).await
}

async fn method_not_allowed(State(app): State<App>) -> Response {
    let mut response = Response::new(Body::from("Method Not Allowed\n"));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    measure(&app, Endpoint::Other, async { response }).await
}

fn panicked(app: &App, panic: Box<dyn Any + Send>) -> Response {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    tracing::error!(panic = what, "answer request");
    app.metrics.panics.inc();
    Failure::internal("the request failed: see the log").into_json()
}
