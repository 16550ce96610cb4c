//! One request to the JSON API, with everything that its handler needs; and the way from a
//! handler's result to a response.

use crate::app::{App, NotReady};
use crate::body;
use crate::failure::Failure;
use crate::form::Form;
use crate::measured::measure;
use crate::metrics::Endpoint;
use crate::origin;
use crate::parts::Backend;
use crate::produce::{Encoding, Produce, respond};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_model::tenant::TenantId;
use std::sync::Arc;

/// A request that may be worked on.
pub(crate) struct Call {
    pub(crate) app: App,
    pub(crate) backend: Arc<Backend>,
    pub(crate) tenant: TenantId,
    pub(crate) form: Form,
    /// The path as it was sent.
    pub(crate) path: String,
    encoding: Encoding,
}

impl Call {
    async fn read(
        app: &App,
        backend: Arc<Backend>,
        endpoint: Endpoint,
        request: Request,
    ) -> Result<Self, Failure> {
        Ok(Self {
            backend,
            tenant: app.tenant(request.headers())?,
            encoding: Encoding::of_request(request.headers()),
            path: request.uri().path().to_owned(),
            form: body::read_form(app, endpoint, request).await?,
            app: app.clone(),
        })
    }

    /// A 200 with a JSON document.
    pub(crate) fn json(&self, document: impl Produce + 'static) -> Response {
        respond(document, "application/json", self.encoding)
    }
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
    let mut response = measure(&app, endpoint, work).await;
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
