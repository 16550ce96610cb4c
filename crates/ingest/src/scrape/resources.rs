//! What all targets share: the way into the store, the clock, and bounds on memory and threads.

use crate::pipeline::Pipeline;
use firn_discovery::{DiscoveryMetrics, Lent, ReadYaml};
use firn_http_client::Places;
use firn_model::budget::Budget;
use firn_model::env::Clock;
use firn_model::metrics::{Collect, Gauge, Sink, Value};
use firn_model::shares::Shares;
use firn_model::trace::Tracer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The longest list of targets that is read with any memory.
const LIST_BYTES_MAX: u64 = 256 << 20;

/// Bodies that are read at one time, for each core: reading is computing, and waits for locks.
const READERS_PER_CORE: usize = 2;

/// What all targets share.
pub(super) struct Resources {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) clock: Arc<dyn Clock>,
    /// Begins the spans of scrapes.
    pub(super) tracer: Arc<Tracer>,
    /// Memory of bodies.
    pub(super) bodies: Budget,
    /// Memory of what is known of series.
    pub(super) caches: Budget,
    /// Connections to targets.
    pub(super) places: Places,
    /// Where discoveries are counted.
    pub(super) discoveries: DiscoveryMetrics,
    readers: Semaphore,
    /// Targets that wait for a reader.
    waiting: Gauge,
    seed: AtomicU64,
}

impl Resources {
    pub(super) fn new(
        pipeline: Arc<Pipeline>,
        (clock, tracer): (Arc<dyn Clock>, Arc<Tracer>),
        memory: &Budget,
        places: Places,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shares = Shares::of(memory.limit_bytes());
        Self {
            pipeline,
            clock,
            tracer,
            bodies: memory.share("bodies of scrapes", shares.scrape_bodies),
            caches: memory.share("caches of scrapes", shares.scrape_caches),
            places,
            discoveries: DiscoveryMetrics::default(),
            readers: Semaphore::new(cores * READERS_PER_CORE),
            waiting: Gauge::default(),
            seed: AtomicU64::new(0),
        }
    }

    /// Bytes of a list of targets: half of what bodies may have, or what no list ever has. One of
    /// 100,000 targets has some 10 MB.
    fn list_bytes_max(&self) -> u64 {
        LIST_BYTES_MAX.min(self.bodies.limit_bytes() as u64 / 2)
    }

    /// What discoveries are lent.
    pub(super) fn lent(&self, read_yaml: ReadYaml) -> Lent {
        Lent {
            read_yaml,
            bytes_max: self.list_bytes_max(),
            clock: self.clock.clone(),
            metrics: self.discoveries.clone(),
        }
    }

    /// What makes this server scrape at other times than its twins.
    pub(super) fn seed(&self) -> u64 {
        self.seed.load(Ordering::Relaxed)
    }

    pub(super) fn set_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }

    /// Waits for the turn to read a body.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        self.waiting.add(1);
        // It is never closed.
        let slot = self.readers.acquire().await.ok();
        self.waiting.add(-1);
        slot
    }
}

impl Collect for Resources {
    fn collect(&self, sink: &mut dyn Sink) {
        let of = |get: fn(&Budget) -> usize| {
            [("bodies", &self.bodies), ("caches", &self.caches)]
                .map(|(what, budget)| (what, get(budget) as f64))
        };
        for (name, help, values) in [
            (
                "firn_ingest_scrape_memory_bytes",
                "Memory for response bodies being read and for the caches of series.",
                of(Budget::used_bytes),
            ),
            (
                "firn_ingest_scrape_memory_limit_bytes",
                "Limit of the memory for response bodies and caches of series.",
                of(Budget::limit_bytes),
            ),
        ] {
            for (what, value) in values {
                sink.metric(name, help, &[("what", what)], Value::Gauge(value));
            }
        }
        sink.metric(
            "firn_ingest_scrape_bodies_waiting",
            "Response bodies waiting for a thread to parse them; at most one per target.",
            &[],
            Value::Gauge(self.waiting.get() as f64),
        );
        for (name, help, count) in [
            (
                "firn_ingest_scrape_connections",
                "Connections to targets, including idle connections kept for the next scrape.",
                self.places.taken(),
            ),
            (
                "firn_ingest_scrape_connections_limit",
                "Maximum number of connections to targets, derived from the limit of open files.",
                self.places.count(),
            ),
            (
                "firn_ingest_scrape_connections_waiting",
                "Scrapes waiting for a free connection.",
                self.places.waiting(),
            ),
        ] {
            sink.metric(name, help, &[], Value::Gauge(count as f64));
        }
        self.discoveries.collect(sink);
    }
}
