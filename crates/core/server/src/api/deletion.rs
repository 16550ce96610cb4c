//! `/api/v1/admin/tsdb/delete_series` and `/api/v1/admin/tsdb/clean_tombstones`, with the
//! parameters and messages of upstream (`web/api/v1/api.go`, 3.14).
//!
//! Unlike upstream, all selectors are parsed before any sample is deleted, and a selector that
//! matches every series is rejected. `dry_run` counts the samples that a delete would hide.

use super::call::ApiCall;
use super::series::SeriesLookup;
use super::status::json_document;
use crate::http::blocking::run_blocking;
use crate::http::failure::{ApiFailure, FailureCause};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use firn_model::error::{Error, ErrorKind};
use serde_json::json;

/// Maximum length of the matchers in a line of the audit log, in bytes.
const AUDITED_BYTES_MAX: usize = 4 << 10;

/// The operation, selectors and time range of a deletion, for its line in the audit log. Handlers
/// attach it to the response.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeletionAudit {
    /// The operation: `delete_series`, `dry_run` or `clean_tombstones`.
    pub(crate) action: &'static str,
    /// The values of `match[]`, separated by commas; cut off if they are long.
    pub(crate) matchers: String,
    /// The value of `start`, empty for all times.
    pub(crate) start: String,
    /// The value of `end`, empty for all times.
    pub(crate) end: String,
}

impl DeletionAudit {
    fn from_call(call: &ApiCall) -> Self {
        let mut matchers = String::new();
        for selector in call.form.all("match[]") {
            if !matchers.is_empty() {
                matchers.push_str(", ");
            }
            let room = AUDITED_BYTES_MAX.saturating_sub(matchers.len());
            let end = selector.floor_char_boundary(room);
            matchers.push_str(&selector[..end]);
            if end < selector.len() {
                matchers.push_str("...");
                break;
            }
        }
        Self {
            action: "delete_series",
            matchers,
            start: call.form.get("start").to_owned(),
            end: call.form.get("end").to_owned(),
        }
    }

    /// Attaches the audit to a response, also to that of a failure.
    fn attach(self, outcome: Result<Response, ApiFailure>) -> Response {
        let mut response = outcome.unwrap_or_else(ApiFailure::into_json);
        response.extensions_mut().insert(self);
        response
    }
}

/// Deletes the samples of the selected series in a time range. At least one selector is mandatory.
pub(crate) async fn delete_series(call: ApiCall) -> Result<Response, ApiFailure> {
    call.require_one_tenant()?;
    let mut audit = DeletionAudit::from_call(&call);
    let is_dry_run = call.form.flag("dry_run")?;
    if is_dry_run {
        audit.action = "dry_run";
    }
    let outcome = match read_lookup(&call) {
        Err(failure) => Err(failure),
        Ok(lookup) if is_dry_run => count(&call, lookup).await,
        Ok(lookup) => delete(&call, lookup).await,
    };
    Ok(audit.attach(outcome))
}

/// Returns the look-up of a request.
fn read_lookup(call: &ApiCall) -> Result<SeriesLookup, ApiFailure> {
    if let Some(error) = call.form.first_error() {
        return Err(ApiFailure::bad_data(format!(
            "error parsing form values: {error}"
        )));
    }
    if call.form.all("match[]").next().is_none() {
        return Err(ApiFailure::bad_data("no match[] parameter provided"));
    }
    SeriesLookup::of_local(call)
}

async fn count(call: &ApiCall, mut lookup: SeriesLookup) -> Result<Response, ApiFailure> {
    let counted = call.compute(move |run| {
        lookup.parse(run, Some("match[]"))?;
        let counts = lookup.count_samples(run);
        let counts = counts.map_err(ApiFailure::execution)?;
        json_document(&json!({ "series": counts.series, "samples": counts.samples }))
    });
    Ok(call.json(counted.await?))
}

async fn delete(call: &ApiCall, mut lookup: SeriesLookup) -> Result<Response, ApiFailure> {
    let delete = call.backend.delete_series.clone();
    let deleted = call.compute(move |run| {
        lookup.parse(run, Some("match[]"))?;
        lookup.delete(run, &*delete).map_err(failure)
    });
    deleted.await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Removes deleted samples from the disk.
pub(crate) async fn clean_tombstones(call: ApiCall) -> Result<Response, ApiFailure> {
    call.require_one_tenant()?;
    let (clean, tenant) = (call.backend.clean_tombstones.clone(), call.tenant.clone());
    let cleaned = run_blocking(move || clean(&tenant)).await;
    let audit = DeletionAudit {
        action: "clean_tombstones",
        ..DeletionAudit::default()
    };
    let outcome = cleaned.and_then(|cleaned| cleaned.map_err(failure));
    Ok(audit.attach(outcome.map(|()| StatusCode::NO_CONTENT.into_response())))
}

/// Returns the failure of an operation of the store. Errors that the client can correct keep their
/// kind; upstream has one kind for all.
fn failure(error: Error) -> ApiFailure {
    match error.kind {
        ErrorKind::Invalid | ErrorKind::Limited | ErrorKind::Canceled => {
            ApiFailure::new(FailureCause::Execution(error.kind), error.message)
        }
        _ => ApiFailure::internal(error.message),
    }
}
