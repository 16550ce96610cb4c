//! Bodies that are posted to one URL as they are: requests of remote write, and those that
//! `firn mirror` sends to its targets.

use firn_http_client::{BodyLimit, HttpClient, HttpSettings, Sign, USER_AGENT, read_body};
use firn_model::error::Error;
use hyper::Uri;
use hyper::body::Bytes;
use hyper::header::{
    HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT as AGENT,
};
use percent_encoding::percent_decode_str;
use std::sync::Arc;

/// Bytes of an answer that are read: so much lets its connection be used again.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Bytes of an answer that are shown.
const TEXT_BYTES_MAX: usize = 512;

/// In which a receiver says how many samples, histograms and exemplars it wrote.
const WRITTEN: [HeaderName; 3] = [
    HeaderName::from_static("x-prometheus-remote-write-samples-written"),
    HeaderName::from_static("x-prometheus-remote-write-histograms-written"),
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written"),
];

/// A URL and the client that reaches it.
#[derive(Debug)]
pub struct Forward {
    uri: Uri,
    client: HttpClient,
}

/// What a server said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// The status.
    pub status: u16,
    /// `Retry-After`, if there was one.
    pub retry_after: Option<String>,
    /// `Location`, if there was one.
    pub location: Option<String>,
    /// Samples, histograms and exemplars that it says it wrote; 0 where it does not say.
    pub written: [u64; 3],
    /// The beginning of the body.
    pub text: String,
}

/// Host and port of `url`, the scheme's own if it names none; an error if no body can be posted
/// there.
pub fn address(url: &str) -> Result<String, String> {
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

/// A URL without user and password, and those.
pub fn without_user(url: &str) -> (String, Option<(String, String)>) {
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

impl Forward {
    /// What posts to `url` as `settings` say.
    pub fn new(url: &str, settings: HttpSettings) -> Result<Self, String> {
        address(url)?;
        Ok(Self {
            uri: url.parse().map_err(|e| format!("{url:?}: {e}"))?,
            client: HttpClient::new(settings),
        })
    }

    /// The same, with `signer` signing what is posted.
    #[must_use]
    pub fn signed_by(self, signer: Option<Arc<dyn Sign>>) -> Self {
        Self {
            client: self.client.signed_by(signer),
            ..self
        }
    }

    /// Posts `body` with `headers`, whose names are in lower case. Any status is an answer; fails
    /// with [`firn_model::error::ErrorKind::Unavailable`] if there is none.
    pub async fn post(
        &self,
        headers: Vec<(&'static str, Bytes)>,
        body: Bytes,
    ) -> Result<Forwarded, Error> {
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
        // The status says all that matters, whatever becomes of the rest.
        let read = read_body(response, BodyLimit::bytes(ANSWER_BYTES_MAX)).await;
        let text = read.map(|body| body.bytes).unwrap_or_default();
        let shown = text.get(..TEXT_BYTES_MAX).unwrap_or(&text);
        Ok(Forwarded {
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
            match (address(url), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{url}"),
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{url}: {got}"),
                (got, expected) => panic!("{url}: {got:?}, expected {expected:?}"),
            }
        }
    }
}
