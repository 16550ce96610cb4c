//! What requests to all of Amazon's services have in common.

use super::credentials::Credentials;
use super::sign::{Request, Scope, Signed};
use crate::api::{header_value, wrong};
use firn_model::error::Error;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};

/// Adds to `headers` the date and the signature of a POST of `body` to `url`.
pub(in super::super) fn add_signature(
    headers: &mut HeaderMap,
    url: &str,
    body: &str,
    credentials: &Credentials,
    scope: &Scope<'_>,
) -> Result<(), Error> {
    let post = Request {
        method: "POST",
        path: "",
        query: "",
        body: body.as_bytes(),
    };
    sign(headers, url, post, credentials, scope)
}

/// Like [`add_signature`], of a GET.
pub(super) fn add_signature_of_get(
    headers: &mut HeaderMap,
    url: &str,
    credentials: &Credentials,
    scope: &Scope<'_>,
) -> Result<(), Error> {
    let get = Request {
        method: "GET",
        path: "",
        query: "",
        body: b"",
    };
    sign(headers, url, get, credentials, scope)
}

/// Signs a request whose path and query are those of `url`.
fn sign(
    headers: &mut HeaderMap,
    url: &str,
    request: Request<'_>,
    credentials: &Credentials,
    scope: &Scope<'_>,
) -> Result<(), Error> {
    let uri: Uri = url.parse().map_err(|e| wrong(format!("{url:?}: {e}")))?;
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let mut signing: Vec<(String, String)> = vec![("host".into(), host.into())];
    for (name, value) in headers.iter() {
        let value = value.to_str().unwrap_or_default();
        signing.push((name.as_str().into(), value.into()));
    }
    let request = Request {
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        ..request
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
