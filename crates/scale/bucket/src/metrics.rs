//! The metrics of a bucket: operations by outcome, their bytes and durations.

use firn_model::metrics::{Collect, Counter, DurationHistogram, Gauge, MetricSink, MetricValue};
use std::time::Duration;

/// An operation of [`crate::Bucket`], as a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketOp {
    PutNew,
    Get,
    GetRange,
    Head,
    List,
    Delete,
}

/// The outcome of an operation, as a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationOutcome {
    Stored,
    Exists,
    Ambiguous,
    Refused,
    Found,
    Missing,
    Failed,
}

impl BucketOp {
    const ALL: [BucketOp; 6] = [
        BucketOp::PutNew,
        BucketOp::Get,
        BucketOp::GetRange,
        BucketOp::Head,
        BucketOp::List,
        BucketOp::Delete,
    ];

    /// Returns the verb with which error texts begin.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            BucketOp::PutNew => "create",
            BucketOp::Get | BucketOp::GetRange => "read",
            BucketOp::Head | BucketOp::List | BucketOp::Delete => self.name(),
        }
    }

    /// Returns the value of the label `op`.
    fn name(self) -> &'static str {
        match self {
            BucketOp::PutNew => "put_new",
            BucketOp::Get => "get",
            BucketOp::GetRange => "get_range",
            BucketOp::Head => "head",
            BucketOp::List => "list",
            BucketOp::Delete => "delete",
        }
    }

    fn outcomes(self) -> &'static [OperationOutcome] {
        use OperationOutcome::*;
        match self {
            BucketOp::PutNew => &[Ambiguous, Exists, Refused, Stored],
            BucketOp::Get | BucketOp::GetRange | BucketOp::Head => &[Failed, Found, Missing],
            BucketOp::List | BucketOp::Delete => &[Failed, Found],
        }
    }
}

impl OperationOutcome {
    const COUNT: usize = 7;

    fn name(self) -> &'static str {
        match self {
            OperationOutcome::Stored => "stored",
            OperationOutcome::Exists => "exists",
            OperationOutcome::Ambiguous => "ambiguous",
            OperationOutcome::Refused => "refused",
            OperationOutcome::Found => "ok",
            OperationOutcome::Missing => "missing",
            OperationOutcome::Failed => "failed",
        }
    }
}

/// Metrics of the clients that share them, exported under `firn_bucket_`.
#[derive(Debug, Default)]
pub struct BucketMetrics {
    operations: [Operations; BucketOp::ALL.len()],
    pub(crate) in_flight: Gauge,
    pub(crate) bytes_in_flight: Gauge,
    refused: Gauge,
}

#[derive(Debug, Default)]
struct Operations {
    by_outcome: [Counter; OperationOutcome::COUNT],
    bytes: Counter,
    hedges: Counter,
    duration: DurationHistogram,
}

impl BucketMetrics {
    /// Counts a finished operation with the bytes of objects that it moved.
    pub(crate) fn finished(
        &self,
        op: BucketOp,
        outcome: OperationOutcome,
        bytes: u64,
        took: Duration,
    ) {
        debug_assert!(
            op.outcomes().contains(&outcome),
            "{op:?} ended as {outcome:?}"
        );
        let operations = &self.operations[op as usize];
        operations.by_outcome[outcome as usize].inc();
        operations.bytes.add(bytes);
        operations.duration.observe(took);
    }

    /// Counts the second attempt of an operation.
    pub(crate) fn hedged(&self, op: BucketOp) {
        self.operations[op as usize].hedges.inc();
    }

    /// Records that the store failed the test of conditional creations. Lasts until the process
    /// ends.
    pub fn set_refused(&self) {
        self.refused.set(1);
    }

    fn each<'m>(
        &'m self,
        sink: &mut dyn MetricSink,
        name: &str,
        help: &str,
        value: fn(&'m Operations) -> MetricValue<'m>,
    ) {
        for op in BucketOp::ALL {
            let value = value(&self.operations[op as usize]);
            sink.metric(name, help, &[("op", op.name())], value);
        }
    }
}

impl Collect for BucketMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        for op in BucketOp::ALL {
            let operations = &self.operations[op as usize];
            for outcome in op.outcomes() {
                let count = operations.by_outcome[*outcome as usize].get();
                sink.metric(
                    "firn_bucket_requests_total",
                    "Finished operations of the bucket. A second attempt is not counted.",
                    &[("op", op.name()), ("outcome", outcome.name())],
                    MetricValue::Counter(count as f64),
                );
            }
        }
        self.each(
            sink,
            "firn_bucket_bytes_total",
            "Bytes of objects that were stored in or read from the bucket.",
            |operations| MetricValue::Counter(operations.bytes.get() as f64),
        );
        self.each(
            sink,
            "firn_bucket_hedges_total",
            "Second attempts of operations whose first attempt was slow.",
            |operations| MetricValue::Counter(operations.hedges.get() as f64),
        );
        self.each(
            sink,
            "firn_bucket_request_duration_seconds",
            "Duration of operations of the bucket, with the wait for bytes in flight.",
            |operations| MetricValue::Histogram(&operations.duration),
        );
        sink.metric(
            "firn_bucket_requests_in_flight",
            "Operations of the bucket that run or wait.",
            &[],
            MetricValue::Gauge(self.in_flight.get() as f64),
        );
        sink.metric(
            "firn_bucket_bytes_in_flight",
            "Bytes of objects reserved by running operations of the bucket.",
            &[],
            MetricValue::Gauge(self.bytes_in_flight.get() as f64),
        );
        sink.metric(
            "firn_bucket_refused",
            "1 after the store failed the test of conditional creations: writes are rejected.",
            &[],
            MetricValue::Gauge(self.refused.get() as f64),
        );
    }
}
