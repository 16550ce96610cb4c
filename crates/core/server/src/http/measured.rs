//! Measures requests from the end of the headers to the last byte of the response.

use super::watched_body::{BodyObserver, ObservedBody};
use crate::metrics::{InFlightGuard, ServerEndpoint, ServerMetrics};
use axum::body::Body;
use axum::response::Response;
use firn_model::env::Clock;
use std::sync::Arc;
use std::time::Duration;

/// Waits for the response of `work` and counts it in the metrics of `endpoint`. The duration
/// includes sending the response.
pub(crate) async fn measure(
    clock: &Arc<dyn Clock>,
    metrics: &Arc<ServerMetrics>,
    endpoint: ServerEndpoint,
    work: impl Future<Output = Response>,
) -> Response {
    let timer = RequestTimer {
        start: clock.monotonic(),
        endpoint,
        clock: clock.clone(),
        metrics: metrics.clone(),
        _in_flight: metrics.requests.enter(),
    };
    let response = work.await;
    let status = response.status().as_u16();
    metrics.endpoint(endpoint).count_response(status);
    response.map(|inner| {
        let watch = timer;
        Body::new(ObservedBody { inner, watch })
    })
}

/// Observes the duration of a request when it is dropped: after the response was sent or the client
/// disconnected.
struct RequestTimer {
    start: Duration,
    endpoint: ServerEndpoint,
    clock: Arc<dyn Clock>,
    metrics: Arc<ServerMetrics>,
    _in_flight: InFlightGuard,
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        let elapsed = self.clock.monotonic().saturating_sub(self.start);
        let metrics = self.metrics.endpoint(self.endpoint);
        metrics.duration.observe(elapsed);
    }
}

impl BodyObserver for RequestTimer {
    fn data(&mut self, bytes: usize) {
        let metrics = self.metrics.endpoint(self.endpoint);
        metrics.response_bytes.add(bytes as u64);
    }
}
