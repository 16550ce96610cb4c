//! What all targets share: the way into the store, the clock, and bounds on memory and threads.

use crate::pipeline::Pipeline;
use firn_model::budget::Budget;
use firn_model::env::Clock;
use firn_model::metrics::{Collect, Gauge, Sink, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Share of all memory for bodies that are being fetched or read. An ordinary one has 100 KB.
const BODIES_SHARE: usize = 16;

/// Share of all memory for what is known of series. One takes 0.5 KB, half of what it takes in the
/// store.
const CACHES_SHARE: usize = 4;

/// Bodies that are read at one time, for each core: reading is computing, and waits for locks.
const READERS_PER_CORE: usize = 2;

/// What all targets share.
pub(super) struct Resources {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) clock: Arc<dyn Clock>,
    /// Memory of bodies.
    pub(super) bodies: Budget,
    /// Memory of what is known of series.
    pub(super) caches: Budget,
    readers: Semaphore,
    /// Targets that wait for a reader.
    waiting: Gauge,
    seed: AtomicU64,
}

impl Resources {
    pub(super) fn new(pipeline: Arc<Pipeline>, clock: Arc<dyn Clock>, memory: &Budget) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let limit = memory.limit_bytes();
        Self {
            pipeline,
            clock,
            bodies: memory.child("bodies of scrapes", limit / BODIES_SHARE),
            caches: memory.child("caches of scrapes", limit / CACHES_SHARE),
            readers: Semaphore::new(cores * READERS_PER_CORE),
            waiting: Gauge::default(),
            seed: AtomicU64::new(0),
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
                "Memory of bodies that are being read, and of what is known of series.",
                of(Budget::used_bytes),
            ),
            (
                "firn_ingest_scrape_memory_limit_bytes",
                "The most that these may take.",
                of(Budget::limit_bytes),
            ),
        ] {
            for (what, value) in values {
                sink.metric(name, help, &[("what", what)], Value::Gauge(value));
            }
        }
        sink.metric(
            "firn_ingest_scrape_bodies_waiting",
            "Bodies that wait for a thread to read them; at most one a target.",
            &[],
            Value::Gauge(self.waiting.get() as f64),
        );
    }
}
