//! An operation whose result is pending: calls back and counts, exactly once.

use crate::bucket::{Creation, ListPage, ObjectHead, OnBucketResult};
use crate::error::{BucketError, BucketFailure};
use crate::hedging::FINAL;
use crate::metrics::{BucketMetrics, BucketOp, OperationOutcome};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A result of an operation.
pub(crate) trait OperationResult: Send + 'static {
    /// Builds the result of an operation that ended with `error`. `is_sent` is whether a request
    /// may have reached the store.
    fn failed(error: BucketError, is_sent: bool) -> Self;

    /// Returns the outcome, as a label of metrics.
    fn outcome(&self) -> OperationOutcome;

    /// Returns the number of bytes of objects that were read.
    fn bytes(&self) -> u64 {
        0
    }

    /// Returns how good the result is. No attempt improves a result of rank [`FINAL`].
    fn rank(&self) -> u8;

    /// Returns whether no further attempt can improve the result.
    fn is_final(&self) -> bool {
        self.rank() >= FINAL
    }
}

impl OperationResult for Creation {
    fn failed(error: BucketError, is_sent: bool) -> Self {
        if is_sent {
            Creation::Ambiguous(error)
        } else {
            Creation::Refused(error)
        }
    }

    fn outcome(&self) -> OperationOutcome {
        match self {
            Creation::Stored => OperationOutcome::Stored,
            Creation::Exists => OperationOutcome::Exists,
            Creation::Ambiguous(_) => OperationOutcome::Ambiguous,
            Creation::Refused(_) => OperationOutcome::Refused,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Creation::Stored | Creation::Exists => FINAL,
            // If one of two attempts is ambiguous, so is the operation.
            Creation::Ambiguous(_) => 2,
            Creation::Refused(_) => 1,
        }
    }
}

/// Content of an object or a part of it.
pub(crate) trait ReadContent: Send + 'static {
    /// Returns its number of bytes.
    fn bytes(&self) -> u64;
}

impl ReadContent for Bytes {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

impl ReadContent for Vec<Bytes> {
    fn bytes(&self) -> u64 {
        self.iter().map(ReadContent::bytes).sum()
    }
}

impl ReadContent for ObjectHead {
    fn bytes(&self) -> u64 {
        0
    }
}

impl<T: ReadContent> OperationResult for Result<Option<T>, BucketError> {
    fn failed(error: BucketError, _: bool) -> Self {
        Err(error)
    }

    fn outcome(&self) -> OperationOutcome {
        match self {
            Ok(Some(_)) => OperationOutcome::Found,
            Ok(None) => OperationOutcome::Missing,
            Err(_) => OperationOutcome::Failed,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Ok(Some(content)) => content.bytes(),
            Ok(None) | Err(_) => 0,
        }
    }

    fn rank(&self) -> u8 {
        rank_of(self)
    }
}

impl OperationResult for Result<ListPage, BucketError> {
    fn failed(error: BucketError, _: bool) -> Self {
        Err(error)
    }

    fn outcome(&self) -> OperationOutcome {
        outcome_of(self)
    }

    fn rank(&self) -> u8 {
        rank_of(self)
    }
}

impl OperationResult for Result<(), BucketError> {
    fn failed(error: BucketError, _: bool) -> Self {
        Err(error)
    }

    fn outcome(&self) -> OperationOutcome {
        outcome_of(self)
    }

    fn rank(&self) -> u8 {
        rank_of(self)
    }
}

fn outcome_of<T>(result: &Result<T, BucketError>) -> OperationOutcome {
    match result {
        Ok(_) => OperationOutcome::Found,
        Err(_) => OperationOutcome::Failed,
    }
}

fn rank_of<T>(result: &Result<T, BucketError>) -> u8 {
    match result {
        Ok(_) => FINAL,
        Err(_) => 1,
    }
}

/// Whether a request may have reached the store. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub(super) struct SentFlag(Arc<AtomicBool>);

impl SentFlag {
    /// Records that the request will be sent.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// An operation that has not called back yet. Dropping it calls back with
/// [`BucketFailure::Stopped`].
pub(super) struct PendingOperation<T: OperationResult> {
    op: BucketOp,
    subject: String,
    stored_bytes: u64,
    started: Instant,
    sent: SentFlag,
    metrics: Arc<BucketMetrics>,
    done: Option<OnBucketResult<T>>,
}

impl<T: OperationResult> PendingOperation<T> {
    pub(super) fn new(
        op: BucketOp,
        subject: &str,
        metrics: Arc<BucketMetrics>,
        done: OnBucketResult<T>,
    ) -> Self {
        Self {
            op,
            subject: subject.to_owned(),
            stored_bytes: 0,
            started: Instant::now(),
            sent: SentFlag::default(),
            metrics,
            done: Some(done),
        }
    }

    /// Sets the number of bytes that the operation stores if it succeeds.
    pub(super) fn of_bytes(mut self, bytes: u64) -> Self {
        self.stored_bytes = bytes;
        self
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    pub(super) fn sent_flag(&self) -> SentFlag {
        self.sent.clone()
    }

    /// Calls back with the result.
    pub(super) fn finish(mut self, result: T) {
        self.call(result);
    }

    /// Calls back with an error, to which operation and subject are added.
    pub(super) fn fail(mut self, error: BucketError) {
        self.call_failed(error.failure, &error.message);
    }

    /// Calls back with the error of an operation that took longer than `timeout`.
    pub(super) fn time_out(mut self, timeout: Duration) {
        let waited = if self.op == BucketOp::PutNew && !self.sent.is_set() {
            "no bytes in flight were free for"
        } else {
            "no complete response within"
        };
        self.call_failed(BucketFailure::Timeout, &format!("{waited} {timeout:?}"));
    }

    fn call_failed(&mut self, failure: BucketFailure, reason: &str) {
        let text = format!("{} {}: {reason}", self.op.verb(), self.subject);
        let error = BucketError::new(failure, text);
        self.call(T::failed(error, self.sent.is_set()));
    }

    fn call(&mut self, result: T) {
        let Some(done) = self.done.take() else { return };
        let outcome = result.outcome();
        let stored = match outcome {
            OperationOutcome::Stored => self.stored_bytes,
            _ => 0,
        };
        let bytes = result.bytes() + stored;
        self.metrics
            .finished(self.op, outcome, bytes, self.started.elapsed());
        done(result);
    }
}

impl<T: OperationResult> Drop for PendingOperation<T> {
    fn drop(&mut self) {
        if self.done.is_some() {
            self.call_failed(BucketFailure::Stopped, "the client was stopped");
        }
    }
}
