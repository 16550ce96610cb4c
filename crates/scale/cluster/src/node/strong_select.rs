//! Strong reads over the partitions of a node.

use crate::engine::BucketLog;
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, Select, SelectRequest, Selection,
};
use firn_model::tenant::TenantId;
use std::sync::Arc;
use std::time::Duration;

/// Reads that include every sample that any node acknowledged before the read arrived. Each look-up
/// first waits until the bucket has confirmed that this process leads the partitions; a read then
/// costs no request for as long as the lease is valid.
pub struct StrongSelect {
    logs: Vec<BucketLog>,
    inner: Arc<dyn Select>,
    wait_max: Duration,
}

impl StrongSelect {
    /// Creates strong reads of `inner`, whose partitions have these logs. A read that is not
    /// confirmed within `wait_max` fails with `Unavailable`.
    pub fn new(logs: Vec<BucketLog>, inner: Arc<dyn Select>, wait_max: Duration) -> Self {
        Self {
            logs,
            inner,
            wait_max,
        }
    }

    fn confirm(&self) -> Result<(), Error> {
        let begin = self.logs.first().map(BucketLog::now).unwrap_or_default();
        let deadline = begin + self.wait_max;
        let requests: Vec<_> = self.logs.iter().map(BucketLog::request_lease).collect();
        // Each request must be taken back, so an error only ends the wait for those after it.
        let mut outcome = Ok(());
        for (log, request) in self.logs.iter().zip(requests) {
            let limit = outcome.as_ref().map_or(Duration::ZERO, |()| deadline);
            outcome = outcome.and(log.await_lease(request, limit));
        }
        outcome
    }
}

impl Select for StrongSelect {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.confirm()?;
        self.inner.select(request)
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.confirm()?;
        self.inner.select_labels(request)
    }

    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        self.inner.explain(request)
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.confirm()?;
        self.inner.label_names(request)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.confirm()?;
        self.inner.label_values(name, request)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        self.confirm()?;
        self.inner.exemplars(request)
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        self.confirm()?;
        self.inner.metadata(request)
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.inner.loss_warnings(tenant, range)
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.inner.label_loss_warnings(tenant, range)
    }
}
