//! A store that measures the duration of look-ups, which Prometheus calls the preparation time of a
//! query.

use firn_model::env::Clock;
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use firn_model::store::{ExemplarRequest, MetadataRequest, Select, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A store whose look-ups are measured, created for each query. Reads of samples are not measured.
pub(crate) struct TimedStore<'s> {
    store: &'s dyn Select,
    clock: Arc<dyn Clock>,
    nanos: AtomicU64,
}

impl<'s> TimedStore<'s> {
    pub(crate) fn new(store: &'s dyn Select, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            nanos: AtomicU64::new(0),
        }
    }

    /// Returns the total duration of all look-ups so far, also of concurrent ones.
    pub(crate) fn spent(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = self.clock.monotonic();
        let outcome = work();
        let spent = self.clock.monotonic().saturating_sub(start);
        self.nanos
            .fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        outcome
    }
}

impl Select for TimedStore<'_> {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.measure(|| self.store.select(request))
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.measure(|| self.store.select_labels(request))
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.measure(|| self.store.label_names(request))
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.measure(|| self.store.label_values(name, request))
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        self.measure(|| self.store.exemplars(request))
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        self.measure(|| self.store.metadata(request))
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.store.loss_warnings(tenant, range)
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.store.label_loss_warnings(tenant, range)
    }
}
