//! Processing of every request before routing: rate limit, authentication, and headers of the
//! response.
//!
//! Invariant: without credentials every request is answered with 401, independent of its method and
//! whether its path exists. The only exception is the web page, whose files contain no data: the
//! page prompts for a token.

use super::table::pages::is_of_page;
use crate::access::{enter, too_many};
use crate::app::ServerApp;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::http::measured;
use crate::http::watched_body::{BodyObserver, ObservedBody};
use crate::metrics::ServerEndpoint;
use crate::tenancy::TENANT_HEADER;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use firn_model::access::AccessGrant;
use firn_model::trace::{SpanKind, TraceParent, TraceSpan};

/// Header that contains the trace context of the client, as defined by W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

/// Authenticates a request and passes it to its route, or rejects it.
pub(super) async fn guard(
    State(app): State<ServerApp>,
    mut request: Request,
    next: Next,
) -> Response {
    let rules = app.access.rules();
    if !app.access.is_within_rate(&rules) {
        // As in upstream, the configured headers are not added.
        return counted(&app, too_many()).await;
    }
    let is_public = rules.is_page_public && is_page(&app, &request);
    let entered = if is_public {
        Ok(None)
    } else {
        enter(&app.access, &rules, request.headers(), &app.metrics).await
    };
    let mut response = match entered {
        Ok(None) => answer(&app, request, next).await,
        Ok(Some(grant)) => match choose_tenant(&app, &grant, request.headers_mut()) {
            Ok(()) => {
                request.extensions_mut().insert(grant);
                answer(&app, request, next).await
            }
            Err(failure) => {
                app.metrics.requests_forbidden.inc();
                counted(&app, failure.into_plain()).await
            }
        },
        Err(refused) => counted(&app, refused).await,
    };
    for (name, value) in &rules.headers {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

/// Returns whether the request reads a page or file of the web UI, or is redirected to it.
fn is_page(app: &ServerApp, request: &Request) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (path, prefix) = (request.uri().path(), &app.parts.web.route_prefix);
    let is_redirected = !prefix.is_empty() && (path == "/" || path == prefix);
    let is_there = path.strip_prefix(&**prefix).is_some_and(is_of_page);
    is_read && (is_redirected || is_there)
}

/// Processes a request within a span, if its trace is sampled. The span ends with the last byte of
/// the response. Rejected requests have no spans.
async fn answer(app: &ServerApp, mut request: Request, next: Next) -> Response {
    let mut span = start_span(app, &request);
    let Some(context) = span.context() else {
        return next.run(request).await;
    };
    request.extensions_mut().insert(context);
    let response = next.run(request).await;
    let status = response.status();
    span.set_attribute("http.response.status_code", || i64::from(status.as_u16()));
    if status.is_server_error() {
        span.set_error(status);
    }
    if !span.is_recorded() {
        return response;
    }
    response.map(|inner| {
        let watch = ResponseSpan { span, bytes: 0 };
        Body::new(ObservedBody { inner, watch })
    })
}

/// The span of a request whose response is being sent. Ends when the body is dropped.
struct ResponseSpan {
    span: TraceSpan,
    bytes: usize,
}

impl BodyObserver for ResponseSpan {
    fn data(&mut self, bytes: usize) {
        self.bytes += bytes;
    }
}

impl Drop for ResponseSpan {
    fn drop(&mut self) {
        self.span
            .set_attribute("http.response.body.size", || self.bytes);
    }
}

fn start_span(app: &ServerApp, request: &Request) -> TraceSpan {
    let (method, path) = (request.method(), request.uri().path());
    let parent = request.headers().get(TRACEPARENT);
    let parent = parent.and_then(|value| TraceParent::parse(value.to_str().ok()?));
    let name = || format!("{method} {path}");
    let mut span = app.parts.tracer.start_trace(name, SpanKind::Server, parent);
    span.set_attribute("http.request.method", || method.as_str());
    span.set_attribute("url.path", || path);
    span
}

/// Checks that the credentials allow all tenants of the request. If they allow a single tenant, it
/// is the default.
fn choose_tenant(
    app: &ServerApp,
    grant: &AccessGrant,
    headers: &mut HeaderMap,
) -> Result<(), ApiFailure> {
    if !app.parts.multitenancy || grant.tenants.is_empty() {
        return Ok(());
    }
    if !headers.contains_key(&TENANT_HEADER) {
        if let [only] = &grant.tenants[..]
            && let Ok(value) = HeaderValue::from_str(only.as_str())
        {
            headers.insert(TENANT_HEADER, value);
        }
        return Ok(());
    }
    let named = headers.get_all(&TENANT_HEADER).iter();
    let mut ids = named.flat_map(|value| value.as_bytes().split(|byte| *byte == b'|'));
    let is_allowed = |id: &[u8]| grant.tenants.iter().any(|t| t.as_str().as_bytes() == id);
    // An empty id is an error of its own.
    match ids.find(|id| !id.is_empty() && !is_allowed(id)) {
        None => Ok(()),
        Some(id) => {
            let id = String::from_utf8_lossy(id);
            let message = format!("{} has no access to the tenant {id:?}", grant.name);
            Err(ApiFailure::new(FailureCause::Forbidden, message))
        }
    }
}

async fn counted(app: &ServerApp, response: Response) -> Response {
    let (clock, metrics) = (&app.parts.env.clock, &app.metrics);
    measured::measure(clock, metrics, ServerEndpoint::Other, async { response }).await
}
