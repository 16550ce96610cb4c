//! `/api/v1/alertmanagers`: the Alertmanagers that receive notifications. The fields are
//! upstream's.

use super::call::ApiCall;
use super::status::ok_response;
use crate::http::failure::ApiFailure;
use axum::response::Response;
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AlertmanagersDocument {
    active_alertmanagers: Vec<AlertmanagerDocument>,
    dropped_alertmanagers: Vec<AlertmanagerDocument>,
}

#[derive(Serialize)]
struct AlertmanagerDocument {
    url: String,
}

/// Returns the URLs of the Alertmanagers in use, and of those that relabelling dropped. Both lists
/// may be empty.
pub(crate) async fn alertmanagers(call: ApiCall) -> Result<Response, ApiFailure> {
    let found = (call.backend.alertmanagers)();
    let documents = |urls: Vec<String>| {
        urls.into_iter()
            .map(|url| AlertmanagerDocument { url })
            .collect()
    };
    let document = AlertmanagersDocument {
        active_alertmanagers: documents(found.active),
        dropped_alertmanagers: documents(found.dropped),
    };
    ok_response(&call, &document)
}
