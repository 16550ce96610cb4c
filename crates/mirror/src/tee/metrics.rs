//! What `firn mirror` says of itself.

use super::Mirror;
use super::target::{Loss, Target};
use super::verdict::Trouble;
use firn_model::metrics::{Collect, Sink, Value};
use std::sync::Arc;

impl Collect for Mirror {
    fn collect(&self, sink: &mut dyn Sink) {
        self.collect_log(sink);
        let targets: Vec<Arc<Target>> = self.targets().into_iter().map(|(_, t)| t).collect();
        self.collect_targets(&targets, sink);
    }
}

impl Mirror {
    fn collect_log(&self, sink: &mut dyn Sink) {
        let counters = [
            (
                "firn_mirror_received_bodies_total",
                "Bodies that were acknowledged.",
                &self.taken.bodies,
            ),
            (
                "firn_mirror_received_bytes_total",
                "Bytes of bodies that were acknowledged.",
                &self.taken.bytes,
            ),
            (
                "firn_mirror_refused_bodies_total",
                "Bodies answered with 503 because the disk did not take them.",
                &self.taken.refused,
            ),
            (
                "firn_mirror_cursors_failed_total",
                "How often the disk did not take how far targets have got.",
                &self.cursors_failed,
            ),
        ];
        for (name, help, counter) in counters {
            sink.metric(name, help, &[], Value::Counter(counter.get() as f64));
        }
        sink.metric(
            "firn_mirror_log_bytes",
            "Bytes of bodies on disk, for all targets together.",
            &[],
            Value::Gauge(self.bodies.bytes() as f64),
        );
        sink.metric(
            "firn_mirror_disk_failing",
            "1 while the disk takes no bodies.",
            &[],
            Value::Gauge(f64::from(u8::from(self.bodies.fault().is_some()))),
        );
    }

    fn collect_targets(&self, targets: &[Arc<Target>], sink: &mut dyn Sink) {
        let mut each = |name: &str, help: &str, value: &dyn Fn(&Target) -> Value<'static>| {
            for target in targets {
                sink.metric(name, help, &[("target", &target.label)], value(target));
            }
        };
        each(
            "firn_mirror_sent_bodies_total",
            "Bodies that the target took.",
            &|target| Value::Counter(target.sent.get() as f64),
        );
        each(
            "firn_mirror_sent_bytes_total",
            "Bytes of bodies that the target took.",
            &|target| Value::Counter(target.sent_bytes.get() as f64),
        );
        each(
            "firn_mirror_filtered_bodies_total",
            "Bodies of which the target wants no series.",
            &|target| Value::Counter(target.filtered.get() as f64),
        );
        each(
            "firn_mirror_queue_bytes",
            "Bytes that wait for the target.",
            &|target| Value::Gauge(self.waiting_bytes(target) as f64),
        );
        let now_ms = self.env.clock.now_ms();
        each(
            "firn_mirror_queue_age_seconds",
            "How long the oldest body has waited for the target.",
            &|target| {
                let waited_ms = match target.oldest_ms.get() {
                    0 => 0,
                    oldest_ms => now_ms.saturating_sub(oldest_ms).max(0),
                };
                Value::Gauge(waited_ms as f64 / 1000.0)
            },
        );
        each(
            "firn_mirror_target_failing",
            "1 while the newest attempt to send to the target failed.",
            &|target| Value::Gauge(target.is_failing.get() as f64),
        );
        collect_by_reason(targets, sink);
        for target in targets {
            sink.metric(
                "firn_mirror_send_duration_seconds",
                "How long attempts took that the target answered.",
                &[("target", &target.label)],
                Value::Histogram(&target.latency),
            );
        }
    }
}

fn collect_by_reason(targets: &[Arc<Target>], sink: &mut dyn Sink) {
    for target in targets {
        for loss in Loss::ALL {
            sink.metric(
                "firn_mirror_lost_bodies_total",
                "Bodies that the target never gets: its queue was full, they waited too long, it \
                 refused them (4xx), filters could not read them, or the disk did not give them \
                 back.",
                &[("reason", loss.label()), ("target", &target.label)],
                Value::Counter(target.lost(loss) as f64),
            );
        }
    }
    for target in targets {
        for trouble in Trouble::ALL {
            sink.metric(
                "firn_mirror_repeated_attempts_total",
                "Attempts that failed and are repeated: no connection, no answer in time, 429, \
                 5xx, a redirect, or no access (401, 403, 404, 405, 407).",
                &[("reason", trouble.label()), ("target", &target.label)],
                Value::Counter(target.troubles(trouble) as f64),
            );
        }
    }
}
