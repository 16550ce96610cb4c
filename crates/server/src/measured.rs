//! Counting requests: from the end of the headers to the last byte of the answer.

use crate::app::App;
use crate::metrics::{Endpoint, InFlightGuard};
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Waits for the answer that `work` makes and counts it under `endpoint`.
pub(crate) async fn measure(
    app: &App,
    endpoint: Endpoint,
    work: impl Future<Output = Response>,
) -> Response {
    let timer = Timer {
        start: app.parts.env.clock.monotonic(),
        endpoint,
        app: app.clone(),
        _in_flight: app.metrics.requests.enter(),
    };
    let response = work.await;
    let status = response.status().as_u16();
    app.metrics.endpoint(endpoint).count_response(status);
    response.map(|inner| Body::new(MeasuredBody { inner, timer }))
}

/// Observes the duration when it is dropped: after the answer, or when the client went away.
struct Timer {
    start: Duration,
    endpoint: Endpoint,
    app: App,
    _in_flight: InFlightGuard,
}

impl Drop for Timer {
    fn drop(&mut self) {
        let elapsed = self
            .app
            .parts
            .env
            .clock
            .monotonic()
            .saturating_sub(self.start);
        self.app
            .metrics
            .endpoint(self.endpoint)
            .duration
            .observe(elapsed);
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
            let metrics = this.timer.app.metrics.endpoint(this.timer.endpoint);
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
