//! `/api/v1/alertmanagers`: the Alertmanagers that receive notifications. The fields are
//! upstream's.

use super::call::Call;
use super::status::ok;
use crate::http::failure::Failure;
use axum::response::Response;
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    active_alertmanagers: Vec<Alertmanager>,
    dropped_alertmanagers: Vec<Alertmanager>,
}

#[derive(Serialize)]
struct Alertmanager {
    url: String,
}

/// Returns the URLs of the Alertmanagers in use, and of those that relabelling dropped. Both lists
/// may be empty.
pub(crate) async fn alertmanagers(call: Call) -> Result<Response, Failure> {
    let found = (call.backend.alertmanagers)();
    let documents = |urls: Vec<String>| urls.into_iter().map(|url| Alertmanager { url }).collect();
    let document = Document {
        active_alertmanagers: documents(found.active),
        dropped_alertmanagers: documents(found.dropped),
    };
    ok(&call, &document)
}
