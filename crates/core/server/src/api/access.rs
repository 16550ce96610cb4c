//! `/api/v1/status/access`: the permissions of the credential of the request. Clients such as the
//! web page hide operations that the server would refuse.
//!
//! Invariant: the endpoint answers before the store is open, and reveals nothing about the data.

use super::status::json_document;
use crate::app::ServerApp;
use crate::http::produce::{ResponseEncoding, respond};
use axum::extract::Request;
use axum::response::Response;
use firn_model::access::{AccessGrant, AccessScope};
use serde::Serialize;
use std::sync::Arc;

/// Permissions of a credential. Without configured credentials `name` is empty and all scopes are
/// listed. Empty `match` and `tenants` mean no restriction.
#[derive(Serialize)]
struct AccessDocument {
    name: String,
    scopes: Vec<&'static str>,
    r#match: Vec<String>,
    tenants: Vec<String>,
    /// True if requests must name a tenant.
    multitenancy: bool,
}

/// Returns the permissions of the credential of the request.
pub(crate) async fn access(app: ServerApp, request: Request) -> Response {
    let encoding = ResponseEncoding::from_request(&request);
    let open = Arc::new(AccessGrant::whole(String::new()));
    let grant = request.extensions().get::<Arc<AccessGrant>>();
    let grant = grant.unwrap_or(&open);
    let scopes = AccessScope::GRANTED.into_iter();
    let document = AccessDocument {
        name: grant.name.clone(),
        scopes: scopes
            .filter(|scope| grant.scopes.has(*scope))
            .map(AccessScope::name)
            .collect(),
        r#match: grant.matchers.iter().map(ToString::to_string).collect(),
        tenants: grant
            .tenants
            .iter()
            .map(|t| t.as_str().to_owned())
            .collect(),
        multitenancy: app.parts.multitenancy,
    };
    match json_document(&document) {
        Ok(text) => respond(text, "application/json", encoding),
        Err(failure) => failure.into_json(),
    }
}
