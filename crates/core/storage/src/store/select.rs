//! Reads of a store: passes each request to the reader.

use super::Store;
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, Select, SelectRequest, Selection, StoreVersion,
};
use firn_model::tenant::TenantId;
use std::sync::Arc;

impl Select for Store {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.reader.select(request)
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.reader.select_labels(request)
    }

    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        self.reader.explain(request)
    }

    fn version(&self, tenant: &TenantId) -> Option<StoreVersion> {
        (*tenant == self.parts.options.tenant).then(|| self.parts.version())
    }

    fn unchanged_before(&self, tenant: &TenantId, version: &StoreVersion) -> TimestampMs {
        match self.version(tenant) {
            Some(now) if (now.store, now.rewrites) == (version.store, version.rewrites) => {
                self.parts.head.batch_times.oldest_after(version.batch)
            }
            _ => TimestampMs::MIN,
        }
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        if *tenant == self.parts.options.tenant {
            self.parts.list_lookup_losses(range)
        } else {
            DataLossWarnings::default()
        }
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.reader.label_names(request)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.reader.label_values(name, request)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        self.reader.select_exemplars(request)
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        self.reader.metadata(request)
    }
}
