//! The state that all handlers share, and what it does for them.
//!
//! ```text
//! starting --open(backend)--> ready --stop()--> stopping
//! ```
//!
//! Invariant: a handler that has a backend sees every acked sample; no lock is held across an
//! await.

use crate::access::{Access, Rules};
use crate::admission::active::ActiveQueries;
use crate::admission::budgets::Budgets;
use crate::admission::limits::Limits;
use crate::admission::queries::{Queries, Unfinished};
use crate::admission::question::Question;
use crate::http::failure::{Cause, Failure};
use crate::metrics::ServerMetrics;
use crate::notices::{Notice, Notices};
use crate::parts::{AppParts, Backend};
use axum::http::HeaderMap;
use firn_model::cancel::Cancel;
use firn_model::error::{Error, ErrorKind};
use firn_model::metrics::{Collect, Sink, Value};
use firn_model::tenant::TenantId;
use firn_wire::exposition::{FamilySink, TextSink};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// The server's state. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct App(Arc<State>);

/// What an [`App`] shares. Only this crate looks inside.
pub struct State {
    pub(crate) parts: AppParts,
    pub(crate) metrics: Arc<ServerMetrics>,
    pub(crate) budgets: Budgets,
    /// Who may do what.
    pub(crate) access: Access,
    queries: Queries,
    /// Writes that may be decoded.
    pub(crate) write_slots: Arc<Semaphore>,
    /// What an operator should know now.
    pub(crate) notices: Notices,
    /// Clients that may follow the notices.
    pub(crate) listener_slots: Arc<Semaphore>,
    /// Remote reads that may be answered.
    pub(crate) read_slots: Arc<Semaphore>,
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

/// Why no backend answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReady {
    Starting,
    Stopping,
}

impl App {
    /// A server that is starting.
    pub fn new(parts: AppParts) -> Self {
        let limits = &parts.limits;
        let metrics = Arc::new(ServerMetrics::default());
        Self(Arc::new(State {
            budgets: Budgets::new(&parts.memory, limits),
            access: Access::new(&parts.env),
            queries: Queries::new(
                limits,
                metrics.clone(),
                parts.env.clock.clone(),
                parts.watch_memory.clone(),
            ),
            write_slots: Arc::new(Semaphore::new(limits.writes_decoding_max)),
            notices: Notices::new(parts.env.clock.clone()),
            listener_slots: Arc::new(Semaphore::new(limits.notice_listeners_max)),
            read_slots: Arc::new(Semaphore::new(limits.reads_max)),
            metrics,
            profiling: AtomicBool::new(false),
            backend: OnceLock::new(),
            stopping: AtomicBool::new(false),
            parts,
        }))
    }

    /// Who may do what from now on; everyone anything until this is called.
    pub fn set_rules(&self, rules: Arc<Rules>) {
        self.0.access.set(rules);
    }

    /// Says that the replay is done: from here on requests are answered. A second call does
    /// nothing.
    pub fn open(&self, backend: Backend) {
        // A second backend is dropped: the store is opened once in the life of a process.
        let _ = self.0.backend.set(Arc::new(backend));
        self.0.notices.set(Notice::Starting, false);
    }

    /// What `/metrics` answers now: also how the process scrapes itself. Collects on a thread that
    /// may wait: collectors take locks and read files of the kernel's.
    pub async fn exposition(&self, as_families: bool) -> Result<Vec<u8>, Error> {
        let app = self.clone();
        let collecting = spawn_blocking(move || {
            if as_families {
                let mut sink = FamilySink::new();
                app.0.collect(&mut sink);
                return sink.into_body();
            }
            let mut sink = TextSink::new();
            app.0.collect(&mut sink);
            sink.into_text().into_bytes()
        });
        collecting.await.map_err(|e| {
            tracing::error!(error = %e, "failed to collect metrics");
            self.0.metrics.panics.inc();
            Error::new(ErrorKind::Internal, "the metrics failed: see the log")
        })
    }

    /// Says whether the newest configuration was taken over.
    pub fn note_reload(&self, is_good: bool) {
        self.0.notices.set(Notice::ConfigRefused, !is_good);
    }

    /// Says whether samples are sent on, where they are to be.
    pub fn note_sending(&self, is_good: bool) {
        self.0.notices.set(Notice::NothingSentOn, !is_good);
    }

    /// Says that the process is ending: from here on the server is not ready.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        self.0.notices.set(Notice::Stopping, true);
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
        sink.metric(
            "firn_server_passwords_waiting",
            "Passwords waiting to be checked.",
            &[],
            Value::Gauge(self.access.waiting() as f64),
        );
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

    /// Runs `job`, which answers `question`, when it is its client's turn: see [`Queries::run`].
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        question: Question,
        deadline: Instant,
        job: impl FnOnce(&Cancel) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let active = self.backend.get().map(|backend| backend.active.clone());
        let active = active.unwrap_or_else(ActiveQueries::none);
        self.queries.run(active, question, deadline, job).await?
    }

    /// Like [`State::compute`], for what is no request: an error says why there is no outcome.
    pub(crate) async fn run_queued<T: Send + 'static>(
        &self,
        active: ActiveQueries,
        question: Question,
        deadline: Instant,
        job: impl FnOnce(&Cancel) -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        self.queries.run(active, question, deadline, job).await
    }
}
