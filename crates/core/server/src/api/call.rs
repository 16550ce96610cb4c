//! A request to the JSON API with the context of its handler, and the conversion of the handler's
//! result into a response.

use super::form::{RequestForm, read_form};
use super::origin;
use crate::access::RestrictedStore;
use crate::admission::question::{ActiveQueryRange, RequestedQuery};
use crate::admission::queue::QueueClient;
use crate::admission::run::{QueryPhase, QueryRun};
use crate::app::{BackendNotReady, ServerApp};
use crate::federated::FederatedStore;
use crate::http::failure::ApiFailure;
use crate::http::measured::measure;
use crate::http::produce::{ResponseEncoding, ResponseProducer, respond_of_query};
use crate::metrics::ServerEndpoint;
use crate::parts::Backend;
use crate::query_log::QueryOrigin;
use crate::tenancy::{require_one, require_operator};
use crate::traced::trace_store;
use axum::body::Body;
use axum::extract::{OriginalUri, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_model::access::AccessGrant;
use firn_model::store::Select;
use firn_model::tenant::TenantId;
use firn_model::trace::{SpanContext, TraceParent};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// The header by which a client of a cluster chooses between the reads of `consistent`.
const CONSISTENCY: &str = "x-firn-consistency";

/// Parameters that contain queries and selectors, in the order in which they are recorded.
const EXPRESSIONS: [&str; 3] = ["query", "match[]", "match_target"];

/// An authorized request with parsed parameters. Created by [`answer`] and passed to the handler of
/// the endpoint.
pub(crate) struct ApiCall {
    pub(crate) app: ServerApp,
    pub(crate) backend: Arc<Backend>,
    pub(crate) tenant: TenantId,
    pub(crate) form: RequestForm,
    /// Path of the URL as received, without decoding.
    pub(crate) path: String,
    endpoint: ServerEndpoint,
    line: QueueClient,
    /// Address of the client, after the name of its credentials if it has any.
    client: String,
    /// The query that answers the request, set when it enters the queue.
    run: OnceLock<Arc<QueryRun>>,
    origin: QueryOrigin,
    encoding: ResponseEncoding,
    /// Span of the request, if it is traced.
    span: Option<SpanContext>,
}

impl ApiCall {
    /// Reads the parameters of a request. Limits `backend` to the series that the credentials of
    /// the request may see.
    pub(crate) async fn read(
        app: &ServerApp,
        backend: Arc<Backend>,
        endpoint: ServerEndpoint,
        request: Request,
    ) -> Result<Self, ApiFailure> {
        let tenant = app.tenants(request.headers())?;
        let span = request.extensions().get::<SpanContext>().cloned();
        let grant = request.extensions().get::<Arc<AccessGrant>>().cloned();
        let line = line(app, &tenant, &request);
        let client = client(&request, grant.as_deref());
        let origin = origin_of(&request);
        let encoding = ResponseEncoding::from_request(&request);
        let path = request.uri().path().to_owned();
        let backend = consistent(backend, &request)?;
        let form = read_form(app, endpoint, request).await?;
        let backend = federated(partial(backend, &form)?, &tenant);
        let backend = visible(backend, grant)?;
        Ok(Self {
            backend: trace_backend(backend, span.as_ref()),
            span,
            endpoint,
            line,
            client,
            run: OnceLock::new(),
            tenant,
            origin,
            encoding,
            path,
            form,
            app: app.clone(),
        })
    }

    /// Runs `job` in the query queue with the default query timeout; see [`ServerApp::compute`].
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Arc<QueryRun>) -> Result<T, ApiFailure> + Send + 'static,
    ) -> Result<T, ApiFailure> {
        let deadline = Instant::now() + self.app.query_timeout(&self.tenant);
        self.compute_over(None, deadline, |run, _| job(run)).await
    }

    /// Runs `job` in the query queue until `deadline`. `range` is recorded as its evaluation range.
    /// The job receives the trace context of its span.
    pub(crate) async fn compute_over<T, J>(
        &self,
        range: Option<ActiveQueryRange>,
        deadline: Instant,
        job: J,
    ) -> Result<T, ApiFailure>
    where
        T: Send + 'static,
        J: FnOnce(&Arc<QueryRun>, Option<TraceParent>) -> Result<T, ApiFailure> + Send + 'static,
    {
        let texts = EXPRESSIONS.iter().flat_map(|name| self.form.all(name));
        let run = self.begin_query(texts, range)?;
        self.compute_traced(run, deadline, job).await
    }

    /// Runs `job` in the query queue until `deadline`. `texts` are recorded as its expression.
    pub(crate) async fn compute_asking<T: Send + 'static>(
        &self,
        texts: &[String],
        deadline: Instant,
        job: impl FnOnce(&Arc<QueryRun>) -> Result<T, ApiFailure> + Send + 'static,
    ) -> Result<T, ApiFailure> {
        let run = self.begin_query(texts.iter().map(String::as_str), None)?;
        self.compute_traced(run, deadline, |run, _| job(run)).await
    }

    /// Runs `job` in the query queue. If the request is traced, waiting and evaluation get separate
    /// spans with Prometheus's names.
    async fn compute_traced<T, J>(
        &self,
        run: Arc<QueryRun>,
        deadline: Instant,
        job: J,
    ) -> Result<T, ApiFailure>
    where
        T: Send + 'static,
        J: FnOnce(&Arc<QueryRun>, Option<TraceParent>) -> Result<T, ApiFailure> + Send + 'static,
    {
        let Some(span) = self.span.clone() else {
            let job = |run: &Arc<QueryRun>| job(run, None);
            return self.app.compute(run, deadline, job).await;
        };
        let queue = span.begin("promqlExecQueue");
        let asked = self.form.get("query").to_owned();
        let job = move |run: &Arc<QueryRun>| {
            drop(queue);
            let mut work = span.begin("promqlEval");
            if !asked.is_empty() {
                work.set_attribute("query", || asked);
            }
            let outcome = job(run, work.parent());
            if let Err(failure) = &outcome {
                work.set_error(&failure.message);
            }
            outcome
        };
        self.app.compute(run, deadline, job).await
    }

    /// Registers the query that answers the request.
    fn begin_query<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
        range: Option<ActiveQueryRange>,
    ) -> Result<Arc<QueryRun>, ApiFailure> {
        let (line, client) = (self.line.clone(), self.client.clone());
        let handler = self.endpoint.label();
        let question =
            RequestedQuery::new(handler, self.tenant.clone(), line, client, texts, range);
        let run = self.app.begin_query(RequestedQuery {
            query_id: query_id(self.form.get("query_id"))?,
            ..question
        });
        // A handler that looks several things up is listed with the first of them.
        let _ = self.run.set(run.clone());
        Ok(run)
    }

    /// Fails if the request names several tenants.
    pub(crate) fn require_one_tenant(&self) -> Result<(), ApiFailure> {
        require_one(&self.tenant)
    }

    /// Fails if the request names another tenant than `anonymous`, that of the operator.
    pub(crate) fn require_operator(&self) -> Result<(), ApiFailure> {
        require_operator(&self.tenant)
    }

    /// Returns whether the request may see data of `tenant`: one that it names, or any without
    /// multitenancy.
    pub(crate) fn has_tenant(&self, tenant: &TenantId) -> bool {
        !self.app.parts.multitenancy || self.tenant.members().contains(tenant)
    }

    /// Returns the trace context of the request; `None` if it is not traced.
    pub(crate) fn trace(&self) -> Option<TraceParent> {
        self.span.as_ref().map(SpanContext::parent)
    }

    /// Returns the client, method and path of the request, for the query log.
    pub(crate) fn origin(&self) -> QueryOrigin {
        self.origin.clone()
    }

    /// Returns the unique values of `match[]` in order. Fails if there are too many.
    pub(crate) fn distinct_selectors(&self) -> Result<Vec<String>, ApiFailure> {
        let limit = self.app.limits().selectors_max;
        let mut different = Vec::new();
        for selector in self.form.all("match[]") {
            if different.iter().any(|known| known == selector) {
                continue;
            }
            if different.len() == limit {
                let count = self.form.all("match[]").count();
                return Err(ApiFailure::bad_data(format!(
                    "too many different match[] selectors among {count}, limit {limit}"
                )));
            }
            different.push(selector.to_owned());
        }
        Ok(different)
    }

    /// Returns a 200 response with a JSON document, compressed as the client accepts.
    pub(crate) fn json(&self, document: impl ResponseProducer + 'static) -> Response {
        self.respond(document, "application/json")
    }

    /// Returns a 200 response with the output of `source`, compressed as the client accepts. The
    /// query of the request ends with the response.
    pub(crate) fn respond(
        &self,
        source: impl ResponseProducer + 'static,
        content_type: &'static str,
    ) -> Response {
        let run = self.run.get().cloned();
        if let Some(run) = &run {
            run.set_phase(QueryPhase::Encode);
        }
        respond_of_query(source, content_type, self.encoding, run)
    }
}

/// Returns the backend with the reads that the header [`CONSISTENCY`] selects: `strong`, the
/// default, or `eventual`, which never waits and may miss samples that another node acknowledged.
fn consistent(backend: Arc<Backend>, request: &Request) -> Result<Arc<Backend>, ApiFailure> {
    let Some(value) = request.headers().get(CONSISTENCY) else {
        return Ok(backend);
    };
    match (value.as_bytes(), &backend.eventual) {
        (b"strong", _) | (b"eventual", None) => Ok(backend),
        (b"eventual", Some(eventual)) => Ok(Arc::new(Backend {
            store: eventual.clone(),
            local: eventual.clone(),
            ..Backend::clone(&backend)
        })),
        _ => Err(ApiFailure::bad_data(format!(
            "header X-Firn-Consistency: expected strong or eventual, got {value:?}"
        ))),
    }
}

/// Returns the backend with the reads that the parameter `partial` selects: with `true`, results
/// lack the partitions of a cluster that no node answers for, each with a warning.
fn partial(backend: Arc<Backend>, form: &RequestForm) -> Result<Arc<Backend>, ApiFailure> {
    match (form.get("partial"), &backend.partial) {
        ("" | "false", _) | ("true", None) => Ok(backend),
        ("true", Some(partial)) => Ok(Arc::new(Backend {
            store: partial.clone(),
            local: partial.clone(),
            ..Backend::clone(&backend)
        })),
        (value, _) => Err(ApiFailure::bad_data(format!(
            "invalid parameter \"partial\": expected true or false, got {value:?}"
        ))),
    }
}

/// Returns the backend whose reads join the tenants of the request, if there are several.
fn federated(backend: Arc<Backend>, tenant: &TenantId) -> Arc<Backend> {
    if !tenant.is_joined() {
        return backend;
    }
    let joined = |store: &Arc<dyn Select>| Arc::new(FederatedStore::new(store.clone()));
    Arc::new(Backend {
        store: joined(&backend.store),
        local: joined(&backend.local),
        ..Backend::clone(&backend)
    })
}

/// Returns the backend, limited to the series that the credentials of the request may see.
fn visible(
    backend: Arc<Backend>,
    grant: Option<Arc<AccessGrant>>,
) -> Result<Arc<Backend>, ApiFailure> {
    let Some(grant) = grant.filter(|grant| grant.is_restricted()) else {
        return Ok(backend);
    };
    let part_of = |store: &Arc<dyn Select>| -> Result<Arc<dyn Select>, ApiFailure> {
        let part = RestrictedStore::new(store.clone(), &grant.matchers);
        Ok(Arc::new(part.map_err(ApiFailure::execution)?))
    };
    Ok(Arc::new(Backend {
        store: part_of(&backend.store)?,
        local: part_of(&backend.local)?,
        ..Backend::clone(&backend)
    }))
}

/// Returns the backend, with a span for each look-up if the request is traced.
fn trace_backend(backend: Arc<Backend>, span: Option<&SpanContext>) -> Arc<Backend> {
    match span {
        Some(_) => Arc::new(Backend {
            store: trace_store(backend.store.clone(), span),
            local: trace_store(backend.local.clone(), span),
            ..Backend::clone(&backend)
        }),
        None => backend,
    }
}

/// Maximum length of the parameter `query_id` in bytes.
const QUERY_ID_BYTES_MAX: usize = 128;

/// Checks the parameter `query_id`, by which a client finds its query in the list of active ones.
fn query_id(text: &str) -> Result<Option<String>, ApiFailure> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if text.len() > QUERY_ID_BYTES_MAX {
        let why = format!("{} bytes, limit {QUERY_ID_BYTES_MAX}", text.len());
        return Err(ApiFailure::parameter("query_id", why));
    }
    if !text.bytes().all(is_allowed) {
        let why = format!("expected letters, digits, \"-\", \"_\", \".\" and \":\", got {text:?}");
        return Err(ApiFailure::parameter("query_id", why));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Returns the text that identifies the client in lists of queries.
fn client(request: &Request, grant: Option<&AccessGrant>) -> String {
    let address = peer(request).map_or(String::new(), |address| address.to_string());
    match grant {
        Some(grant) => format!("{} at {address}", grant.name),
        None => address,
    }
}

/// Returns the line in which the request waits: that of its tenant or of its address.
fn line(app: &ServerApp, tenant: &TenantId, request: &Request) -> QueueClient {
    if app.parts.multitenancy {
        return QueueClient::Tenant(tenant.clone());
    }
    QueueClient::from_address(peer(request))
}

fn origin_of(request: &Request) -> QueryOrigin {
    // A nested router removes the prefix that the outer router matched.
    let whole = request.extensions().get::<OriginalUri>();
    QueryOrigin::Request {
        client: peer(request),
        method: request.method().to_string(),
        path: whole.map_or(request.uri(), |uri| &uri.0).path().to_owned(),
    }
}

/// Returns the address of the remote end of the connection; `None` without a socket.
fn peer(request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<SocketAddr>();
    peer.map(|peer| peer.ip())
}

/// Processes a request to the JSON API: reads it, calls `handler`, and converts errors into
/// documents. Answers 503 if the store is not open.
pub(crate) async fn answer<H, F>(
    app: ServerApp,
    endpoint: ServerEndpoint,
    request: Request,
    handler: H,
) -> Response
where
    H: FnOnce(ApiCall) -> F,
    F: Future<Output = Result<Response, ApiFailure>>,
{
    let origin = request.headers().get(header::ORIGIN).cloned();
    let work = async {
        let backend = match app.backend() {
            Ok(backend) => backend,
            Err(state) => return not_ready(state),
        };
        let outcome = match ApiCall::read(&app, backend, endpoint, request).await {
            Ok(call) => handler(call).await,
            Err(failure) => Err(failure),
        };
        outcome.unwrap_or_else(ApiFailure::into_json)
    };
    let mut response = measure(&app.parts.env.clock, &app.metrics, endpoint, work).await;
    origin::allow(&app.parts.web, origin.as_ref(), response.headers_mut());
    response
}

/// Returns upstream's response while the store is being opened or closed.
pub(crate) fn not_ready(state: BackendNotReady) -> Response {
    let mut response = Response::new(Body::from("Service Unavailable"));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let stopping = match state {
        BackendNotReady::Starting => "false",
        BackendNotReady::Stopping => "true",
    };
    let headers = response.headers_mut();
    headers.insert("x-prometheus-stopping", HeaderValue::from_static(stopping));
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
