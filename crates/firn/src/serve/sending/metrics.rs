//! What sending on says of itself: the queue under names of its own, and Prometheus's metrics of
//! its senders, by which dashboards and alerts of the field know them.

use super::Sending;
use super::said::Tally as MetadataTally;
use crate::settings::config::remote_write::RemoteWrite;
use firn_mirror::tee::{Mirror, Tally, Target};
use firn_model::metrics::{Collect, Sink, Value};
use firn_model::sync::lock;
use firn_wire::remote_write::Contents;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Samples that are made ready for a receiver at a time, at most.
const READY_SAMPLES: usize = firn_ingest::sending::ROUND_SAMPLES;

/// How long a body waits that a receiver is behind with.
const BEHIND_MS: i64 = 30_000;

impl Collect for Sending {
    fn collect(&self, sink: &mut dyn Sink) {
        if self.is_on.load(Ordering::Relaxed) {
            self.collect_opening(sink);
        }
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
        let came: [Column<Tally, u64>; 3] = [
            ("samples_in_total", "Samples that came in.", |came| {
                came.samples.get()
            }),
            ("histograms_in_total", "Histograms that came in.", |came| {
                came.histograms.get()
            }),
            ("exemplars_in_total", "Exemplars that came in.", |came| {
                came.exemplars.get()
            }),
        ];
        for (name, help, count) in came {
            let name = format!("prometheus_remote_storage_{name}");
            sink.metric(&name, help, &[], Value::Counter(count(&self.came) as f64));
        }
        let senders = self.senders(queue);
        collect_queues(&senders, sink);
        collect_shards(&senders, sink);
        collect_counts(&senders, sink);
        collect_dropped(&senders, sink);
        collect_metadata(&senders, sink);
    }
}

/// A metric of each receiver: its name behind the prefix, what it is, and where it is read.
type Column<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// The same of counts: the end of its name, of what, and where they are.
type TallyColumn = (&'static str, &'static str, fn(&Sender) -> &Tally);

/// Why something is not sent, and where what that is is counted.
type Reason = (&'static str, fn(&Target) -> &Tally);

/// One receiver, and what is counted of it.
struct Sender {
    /// The time of the newest sample that waits or was sent.
    newest: i64,
    /// What waits.
    waiting: Contents,
    /// Requests that the disk did not take.
    refused_bodies: u64,
    receiver: RemoteWrite,
    target: Arc<Target>,
    metadata: Arc<MetadataTally>,
}

impl Sending {
    fn collect_opening(&self, sink: &mut dyn Sink) {
        let is_failing = lock(&self.fault).is_some();
        sink.metric(
            "firn_sending_queue_unavailable",
            "1 while the queue cannot be opened, so that nothing is sent on.",
            &[],
            Value::Gauge(f64::from(u8::from(is_failing))),
        );
        sink.metric(
            "firn_sending_open_failures_total",
            "How often the queue could not be opened.",
            &[],
            Value::Counter(self.open_failures.get() as f64),
        );
        sink.metric(
            "firn_sending_unkept_requests_total",
            "Requests that came while the queue was not open: stored and not sent on, or refused \
             by an agent.",
            &[],
            Value::Counter(self.unkept.get() as f64),
        );
    }

    fn senders(&self, queue: &Mirror) -> Vec<Sender> {
        let receivers = lock(&self.receivers).clone();
        let targets = queue.targets();
        let now_ms = self.env.clock.now_ms();
        let sender = |receiver: &RemoteWrite| {
            let target = &targets.iter().find(|(key, _)| *key == receiver.key)?.1;
            let since_ms = target.oldest_ms.get();
            let is_behind = since_ms > 0 && now_ms.saturating_sub(since_ms) > BEHIND_MS;
            let ready = target.newest_ready.get();
            Some(Sender {
                // Of what waits only the beginning was relabelled.
                newest: match is_behind {
                    true => ready.max(self.newest.get()),
                    false => ready,
                },
                waiting: target.waiting(queue.waiting_bytes(target)),
                refused_bodies: queue.refused_bodies(),
                receiver: receiver.clone(),
                target: target.clone(),
                metadata: self.said.tally_of(&receiver.key),
            })
        };
        receivers.iter().filter_map(sender).collect()
    }
}

fn collect_queues(senders: &[Sender], sink: &mut dyn Sink) {
    let gauges: [Column<Sender, f64>; 5] = [
        (
            "queue_highest_timestamp_seconds",
            "The time of the newest sample that waits or was sent.",
            |sender| seconds(sender.newest),
        ),
        (
            "queue_highest_sent_timestamp_seconds",
            "The time of the newest sample that the receiver took, or refused for good.",
            |sender| seconds(sender.target.newest.get()),
        ),
        (
            "samples_pending",
            "Samples that wait, if what waits is as what was looked at last.",
            |sender| sender.waiting.samples as f64,
        ),
        (
            "histograms_pending",
            "Histograms that wait, if what waits is as what was looked at last.",
            |sender| sender.waiting.histograms as f64,
        ),
        (
            "exemplars_pending",
            "Exemplars that wait, if what waits is as what was looked at last.",
            |sender| sender.waiting.exemplars as f64,
        ),
    ];
    for (name, help, value) in gauges {
        each(sink, senders, (name, help), |s| Value::Gauge(value(s)));
    }
    let retries = (
        "enqueue_retries_total",
        "Requests that the disk did not take, which their senders bring again.",
    );
    each(sink, senders, retries, |sender| {
        Value::Counter(sender.refused_bodies as f64)
    });
    let duration = (
        "sent_batch_duration_seconds",
        "How long requests took that were answered.",
    );
    each(sink, senders, duration, |sender| {
        Value::Histogram(&sender.target.latency)
    });
}

fn collect_shards(senders: &[Sender], sink: &mut dyn Sink) {
    let gauges: [Column<Sender, f64>; 6] = [
        (
            "shards",
            "Requests that are under way side by side.",
            |sender| sender.target.lanes.get().max(1) as f64,
        ),
        (
            "shards_desired",
            "Requests side by side that take what comes and a twentieth of what waits each second.",
            |sender| {
                let desired = sender.target.lanes_desired();
                desired.unwrap_or(sender.receiver.shards.0 as f64)
            },
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
            "shard_capacity",
            "Samples that are made ready at a time, at most.",
            |sender| sender.receiver.request_samples.max(READY_SAMPLES) as f64,
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
        sink.metric(
            "firn_sending_apart_requests_total",
            "Requests of several that the receiver refused, and got again in their parts.",
            &[("target", &sender.receiver.label)],
            Value::Counter(sender.target.apart.get() as f64),
        );
    }
    let bytes = ("bytes_total", "Bytes of requests that the receiver took.");
    each(sink, senders, bytes, |sender| {
        Value::Counter(sender.target.sent_bytes.get() as f64)
    });
}

fn collect_dropped(senders: &[Sender], sink: &mut dyn Sink) {
    let reasons: [Reason; 3] = [
        ("dropped_series", |target| &target.dropped),
        ("queue_full", |target| &target.overflowed),
        ("too_old", |target| &target.too_old),
    ];
    let kinds: [Column<Tally, u64>; 3] = [
        (
            "samples_dropped_total",
            "Samples that relabelling dropped, the receiver does not want, a full queue gave up, \
             or that were too old.",
            |tally| tally.samples.get(),
        ),
        (
            "histograms_dropped_total",
            "Histograms that relabelling dropped, the receiver does not want, a full queue gave \
             up, or that were too old.",
            |tally| tally.histograms.get(),
        ),
        (
            "exemplars_dropped_total",
            "Exemplars that relabelling dropped, a full queue gave up, or that were too old.",
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
                sink.metric(&name, help, &labels, Value::Counter(count));
            }
        }
    }
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
