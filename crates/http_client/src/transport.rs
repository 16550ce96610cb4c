//! Sends requests over pooled connections; TLS files that changed make new connections.

use super::places::Places;
use super::route::Route;
use super::settings::{ProxySettings, TlsSettings};
use super::tls::{self, Material};
use firn_model::sync::lock;
use firn_x509::handshake::certificate_reason;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Request, Response};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error as _;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

/// How long a connection waits for the next request: longer than nearly all scrape intervals.
const IDLE: Duration = Duration::from_secs(5 * 60);

type Pool = Client<HttpsConnector<Route>, Full<Bytes>>;

/// Connections to any host, all made in the same way.
pub(super) struct Transport {
    tls: TlsSettings,
    route: Route,
    enable_http2: bool,
    /// Whether HTTP/2 is spoken and nothing else, without TLS too.
    is_http2_alone: bool,
    places: Places,
    /// The pool, and the keys and certificates that it was made with.
    pool: Mutex<Option<(Material, Pool)>>,
}

impl Transport {
    pub(super) fn new(
        tls: &TlsSettings,
        proxy: &ProxySettings,
        enable_http2: bool,
        places: Places,
    ) -> Self {
        Self {
            tls: tls.clone(),
            route: Route::new(proxy, places.clone()),
            enable_http2,
            is_http2_alone: false,
            places,
            pool: Mutex::default(),
        }
    }

    /// Speaks HTTP/2 and nothing else.
    pub(super) fn speak_http2_alone(&mut self) {
        self.is_http2_alone = true;
    }

    /// Sends one request; returns when the head of the answer is there, or why it never will be.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let pool = self.pool().await?;
        if request.uri().scheme_str() == Some("http")
            && let Some(proxy) = self.route.proxy_of(request.uri())
            && let Some(authorization) = proxy.basic_auth()
        {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        // HTTP/2 has no such header.
        let has_http1 = request.uri().scheme_str() == Some("http") && !self.is_http2_alone;
        if has_http1 && self.places.are_scarce() {
            let headers = request.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        pool.request(request).await.map_err(|e| explain(&e))
    }

    /// The pool, made anew if a file changed. Old connections end when they are idle.
    async fn pool(&self) -> Result<Pool, String> {
        let material = Material::read(&self.tls).await?;
        let mut held = lock(&self.pool);
        match &*held {
            Some((old, pool)) if *old == material => Ok(pool.clone()),
            _ => {
                let config = tls::config(&self.tls, &material, self.enable_http2)?;
                let route = self.route.clone().with_tls(config.clone());
                let names = tls::server_names(&self.tls)?;
                let connector = HttpsConnector::new(route, config, false, names);
                let pool = Client::builder(TokioExecutor::new())
                    .pool_timer(TokioTimer::new())
                    .pool_idle_timeout(IDLE)
                    .http2_only(self.is_http2_alone)
                    .build(connector);
                *held = Some((material, Pool::clone(&pool)));
                Ok(pool)
            }
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// The innermost reasons; what stands around them says only that sending failed.
fn explain(error: &legacy::Error) -> String {
    let mut reasons = Vec::new();
    let mut source = error.source();
    while let Some(reason) = source {
        if let Some(text) = certificate_reason(reason) {
            return text;
        }
        let text = reason.to_string();
        // Many wrappers repeat what they wrap.
        if !reasons.iter().any(|known: &String| known.contains(&text)) {
            reasons.push(text);
        }
        source = reason.source();
    }
    match reasons.is_empty() {
        true => error.to_string(),
        false => reasons.join(": "),
    }
}
