//! Durations of takeovers.

use firn_model::metrics::{Collect, DurationHistogram, MetricSink, MetricValue};

/// Durations of the phases of takeovers that ended in a leadership.
#[derive(Debug, Default)]
pub struct TakeoverMetrics {
    /// From the begin to the first read of the log by the store, while other partitions replay.
    pub(super) wait: DurationHistogram,
    /// From there to the leadership: the FENCE, unless it was created before, and the replay.
    pub(super) replay: DurationHistogram,
}

impl Collect for TakeoverMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        for (phase, histogram) in [("wait", &self.wait), ("replay", &self.replay)] {
            sink.metric(
                "firn_cluster_takeover_duration_seconds",
                "Durations of the phases of takeovers of partitions.",
                &[("phase", phase)],
                MetricValue::Histogram(histogram),
            );
        }
    }
}
