//! Administrative operations on the store, with upstream's paths and messages. All of them change
//! state.

use super::call::Call;
use super::origin;
use super::status::ok;
use crate::app::App;
use crate::http::failure::{Cause, Failure};
use axum::http::HeaderMap;
use axum::response::Response;
use firn_model::error::ErrorKind;
use serde_json::json;
use tokio::task::spawn_blocking;

/// Rejects the request if the admin API is disabled, or if a page of another origin sent it. Called
/// before the parameters are read.
pub(crate) fn admit(app: &App, headers: &HeaderMap) -> Result<(), Failure> {
    if !app.parts.is_admin_enabled {
        let cause = Cause::Execution(ErrorKind::Unavailable);
        return Err(Failure::new(cause, "admin APIs disabled"));
    }
    origin::check_same(&app.parts.web, headers)
}

/// Handles a request for a snapshot of the data folder. Returns the name of the snapshot.
pub(crate) async fn snapshot(call: Call) -> Result<Response, Failure> {
    let skips_head = call.form.flag("skip_head")?;
    let snapshot = call.backend.snapshot.clone();
    let made = spawn_blocking(move || snapshot(skips_head)).await;
    let made = made.map_err(|_| Failure::internal("the request failed: see the log"))?;
    match made {
        Ok(name) => ok(&call, &json!({ "name": name })),
        Err(e) => Err(Failure::internal(format!("create snapshot: {}", e.message))),
    }
}
