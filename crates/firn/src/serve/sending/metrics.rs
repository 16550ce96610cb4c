//! What sending on says of itself: the queue under names of its own, and Prometheus's metrics of
//! its senders, by which dashboards and alerts of the field know them.

use super::said::Tally as MetadataTally;
use super::{Following, Sending};
use crate::settings::config::remote_write::RemoteWrite;
use firn_mirror::tee::{Mirror, Tally, Target};
use firn_model::metrics::{Collect, Sink, Value};
use std::sync::Arc;

impl Collect for Sending {
    fn collect(&self, sink: &mut dyn Sink) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        queue.collect(&mut Renamed(sink));
        sink.metric(
            "prometheus_remote_storage_highest_timestamp_in_seconds",
            "The time of the newest sample that came in.",
            &[],
            Value::Gauge(seconds(self.newest.get())),
        );
        let senders = self.senders(queue);
        collect_queues(&senders, sink);
        collect_counts(&senders, sink);
        collect_metadata(&senders, sink);
    }
}

/// A metric of each receiver: its name behind the prefix, what it is, and where it is read.
type Column<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// The same of counts: the end of its name, of what, and where they are.
type TallyColumn = (&'static str, &'static str, fn(&Sender) -> &Tally);

/// One receiver, and what is counted of it.
struct Sender {
    /// The time of the newest sample that came in.
    newest: i64,
    receiver: RemoteWrite,
    target: Arc<Target>,
    metadata: Arc<MetadataTally>,
}

impl Sending {
    fn senders(&self, queue: &Mirror) -> Vec<Sender> {
        // A configuration that is being taken over waits for the disk; this does not wait for it.
        let Ok(following) = self.following.try_lock() else {
            return Vec::new();
        };
        let Following { receivers, .. } = &*following;
        let targets = queue.targets();
        let sender = |receiver: &RemoteWrite| {
            let target = targets.iter().find(|(key, _)| *key == receiver.key)?;
            Some(Sender {
                newest: self.newest.get(),
                receiver: receiver.clone(),
                target: target.1.clone(),
                metadata: self.said.tally_of(&receiver.key),
            })
        };
        receivers.iter().filter_map(sender).collect()
    }
}

fn collect_queues(senders: &[Sender], sink: &mut dyn Sink) {
    let gauges: [Column<Sender, f64>; 7] = [
        (
            "queue_highest_timestamp_seconds",
            "The time of the newest sample that waits or was sent.",
            |sender| seconds(sender.newest),
        ),
        (
            "queue_highest_sent_timestamp_seconds",
            "The time of the newest sample that the receiver took.",
            |sender| seconds(sender.target.newest.get()),
        ),
        (
            "shards",
            "Requests that are under way side by side.",
            |sender| sender.target.lanes.get().max(1) as f64,
        ),
        (
            "shards_desired",
            "Requests side by side that what waits asks for.",
            |sender| sender.target.lanes.get().max(1) as f64,
        ),
        (
            "shards_max",
            "Requests that may be under way side by side.",
            |sender| sender.receiver.shards.1 as f64,
        ),
        (
            "shards_min",
            "Requests side by side that the configuration asks for.",
            |sender| sender.receiver.shards.0 as f64,
        ),
        (
            "max_samples_per_send",
            "Samples of a request that is full.",
            |sender| sender.receiver.request_samples as f64,
        ),
    ];
    for (name, help, value) in gauges {
        each(sink, senders, (name, help), |s| Value::Gauge(value(s)));
    }
    let duration = (
        "sent_batch_duration_seconds",
        "How long requests took that were answered.",
    );
    each(sink, senders, duration, |sender| {
        Value::Histogram(&sender.target.latency)
    });
}

fn collect_counts(senders: &[Sender], sink: &mut dyn Sink) {
    let tallies: [TallyColumn; 3] = [
        ("_total", "that the receiver took.", |s| &s.target.taken),
        (
            "_failed_total",
            "that the receiver refused for good.",
            |s| &s.target.refused,
        ),
        ("_retried_total", "that were sent again, each time.", |s| {
            &s.target.repeated
        }),
    ];
    for (suffix, help, tally) in tallies {
        let kinds: [Column<Tally, u64>; 3] = [
            ("samples", "Samples", |tally| tally.samples.get()),
            ("histograms", "Histograms", |tally| tally.histograms.get()),
            ("exemplars", "Exemplars", |tally| tally.exemplars.get()),
        ];
        for (kind, what, count) in kinds {
            let (name, help) = (format!("{kind}{suffix}"), format!("{what} {help}"));
            each(sink, senders, (&name, &help), |sender| {
                Value::Counter(count(tally(sender)) as f64)
            });
        }
    }
    for sender in senders {
        let labels = [
            ("reason", "dropped_series"),
            ("remote_name", sender.receiver.label.as_str()),
            ("url", sender.receiver.url.as_str()),
        ];
        sink.metric(
            "prometheus_remote_storage_samples_dropped_total",
            "Samples that relabelling dropped, or that the receiver does not want.",
            &labels,
            Value::Counter(sender.target.dropped.get() as f64),
        );
    }
    let bytes = ("bytes_total", "Bytes of requests that the receiver took.");
    each(sink, senders, bytes, |sender| {
        Value::Counter(sender.target.sent_bytes.get() as f64)
    });
}

fn collect_metadata(senders: &[Sender], sink: &mut dyn Sink) {
    let counters: [Column<MetadataTally, u64>; 4] = [
        (
            "metadata_total",
            "Metrics that the receiver was told of.",
            |tally| tally.sent.get(),
        ),
        (
            "metadata_failed_total",
            "Metrics of which the receiver would not hear.",
            |tally| tally.failed.get(),
        ),
        (
            "metadata_retried_total",
            "Metrics that were told again, each time.",
            |tally| tally.retried.get(),
        ),
        (
            "metadata_bytes_total",
            "Bytes of what the receiver was told of metrics.",
            |tally| tally.bytes.get(),
        ),
    ];
    for (name, help, count) in counters {
        each(sink, senders, (name, help), |sender| {
            Value::Counter(count(&sender.metadata) as f64)
        });
    }
}

/// Gives the metric of each receiver, which Prometheus names by name and URL.
fn each<'s>(
    sink: &mut dyn Sink,
    senders: &'s [Sender],
    (name, help): (&str, &str),
    value: impl Fn(&'s Sender) -> Value<'s>,
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

/// Milliseconds as seconds; zero where there was nothing.
fn seconds(time_ms: i64) -> f64 {
    time_ms.max(0) as f64 / 1000.0
}

/// The queue's metrics under names of their own.
struct Renamed<'a>(&'a mut dyn Sink);

impl Sink for Renamed<'_> {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Value<'_>) {
        let rest = name.strip_prefix("firn_mirror_").unwrap_or(name);
        let name = format!("firn_sending_{rest}");
        self.0.metric(&name, help, labels, value);
    }
}
