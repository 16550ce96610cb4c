//! HTTP server of `firn mirror`: receives remote write for forwarding, and requests of operators.
//!
//! ```text
//! POST /api/v1/write -> headers, body (bounded, not decoded) -> Passing::take -> 204
//! GET /-/healthy, /-/ready, /metrics        POST /-/reload
//! ```
//!
//! Limits of connections, heads, bodies and responses are the same as those of the database,
//! enforced by the same code. Invariant: 204 is only sent after [`BodyReceiver::store_body`]
//! reported that the body is durable. Bodies are not decoded. Access is controlled only by the web
//! configuration: any user may perform all operations.

use crate::access::{AccessGate, AccessRules, enter, too_many};
use crate::admission::limits::ServerLimits;
use crate::api::origin;
use crate::http::connection::ConnectionContext;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::http::produce::{ResponseEncoding, respond};
use crate::http::{accept::ConnectionSource, body, listener, measured};
use crate::metrics::{ServerEndpoint, ServerMetrics};
use crate::parts::WebSettings;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use firn_model::budget::Budget;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::metrics::Collect;
use firn_wire::exposition::{CONTENT_TYPE, TextSink};
use std::pin::Pin;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Size up to which a body counts as small: four times a request with 2,000 samples. Larger ones
/// share three quarters of the memory, so that there is always room for ordinary requests.
const SMALL_BODY_BYTES: usize = 256 << 10;

/// A received body with the headers that are forwarded with it. Passed to
/// [`BodyReceiver::store_body`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardedBody {
    /// Forwarded headers of the request as pairs of an index into
    /// [`MirrorServerParts::passed_headers`] and the value.
    pub headers: Vec<(usize, Bytes)>,
    /// The body as received, without decompression.
    pub body: Bytes,
}

/// Future of [`BodyReceiver::store_body`]. Resolves to headers of the response: lower-case names
/// and numbers.
pub type Taking = Pin<Box<dyn Future<Output = Result<Vec<(&'static str, u64)>, Error>> + Send>>;

/// Receiver of forwarded bodies, implemented by the mirror. Called concurrently for all requests.
pub trait BodyReceiver: Send + Sync {
    /// Stores a body. The future resolves when the body is durable.
    fn store_body(&self, passed: ForwardedBody) -> Taking;
}

/// Reloads the configuration. The error is a message for the user. May block.
pub type Reload = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Dependencies and settings of a reflector. The mirror builds one instance and passes it to
/// [`MirrorServer::new`].
pub struct MirrorServerParts {
    /// Limits of connections, heads and the time of bodies.
    pub limits: ServerLimits,
    /// Memory budget of bodies that are being received or stored.
    pub bodies: Budget,
    /// Maximum size of a body in bytes.
    pub body_bytes_max: usize,
    /// Memory budget of long request heads.
    pub heads: Budget,
    /// Lower-case names of the headers that are forwarded with a body.
    pub passed_headers: &'static [&'static str],
    /// Receiver of the bodies.
    pub passing: Arc<dyn BodyReceiver>,
    /// Additional metrics for `/metrics`.
    pub collectors: Vec<Arc<dyn Collect>>,
    /// Implementation of `POST /-/reload`.
    pub reload: Reload,
    /// Clock, and randomness for the password cache.
    pub env: Env,
}

struct MirrorServerState {
    parts: MirrorServerParts,
    large_bodies: Budget,
    metrics: Arc<ServerMetrics>,
    web: WebSettings,
    access: AccessGate,
}

type App = Arc<MirrorServerState>;

/// The HTTP server of a mirror. Cheap to clone; clones share limits, access rules and metrics.
#[derive(Clone)]
pub struct MirrorServer(App);

impl MirrorServer {
    /// Creates a server with these dependencies, without access rules.
    pub fn new(parts: MirrorServerParts) -> Self {
        Self(Arc::new(MirrorServerState {
            large_bodies: Budget::new("large bodies", parts.bodies.limit_bytes() / 4 * 3),
            metrics: Arc::default(),
            web: WebSettings::default(),
            access: AccessGate::new(&parts.env),
            parts,
        }))
    }

    /// Replaces the access rules. Without rules, every client has full access.
    pub fn set_rules(&self, rules: Arc<AccessRules>) {
        self.0.access.set(rules);
    }

    /// Serves the connections of `source` until `shutdown` resolves. Then waits for current
    /// requests up to the grace period in the limits.
    pub async fn serve(self, source: impl ConnectionSource, shutdown: impl Future<Output = ()>) {
        let Self(app) = self;
        let site = ConnectionContext {
            router: routes(app.clone()),
            limits: app.parts.limits.clone(),
            heads: app.parts.heads.clone(),
            metrics: app.metrics.clone(),
        };
        listener::serve(source, site, shutdown).await;
    }
}

fn routes(app: App) -> Router {
    let post = MethodFilter::POST;
    let changing = post.or(MethodFilter::PUT);
    Router::new()
        .route("/api/v1/write", route(post, ServerEndpoint::Write, write))
        .route(
            "/-/reload",
            route(changing, ServerEndpoint::Operations, reload),
        )
        .route("/-/healthy", operation("Firn mirror is healthy.\n"))
        .route("/-/ready", operation("Firn mirror is ready.\n"))
        .route(
            "/metrics",
            route(MethodFilter::GET, ServerEndpoint::Metrics, metrics),
        )
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

/// Authenticates a request before it is routed, and adds the configured headers to the response.
async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let rules = app.access.rules();
    if !app.access.is_within_rate(&rules) {
        return measure(&app, ServerEndpoint::Other, async { too_many() }).await;
    }
    let entered = enter(&app.access, &rules, request.headers(), &app.metrics).await;
    let mut response = match entered {
        Ok(_) => next.run(request).await,
        Err(refused) => measure(&app, ServerEndpoint::Other, async { refused }).await,
    };
    for (name, value) in &rules.headers {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

fn route<H, F>(filter: MethodFilter, endpoint: ServerEndpoint, handler: H) -> MethodRouter<App>
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

/// Returns a route that answers GET with `text` as plain text.
fn operation(text: &'static str) -> MethodRouter<App> {
    let say = async move |_, _| plain(StatusCode::OK, text);
    route(MethodFilter::GET, ServerEndpoint::Operations, say)
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

async fn measure(
    app: &App,
    endpoint: ServerEndpoint,
    work: impl Future<Output = Response>,
) -> Response {
    measured::measure(&app.parts.env.clock, &app.metrics, endpoint, work).await
}

async fn write(app: App, request: Request) -> Response {
    match pass(&app, request).await {
        Ok(headers) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            for (name, number) in headers {
                let name = HeaderName::from_static(name);
                response.headers_mut().insert(name, number.into());
            }
            response
        }
        Err(failure) => failure.into_plain(),
    }
}

async fn pass(app: &App, request: Request) -> Result<Vec<(&'static str, u64)>, ApiFailure> {
    let (head, body) = request.into_parts();
    origin::check_same(&app.web, &head.headers)?;
    let bytes_max = app.parts.body_bytes_max;
    let mut held = app
        .parts
        .bodies
        .create_child_beyond("body", bytes_max, SMALL_BODY_BYTES, &app.large_bodies)
        .create_reservation();
    let hold = |bytes: usize| {
        let more = bytes.saturating_sub(held.bytes());
        let grown = held.grow(more);
        // A lack of memory is not an error of the request; a retry may succeed.
        grown.map_err(|e| ApiFailure::execution(Error::unavailable(e.message)))
    };
    let metrics = app.metrics.endpoint(ServerEndpoint::Write);
    let read = body::read(
        &app.parts.limits,
        metrics,
        body,
        Vec::new(),
        bytes_max,
        hold,
    );
    let body = read.await?;
    let header = |(at, name): (usize, &&str)| {
        let value = head.headers.get(*name)?;
        Some((at, Bytes::copy_from_slice(value.as_bytes())))
    };
    let names = app.parts.passed_headers.iter();
    let passed = ForwardedBody {
        headers: names.enumerate().filter_map(header).collect(),
        body: body.into(),
    };
    let taken = app.parts.passing.store_body(passed).await;
    drop(held);
    taken.map_err(ApiFailure::execution)
}

async fn reload(app: App, request: Request) -> Response {
    if let Err(failure) = origin::check_same(&app.web, request.headers()) {
        return failure.into_plain();
    }
    let reload = app.parts.reload.clone();
    match spawn_blocking(move || reload()).await {
        Ok(Ok(())) => plain(StatusCode::OK, ""),
        Ok(Err(why)) => {
            ApiFailure::internal(format!("failed to reload config: {why}")).into_plain()
        }
        Err(_) => ApiFailure::internal("the request failed: see the log").into_plain(),
    }
}

async fn metrics(app: App, request: Request) -> Response {
    let encoding = ResponseEncoding::from_request(&request);
    let collecting = spawn_blocking(move || {
        let mut sink = TextSink::new();
        app.metrics.collect(&mut sink);
        for collector in &app.parts.collectors {
            collector.collect(&mut sink);
        }
        sink.into_text()
    });
    match collecting.await {
        Ok(text) => respond(Bytes::from(text), CONTENT_TYPE, encoding),
        Err(_) => ApiFailure::internal("the metrics failed: see the log").into_plain(),
    }
}

async fn not_found(State(app): State<App>) -> Response {
    let cause = FailureCause::Request(ErrorKind::NotFound);
    let failure = ApiFailure::new(cause, "404 page not found");
    measure(&app, ServerEndpoint::Other, async { failure.into_plain() }).await
}

async fn method_not_allowed(State(app): State<App>) -> Response {
    let response = plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
    measure(&app, ServerEndpoint::Other, async { response }).await
}
