//! A query of a request, a rule or a console page, from its arrival to the end of its response.
//!
//! ```text
//! wait (in the queue) -> evaluate <-> select (look-up in the store) -> encode -> dropped
//! ```
//!
//! Invariants: every query in the queue and every response of one has a [`QueryRun`], shared by all
//! its parts. It is listed in the registry until the last part is dropped, so that a query that was
//! abandoned is listed as long as it uses a thread or memory.

use super::question::RequestedQuery;
use super::registry::QueryRegistry;
use firn_model::budget::Budget;
use firn_model::cancel::{CancelReason, CancelToken};
use firn_model::env::Compute;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimestampMs;
use firn_model::store::Select;
use firn_model::tenant::TenantId;
use firn_model::units::format_go_duration;
use firn_promql::QueryContext;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Text for the client of a query that an administrator ended.
pub(crate) const ENDED: &str = "query was canceled: an administrator ended it";

/// Part of its life in which a query is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryPhase {
    /// It waits in the queue.
    Wait,
    /// It looks up series or labels in the store.
    Select,
    /// It reads and processes samples, or sorts its result.
    Evaluate,
    /// Its response is being encoded and sent.
    Encode,
}

impl QueryPhase {
    const ALL: [QueryPhase; 4] = [
        QueryPhase::Wait,
        QueryPhase::Select,
        QueryPhase::Evaluate,
        QueryPhase::Encode,
    ];

    /// Returns the name of the phase in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            QueryPhase::Wait => "wait",
            QueryPhase::Select => "select",
            QueryPhase::Evaluate => "evaluate",
            QueryPhase::Encode => "encode",
        }
    }
}

/// Limits and memory of one query. Created with the query from the running configuration.
#[derive(Clone, Debug)]
pub(crate) struct QueryAllowance {
    /// Budget in which all parts of the query reserve their memory.
    pub(crate) budget: Budget,
    /// Maximum number of samples that the query may read from the store.
    pub(crate) samples_max: u64,
    /// Maximum number of queries that run at one time, for each tenant of the query with such a
    /// limit.
    pub(crate) queries_max: Vec<(TenantId, usize)>,
    /// Maximum time for which queries of the tenant wait and run, if the tenant has one.
    pub(crate) timeout: Option<Duration>,
}

/// A query with its origin, progress, memory and cancellation. Created by
/// [`QueryRegistry::begin`], and removed from the registry when it is dropped.
pub(crate) struct QueryRun {
    /// Number of the query, unique in this process.
    pub(crate) id: u64,
    pub(crate) question: RequestedQuery,
    pub(crate) started: TimestampMs,
    /// Start on the monotonic clock.
    pub(super) begun: Duration,
    pub(super) registry: Arc<QueryRegistry>,
    allowance: QueryAllowance,
    phase: AtomicU8,
    samples: AtomicU64,
    cancel: CancelToken,
    is_ended: AtomicBool,
    end: Notify,
}

impl fmt::Debug for QueryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query {}: {}", self.id, self.question.expression)
    }
}

impl QueryRun {
    pub(super) fn new(
        id: u64,
        question: RequestedQuery,
        allowance: QueryAllowance,
        registry: Arc<QueryRegistry>,
    ) -> Self {
        Self {
            id,
            question,
            started: registry.clock.now_ms(),
            begun: registry.clock.monotonic(),
            registry,
            allowance,
            phase: AtomicU8::new(QueryPhase::Wait as u8),
            samples: AtomicU64::new(0),
            cancel: CancelToken::new(),
            is_ended: AtomicBool::new(false),
            end: Notify::new(),
        }
    }

    /// Returns the cancel flag of all work of the query before its response.
    pub(crate) fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    /// Returns the maximum number of queries that run at one time, for each tenant of the query
    /// with such a limit, in the order of tenants.
    pub(crate) fn queries_max(&self) -> &[(TenantId, usize)] {
        &self.allowance.queries_max
    }

    /// Returns the time limit of the tenant as text, if it has passed.
    pub(crate) fn reached_timeout(&self) -> Option<String> {
        let timeout = self
            .allowance
            .timeout
            .filter(|timeout| self.age() >= *timeout)?;
        let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
        Some(format_go_duration(nanos))
    }

    /// Returns the memory budget of the query.
    pub(crate) fn budget(&self) -> &Budget {
        &self.allowance.budget
    }

    /// Returns the context for evaluating the query of `tenant` over `store` on `compute`. The
    /// caller sets `failed_counts` if it needs the counts of a failure.
    pub(crate) fn context<'a>(
        &'a self,
        store: &'a dyn Select,
        tenant: &'a TenantId,
        compute: &'a dyn Compute,
    ) -> QueryContext<'a> {
        QueryContext {
            store,
            tenant,
            compute,
            budget: self.budget(),
            cancel: self.cancel(),
            failed_counts: None,
        }
    }

    /// Returns the number of samples read so far.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Returns the memory that the query has reserved now, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.budget().used_bytes()
    }

    /// Returns the time since the start of the query.
    pub(crate) fn age(&self) -> Duration {
        self.registry.clock.monotonic().saturating_sub(self.begun)
    }

    pub(crate) fn phase(&self) -> QueryPhase {
        QueryPhase::ALL[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    pub(crate) fn set_phase(&self, phase: QueryPhase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Adds samples that were read from the store. Fails with [`ErrorKind::Limited`] if the query
    /// exceeds its limit.
    pub(crate) fn count_samples(&self, samples: u64) -> Result<(), Error> {
        let read = self.samples.fetch_add(samples, Ordering::Relaxed) + samples;
        let max = self.allowance.samples_max;
        if read <= max {
            return Ok(());
        }
        let message = format!(
            "query reads too many samples: {read} samples, limit {max} (max_samples_per_query)"
        );
        Err(Error::new(ErrorKind::Limited, message))
    }

    /// Counts the metric names that a look-up of samples with these matchers selects.
    pub(crate) fn count_metric_names(&self, matchers: &[Matcher]) {
        let names = matchers
            .iter()
            .filter(|matcher| matcher.op() == MatchOp::Equal && matcher.name() == METRIC_NAME);
        names.for_each(|matcher| self.registry.count_metric_name(matcher.value(), self));
    }

    /// Ends the query in any phase: its work is canceled, its client gets an error.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        self.cancel.cancel(CancelReason::Canceled);
        self.end.notify_waiters();
    }

    /// Returns whether [`QueryRun::end`] was called. The cancel flag is set in other cases too.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }

    /// Waits until [`QueryRun::end`] is called.
    pub(crate) async fn ended(&self) {
        let mut end = pin!(self.end.notified());
        end.as_mut().enable();
        if !self.is_ended() {
            end.await;
        }
    }
}

impl Drop for QueryRun {
    fn drop(&mut self) {
        self.registry.remove(self);
    }
}
