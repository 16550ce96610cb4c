//! Authenticates a request with the current rules, and builds the HTTP response to a rejected one.
//!
//! Invariant: a rejection reveals only the supported authentication schemes, and nothing about the
//! requested resource.

use super::gate::{AccessGate, AccessRefusal};
use super::rules::AccessRules;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::metrics::ServerMetrics;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_model::access::AccessGrant;
use firn_model::error::ErrorKind;
use std::sync::Arc;

/// Returns the grant of the request with these headers, or the response that rejects it. `None`
/// means that no credentials are required.
pub(crate) async fn enter(
    access: &AccessGate,
    rules: &AccessRules,
    headers: &HeaderMap,
    metrics: &ServerMetrics,
) -> Result<Option<Arc<AccessGrant>>, Response> {
    access
        .admit(rules, headers)
        .await
        .map_err(|refusal| match refusal {
            AccessRefusal::Unknown => {
                metrics.requests_unauthenticated.inc();
                unauthorized(rules)
            }
            AccessRefusal::Busy => {
                let cause = FailureCause::Request(ErrorKind::Unavailable);
                ApiFailure::new(cause, "too many passwords are waiting to be checked").into_plain()
            }
        })
}

/// Returns the response to a request that exceeds the rate limit.
pub(crate) fn too_many() -> Response {
    plain(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests\n")
}

/// Returns a 401 response that lists the supported authentication schemes in `WWW-Authenticate`.
fn unauthorized(rules: &AccessRules) -> Response {
    let mut response = plain(StatusCode::UNAUTHORIZED, "Unauthorized\n");
    let kinds = [
        (!rules.users.is_empty(), "Basic"),
        (!rules.tokens.is_empty(), "Bearer"),
    ];
    for (_, kind) in kinds.into_iter().filter(|(is_there, _)| *is_there) {
        let value = HeaderValue::from_static(kind);
        response
            .headers_mut()
            .append(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// Returns a plain-text response with the headers that Go's `http.Error` sets.
fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}
