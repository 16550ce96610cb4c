//! Signing and endpoints of requests, common to all AWS services.

use super::credentials::AwsCredentials;
use super::sign::{Request, SigV4Headers, SigV4Scope};
use crate::api::{invalid_response_error, parse_header_value};
use firn_model::error::Error;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};

/// Adds the date and the signature of a POST request with `body` to `headers`.
pub(in super::super) fn sign_post(
    headers: &mut HeaderMap,
    url: &str,
    body: &str,
    credentials: &AwsCredentials,
    scope: &SigV4Scope<'_>,
) -> Result<(), Error> {
    let post = Request {
        method: "POST",
        path: "",
        query: "",
        body: body.as_bytes(),
    };
    sign_request(headers, url, post, credentials, scope)
}

/// Adds the date and the signature of a GET request to `headers`, like [`sign_post`] for POST.
pub(super) fn sign_get(
    headers: &mut HeaderMap,
    url: &str,
    credentials: &AwsCredentials,
    scope: &SigV4Scope<'_>,
) -> Result<(), Error> {
    let get = Request {
        method: "GET",
        path: "",
        query: "",
        body: b"",
    };
    sign_request(headers, url, get, credentials, scope)
}

/// Signs a request with the path and query of `url`, and adds the signature to `headers`.
fn sign_request(
    headers: &mut HeaderMap,
    url: &str,
    request: Request<'_>,
    credentials: &AwsCredentials,
    scope: &SigV4Scope<'_>,
) -> Result<(), Error> {
    let uri: Uri = url
        .parse()
        .map_err(|e| invalid_response_error(format!("{url:?}: {e}")))?;
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
    let signed = SigV4Headers::new(&request, signing, credentials, scope);
    headers.insert(AUTHORIZATION, parse_header_value(&signed.authorization)?);
    for (name, value) in signed.added {
        headers.insert(HeaderName::from_static(name), parse_header_value(&value)?);
    }
    Ok(())
}

/// Returns the default endpoint URL of a service in a region.
pub(super) fn default_endpoint(service: &str, region: &str) -> String {
    let ending = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://{service}.{region}.amazonaws.com{ending}")
}

/// Wraps an error with a description of the operation that failed.
pub(super) fn wrap_failure(what: &str, error: &Error) -> Error {
    invalid_response_error(format!("{what}: {error}"))
}
