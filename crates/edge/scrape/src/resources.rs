//! The resources that all targets share: pipeline, clock, and limits on memory and threads.

use firn_discovery::{DiscoveryContext, DiscoveryMetrics};
use firn_http_client::ConnectionSlots;
use firn_ingest::Pipeline;
use firn_model::budget::Budget;
use firn_model::env::Clock;
use firn_model::metrics::{Collect, Gauge, MetricSink, MetricValue};
use firn_model::shares::BudgetShares;
use firn_model::trace::Tracer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Largest size of a target list in bytes, however much memory there is.
const LIST_BYTES_MAX: u64 = 256 << 20;

/// Number of bodies for each core that are processed concurrently: processing computes, and waits
/// for locks.
const READERS_PER_CORE: usize = 2;

/// The resources that all targets share, created once for all jobs.
pub(super) struct ScrapeResources {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) clock: Arc<dyn Clock>,
    /// Creates the spans of scrapes.
    pub(super) tracer: Arc<Tracer>,
    /// Memory budget for the bodies of all targets.
    pub(super) bodies: Budget,
    /// Memory budget for the series caches of all targets.
    pub(super) caches: Budget,
    /// Limit for connections to targets.
    pub(super) places: ConnectionSlots,
    /// Metrics of all discoveries.
    pub(super) discoveries: DiscoveryMetrics,
    readers: Semaphore,
    /// Number of targets that wait for their body to be processed.
    waiting: Gauge,
    seed: AtomicU64,
}

impl ScrapeResources {
    pub(super) fn new(
        pipeline: Arc<Pipeline>,
        clock: Arc<dyn Clock>,
        tracer: Arc<Tracer>,
        memory: &Budget,
        places: ConnectionSlots,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shares = BudgetShares::from_limit(memory.limit_bytes());
        Self {
            pipeline,
            clock,
            tracer,
            bodies: memory.create_share("bodies of scrapes", shares.scrape_bodies),
            caches: memory.create_share("caches of scrapes", shares.scrape_caches),
            places,
            discoveries: DiscoveryMetrics::default(),
            readers: Semaphore::new(cores * READERS_PER_CORE),
            waiting: Gauge::default(),
            seed: AtomicU64::new(0),
        }
    }

    /// Returns the largest size of a target list in bytes: half of the memory for bodies, or a
    /// limit that no list reaches. A list of 100,000 targets has about 10 MB.
    fn list_bytes_max(&self) -> u64 {
        LIST_BYTES_MAX.min(self.bodies.limit_bytes() as u64 / 2)
    }

    /// Returns the shared parts that a discovery needs: limits, clock and metrics.
    pub(super) fn discovery_context(&self) -> DiscoveryContext {
        DiscoveryContext {
            bytes_max: self.list_bytes_max(),
            clock: self.clock.clone(),
            metrics: self.discoveries.clone(),
        }
    }

    /// Returns the seed that shifts the scrape times of this server.
    pub(super) fn seed(&self) -> u64 {
        self.seed.load(Ordering::Relaxed)
    }

    pub(super) fn set_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }

    /// Waits for permission to process a body, which limits the number of busy threads.
    pub(super) async fn acquire_parse_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.waiting.add(1);
        // The semaphore is never closed.
        let slot = self.readers.acquire().await.ok();
        self.waiting.add(-1);
        slot
    }
}

impl Collect for ScrapeResources {
    fn collect(&self, sink: &mut dyn MetricSink) {
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
                sink.metric(name, help, &[("what", what)], MetricValue::Gauge(value));
            }
        }
        sink.metric(
            "firn_ingest_scrape_bodies_waiting",
            "Response bodies waiting for a thread to parse them; at most one per target.",
            &[],
            MetricValue::Gauge(self.waiting.get() as f64),
        );
        for (name, help, count) in [
            (
                "firn_ingest_scrape_connections",
                "Connections to targets, including idle connections kept for the next scrape.",
                self.places.occupied_count(),
            ),
            (
                "firn_ingest_scrape_connections_limit",
                "Maximum number of connections to targets, derived from the limit of open files.",
                self.places.count(),
            ),
            (
                "firn_ingest_scrape_connections_waiting",
                "Scrapes waiting for a free connection.",
                self.places.waiting_count(),
            ),
        ] {
            sink.metric(name, help, &[], MetricValue::Gauge(count as f64));
        }
        self.discoveries.collect(sink);
    }
}
