//! Client that posts bodies unchanged to one URL: for remote write, and for the requests that `firn
//! mirror` sends to its targets.

use firn_http_client::{BodyLimit, HttpClient, HttpSettings, RequestSigner, USER_AGENT, read_body};
use firn_model::error::Error;
use hyper::Uri;
use hyper::body::Bytes;
use hyper::header::{
    HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT as AGENT,
};
use percent_encoding::percent_decode_str;
use std::sync::Arc;

/// Number of bytes of a response body that are read. A body up to this size allows the connection
/// to be reused.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Number of bytes of a response body that are kept for error messages.
const TEXT_BYTES_MAX: usize = 512;

/// Response headers with the numbers of written samples, histograms and exemplars (remote write
/// 2.0).
const WRITTEN: [HeaderName; 3] = [
    HeaderName::from_static("x-prometheus-remote-write-samples-written"),
    HeaderName::from_static("x-prometheus-remote-write-histograms-written"),
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written"),
];

/// A URL with the HTTP client that sends bodies to it.
#[derive(Debug)]
pub struct ForwardClient {
    uri: Uri,
    client: HttpClient,
}

/// The parts of a server's response that senders evaluate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardResponse {
    /// HTTP status code.
    pub status: u16,
    /// Value of the `Retry-After` header, if present.
    pub retry_after: Option<String>,
    /// Value of the `Location` header, if present.
    pub location: Option<String>,
    /// Numbers of samples, histograms and exemplars that the server reports as written; 0 for
    /// missing headers.
    pub written: [u64; 3],
    /// Beginning of the body, at most 512 bytes, for error messages.
    pub text: String,
}

/// Returns `host:port` of `url`, with the default port of the scheme if the URL contains none.
/// Fails if the URL is not `http` or `https`, has no host or contains a user.
pub fn host_and_port(url: &str) -> Result<String, String> {
    let uri: Uri = url.parse().map_err(|e| format!("{url:?}: {e}"))?;
    let port = match uri.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => {
            return Err(format!("{url:?} does not begin with http:// or https://"));
        }
    };
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err("contains a user or a password: use basic_auth".to_owned());
    }
    match uri.host() {
        None | Some("") => Err(format!("{url:?} has no host")),
        Some(host) => Ok(format!("{host}:{}", uri.port_u16().unwrap_or(port))),
    }
}

/// Splits a URL into the URL without user and password, and the percent-decoded user and password
/// if there were any.
pub fn split_user_info(url: &str) -> (String, Option<(String, String)>) {
    let Some((scheme, rest)) = url.split_once("://") else {
        return (url.to_owned(), None);
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else {
        return (url.to_owned(), None);
    };
    let (user, password) = rest[..at].split_once(':').unwrap_or((&rest[..at], ""));
    let decoded = |text: &str| {
        let bytes = percent_decode_str(text);
        bytes.decode_utf8_lossy().into_owned()
    };
    let bare = format!("{scheme}://{}", &rest[at + 1..]);
    (bare, Some((decoded(user), decoded(password))))
}

impl ForwardClient {
    /// Creates a client that posts to `url` with the HTTP settings `settings`. Fails if
    /// [`host_and_port`] rejects the URL.
    pub fn new(url: &str, settings: HttpSettings) -> Result<Self, String> {
        host_and_port(url)?;
        Ok(Self {
            uri: url.parse().map_err(|e| format!("{url:?}: {e}"))?,
            client: HttpClient::new(settings),
        })
    }

    /// Sets the signer of requests, if there is one.
    #[must_use]
    pub fn with_signer(self, signer: Option<Arc<dyn RequestSigner>>) -> Self {
        Self {
            client: self.client.with_signer(signer),
            ..self
        }
    }

    /// Posts `body` with `headers`, whose names must be lower case. Responses of any status are
    /// `Ok`. Fails with [`firn_model::error::ErrorKind::Unavailable`] if there is no response.
    pub async fn post_body(
        &self,
        headers: Vec<(&'static str, Bytes)>,
        body: Bytes,
    ) -> Result<ForwardResponse, Error> {
        let mut all = HeaderMap::with_capacity(headers.len() + 1);
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_maybe_shared(value) {
                all.insert(HeaderName::from_static(name), value);
            }
        }
        all.insert(AGENT, HeaderValue::from_static(USER_AGENT));
        let response = self.client.post(&self.uri, &all, body).await?;
        let header = |name: HeaderName| {
            let value = response.headers().get(name)?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let status = response.status().as_u16();
        let (retry_after, location) = (header(RETRY_AFTER), header(LOCATION));
        let count = |name| header(name).and_then(|text| text.trim().parse().ok());
        let written = WRITTEN.map(|name| count(name).unwrap_or(0));
        // The status is sufficient for the sender, so a failure to read the body is ignored.
        let read = read_body(response, BodyLimit::from_bytes_max(ANSWER_BYTES_MAX)).await;
        let text = read.map(|body| body.bytes).unwrap_or_default();
        let shown = text.get(..TEXT_BYTES_MAX).unwrap_or(&text);
        Ok(ForwardResponse {
            status,
            retry_after,
            location,
            written,
            text: String::from_utf8_lossy(shown).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_names_host_and_port_or_says_what_is_wrong() {
        for (url, expected) in [
            ("http://a.example/api/v1/write", Ok("a.example:80")),
            ("https://a.example?x=y", Ok("a.example:443")),
            ("http://127.0.0.1:9090/x", Ok("127.0.0.1:9090")),
            ("http://[::1]:9090/x", Ok("[::1]:9090")),
            ("ftp://a/x", Err("does not begin with http")),
            ("a:9090/x", Err("")),
            ("/x", Err("does not begin with http")),
            ("http://", Err("")),
            ("http://u:p@a/x", Err("use basic_auth")),
            ("http://a b/x", Err("http://a b/x")),
        ] {
            match (host_and_port(url), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{url}"),
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{url}: {got}"),
                (got, expected) => panic!("{url}: {got:?}, expected {expected:?}"),
            }
        }
    }
}
