//! Runs queries: waits in the queue, records the active query, runs it on a blocking thread, and
//! enforces its deadline and its end by an administrator.

use super::active::{ActiveQueries, ActiveQueryGuard, ActiveQueryRecord};
use super::limits::ServerLimits;
use super::queue::{FairQueue, QueryPermit, QueueFull};
use super::run::{ENDED, QueryPhase, QueryRun};
use super::tenant_slots::TenantSlots;
use crate::metrics::ServerMetrics;
use firn_model::cancel::CancelReason;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};

/// Time between two checks of memory while a query runs. Faster queries are too small to matter,
/// and a check takes a few microseconds.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Reason why a query ended without a result. Errors of the evaluation itself are results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryAbortReason {
    /// The deadline passed while the query waited in the queue.
    #[error("query timed out in query queue")]
    Waiting,
    /// The deadline passed while the maximum number of queries of the tenant ran.
    #[error(
        "query timed out in query queue: {0} queries of the tenant run, limit {0} \
         (max_concurrent_queries)"
    )]
    WaitingForTenant(usize),
    /// The deadline passed while the query ran.
    #[error("query timed out in expression evaluation")]
    Running,
    /// The queue was full.
    #[error(transparent)]
    Refused(#[from] QueueFull),
    /// An administrator ended the query.
    #[error("{ENDED}")]
    Ended,
    /// The query panicked; details are in the log.
    #[error("the query failed: see the log")]
    Panicked,
}

/// The queue of queries and everything that is required to run one. Cheap to clone; clones share
/// the queue.
#[derive(Clone)]
pub(crate) struct QueryRunner {
    queue: FairQueue,
    tenants: TenantSlots,
    metrics: Arc<ServerMetrics>,
    /// Returns freed memory to the system when memory is short. May block.
    watch_memory: Arc<dyn Fn() + Send + Sync>,
}

/// Cancels the query when the future of its request is dropped, because the client disconnected or
/// the deadline passed.
struct CancelOnDrop(Arc<QueryRun>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel().cancel(CancelReason::Canceled);
    }
}

impl QueryRunner {
    /// Creates a queue with the numbers of running and waiting queries in `limits`.
    pub(crate) fn new(
        limits: &ServerLimits,
        metrics: Arc<ServerMetrics>,
        watch_memory: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            queue: FairQueue::new(limits.queries_max, limits.queries_waiting_max),
            tenants: TenantSlots::default(),
            metrics,
            watch_memory,
        }
    }

    /// Runs `job`, which answers the query of `run`, on a blocking thread when its client has its
    /// turn. Gives up at `deadline`, when the query is ended, or when the caller drops the future.
    /// An abandoned job keeps its place until it notices the cancellation. The query is recorded in
    /// `active` while it runs.
    ///
    /// Compute threads only run the parts into which a query splits. A thread that waits for a part
    /// executes other work meanwhile, which must not be another complete query.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        active: ActiveQueries,
        run: Arc<QueryRun>,
        deadline: Instant,
        job: impl FnOnce(&Arc<QueryRun>) -> T + Send + 'static,
    ) -> Result<T, QueryAbortReason> {
        let (slots, place) = self.wait_for_place(&run, deadline).await?;
        let cancel = CancelOnDrop(run.clone());
        let (metrics, started) = (self.metrics.clone(), run.clone());
        let running = spawn_blocking(move || {
            let running = metrics.queries_running.enter();
            started.set_phase(QueryPhase::Evaluate);
            let entry = write_down(&active, place.number(), &started);
            let outcome = job(&started);
            drop((running, entry, place, slots));
            outcome
        });
        let outcome = tokio::select! {
            biased;
            () = run.ended() => return Err(QueryAbortReason::Ended),
            outcome = timeout_at(deadline, self.watch_memory(running)) => outcome,
        };
        match outcome {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) => {
                self.metrics.panics.inc();
                tracing::error!(
                    expression = run.question.expression,
                    handler = run.question.handler,
                    tenant = run.question.tenant.as_str(),
                    "query panicked"
                );
                Err(QueryAbortReason::Panicked)
            }
            Err(_) => {
                cancel.0.cancel().cancel(CancelReason::Timeout);
                Err(QueryAbortReason::Running)
            }
        }
    }

    async fn wait_for_place(
        &self,
        run: &QueryRun,
        deadline: Instant,
    ) -> Result<(Vec<OwnedSemaphorePermit>, QueryPermit), QueryAbortReason> {
        let _waiting = self.metrics.queries_waiting.enter();
        let slots = tokio::select! {
            biased;
            () = run.ended() => return Err(QueryAbortReason::Ended),
            slots = timeout_at(deadline, self.tenants.enter(run)) => slots,
        };
        let queries_max = run.queries_max().iter().map(|of_tenant| of_tenant.1).min();
        let refusal = QueryAbortReason::WaitingForTenant(queries_max.unwrap_or_default());
        let slots = slots.map_err(|_| refusal)?;
        let place = self.queue.enter(run.question.line.clone());
        let place = tokio::select! {
            biased;
            () = run.ended() => return Err(QueryAbortReason::Ended),
            place = timeout_at(deadline, place) => place,
        };
        let place = place.map_err(|_| QueryAbortReason::Waiting)?;
        let place = place.inspect_err(|_| self.metrics.queries_refused.inc())?;
        Ok((slots, place))
    }

    /// Waits for a query and checks memory periodically. The check runs on a blocking thread,
    /// because returning memory to the system takes tenths of a second per gigabyte.
    async fn watch_memory<T>(&self, running: JoinHandle<T>) -> Result<T, JoinError> {
        let mut running = pin!(running);
        loop {
            let watch = self.watch_memory.clone();
            let look = async {
                sleep(LOOK_PAUSE).await;
                // A check that panics is ignored.
                let _ = spawn_blocking(move || watch()).await;
            };
            tokio::select! {
                outcome = &mut running => return outcome,
                () = look => {}
            }
        }
    }
}

/// Records that a query runs in `place`, until the entry is dropped.
fn write_down(active: &ActiveQueries, place: usize, run: &QueryRun) -> Option<ActiveQueryGuard> {
    let question = &run.question;
    let record = ActiveQueryRecord {
        handler: question.handler,
        tenant: question.tenant.as_str(),
        started: run.started,
        range: question.range,
        expression: &question.expression,
        expression_bytes: question.expression_bytes,
    };
    active.enter(place, &record)
}
