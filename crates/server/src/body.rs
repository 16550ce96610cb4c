//! Reading request bodies: bounded in size, in time and in memory of all of them together.
//!
//! Invariant: memory grows with the bytes that came, never with a length that was announced, and is
//! reserved before it grows.

use crate::app::App;
use crate::failure::{Cause, Failure};
use crate::form::Form;
use crate::metrics::Endpoint;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, header};
use firn_model::error::{Error, ErrorKind};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Reads a body of at most `bytes_max` into `bytes`, which is empty. `hold` reserves memory, so
/// many bytes more at each call.
pub(crate) async fn read(
    app: &App,
    endpoint: Endpoint,
    (mut body, mut bytes): (Body, Vec<u8>),
    bytes_max: usize,
    mut hold: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Vec<u8>, Failure> {
    let too_large = || {
        let message = format!("request body exceeds the {bytes_max} bytes limit");
        Failure::new(Cause::BodyTooLarge, message)
    };
    // Whoever announces too much need not send it first.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let start = Instant::now();
    hold(bytes.capacity())?;
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
            return Err(too_large());
        }
        if needed > bytes.capacity() {
            // At least doubled, so that a body is copied twice at most.
            let capacity = needed
                .max(bytes.capacity().saturating_mul(2))
                .min(bytes_max);
            hold(capacity - bytes.capacity())?;
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
    let (head, body) = request.into_parts();
    let url_query = head.uri.query().unwrap_or_default();
    if head.method != Method::POST || !is_form(&head.headers) {
        return Form::parse("", url_query);
    }
    let mut held = app.bodies.reserve(0).map_err(overloaded)?;
    let hold = |bytes| held.grow(bytes).map_err(overloaded);
    let bytes_max = app.limits().form_body_bytes_max;
    let bytes = read(app, endpoint, (body, Vec::new()), bytes_max, hold).await?;
    let text = String::from_utf8_lossy(&bytes);
    // What is decoded takes no more than the text.
    held.grow(text.len()).map_err(overloaded)?;
    Ok(Form::parse(&text, url_query)?.holding(held))
}

fn is_form(headers: &axum::http::HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}
