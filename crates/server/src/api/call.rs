//! One request to the JSON API, with everything that its handler needs; and the way from a
//! handler's result to a response.

use super::form::{Form, read_form};
use super::origin;
use crate::access::{Grant, Restricted};
use crate::admission::question::{Question, Range};
use crate::admission::queue::Client;
use crate::app::{App, NotReady};
use crate::http::failure::Failure;
use crate::http::measured::measure;
use crate::http::produce::{Encoding, Produce, respond};
use crate::metrics::Endpoint;
use crate::parts::Backend;
use crate::query_log::Origin;
use crate::traced::traced;
use axum::body::Body;
use axum::extract::{OriginalUri, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_model::cancel::Cancel;
use firn_model::store::Select;
use firn_model::tenant::TenantId;
use firn_model::trace::{SpanContext, TraceParent};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::time::Instant;

/// The parameters that say what is looked for, in the order in which they are written down.
const EXPRESSIONS: [&str; 3] = ["query", "match[]", "match_target"];

/// A request that may be worked on.
pub(crate) struct Call {
    pub(crate) app: App,
    pub(crate) backend: Arc<Backend>,
    pub(crate) tenant: TenantId,
    pub(crate) form: Form,
    /// The path as it was sent.
    pub(crate) path: String,
    endpoint: Endpoint,
    client: Client,
    origin: Origin,
    encoding: Encoding,
    /// The span of the request, if it is in a trace.
    span: Option<SpanContext>,
}

impl Call {
    /// Reads a request that may be answered by `backend`.
    pub(crate) async fn read(
        app: &App,
        backend: Arc<Backend>,
        endpoint: Endpoint,
        request: Request,
    ) -> Result<Self, Failure> {
        let tenant = app.tenant(request.headers())?;
        let span = request.extensions().get::<SpanContext>().cloned();
        Ok(Self {
            backend: watched(visible(backend, &request)?, span.as_ref()),
            span,
            endpoint,
            client: client(app, &tenant, &request),
            tenant,
            origin: origin_of(&request),
            encoding: Encoding::of_request(&request),
            path: request.uri().path().to_owned(),
            form: read_form(app, endpoint, request).await?,
            app: app.clone(),
        })
    }

    /// Runs `job` when it is the client's turn, within the longest time of a query: see
    /// [`App::compute`].
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Cancel) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + self.app.limits().query_timeout;
        self.compute_over(None, deadline, |cancel, _| job(cancel))
            .await
    }

    /// Runs `job`, which is about the times of `range`, until `deadline`; it hears where its span
    /// stands.
    pub(crate) async fn compute_over<T: Send + 'static>(
        &self,
        range: Option<Range>,
        deadline: Instant,
        job: impl FnOnce(&Cancel, Option<TraceParent>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let texts = EXPRESSIONS.iter().flat_map(|name| self.form.all(name));
        let question = self.question(texts, range);
        self.compute_traced(question, deadline, job).await
    }

    /// Runs `job`, which answers what `texts` ask, until `deadline`.
    pub(crate) async fn compute_asking<T: Send + 'static>(
        &self,
        texts: &[String],
        deadline: Instant,
        job: impl FnOnce(&Cancel) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let question = self.question(texts.iter().map(String::as_str), None);
        self.compute_traced(question, deadline, |cancel, _| job(cancel))
            .await
    }

    /// Waiting and work are a span each, by Prometheus's names.
    async fn compute_traced<T: Send + 'static>(
        &self,
        question: Question,
        deadline: Instant,
        job: impl FnOnce(&Cancel, Option<TraceParent>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let Some(span) = self.span.clone() else {
            let job = |cancel: &Cancel| job(cancel, None);
            return self.app.compute(question, deadline, job).await;
        };
        let queue = span.begin("promqlExecQueue");
        let asked = self.form.get("query").to_owned();
        let job = move |cancel: &Cancel| {
            drop(queue);
            let mut work = span.begin("promqlEval");
            if !asked.is_empty() {
                work.set("query", || asked);
            }
            let outcome = job(cancel, work.parent());
            if let Err(failure) = &outcome {
                work.fail(&failure.message);
            }
            outcome
        };
        self.app.compute(question, deadline, job).await
    }

    fn question<'a>(&self, texts: impl Iterator<Item = &'a str>, range: Option<Range>) -> Question {
        let (tenant, client) = (self.tenant.clone(), self.client.clone());
        Question::new(self.endpoint.label(), tenant, client, texts, range)
    }

    /// Where the request stands in a trace, if it stands in one.
    pub(crate) fn trace(&self) -> Option<TraceParent> {
        self.span.as_ref().map(SpanContext::parent)
    }

    /// Where the request comes from, for the log of queries.
    pub(crate) fn origin(&self) -> Origin {
        self.origin.clone()
    }

    /// The values of `match[]`, each once.
    pub(crate) fn different_selectors(&self) -> Result<Vec<String>, Failure> {
        let limit = self.app.limits().selectors_max;
        let mut different = Vec::new();
        for selector in self.form.all("match[]") {
            if different.iter().any(|known| known == selector) {
                continue;
            }
            if different.len() == limit {
                let count = self.form.all("match[]").count();
                return Err(Failure::bad_data(format!(
                    "too many different match[] selectors among {count}, limit {limit}"
                )));
            }
            different.push(selector.to_owned());
        }
        Ok(different)
    }

    /// How the client wants its answer compressed.
    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// A 200 with a JSON document.
    pub(crate) fn json(&self, document: impl Produce + 'static) -> Response {
        respond(document, "application/json", self.encoding)
    }
}

/// The backend as the request's credentials may see it.
fn visible(backend: Arc<Backend>, request: &Request) -> Result<Arc<Backend>, Failure> {
    let Some(grant) = request.extensions().get::<Arc<Grant>>() else {
        return Ok(backend);
    };
    if !grant.is_restricted() {
        return Ok(backend);
    }
    let part_of = |store: &Arc<dyn Select>| -> Result<Arc<dyn Select>, Failure> {
        let part = Restricted::new(store.clone(), &grant.matchers);
        Ok(Arc::new(part.map_err(Failure::execution)?))
    };
    Ok(Arc::new(Backend {
        store: part_of(&backend.store)?,
        local: part_of(&backend.local)?,
        ..Backend::clone(&backend)
    }))
}

/// The backend, whose look-ups are spans of a request that is sampled.
fn watched(backend: Arc<Backend>, span: Option<&SpanContext>) -> Arc<Backend> {
    match span {
        Some(_) => Arc::new(Backend {
            store: traced(backend.store.clone(), span),
            local: traced(backend.local.clone(), span),
            ..Backend::clone(&backend)
        }),
        None => backend,
    }
}

/// The client whose turn in the queue the request takes.
fn client(app: &App, tenant: &TenantId, request: &Request) -> Client {
    if app.parts.multitenancy {
        return Client::Tenant(tenant.clone());
    }
    Client::at(peer(request))
}

fn origin_of(request: &Request) -> Origin {
    // A router inside another one cuts off what the outer one matched.
    let whole = request.extensions().get::<OriginalUri>();
    Origin::Request {
        client: peer(request),
        method: request.method().to_string(),
        path: whole.map_or(request.uri(), |uri| &uri.0).path().to_owned(),
    }
}

/// The address of the other end of the connection.
fn peer(request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<SocketAddr>();
    peer.map(|peer| peer.ip())
}

/// Answers a request to the JSON API by `handler`.
pub(crate) async fn answer<H, F>(
    app: App,
    endpoint: Endpoint,
    request: Request,
    handler: H,
) -> Response
where
    H: FnOnce(Call) -> F,
    F: Future<Output = Result<Response, Failure>>,
{
    let origin = request.headers().get(header::ORIGIN).cloned();
    let work = async {
        let backend = match app.backend() {
            Ok(backend) => backend,
            Err(state) => return not_ready(state),
        };
        let outcome = match Call::read(&app, backend, endpoint, request).await {
            Ok(call) => handler(call).await,
            Err(failure) => Err(failure),
        };
        outcome.unwrap_or_else(Failure::into_json)
    };
    let mut response = measure(&app.parts.env.clock, &app.metrics, endpoint, work).await;
    origin::allow(&app.parts.web, origin.as_ref(), response.headers_mut());
    response
}

/// The answer while the store is not open, as upstream words it.
pub(crate) fn not_ready(state: NotReady) -> Response {
    let mut response = Response::new(Body::from("Service Unavailable"));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let stopping = match state {
        NotReady::Starting => "false",
        NotReady::Stopping => "true",
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
