//! `/api/v1/otlp/v1/metrics`: receives OpenTelemetry metrics.
//!
//! ```text
//! headers -> admitted -> body -> prepared -> decode and append -> durable -> 200
//! ```
//!
//! Status codes:
//!
//! - 200: everything is durable except the points listed in the response.
//! - 202: nothing is stored, because another replica has sent the same points.
//! - 429: nothing is stored, because the rate of the tenant is exceeded; the sender may retry.
//! - other 4xx: nothing is stored, and a retry cannot succeed.
//! - 5xx: nothing is guaranteed, and the sender should retry.
//!
//! Responses have the encoding of the request, as the protocol requires, or plain text if that is
//! unknown.

use super::origin;
use super::write::{COMMIT, READ};
use crate::app::ServerApp;
use crate::http::body;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::metrics::ServerEndpoint;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_ingest::{OtlpOrigin, PendingWrite, Pipeline, WriteAdmission, WriteOutcome};
use firn_model::error::{Error, ErrorKind};
use firn_model::tenant::TenantId;
use firn_model::trace::SpanContext;
use firn_wire::otlp::{OtlpEncoding, OtlpResponse};
use firn_wire::unpack::ContentEncoding;
use std::net::SocketAddr;
use std::sync::Arc;

/// Status codes of `google.rpc.Code`.
const INVALID_ARGUMENT: u32 = 3;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// Stores the points of a request and answers in its encoding. Rejected points are counted in a
/// partial success.
pub(crate) async fn metrics(app: ServerApp, request: Request) -> Response {
    let (format, packing) = match body_format(request.headers()) {
        Ok(form) => form,
        Err(failure) => return failure.into_plain(),
    };
    let backend = match app.backend() {
        Err(state) => return super::call::not_ready(state),
        Ok(backend) => backend,
    };
    match store(&app, backend.pipeline.clone(), request, format, packing).await {
        Ok(outcome) => {
            let told = outcome.error_text();
            let answer = match &told {
                None => OtlpResponse::Stored,
                Some(message) => OtlpResponse::Partial {
                    rejected: outcome.dropped_count(),
                    message,
                },
            };
            let mut response = Response::default();
            if outcome.is_deduplicated() {
                *response.status_mut() = StatusCode::ACCEPTED;
            }
            with_body(response, answer, format)
        }
        Err(failure) => failure_response(failure, format),
    }
}

/// Returns the response to a failure in the encoding of the request, with a code of gRPC.
fn failure_response(failure: ApiFailure, format: OtlpEncoding) -> Response {
    let message = failure.message.clone();
    let response = failure.into_plain();
    let code = match response.status().as_u16() {
        503 | 429 => UNAVAILABLE,
        500.. => INTERNAL,
        _ => INVALID_ARGUMENT,
    };
    let answer = OtlpResponse::Failed {
        code,
        message: &message,
    };
    with_body(response, answer, format)
}

fn with_body(response: Response, answer: OtlpResponse<'_>, format: OtlpEncoding) -> Response {
    let (mut head, _) = response.into_parts();
    let media_type = HeaderValue::from_static(format.media_type());
    head.headers.insert(header::CONTENT_TYPE, media_type);
    Response::from_parts(head, Body::from(answer.encode(format)))
}

/// Stores the points of a request. Returns an error if none was stored.
async fn store(
    app: &ServerApp,
    pipeline: Arc<Pipeline>,
    request: Request,
    format: OtlpEncoding,
    packing: ContentEncoding,
) -> Result<WriteOutcome, ApiFailure> {
    let (head, body) = request.into_parts();
    origin::check_same(&app.parts.web, &head.headers)?;
    let tenant = app.tenant(&head.headers)?;
    let peer = head.extensions.get::<SocketAddr>();
    let from = OtlpOrigin {
        address: peer.map(|peer| peer.ip().to_canonical()),
        format,
        packing,
    };
    let bytes_max = pipeline.body_bytes_max(&tenant);
    body::check_declared(&body, bytes_max)?;
    let span = head.extensions.get::<SpanContext>().cloned();
    let reading = SpanContext::begin_child_of(span.as_ref(), READ);
    // The body is not read while there is no memory for it.
    let admitted = pipeline.admit_body(body::declared_bytes(&body)).await;
    let mut admission = admitted.map_err(super::write::body_failure)?;
    let hold = |bytes| {
        let covered = admission.extend_to_body(bytes);
        covered.map_err(super::write::body_failure)
    };
    let buffer = pipeline.take_body_buffer();
    let metrics = app.metrics.endpoint(ServerEndpoint::Otlp);
    let bytes = body::read(app.limits(), metrics, body, buffer, bytes_max, hold).await?;
    drop(reading);
    let prepared = pipeline.prepare_otlp(&mut admission, from, &bytes).await;
    prepared.map_err(ApiFailure::request)?;
    let parent = span.clone();
    let pending = decode(app, pipeline, tenant, from, parent, bytes, admission).await?;
    let commit = SpanContext::begin_child_of(span.as_ref(), COMMIT);
    let outcome = pending.await;
    drop(commit);
    let outcome = outcome.map_err(store_failure)?;
    if outcome.is_refused() {
        Err(ApiFailure::bad_data(
            outcome.error_text().unwrap_or_default(),
        ))
    } else {
        Ok(outcome)
    }
}

/// Decodes and appends the points: on the async thread if that is quick, else on a blocking thread,
/// as for remote write.
async fn decode(
    app: &ServerApp,
    pipeline: Arc<Pipeline>,
    tenant: TenantId,
    from: OtlpOrigin,
    span: Option<SpanContext>,
    bytes: Vec<u8>,
    admission: WriteAdmission,
) -> Result<PendingWrite, ApiFailure> {
    if pipeline.is_otlp_quick(from, &bytes) {
        let pending = pipeline.write_otlp(&tenant, from, &bytes, admission, span.as_ref());
        pipeline.return_body_buffer(bytes);
        return pending.map_err(ApiFailure::request);
    }
    let slot = app.write_slots.clone().acquire_owned().await;
    let slot = slot.map_err(|_| ApiFailure::internal("the write queue is closed"))?;
    let watch_memory = app.parts.watch_memory.clone();
    let decoding = tokio::task::spawn_blocking(move || {
        let pending = pipeline.write_otlp(&tenant, from, &bytes, admission, span.as_ref());
        pipeline.return_body_buffer(bytes);
        // Returns freed memory to the system before other requests allocate as much again.
        watch_memory();
        drop(slot);
        pending
    });
    match decoding.await {
        Ok(pending) => pending.map_err(ApiFailure::request),
        Err(e) => {
            tracing::error!(error = %e, "failed to decode OTLP");
            app.metrics.panics.inc();
            Err(ApiFailure::internal("the write failed: see the log"))
        }
    }
}

/// Converts an error of the store. Errors caused by the sender are errors of the request.
fn store_failure(error: Error) -> ApiFailure {
    match error.kind {
        ErrorKind::Invalid | ErrorKind::Limited => ApiFailure::request(error),
        _ => ApiFailure::execution(error),
    }
}

/// Returns the encoding and compression of the body. Rejects unsupported ones with upstream's
/// message.
fn body_format(headers: &HeaderMap) -> Result<(OtlpEncoding, ContentEncoding), ApiFailure> {
    let unsupported = |message: String| Err(ApiFailure::new(FailureCause::MediaType, message));
    let content_type = text_of(headers, header::CONTENT_TYPE);
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let known = [OtlpEncoding::Json, OtlpEncoding::Protobuf];
    let format = known
        .into_iter()
        .find(|format| media_type.eq_ignore_ascii_case(format.media_type()));
    let Some(format) = format else {
        let [json, protobuf] = known.map(OtlpEncoding::media_type);
        return unsupported(format!(
            "unsupported content type: {content_type}, supported: [{json}, {protobuf}]"
        ));
    };
    let encoding = text_of(headers, header::CONTENT_ENCODING);
    match ContentEncoding::from_header(encoding) {
        Some(packing @ (ContentEncoding::None | ContentEncoding::Gzip)) => Ok((format, packing)),
        _ => unsupported(format!(
            "unsupported compression: {encoding}. Only \"gzip\" or no compression supported"
        )),
    }
}

fn text_of(headers: &HeaderMap, name: HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
