//! Administrative operations on the store, with upstream's paths and messages. All of them change
//! state.

use super::call::ApiCall;
use super::origin;
use super::status::ok_response;
use crate::app::ServerApp;
use crate::http::blocking::run_blocking;
use crate::http::failure::{ApiFailure, FailureCause};
use axum::http::HeaderMap;
use axum::response::Response;
use firn_model::error::ErrorKind;
use serde_json::json;

/// Rejects the request if the admin API is disabled, or if a page of another origin sent it. Called
/// before the parameters are read.
pub(crate) fn admit(app: &ServerApp, headers: &HeaderMap) -> Result<(), ApiFailure> {
    if !app.parts.is_admin_enabled {
        let cause = FailureCause::Execution(ErrorKind::Unavailable);
        return Err(ApiFailure::new(cause, "admin APIs disabled"));
    }
    origin::check_same(&app.parts.web, headers)
}

/// Handles a request for a snapshot of the data folder. Returns the name of the snapshot.
pub(crate) async fn snapshot(call: ApiCall) -> Result<Response, ApiFailure> {
    let skips_head = call.form.flag("skip_head")?;
    let snapshot = call.backend.snapshot.clone();
    match run_blocking(move || snapshot(skips_head)).await? {
        Ok(name) => ok_response(&call, &json!({ "name": name })),
        Err(e) => Err(ApiFailure::internal(format!(
            "create snapshot: {}",
            e.message
        ))),
    }
}
