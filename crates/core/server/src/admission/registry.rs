//! The registry of queries: all that wait, run or are being answered, and the history of those that
//! have ended.
//!
//! Invariant: no query is dropped under the lock, because its end takes the lock. The number of
//! entries is limited by the queue, its places and the number of connections.

use super::history::{EndedQuery, QueryHistory, QueryTotal};
use super::metric_names::{MetricNameStat, MetricNameStats};
use super::query_counts::QueryCounts;
use super::question::RequestedQuery;
use super::run::{QueryAllowance, QueryRun};
use firn_model::env::Clock;
use firn_model::metrics::{MetricSink, MetricValue};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// All queries of the server. One instance exists per server.
pub(crate) struct QueryRegistry {
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<QueryRegistryState>,
}

#[derive(Default)]
struct QueryRegistryState {
    last_id: u64,
    active: BTreeMap<u64, Weak<QueryRun>>,
    history: QueryHistory,
    metric_names: MetricNameStats,
    counts: QueryCounts,
}

impl QueryRegistry {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Registers a query, which starts now. It is listed until the last clone of the result is
    /// dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        question: RequestedQuery,
        allowance: QueryAllowance,
    ) -> Arc<QueryRun> {
        let mut state = lock(&self.state);
        if !question.expression.is_empty() {
            state.counts.add(&question.tenant);
        }
        state.last_id += 1;
        let id = state.last_id;
        let run = Arc::new(QueryRun::new(id, question, allowance, self.clone()));
        state.active.insert(id, Arc::downgrade(&run));
        run
    }

    /// Returns all queries, the oldest first.
    pub(crate) fn active(&self) -> Vec<Arc<QueryRun>> {
        let state = lock(&self.state);
        state.active.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the query with this number, if it has not ended.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<QueryRun>> {
        lock(&self.state).active.get(&id).and_then(Weak::upgrade)
    }

    /// Moves a query, which is being dropped, to the history.
    pub(super) fn remove(&self, run: &QueryRun) {
        let now = self.clock.monotonic();
        let mut state = lock(&self.state);
        state.active.remove(&run.id);
        state.history.add(run, now);
    }

    /// Returns up to `limit` ended queries of matching tenants whose expression contains `text`,
    /// the newest first.
    pub(crate) fn find_ended(
        &self,
        text: &str,
        limit: usize,
        is_of: impl Fn(&TenantId) -> bool,
    ) -> Vec<EndedQuery> {
        lock(&self.state).history.find(text, limit, is_of)
    }

    /// Counts a look-up of series with the metric name `name` by the query `run`.
    pub(super) fn count_metric_name(&self, name: &[u8], run: &QueryRun) {
        let now = self.clock.now_ms();
        lock(&self.state).metric_names.add(name, run, now);
    }

    /// Returns the metric names that queries of each tenant have selected, in any order.
    pub(crate) fn metric_names(&self) -> Vec<((TenantId, String), MetricNameStat)> {
        lock(&self.state).metric_names.all()
    }

    /// Returns the number of queries of a tenant that have begun, except those that do not concern
    /// series.
    pub(crate) fn query_count(&self, tenant: &TenantId) -> u64 {
        lock(&self.state).counts.of_tenant(tenant)
    }

    /// Writes the number of queries of each tenant.
    pub(crate) fn collect_counts(&self, sink: &mut dyn MetricSink) {
        let counts = lock(&self.state).counts.all();
        for (tenant, count) in counts {
            sink.metric(
                "firn_tenant_queries_total",
                "Queries of a tenant, including those of its rules.",
                &[("tenant", tenant.as_str())],
                MetricValue::Counter(count as f64),
            );
        }
    }

    /// Returns the totals of ended queries by tenant and expression.
    pub(crate) fn totals(&self) -> Vec<((TenantId, Arc<str>), QueryTotal)> {
        lock(&self.state).history.totals(self.clock.monotonic())
    }
}
