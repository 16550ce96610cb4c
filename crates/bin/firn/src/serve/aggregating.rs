//! Stream aggregation of the server: restores its state from the store and follows the config.
//!
//! If a new configuration cannot be written to the WAL (full disk), the change is retried with each
//! tick. Until then writes are rejected, so that no sample bypasses aggregation.

use firn_aggregation::{AggregatedMetricKind, AggregationInputs, AggregationSpec, KindOf};
use firn_cluster::partitions::store::PartitionedStore;
use firn_config::config::Config;
use firn_ingest::Pipeline;
use firn_ingest::metadata::PushedMetadata;
use firn_model::env::Env;
use firn_model::fingerprint::FingerprintSeed;
use firn_model::tenant::TenantId;
use firn_scrape::ScrapeManager;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tracing::{error, info};

/// Applies the configuration of aggregation: the active one and the one that is wanted.
pub struct AggregationConfigurator {
    pipeline: Arc<Pipeline>,
    env: Env,
    lookback_ms: i64,
    sources_max: usize,
    state: Mutex<AggregationConfigState>,
}

struct AggregationConfigState {
    applied: Option<AggregationSpec>,
    wanted: AggregationSpec,
    /// Journal of the state from the store, until it is restored.
    journal: Vec<Vec<u8>>,
    /// True if the WAL did not accept the wanted configuration and an error was logged.
    is_waiting: bool,
    /// Scrape targets, whose metadata determines the types of metrics. Weak, because they hold the
    /// pipeline.
    scraping: Weak<ScrapeManager>,
}

impl AggregationConfigurator {
    /// Creates the applier without any aggregation. `sources_max` is the maximum number of source
    /// series of a state.
    pub fn new(
        pipeline: Arc<Pipeline>,
        store: &PartitionedStore,
        env: Env,
        lookback: Duration,
        sources_max: usize,
    ) -> Self {
        Self {
            pipeline,
            env,
            lookback_ms: i64::try_from(lookback.as_millis()).unwrap_or(i64::MAX),
            sources_max,
            state: Mutex::new(AggregationConfigState {
                applied: None,
                wanted: AggregationSpec::default(),
                journal: store.take_journal(),
                is_waiting: false,
                scraping: Weak::new(),
            }),
        }
    }

    /// Sets the targets whose metadata determines the type of a metric. Pushed metadata is used for
    /// other metrics.
    pub fn set_targets(&self, scraping: &Arc<ScrapeManager>) {
        self.with(|state| state.scraping = Arc::downgrade(scraping));
    }

    /// Applies the aggregation of `config`, or keeps it to retry if the WAL does not accept it. May
    /// wait for the WAL.
    pub fn apply_config(&self, config: &Config) {
        let mut wanted = config.aggregation.clone();
        for group in &mut wanted.groups {
            group.lookback_ms = self.lookback_ms;
        }
        self.with(|state| state.wanted = wanted);
        self.apply();
    }

    /// Retries to apply the wanted configuration, if it is not active yet. May wait for the WAL.
    pub fn apply(&self) {
        self.with(|state| {
            if state.applied.as_ref() == Some(&state.wanted) {
                return;
            }
            let start = AggregationInputs {
                seed: FingerprintSeed::generate(&*self.env.rng),
                sources_max: self.sources_max,
                kind_of: kind_of(state.scraping.clone(), self.pipeline.metadata().clone()),
                journal: &state.journal,
            };
            match self.pipeline.configure_aggregation(&state.wanted, start) {
                Ok(()) => {
                    let groups = state.wanted.groups.len();
                    if groups > 0 || state.applied.is_some() {
                        info!(groups, "config applied to aggregation");
                    }
                    state.applied = Some(state.wanted.clone());
                    state.journal = Vec::new();
                    state.is_waiting = false;
                }
                Err(_) if state.is_waiting => {}
                Err(e) => {
                    error!(
                        error = %e,
                        "log cannot store the aggregation state: writes are rejected until it can"
                    );
                    state.is_waiting = true;
                }
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut AggregationConfigState) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes the state of aggregation to the WAL before it is closed.
pub fn finish(pipeline: &Pipeline) {
    if let Err(e) = pipeline.finish_aggregation() {
        // The WAL can also restore the state from earlier records, only more slowly.
        error!(error = %e, "failed to stop aggregation");
    }
}

/// Returns a function for the type of a metric: from the metadata of targets, else of pushes.
fn kind_of(scraping: Weak<ScrapeManager>, pushed: Arc<PushedMetadata>) -> KindOf {
    Arc::new(move |name| {
        let name = str::from_utf8(name).ok()?;
        let of_targets = scraping.upgrade()?.type_of_metric(name);
        let of_pushes = || pushed.type_of_metric(&TenantId::anonymous(), name);
        match of_targets.or_else(of_pushes)? {
            "counter" => Some(AggregatedMetricKind::Counter),
            "gauge" => Some(AggregatedMetricKind::Gauge),
            _ => None,
        }
    })
}
