//! What requests to all of Amazon's services have in common.

use super::credentials::Credentials;
use super::sign::{Request, Scope, Signed};
use crate::discovery::api::{header_value, wrong};
use firn_model::error::Error;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};

/// Adds to `headers` the date and the signature of a POST of `body`.
pub(super) fn add_signature(
    headers: &mut HeaderMap,
    endpoint: &str,
    body: &str,
    credentials: &Credentials,
    scope: &Scope<'_>,
) -> Result<(), Error> {
    let host = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let mut signing: Vec<(String, String)> = vec![("host".into(), host.into())];
    for (name, value) in headers.iter() {
        let value = value.to_str().unwrap_or_default();
        signing.push((name.as_str().into(), value.into()));
    }
    let request = Request {
        method: "POST",
        path: "/",
        query: "",
        body: body.as_bytes(),
    };
    let signed = Signed::new(&request, signing, credentials, scope);
    headers.insert(AUTHORIZATION, header_value(&signed.authorization)?);
    for (name, value) in signed.added {
        headers.insert(HeaderName::from_static(name), header_value(&value)?);
    }
    Ok(())
}

/// Where a service is in a region.
pub(super) fn endpoint(service: &str, region: &str) -> String {
    let ending = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://{service}.{region}.amazonaws.com{ending}")
}

/// What went wrong, behind `what`.
pub(super) fn failed(what: &str, error: &Error) -> Error {
    wrong(format!("{what}: {error}"))
}
