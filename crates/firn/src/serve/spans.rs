//! Spans of the server's work on their way to the collector that `tracing` of the config names.
//!
//! Invariant: a collector that is slow or away costs spans and nothing else: the queue is bounded,
//! and each request is tried for a minute at most.

use crate::settings::config::Config;
use crate::settings::config::tracing::Tracing;
use firn_ingest::span_export::SpanExporter;
use firn_model::metrics::{Collect, Counter, Sink, Value};
use firn_model::sync::lock;
use firn_model::trace::{FinishedSpan, Tracer};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};
use tracing::{error, info, warn};

/// How often it is looked for spans.
const LOOK: Duration = Duration::from_secs(1);

/// Looks after which waiting spans go, however few they are: as in OpenTelemetry's SDKs.
const LOOKS_MAX: u32 = 5;

/// Spans of one request, which goes as soon as there are so many.
const REQUEST_SPANS: usize = 512;

/// Pauses between the attempts of one request: as in OpenTelemetry's exporters.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
];

/// How long the last spans may take at a stop or when the collector changes.
const LAST: Duration = Duration::from_secs(5);

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What was exported.
#[derive(Debug, Default)]
struct Counts {
    exported: Counter,
    failed: Counter,
}

/// See the module.
pub struct Spans {
    tracer: Arc<Tracer>,
    counts: Arc<Counts>,
    following: Mutex<Following>,
    runtime: Handle,
}

#[derive(Default)]
struct Following {
    tracing: Option<Tracing>,
    exporter: Option<Arc<SpanExporter>>,
    task: Option<JoinHandle<()>>,
}

impl Spans {
    /// Exports nothing yet of what `tracer` keeps. Must be called inside the runtime.
    pub fn new(tracer: Arc<Tracer>) -> Self {
        Self {
            tracer,
            counts: Arc::default(),
            following: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// What begins the spans.
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    /// Samples and exports as `config` says from here on.
    pub fn follow(&self, config: &Config) {
        let mut following = lock(&self.following);
        if following.tracing == config.tracing {
            return;
        }
        self.end(&mut following);
        following.tracing.clone_from(&config.tracing);
        let Some(Tracing {
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

    /// Ends what exports; what waits goes to the collector that it was for, within a bound.
    fn end(&self, following: &mut Following) -> Option<JoinHandle<()>> {
        let task = following.task.take()?;
        task.abort();
        let exporter = following.exporter.take()?;
        let (spans, counts) = (self.tracer.take(), self.counts.clone());
        Some(self.runtime.spawn(async move {
            let last = send(&exporter, &spans, &counts, &[]);
            // What does not go in time is lost, as the spans of a process that ends are.
            let _ = timeout(LAST, last).await;
        }))
    }

    /// Exports what waits, and ends.
    pub async fn stop(&self) {
        let last = self.end(&mut lock(&self.following));
        if let Some(last) = last {
            // It cannot fail but by a panic.
            let _ = last.await;
        }
    }
}

async fn keep_exporting(tracer: Arc<Tracer>, exporter: Arc<SpanExporter>, counts: Arc<Counts>) {
    let mut looks = 0;
    let mut look = interval(LOOK);
    loop {
        look.tick().await;
        looks += 1;
        let waiting = tracer.waiting();
        if waiting >= REQUEST_SPANS || waiting > 0 && looks >= LOOKS_MAX {
            looks = 0;
            send(&exporter, &tracer.take(), &counts, &PAUSES).await;
        }
    }
}

/// Sends `spans`, with these pauses between the attempts of a request.
async fn send(
    exporter: &SpanExporter,
    spans: &[FinishedSpan],
    counts: &Counts,
    pauses: &[Duration],
) {
    for spans in spans.chunks(REQUEST_SPANS) {
        let mut pauses = pauses.iter();
        let outcome = loop {
            match exporter.export(VERSION, spans).await {
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

impl Collect for Spans {
    fn collect(&self, sink: &mut dyn Sink) {
        for (outcome, count) in [
            ("dropped", &self.tracer.dropped),
            ("exported", &self.counts.exported),
            ("failed", &self.counts.failed),
        ] {
            sink.metric(
                "firn_spans_total",
                "Spans by outcome: exported, failed, or dropped because the queue was full.",
                &[("outcome", outcome)],
                Value::Counter(count.get() as f64),
            );
        }
    }
}
