//! The state that all handlers share, and operations on it.
//!
//! ```text
//! starting --open(backend)--> ready --stop()--> stopping
//! ```
//!
//! Invariant: a handler that obtained a backend sees every acked sample. No lock is held across an
//! await.

use crate::access::{AccessGate, AccessRules};
use crate::admission::active::ActiveQueries;
use crate::admission::budgets::RequestBudgets;
use crate::admission::limits::ServerLimits;
use crate::admission::queries::{QueryAbortReason, QueryRunner};
use crate::admission::question::RequestedQuery;
use crate::admission::registry::QueryRegistry;
use crate::admission::run::{QueryAllowance, QueryRun};
use crate::http::failure::ApiFailure;
use crate::metrics::ServerMetrics;
use crate::notices::{Notice, Notices};
use crate::parts::{AppParts, Backend};
use crate::results_cache::ResultsCache;
use crate::tenancy::{request_tenants, require_one};
use axum::http::HeaderMap;
use firn_model::error::{Error, ErrorKind};
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::tenant::TenantId;
use firn_wire::exposition::{FamilySink, TextSink};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// The server. Created by the binary before the store is opened, and passed to [`crate::serve`].
/// Cheap to clone; clones share the state.
#[derive(Clone)]
pub struct ServerApp(Arc<ServerAppState>);

/// The shared state of an [`ServerApp`]. Public only as the target of its `Deref`; the fields are
/// visible in this crate.
pub struct ServerAppState {
    pub(crate) parts: AppParts,
    pub(crate) metrics: Arc<ServerMetrics>,
    pub(crate) budgets: RequestBudgets,
    /// Authentication, authorization and rate limit of requests.
    pub(crate) access: AccessGate,
    queries: QueryRunner,
    /// Results of range queries.
    pub(crate) results: ResultsCache,
    /// All queries that wait, run or are being answered.
    pub(crate) registry: Arc<QueryRegistry>,
    /// Permits for concurrent decoding of writes on blocking threads.
    pub(crate) write_slots: Arc<Semaphore>,
    /// Conditions that need the operator's attention.
    pub(crate) notices: Notices,
    /// Permits for clients that stream notifications.
    pub(crate) listener_slots: Arc<Semaphore>,
    /// Permits for concurrent remote reads.
    pub(crate) read_slots: Arc<Semaphore>,
    /// True while a CPU profile is being taken; only one can run at a time.
    pub(crate) profiling: AtomicBool,
    backend: OnceLock<Arc<Backend>>,
    stopping: AtomicBool,
}

impl std::ops::Deref for ServerApp {
    type Target = ServerAppState;

    fn deref(&self) -> &ServerAppState {
        &self.0
    }
}

/// Reason why there is no backend to process a request; both are answered with 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendNotReady {
    Starting,
    Stopping,
}

impl ServerApp {
    /// Creates a server that is starting: requests for data are answered with 503 until
    /// [`ServerApp::open`] is called.
    pub fn new(parts: AppParts) -> Self {
        let limits = &parts.limits;
        let metrics = Arc::new(ServerMetrics::default());
        let query_limits = parts.query.limits.clone();
        let results_bytes =
            Arc::new(move || query_limits(&TenantId::anonymous()).results_cache_bytes);
        let results = parts
            .memory
            .create_share("results cache", limits.results_bytes_max);
        Self(Arc::new(ServerAppState {
            budgets: RequestBudgets::new(&parts.memory, limits),
            access: AccessGate::new(&parts.env),
            results: ResultsCache::new(results, results_bytes),
            queries: QueryRunner::new(limits, metrics.clone(), parts.watch_memory.clone()),
            registry: Arc::new(QueryRegistry::new(parts.env.clock.clone())),
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

    /// Sets the access rules for further requests. Without rules, every client has full access.
    pub fn set_rules(&self, rules: Arc<AccessRules>) {
        self.0.access.set(rules);
    }

    /// Makes the server ready after the replay of the log. A second call has no effect.
    pub fn open(&self, backend: Backend) {
        // A second backend is dropped, because a process opens its store only once.
        let _ = self.0.backend.set(Arc::new(backend));
        self.0.notices.set(Notice::Starting, false);
    }

    /// Returns the current response to `/metrics`, which the process also uses to scrape itself.
    /// Collects on a blocking thread, because collectors take locks and read files in `/proc`.
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

    /// Records whether the newest configuration was applied. A failure is shown as a notification
    /// until the next success.
    pub fn note_reload(&self, is_good: bool) {
        self.0.notices.set(Notice::ConfigRefused, !is_good);
    }

    /// Records whether samples are being forwarded to their remote endpoints, for the
    /// notifications.
    pub fn note_sending(&self, is_good: bool) {
        self.0.notices.set(Notice::NothingSentOn, !is_good);
    }

    /// Marks the server as stopping: from now on it is not ready.
    pub fn stop(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        self.0.notices.set(Notice::Stopping, true);
    }
}

impl ServerAppState {
    pub(crate) fn limits(&self) -> &ServerLimits {
        &self.parts.limits
    }

    /// Returns the backend, or the reason why there is none at the moment.
    pub(crate) fn backend(&self) -> Result<Arc<Backend>, BackendNotReady> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(BackendNotReady::Stopping);
        }
        self.backend.get().cloned().ok_or(BackendNotReady::Starting)
    }

    /// Collects the metrics of the server, the pipeline and all registered collectors.
    pub(crate) fn collect(&self, sink: &mut dyn MetricSink) {
        self.metrics.collect(sink);
        self.results.collect(sink);
        sink.metric(
            "firn_server_passwords_waiting",
            "Passwords waiting to be checked.",
            &[],
            MetricValue::Gauge(self.access.waiting() as f64),
        );
        if let Some(backend) = self.backend.get() {
            backend.pipeline.metrics().collect(sink);
            backend.pipeline.collect_replicas(sink);
            if self.parts.multitenancy {
                backend.pipeline.collect_usage(sink);
            }
            backend.pipeline.collect_attribution(sink);
        }
        if self.parts.multitenancy {
            self.registry.collect_counts(sink);
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

    /// Returns the tenant of a request for one tenant: the anonymous one, or that in the header if
    /// multitenancy is enabled.
    pub(crate) fn tenant(&self, headers: &HeaderMap) -> Result<TenantId, ApiFailure> {
        let tenant = self.tenants(headers)?;
        require_one(&tenant)?;
        Ok(tenant)
    }

    /// Returns the tenants that a request reads, joined to one id ([`TenantId::join`]).
    pub(crate) fn tenants(&self, headers: &HeaderMap) -> Result<TenantId, ApiFailure> {
        if !self.parts.multitenancy {
            return Ok(TenantId::anonymous());
        }
        request_tenants(headers)
    }

    /// Returns the maximum time for which a query of a tenant may wait and run.
    pub(crate) fn query_timeout(&self, tenant: &TenantId) -> Duration {
        let of_config = (self.parts.query.limits)(tenant).timeout;
        of_config.unwrap_or(self.limits().query_timeout)
    }

    /// Registers a query, which starts now, with a memory budget of its own.
    pub(crate) fn begin_query(&self, question: RequestedQuery) -> Arc<QueryRun> {
        let limits = (self.parts.query.limits)(&question.tenant);
        let queries_max = |member: TenantId| {
            let max = (self.parts.query.limits)(&member).queries_max?;
            Some((member, max))
        };
        let members = question.tenant.members().into_iter();
        let allowance = QueryAllowance {
            budget: self.budgets.query(),
            samples_max: limits.samples_max,
            queries_max: members.filter_map(queries_max).collect(),
            timeout: limits.timeout,
        };
        self.registry.begin(question, allowance)
    }

    /// Runs `job`, which answers the query of `run`, in the query queue; see [`QueryRunner::run`].
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        run: Arc<QueryRun>,
        deadline: Instant,
        job: impl FnOnce(&Arc<QueryRun>) -> Result<T, ApiFailure> + Send + 'static,
    ) -> Result<T, ApiFailure> {
        let active = self.backend.get().map(|backend| backend.active.clone());
        let active = active.unwrap_or_else(ActiveQueries::none);
        let outcome = self.queries.run(active, run.clone(), deadline, job);
        outcome.await.map_err(|reason| {
            let mut failure = ApiFailure::from(reason);
            let is_late = matches!(
                reason,
                QueryAbortReason::Waiting | QueryAbortReason::Running
            );
            if let (true, Some(limit)) = (is_late, run.reached_timeout()) {
                failure.message += &format!(": limit {limit} (query_timeout)");
            }
            failure
        })?
    }

    /// Runs `job` in the query queue for a query without a request, such as that of a rule. Returns
    /// the reason if the query was not run to its end.
    pub(crate) async fn run_queued<T: Send + 'static>(
        &self,
        active: ActiveQueries,
        run: Arc<QueryRun>,
        deadline: Instant,
        job: impl FnOnce(&Arc<QueryRun>) -> T + Send + 'static,
    ) -> Result<T, QueryAbortReason> {
        self.queries.run(active, run, deadline, job).await
    }
}
