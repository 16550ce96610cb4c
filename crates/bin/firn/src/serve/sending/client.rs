//! HTTP client of one `remote_write` receiver. Each attempt is a trace with Prometheus's span
//! names, whose context is sent to the receiver in a header.

use firn_model::trace::{SpanKind, TraceSpan, Tracer};
use firn_remote_write::forward::ForwardClient;
use firn_remote_write::queue::{Delivering, DeliveryTransport, PostAttempt, TargetResponse};
use std::sync::Arc;

/// Header with the number of previous attempts of a request, as upstream.
const RETRY_ATTEMPT: &str = "retry-attempt";

/// Posts requests of the queue to one receiver, each attempt in a span of its own. Created for each
/// receiver when a configuration is applied.
pub struct RemoteWriteClient {
    /// HTTP client that posts the requests to the receiver.
    pub forward: ForwardClient,
    /// Tracer that starts one trace per attempt.
    pub tracer: Arc<Tracer>,
    /// Name of the receiver in metrics and in span attributes.
    pub name: String,
    /// URL of the receiver, for span attributes.
    pub url: String,
}

impl RemoteWriteClient {
    fn start_attempt_span(&self, posting: &PostAttempt) -> TraceSpan {
        let name = || match posting.metrics {
            0 => "Remote Send Batch".to_owned(),
            _ => "Remote Metadata Send Batch".to_owned(),
        };
        let mut span = self.tracer.start_trace(name, SpanKind::Internal, None);
        span.set_attribute("request_size", || posting.body.len());
        span.set_attribute("try", || i64::from(posting.attempt));
        span.set_attribute("remote_name", || self.name.as_str());
        span.set_attribute("remote_url", || self.url.as_str());
        let contents = posting.contents;
        for (name, count) in [
            ("metadata", posting.metrics),
            ("samples", contents.samples),
            ("exemplars", contents.exemplars),
            ("histograms", contents.histograms),
        ] {
            if count > 0 {
                span.set_attribute(name, || i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        span
    }
}

impl DeliveryTransport for RemoteWriteClient {
    fn post(&self, posting: PostAttempt) -> Delivering<'_> {
        let mut batch = self.start_attempt_span(&posting);
        let mut headers = posting.headers;
        if posting.attempt > 0 {
            headers.push((RETRY_ATTEMPT, posting.attempt.to_string().into()));
        }
        Box::pin(async move {
            let mut store = batch.begin_client_child("Remote Store");
            if let Some(at) = store.parent() {
                headers.push(("traceparent", at.header().into()));
            }
            let answer = match self.forward.post_body(headers, posting.body).await {
                Ok(answer) => answer,
                Err(e) => {
                    batch.set_error(&e.message);
                    return Err(e.message);
                }
            };
            store.set_attribute("http.response.status_code", || i64::from(answer.status));
            if answer.status / 100 != 2 {
                let why = format!("status {}: {}", answer.status, answer.text.trim());
                store.set_error(&why);
                batch.set_error(why);
            }
            Ok(TargetResponse {
                status: answer.status,
                retry_after: answer.retry_after,
                location: answer.location,
                written: answer.written,
                text: answer.text,
            })
        })
    }
}
