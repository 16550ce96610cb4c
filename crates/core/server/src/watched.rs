//! A store whose look-ups and reads are counted in the query that makes them.
//!
//! The duration of look-ups is the preparation time in Prometheus's query statistics.

use crate::admission::run::{QueryPhase, QueryRun};
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::env::Clock;
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, ReadCosts, Select, SelectRequest, Selection,
    StoreVersion,
};
use firn_model::tenant::TenantId;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A store that sets the phase of a query during look-ups, measures them, and counts the samples
/// that the query reads. Created for each query, or for each query of a rule or console page.
pub(crate) struct WatchedStore {
    store: Arc<dyn Select>,
    run: Arc<QueryRun>,
    clock: Arc<dyn Clock>,
    nanos: AtomicU64,
}

impl WatchedStore {
    pub(crate) fn new(store: Arc<dyn Select>, run: &Arc<QueryRun>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            run: run.clone(),
            clock,
            nanos: AtomicU64::new(0),
        }
    }

    /// Returns the total duration of all look-ups so far, also of concurrent ones.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn look_up<T>(&self, work: impl FnOnce(&dyn Select) -> T) -> T {
        self.run.set_phase(QueryPhase::Select);
        let start = self.clock.monotonic();
        let outcome = work(&*self.store);
        let spent = self.clock.monotonic().saturating_sub(start);
        self.nanos
            .fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        self.run.set_phase(QueryPhase::Evaluate);
        outcome
    }
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Select for WatchedStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.run.count_metric_names(request.matchers);
        let found = self.look_up(|store| store.select(request))?;
        Ok(Arc::new(WatchedSelection {
            found,
            run: self.run.clone(),
        }))
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.look_up(|store| store.select_labels(request))
    }

    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        self.look_up(|store| store.explain(request))
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.look_up(|store| store.label_names(request))
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.look_up(|store| store.label_values(name, request))
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        self.look_up(|store| store.exemplars(request))
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        self.look_up(|store| store.metadata(request))
    }

    fn version(&self, tenant: &TenantId) -> Option<StoreVersion> {
        self.store.version(tenant)
    }

    fn unchanged_before(&self, tenant: &TenantId, version: &StoreVersion) -> TimestampMs {
        self.store.unchanged_before(tenant, version)
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.store.loss_warnings(tenant, range)
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.store.label_loss_warnings(tenant, range)
    }
}

/// A selection whose samples are counted in its query when they are read.
struct WatchedSelection {
    found: Arc<dyn Selection>,
    run: Arc<QueryRun>,
}

impl Selection for WatchedSelection {
    fn len(&self) -> usize {
        self.found.len()
    }

    fn labels(&self, series: usize) -> Labels {
        self.found.labels(series)
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        self.found.label_column(name, cancel, memory)
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        let before = into.sample_count();
        self.found.read(series, into)?;
        self.run
            .count_samples((into.sample_count() - before) as u64)
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.found.loss_warnings()
    }

    fn read_costs(&self) -> ReadCosts {
        self.found.read_costs()
    }
}
