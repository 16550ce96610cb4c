//! `/federate`: the newest samples of selected series in an exposition format that another server
//! can scrape, like Prometheus's `web/federate.go`.

use super::call::{ApiCall, not_ready};
use crate::app::ServerApp;
use crate::http::failure::ApiFailure;
use crate::http::produce::RenderedText;
use crate::metrics::ServerEndpoint;
use crate::parts::Backend;
use crate::watched::WatchedStore;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::error::Error;
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::order::{list_sort_bytes, sort_list_checked};
use firn_model::sample::{TimeRange, is_stale};
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Select, SelectRequest, Selection};
use firn_wire::federation::{FederatedValue, FederationFormat, FederationWriter};
use std::sync::Arc;

/// Label that contains the metric name.
const NAME: &str = "__name__";

/// Number of series between two checks of cancellation and memory.
const SERIES_PER_CHECK: usize = 128;

/// Memory of a series in the result list without its labels, allowing for growth of the list.
const PLACE_BYTES: usize = 2 * size_of::<FederatedSeries>();

/// A found series, with the index of its selection and its index within it. Sorted before samples
/// are read.
struct FederatedSeries {
    labels: Labels,
    selection: usize,
    index: usize,
}

/// Returns the newest sample of each selected series within the lookback period.
pub(crate) async fn federate(app: ServerApp, request: Request) -> Response {
    let backend = match app.backend() {
        Ok(backend) => backend,
        Err(state) => return not_ready(state),
    };
    match answer(&app, backend, request).await {
        Ok(response) => response,
        Err(failure) => failure.into_plain(),
    }
}

async fn answer(
    app: &ServerApp,
    backend: Arc<Backend>,
    request: Request,
) -> Result<Response, ApiFailure> {
    let format = FederationFormat::negotiate(accepted(request.headers()));
    let call = ApiCall::read(app, backend, ServerEndpoint::Federate, request).await?;
    if let Some(error) = call.form.first_error() {
        let message = format!("error parsing form values: {error}");
        return Err(ApiFailure::bad_data(message));
    }
    let now = app.parts.env.clock.now_ms();
    let range = TimeRange::new(now.saturating_sub(app.parts.query.lookback_ms), now);
    let selectors = call.distinct_selectors()?;
    let parts = (call.app.clone(), call.backend.clone(), call.tenant.clone());
    let external = (app.parts.external_labels)();
    let written = call.compute(move |run| {
        let (app, backend, tenant) = parts;
        let (budget, cancel) = (run.budget(), run.cancel());
        let store = WatchedStore::new(backend.local.clone(), run, app.parts.env.clock.clone());
        let mut memory = budget.create_reservation();
        let mut selections = Vec::new();
        for text in &selectors {
            let matchers = app.parts.engine.selector(text, &mut memory);
            let matchers: Vec<Matcher> = matchers.map_err(|e| ApiFailure::from_parser(e, None))?;
            // Like in Prometheus, an empty set of matchers selects nothing.
            if matchers.is_empty() {
                continue;
            }
            let selected = store.select(SelectRequest {
                tenant: &tenant,
                matchers: &matchers,
                range,
                newest_only: true,
                cancel,
                budget,
                series: &SeriesLimit::unlimited(),
                span: None,
            });
            selections.push(selected.map_err(ApiFailure::execution)?);
        }
        let found = sorted(&selections, cancel, &mut memory).map_err(ApiFailure::execution)?;
        let families = FederationWriter::new(format, &external);
        let text = write(&selections, &found, families, cancel, &mut memory);
        text.map(|text| (text, memory))
            .map_err(ApiFailure::execution)
    });
    let (text, memory) = written.await?;
    // The content type is a placeholder; the negotiated one is set below.
    let mut response = call.respond(RenderedText::new(text, memory), "text/plain");
    if let Ok(value) = HeaderValue::from_str(&format.content_type()) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    Ok(response)
}

fn accepted(headers: &HeaderMap) -> &str {
    let accept = headers.get(header::ACCEPT);
    accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Returns the series of all selections without duplicates, sorted by metric name and then by label
/// set.
fn sorted(
    selections: &[Arc<dyn Selection>],
    cancel: &CancelToken,
    memory: &mut Reservation,
) -> Result<Vec<FederatedSeries>, Error> {
    let mut found = Vec::new();
    for (selection, selected) in selections.iter().enumerate() {
        for start in (0..selected.len()).step_by(SERIES_PER_CHECK) {
            cancel.check()?;
            let mut bytes = 0;
            for index in start..selected.len().min(start + SERIES_PER_CHECK) {
                let labels = selected.labels(index);
                bytes += labels.as_bytes().len() + PLACE_BYTES;
                found.push(FederatedSeries {
                    labels,
                    selection,
                    index,
                });
            }
            memory.grow(bytes)?;
        }
    }
    memory.grow(list_sort_bytes(&found))?;
    let check = || cancel.check();
    sort_list_checked(&mut found, check, |a, b| a.labels.cmp(&b.labels))?;
    found.dedup_by(|a, b| a.labels == b.labels);
    // A separate sort is required, because label names with capitals precede `__name__` in label
    // order.
    let by_name =
        |a: &FederatedSeries, b: &FederatedSeries| a.labels.get(NAME).cmp(b.labels.get(NAME));
    sort_list_checked(&mut found, check, by_name)?;
    Ok(found)
}

fn write(
    selections: &[Arc<dyn Selection>],
    found: &[FederatedSeries],
    mut families: FederationWriter,
    cancel: &CancelToken,
    memory: &mut Reservation,
) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let mut batch = SeriesBatch::default();
    let mut held = 0;
    for (i, one) in found.iter().enumerate() {
        if i % SERIES_PER_CHECK == 0 {
            cancel.check()?;
        }
        batch.clear();
        selections[one.selection].read(one.index..one.index + 1, &mut batch)?;
        let series = batch.series(0);
        let (Some(time), Some(value)) = (series.times.last(), series.values.last()) else {
            continue;
        };
        let newest = series.times.len() - 1;
        let histogram = series
            .histograms
            .last()
            .filter(|(at, _)| *at as usize == newest);
        let value = match histogram {
            // The exposition formats have no stale markers.
            Some((_, histogram)) if histogram.is_stale() => continue,
            Some((_, histogram)) => FederatedValue::Histogram(histogram),
            None if is_stale(*value) => continue,
            None => FederatedValue::Float(*value),
        };
        families.push(&mut text, one.labels.as_ref(), *time, value);
        if text.capacity() > held {
            memory.grow(text.capacity() - held)?;
            held = text.capacity();
        }
    }
    families.finish(&mut text);
    memory.grow(text.capacity().saturating_sub(held))?;
    Ok(text)
}
