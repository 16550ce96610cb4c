//! Reads request bodies with limits on size, time and total memory.
//!
//! Invariant: memory is reserved before it is allocated. Pages are touched only by received bytes,
//! never because of an announced length.

use super::failure::{ApiFailure, FailureCause};
use crate::admission::limits::ServerLimits;
use crate::metrics::EndpointMetrics;
use axum::body::{Body, Bytes};
use http_body::Body as _;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Returns the announced length of a body in bytes; 0 if there is none.
pub(crate) fn declared_bytes(body: &Body) -> usize {
    usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX)
}

/// Returns the failure for a body of more than `bytes_max`, answered with 413.
fn too_large(bytes: usize, bytes_max: usize) -> ApiFailure {
    let message =
        format!("request body too large: {bytes} bytes, limit {bytes_max} (max_request_body_size)");
    ApiFailure::new(FailureCause::BodyTooLarge, message)
}

/// Fails if the announced length of a body is more than `bytes_max`.
pub(crate) fn check_declared(body: &Body, bytes_max: usize) -> Result<(), ApiFailure> {
    let declared = declared_bytes(body);
    if declared > bytes_max {
        return Err(too_large(declared, bytes_max));
    }
    Ok(())
}

/// Reads a body of at most `bytes_max` into `bytes`, which must be empty. Calls `hold` with the
/// total number of bytes that must be reserved, before they are allocated.
pub(crate) async fn read(
    limits: &ServerLimits,
    metrics: &EndpointMetrics,
    mut body: Body,
    mut bytes: Vec<u8>,
    bytes_max: usize,
    mut hold: impl FnMut(usize) -> Result<(), ApiFailure>,
) -> Result<Vec<u8>, ApiFailure> {
    // Reject early: the client need not send a body whose announced length is too large.
    check_declared(&body, bytes_max)?;
    let declared = declared_bytes(&body);
    let start = Instant::now();
    if declared > 0 {
        // A single allocation: a body with an announced length is never copied. Its pages are
        // touched as bytes arrive.
        hold(bytes.capacity().max(declared))?;
        bytes.reserve_exact(declared);
    }
    loop {
        let deadline = start + allowed_time(limits, bytes.len());
        let frame = timeout_at(deadline, body.frame()).await;
        let frame = frame.map_err(|_| too_slow(bytes.len()))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(unreadable)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let needed = bytes.len() + data.len();
        if needed > bytes_max {
            return Err(too_large(needed, bytes_max));
        }
        if needed > bytes.capacity() {
            // At least doubles the capacity, so that each byte is copied at most twice on average.
            let capacity = needed
                .max(bytes.capacity().saturating_mul(2))
                .min(bytes_max);
            hold(capacity)?;
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    metrics.request_bytes.add(bytes.len() as u64);
    Ok(bytes)
}

/// A streamed body of any length. Only the time spent waiting for the client counts towards its
/// deadline, not the time spent processing earlier bytes.
pub(crate) struct PacedBody<'a> {
    limits: &'a ServerLimits,
    metrics: &'a EndpointMetrics,
    body: Body,
    received: usize,
    waited: Duration,
}

impl<'a> PacedBody<'a> {
    /// Creates a reader at the start of `body`, which has not waited yet.
    pub(crate) fn new(limits: &'a ServerLimits, metrics: &'a EndpointMetrics, body: Body) -> Self {
        Self {
            limits,
            metrics,
            body,
            received: 0,
            waited: Duration::ZERO,
        }
    }

    /// Returns the next bytes of the body; `None` at its end. Fails if the client is too slow.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ApiFailure> {
        loop {
            let start = Instant::now();
            let left = allowed_time(self.limits, self.received).saturating_sub(self.waited);
            let frame = timeout_at(start + left, self.body.frame()).await;
            let frame = frame.map_err(|_| too_slow(self.received))?;
            self.waited += start.elapsed();
            let Some(frame) = frame else { return Ok(None) };
            if let Ok(data) = frame.map_err(unreadable)?.into_data() {
                self.received += data.len();
                self.metrics.request_bytes.add(data.len() as u64);
                return Ok(Some(data));
            }
        }
    }
}

fn too_slow(received: usize) -> ApiFailure {
    let message = format!("request body is too slow: {received} bytes received");
    ApiFailure::new(FailureCause::BodyTooSlow, message)
}

fn unreadable(error: axum::Error) -> ApiFailure {
    ApiFailure::bad_data(format!("error reading request body: {error}"))
}

/// Returns the maximum time in which a body of this size must be received.
fn allowed_time(limits: &ServerLimits, bytes: usize) -> Duration {
    let paced = bytes as f64 / limits.body_bytes_per_second_min as f64;
    limits.body_grace + Duration::from_secs_f64(paced)
}
