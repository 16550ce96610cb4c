//! A store that records look-ups and reads of samples as spans.
//!
//! Invariant: it is only used for requests that belong to a trace. If the trace is not sampled, it
//! only forwards the trace context to other servers during remote reads.

use firn_model::budget::Reservation;
use firn_model::cancel::Cancel;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::error::Error;
use firn_model::exemplar::FoundExemplars;
use firn_model::labels::Labels;
use firn_model::losses::Losses;
use firn_model::matcher::Matcher;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use firn_model::store::{ExemplarRequest, MetadataRequest, Select, SelectRequest, Selection};
use firn_model::sync::lock;
use firn_model::tenant::TenantId;
use firn_model::trace::{Span, SpanContext};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Name of the span of a look-up, the same as Prometheus's.
const SELECT: &str = "querierSelect";

/// Name of the span of all reads of a selection.
const READ: &str = "querierRead";

/// A store whose look-ups are child spans of one request. Created by [`traced`] for each request
/// that is traced.
pub(crate) struct Traced {
    store: Arc<dyn Select>,
    parent: SpanContext,
}

/// Returns `store` with spans below `parent`, or unchanged if there is none.
pub(crate) fn traced(store: Arc<dyn Select>, parent: Option<&SpanContext>) -> Arc<dyn Select> {
    match parent.cloned() {
        Some(parent) => Arc::new(Traced { store, parent }),
        None => store,
    }
}

impl Traced {
    fn look_up<T>(
        &self,
        name: &str,
        request: SelectRequest<'_>,
        find: impl FnOnce(&dyn Select, SelectRequest<'_>) -> Result<T, Error>,
        len: impl FnOnce(&T) -> usize,
    ) -> Result<T, Error> {
        let mut span = self.parent.begin(name);
        span.set("selector", || text_of(request.matchers));
        span.set("start", || request.range.min);
        span.set("end", || request.range.max);
        let context = span.context();
        let request = SelectRequest {
            span: context.as_ref(),
            ..request
        };
        let found = find(&*self.store, request);
        match &found {
            Ok(found) => span.set("found", || len(found)),
            Err(e) => span.fail(e),
        }
        found
    }

    fn selected(&self, found: Arc<dyn Selection>) -> Arc<dyn Selection> {
        if !self.parent.is_kept() {
            return found;
        }
        let reading = Mutex::new(Span::default());
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

impl Select for Traced {
    fn select(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let found = self.look_up(SELECT, request, |s, r| s.select(r), |found| found.len());
        Ok(self.selected(found?))
    }

    fn select_labels(&self, request: SelectRequest<'_>) -> Result<Arc<dyn Selection>, Error> {
        let find = |store: &dyn Select, request: SelectRequest<'_>| store.select_labels(request);
        let found = self.look_up(SELECT, request, find, |found| found.len());
        Ok(self.selected(found?))
    }

    fn label_names(&self, request: SelectRequest<'_>) -> Result<Vec<String>, Error> {
        self.look_up("labelNames", request, |s, r| s.label_names(r), Vec::len)
    }

    fn label_values(&self, name: &str, request: SelectRequest<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let find =
            |store: &dyn Select, request: SelectRequest<'_>| store.label_values(name, request);
        self.look_up("labelValues", request, find, Vec::len)
    }

    fn exemplars(&self, request: ExemplarRequest<'_>) -> Result<Vec<FoundExemplars>, Error> {
        let _span = self.parent.begin("exemplars");
        self.store.exemplars(request)
    }

    fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        let _span = self.parent.begin("metadata");
        self.store.metadata(request)
    }

    fn losses(&self, tenant: &TenantId, range: TimeRange) -> Losses {
        self.store.losses(tenant, range)
    }

    fn label_losses(&self, tenant: &TenantId, range: TimeRange) -> Losses {
        self.store.label_losses(tenant, range)
    }
}

/// A selection whose reads are recorded as one span, from the first read to the drop of the
/// selection.
struct TracedSelection {
    found: Arc<dyn Selection>,
    parent: SpanContext,
    /// Span that starts with the first read.
    reading: Mutex<Span>,
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
        cancel: &Cancel,
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
        lock(&self.reading).reach();
        Ok(())
    }

    fn losses(&self) -> Losses {
        self.found.losses()
    }
}

impl Drop for TracedSelection {
    fn drop(&mut self) {
        let mut reading = std::mem::take(&mut *lock(&self.reading));
        reading.set("series", || self.series.load(Ordering::Relaxed));
        reading.set("samples", || self.samples.load(Ordering::Relaxed));
    }
}
