//! The asynchronous HTTP client of scraping, discovery, remote write, remote read and notification.
//!
//! It follows the semantics of Prometheus's library for HTTP clients: TLS files that are read again
//! when they change, basic and bearer credentials, OAuth 2.0, proxies, redirects, signatures.
//!
//! ```text
//! HttpClient (credentials, redirects) -> Transport (TLS, files reread) -> Route (proxies) -> TCP
//! ```
//!
//! Invariant: credentials are sent to the requested host alone, whatever it redirects to. Deadlines
//! are the caller's: dropping a future ends the request.
//!
//! [`named_files`] reads the files that a config names, and [`MemoryShare`] bounds the memory of
//! bodies; both are here because every user of the client needs them.

mod assertion;
mod auth;
mod body;
mod exec;
mod memory_share;
pub mod named_files;
mod places;
mod private_key;
mod route;
mod secret;
mod settings;
mod sign;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

pub use assertion::SigningAlgorithm;
pub use assertion::{sign as sign_claims, signature, signed};
pub use auth::form_encode;
pub use body::{Body, BodyLimit, TOO_LARGE, read as read_body};
pub use memory_share::MemoryShare;
pub use places::Places;
pub use private_key::{Block, of_der as key_of_der, of_pem as key_of_pem};
pub use secret::reveal;
pub use settings::{
    Assertion, Auth, ExecSettings, HeaderValueSource, HttpSettings, OAuth2Settings, ProxySettings,
    Secret, TlsSettings, TlsVersion,
};
pub use sign::{Sign, Signing, ToSign};

use auth::Authorizer;
use firn_model::error::Error;
use firn_model::trace::TraceParent;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, LOCATION};
use hyper::http::uri::Parts;
use hyper::{HeaderMap, Method, Request, Response, Uri};
use std::borrow::Cow;
use std::sync::Arc;
use transport::Transport;

/// The `User-Agent` of every request: how servers know Firn.
pub const USER_AGENT: &str = concat!("Firn/", env!("CARGO_PKG_VERSION"));

/// Says where a client stands in a trace.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Redirects that are followed for one request, as in Go.
const REDIRECTS_MAX: usize = 10;

/// A client with its pool of connections. Share it: connections are kept between requests.
pub struct HttpClient {
    settings: HttpSettings,
    transport: Transport,
    authorizer: Authorizer,
    signer: Option<Arc<dyn Sign>>,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl HttpClient {
    /// A client that behaves as `settings` say. Files are read when a request needs them.
    pub fn new(settings: HttpSettings) -> Self {
        Self::within(Places::unlimited(), settings)
    }

    /// A client like that of [`HttpClient::new`] whose connections take `places`.
    pub fn within(places: Places, settings: HttpSettings) -> Self {
        let (tls, proxy) = (&settings.tls, &settings.proxy);
        Self {
            transport: Transport::new(tls, proxy, settings.enable_http2, places),
            authorizer: Authorizer::new(&settings.auth),
            signer: None,
            settings,
        }
    }

    /// The client, with `signer` signing what it sends.
    #[must_use]
    pub fn signed_by(mut self, signer: Option<Arc<dyn Sign>>) -> Self {
        self.signer = signer;
        self
    }

    /// The client, which speaks HTTP/2 and nothing else, without TLS too: gRPC wants that.
    #[must_use]
    pub fn speaking_http2_alone(mut self) -> Self {
        self.transport.speak_http2_alone();
        self
    }

    /// Asks for `uri`; returns when the head of the answer is there. Any status is an answer.
    /// Fails with [`firn_model::error::ErrorKind::Unavailable`].
    pub async fn get(&self, uri: &Uri, headers: &HeaderMap) -> Result<Response<Incoming>, Error> {
        self.send(Method::GET, uri, headers, Bytes::new()).await
    }

    /// Sends `body` to `uri`; otherwise like [`Self::get`]. A redirect that does not ask for the
    /// same request again is followed with GET, as Go does.
    pub async fn post(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Error> {
        self.send(Method::POST, uri, headers, body).await
    }

    async fn send(
        &self,
        mut method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        mut body: Bytes,
    ) -> Result<Response<Incoming>, Error> {
        let own = self.own_headers().await?;
        let asked = method.clone();
        let mut at = uri.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = Request::builder().method(method.clone()).uri(at.clone());
            let mut all = headers.clone();
            if at.authority() == uri.authority() {
                all.extend(own.clone());
                if let Some(signer) = &self.signer {
                    let signing = signer.sign(ToSign {
                        method: &method,
                        uri: &at,
                        headers: &all,
                        body: &body,
                    });
                    let signed = signing.await?;
                    all.extend(signed);
                }
            }
            if let Some(into) = request.headers_mut() {
                *into = all;
            }
            let request = request
                .body(Full::new(body.clone()))
                .map_err(|e| failed(&asked, uri, &e.to_string()))?;
            let response = self
                .transport
                .send(request)
                .await
                .map_err(|message| failed(&asked, &at, &message))?;
            match redirect(&response, &at) {
                Some(next) if self.settings.follow_redirects => at = next,
                _ => return Ok(response),
            }
            if !matches!(response.status().as_u16(), 307 | 308) {
                (method, body) = (Method::GET, Bytes::new());
            }
        }
        let message = format!("stopped after {REDIRECTS_MAX} redirects");
        Err(failed(&asked, &at, &message))
    }

    /// Headers that only the host that was asked for may see.
    async fn own_headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        if let Some(value) = self.authorizer.header().await? {
            headers.insert(AUTHORIZATION, value);
        }
        for (name, values) in &self.settings.headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| Error::unavailable(format!("{name:?} is not a valid header name")))?;
            for value in values {
                let text = match value {
                    HeaderValueSource::Plain(text) => text.clone(),
                    HeaderValueSource::Secret(secret) => secret::reveal(secret, "header").await?,
                };
                let value = HeaderValue::from_str(&text).map_err(|_| {
                    Error::unavailable(format!("header {name} has an invalid value"))
                })?;
                headers.append(name.clone(), value);
            }
        }
        Ok(headers)
    }
}

/// The `headers`, with where the client stands in a trace if it stands in one.
pub fn with_trace(headers: &HeaderMap, at: Option<TraceParent>) -> Cow<'_, HeaderMap> {
    let value = at.and_then(|at| HeaderValue::from_str(&at.header()).ok());
    let Some(value) = value else {
        return Cow::Borrowed(headers);
    };
    let mut all = headers.clone();
    all.insert(TRACEPARENT, value);
    Cow::Owned(all)
}

/// Where `response` to `from` sends the client, if it does.
fn redirect(response: &Response<Incoming>, from: &Uri) -> Option<Uri> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    resolve(from, location)
}

/// A reference that stands on the page `base`.
fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next().unwrap_or_default();
    let scheme = base.scheme_str()?;
    if reference.starts_with("//") {
        return format!("{scheme}:{reference}").parse().ok();
    }
    let is_absolute = reference
        .split_once("://")
        .is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()));
    if is_absolute {
        return reference.parse().ok();
    }
    let path = match reference {
        rooted if rooted.starts_with('/') => rooted.to_owned(),
        query if query.starts_with('?') => format!("{}{query}", base.path()),
        "" => return Some(base.clone()),
        relative => {
            let folder = base.path().rfind('/').map_or("/", |at| &base.path()[..=at]);
            without_dots(&format!("{folder}{relative}"))
        }
    };
    let mut parts = Parts::default();
    parts.scheme = base.scheme().cloned();
    parts.authority = base.authority().cloned();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// A path without `.` and `..`.
fn without_dots(path: &str) -> String {
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (i, segment) in segments.iter().enumerate() {
        match *segment {
            ".." => {
                kept.pop();
            }
            "." => {}
            other => kept.push(other),
        }
        if i + 1 == segments.len() && matches!(*segment, "." | "..") {
            kept.push("");
        }
    }
    let path = format!("/{}", kept.join("/"));
    query.map_or(path.clone(), |query| format!("{path}?{query}"))
}

/// What Go says of a request: the method as a word.
fn failed(method: &Method, uri: &Uri, message: &str) -> Error {
    let word = match *method {
        Method::POST => "Post",
        _ => "Get",
    };
    Error::unavailable(format!("{word} \"{uri}\": {message}"))
}
