//! Exports spans of the server to the collector in the section `tracing` of the config.
//!
//! Invariant: a slow or unreachable collector loses spans and affects nothing else. The queue is
//! bounded, and each request is retried for at most a minute.

use firn_config::config::Config;
use firn_config::config::tracing::TracingSettings;
use firn_ingest::span_export::SpanExporter;
use firn_model::metrics::{Collect, Counter, MetricSink, MetricValue};
use firn_model::sync::lock;
use firn_model::trace::{FinishedSpan, Tracer};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};
use tracing::{error, info, warn};

/// Interval of the checks whether spans wait for the export.
const LOOK: Duration = Duration::from_secs(1);

/// Number of checks after which waiting spans are sent even if they are few, as in OpenTelemetry's
/// SDKs.
const LOOKS_MAX: u32 = 5;

/// Spans per request. A request is sent as soon as this many spans wait.
const REQUEST_SPANS: usize = 512;

/// Pauses between the attempts of one request, as in OpenTelemetry's exporters.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
];

/// Maximum time for sending the last spans at a stop or when the collector changes.
const LAST: Duration = Duration::from_secs(5);

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Numbers of spans that were exported, and of those whose export failed, since the start of the
/// process.
#[derive(Debug, Default)]
struct SpanExportCounts {
    exported: Counter,
    failed: Counter,
}

/// Exporter of finished spans to a collector, which follows the config. Created at the start;
/// without a collector it discards spans.
pub struct SpanExportManager {
    tracer: Arc<Tracer>,
    counts: Arc<SpanExportCounts>,
    following: Mutex<SpanExportState>,
    runtime: Handle,
}

#[derive(Default)]
struct SpanExportState {
    tracing: Option<TracingSettings>,
    exporter: Option<Arc<SpanExporter>>,
    task: Option<JoinHandle<()>>,
}

impl SpanExportManager {
    /// Creates an exporter that discards the spans of `tracer` until
    /// [`SpanExportManager::apply_config`] sets a collector. Must be called inside the runtime.
    pub fn new(tracer: Arc<Tracer>) -> Self {
        Self {
            tracer,
            counts: Arc::default(),
            following: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// Returns the tracer that starts the spans exported here.
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    /// Applies the sampling and the collector of `config`, if they changed. Spans that wait for the
    /// old collector are still sent to it.
    pub fn apply_config(&self, config: &Config) {
        let mut following = lock(&self.following);
        if following.tracing == config.tracing {
            return;
        }
        self.end(&mut following);
        following.tracing.clone_from(&config.tracing);
        let Some(TracingSettings {
            collector,
            fraction,
        }) = &config.tracing
        else {
            self.tracer.set_fraction(None);
            info!("export of spans stopped");
            return;
        };
        match SpanExporter::new(collector.clone()) {
            Ok(exporter) => {
                let exporter = Arc::new(exporter);
                let task =
                    keep_exporting(self.tracer.clone(), exporter.clone(), self.counts.clone());
                following.exporter = Some(exporter);
                following.task = Some(self.runtime.spawn(task));
                self.tracer.set_fraction(Some(*fraction));
                info!(endpoint = collector.endpoint, fraction, "exporting spans");
            }
            Err(e) => {
                self.tracer.set_fraction(None);
                error!(error = e, "failed to start the export of spans");
            }
        }
    }

    /// Ends the export task. Waiting spans are sent to the old collector in the background, for a
    /// limited time. Returns that task, if there is one.
    fn end(&self, following: &mut SpanExportState) -> Option<JoinHandle<()>> {
        let task = following.task.take()?;
        task.abort();
        let exporter = following.exporter.take()?;
        let (spans, counts) = (self.tracer.take_finished(), self.counts.clone());
        Some(self.runtime.spawn(async move {
            let last = send(&exporter, &spans, &counts, &[]);
            // Spans that are not sent in time are lost, like those of a process that ends.
            let _ = timeout(LAST, last).await;
        }))
    }

    /// Sends the waiting spans, for a limited time, and ends the export.
    pub async fn stop(&self) {
        let last = self.end(&mut lock(&self.following));
        if let Some(last) = last {
            // The task fails only by a panic.
            let _ = last.await;
        }
    }
}

async fn keep_exporting(
    tracer: Arc<Tracer>,
    exporter: Arc<SpanExporter>,
    counts: Arc<SpanExportCounts>,
) {
    let mut looks = 0;
    let mut look = interval(LOOK);
    loop {
        look.tick().await;
        looks += 1;
        let waiting = tracer.finished_count();
        if waiting >= REQUEST_SPANS || waiting > 0 && looks >= LOOKS_MAX {
            looks = 0;
            send(&exporter, &tracer.take_finished(), &counts, &PAUSES).await;
        }
    }
}

/// Sends `spans` in requests of limited size, with these pauses between the attempts of a request,
/// and counts the outcome.
async fn send(
    exporter: &SpanExporter,
    spans: &[FinishedSpan],
    counts: &SpanExportCounts,
    pauses: &[Duration],
) {
    for spans in spans.chunks(REQUEST_SPANS) {
        let mut pauses = pauses.iter();
        let outcome = loop {
            match exporter.export_spans(VERSION, spans).await {
                Err(e) if e.may_repeat => match pauses.next() {
                    Some(pause) => sleep(*pause).await,
                    None => break Err(e.why),
                },
                outcome => break outcome.map_err(|e| e.why),
            }
        };
        let count = spans.len();
        match outcome {
            Ok(()) => counts.exported.add(count as u64),
            Err(e) => {
                counts.failed.add(count as u64);
                warn!(error = e, count, "failed to export spans");
            }
        }
    }
}

impl Collect for SpanExportManager {
    fn collect(&self, sink: &mut dyn MetricSink) {
        for (outcome, count) in [
            ("dropped", &self.tracer.dropped),
            ("exported", &self.counts.exported),
            ("failed", &self.counts.failed),
        ] {
            sink.metric(
                "firn_spans_total",
                "Spans by outcome: exported, failed, or dropped because the queue was full.",
                &[("outcome", outcome)],
                MetricValue::Counter(count.get() as f64),
            );
        }
    }
}
