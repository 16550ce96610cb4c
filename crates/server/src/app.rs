//! The state that all handlers share, and what a handler may ask of it.
//!
//! ```text
//! starting --open(backend)--> ready --stop()--> stopping
//! ```
//!
//! Invariant: a handler that has a backend sees every acked sample; no lock is held across an
//! await.

use crate::active::{Entry, Record};
use crate::failure::{Cause, Failure};
use crate::limits::Limits;
use crate::metrics::ServerMetrics;
use crate::parts::{AppParts, Backend};
use crate::question::Question;
use crate::queue::FairQueue;
use axum::http::HeaderMap;
use firn_model::budget::Budget;
use firn_model::cancel::{Cancel, Reason};
use firn_model::error::ErrorKind;
use firn_model::metrics::{Collect, Sink};
use firn_model::tenant::TenantId;
use firn_wire::exposition::TextSink;
use std::pin::pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};

/// Between two looks at memory while a query runs: a query that takes less is too small to matter,
/// and a look takes some microseconds.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// The server's state. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct App(Arc<State>);

/// What an [`App`] shares. Only this room looks inside.
pub struct State {
    pub(crate) parts: AppParts,
    pub(crate) metrics: ServerMetrics,
    /// Memory of all queries and of answers not yet sent.
    pub(crate) queries: Budget,
    /// What queries take that are not small.
    large_queries: Budget,
    /// Memory of forms being received or worked on.
    forms: Budget,
    /// What forms take that are not small.
    large_forms: Budget,
    /// Memory of request lines and headers beyond what each connection has of its own.
    pub(crate) heads: Budget,
    /// Queries that may be evaluated.
    pub(crate) query_queue: FairQueue,
    /// Writes that may be decoded.
    pub(crate) write_slots: Arc<Semaphore>,
    /// Whether a CPU profile is being taken; there can be one.
    pub(crate) profiling: AtomicBool,
    backend: OnceLock<Arc<Backend>>,
    stopping: AtomicBool,
}

impl std::ops::Deref for App {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

/// A query is small up to this part of the memory of all queries: a panel takes less. The others
/// have three quarters together, so that panels are answered beside any number of them.
const SMALL_QUERY_SHARE: usize = 16;

/// A form is small up to so many bytes: expressions of people and panels are. Longer ones have
/// three quarters of the memory of all forms, so that an ordinary query never waits for a long one.
const SMALL_FORM_BYTES: usize = 64 << 10;

/// Why no backend answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReady {
    Starting,
    Stopping,
}

impl App {
    /// What one more query may take.
    pub(crate) fn query_budget(&self) -> Budget {
        let limits = self.limits();
        let small_bytes = limits.queries_bytes_max / SMALL_QUERY_SHARE;
        let beyond = (small_bytes, &self.large_queries);
        self.queries
            .child_beyond("query", limits.query_bytes_max, beyond)
    }

    /// What one more form may take.
    pub(crate) fn form_budget(&self) -> Budget {
        let beyond = (SMALL_FORM_BYTES, &self.large_forms);
        self.forms
            .child_beyond("form", self.limits().forms_bytes_max, beyond)
    }

    /// A server that is starting.
    pub fn new(parts: AppParts) -> Self {
        let limits = &parts.limits;
        Self(Arc::new(State {
            queries: parts.memory.child("all queries", limits.queries_bytes_max),
            large_queries: Budget::new("large queries", limits.queries_bytes_max / 4 * 3),
            heads: parts.memory.share("request heads", limits.heads_bytes_max),
            forms: parts.memory.share("forms", limits.forms_bytes_max),
            large_forms: Budget::new("large forms", limits.large_forms_bytes_max()),
            query_queue: FairQueue::new(limits.queries_max, limits.queries_waiting_max),
            write_slots: Arc::new(Semaphore::new(limits.writes_decoding_max)),
            metrics: ServerMetrics::default(),
            profiling: AtomicBool::new(false),
            backend: OnceLock::new(),
            stopping: AtomicBool::new(false),
            parts,
        }))
    }

    /// Says that the replay is done: from here on requests are answered. A second call does
    /// nothing.
    pub fn open(&self, backend: Backend) {
        // Whoever comes second loses: the store is opened once in the life of a process.
        let _ = self.0.backend.set(Arc::new(backend));
    }

    /// What `/metrics` answers now: also how the process scrapes itself.
    pub fn exposition(&self) -> Vec<u8> {
        let mut sink = TextSink::new();
        self.0.collect(&mut sink);
        sink.into_text().into_bytes()
    }

    /// Says that the process is ending: from here on the server is not ready.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
    }
}

impl State {
    pub(crate) fn limits(&self) -> &Limits {
        &self.parts.limits
    }

    /// What answers requests, while it does.
    pub(crate) fn backend(&self) -> Result<Arc<Backend>, NotReady> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(NotReady::Stopping);
        }
        self.backend.get().cloned().ok_or(NotReady::Starting)
    }

    /// Metrics of everything that is there by now.
    pub(crate) fn collect(&self, sink: &mut dyn Sink) {
        self.metrics.collect(sink);
        if let Some(backend) = self.backend.get() {
            backend.pipeline.metrics().collect(sink);
        }
        let backend = self.backend.get().map(|b| b.collectors.as_slice());
        for collector in self
            .parts
            .collectors
            .iter()
            .chain(backend.unwrap_or_default())
        {
            collector.collect(sink);
        }
    }

    /// Whose data a request is about.
    pub(crate) fn tenant(&self, headers: &HeaderMap) -> Result<TenantId, Failure> {
        const TENANT_HEADER: &str = "x-scope-orgid";
        if !self.parts.multitenancy {
            return Ok(TenantId::anonymous());
        }
        let Some(id) = headers.get(TENANT_HEADER) else {
            return Err(Failure::new(Cause::Unauthenticated, "no org id"));
        };
        let id = id
            .to_str()
            .map_err(|_| Failure::bad_data("tenant id contains an unsupported character"))?;
        TenantId::new(id).map_err(|e| Failure::new(Cause::Request(e.kind), e.message))
    }
}

/// Sets the flag when the request's future is dropped: the client went away.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel(Reason::Canceled);
    }
}

impl App {
    /// Runs `job`, which answers `question`, on a thread of its own when it is its client's turn,
    /// and gives up at `deadline` or when the caller is dropped. A job that was given up keeps its
    /// place until it notices.
    ///
    /// Compute threads get only the parts into which a query splits itself: one that waits for such
    /// a part takes up other work meanwhile, which must never be another whole query.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        question: Question,
        deadline: Instant,
        job: impl FnOnce(&Cancel) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let timed_out = |place: &str| {
            let cause = Cause::Execution(ErrorKind::Timeout);
            Failure::new(cause, format!("query timed out in {place}"))
        };
        let waiting = self.metrics.queries_waiting.enter();
        let place = timeout_at(deadline, self.query_queue.enter(question.client.clone())).await;
        drop(waiting);
        let place = place.map_err(|_| timed_out("query queue"))?.map_err(|e| {
            self.metrics.queries_refused.inc();
            Failure::new(Cause::Execution(ErrorKind::Unavailable), e.to_string())
        })?;
        let cancel = CancelOnDrop(Cancel::new());
        let flag = cancel.0.clone();
        let app = self.clone();
        let question = Arc::new(question);
        let asked = question.clone();
        let running = spawn_blocking(move || {
            let running = app.metrics.queries_running.enter();
            let entry = app.write_down(place.number(), &asked);
            let outcome = job(&flag);
            drop((running, entry, place));
            outcome
        });
        match timeout_at(deadline, self.watched(running)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => {
                self.metrics.panics.inc();
                tracing::error!(
                    expression = question.expression,
                    handler = question.handler,
                    tenant = question.tenant.as_str(),
                    "query panicked"
                );
                Err(Failure::internal("the query failed: see the log"))
            }
            Err(_) => {
                cancel.0.cancel(Reason::Timeout);
                Err(timed_out("expression evaluation"))
            }
        }
    }

    /// Waits for a query, and has memory looked at meanwhile: on a thread of its own, since a look
    /// may find that freed memory is to be given back, which takes tenths of a second a gigabyte.
    async fn watched<T>(&self, running: JoinHandle<T>) -> Result<T, JoinError> {
        let mut running = pin!(running);
        loop {
            let watch = self.parts.watch_memory.clone();
            let look = async {
                sleep(LOOK_PAUSE).await;
                // A look that fails leaves memory as it is.
                let _ = spawn_blocking(move || watch()).await;
            };
            tokio::select! {
                outcome = &mut running => return outcome,
                () = look => {}
            }
        }
    }

    /// Writes down that a query runs in `place`, until the entry is dropped.
    fn write_down(&self, place: usize, question: &Question) -> Option<Entry> {
        let record = Record {
            handler: question.handler,
            tenant: question.tenant.as_str(),
            started: self.parts.env.clock.now_ms(),
            range: question.range,
            expression: &question.expression,
            expression_bytes: question.expression_bytes,
        };
        self.backend.get()?.active.enter(place, &record)
    }
}
