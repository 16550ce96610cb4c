//! `/api/v1/write`: receives remote write 1.0 and 2.0.
//!
//! ```text
//! headers -> version -> admitted -> body -> prepared -> decode and append -> durable -> 204
//! ```
//!
//! Status codes:
//!
//! - 204: every sample is durable.
//! - 202: nothing is stored, because another replica has sent the same samples.
//! - 400: all samples are durable except those listed in the error.
//! - 429: nothing is stored, because the rate of the tenant is exceeded; the sender may retry.
//! - 5xx: nothing is guaranteed, and the sender should retry.
//!
//! Every response to a 2.0 request contains the number of written samples, as the protocol
//! requires. Responses to 1.0 requests do not, as in upstream.

use super::call::not_ready;
use super::origin;
use crate::app::ServerApp;
use crate::http::body;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::metrics::ServerEndpoint;
use crate::parts::WebSettings;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_ingest::{PendingWrite, Pipeline, PushOrigin, WriteAdmission, WrittenCounts};
use firn_model::error::{Error, ErrorKind};
use firn_model::tenant::TenantId;
use firn_model::trace::SpanContext;
use firn_wire::remote_write::RemoteWriteVersion;
use std::net::SocketAddr;
use std::sync::Arc;

const MEDIA_TYPE: &str = "application/x-protobuf";

const SAMPLES_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

/// Name of the span that covers reading the body, including the wait for memory.
pub(super) const READ: &str = "writeRead";

/// Name of the span that covers waiting for the log.
pub(super) const COMMIT: &str = "writeCommit";

/// Stores the samples of a request and answers 204 when they are durable. A 2.0 request also
/// receives the number of written samples.
pub(crate) async fn remote_write(app: ServerApp, request: Request) -> Response {
    let version = request_version(request.headers());
    let version = match version.and_then(|version| accepted(&app.parts.web, version)) {
        Ok(version) => version,
        Err(failure) => return failure.into_plain(),
    };
    let mut written = WrittenCounts::default();
    let mut response = match app.backend() {
        Err(state) => not_ready(state),
        Ok(backend) => {
            let pipeline = backend.pipeline.clone();
            match store(&app, pipeline, request, version, &mut written).await {
                Ok(status) => {
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = status;
                    response
                }
                Err(failure) => failure.into_plain(),
            }
        }
    };
    if version == RemoteWriteVersion::V2 {
        let headers = response.headers_mut();
        headers.insert(SAMPLES_WRITTEN, HeaderValue::from(written.samples));
        headers.insert(HISTOGRAMS_WRITTEN, HeaderValue::from(written.histograms));
        headers.insert(EXEMPLARS_WRITTEN, HeaderValue::from(written.exemplars));
    }
    response
}

/// Stores the samples of a request and sets `written` to the number of stored ones. Returns the
/// status for success.
async fn store(
    app: &ServerApp,
    pipeline: Arc<Pipeline>,
    request: Request,
    version: RemoteWriteVersion,
    written: &mut WrittenCounts,
) -> Result<StatusCode, ApiFailure> {
    let (head, body) = request.into_parts();
    origin::check_same(&app.parts.web, &head.headers)?;
    let tenant = app.tenant(&head.headers)?;
    let peer = head.extensions.get::<SocketAddr>();
    let from = PushOrigin {
        address: peer.map(|peer| peer.ip().to_canonical()),
        version,
    };
    let bytes_max = pipeline.body_bytes_max(&tenant);
    body::check_declared(&body, bytes_max)?;
    let span = head.extensions.get::<SpanContext>().cloned();
    let reading = SpanContext::begin_child_of(span.as_ref(), READ);
    // The body is not read while there is no memory for it.
    let admitted = pipeline.admit_body(body::declared_bytes(&body)).await;
    let mut admission = admitted.map_err(body_failure)?;
    let hold = |bytes| admission.extend_to_body(bytes).map_err(body_failure);
    let buffer = pipeline.take_body_buffer();
    let metrics = app.metrics.endpoint(ServerEndpoint::Write);
    let bytes = body::read(app.limits(), metrics, body, buffer, bytes_max, hold).await?;
    drop(reading);
    let prepared = pipeline.prepare_body(&mut admission, &bytes).await;
    prepared.map_err(ApiFailure::request)?;
    let parent = span.clone();
    let pending = decode(app, pipeline, tenant, from, parent, bytes, admission).await?;
    let commit = SpanContext::begin_child_of(span.as_ref(), COMMIT);
    let outcome = pending.await;
    drop(commit);
    let outcome = outcome.map_err(ApiFailure::execution)?;
    *written = outcome.written;
    match outcome.error_text() {
        None if outcome.is_deduplicated() => Ok(StatusCode::ACCEPTED),
        None => Ok(StatusCode::NO_CONTENT),
        Some(complaint) => Err(ApiFailure::bad_data(complaint)),
    }
}

/// Decodes and appends the samples: on the async thread if that is quick, else on a blocking
/// thread. On compute threads, writes would wait for queries. The number of concurrent blocking
/// writes is limited, so that they wait in order and do not compete for the scheduler. The request
/// keeps its memory reserved until it is processed, even if the client disconnects.
async fn decode(
    app: &ServerApp,
    pipeline: Arc<Pipeline>,
    tenant: TenantId,
    from: PushOrigin,
    span: Option<SpanContext>,
    bytes: Vec<u8>,
    admission: WriteAdmission,
) -> Result<PendingWrite, ApiFailure> {
    if pipeline.is_quick(from.version, &bytes) {
        let pending = pipeline.write_remote(&tenant, from, &bytes, admission, span.as_ref());
        pipeline.return_body_buffer(bytes);
        return pending.map_err(ApiFailure::request);
    }
    let slot = app.write_slots.clone().acquire_owned().await;
    let slot = slot.map_err(|_| ApiFailure::internal("the write queue is closed"))?;
    let watch_memory = app.parts.watch_memory.clone();
    let decoding = tokio::task::spawn_blocking(move || {
        let pending = pipeline.write_remote(&tenant, from, &bytes, admission, span.as_ref());
        pipeline.return_body_buffer(bytes);
        // Returns freed memory to the system before other requests allocate as much again.
        watch_memory();
        drop(slot);
        pending
    });
    match decoding.await {
        Ok(pending) => pending.map_err(ApiFailure::request),
        Err(e) => {
            tracing::error!(error = %e, "failed to decode remote write");
            app.metrics.panics.inc();
            Err(ApiFailure::internal("the write failed: see the log"))
        }
    }
}

/// Converts an error of admitting a body: it is too long, or there is no memory for it.
pub(super) fn body_failure(error: Error) -> ApiFailure {
    match error.kind {
        ErrorKind::Limited => ApiFailure::new(FailureCause::BodyTooLarge, error.message),
        _ => ApiFailure::request(error),
    }
}

/// Returns the version if the server is configured to accept its message. Otherwise returns
/// upstream's error.
fn accepted(
    web: &WebSettings,
    version: RemoteWriteVersion,
) -> Result<RemoteWriteVersion, ApiFailure> {
    let accepted = &web.write_versions;
    if accepted.contains(&version) {
        return Ok(version);
    }
    let message = format!(
        "{} protobuf message is not accepted by this server; only accepts {}",
        version.message_name(),
        RemoteWriteVersion::join_message_names(accepted)
    );
    Err(ApiFailure::new(FailureCause::MediaType, message))
}

/// Returns the protocol version according to the headers. Rejects unsupported ones with upstream's
/// messages. Header values are parsed as RFC 9110 specifies: case-insensitively, with optional
/// spaces and quotes.
fn request_version(headers: &HeaderMap) -> Result<RemoteWriteVersion, ApiFailure> {
    let unsupported = |message: String| Err(ApiFailure::new(FailureCause::MediaType, message));
    let encoding = text_of(headers, header::CONTENT_ENCODING);
    if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("snappy") {
        return unsupported(format!(
            "{encoding} encoding (compression) is not accepted by this server; \
             only snappy is acceptable"
        ));
    }
    let content_type = text_of(headers, header::CONTENT_TYPE).trim();
    let mut parts = content_type.split(';');
    let media_type = parts.next().unwrap_or_default().trim();
    if !content_type.is_empty() && !media_type.eq_ignore_ascii_case(MEDIA_TYPE) {
        return unsupported(format!(
            "expected {MEDIA_TYPE} as the first (media) part, got {content_type} content-type"
        ));
    }
    for part in parts {
        let Some((name, value)) = part.trim().split_once('=') else {
            return unsupported(format!(
                "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters to \
                 be key-values, got {part} in {content_type} content-type"
            ));
        };
        if name.eq_ignore_ascii_case("proto") {
            let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
            let message = quoted.unwrap_or(value);
            return RemoteWriteVersion::from_message_name(message).map_or_else(
                || {
                    unsupported(format!(
                        "got {content_type} content type; unknown type for remote write protobuf \
                         message {message}, supported: {}",
                        RemoteWriteVersion::join_message_names(&RemoteWriteVersion::ALL)
                    ))
                },
                Ok,
            );
        }
    }
    Ok(RemoteWriteVersion::V1)
}

fn text_of(headers: &HeaderMap, name: HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
