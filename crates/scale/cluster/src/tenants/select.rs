//! Reads of the store of a tenant. An unknown tenant has no series.

use super::TenantStores;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::concatenation::ConcatenatedSelection;
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
use firn_storage::store::Store;
use std::ops::Range;
use std::sync::Arc;

/// A selection of a store that stays open as long as the selection exists.
struct HeldSelection {
    selection: Arc<dyn Selection>,
    _store: Arc<Store>,
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Selection for HeldSelection {
    fn len(&self) -> usize {
        self.selection.len()
    }

    fn is_empty(&self) -> bool {
        self.selection.is_empty()
    }

    fn labels(&self, series: usize) -> Labels {
        self.selection.labels(series)
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        self.selection.label_column(name, cancel, memory)
    }

    fn read(&self, series: Range<usize>, into: &mut SeriesBatch) -> Result<(), Error> {
        self.selection.read(series, into)
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.selection.loss_warnings()
    }

    fn read_costs(&self) -> ReadCosts {
        self.selection.read_costs()
    }
}

impl TenantStores {
    fn select_with(
        &self,
        request: SelectRequest<'_>,
        select: impl FnOnce(&Store) -> Result<Arc<dyn Selection>, Error>,
    ) -> Result<Arc<dyn Selection>, Error> {
        let Some(store) = self.find_store(request.tenant)? else {
            return Ok(Arc::new(ConcatenatedSelection::new(Vec::new())));
        };
        let selection = select(&store)?;
        let _store = store;
        Ok(Arc::new(HeldSelection { selection, _store }))
    }

    /// Returns a value of the store of a tenant other than `anonymous`, or the default for an
    /// unknown one.
    fn read_store<T: Default>(
        &self,
        tenant: &TenantId,
        read: impl FnOnce(&Store) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.find_store(tenant)? {
            Some(store) => read(&store),
            None => Ok(T::default()),
        }
    }
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Select for TenantStores {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        if self.is_own(request.tenant) {
            return self.own.select(request);
        }
        self.select_with(request, |store| store.select(request))
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        if self.is_own(request.tenant) {
            return self.own.select_labels(request);
        }
        self.select_with(request, |store| store.select_labels(request))
    }

    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        if self.is_own(request.tenant) {
            return self.own.explain(request);
        }
        match self.find_store(request.tenant)? {
            Some(store) => store.explain(request),
            None => Ok(vec![MatcherCost::default(); request.matchers.len()]),
        }
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        if self.is_own(request.tenant) {
            return self.own.label_names(request);
        }
        self.read_store(request.tenant, |store| store.label_names(request))
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        if self.is_own(request.tenant) {
            return self.own.label_values(name, request);
        }
        self.read_store(request.tenant, |store| store.label_values(name, request))
    }

    fn version(&self, tenant: &TenantId) -> Option<StoreVersion> {
        if self.is_own(tenant) {
            return self.own.version(tenant);
        }
        self.find_store(tenant).ok()??.version(tenant)
    }

    fn unchanged_before(&self, tenant: &TenantId, version: &StoreVersion) -> TimestampMs {
        if self.is_own(tenant) {
            return self.own.unchanged_before(tenant, version);
        }
        match self.find_store(tenant) {
            Ok(Some(store)) => store.unchanged_before(tenant, version),
            Ok(None) | Err(_) => TimestampMs::MIN,
        }
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        if self.is_own(request.tenant) {
            return self.own.exemplars(request);
        }
        self.read_store(request.tenant, |store| store.exemplars(request))
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        if self.is_own(request.tenant) {
            return self.own.metadata(request);
        }
        self.read_store(request.tenant, |store| store.metadata(request))
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        if self.is_own(tenant) {
            return self.own.loss_warnings(tenant, range);
        }
        let losses = self.read_store(tenant, |store| Ok(store.loss_warnings(tenant, range)));
        losses.unwrap_or_default()
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        if self.is_own(tenant) {
            return self.own.label_loss_warnings(tenant, range);
        }
        let losses = self.read_store(tenant, |store| Ok(store.label_loss_warnings(tenant, range)));
        losses.unwrap_or_default()
    }
}
