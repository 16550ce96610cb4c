//! Limits of the server that do not change while the process runs, with the reason for each value.
//! Limits that a config reload changes are in [`QuerySettings`](crate::parts::QuerySettings).
//!
//! Invariant: every allocation of this crate whose size depends on a client has a limit in this
//! file. The write pipeline limits samples, labels and write bodies.

use firn_model::shares::BudgetShares;
use std::time::Duration;

/// Limits of the server. [`ServerLimits::from_shares`] derives those that depend on the machine;
/// flags and settings override others.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Maximum number of open connections; more wait in the kernel's backlog. The default of
    /// `--web.max-connections` is 512.
    pub connections_max: usize,
    /// Size of the parser's buffer per connection. Longer request heads bypass it; see
    /// [`crate::http::request_head`].
    pub header_buffer_bytes: usize,
    /// Total memory for request lines and headers beyond 8 KiB per connection.
    pub heads_bytes_max: usize,
    /// Maximum number of headers: as many as the parser can hold without an allocation.
    pub headers_max: usize,
    /// Maximum time from the first byte, or the start of the connection, to the end of the headers.
    /// They fit into a few packets, so ten seconds allow for several retransmissions.
    pub header_read_max: Duration,
    /// Maximum idle time of a connection between requests (`--web.read-timeout`). Longer than
    /// common scrape and send intervals, so that senders keep their connections. `None` means no
    /// limit.
    pub idle_max: Option<Duration>,
    /// Time that is allowed for a body in addition to its bytes at
    /// [`ServerLimits::body_bytes_per_second_min`].
    pub body_grace: Duration,
    /// Minimum transfer rate of a body, about that of a 2G modem. A slower sender is disconnected
    /// after about `body_grace`.
    pub body_bytes_per_second_min: usize,
    /// Maximum time for which a client may read nothing of a response. Then its connection is
    /// closed and the memory of the response is freed.
    pub response_stall_max: Duration,
    /// Maximum size of a form: the smaller of 10 MiB (the limit of Go's `net/http`) and half of the
    /// memory for forms, because the received and the decoded form exist at the same time.
    pub form_body_bytes_max: usize,
    /// Total memory of forms that are being received or processed. Bodies of writes belong to the
    /// pipeline.
    pub forms_bytes_max: usize,
    /// Maximum number of writes that are decoded concurrently. Two per core keep the cores busy
    /// while one waits for a lock; more only add memory and latency.
    pub writes_decoding_max: usize,
    /// Maximum number of concurrent queries; the default of `--query.max-concurrency`.
    pub queries_max: usize,
    /// Maximum number of queries in the queue. Each holds a connection, so this limit is only
    /// reached with far more connections than the default of `--web.max-connections`.
    pub queries_waiting_max: usize,
    /// Maximum time for which a query may wait and run; the default of `--query.timeout`.
    pub query_timeout: Duration,
    /// Maximum number of clients of `/api/v1/notifications/live`, each with a connection
    /// (`--web.max-notifications-subscribers`).
    pub notice_listeners_max: usize,
    /// Maximum number of concurrent remote reads (`--storage.remote.read-concurrent-limit`).
    pub reads_max: usize,
    /// Maximum number of samples in a remote read without streaming; 0 means no limit
    /// (`--storage.remote.read-sample-limit`).
    pub read_samples_max: u64,
    /// Maximum size of a frame of a streamed remote read in bytes
    /// (`--storage.remote.read-max-bytes-in-frame`).
    pub read_frame_bytes_max: usize,
    /// Maximum number of steps after the first one of a range query: the limit of Prometheus, on
    /// which Grafana relies. Scalars of the evaluator and timestamps of a response take about 30
    /// bytes per step without a reservation; this limit bounds them.
    pub steps_max: i64,
    /// Maximum number of different `match[]` selectors of a look-up. Each one is a pass over the
    /// index, and drop-downs of dashboards send a few.
    pub selectors_max: usize,
    /// Maximum memory of one query in bytes.
    pub query_bytes_max: usize,
    /// Maximum memory of all queries and of responses that are not sent yet, in bytes.
    pub queries_bytes_max: usize,
    /// Maximum memory of cached results of range queries in bytes.
    pub results_bytes_max: usize,
    /// Time for which running requests may continue after a shutdown started. Senders retry after
    /// it, and Kubernetes kills the process after 30 s.
    pub shutdown_grace: Duration,
}

/// Maximum size of a form in Go's `net/http`.
const FORM_BODY_BYTES_MAX: usize = 10 << 20;

/// Returns the memory for forms that are not small, if all forms may take `bytes`.
fn large_forms(bytes: usize) -> usize {
    bytes / 4 * 3
}

impl ServerLimits {
    /// Value of [`ServerLimits::reads_max`] that means no limit.
    pub const READS_UNLIMITED: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// Returns the total memory for forms that are not small, in bytes.
    pub(crate) fn large_forms_bytes_max(&self) -> usize {
        large_forms(self.forms_bytes_max)
    }

    /// Returns the limits of a process whose memory is divided into `shares`.
    pub fn from_shares(shares: &BudgetShares) -> Self {
        Self {
            connections_max: 512,
            header_buffer_bytes: 64 << 10,
            heads_bytes_max: shares.heads,
            headers_max: 100,
            header_read_max: Duration::from_secs(10),
            idle_max: Some(Duration::from_secs(300)),
            body_grace: Duration::from_secs(10),
            body_bytes_per_second_min: 4 << 10,
            response_stall_max: Duration::from_secs(30),
            form_body_bytes_max: FORM_BODY_BYTES_MAX.min(large_forms(shares.forms) / 2),
            forms_bytes_max: shares.forms,
            writes_decoding_max: 2 * std::thread::available_parallelism().map_or(1, |n| n.get()),
            queries_max: 20,
            queries_waiting_max: 1024,
            query_timeout: Duration::from_secs(120),
            notice_listeners_max: 16,
            reads_max: 10,
            read_samples_max: 50_000_000,
            read_frame_bytes_max: 1 << 20,
            steps_max: 11_000,
            selectors_max: 100,
            query_bytes_max: shares.query,
            queries_bytes_max: shares.queries,
            results_bytes_max: shares.results,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}
