//! Metrics of `firn mirror`, which are collected from the log and its targets on each scrape.

use super::Mirror;
use super::target::{BodyLossReason, DeliveryTarget};
use super::verdict::RetryReason;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use std::sync::Arc;

impl Collect for Mirror {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.collect_log(sink);
        let targets: Vec<Arc<DeliveryTarget>> =
            self.targets().into_iter().map(|(_, t)| t).collect();
        self.collect_targets(&targets, sink);
    }
}

impl Mirror {
    fn collect_log(&self, sink: &mut dyn MetricSink) {
        let counters = [
            (
                "firn_mirror_received_bodies_total",
                "Acknowledged bodies.",
                &self.taken.bodies,
            ),
            (
                "firn_mirror_received_bytes_total",
                "Bytes of acknowledged bodies.",
                &self.taken.bytes,
            ),
            (
                "firn_mirror_refused_bodies_total",
                "Bodies answered with 503 because they could not be written to disk.",
                &self.taken.refused,
            ),
            (
                "firn_mirror_cursors_failed_total",
                "Failures to write the delivery positions of the targets to disk.",
                &self.cursors_failed,
            ),
        ];
        for (name, help, counter) in counters {
            sink.metric(name, help, &[], MetricValue::Counter(counter.get() as f64));
        }
        sink.metric(
            "firn_mirror_log_bytes",
            "Bytes of bodies on disk, for all targets together.",
            &[],
            MetricValue::Gauge(self.bodies.bytes() as f64),
        );
        sink.metric(
            "firn_mirror_disk_failing",
            "1 while bodies cannot be written to disk.",
            &[],
            MetricValue::Gauge(f64::from(u8::from(self.bodies.fault().is_some()))),
        );
    }

    fn collect_targets(&self, targets: &[Arc<DeliveryTarget>], sink: &mut dyn MetricSink) {
        let mut each =
            |name: &str, help: &str, value: &dyn Fn(&DeliveryTarget) -> MetricValue<'static>| {
                for target in targets {
                    sink.metric(name, help, &[("target", &target.label)], value(target));
                }
            };
        each(
            "firn_mirror_sent_bodies_total",
            "Bodies accepted by the target.",
            &|target| MetricValue::Counter(target.sent.get() as f64),
        );
        each(
            "firn_mirror_sent_bytes_total",
            "Bytes of bodies accepted by the target.",
            &|target| MetricValue::Counter(target.sent_bytes.get() as f64),
        );
        each(
            "firn_mirror_filtered_bodies_total",
            "Bodies without a series that the filters of the target select.",
            &|target| MetricValue::Counter(target.filtered.get() as f64),
        );
        each(
            "firn_mirror_queue_bytes",
            "Bytes queued for the target.",
            &|target| MetricValue::Gauge(self.waiting_bytes(target) as f64),
        );
        let now_ms = self.env.clock.now_ms();
        each(
            "firn_mirror_queue_age_seconds",
            "Age of the oldest body queued for the target.",
            &|target| {
                let waited_ms = match target.oldest_ms.get() {
                    0 => 0,
                    oldest_ms => now_ms.saturating_sub(oldest_ms).max(0),
                };
                MetricValue::Gauge(waited_ms as f64 / 1000.0)
            },
        );
        each(
            "firn_mirror_target_failing",
            "1 while the newest attempt to send to the target failed.",
            &|target| MetricValue::Gauge(target.is_failing.get() as f64),
        );
        collect_by_reason(targets, sink);
        for target in targets {
            sink.metric(
                "firn_mirror_send_duration_seconds",
                "Duration of attempts that the target answered.",
                &[("target", &target.label)],
                MetricValue::Histogram(&target.latency),
            );
        }
    }
}

fn collect_by_reason(targets: &[Arc<DeliveryTarget>], sink: &mut dyn MetricSink) {
    for target in targets {
        for loss in BodyLossReason::ALL {
            sink.metric(
                "firn_mirror_lost_bodies_total",
                "Bodies dropped without delivery: the queue of the target was full, they were too \
                 old, the target rejected them (4xx), the filters could not decode them, or they \
                 could not be read from disk.",
                &[("reason", loss.label()), ("target", &target.label)],
                MetricValue::Counter(target.lost_bodies(loss) as f64),
            );
        }
    }
    for target in targets {
        for trouble in RetryReason::ALL {
            sink.metric(
                "firn_mirror_repeated_attempts_total",
                "Failed attempts that are retried: no connection, timeout, 429, 5xx, redirect, or \
                 no access (401, 403, 404, 405, 407).",
                &[("reason", trouble.label()), ("target", &target.label)],
                MetricValue::Counter(target.repeated_attempts(trouble) as f64),
            );
        }
    }
}
