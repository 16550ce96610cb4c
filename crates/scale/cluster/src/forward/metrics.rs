//! Metrics of writes and reads that pass between nodes.

use firn_model::metrics::{Collect, Counter, DurationHistogram, MetricSink, MetricValue};

/// Counts of forwarded writes and of reads that waited for a leader.
#[derive(Debug, Default)]
pub struct ForwardMetrics {
    /// Samples that were sent to the leader of their partition and acknowledged.
    pub(super) samples: Counter,
    /// Bytes of the requests with these samples, with repeats.
    pub(super) bytes: Counter,
    /// Parts of batches that were sent again: the node did not lead the partition, or did not
    /// answer.
    pub(super) retries: Counter,
    /// Parts of batches that no leader acknowledged in time.
    pub(super) failures: Counter,
    /// Reads that waited for a partition without a leader.
    pub(super) waits: Counter,
    /// Durations of acknowledged parts, from the append to the acknowledgement.
    pub(super) acknowledgements: DurationHistogram,
}

impl Collect for ForwardMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let counters = [
            (
                "firn_cluster_forwarded_samples_total",
                "Samples that were forwarded to the leader of their partition and acknowledged.",
                &self.samples,
            ),
            (
                "firn_cluster_forwarded_bytes_total",
                "Bytes of requests with forwarded samples.",
                &self.bytes,
            ),
            (
                "firn_cluster_forward_retries_total",
                "Parts of writes that were sent again to the leader of their partition.",
                &self.retries,
            ),
            (
                "firn_cluster_forward_failures_total",
                "Parts of writes that no leader acknowledged in time.",
                &self.failures,
            ),
            (
                "firn_cluster_strong_waits_total",
                "Reads that waited for a partition without a leader.",
                &self.waits,
            ),
        ];
        for (name, help, counter) in counters {
            sink.metric(name, help, &[], MetricValue::Counter(counter.get() as f64));
        }
        sink.metric(
            "firn_cluster_ack_duration_seconds",
            "Time from the arrival of a forwarded part of a write to its acknowledgement.",
            &[],
            MetricValue::Histogram(&self.acknowledgements),
        );
    }
}
