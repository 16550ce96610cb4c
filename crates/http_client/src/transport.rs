//! Sends requests over pooled connections, and replaces the pool when TLS files have changed.

use super::places::Places;
use super::pool::{Pool, ResponseBody};
use super::proxy::Proxy;
use super::route::Route;
use super::settings::{ProxySettings, TlsSettings};
use super::tls::{self, Material};
use bytes::Bytes;
use firn_model::sync::lock;
use hyper::header::{CONNECTION, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Request, Response};
use hyper_rustls::HttpsConnector;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Connections to arbitrary hosts, all with the same TLS and proxy settings.
pub(super) struct Transport {
    tls: TlsSettings,
    route: Route,
    enable_http2: bool,
    /// Whether only HTTP/2 is used, even without TLS.
    is_http2_alone: bool,
    places: Places,
    /// Current pool, with the certificates and keys with which it was created.
    pool: Mutex<Option<(Material, Arc<Pool>)>>,
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

    /// Makes all connections use only HTTP/2, even without TLS (prior knowledge).
    pub(super) fn speak_http2_alone(&mut self) {
        self.is_http2_alone = true;
    }

    /// Sends one request and returns as soon as the response head has arrived. The error is a text
    /// with the cause.
    pub(super) async fn send(
        &self,
        mut request: Request<Bytes>,
    ) -> Result<Response<ResponseBody>, String> {
        let pool = self.pool().await?;
        let is_plain = request.uri().scheme_str() == Some("http");
        let proxy = self.route.proxy_of(request.uri())?;
        if is_plain && let Some(authorization) = proxy.and_then(Proxy::authorization) {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        // HTTP/2 has no `Connection` header.
        if is_plain && !self.is_http2_alone && self.places.are_scarce() {
            let headers = request.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        pool.send(&request).await
    }

    /// Returns the pool. Replaces it if a file has changed; connections of the old pool end when
    /// they become idle.
    async fn pool(&self) -> Result<Arc<Pool>, String> {
        let material = Material::read(&self.tls).await?;
        let mut held = lock(&self.pool);
        match &*held {
            Some((old, pool)) if *old == material => Ok(pool.clone()),
            _ => {
                let config = tls::config(&self.tls, &material, self.enable_http2)?;
                let names = tls::server_names(&self.tls)?;
                let route = self.route.clone().with_tls(&config, names.clone());
                let connector = HttpsConnector::new(route, config, false, names);
                let pool = Arc::new(Pool::new(connector, self.is_http2_alone));
                *held = Some((material, pool.clone()));
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
