//! The way to a server: straight, or through a proxy.
//!
//! ```text
//! http  through an HTTP proxy: the proxy is sent the whole URL
//! https through an HTTP proxy: CONNECT, then TLS inside the tunnel
//! any   through a SOCKS proxy: the proxy connects, then as if straight
//! ```

use super::settings::ProxySettings;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Uri, body::Bytes};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tower_service::Service;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<Routed, BoxError>> + Send>>;

/// Makes connections, through proxies where the settings say so.
#[derive(Clone, Debug)]
pub(super) struct Route {
    matcher: Arc<Matcher>,
    connect_headers: HeaderMap,
    tcp: HttpConnector,
    /// To proxies, which may speak TLS themselves.
    to_proxy: Option<HttpsConnector<HttpConnector>>,
}

impl Route {
    pub(super) fn new(settings: &ProxySettings) -> Self {
        let matcher = match (&settings.url, settings.is_from_environment) {
            (_, true) => Matcher::from_env(),
            (Some(url), false) => Matcher::builder()
                .all(url.clone())
                .no(settings.no_proxy.clone())
                .build(),
            (None, false) => Matcher::builder().build(),
        };
        let mut connect_headers = HeaderMap::new();
        for (name, values) in &settings.connect_headers {
            for value in values {
                if let (Ok(name), Ok(value)) = (
                    HeaderName::from_bytes(name.as_bytes()),
                    HeaderValue::from_maybe_shared(Bytes::from(value.clone())),
                ) {
                    connect_headers.append(name, value);
                }
            }
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self {
            matcher: Arc::new(matcher),
            connect_headers,
            tcp,
            to_proxy: None,
        }
    }

    /// The route, which reaches proxies by `config` if they speak TLS.
    pub(super) fn with_tls(mut self, config: Arc<ClientConfig>) -> Self {
        self.to_proxy = Some(HttpsConnector::from((self.tcp.clone(), config)));
        self
    }

    /// The proxy through which `uri` is reached, if any.
    pub(super) fn proxy_of(&self, uri: &Uri) -> Option<Intercept> {
        self.matcher.intercept(uri)
    }

    fn through(&self, proxy: &Intercept, uri: Uri) -> Connecting {
        let Some(mut to_proxy) = self.to_proxy.clone() else {
            return Box::pin(async { Err("no way to the proxy".into()) });
        };
        let address = proxy.uri().clone();
        if address.scheme_str().is_some_and(|s| s.starts_with("socks")) {
            let mut socks = SocksV5::new(address, self.tcp.clone());
            if let Some((user, password)) = proxy.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            let connecting = socks.call(uri);
            return Box::pin(async move {
                let stream = MaybeHttpsStream::Http(connecting.await?);
                Ok(Routed::new(stream, false))
            });
        }
        if uri.scheme_str() == Some("http") {
            let connecting = to_proxy.call(address);
            return Box::pin(async move { Ok(Routed::new(connecting.await?, true)) });
        }
        let mut tunnel = Tunnel::new(address, to_proxy).with_headers(self.connect_headers.clone());
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let connecting = tunnel.call(uri);
        Box::pin(async move { Ok(Routed::new(connecting.await?, false)) })
    }
}

impl Service<Uri> for Route {
    type Response = Routed;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Every part is ready at any time.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        match self.proxy_of(&uri) {
            Some(proxy) => self.through(&proxy, uri),
            None => {
                let connecting = self.tcp.call(uri);
                Box::pin(async move {
                    let stream = MaybeHttpsStream::Http(connecting.await?);
                    Ok(Routed::new(stream, false))
                })
            }
        }
    }
}

/// A connection, which may end at a proxy that reads requests itself.
#[derive(Debug)]
pub(super) struct Routed {
    stream: Stream,
    is_proxied: bool,
}

impl Routed {
    fn new(stream: Stream, is_proxied: bool) -> Self {
        Self { stream, is_proxied }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut Stream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Connection for Routed {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_proxied)
    }
}

impl Read for Routed {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl Write for Routed {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, slices)
    }
}
