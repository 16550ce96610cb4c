//! Running a query: its turn in the queue, its entry in the file of active queries, its thread, its
//! deadline.

use super::active::{ActiveQueries, Entry, Record};
use super::limits::Limits;
use super::question::Question;
use super::queue::{FairQueue, QueueFull};
use crate::metrics::ServerMetrics;
use firn_model::cancel::{Cancel, Reason};
use firn_model::env::Clock;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};

/// Time between two checks of memory while a query runs: a query that takes less is too small to
/// matter, and a look takes some microseconds.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Why a query has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfinished {
    /// Its deadline passed in the queue.
    #[error("query timed out in query queue")]
    Waiting,
    /// Its deadline passed while it ran.
    #[error("query timed out in expression evaluation")]
    Running,
    /// The queue had no room for it.
    #[error(transparent)]
    Refused(#[from] QueueFull),
    /// It panicked; the log has the details.
    #[error("the query failed: see the log")]
    Panicked,
}

/// The queue of queries and what each of them needs to run. Cheap to clone; clones share it.
#[derive(Clone)]
pub(crate) struct Queries {
    queue: FairQueue,
    metrics: Arc<ServerMetrics>,
    clock: Arc<dyn Clock>,
    /// Gives freed memory back when it is short; may block.
    watch_memory: Arc<dyn Fn() + Send + Sync>,
}

/// Sets the flag when the request's future is dropped: the client went away.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel(Reason::Canceled);
    }
}

impl Queries {
    /// A queue of the size that `limits` say.
    pub(crate) fn new(
        limits: &Limits,
        metrics: Arc<ServerMetrics>,
        clock: Arc<dyn Clock>,
        watch_memory: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            queue: FairQueue::new(limits.queries_max, limits.queries_waiting_max),
            metrics,
            clock,
            watch_memory,
        }
    }

    /// Runs `job`, which answers `question`, on a thread of its own when it is its client's turn,
    /// and gives up at `deadline` or when the caller is dropped. A job that was given up keeps its
    /// place until it notices. The query is written down in `active` while it runs.
    ///
    /// Compute threads get only the parts into which a query splits itself: one that waits for such
    /// a part takes up other work meanwhile, which must never be another whole query.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        active: ActiveQueries,
        question: Question,
        deadline: Instant,
        job: impl FnOnce(&Cancel) -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        let waiting = self.metrics.queries_waiting.enter();
        let place = timeout_at(deadline, self.queue.enter(question.client.clone())).await;
        drop(waiting);
        let place = place.map_err(|_| Unfinished::Waiting)?;
        let place = place.inspect_err(|_| self.metrics.queries_refused.inc())?;
        let cancel = CancelOnDrop(Cancel::new());
        let flag = cancel.0.clone();
        let queries = self.clone();
        let question = Arc::new(question);
        let asked = question.clone();
        let running = spawn_blocking(move || {
            let running = queries.metrics.queries_running.enter();
            let entry = queries.write_down(&active, place.number(), &asked);
            let outcome = job(&flag);
            drop((running, entry, place));
            outcome
        });
        match timeout_at(deadline, self.watched(running)).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) => {
                self.metrics.panics.inc();
                tracing::error!(
                    expression = question.expression,
                    handler = question.handler,
                    tenant = question.tenant.as_str(),
                    "query panicked"
                );
                Err(Unfinished::Panicked)
            }
            Err(_) => {
                cancel.0.cancel(Reason::Timeout);
                Err(Unfinished::Running)
            }
        }
    }

    /// Waits for a query, and has memory looked at meanwhile: on a thread of its own, since a look
    /// may find that freed memory is to be given back, which takes tenths of a second a gigabyte.
    async fn watched<T>(&self, running: JoinHandle<T>) -> Result<T, JoinError> {
        let mut running = pin!(running);
        loop {
            let watch = self.watch_memory.clone();
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
    fn write_down(
        &self,
        active: &ActiveQueries,
        place: usize,
        question: &Question,
    ) -> Option<Entry> {
        let record = Record {
            handler: question.handler,
            tenant: question.tenant.as_str(),
            started: self.clock.now_ms(),
            range: question.range,
            expression: &question.expression,
            expression_bytes: question.expression_bytes,
        };
        active.enter(place, &record)
    }
}
