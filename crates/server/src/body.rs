//! Reading request bodies: bounded in size, in time and in memory of all of them together.
//!
//! Invariant: memory is reserved before it is taken. Pages are touched by the bytes that come, not
//! by a length that was announced.

use crate::app::App;
use crate::failure::{Cause, Failure};
use crate::form::Form;
use crate::metrics::Endpoint;
use crate::request_head::LongLine;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, header};
use firn_model::error::{Error, ErrorKind};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The bytes that a body says it has, 0 if it does not say.
pub(crate) fn declared_bytes(body: &Body) -> usize {
    usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX)
}

/// The answer to a body of more than `bytes_max`.
fn too_large(bytes: usize, bytes_max: usize) -> Failure {
    let message = format!("request body too large: {bytes} bytes, limit {bytes_max}");
    Failure::new(Cause::BodyTooLarge, message)
}

/// Reads a body of at most `bytes_max` into `bytes`, which is empty. `hold` makes sure that memory
/// is reserved, for so many bytes in all.
pub(crate) async fn read(
    app: &App,
    endpoint: Endpoint,
    (mut body, mut bytes): (Body, Vec<u8>),
    bytes_max: usize,
    mut hold: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Vec<u8>, Failure> {
    let declared = declared_bytes(&body);
    // Whoever announces too much need not send it first.
    if declared > bytes_max {
        return Err(too_large(declared, bytes_max));
    }
    let start = Instant::now();
    if declared > 0 {
        // Once: a body that tells its length is not copied. Pages come with the bytes.
        hold(bytes.capacity().max(declared))?;
        bytes.reserve_exact(declared);
    }
    loop {
        let deadline = start + allowed_time(app, bytes.len());
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| {
            let message = format!("request body is too slow: {} bytes received", bytes.len());
            Failure::new(Cause::BodyTooSlow, message)
        })?;
        let Some(frame) = frame else { break };
        let frame =
            frame.map_err(|e| Failure::bad_data(format!("error reading request body: {e}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let needed = bytes.len() + data.len();
        if needed > bytes_max {
            return Err(too_large(needed, bytes_max));
        }
        if needed > bytes.capacity() {
            // At least doubled, so that a body is copied twice at most.
            let capacity = needed
                .max(bytes.capacity().saturating_mul(2))
                .min(bytes_max);
            hold(capacity)?;
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    app.metrics
        .endpoint(endpoint)
        .request_bytes
        .add(bytes.len() as u64);
    Ok(bytes)
}

/// A body of so many bytes may have taken this long.
fn allowed_time(app: &App, bytes: usize) -> Duration {
    let limits = app.limits();
    let paced = bytes as f64 / limits.body_bytes_per_second_min as f64;
    limits.body_grace + Duration::from_secs_f64(paced)
}

/// Too many bodies at once is nothing that the sender did wrong: it should try again.
fn overloaded(error: Error) -> Failure {
    Failure::new(Cause::Request(ErrorKind::Unavailable), error.message)
}

/// The parameters of a request.
pub(crate) async fn read_form(
    app: &App,
    endpoint: Endpoint,
    request: Request,
) -> Result<Form, Failure> {
    let (mut head, body) = request.into_parts();
    let long = head.extensions.remove::<Arc<LongLine>>();
    let url_query = match (head.uri.query(), &long) {
        (Some(query), Some(line)) => {
            Cow::Owned(format!("{query}{}", String::from_utf8_lossy(&line.text)))
        }
        (query, _) => Cow::Borrowed(query.unwrap_or_default()),
    };
    if head.method != Method::POST || !is_form(&head.headers) {
        let form = Form::parse("", &url_query)?;
        return Ok(match long.and_then(Arc::into_inner) {
            Some(line) => form.holding(line.held),
            None => form,
        });
    }
    let mut held = app.form_budget().hold();
    let hold = |bytes: usize| {
        let more = bytes.saturating_sub(held.bytes());
        held.grow(more).map_err(overloaded)
    };
    let bytes_max = app.limits().form_body_bytes_max;
    let bytes = read(app, endpoint, (body, Vec::new()), bytes_max, hold).await?;
    let text = String::from_utf8_lossy(&bytes);
    // What is decoded takes no more than the text.
    held.grow(text.len()).map_err(overloaded)?;
    Ok(Form::parse(&text, &url_query)?.holding(held))
}

fn is_form(headers: &axum::http::HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}
