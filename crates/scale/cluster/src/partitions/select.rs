//! Selects series in all partitions, and concatenates the selections.
//!
//! No two partitions have a series in common, so nothing is merged: the series of one partition
//! follow those of the previous one. Invariant: names, values, exemplars and metadata have the
//! order in which a single store returns them, and the limits of a request apply to all partitions
//! together.

use firn_model::concatenation::ConcatenatedSelection;
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::losses::DataLossWarnings;
use firn_model::metadata::{MetadataBatch, MetricMetadata};
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, Select, SelectRequest, Selection, StoreVersion,
};
use firn_model::tenant::TenantId;
use std::sync::Arc;

/// All partitions as one store that can be read. Partitions are read one after another; with one
/// partition, requests pass unchanged at no cost.
pub struct PartitionedSelect {
    partitions: Vec<Arc<dyn Select>>,
}

impl PartitionedSelect {
    /// Joins `partitions`, in the order of their numbers. Their series must be disjoint.
    pub fn new(partitions: Vec<Arc<dyn Select>>) -> Self {
        Self { partitions }
    }

    /// Selects series with `select` in all partitions.
    ///
    /// Once the limit on series is exceeded, the other partitions only count theirs, because the
    /// text of the error contains the number of all series.
    fn select_with(
        &self,
        request: SelectRequest<'_>,
        select: impl Fn(&dyn Select, SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error>,
    ) -> Result<Arc<dyn Selection>, Error> {
        if let [one] = &self.partitions[..] {
            return select(&**one, request);
        }
        let mut remaining = request.series.remaining();
        let mut found = 0;
        let mut parts = Vec::with_capacity(self.partitions.len());
        for partition in &self.partitions {
            request.cancel.check()?;
            let limit = SeriesLimit::new(remaining);
            let series = &limit;
            let selected = select(&**partition, SelectRequest { series, ..request });
            found += limit.found();
            match selected {
                Ok(part) => parts.push(part),
                Err(_) if limit.found() > remaining => parts.clear(),
                Err(e) => return Err(e),
            }
            remaining = limit.remaining();
        }
        request.series.add_series(found)?;
        Ok(Arc::new(ConcatenatedSelection::new(parts)))
    }

    /// Returns the items of all partitions, sorted and each once.
    fn collect_sorted<T: Ord>(
        &self,
        collect: impl Fn(&dyn Select) -> Result<Vec<T>, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        for partition in &self.partitions {
            all.append(&mut collect(&**partition)?);
        }
        if self.partitions.len() > 1 {
            all.sort_unstable();
            all.dedup();
        }
        Ok(all)
    }

    fn collect_losses(
        &self,
        losses_of: impl Fn(&dyn Select) -> DataLossWarnings,
    ) -> DataLossWarnings {
        match &self.partitions[..] {
            [one] => losses_of(&**one),
            several => DataLossWarnings::join(several.iter().map(|p| losses_of(&**p)).collect()),
        }
    }
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Select for PartitionedSelect {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_with(request, |partition, request| partition.select(request))
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        self.select_with(request, |partition, request| {
            partition.select_labels(request)
        })
    }

    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        let costs: Result<Vec<_>, Error> =
            self.partitions.iter().map(|p| p.explain(request)).collect();
        Ok(join_costs(&costs?, request.matchers.len()))
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.collect_sorted(|partition| partition.label_names(request))
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.collect_sorted(|partition| partition.label_values(name, request))
    }

    /// Returns the version of the only partition, or `None` if there are several.
    fn version(&self, tenant: &TenantId) -> Option<StoreVersion> {
        match &self.partitions[..] {
            [one] => one.version(tenant),
            _ => None,
        }
    }

    fn unchanged_before(&self, tenant: &TenantId, version: &StoreVersion) -> TimestampMs {
        match &self.partitions[..] {
            [one] => one.unchanged_before(tenant, version),
            _ => TimestampMs::MIN,
        }
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        let mut all = Vec::new();
        for partition in &self.partitions {
            all.append(&mut partition.exemplars(request)?);
        }
        if self.partitions.len() > 1 {
            all.sort_unstable_by(|a, b| a.series.cmp(&b.series));
        }
        Ok(all)
    }

    /// Returns the metadata of the first partition that has a metric. Partitions get their metadata
    /// from the same sources, and it contains no time by which the newest could be found.
    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        if let [one] = &self.partitions[..] {
            return one.metadata(request);
        }
        let partitions = self.partitions.iter();
        let batches: Result<Vec<MetadataBatch>, Error> =
            partitions.map(|p| p.metadata(request)).collect();
        Ok(join_metadata(&batches?))
    }

    fn loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.collect_losses(|partition| partition.loss_warnings(tenant, range))
    }

    fn label_loss_warnings(&self, tenant: &TenantId, range: TimeRange) -> DataLossWarnings {
        self.collect_losses(|partition| partition.label_loss_warnings(tenant, range))
    }
}

/// Joins the costs of `matchers` matchers in several partitions: the sum of their series, and
/// deferred if any partition defers the matcher.
pub(crate) fn join_costs(partitions: &[Vec<MatcherCost>], matchers: usize) -> Vec<MatcherCost> {
    let join = |matcher: usize| {
        let costs = || partitions.iter().map(|costs| costs[matcher]);
        MatcherCost {
            series: costs().map(|cost| cost.series).sum(),
            is_deferred: costs().any(|cost| cost.is_deferred),
        }
    };
    (0..matchers).map(join).collect()
}

/// Joins metadata: of each metric that of the first batch that contains it, sorted by name.
pub fn join_metadata(batches: &[MetadataBatch]) -> MetadataBatch {
    let mut all: Vec<MetricMetadata<'_>> = batches.iter().flat_map(|b| b.iter()).collect();
    all.sort_by_key(|metadata| metadata.name);
    all.dedup_by_key(|metadata| metadata.name);
    let mut joined = MetadataBatch::default();
    all.into_iter().for_each(|metadata| joined.push(metadata));
    joined
}
