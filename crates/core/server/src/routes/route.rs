//! A row of the table of routes, and its conversion into a route with authorization, metrics and an
//! audit log of changes.

use crate::access::ResponseVisibility;
use crate::api::call::{self, ApiCall};
use crate::api::deletion::DeletionAudit;
use crate::api::{admin, origin};
use crate::app::ServerApp;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::http::measured;
use crate::metrics::ServerEndpoint;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use firn_model::access::{AccessGrant, AccessScope};
use firn_model::error::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

/// HTTP method of a route. GET routes also answer HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteMethod {
    Get,
    Post,
    Put,
    Delete,
}

impl RouteMethod {
    /// Returns the name of the method in a request.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RouteMethod::Get => "GET",
            RouteMethod::Post => "POST",
            RouteMethod::Put => "PUT",
            RouteMethod::Delete => "DELETE",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            RouteMethod::Get => MethodFilter::GET,
            RouteMethod::Post => MethodFilter::POST,
            RouteMethod::Put => MethodFilter::PUT,
            RouteMethod::Delete => MethodFilter::DELETE,
        }
    }
}

/// Type of a parameter's value, for the generated documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParamKind {
    Text,
    Texts,
    Time,
    Duration,
    Count,
    Flag,
}

/// A parameter of a route, in the URL or a form. Only used for the generated documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteParam {
    pub(crate) name: &'static str,
    pub(crate) kind: ParamKind,
    pub(crate) is_required: bool,
    pub(crate) doc: &'static str,
}

/// Methods, metrics, authorization and requirements of a route. Passed to the constructor of its
/// handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteMount {
    pub(crate) verbs: &'static [RouteMethod],
    pub(crate) endpoint: ServerEndpoint,
    pub(crate) scope: AccessScope,
    pub(crate) reach: ResponseVisibility,
    /// True if the route requires stored data, which an agent does not have.
    pub(crate) needs_store: bool,
    /// True if a response with [`ResponseVisibility::Whole`] contains only data of the tenants of
    /// the request.
    pub(crate) is_by_tenant: bool,
}

impl RouteMount {
    fn filter(&self) -> MethodFilter {
        let mut filters = self.verbs.iter().map(|verb| verb.filter());
        let first = filters.next().unwrap_or(MethodFilter::GET);
        filters.fold(first, MethodFilter::or)
    }

    /// Returns whether calls are written to the audit log: those that change the server or its
    /// rules.
    fn is_audited(&self) -> bool {
        matches!(self.scope, AccessScope::Admin | AccessScope::Rules)
            && !self.verbs.contains(&RouteMethod::Get)
    }

    /// Rejects a request whose credentials lack the required scope, or may only read some of the
    /// data in the response.
    fn authorize(&self, request: &Request) -> Result<(), ApiFailure> {
        let Some(grant) = request.extensions().get::<Arc<AccessGrant>>() else {
            return Ok(());
        };
        let refused = |why: String| Err(ApiFailure::new(FailureCause::Forbidden, why));
        if !grant.scopes.has(self.scope) {
            let scope = self.scope.name();
            return refused(format!("{} does not have the scope {scope:?}", grant.name));
        }
        let is_whole = self.reach == ResponseVisibility::Whole;
        if !grant.tenants.is_empty() && is_whole && !self.is_by_tenant {
            return refused(format!(
                "{} may use only some tenants, but this request concerns all of them",
                grant.name
            ));
        }
        if grant.is_restricted() && is_whole {
            return refused(format!(
                "{} may read only some series, but this request concerns all of them",
                grant.name
            ));
        }
        Ok(())
    }
}

/// A row of the table of routes. The router and the documents are generated from it.
pub(crate) struct ApiRoute {
    /// Path after the prefix of its section.
    pub(crate) path: &'static str,
    pub(crate) mount: RouteMount,
    pub(crate) params: &'static [RouteParam],
    /// Media type of a successful response.
    pub(crate) media: &'static str,
    pub(crate) doc: &'static str,
    pub(super) handler: fn(RouteMount) -> MethodRouter<ServerApp>,
}

impl ApiRoute {
    /// Creates a route without parameters that answers in JSON. Further properties are set by the
    /// methods below.
    pub(super) const fn new(
        path: &'static str,
        mount: RouteMount,
        handler: fn(RouteMount) -> MethodRouter<ServerApp>,
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
    pub(super) const fn with_params(self, params: &'static [RouteParam]) -> Self {
        Self { params, ..self }
    }

    /// Returns the route with the requirement that data is stored, so that an agent rejects it.
    pub(super) const fn require_store(self) -> Self {
        let mount = RouteMount {
            needs_store: true,
            ..self.mount
        };
        Self { mount, ..self }
    }

    /// Returns the route as one whose responses contain only data of the tenants of the request.
    pub(super) const fn by_tenant(self) -> Self {
        let mount = RouteMount {
            is_by_tenant: true,
            ..self.mount
        };
        Self { mount, ..self }
    }

    /// Returns the route with another media type of its responses.
    pub(super) const fn answers(self, media: &'static str) -> Self {
        Self { media, ..self }
    }
}

/// Returns the mount of an endpoint that works without the store.
pub(super) const fn mount(
    verbs: &'static [RouteMethod],
    endpoint: ServerEndpoint,
    scope: AccessScope,
    reach: ResponseVisibility,
) -> RouteMount {
    RouteMount {
        verbs,
        endpoint,
        scope,
        reach,
        needs_store: false,
        is_by_tenant: false,
    }
}

/// Returns a mount for reading stored data, restricted to the series that the credentials allow.
pub(super) const fn mount_data(
    verbs: &'static [RouteMethod],
    endpoint: ServerEndpoint,
) -> RouteMount {
    RouteMount {
        needs_store: true,
        ..mount(verbs, endpoint, AccessScope::Read, ResponseVisibility::Part)
    }
}

/// Returns a mount for reading the state of the server, which restricted clients may not see.
pub(super) const fn state(endpoint: ServerEndpoint) -> RouteMount {
    mount(
        &[RouteMethod::Get],
        endpoint,
        AccessScope::Read,
        ResponseVisibility::Whole,
    )
}

/// Returns a mount that reveals nothing about the data and requires no particular scope.
pub(super) const fn open(verbs: &'static [RouteMethod], endpoint: ServerEndpoint) -> RouteMount {
    mount(
        verbs,
        endpoint,
        AccessScope::Any,
        ResponseVisibility::Nothing,
    )
}

/// Returns an optional parameter.
pub(super) const fn param(name: &'static str, kind: ParamKind, doc: &'static str) -> RouteParam {
    RouteParam {
        name,
        kind,
        is_required: false,
        doc,
    }
}

/// Returns a parameter without which the server rejects the request.
pub(super) const fn required(name: &'static str, kind: ParamKind, doc: &'static str) -> RouteParam {
    RouteParam {
        is_required: true,
        ..param(name, kind, doc)
    }
}

/// Creates a route of the JSON API. It also answers OPTIONS for CORS.
pub(super) fn api<H, F>(mount: RouteMount, handler: H) -> MethodRouter<ServerApp>
where
    H: FnOnce(ApiCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, ApiFailure>> + Send + 'static,
{
    additional_api(mount, handler).options(options)
}

/// Creates a route for another method of a path of the JSON API, whose first route answers OPTIONS.
pub(super) fn additional_api<H, F>(mount: RouteMount, handler: H) -> MethodRouter<ServerApp>
where
    H: FnOnce(ApiCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, ApiFailure>> + Send + 'static,
{
    let work = async move |State(app): State<ServerApp>, request: Request| {
        let work = |app, request| call::answer(app, mount.endpoint, request, handler);
        authorize_and_run(mount, app, request, ApiFailure::into_json, work).await
    };
    on(mount.filter(), work)
}

/// Creates an administrative route of the JSON API that changes state.
pub(super) fn admin_route<H, F>(mount: RouteMount, handler: H) -> MethodRouter<ServerApp>
where
    H: FnOnce(ApiCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, ApiFailure>> + Send + 'static,
{
    let admit = |app: &ServerApp, headers: &HeaderMap| admin::admit(app, headers);
    conditional_route(mount, admit, handler).options(options)
}

/// Creates a route of the JSON API that changes state. Rejects requests from pages of other
/// origins.
pub(super) fn mutating_route<H, F>(mount: RouteMount, handler: H) -> MethodRouter<ServerApp>
where
    H: FnOnce(ApiCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, ApiFailure>> + Send + 'static,
{
    let admit = |app: &ServerApp, headers: &HeaderMap| origin::check_same(&app.parts.web, headers);
    conditional_route(mount, admit, handler)
}

/// Creates a route that calls `handler` if `admit` succeeds, and otherwise answers with its
/// failure.
fn conditional_route<H, F>(
    mount: RouteMount,
    admit: fn(&ServerApp, &HeaderMap) -> Result<(), ApiFailure>,
    handler: H,
) -> MethodRouter<ServerApp>
where
    H: FnOnce(ApiCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Response, ApiFailure>> + Send + 'static,
{
    let work = async move |State(app): State<ServerApp>, request: Request| {
        let work = |app: ServerApp, request: Request| async move {
            match admit(&app, request.headers()) {
                Ok(()) => call::answer(app, mount.endpoint, request, handler).await,
                Err(failure) => measure(&app, mount.endpoint, async { failure.into_json() }).await,
            }
        };
        authorize_and_run(mount, app, request, ApiFailure::into_json, work).await
    };
    on(mount.filter(), work)
}

/// Creates a route whose handler returns the complete response, for endpoints outside of the JSON
/// API.
pub(super) fn plain<H, F>(mount: RouteMount, handler: H) -> MethodRouter<ServerApp>
where
    H: FnOnce(ServerApp, Request) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let work = async move |State(app): State<ServerApp>, request: Request| {
        let work = |app: ServerApp, request: Request| async move {
            measure(&app.clone(), mount.endpoint, handler(app, request)).await
        };
        authorize_and_run(mount, app, request, ApiFailure::into_plain, work).await
    };
    on(mount.filter(), work)
}

/// Calls `work` if the credentials of the request are sufficient; otherwise returns the response of
/// `refuse`. Writes an audit log entry if the route requires it.
async fn authorize_and_run<F: Future<Output = Response>>(
    mount: RouteMount,
    app: ServerApp,
    request: Request,
    refuse: fn(ApiFailure) -> Response,
    work: impl FnOnce(ServerApp, Request) -> F,
) -> Response {
    let audit = mount
        .is_audited()
        .then(|| AuditRecord::from_request(&request));
    let response = match mount.authorize(&request) {
        Ok(()) if mount.needs_store && app.parts.is_agent => {
            let cause = FailureCause::Execution(ErrorKind::Invalid);
            let failure = ApiFailure::new(cause, "unavailable with Prometheus Agent");
            measure(&app, mount.endpoint, async { refuse(failure) }).await
        }
        Ok(()) => work(app, request).await,
        Err(failure) => {
            app.metrics.requests_forbidden.inc();
            measure(&app, mount.endpoint, async { refuse(failure) }).await
        }
    };
    if let Some(audit) = audit {
        audit.log(
            response.status(),
            response.extensions().get::<DeletionAudit>(),
        );
    }
    response
}

/// Waits for the response of `work` and counts it in the metrics of `endpoint`.
pub(super) async fn measure(
    app: &ServerApp,
    endpoint: ServerEndpoint,
    work: impl Future<Output = Response>,
) -> Response {
    measured::measure(&app.parts.env.clock, &app.metrics, endpoint, work).await
}

/// Client, method and path of a request, for the audit log. Collected before the request is
/// consumed.
struct AuditRecord {
    method: String,
    path: String,
    who: String,
    peer: String,
}

impl AuditRecord {
    fn from_request(request: &Request) -> Self {
        let extensions = request.extensions();
        let grant = extensions.get::<Arc<AccessGrant>>();
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

    fn log(&self, status: StatusCode, deletion: Option<&DeletionAudit>) {
        // Fields without a value are not logged.
        tracing::info!(
            method = self.method,
            path = self.path,
            who = self.who,
            peer = self.peer,
            status = status.as_u16(),
            action = deletion.map(|deletion| deletion.action),
            matchers = deletion.map(|deletion| deletion.matchers.as_str()),
            start = deletion.map(|deletion| deletion.start.as_str()),
            end = deletion.map(|deletion| deletion.end.as_str()),
            "audit"
        );
    }
}

/// Answers a CORS preflight request of a browser with 204.
async fn options(State(app): State<ServerApp>, request: Request) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let origin = request.headers().get(header::ORIGIN);
    origin::allow(&app.parts.web, origin, response.headers_mut());
    response
}
