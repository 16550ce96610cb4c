//! Scraping: fetches the metrics of targets at regular intervals and passes them to the store.
//!
//! ```text
//! ScrapeJobSettings -> ScrapePool: discoveries -> groups -> relabelled targets
//!                           each target: timer -> Fetch -> ScrapeState -> one batch -> Pipeline
//! ```
//!
//! [`ScrapeManager`] owns everything; a `ScrapePool` is the task of one job, a `Runner` that of one
//! target, and a `ScrapeState` is the pure state that a target keeps from one scrape to the next.
//! The semantics are those of Prometheus: a series that vanishes gets a staleness marker, a failed
//! scrape makes all of them vanish, and five additional series describe the scrape itself.
//!
//! The Alertmanagers that receive alerts are discovered and relabelled like targets
//! ([`alertmanagers`]).
//!
//! Invariant: a scrape is one batch, so that a query sees all of it or nothing; scrapes of one
//! target never overlap; and whatever one target exposes, the memory left to the others suffices
//! for ordinary scrapes.

pub mod alertmanagers;
mod anchors;
mod bench_target;
mod cache;
mod failure_log;
mod fetch;
mod histograms;
mod http;
mod labelling;
mod plan;
mod pool;
mod report;
mod resources;
mod runner;
mod settings;
mod state;
mod target;
#[cfg(test)]
mod tests;
mod zeros;

pub use bench_target::BenchTarget;
pub use fetch::{Fetch, Fetching};
pub use settings::{SELF_SCRAPE_INTERVAL, ScrapeJobSettings, ScrapeLimits, StartTimeSettings};
pub use target::{CheckedTarget, check_target};

use fetch::FixedFetchFactory;
use firn_discovery::DiscoveryContext;
use firn_http_client::ConnectionSlots;
use firn_ingest::Pipeline;
use firn_ingest::targets::ScrapePoolView;
use firn_model::budget::Budget;
use firn_model::env::Clock;
use firn_model::metrics::{Collect, MetricSink};
use firn_model::sync::lock;
use firn_model::trace::Tracer;
use plan::ScrapeJobLifecycle;
use pool::ScrapePool;
use resources::ScrapeResources;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// All scrape jobs of this process, each with its own task. The server applies the configuration
/// and stops them at its end.
pub struct ScrapeManager {
    resources: Arc<ScrapeResources>,
    pools: Mutex<BTreeMap<String, ScrapePool>>,
}

impl ScrapeManager {
    /// Returns a manager without jobs. Each scrape is a span of the tracer. Connections to targets
    /// are limited by `places`.
    pub fn new(
        pipeline: Arc<Pipeline>,
        clock: Arc<dyn Clock>,
        tracer: Arc<Tracer>,
        memory: &Budget,
        places: ConnectionSlots,
    ) -> Self {
        Self {
            resources: Arc::new(ScrapeResources::new(
                pipeline, clock, tracer, memory, places,
            )),
            pools: Mutex::default(),
        }
    }

    /// Scrapes exactly `jobs` from now on. An unchanged job continues without interruption; a
    /// changed one keeps the targets that it still has. `seed` shifts the scrape times relative to
    /// other servers with the same targets. Must be called inside a tokio runtime.
    pub fn apply_config(&self, jobs: &[Arc<ScrapeJobSettings>], seed: u64) {
        self.resources.set_seed(seed);
        let mut pools = self.lock_pools();
        let is_wanted = |name: &String| jobs.iter().any(|job| job.name == *name);
        for (_, pool) in pools.extract_if(.., |name, _| !is_wanted(name)) {
            pool.leave_in_background();
        }
        for job in jobs {
            match pools.get(&job.name) {
                Some(pool) => pool.reload_job(job.clone()),
                None => {
                    let manner = ScrapeJobLifecycle {
                        maker: Arc::new(http::HttpFetchFactory::new(
                            &job.http,
                            self.resources.places.clone(),
                            self.resources.bodies.clone(),
                        )),
                        begins_at_once: false,
                        marks_at_stop: false,
                    };
                    pools.insert(job.name.clone(), self.start_pool(job.clone(), manner));
                }
            }
        }
    }

    /// Scrapes this process, which listens at `address`, with `fetch`: immediately, and then every
    /// [`SELF_SCRAPE_INTERVAL`]. Must be called inside a tokio runtime.
    pub fn scrape_itself(&self, address: &str, fetch: Arc<dyn Fetch>) {
        let job = ScrapeJobSettings::self_scrape(address);
        let manner = ScrapeJobLifecycle {
            maker: Arc::new(FixedFetchFactory(fetch)),
            begins_at_once: true,
            marks_at_stop: true,
        };
        let name = job.name.clone();
        let pool = self.start_pool(Arc::new(job), manner);
        self.lock_pools().insert(name, pool);
    }

    fn start_pool(&self, job: Arc<ScrapeJobSettings>, manner: ScrapeJobLifecycle) -> ScrapePool {
        ScrapePool::start_task(job, manner, self.resources.clone())
    }

    /// Stops all scraping and waits until everything scraped is stored.
    pub async fn stop_all(&self) {
        let pools = std::mem::take(&mut *self.lock_pools());
        let stopping: Vec<_> = pools.into_values().map(ScrapePool::stop_job).collect();
        for stopped in stopping {
            stopped.await;
        }
    }

    /// Returns the shared parts that the discoveries of other components need, so that all are
    /// counted together.
    pub fn discovery_context(&self) -> DiscoveryContext {
        self.resources.discovery_context()
    }

    /// Returns the current state of all jobs for the API, sorted by name.
    pub fn pool_views(&self) -> Vec<Arc<ScrapePoolView>> {
        self.lock_pools().values().map(ScrapePool::view).collect()
    }

    /// Returns the type of the metric `name` in the metadata of any target. Returns `None` if no
    /// target exposes it.
    pub fn type_of_metric(&self, name: &str) -> Option<&'static str> {
        // OpenMetrics declares a counter under its name without `_total`.
        let names = [Some(name), name.strip_suffix("_total")];
        let views = self.pool_views();
        let mut targets = views.iter().flat_map(|view| view.active_targets());
        targets.find_map(|target| {
            let mut known = names.iter().flatten();
            let metadata = known.find_map(|name| target.status.find_metadata(name));
            metadata.map(|metadata| metadata.kind)
        })
    }

    fn lock_pools(&self) -> MutexGuard<'_, BTreeMap<String, ScrapePool>> {
        lock(&self.pools)
    }
}

impl Collect for ScrapeManager {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.resources.collect(sink);
    }
}
