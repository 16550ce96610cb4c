//! Routing: the table of routes, and the router and documents that are generated from it.
//!
//! ```text
//! route      a row of the table, and its checks
//! table      the rows
//! guard      authentication, before routing
//! documents  OpenAPI document and documentation of the table
//! ```
//!
//! Invariant: every route has a scope, because the table cannot be written without one.

mod documents;
mod guard;
mod route;
mod table;

use crate::app::ServerApp;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::metrics::ServerEndpoint;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use firn_model::error::ErrorKind;
use route::measure;
use std::any::Any;
use table::{RouteSection, SECTIONS};
use tower_http::catch_panic::CatchPanicLayer;

pub use documents::markdown as documentation;

/// Prefix under which Mimir serves Prometheus's API, and at which its tools expect it.
const MIMIR_PREFIX: &str = "/prometheus";

/// Returns the router of the whole server, including authentication, panic handling and the route
/// prefix.
pub fn router(app: ServerApp) -> Router {
    let all = Router::new().merge(routes_of(|_| true)).nest(
        MIMIR_PREFIX,
        routes_of(|section| !section.prefix.is_empty()),
    );
    let prefix = app.parts.web.route_prefix.clone();
    let prefixed = if prefix.is_empty() {
        all
    } else {
        let home = format!("{prefix}/");
        let target = home.clone();
        let redirected = || on(MethodFilter::GET, move || redirect(target));
        Router::new()
            .route("/", redirected.clone()())
            .route(&prefix, redirected())
            .nest(&home, all)
    };
    let panics = app.clone();
    prefixed
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .layer(CatchPanicLayer::custom(move |panic| {
            panicked(&panics, panic)
        }))
        .with_state(app)
}

/// Returns the routes of the sections that satisfy the condition, each under the prefix of its
/// section.
fn routes_of(is_wanted: impl Fn(&RouteSection) -> bool) -> Router<ServerApp> {
    let mut router = Router::new();
    for section in SECTIONS.iter().filter(|section| is_wanted(section)) {
        let mut routes = Router::new();
        for route in section.routes {
            routes = routes.route(route.path, (route.handler)(route.mount));
        }
        router = match section.prefix {
            "" => router.merge(routes),
            prefix => router.nest(prefix, routes),
        };
    }
    router
}

async fn redirect(target: String) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    if let Ok(target) = HeaderValue::from_str(&target) {
        response.headers_mut().insert(header::LOCATION, target);
    }
    response
}

async fn not_found(State(app): State<ServerApp>) -> Response {
    let cause = FailureCause::Request(ErrorKind::NotFound);
    let failure = ApiFailure::new(cause, "404 page not found");
    measure(&app, ServerEndpoint::Other, async { failure.into_plain() }).await
}

async fn method_not_allowed(State(app): State<ServerApp>) -> Response {
    let mut response = Response::new(Body::from("Method Not Allowed\n"));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    measure(&app, ServerEndpoint::Other, async { response }).await
}

fn panicked(app: &ServerApp, panic: Box<dyn Any + Send>) -> Response {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    tracing::error!(panic = what, "request handler panicked");
    app.metrics.panics.inc();
    ApiFailure::internal("the request failed: see the log").into_json()
}
