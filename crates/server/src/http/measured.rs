//! Counting requests: from the end of the headers to the last byte of the answer.

use crate::metrics::{Endpoint, InFlightGuard, ServerMetrics};
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use firn_model::env::Clock;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Waits for the answer that `work` makes and counts it under `endpoint`.
pub(crate) async fn measure(
    clock: &Arc<dyn Clock>,
    metrics: &Arc<ServerMetrics>,
    endpoint: Endpoint,
    work: impl Future<Output = Response>,
) -> Response {
    let timer = Timer {
        start: clock.monotonic(),
        endpoint,
        clock: clock.clone(),
        metrics: metrics.clone(),
        _in_flight: metrics.requests.enter(),
    };
    let response = work.await;
    let status = response.status().as_u16();
    metrics.endpoint(endpoint).count_response(status);
    response.map(|inner| Body::new(MeasuredBody { inner, timer }))
}

/// Observes the duration when it is dropped: after the answer, or when the client went away.
struct Timer {
    start: Duration,
    endpoint: Endpoint,
    clock: Arc<dyn Clock>,
    metrics: Arc<ServerMetrics>,
    _in_flight: InFlightGuard,
}

impl Drop for Timer {
    fn drop(&mut self) {
        let elapsed = self.clock.monotonic().saturating_sub(self.start);
        let metrics = self.metrics.endpoint(self.endpoint);
        metrics.duration.observe(elapsed);
    }
}

struct MeasuredBody {
    inner: Body,
    timer: Timer,
}

impl HttpBody for MeasuredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let metrics = this.timer.metrics.endpoint(this.timer.endpoint);
            metrics.response_bytes.add(data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
