//! Every bound of the server in one struct, each with where its number comes from.
//!
//! Invariant: nothing in this crate grows with what a client sends, except up to a number that
//! stands here. Bounds on samples, labels and bodies of writes are the write pipeline's.

use firn_model::shares::Shares;
use std::time::Duration;

/// The bounds. [`Limits::of`] derives the ones that depend on the machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; further ones wait in the kernel's backlog. 512 is the default of
    /// `--web.max-connections`.
    pub connections_max: usize,
    /// Bytes of the parser's buffer of a connection. Longer heads go past it: see
    /// [`crate::http::request_head`].
    pub header_buffer_bytes: usize,
    /// Bytes of all request lines and headers beyond 8 KiB a connection.
    pub heads_bytes_max: usize,
    /// Headers that the parser takes: as many as it has room for without asking the allocator.
    pub headers_max: usize,
    /// From the first byte (or the connection's start) to the end of the headers: they fit in a
    /// few packets, so ten seconds allow for several retransmissions.
    pub header_read_max: Duration,
    /// How long a connection may say nothing between requests; `--web.read-timeout`. Longer than
    /// any scrape or send interval in use, so that senders keep their connections. `None` is no
    /// limit.
    pub idle_max: Option<Duration>,
    /// A body may take this long plus its bytes at [`Limits::body_bytes_per_second_min`].
    pub body_grace: Duration,
    /// The slowest sender that is waited for: a 2G modem. A sender that drips loses its
    /// connection at about `body_grace`.
    pub body_bytes_per_second_min: usize,
    /// How long a client may read nothing of an answer before its connection is closed, which
    /// frees the answer's memory.
    pub response_stall_max: Duration,
    /// Bytes of a form; Go's limit, which upstream inherits, or half of what all forms may have:
    /// the form as it came, and decoded.
    pub form_body_bytes_max: usize,
    /// Bytes of all forms being received and worked on. Those of writes are the pipeline's.
    pub forms_bytes_max: usize,
    /// Writes that are decoded at one time: two a core keep the cores busy while one waits for a
    /// lock; more only add memory and latency.
    pub writes_decoding_max: usize,
    /// Queries evaluated at one time; default of `--query.max-concurrency`.
    pub queries_max: usize,
    /// Queries that wait for their turn. A client that waits holds a connection, and there are half
    /// as many at the default of `--web.max-connections`: only a server with far more of them meets
    /// this.
    pub queries_waiting_max: usize,
    /// The longest that a query may wait and run; default of `--query.timeout`.
    pub query_timeout: Duration,
    /// Clients that follow `/api/v1/notifications/live`, each with a connection;
    /// `--web.max-notifications-subscribers`.
    pub notice_listeners_max: usize,
    /// Remote reads that are answered at one time; `--storage.remote.read-concurrent-limit`.
    pub reads_max: usize,
    /// Samples of a remote read in one message, 0 for any number;
    /// `--storage.remote.read-sample-limit`.
    pub read_samples_max: u64,
    /// Bytes of a frame of a remote read in chunks; `--storage.remote.read-max-bytes-in-frame`.
    pub read_frame_bytes_max: usize,
    /// Steps of a range query; upstream's number, which Grafana knows.
    pub steps_max: i64,
    /// Different selectors in the `match[]` of a look-up: each is a pass over the index, and the
    /// drop-downs of a dashboard ask for a few.
    pub selectors_max: usize,
    /// Memory of one query.
    pub query_bytes_max: usize,
    /// Memory of all queries and of answers not yet sent.
    pub queries_bytes_max: usize,
    /// How long requests under way may take to end after the server began to stop. Senders
    /// retry after it; Kubernetes kills after 30 s.
    pub shutdown_grace: Duration,
}

/// Go's limit of a form.
const FORM_BODY_BYTES_MAX: usize = 10 << 20;

/// What all forms together may take that are not small, where all forms may take `bytes`.
fn large_forms(bytes: usize) -> usize {
    bytes / 4 * 3
}

impl Limits {
    /// As many remote reads as can be counted.
    pub const READS_UNLIMITED: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// Bytes of all forms that are not small.
    pub(crate) fn large_forms_bytes_max(&self) -> usize {
        large_forms(self.forms_bytes_max)
    }

    /// The bounds for a process whose memory is divided into `shares`.
    pub fn of(shares: &Shares) -> Self {
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
            shutdown_grace: Duration::from_secs(10),
        }
    }
}
