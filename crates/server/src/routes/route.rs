//! A row of the table of routes, and its conversion into a route with authorization, metrics and an
//! audit log of changes.

use crate::access::{Grant, Reach, Scope};
use crate::api::call::{self, Call};
use crate::api::{admin, origin};
use crate::app::App;
use crate::http::failure::{Cause, Failure};
use crate::http::measured;
use crate::metrics::Endpoint;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use firn_model::error::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

/// HTTP method of a route. GET routes also answer HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    /// Returns the name of the method in a request.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Delete => "DELETE",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
            Verb::Put => MethodFilter::PUT,
            Verb::Delete => MethodFilter::DELETE,
        }
    }
}

/// Type of a parameter's value, for the generated documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Texts,
    Time,
    Duration,
    Count,
    Flag,
}

/// A parameter of a route, in the URL or a form. Only used for the generated documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) is_required: bool,
    pub(crate) doc: &'static str,
}

/// Methods, metrics, authorization and requirements of a route. Passed to the constructor of its
/// handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mount {
    pub(crate) verbs: &'static [Verb],
    pub(crate) endpoint: Endpoint,
    pub(crate) scope: Scope,
    pub(crate) reach: Reach,
    /// True if the route requires stored data, which an agent does not have.
    pub(crate) needs_store: bool,
}

impl Mount {
    fn filter(&self) -> MethodFilter {
        let mut filters = self.verbs.iter().map(|verb| verb.filter());
        let first = filters.next().unwrap_or(MethodFilter::GET);
        filters.fold(first, MethodFilter::or)
    }

    /// Returns whether calls are written to the audit log: those that change the server or its
    /// rules.
    fn is_audited(&self) -> bool {
        matches!(self.scope, Scope::Admin | Scope::Rules) && !self.verbs.contains(&Verb::Get)
    }

    /// Rejects a request whose credentials lack the required scope, or may only read some of the
    /// data in the response.
    fn authorize(&self, request: &Request) -> Result<(), Failure> {
        let Some(grant) = request.extensions().get::<Arc<Grant>>() else {
            return Ok(());
        };
        let refused = |why: String| Err(Failure::new(Cause::Forbidden, why));
        if !grant.scopes.has(self.scope) {
            let scope = self.scope.name();
            return refused(format!("{} does not have the scope {scope:?}", grant.name));
        }
        if grant.is_restricted() && self.reach == Reach::Whole {
            return refused(format!(
                "{} may read only some series, but this request concerns all of them",
                grant.name
            ));
        }
        Ok(())
    }
}

/// A row of the table of routes. The router and the documents are generated from it.
pub(crate) struct Route {
    /// Path after the prefix of its section.
    pub(crate) path: &'static str,
    pub(crate) mount: Mount,
    pub(crate) params: &'static [Param],
    /// Media type of a successful response.
    pub(crate) media: &'static str,
    pub(crate) doc: &'static str,
    pub(super) handler: fn(Mount) -> MethodRouter<App>,
}

impl Route {
    /// Creates a route without parameters that answers in JSON. Further properties are set by the
    /// methods below.
    pub(super) const fn new(
        path: &'static str,
        mount: Mount,
        handler: fn(Mount) -> MethodRouter<App>,
        doc: &'static str,
    ) -> Self {
        Self {
            path,
            mount,
            params: &[],
            media: "application/json",
            doc,
            handler,
        }
    }

    /// Returns the route with these parameters.
    pub(super) const fn with(self, params: &'static [Param]) -> Self {
        Self { params, ..self }
    }

    /// Returns the route with the requirement that data is stored, so that an agent rejects it.
    pub(super) const fn of_store(self) -> Self {
        let mount = Mount {
            needs_store: true,
            ..self.mount
        };
        Self { mount, ..self }
    }

    /// Returns the route with another media type of its responses.
    pub(super) const fn answers(self, media: &'static str) -> Self {
        Self { media, ..self }
    }
}

/// Creates a route of the JSON API. It also answers OPTIONS for CORS.
pub(super) fn api<H, F>(mount: Mount, handler: H) -> MethodRouter<App>
where
    H: FnOnce(Call) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let work = async move |State(app): State<App>, request: Request| {
        let work = |app, request| call::answer(app, mount.endpoint, request, handler);
        guarded(mount, app, request, Failure::into_json, work).await
    };
    on(mount.filter(), work).options(options)
}

/// Creates an administrative route of the JSON API that changes state.
pub(super) fn for_admins<H, F>(mount: Mount, handler: H) -> MethodRouter<App>
where
    H: FnOnce(Call) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let admit = |app: &App, headers: &HeaderMap| admin::admit(app, headers);
    admitted(mount, admit, handler).options(options)
}

/// Creates a route of the JSON API that changes state. Rejects requests from pages of other
/// origins.
pub(super) fn changing<H, F>(mount: Mount, handler: H) -> MethodRouter<App>
where
    H: FnOnce(Call) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let admit = |app: &App, headers: &HeaderMap| origin::check_same(&app.parts.web, headers);
    admitted(mount, admit, handler)
}

/// Creates a route that calls `handler` if `admit` succeeds, and otherwise answers with its
/// failure.
fn admitted<H, F>(
    mount: Mount,
    admit: fn(&App, &HeaderMap) -> Result<(), Failure>,
    handler: H,
) -> MethodRouter<App>
where
    H: FnOnce(Call) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let work = async move |State(app): State<App>, request: Request| {
        let work = |app: App, request: Request| async move {
            match admit(&app, request.headers()) {
                Ok(()) => call::answer(app, mount.endpoint, request, handler).await,
                Err(failure) => measure(&app, mount.endpoint, async { failure.into_json() }).await,
            }
        };
        guarded(mount, app, request, Failure::into_json, work).await
    };
    on(mount.filter(), work)
}

/// Creates a route whose handler returns the complete response, for endpoints outside of the JSON
/// API.
pub(super) fn plain<H, F>(mount: Mount, handler: H) -> MethodRouter<App>
where
    H: FnOnce(App, Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let work = async move |State(app): State<App>, request: Request| {
        let work = |app: App, request: Request| async move {
            measure(&app.clone(), mount.endpoint, handler(app, request)).await
        };
        guarded(mount, app, request, Failure::into_plain, work).await
    };
    on(mount.filter(), work)
}

/// Calls `work` if the credentials of the request are sufficient; otherwise returns the response of
/// `refuse`. Writes an audit log entry if the route requires it.
async fn guarded<F: Future<Output = Response>>(
    mount: Mount,
    app: App,
    request: Request,
    refuse: fn(Failure) -> Response,
    work: impl FnOnce(App, Request) -> F,
) -> Response {
    let audit = mount.is_audited().then(|| Audit::of(&request));
    let response = match mount.authorize(&request) {
        Ok(()) if mount.needs_store && app.parts.is_agent => {
            let cause = Cause::Execution(ErrorKind::Invalid);
            let failure = Failure::new(cause, "unavailable with Prometheus Agent");
            measure(&app, mount.endpoint, async { refuse(failure) }).await
        }
        Ok(()) => work(app, request).await,
        Err(failure) => {
            app.metrics.requests_forbidden.inc();
            measure(&app, mount.endpoint, async { refuse(failure) }).await
        }
    };
    if let Some(audit) = audit {
        audit.log(response.status());
    }
    response
}

/// Waits for the response of `work` and counts it in the metrics of `endpoint`.
pub(super) async fn measure(
    app: &App,
    endpoint: Endpoint,
    work: impl Future<Output = Response>,
) -> Response {
    measured::measure(&app.parts.env.clock, &app.metrics, endpoint, work).await
}

/// Client, method and path of a request, for the audit log. Collected before the request is
/// consumed.
struct Audit {
    method: String,
    path: String,
    who: String,
    peer: String,
}

impl Audit {
    fn of(request: &Request) -> Self {
        let extensions = request.extensions();
        let grant = extensions.get::<Arc<Grant>>();
        let peer = extensions.get::<SocketAddr>();
        // Nested routers remove their prefix from the path.
        let uri = extensions.get::<OriginalUri>().map(|uri| &uri.0);
        Self {
            method: request.method().to_string(),
            path: uri.unwrap_or(request.uri()).path().to_owned(),
            who: grant.map_or_else(|| "anyone".to_owned(), |grant| grant.name.clone()),
            peer: peer.map(SocketAddr::to_string).unwrap_or_default(),
        }
    }

    fn log(&self, status: StatusCode) {
        tracing::info!(
            method = self.method,
            path = self.path,
            who = self.who,
            peer = self.peer,
            status = status.as_u16(),
            "audit"
        );
    }
}

/// Answers a CORS preflight request of a browser with 204.
async fn options(State(app): State<App>, request: Request) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let origin = request.headers().get(header::ORIGIN);
    origin::allow(&app.parts.web, origin, response.headers_mut());
    response
}
