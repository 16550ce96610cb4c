//! Sends requests over pooled connections, and replaces the pool when TLS files have changed.

use super::places::ConnectionSlots;
use super::pool::{ConnectionPool, ResponseBody};
use super::proxy::Proxy;
use super::route::ProxyConnector;
use super::settings::{ClientTlsSettings, ProxySettings};
use super::tls::{self, ClientTlsMaterial};
use bytes::Bytes;
use firn_model::sync::lock;
use hyper::header::{CONNECTION, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Request, Response};
use hyper_rustls::HttpsConnector;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Connections to arbitrary hosts, all with the same TLS and proxy settings.
pub(super) struct Transport {
    tls: ClientTlsSettings,
    route: ProxyConnector,
    enable_http2: bool,
    /// Whether only HTTP/2 is used, even without TLS.
    is_http2_alone: bool,
    places: ConnectionSlots,
    /// Current pool, with the certificates and keys with which it was created.
    pool: Mutex<Option<(ClientTlsMaterial, Arc<ConnectionPool>)>>,
}

impl Transport {
    pub(super) fn new(
        tls: &ClientTlsSettings,
        proxy: &ProxySettings,
        enable_http2: bool,
        places: ConnectionSlots,
    ) -> Self {
        Self {
            tls: tls.clone(),
            route: ProxyConnector::new(proxy, places.clone()),
            enable_http2,
            is_http2_alone: false,
            places,
            pool: Mutex::default(),
        }
    }

    /// Makes all connections use only HTTP/2, even without TLS (prior knowledge).
    pub(super) fn set_http2_only(&mut self) {
        self.is_http2_alone = true;
    }

    /// Sends one request and returns as soon as the response head has arrived. The error is a text
    /// with the cause.
    pub(super) async fn send(
        &self,
        mut request: Request<Bytes>,
    ) -> Result<Response<ResponseBody>, String> {
        let pool = self.get_or_create_pool().await?;
        let is_plain = request.uri().scheme_str() == Some("http");
        let proxy = self.route.proxy_for(request.uri())?;
        if is_plain && let Some(authorization) = proxy.and_then(Proxy::authorization) {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        // HTTP/2 has no `Connection` header.
        if is_plain && !self.is_http2_alone && self.places.is_exhausted() {
            let headers = request.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        pool.send(&request).await
    }

    /// Returns the pool. Replaces it if a file has changed; connections of the old pool end when
    /// they become idle.
    async fn get_or_create_pool(&self) -> Result<Arc<ConnectionPool>, String> {
        let material = ClientTlsMaterial::read(&self.tls).await?;
        let mut held = lock(&self.pool);
        match &*held {
            Some((old, pool)) if *old == material => Ok(pool.clone()),
            _ => {
                let config = tls::build_config(&self.tls, &material, self.enable_http2)?;
                let names = tls::build_server_name_resolver(&self.tls)?;
                let route = self.route.clone().with_tls(&config, names.clone());
                let connector = HttpsConnector::new(route, config, false, names);
                let pool = Arc::new(ConnectionPool::new(connector, self.is_http2_alone));
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
