//! The asynchronous HTTP client of scraping, discovery, remote write, remote read and notification.
//!
//! It follows the semantics of Prometheus's library for HTTP clients: TLS files that are read again
//! when they change, basic and bearer credentials, OAuth 2.0, proxies, redirects, signatures.
//!
//! ```text
//! HttpClient (credentials, redirects) -> Transport (TLS, files reread) -> Pool (connections)
//!   -> Route (proxies) -> TCP
//! ```
//!
//! Invariant: credentials are sent to the requested host and port, and to the same host over TLS,
//! whatever they redirect to. Deadlines are the caller's: dropping a future ends the request.
//!
//! [`named_files`] reads the files that a config names, and [`MemoryShare`] bounds the memory of
//! bodies; both are here because every user of the client needs them.

mod assertion;
mod auth;
mod body;
mod exchange;
mod exec;
mod framing;
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

pub use assertion::SigningAlgorithm;
pub use assertion::{sign as sign_claims, signature, signed};
pub use auth::form_encode;
pub use body::{Body, BodyLimit, TOO_LARGE, read as read_body};
pub use memory_share::MemoryShare;
pub use places::Places;
pub use pool::ResponseBody;
pub use private_key::{Block, of_der as key_of_der, of_pem as key_of_pem};
pub use secret::reveal;
pub use settings::{
    Assertion, Auth, ExecSettings, HeaderValueSource, HttpSettings, OAuth2Settings, ProxySettings,
    Secret, TlsSettings, TlsVersion,
};
pub use sign::{Sign, Signing, ToSign};

use auth::Authorizer;
use bytes::Bytes;
use firn_model::error::Error;
use firn_model::trace::TraceParent;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use redirect::{Hop, REQUESTS_MAX};
use std::borrow::Cow;
use std::sync::Arc;
use transport::Transport;

/// The `User-Agent` of every request: how servers know Firn.
pub const USER_AGENT: &str = concat!("Firn/", env!("CARGO_PKG_VERSION"));

/// Says where a client stands in a trace.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Bytes of the body of a redirect that are read, as in Go.
const REDIRECT_BYTES_MAX: u64 = 2 << 10;

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
    pub async fn get(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Response<ResponseBody>, Error> {
        self.send(Method::GET, uri, headers, Bytes::new()).await
    }

    /// Sends `body` to `uri`; otherwise like [`Self::get`]. A redirect that does not ask for the
    /// same request again is followed with GET, as Go does.
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
        let own = self.own_headers().await?;
        let asked = method.clone();
        let mut hop = Hop::first(method, uri.clone(), headers.clone());
        for _ in 0..REQUESTS_MAX {
            let request = self.request(&hop, &own, &body).await?;
            let response = self
                .transport
                .send(request)
                .await
                .map_err(|message| failed(&asked, &hop.uri, &message))?;
            if !self.settings.follow_redirects {
                return Ok(response);
            }
            match hop.follow(response.status(), response.headers()) {
                Ok(true) => read_rest(response).await,
                Ok(false) => return Ok(response),
                Err(message) => return Err(failed(&asked, &hop.uri, &message)),
            }
        }
        let message = format!("stopped after {REQUESTS_MAX} redirects");
        Err(failed(&asked, &hop.uri, &message))
    }

    /// The request of one hop, with credentials and a signature if its host may see them.
    async fn request(
        &self,
        hop: &Hop,
        own: &HeaderMap,
        body: &Bytes,
    ) -> Result<Request<Bytes>, Error> {
        let mut request = hop.request(body)?;
        if !hop.is_trusted {
            return Ok(request);
        }
        request.headers_mut().extend(own.clone());
        if let Some(signer) = &self.signer {
            let signing = signer.sign(ToSign {
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

/// Reads the body of a redirect if it is small, so that its connection can be used again.
async fn read_rest(response: Response<ResponseBody>) {
    // Whatever becomes of it.
    let _ = read_body(response, BodyLimit::bytes(REDIRECT_BYTES_MAX)).await;
}

/// What Go says of a request: the method as a word.
fn failed(method: &Method, uri: &Uri, message: &str) -> Error {
    let word = match *method {
        Method::POST => "Post",
        _ => "Get",
    };
    Error::unavailable(format!("{word} \"{uri}\": {message}"))
}
