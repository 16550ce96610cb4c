//! `/api/v1/import/prometheus`: imports text of any age and length, in Prometheus's text format or
//! OpenMetrics.
//!
//! ```text
//! headers, parameters -> admitted -> bytes -> decompressed piece -> stored, durable -.
//!                                    ^-----------------------------------------------'-> 204
//! ```
//!
//! Invariant: 204 means that all samples are durable. An error contains its line number and the
//! line up to which everything is durable. The body is read as fast as it is stored and is never
//! completely in memory.

use super::call::not_ready;
use super::form::RequestForm;
use super::origin;
use super::write::body_failure;
use crate::app::ServerApp;
use crate::http::body::{PacedBody, declared_bytes};
use crate::http::failure::{ApiFailure, FailureCause};
use crate::metrics::ServerEndpoint;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::Response;
use firn_ingest::Pipeline;
use firn_ingest::import::{ImportSettings, ImportStep, TextImport};
use firn_model::error::{Error, ErrorKind};
use firn_model::quote::quote;
use firn_wire::exposition::ExpositionFormat;
use firn_wire::unpack::ContentEncoding;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time for which a piece is retried that cannot be stored at the moment. Late samples are flushed
/// within a second or two, and a full disk is reported before the client times out.
const TRY_MAX: Duration = Duration::from_secs(20);

/// Pause between two attempts to store a piece.
const PAUSE: Duration = Duration::from_millis(100);

/// Imports the body of a request. Answers 204 when everything is durable, else an error in the JSON
/// format of the API.
pub(crate) async fn prometheus(app: ServerApp, request: Request) -> Response {
    let pipeline = match app.backend() {
        Ok(backend) => backend.pipeline.clone(),
        Err(state) => return not_ready(state),
    };
    match store(&app, pipeline, request).await {
        Ok(()) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Err(failure) => failure.into_json(),
    }
}

async fn store(
    app: &ServerApp,
    pipeline: Arc<Pipeline>,
    request: Request,
) -> Result<(), ApiFailure> {
    let (head, body) = request.into_parts();
    origin::check_same(&app.parts.web, &head.headers)?;
    let tenant = app.tenant(&head.headers)?;
    let peer = head.extensions.get::<SocketAddr>();
    let address = peer.map(|peer| peer.ip().to_canonical());
    let settings = settings(app, &head)?;
    let declared = declared_bytes(&body);
    let room = pipeline.limits().import;
    let room = room.reservation_bytes(settings.packing, declared);
    // The body is not read while there is no memory for it.
    let admitted = pipeline.admit_body(room).await;
    let _admission = admitted.map_err(body_failure)?;
    let import = TextImport::begin_import(pipeline, tenant, address, settings);
    let body = PacedBody::new(
        app.limits(),
        app.metrics.endpoint(ServerEndpoint::Import),
        body,
    );
    let (import, end) = run(app, import, body).await?;
    let (end, cause) = match end {
        Ok(()) => (Ok(()), None),
        Err(ImportInterruption::Import(error)) => (Err(error), None),
        // The status of the body reader is kept, with the message of the import.
        Err(ImportInterruption::Body(failure)) => {
            let error = Error::new(ErrorKind::Invalid, failure.message);
            (Err(import.append_stored_counts(error)), Some(failure.cause))
        }
    };
    let outcome = import.finish(end).map_err(|error| {
        let cause = cause.unwrap_or(FailureCause::Request(error.kind));
        ApiFailure::new(cause, error.message)
    })?;
    match outcome.error_text() {
        None => Ok(()),
        Some(complaint) => Err(ApiFailure::bad_data(complaint)),
    }
}

/// Cause for the early end of an import: an error of the text or the store, or of reading the body.
enum ImportInterruption {
    Import(Error),
    Body(ApiFailure),
}

/// Feeds the body to the import and its pieces to the store. Returns the import with the cause of
/// its end.
async fn run(
    app: &ServerApp,
    mut import: TextImport,
    mut body: PacedBody<'_>,
) -> Result<(TextImport, Result<(), ImportInterruption>), ApiFailure> {
    loop {
        let (back, step) = work(app, import, TextImport::advance_piece).await?;
        import = back;
        let ticket = match step {
            Ok(ImportStep::Sent(ticket)) => ticket,
            Ok(ImportStep::Done) => return Ok((import, Ok(()))),
            Ok(ImportStep::NeedsInput) => match fill(&mut import, &mut body).await {
                Ok(()) => continue,
                Err(failure) => return Ok((import, Err(ImportInterruption::Body(failure)))),
            },
            Err(error) => return Ok((import, Err(ImportInterruption::Import(error)))),
        };
        let (begun, mut ticket) = (Instant::now(), ticket);
        loop {
            match ticket.await {
                Ok(appended) => {
                    import.record_stored_piece(appended);
                    break;
                }
                Err(e) if e.kind == ErrorKind::Unavailable && begun.elapsed() < TRY_MAX => {
                    sleep(PAUSE).await;
                    (import, ticket) = work(app, import, TextImport::send_piece).await?;
                }
                Err(error) => {
                    let error = import.append_stored_counts(error);
                    return Ok((import, Err(ImportInterruption::Import(error))));
                }
            }
        }
    }
}

/// Reads bytes of the body until the import has enough for a piece or the body ends.
async fn fill(import: &mut TextImport, body: &mut PacedBody<'_>) -> Result<(), ApiFailure> {
    loop {
        match body.next().await? {
            None => {
                import.end_input();
                return Ok(());
            }
            Some(bytes) => import.push_input(&bytes),
        }
        if import.has_enough_input() {
            return Ok(());
        }
    }
}

/// Runs `job` on a blocking thread within the limit of concurrent writes; see `write::decode`.
async fn work<T: Send + 'static>(
    app: &ServerApp,
    mut import: TextImport,
    job: fn(&mut TextImport) -> T,
) -> Result<(TextImport, T), ApiFailure> {
    let slot = app.write_slots.clone().acquire_owned().await;
    let slot = slot.map_err(|_| ApiFailure::internal("the write queue is closed"))?;
    let working = tokio::task::spawn_blocking(move || {
        let done = job(&mut import);
        drop(slot);
        (import, done)
    });
    working.await.map_err(|e| {
        tracing::error!(error = %e, "failed to import text");
        app.metrics.panics.inc();
        ApiFailure::internal("the import failed: see the log")
    })
}

/// Parses the import settings from headers and parameters: compression, format, default time and
/// additional labels.
fn settings(app: &ServerApp, head: &Parts) -> Result<ImportSettings, ApiFailure> {
    let text_of = |name: HeaderName| {
        let value = head.headers.get(name);
        value.and_then(|v| v.to_str().ok()).unwrap_or_default()
    };
    let encoding = text_of(header::CONTENT_ENCODING);
    let packing = ContentEncoding::from_header(encoding).ok_or_else(|| {
        let message = format!("content encoding {encoding:?} is not supported: use gzip or zstd");
        ApiFailure::new(FailureCause::MediaType, message)
    })?;
    let content_type = text_of(header::CONTENT_TYPE);
    let chosen =
        ExpositionFormat::from_content_type(content_type, None).map(|chosen| chosen.format);
    let (format, is_format_stated) = match chosen {
        Ok(ExpositionFormat::Protobuf) => {
            let message = format!("content type {content_type:?} is not supported: use text");
            return Err(ApiFailure::new(FailureCause::MediaType, message));
        }
        Ok(format) => (format, true),
        // Command-line clients send the content type of a form, or none.
        Err(_) => (ExpositionFormat::Text, false),
    };
    let form = RequestForm::parse("", head.uri.query().unwrap_or_default())?;
    if let Some(error) = form.first_error() {
        return Err(ApiFailure::bad_data(format!(
            "error parsing form values: {error}"
        )));
    }
    let default_time = match form.get("timestamp") {
        "" => app.parts.env.clock.now_ms(),
        text => text.parse().map_err(|_| {
            let text = quote(text.as_bytes());
            ApiFailure::parameter("timestamp", format!("cannot parse {text} as milliseconds"))
        })?,
    };
    let extra_labels = form.all("extra_label").map(|text| {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) = pair.ok_or_else(|| {
            let text = quote(text.as_bytes());
            ApiFailure::parameter("extra_label", format!("expected name=value, got {text}"))
        })?;
        Ok((name.to_owned(), value.to_owned()))
    });
    Ok(ImportSettings {
        format,
        is_format_stated,
        packing,
        default_time,
        extra_labels: extra_labels.collect::<Result<_, ApiFailure>>()?,
    })
}
