//! A store that is limited to the series which match some matchers.
//!
//! Invariant: every look-up adds the matchers, so an endpoint cannot bypass the restriction.

use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::losses::DataLossWarnings;
use firn_model::matcher::Matcher;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, Select, SelectRequest, Selection, StoreVersion,
};
use firn_model::tenant::TenantId;
use std::sync::Arc;

/// A view of a store that contains only the series that all matchers match. Created for each
/// request with a restricted grant.
pub(crate) struct RestrictedStore {
    store: Arc<dyn Select>,
    matchers: Vec<Matcher>,
}

impl RestrictedStore {
    /// Restricts `store` to the series that `matchers` match. The matchers are compiled again for
    /// each request, because a regular expression is bound to the memory budget of its request.
    pub(crate) fn new(store: Arc<dyn Select>, matchers: &[Matcher]) -> Result<Self, Error> {
        let own = |m: &Matcher| Matcher::new(m.name(), m.op(), m.value());
        let matchers = matchers.iter().map(own).collect::<Result<_, _>>()?;
        Ok(Self { store, matchers })
    }

    fn combine_matchers(&self, matchers: &[Matcher]) -> Vec<Matcher> {
        self.matchers.iter().chain(matchers).cloned().collect()
    }
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Select for RestrictedStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let matchers = self.combine_matchers(request.matchers);
        self.store.select(SelectRequest {
            matchers: &matchers,
            ..request
        })
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let matchers = self.combine_matchers(request.matchers);
        self.store.select_labels(SelectRequest {
            matchers: &matchers,
            ..request
        })
    }

    /// Returns the costs of the request's own matchers, without numbers of series, which would
    /// count series outside the restriction.
    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        let matchers = self.combine_matchers(request.matchers);
        let costs = self.store.explain(SelectRequest {
            matchers: &matchers,
            ..request
        })?;
        let own = costs.into_iter().skip(self.matchers.len());
        Ok(own
            .map(|cost| MatcherCost {
                series: None,
                ..cost
            })
            .collect())
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        let matchers = self.combine_matchers(request.matchers);
        self.store.label_names(SelectRequest {
            matchers: &matchers,
            ..request
        })
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let matchers = self.combine_matchers(request.matchers);
        let request = SelectRequest {
            matchers: &matchers,
            ..request
        };
        self.store.label_values(name, request)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        for matcher in &self.matchers {
            matcher.bind(request.budget, request.cancel);
        }
        let sets: Vec<_> = request
            .sets
            .iter()
            .map(|set| self.combine_matchers(set))
            .collect();
        self.store.exemplars(ExemplarRequest {
            sets: &sets,
            ..request
        })
    }

    fn version(&self, tenant: &TenantId) -> Option<StoreVersion> {
        let mut version = self.store.version(tenant)?;
        for matcher in &self.matchers {
            version.part.push_str(&matcher.to_string());
            version.part.push(',');
        }
        Some(version)
    }

    fn unchanged_before(&self, tenant: &TenantId, version: &StoreVersion) -> TimestampMs {
        self.store.unchanged_before(tenant, version)
    }

    /// Returns nothing: metadata belongs to metric names, not to the visible series.
    fn metadata(&self, _request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        Ok(MetadataBatch::default())
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.store.loss_warnings(tenant, range)
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.store.label_loss_warnings(tenant, range)
    }
}
