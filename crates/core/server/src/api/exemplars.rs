//! `/api/v1/query_exemplars`: the exemplars of the series that an expression selects.

use super::answer::{ListDocument, ResponseAnnotations, push_labels};
use super::call::ApiCall;
use super::times::{TIME_MAX, TIME_MIN};
use crate::http::failure::ApiFailure;
use crate::json::{FloatNotation, push_float, push_timestamp};
use crate::watched::WatchedStore;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use firn_model::exemplar::{ExemplarResult, SeriesExemplarResult};
use firn_model::sample::TimeRange;
use firn_model::store::{ExemplarRequest, Select};

/// Memory of an exemplar in a response without its labels: the structure and an allocation, in
/// bytes.
const EXEMPLAR_BYTES: usize = size_of::<ExemplarResult>() + 32;

/// Returns the exemplars of all selectors in the parameter `query` within the time range, grouped
/// by series.
pub(crate) async fn query(call: ApiCall) -> Result<Response, ApiFailure> {
    let min = call.form.time_or("start", TIME_MIN)?;
    let max = call.form.time_or("end", TIME_MAX)?;
    if max < min {
        let why = "end timestamp must not be before start timestamp";
        return Err(ApiFailure::bad_data(why));
    }
    let text = call.form.get("query").to_owned();
    let (app, store, tenant) = (
        call.app.clone(),
        call.backend.store.clone(),
        call.tenant.clone(),
    );
    let found = call.compute(move |run| {
        let (budget, cancel) = (run.budget(), run.cancel());
        let store = WatchedStore::new(store, run, app.parts.env.clock.clone());
        let (mut held, features) = (budget.create_reservation(), app.parts.query.features);
        let selectors = app.parts.engine.selectors(&text, features, &mut held);
        let sets = selectors.map_err(|e| ApiFailure::from_parser(e, None))?;
        if sets.is_empty() {
            return Ok(None);
        }
        for matcher in sets.iter().flatten() {
            matcher.bind(budget, cancel);
        }
        let request = ExemplarRequest {
            tenant: &tenant,
            sets: &sets,
            range: TimeRange::new(min, max),
            cancel,
            budget,
        };
        let found = store.exemplars(request).map_err(ApiFailure::execution)?;
        let losses = store.loss_warnings(&tenant, request.range);
        held.grow(found.iter().map(bytes).sum())
            .map_err(ApiFailure::execution)?;
        Ok(Some((found, losses, held)))
    });
    let Some((found, losses, held)) = found.await? else {
        // Upstream answers 204 to an expression without a selector.
        let mut nothing = Response::new(Body::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    };
    let annotations = ResponseAnnotations {
        warnings: losses.texts(),
        infos: Vec::new(),
    };
    let list = ListDocument::new(found.len(), annotations, move |out, i| {
        // Keeps the memory reserved until the response was sent.
        let _ = &held;
        push_series(out, &found[i]);
    });
    Ok(call.json(list))
}

fn bytes(found: &SeriesExemplarResult) -> usize {
    let labels = found.exemplars.iter().map(|e| e.labels.as_bytes().len());
    found.series.as_bytes().len() + labels.map(|bytes| EXEMPLAR_BYTES + bytes).sum::<usize>()
}

fn push_series(out: &mut Vec<u8>, found: &SeriesExemplarResult) {
    out.extend_from_slice(br#"{"seriesLabels":"#);
    push_labels(out, found.series.as_ref());
    out.extend_from_slice(br#","exemplars":["#);
    for (i, exemplar) in found.exemplars.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"labels":"#);
        push_labels(out, exemplar.labels.as_ref());
        out.extend_from_slice(br#","value":""#);
        push_float(out, exemplar.value, FloatNotation::Sample);
        out.extend_from_slice(br#"","timestamp":"#);
        push_timestamp(out, exemplar.time);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}
