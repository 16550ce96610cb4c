//! Metrics of the server: requests by endpoint, connections, queries and panics.

use firn_model::metrics::{Collect, Counter, DurationHistogram, Gauge, MetricSink, MetricValue};
use std::array;
use std::sync::Arc;

/// Endpoints with separate metrics. The set is closed, so that clients cannot create series.
/// Several routes may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEndpoint {
    Query,
    QueryRange,
    Exemplars,
    Series,
    Labels,
    LabelValues,
    Write,
    Otlp,
    Import,
    Read,
    Federate,
    Status,
    Targets,
    Rules,
    FormatQuery,
    ParseQuery,
    Metrics,
    Operations,
    Page,
    Consoles,
    UserAssets,
    Other,
}

impl ServerEndpoint {
    pub(crate) const ALL: [ServerEndpoint; 22] = [
        ServerEndpoint::Query,
        ServerEndpoint::QueryRange,
        ServerEndpoint::Exemplars,
        ServerEndpoint::Series,
        ServerEndpoint::Labels,
        ServerEndpoint::LabelValues,
        ServerEndpoint::Write,
        ServerEndpoint::Otlp,
        ServerEndpoint::Import,
        ServerEndpoint::Read,
        ServerEndpoint::Federate,
        ServerEndpoint::Status,
        ServerEndpoint::Targets,
        ServerEndpoint::Rules,
        ServerEndpoint::FormatQuery,
        ServerEndpoint::ParseQuery,
        ServerEndpoint::Metrics,
        ServerEndpoint::Operations,
        ServerEndpoint::Page,
        ServerEndpoint::Consoles,
        ServerEndpoint::UserAssets,
        ServerEndpoint::Other,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            ServerEndpoint::Query => "query",
            ServerEndpoint::QueryRange => "query_range",
            ServerEndpoint::Exemplars => "query_exemplars",
            ServerEndpoint::Series => "series",
            ServerEndpoint::Labels => "labels",
            ServerEndpoint::LabelValues => "label_values",
            ServerEndpoint::Write => "write",
            ServerEndpoint::Otlp => "otlp",
            ServerEndpoint::Import => "import",
            ServerEndpoint::Read => "read",
            ServerEndpoint::Federate => "federate",
            ServerEndpoint::Status => "status",
            ServerEndpoint::Targets => "targets",
            ServerEndpoint::Rules => "rules",
            ServerEndpoint::FormatQuery => "format_query",
            ServerEndpoint::ParseQuery => "parse_query",
            ServerEndpoint::Metrics => "metrics",
            ServerEndpoint::Operations => "operations",
            ServerEndpoint::Page => "page",
            ServerEndpoint::Consoles => "consoles",
            ServerEndpoint::UserAssets => "user_assets",
            ServerEndpoint::Other => "other",
        }
    }
}

/// Classes of status codes by their first digit, the values of the label `code`.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Metrics of one endpoint. Updated once per request and per piece of a body.
#[derive(Debug, Default)]
pub(crate) struct EndpointMetrics {
    /// Number of responses by class of status code.
    responses: [Counter; CLASSES.len()],
    pub(crate) duration: DurationHistogram,
    pub(crate) request_bytes: Counter,
    pub(crate) response_bytes: Counter,
}

impl EndpointMetrics {
    pub(crate) fn count_response(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        self.responses[class].inc();
    }
}

/// Gauge of operations in progress, such as connections or queries. Clones share the gauge.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Gauge>);

impl InFlight {
    /// Increments the gauge. It is decremented when the returned guard is dropped.
    pub(crate) fn enter(&self) -> InFlightGuard {
        self.0.add(1);
        InFlightGuard(self.0.clone())
    }

    fn get(&self) -> f64 {
        self.0.get() as f64
    }
}

/// Guard of an operation in progress, created by [`InFlight::enter`]. Decrements the gauge when it
/// is dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<Gauge>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// All metrics of the server. One instance is shared by listeners, handlers and the query queue.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    endpoints: [EndpointMetrics; ServerEndpoint::ALL.len()],
    pub(crate) connections: InFlight,
    pub(crate) connections_total: Counter,
    pub(crate) accepts_failed: Counter,
    pub(crate) handshakes_failed: Counter,
    pub(crate) requests_unauthenticated: Counter,
    pub(crate) requests_forbidden: Counter,
    pub(crate) requests: InFlight,
    pub(crate) queries_waiting: InFlight,
    pub(crate) queries_running: InFlight,
    pub(crate) queries_refused: Counter,
    pub(crate) queries_ended: Counter,
    pub(crate) queries_blocked: Counter,
    pub(crate) panics: Counter,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        Self {
            endpoints: array::from_fn(|_| EndpointMetrics::default()),
            connections: InFlight::default(),
            connections_total: Counter::default(),
            accepts_failed: Counter::default(),
            handshakes_failed: Counter::default(),
            requests_unauthenticated: Counter::default(),
            requests_forbidden: Counter::default(),
            requests: InFlight::default(),
            queries_waiting: InFlight::default(),
            queries_running: InFlight::default(),
            queries_refused: Counter::default(),
            queries_ended: Counter::default(),
            queries_blocked: Counter::default(),
            panics: Counter::default(),
        }
    }
}

impl ServerMetrics {
    pub(crate) fn endpoint(&self, endpoint: ServerEndpoint) -> &EndpointMetrics {
        &self.endpoints[endpoint as usize]
    }

    fn each_endpoint<'a>(
        &'a self,
        sink: &mut dyn MetricSink,
        name: &str,
        help: &str,
        value: impl Fn(&'a EndpointMetrics) -> MetricValue<'a>,
    ) {
        for endpoint in ServerEndpoint::ALL {
            let labels = [("handler", endpoint.label())];
            sink.metric(name, help, &labels, value(self.endpoint(endpoint)));
        }
    }
}

impl Collect for ServerMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        for endpoint in ServerEndpoint::ALL {
            for (class, count) in CLASSES.iter().zip(&self.endpoint(endpoint).responses) {
                sink.metric(
                    "firn_server_requests_total",
                    "HTTP requests answered.",
                    &[("code", class), ("handler", endpoint.label())],
                    MetricValue::Counter(count.get() as f64),
                );
            }
        }
        self.each_endpoint(
            sink,
            "firn_server_request_duration_seconds",
            "Time from the end of a request's headers to the end of its response.",
            |metrics| MetricValue::Histogram(&metrics.duration),
        );
        self.each_endpoint(
            sink,
            "firn_server_request_body_bytes_total",
            "Bytes of received request bodies, as transferred.",
            |metrics| MetricValue::Counter(metrics.request_bytes.get() as f64),
        );
        self.each_endpoint(
            sink,
            "firn_server_response_body_bytes_total",
            "Bytes of sent response bodies, as transferred.",
            |metrics| MetricValue::Counter(metrics.response_bytes.get() as f64),
        );
        self.collect_gauges(sink);
        self.collect_totals(sink);
    }
}

impl ServerMetrics {
    /// Collects the gauges that are not separated by endpoint: connections, requests and queries.
    fn collect_gauges(&self, sink: &mut dyn MetricSink) {
        let gauges: [(&str, &str, &InFlight); 4] = [
            (
                "firn_server_connections",
                "Open connections.",
                &self.connections,
            ),
            (
                "firn_server_requests_in_flight",
                "Requests in progress.",
                &self.requests,
            ),
            (
                "firn_server_queries_waiting",
                "Queries waiting in the queue.",
                &self.queries_waiting,
            ),
            (
                "firn_server_queries_running",
                "Queries being evaluated.",
                &self.queries_running,
            ),
        ];
        for (name, help, gauge) in gauges {
            sink.metric(name, help, &[], MetricValue::Gauge(gauge.get()));
        }
    }

    /// Collects the counters that are not separated by endpoint: connections, queries and panics.
    fn collect_totals(&self, sink: &mut dyn MetricSink) {
        let counters = [
            (
                "firn_server_connections_total",
                "Connections accepted.",
                &self.connections_total,
            ),
            (
                "firn_server_accepts_failed_total",
                "Connections that could not be accepted because no file descriptor was available.",
                &self.accepts_failed,
            ),
            (
                "firn_server_handshakes_failed_total",
                "Connections that ended before the TLS handshake was complete.",
                &self.handshakes_failed,
            ),
            (
                "firn_server_requests_unauthenticated_total",
                "Requests with missing or wrong credentials.",
                &self.requests_unauthenticated,
            ),
            (
                "firn_server_requests_forbidden_total",
                "Requests rejected because their credentials lack permission.",
                &self.requests_forbidden,
            ),
            (
                "firn_server_queries_refused_total",
                "Queries rejected because the queue was full.",
                &self.queries_refused,
            ),
            (
                "firn_server_queries_ended_total",
                "Queries that an administrator ended.",
                &self.queries_ended,
            ),
            (
                "firn_server_queries_blocked_total",
                "Queries rejected because of `firn.blocked_queries`.",
                &self.queries_blocked,
            ),
            (
                "firn_server_panics_total",
                "Requests that ended in a panic.",
                &self.panics,
            ),
        ];
        for (name, help, counter) in counters {
            sink.metric(name, help, &[], MetricValue::Counter(counter.get() as f64));
        }
    }
}
