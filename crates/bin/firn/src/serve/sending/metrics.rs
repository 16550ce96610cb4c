//! Metrics of `remote_write`: the queue under Firn's names, and the sender metrics of Prometheus,
//! which existing dashboards and alerts use.

use super::RemoteWriteManager;
use super::said::SentMetadataCounters as MetadataTally;
use firn_config::config::remote_write::RemoteWriteSettings;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::sync::lock;
use firn_remote_write::queue::{DeliveryTarget, Mirror, RequestContentCounters};
use firn_wire::remote_write::WriteRequestContents;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of samples prepared for a receiver at a time.
const READY_SAMPLES: usize = firn_remote_write::ROUND_SAMPLES;

/// Age of the oldest waiting request, in milliseconds, from which a receiver counts as behind.
const BEHIND_MS: i64 = 30_000;

impl Collect for RemoteWriteManager {
    fn collect(&self, sink: &mut dyn MetricSink) {
        if self.is_on.load(Ordering::Relaxed) {
            self.collect_opening(sink);
        }
        let Some(queue) = self.queue.get() else {
            return;
        };
        queue.collect(&mut MetricRenamingSink(sink));
        sink.metric(
            "prometheus_remote_storage_highest_timestamp_in_seconds",
            "Timestamp of the newest received sample.",
            &[],
            MetricValue::Gauge(seconds(self.newest.get())),
        );
        let came: [Column<RequestContentCounters, u64>; 3] = [
            (
                "samples_in_total",
                "Samples received for remote write.",
                |came| came.samples.get(),
            ),
            (
                "histograms_in_total",
                "Histograms received for remote write.",
                |came| came.histograms.get(),
            ),
            (
                "exemplars_in_total",
                "Exemplars received for remote write.",
                |came| came.exemplars.get(),
            ),
        ];
        for (name, help, count) in came {
            let name = format!("prometheus_remote_storage_{name}");
            sink.metric(
                &name,
                help,
                &[],
                MetricValue::Counter(count(&self.came) as f64),
            );
        }
        let senders = self.senders(queue);
        collect_queues(&senders, sink);
        collect_shards(&senders, sink);
        collect_counts(&senders, sink);
        collect_dropped(&senders, sink);
        collect_metadata(&senders, sink);
    }
}

/// A metric of each receiver: name without the prefix, help text, and function that reads the
/// value.
type Column<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// A counter of each receiver: end of its name, help text, and function that returns the tally.
type TallyColumn = (
    &'static str,
    &'static str,
    fn(&ReceiverMetricsView) -> &RequestContentCounters,
);

/// Value of the label `reason` of dropped items, and the function that returns their tally for a
/// receiver.
type Reason = (&'static str, fn(&DeliveryTarget) -> &RequestContentCounters);

/// One receiver with the values of its metrics at the time of the collection.
struct ReceiverMetricsView {
    /// Time of the newest sample that waits or was sent, in milliseconds since the epoch.
    newest: i64,
    /// Numbers of samples, histograms and exemplars that wait in the queue.
    waiting: WriteRequestContents,
    /// Number of requests that could not be written to the queue on disk.
    refused_bodies: u64,
    receiver: RemoteWriteSettings,
    target: Arc<DeliveryTarget>,
    metadata: Arc<MetadataTally>,
}

impl RemoteWriteManager {
    fn collect_opening(&self, sink: &mut dyn MetricSink) {
        let is_failing = lock(&self.fault).is_some();
        sink.metric(
            "firn_sending_queue_unavailable",
            "1 while the queue cannot be opened and nothing is sent.",
            &[],
            MetricValue::Gauge(f64::from(u8::from(is_failing))),
        );
        sink.metric(
            "firn_sending_open_failures_total",
            "Failed attempts to open the queue.",
            &[],
            MetricValue::Counter(self.open_failures.get() as f64),
        );
        sink.metric(
            "firn_sending_unkept_requests_total",
            "Requests received while the queue was not open. A server stored them without sending \
             them; an agent rejected them.",
            &[],
            MetricValue::Counter(self.unkept.get() as f64),
        );
    }

    fn senders(&self, queue: &Mirror) -> Vec<ReceiverMetricsView> {
        let receivers = lock(&self.receivers).clone();
        let targets = queue.targets();
        let now_ms = self.env.clock.now_ms();
        let sender = |receiver: &RemoteWriteSettings| {
            let target = &targets.iter().find(|(key, _)| *key == receiver.key)?.1;
            let since_ms = target.oldest_ms.get();
            let is_behind = since_ms > 0 && now_ms.saturating_sub(since_ms) > BEHIND_MS;
            let ready = target.newest_ready.get();
            Some(ReceiverMetricsView {
                // If the receiver is behind, only the first part of the waiting requests was
                // relabeled.
                newest: if is_behind {
                    ready.max(self.newest.get())
                } else {
                    ready
                },
                waiting: target.waiting(queue.waiting_bytes(target)),
                refused_bodies: queue.refused_bodies(),
                receiver: receiver.clone(),
                target: target.clone(),
                metadata: self.said.counters_for(&receiver.key),
            })
        };
        receivers.iter().filter_map(sender).collect()
    }
}

fn collect_queues(senders: &[ReceiverMetricsView], sink: &mut dyn MetricSink) {
    let gauges: [Column<ReceiverMetricsView, f64>; 5] = [
        (
            "queue_highest_timestamp_seconds",
            "Timestamp of the newest queued or sent sample.",
            |sender| seconds(sender.newest),
        ),
        (
            "queue_highest_sent_timestamp_seconds",
            "Timestamp of the newest sample that the receiver accepted, or rejected permanently.",
            |sender| seconds(sender.target.newest.get()),
        ),
        (
            "samples_pending",
            "Queued samples, estimated from the most recently sent data.",
            |sender| sender.waiting.samples as f64,
        ),
        (
            "histograms_pending",
            "Queued histograms, estimated from the most recently sent data.",
            |sender| sender.waiting.histograms as f64,
        ),
        (
            "exemplars_pending",
            "Queued exemplars, estimated from the most recently sent data.",
            |sender| sender.waiting.exemplars as f64,
        ),
    ];
    for (name, help, value) in gauges {
        write_per_receiver(sink, senders, name, help, |s| MetricValue::Gauge(value(s)));
    }
    let name = "enqueue_retries_total";
    let help = "Requests that could not be written to the queue on disk; their senders retry.";
    write_per_receiver(sink, senders, name, help, |sender| {
        MetricValue::Counter(sender.refused_bodies as f64)
    });
    let name = "sent_batch_duration_seconds";
    let help = "Duration of answered requests.";
    write_per_receiver(sink, senders, name, help, |sender| {
        MetricValue::Histogram(&sender.target.latency)
    });
}

fn collect_shards(senders: &[ReceiverMetricsView], sink: &mut dyn MetricSink) {
    let gauges: [Column<ReceiverMetricsView, f64>; 6] = [
        ("shards", "Concurrent requests to the receiver.", |sender| {
            sender.target.lanes.get().max(1) as f64
        }),
        (
            "shards_desired",
            "Number of concurrent requests needed to send the incoming data and a twentieth of \
             the backlog per second.",
            |sender| {
                let desired = sender.target.desired_lanes();
                desired.unwrap_or(sender.receiver.shards.0 as f64)
            },
        ),
        (
            "shards_max",
            "Maximum number of concurrent requests in use.",
            |sender| sender.receiver.shards.1 as f64,
        ),
        (
            "shards_min",
            "Minimum number of concurrent requests in the configuration.",
            |sender| sender.receiver.shards.0 as f64,
        ),
        (
            "shard_capacity",
            "Maximum number of samples prepared for sending at a time.",
            |sender| sender.receiver.request_samples.max(READY_SAMPLES) as f64,
        ),
        (
            "max_samples_per_send",
            "Number of samples in a full request.",
            |sender| sender.receiver.request_samples as f64,
        ),
    ];
    for (name, help, value) in gauges {
        write_per_receiver(sink, senders, name, help, |s| MetricValue::Gauge(value(s)));
    }
}

fn collect_counts(senders: &[ReceiverMetricsView], sink: &mut dyn MetricSink) {
    let tallies: [TallyColumn; 3] = [
        ("_total", "accepted by the receiver.", |s| &s.target.taken),
        (
            "_failed_total",
            "permanently rejected by the receiver.",
            |s| &s.target.refused,
        ),
        ("_retried_total", "sent again, counted each time.", |s| {
            &s.target.repeated
        }),
    ];
    for (suffix, help, tally) in tallies {
        let kinds: [Column<RequestContentCounters, u64>; 3] = [
            ("samples", "Samples", |tally| tally.samples.get()),
            ("histograms", "Histograms", |tally| tally.histograms.get()),
            ("exemplars", "Exemplars", |tally| tally.exemplars.get()),
        ];
        for (kind, what, count) in kinds {
            let (name, help) = (format!("{kind}{suffix}"), format!("{what} {help}"));
            write_per_receiver(sink, senders, &name, &help, |sender| {
                MetricValue::Counter(count(tally(sender)) as f64)
            });
        }
    }
    for sender in senders {
        sink.metric(
            "firn_sending_apart_requests_total",
            "Merged requests that the receiver rejected and that were then sent in parts.",
            &[("target", &sender.receiver.label)],
            MetricValue::Counter(sender.target.apart.get() as f64),
        );
    }
    let help = "Bytes of requests accepted by the receiver.";
    write_per_receiver(sink, senders, "bytes_total", help, |sender| {
        MetricValue::Counter(sender.target.sent_bytes.get() as f64)
    });
}

fn collect_dropped(senders: &[ReceiverMetricsView], sink: &mut dyn MetricSink) {
    let reasons: [Reason; 3] = [
        ("dropped_series", |target| &target.dropped),
        ("queue_full", |target| &target.overflowed),
        ("too_old", |target| &target.too_old),
    ];
    let kinds: [Column<RequestContentCounters, u64>; 3] = [
        (
            "samples_dropped_total",
            "Samples dropped by relabeling, because the receiver does not accept them, because \
             the queue was full, or because of their age.",
            |tally| tally.samples.get(),
        ),
        (
            "histograms_dropped_total",
            "Histograms dropped by relabeling, because the receiver does not accept them, because \
             the queue was full, or because of their age.",
            |tally| tally.histograms.get(),
        ),
        (
            "exemplars_dropped_total",
            "Exemplars dropped by relabeling, because the queue was full, or because of their age.",
            |tally| tally.exemplars.get(),
        ),
    ];
    for (name, help, count) in kinds {
        let name = format!("prometheus_remote_storage_{name}");
        for sender in senders {
            for (reason, tally) in reasons {
                let labels = [
                    ("reason", reason),
                    ("remote_name", sender.receiver.label.as_str()),
                    ("url", sender.receiver.url.as_str()),
                ];
                let count = count(tally(&sender.target)) as f64;
                sink.metric(&name, help, &labels, MetricValue::Counter(count));
            }
        }
    }
}

fn collect_metadata(senders: &[ReceiverMetricsView], sink: &mut dyn MetricSink) {
    let counters: [Column<MetadataTally, u64>; 4] = [
        (
            "metadata_total",
            "Metadata entries accepted by the receiver.",
            |tally| tally.sent.get(),
        ),
        (
            "metadata_failed_total",
            "Metadata entries rejected by the receiver.",
            |tally| tally.failed.get(),
        ),
        (
            "metadata_retried_total",
            "Metadata entries sent again, counted each time.",
            |tally| tally.retried.get(),
        ),
        (
            "metadata_bytes_total",
            "Bytes of metadata sent to the receiver.",
            |tally| tally.bytes.get(),
        ),
    ];
    for (name, help, count) in counters {
        write_per_receiver(sink, senders, name, help, |sender| {
            MetricValue::Counter(count(&sender.metadata) as f64)
        });
    }
}

/// Writes one metric for each receiver, with the labels of Prometheus: the name and the URL of the
/// receiver.
fn write_per_receiver<'s>(
    sink: &mut dyn MetricSink,
    senders: &'s [ReceiverMetricsView],
    name: &str,
    help: &str,
    value: impl Fn(&'s ReceiverMetricsView) -> MetricValue<'s>,
) {
    let name = format!("prometheus_remote_storage_{name}");
    for sender in senders {
        let labels = [
            ("remote_name", sender.receiver.label.as_str()),
            ("url", sender.receiver.url.as_str()),
        ];
        sink.metric(&name, help, &labels, value(sender));
    }
}

/// Converts milliseconds into seconds. Negative values, which mean "none yet", become zero.
fn seconds(time_ms: i64) -> f64 {
    time_ms.max(0) as f64 / 1000.0
}

/// Sink that renames the metrics of the mirror's queue from `firn_mirror_*` to `firn_sending_*` and
/// passes them on.
struct MetricRenamingSink<'a>(&'a mut dyn MetricSink);

impl MetricSink for MetricRenamingSink<'_> {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
        let rest = name.strip_prefix("firn_mirror_").unwrap_or(name);
        let name = format!("firn_sending_{rest}");
        self.0.metric(&name, help, labels, value);
    }
}
