//! The client of a store: time, budget, second attempts and metrics around single attempts.
//!
//! ```text
//! put_new(key, bytes, done)
//!   -> place among the operations -> bytes in flight -> attempt (-> second attempt) -> done
//!      full: refused               too long: refused    too long: ambiguous
//! ```
//!
//! Invariant: `done` is called exactly once, also if the runtime stops or an attempt panics.

mod operation;
mod ranges;

use crate::backend::StoreBackend;
use crate::bucket::{
    Bucket, ByteRange, Creation, ListPage, ListRequest, ObjectHead, OnBucketResult, ReadResult,
};
use crate::byte_budget::ByteBudget;
use crate::error::{BucketError, BucketFailure};
use crate::hedging::{HedgedAttempt, Hedging, race};
use crate::key::ObjectKey;
use crate::metrics::{BucketMetrics, BucketOp};
use crate::options::BucketLimits;
use bytes::Bytes;
use operation::{OperationResult, PendingOperation, SentFlag};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

/// A bucket in a store of S3 objects or in a folder. Dropping it does not cancel operations.
pub struct ObjectStoreBucket {
    core: Arc<ClientCore>,
    runtime: Handle,
}

/// State that operations share.
struct ClientCore {
    backend: Box<dyn StoreBackend>,
    limits: BucketLimits,
    budget: ByteBudget,
    operation_count: AtomicUsize,
    create_hedging: Hedging,
    read_hedging: Hedging,
    range_hedging: Hedging,
    metrics: Arc<BucketMetrics>,
}

impl std::fmt::Debug for ObjectStoreBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ObjectStoreBucket");
        shown
            .field("limits", &self.core.limits)
            .finish_non_exhaustive()
    }
}

impl ObjectStoreBucket {
    /// Creates the client of `backend`, whose operations run on `runtime`.
    pub(crate) fn new(
        backend: Box<dyn StoreBackend>,
        limits: BucketLimits,
        runtime: &Handle,
        metrics: Arc<BucketMetrics>,
    ) -> Self {
        let (bytes, object) = (limits.bytes_in_flight_max, limits.object_bytes_max);
        Self {
            core: Arc::new(ClientCore {
                backend,
                budget: ByteBudget::new(bytes, object, metrics.clone()),
                limits,
                operation_count: AtomicUsize::new(0),
                create_hedging: Hedging::default(),
                read_hedging: Hedging::default(),
                range_hedging: Hedging::default(),
                metrics,
            }),
            runtime: runtime.clone(),
        }
    }

    /// Starts `work` if there is a place for it. Gives it up when its time has passed.
    fn start<T, F>(
        &self,
        pending: PendingOperation<T>,
        timeout: Duration,
        work: impl FnOnce(Arc<ClientCore>, SentFlag) -> F,
    ) where
        T: OperationResult,
        F: Future<Output = T> + Send + 'static,
    {
        let place = match OperationPlace::take(&self.core) {
            Ok(place) => place,
            Err(error) => return pending.fail(error),
        };
        let work = work(self.core.clone(), pending.sent_flag());
        let deadline = pending.started() + timeout;
        self.runtime.spawn(async move {
            let result = timeout_at(deadline, work).await;
            drop(place);
            match result {
                Ok(result) => pending.finish(result),
                Err(_) => pending.time_out(timeout),
            }
        });
    }

    fn pending<T: OperationResult>(
        &self,
        op: BucketOp,
        subject: &str,
        done: OnBucketResult<T>,
    ) -> PendingOperation<T> {
        PendingOperation::new(op, subject, self.core.metrics.clone(), done)
    }
}

impl Bucket for ObjectStoreBucket {
    fn put_new(&self, key: &ObjectKey, bytes: Bytes, done: OnBucketResult<Creation>) {
        let pending = self.pending(BucketOp::PutNew, key.as_str(), done);
        let pending = pending.of_bytes(bytes.len() as u64);
        let timeout = self.core.limits.create_timeout;
        let key = key.clone();
        self.start(pending, timeout, |core, sent| async move {
            core.create(&key, bytes, &sent).await
        });
    }

    fn get(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<Bytes>>) {
        let pending = self.pending(BucketOp::Get, key.as_str(), done);
        let timeout = self.core.limits.read_timeout;
        let key = key.clone();
        self.start(
            pending,
            timeout,
            |core, _| async move { core.read(&key).await },
        );
    }

    fn get_ranges(
        &self,
        key: &ObjectKey,
        ranges: &[ByteRange],
        done: OnBucketResult<ReadResult<Vec<Bytes>>>,
    ) {
        let pending = self.pending(BucketOp::GetRange, key.as_str(), done);
        let timeout = self.core.limits.read_timeout;
        let (key, ranges) = (key.clone(), ranges.to_vec());
        self.start(pending, timeout, |core, _| ranges::read(core, key, ranges));
    }

    fn head(&self, key: &ObjectKey, done: OnBucketResult<ReadResult<ObjectHead>>) {
        let pending = self.pending(BucketOp::Head, key.as_str(), done);
        let timeout = self.core.limits.short_timeout;
        let key = key.clone();
        self.start(pending, timeout, |core, _| async move {
            core.backend.head(&key).await
        });
    }

    fn list(&self, request: &ListRequest, done: OnBucketResult<Result<ListPage, BucketError>>) {
        let pending = self.pending(BucketOp::List, request.prefix.as_str(), done);
        let timeout = self.core.limits.short_timeout;
        let request = request.clone();
        self.start(pending, timeout, |core, _| async move {
            request.check()?;
            core.backend.list(&request).await?.check(&request)
        });
    }

    fn delete(&self, key: &ObjectKey, done: OnBucketResult<Result<(), BucketError>>) {
        let pending = self.pending(BucketOp::Delete, key.as_str(), done);
        let timeout = self.core.limits.short_timeout;
        let key = key.clone();
        self.start(pending, timeout, |core, _| async move {
            core.backend.delete(&key).await
        });
    }
}

impl ClientCore {
    async fn create(&self, key: &ObjectKey, bytes: Bytes, sent: &SentFlag) -> Creation {
        let mut room = self.budget.reservation();
        if let Err(error) = room.reserve(bytes.len() as u64).await {
            let text = format!("create {key}: {}", error.message);
            return Creation::Refused(BucketError::new(error.failure, text));
        }
        sent.set();
        let attempt = || self.backend.put_new(key, bytes.clone());
        self.attempt(BucketOp::PutNew, &self.create_hedging, attempt)
            .await
    }

    async fn read(&self, key: &ObjectKey) -> ReadResult<Bytes> {
        let attempt = || -> HedgedAttempt<'_, ReadResult<Bytes>> {
            Box::pin(async move {
                let mut room = self.budget.reservation();
                self.backend.get(key, &mut room).await
            })
        };
        self.attempt(BucketOp::Get, &self.read_hedging, attempt)
            .await
    }

    async fn read_range(&self, key: &ObjectKey, range: ByteRange) -> ReadResult<Bytes> {
        let attempt = || self.backend.get_range(key, range);
        self.attempt(BucketOp::GetRange, &self.range_hedging, attempt)
            .await
    }

    /// Runs an attempt, and a second one if the first one is slow and the limits allow it.
    async fn attempt<'a, T: OperationResult>(
        &'a self,
        op: BucketOp,
        hedging: &Hedging,
        attempt: impl Fn() -> HedgedAttempt<'a, T>,
    ) -> T {
        let wait = hedging.start().filter(|_| self.limits.is_hedged);
        let started = Instant::now();
        let second = || {
            let may_start = hedging.take();
            may_start.then(|| {
                self.metrics.hedged(op);
                attempt()
            })
        };
        let result = race(attempt(), wait, second, T::rank).await;
        if result.is_final() {
            hedging.observe(started.elapsed());
        }
        result
    }
}

/// A place among the operations that run or wait.
struct OperationPlace(Arc<ClientCore>);

impl OperationPlace {
    /// Takes a place. Fails with [`BucketFailure::Limited`] if all are taken.
    fn take(core: &Arc<ClientCore>) -> Result<Self, BucketError> {
        let place = Self(core.clone());
        core.metrics.in_flight.add(1);
        let limit = core.limits.operations_max;
        let before = core.operation_count.fetch_add(1, Ordering::AcqRel);
        if before >= limit {
            // Dropping the place gives it back.
            let text = format!("{limit} operations run already, which is the limit");
            return Err(BucketError::new(BucketFailure::Limited, text));
        }
        Ok(place)
    }
}

impl Drop for OperationPlace {
    fn drop(&mut self) {
        self.0.operation_count.fetch_sub(1, Ordering::AcqRel);
        self.0.metrics.in_flight.add(-1);
    }
}
