//! Asynchronous HTTP client for scraping, discovery, remote write, remote read and alert
//! notifications.
//!
//! It has the semantics of Prometheus's HTTP client library: TLS files that are reloaded when they
//! change, basic and bearer credentials, OAuth 2.0, proxies, redirects, signatures.
//!
//! ```text
//! HttpClient (credentials, redirects) -> Transport (TLS, reloads files) -> Pool (connections)
//!   -> Route (proxies) -> TCP
//! ```
//!
//! Invariant: credentials are sent only to the requested host and port, and to the same host over
//! TLS, regardless of redirects. Callers set deadlines: dropping a future cancels the request.
//!
//! [`http_config`] reads the settings of a client from a config. [`named_files`] reads files that a
//! config names, and [`MemoryShare`] limits the memory of bodies. They are part of this crate
//! because every user of the client needs them.

mod alert;
mod assertion;
mod auth;
mod body;
mod exchange;
mod exec;
mod framing;
pub mod http_config;
mod memory_share;
pub mod named_files;
mod no_proxy;
mod places;
mod pool;
mod private_key;
mod proxy;
mod redirect;
mod response_head;
mod route;
mod secret;
mod settings;
mod sign;
#[cfg(test)]
mod tests;
mod tls;
mod tls_records;
mod transport;
mod tunnel;
mod url_parts;

pub use assertion::SigningAlgorithm;
pub use assertion::{sign as sign_claims, sign_jwt, sign_rsa};
pub use auth::form_encode;
pub use body::{BodyLimit, DecodedBody, TOO_LARGE, read as read_body};
pub use memory_share::MemoryShare;
pub use places::ConnectionSlots;
pub use pool::ResponseBody;
pub use private_key::{PrivateKeyBlock, decode_der as key_of_der, decode_pem as key_of_pem};
pub use response_head::status_text;
pub use secret::reveal;
pub use settings::{
    AssertionSettings, AuthMethod, ClientTlsSettings, ClientTlsVersion, ExecSettings,
    HeaderValueSource, HttpSettings, OAuth2Settings, ProxySettings, Secret,
};
pub use sign::{RequestSigner, Signing, UnsignedRequest};
pub use tls::load_system_roots;
pub use url_parts::{encode_host, encode_path};

use auth::RequestAuthorizer;
use bytes::Bytes;
use firn_model::error::Error;
use firn_model::trace::TraceParent;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use redirect::{REQUESTS_MAX, RedirectHop};
use std::borrow::Cow;
use std::sync::Arc;
use transport::Transport;

/// The `User-Agent` header of every request, with the version of Firn.
pub const USER_AGENT: &str = concat!("Firn/", env!("CARGO_PKG_VERSION"));

/// Header that identifies the span of the client in a trace (W3C Trace Context).
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Number of bytes of a redirect's body that are read, as in Go.
const REDIRECT_BYTES_MAX: u64 = 2 << 10;

/// HTTP client with its own connection pool. Share one instance per configuration, so that
/// connections are reused.
pub struct HttpClient {
    settings: HttpSettings,
    transport: Transport,
    authorizer: RequestAuthorizer,
    signer: Option<Arc<dyn RequestSigner>>,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl HttpClient {
    /// Creates a client with these settings. Files are read when a request needs them.
    pub fn new(settings: HttpSettings) -> Self {
        Self::with_connection_slots(ConnectionSlots::unlimited(), settings)
    }

    /// Creates a client like [`HttpClient::new`] whose connections count against the limit of
    /// `places`.
    pub fn with_connection_slots(places: ConnectionSlots, settings: HttpSettings) -> Self {
        let (tls, proxy) = (&settings.tls, &settings.proxy);
        Self {
            transport: Transport::new(tls, proxy, settings.enable_http2, places),
            authorizer: RequestAuthorizer::new(&settings.auth),
            signer: None,
            settings,
        }
    }

    /// Sets the signer of requests, if there is one. Only trusted hosts receive signatures.
    #[must_use]
    pub fn with_signer(mut self, signer: Option<Arc<dyn RequestSigner>>) -> Self {
        self.signer = signer;
        self
    }

    /// Makes the client use only HTTP/2, even without TLS (prior knowledge), as gRPC requires.
    #[must_use]
    pub fn with_http2_only(mut self) -> Self {
        self.transport.set_http2_only();
        self
    }

    /// Sends a GET request and returns as soon as the response head has arrived. Responses of any
    /// status are `Ok`. Fails with [`firn_model::error::ErrorKind::Unavailable`].
    pub async fn get(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Response<ResponseBody>, Error> {
        self.send(Method::GET, uri, headers, Bytes::new()).await
    }

    /// Sends a POST request with `body`, otherwise like [`Self::get`]. As in Go, only redirects
    /// with status 307 or 308 repeat the POST; others continue with GET.
    pub async fn post(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, Error> {
        self.send(Method::POST, uri, headers, body).await
    }

    async fn send(
        &self,
        method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, Error> {
        let own = self.build_host_headers().await?;
        let asked = method.clone();
        let mut hop = RedirectHop::new(method, uri.clone(), headers.clone());
        for _ in 0..REQUESTS_MAX {
            let request = self.build_request(&hop, &own, &body).await?;
            let response = self
                .transport
                .send(request)
                .await
                .map_err(|message| request_error(&asked, &hop.uri, &message))?;
            if !self.settings.follow_redirects {
                return Ok(response);
            }
            match hop.follow(response.status(), response.headers()) {
                Ok(true) => drain_body(response).await,
                Ok(false) => return Ok(response),
                Err(message) => return Err(request_error(&asked, &hop.uri, &message)),
            }
        }
        let message = format!("stopped after {REQUESTS_MAX} redirects");
        Err(request_error(&asked, &hop.uri, &message))
    }

    /// Builds the request of one hop. Credentials and signature are added only if its host is
    /// trusted.
    async fn build_request(
        &self,
        hop: &RedirectHop,
        own: &HeaderMap,
        body: &Bytes,
    ) -> Result<Request<Bytes>, Error> {
        let mut request = hop.build_request(body)?;
        if !hop.is_trusted {
            return Ok(request);
        }
        request.headers_mut().extend(own.clone());
        if let Some(signer) = &self.signer {
            let signing = signer.sign(UnsignedRequest {
                method: request.method(),
                uri: request.uri(),
                headers: request.headers(),
                body: request.body(),
            });
            let signed = signing.await?;
            request.headers_mut().extend(signed);
        }
        Ok(request)
    }

    /// Returns the headers that only the requested host may receive: credentials, and the headers
    /// of the config.
    async fn build_host_headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        if let Some(value) = self.authorizer.authorization_header().await? {
            headers.insert(AUTHORIZATION, value);
        }
        for (name, values) in &self.settings.headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| Error::unavailable(format!("{name:?} is not a valid header name")))?;
            for value in values {
                let bytes = match value {
                    HeaderValueSource::Plain(text) => text.clone().into_bytes(),
                    HeaderValueSource::Secret(secret) => {
                        secret::reveal_bytes(secret, "header").await?
                    }
                };
                let value = HeaderValue::from_bytes(&bytes).map_err(|_| {
                    Error::unavailable(format!("header {name} has an invalid value"))
                })?;
                headers.append(name.clone(), value);
            }
        }
        Ok(headers)
    }
}

/// Adds the trace context `at` to the headers, if there is one.
pub fn with_trace(headers: &HeaderMap, at: Option<TraceParent>) -> Cow<'_, HeaderMap> {
    let value = at.and_then(|at| HeaderValue::from_str(&at.header()).ok());
    let Some(value) = value else {
        return Cow::Borrowed(headers);
    };
    let mut all = headers.clone();
    all.insert(TRACEPARENT, value);
    Cow::Owned(all)
}

/// Reads the body of a redirect if it is small, so that its connection can be reused.
async fn drain_body(response: Response<ResponseBody>) {
    // A failure only prevents the reuse.
    let _ = read_body(response, BodyLimit::from_bytes_max(REDIRECT_BYTES_MAX)).await;
}

/// Builds an error with Go's text for a failed request, such as `Get "URL": message`.
fn request_error(method: &Method, uri: &Uri, message: &str) -> Error {
    let word = match *method {
        Method::POST => "Post",
        _ => "Get",
    };
    Error::unavailable(format!("{word} \"{uri}\": {message}"))
}
