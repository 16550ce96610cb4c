//! A store that records look-ups and reads of samples as spans.
//!
//! Invariant: it is only used for requests that belong to a trace. If the trace is not sampled, it
//! only forwards the trace context to other servers during remote reads.

use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::error::Error;
use firn_model::exemplar::SeriesExemplarResult;
use firn_model::labels::Labels;
use firn_model::losses::DataLossWarnings;
use firn_model::matcher::Matcher;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{
    ExemplarRequest, MatcherCost, MetadataRequest, ReadCosts, Select, SelectRequest, Selection,
    StoreVersion,
};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::{SpanContext, TraceSpan};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Name of the span of a look-up, the same as Prometheus's.
const SELECT: &str = "querierSelect";

/// Name of the span of all reads of a selection.
const READ: &str = "querierRead";

/// A store whose look-ups are child spans of one request. Created by [`trace_store`] for each
/// request that is traced.
pub(crate) struct TracedStore {
    store: Arc<dyn Select>,
    parent: SpanContext,
}

/// Returns `store` with spans below `parent`, or unchanged if there is none.
pub(crate) fn trace_store(store: Arc<dyn Select>, parent: Option<&SpanContext>) -> Arc<dyn Select> {
    match parent.cloned() {
        Some(parent) => Arc::new(TracedStore { store, parent }),
        None => store,
    }
}

impl TracedStore {
    fn look_up<T>(
        &self,
        name: &str,
        request: SelectRequest<'_>,
        find: impl FnOnce(&dyn Select, SelectRequest<'_>) -> Result<T, Error>,
        len: impl FnOnce(&T) -> usize,
    ) -> Result<T, Error> {
        let mut span = self.parent.begin(name);
        span.set_attribute("selector", || text_of(request.matchers));
        span.set_attribute("start", || request.range.min);
        span.set_attribute("end", || request.range.max);
        let context = span.context();
        let request = SelectRequest {
            span: context.as_ref(),
            ..request
        };
        let found = find(&*self.store, request);
        match &found {
            Ok(found) => span.set_attribute("found", || len(found)),
            Err(e) => span.set_error(e),
        }
        found
    }

    fn selected(&self, found: Arc<dyn Selection>) -> Arc<dyn Selection> {
        if !self.parent.is_recorded() {
            return found;
        }
        let reading = Mutex::new(TraceSpan::default());
        Arc::new(TracedSelection {
            found,
            parent: self.parent.clone(),
            reading,
            series: AtomicUsize::new(0),
            samples: AtomicUsize::new(0),
        })
    }
}

fn text_of(matchers: &[Matcher]) -> String {
    let texts: Vec<String> = matchers.iter().map(ToString::to_string).collect();
    format!("{{{}}}", texts.join(","))
}

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Select for TracedStore {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let found = self.look_up(SELECT, request, |s, r| s.select(r), |found| found.len());
        Ok(self.selected(found?))
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let find = |store: &dyn Select, request: SelectRequest<'_>| store.select_labels(request);
        let found = self.look_up(SELECT, request, find, |found| found.len());
        Ok(self.selected(found?))
    }

    fn explain(&self, request: SelectRequest<'_>) -> Result<Vec<MatcherCost>, Error> {
        self.look_up("explain", request, |s, r| s.explain(r), Vec::len)
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.look_up("labelNames", request, |s, r| s.label_names(r), Vec::len)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let find =
            |store: &dyn Select, request: SelectRequest<'_>| store.label_values(name, request);
        self.look_up("labelValues", request, find, Vec::len)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<SeriesExemplarResult>, Error> {
        let _span = self.parent.begin("exemplars");
        self.store.exemplars(request)
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        let _span = self.parent.begin("metadata");
        self.store.metadata(request)
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

/// A selection whose reads are recorded as one span, from the first read to the drop of the
/// selection.
struct TracedSelection {
    found: Arc<dyn Selection>,
    parent: SpanContext,
    /// Span that starts with the first read.
    reading: Mutex<TraceSpan>,
    series: AtomicUsize,
    samples: AtomicUsize,
}

impl Selection for TracedSelection {
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
        {
            let mut reading = lock(&self.reading);
            if reading.context().is_none() {
                *reading = self.parent.begin(READ);
            }
        }
        let (count, before) = (series.len(), into.sample_count());
        self.found.read(series, into)?;
        self.series.fetch_add(count, Ordering::Relaxed);
        let samples = into.sample_count() - before;
        self.samples.fetch_add(samples, Ordering::Relaxed);
        lock(&self.reading).mark_end();
        Ok(())
    }

    fn loss_warnings(&self) -> DataLossWarnings {
        self.found.loss_warnings()
    }

    fn read_costs(&self) -> ReadCosts {
        self.found.read_costs()
    }
}

impl Drop for TracedSelection {
    fn drop(&mut self) {
        let mut reading = std::mem::take(&mut *lock(&self.reading));
        reading.set_attribute("series", || self.series.load(Ordering::Relaxed));
        reading.set_attribute("samples", || self.samples.load(Ordering::Relaxed));
    }
}
