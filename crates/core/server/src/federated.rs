//! Reads of several tenants as one: every series gets the label `__tenant_id__`, as in Mimir.
//!
//! A request for joined tenants ([`TenantId::join`]) is divided by tenant. Matchers of
//! `__tenant_id__` select tenants. A stored label with this name appears as
//! `original___tenant_id__`. Invariants: no two tenants have a series in common, so nothing is
//! merged; limits of the request apply to all tenants together; a store never gets the id of
//! several tenants.

use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn, SeriesBatch};
use firn_model::concatenation::ConcatenatedSelection;
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::labels::{Labels, LabelsBuilder};
use firn_model::losses::DataLossWarnings;
use firn_model::matcher::Matcher;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, ReadCosts, Select, SelectRequest, Selection,
    StoreVersion,
};
use firn_model::tenant::TenantId;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Label with the tenant of a series.
pub(crate) const TENANT_LABEL: &str = "__tenant_id__";

/// Name of a stored label that has the name [`TENANT_LABEL`].
const ORIGINAL_LABEL: &str = "original___tenant_id__";

/// A store that reads several tenants as one. Created for each request that names several.
pub(crate) struct FederatedStore {
    store: Arc<dyn Select>,
}

/// The part of a request that concerns the selected tenants.
struct TenantSelection {
    tenants: Vec<TenantId>,
    /// The matchers without those of the tenant, under the names of stored labels.
    matchers: Vec<Matcher>,
}

impl TenantSelection {
    /// Divides the matchers of a request into those of the tenant, which select among the members
    /// of `tenant`, and all others.
    fn new(tenant: &TenantId, matchers: &[Matcher]) -> Result<Self, Error> {
        let mut tenants = tenant.members();
        let mut others = Vec::with_capacity(matchers.len());
        for matcher in matchers {
            match matcher.name() {
                TENANT_LABEL => {
                    matcher.prepare()?;
                    tenants.retain(|tenant| matcher.matches(tenant.as_str().as_bytes()));
                    matcher.prepare()?;
                }
                ORIGINAL_LABEL => {
                    others.push(Matcher::new(TENANT_LABEL, matcher.op(), matcher.value())?);
                }
                _ => others.push(matcher.clone()),
            }
        }
        Ok(Self {
            tenants,
            matchers: others,
        })
    }

    fn for_request(request: &SelectRequest<'_>) -> Result<Self, Error> {
        request.bind_matchers();
        Self::new(request.tenant, request.matchers)
    }
}

impl FederatedStore {
    pub(crate) fn new(store: Arc<dyn Select>) -> Self {
        Self { store }
    }

    /// Selects series with `select` for every tenant. Once the limit on series is exceeded, the
    /// other tenants only count theirs, because the text of the error contains the number of all
    /// series.
    fn select_with(
        &self,
        request: SelectRequest<'_>,
        select: impl Fn(SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error>,
    ) -> Result<Arc<dyn Selection>, Error> {
        let selection = TenantSelection::for_request(&request)?;
        let mut remaining = request.series.remaining();
        let mut found = 0;
        let mut parts: Vec<Arc<dyn Selection>> = Vec::new();
        for tenant in selection.tenants {
            request.cancel.check()?;
            let limit = SeriesLimit::new(remaining);
            let selected = select(SelectRequest {
                tenant: &tenant,
                matchers: &selection.matchers,
                series: &limit,
                ..request
            });
            found += limit.found();
            match selected {
                Ok(selection) => parts.push(Arc::new(LabelledSelection { selection, tenant })),
                Err(_) if limit.found() > remaining => parts.clear(),
                Err(e) => return Err(e),
            }
            remaining = limit.remaining();
        }
        request.series.add_series(found)?;
        Ok(Arc::new(ConcatenatedSelection::new(parts)))
    }

    /// Returns the items of all selected tenants, sorted and each once.
    fn collect_sorted<T: Ord>(
        &self,
        request: SelectRequest<'_>,
        collect: impl Fn(SelectRequest<'_>) -> Result<Vec<T>, Error>,
    ) -> Result<BTreeSet<T>, Error> {
        let selection = TenantSelection::for_request(&request)?;
        let mut all = BTreeSet::new();
        for tenant in &selection.tenants {
            all.extend(collect(SelectRequest {
                tenant,
                matchers: &selection.matchers,
                ..request
            })?);
        }
        Ok(all)
    }

    fn collect_losses(
        tenant: &TenantId,
        losses_of: impl Fn(&TenantId) -> DataLossWarnings,
    ) -> DataLossWarnings {
        DataLossWarnings::join(tenant.members().iter().map(losses_of).collect())
    }
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Select for FederatedStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_with(request, |request| self.store.select(request))
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_with(request, |request| self.store.select_labels(request))
    }

    /// Returns the costs in all selected tenants together. Matchers of the tenant have no series.
    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        let selection = TenantSelection::for_request(&request)?;
        let mut sums = vec![None::<MatcherCost>; selection.matchers.len()];
        for tenant in &selection.tenants {
            let costs = self.store.explain(SelectRequest {
                tenant,
                matchers: &selection.matchers,
                ..request
            })?;
            for (sum, cost) in sums.iter_mut().zip(costs) {
                let known = sum.unwrap_or(MatcherCost {
                    series: Some(0),
                    is_deferred: false,
                });
                *sum = Some(MatcherCost {
                    series: known.series.zip(cost.series).map(|(a, b)| a + b),
                    is_deferred: known.is_deferred || cost.is_deferred,
                });
            }
        }
        let mut sums = sums.into_iter();
        let cost = |matcher: &Matcher| match matcher.name() {
            TENANT_LABEL => MatcherCost::default(),
            _ => sums.next().flatten().unwrap_or_default(),
        };
        Ok(request.matchers.iter().map(cost).collect())
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        let mut names = self.collect_sorted(request, |request| self.store.label_names(request))?;
        if !names.is_empty() && !names.insert(TENANT_LABEL.to_owned()) {
            names.insert(ORIGINAL_LABEL.to_owned());
        }
        Ok(names.into_iter().collect())
    }

    /// Returns for `__tenant_id__` the selected tenants with matching series.
    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let name = match name {
            TENANT_LABEL => {
                let values = self.collect_sorted(request, |request| {
                    let names = self.store.label_names(request)?;
                    let id = (!names.is_empty()).then(|| request.tenant.as_str().into());
                    Ok(id.into_iter().collect())
                })?;
                return Ok(values.into_iter().collect());
            }
            ORIGINAL_LABEL => TENANT_LABEL,
            name => name,
        };
        let values = |request: SelectRequest<'_>| self.store.label_values(name, request);
        let values = self.collect_sorted(request, values)?;
        Ok(values.into_iter().collect())
    }

    /// Returns `None`: changes of several tenants have no common version.
    fn version(&self, _: &TenantId) -> Option<StoreVersion> {
        None
    }

    fn unchanged_before(&self, _: &TenantId, _: &StoreVersion) -> TimestampMs {
        TimestampMs::MIN
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        let mut all = Vec::new();
        for tenant in request.tenant.members() {
            let mut sets = Vec::new();
            for set in request.sets {
                for matcher in set {
                    matcher.bind(request.budget, request.cancel);
                }
                let selection = TenantSelection::new(request.tenant, set)?;
                if selection.tenants.contains(&tenant) {
                    sets.push(selection.matchers);
                }
            }
            if sets.is_empty() {
                continue;
            }
            let found = self.store.exemplars(ExemplarRequest {
                tenant: &tenant,
                sets: &sets,
                ..request
            })?;
            all.extend(found.into_iter().map(|one| SeriesExemplarResult {
                series: add_tenant(&one.series, &tenant),
                ..one
            }));
        }
        all.sort_unstable_by(|a, b| a.series.cmp(&b.series));
        Ok(all)
    }

    /// Returns the metadata of the first tenant that has a metric.
    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        let mut names = BTreeSet::new();
        let mut batches = Vec::new();
        for tenant in &request.tenant.members() {
            batches.push(self.store.metadata(MetadataRequest { tenant, ..request })?);
        }
        let mut entries = Vec::new();
        for metadata in batches.iter().flat_map(|batch| batch.iter()) {
            if names.insert(metadata.name) {
                entries.push(metadata);
            }
        }
        entries.sort_by_key(|metadata| metadata.name);
        let mut joined = MetadataBatch::default();
        entries.into_iter().for_each(|entry| joined.push(entry));
        Ok(joined)
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        Self::collect_losses(tenant, |tenant| self.store.loss_warnings(tenant, range))
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        Self::collect_losses(tenant, |tenant| {
            self.store.label_loss_warnings(tenant, range)
        })
    }
}

/// Returns the labels of a series with its tenant.
fn add_tenant(labels: &Labels, tenant: &TenantId) -> Labels {
    let mut builder = LabelsBuilder::from_labels(labels.as_ref());
    let stored = labels.get(TENANT_LABEL);
    if !stored.is_empty() {
        builder.set(ORIGINAL_LABEL, stored);
    }
    builder.set(TENANT_LABEL, tenant.as_str().as_bytes());
    builder.build()
}

/// The selection of one tenant, whose series get its label.
struct LabelledSelection {
    selection: Arc<dyn Selection>,
    tenant: TenantId,
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Selection for LabelledSelection {
    fn len(&self) -> usize {
        self.selection.len()
    }

    fn is_empty(&self) -> bool {
        self.selection.is_empty()
    }

    fn labels(&self, series: usize) -> Labels {
        add_tenant(&self.selection.labels(series), &self.tenant)
    }

    fn label_column(
        &self,
        name: &str,
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, Error> {
        match name {
            TENANT_LABEL => {
                let id: Arc<[u8]> = self.tenant.as_str().as_bytes().into();
                memory.grow(self.len() * size_of::<u32>() + COLUMN_VALUE_BYTES + id.len())?;
                Ok(LabelColumn {
                    ids: vec![0; self.len()],
                    values: vec![id],
                })
            }
            ORIGINAL_LABEL => self.selection.label_column(TENANT_LABEL, cancel, memory),
            _ => self.selection.label_column(name, cancel, memory),
        }
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
