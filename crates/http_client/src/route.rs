//! The way to a server: straight, or through a proxy.
//!
//! ```text
//! http  through an HTTP proxy: the proxy is sent the whole URL
//! https through an HTTP proxy: CONNECT, then TLS inside the tunnel
//! any   through a SOCKS proxy: the proxy connects, then as if straight
//! ```

use super::places::{Place, Places};
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

/// A stream, and whether it ends at a proxy that reads requests itself.
type Streaming = Pin<Box<dyn Future<Output = Result<(Stream, bool), BoxError>> + Send>>;

/// Makes connections, through proxies where the settings say so.
#[derive(Clone, Debug)]
pub(super) struct Route {
    matcher: Arc<Matcher>,
    connect_headers: HeaderMap,
    tcp: HttpConnector,
    places: Places,
    /// To proxies, which may speak TLS themselves.
    to_proxy: Option<HttpsConnector<HttpConnector>>,
}

impl Route {
    pub(super) fn new(settings: &ProxySettings, places: Places) -> Self {
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
            places,
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

    fn stream_to(&mut self, uri: Uri) -> Streaming {
        match self.proxy_of(&uri) {
            Some(proxy) => self.through(&proxy, uri),
            None => {
                let connecting = self.tcp.call(uri);
                Box::pin(async move { Ok((MaybeHttpsStream::Http(connecting.await?), false)) })
            }
        }
    }

    fn through(&self, proxy: &Intercept, uri: Uri) -> Streaming {
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
                Ok((stream, false))
            });
        }
        if uri.scheme_str() == Some("http") {
            let connecting = to_proxy.call(address);
            return Box::pin(async move { Ok((connecting.await?, true)) });
        }
        let mut tunnel = Tunnel::new(address, to_proxy).with_headers(self.connect_headers.clone());
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let connecting = tunnel.call(uri);
        Box::pin(async move { Ok((connecting.await?, false)) })
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
        let (mut route, places) = (self.clone(), self.places.clone());
        Box::pin(async move {
            let place = places.take().await;
            let (stream, is_proxied) = route.stream_to(uri).await?;
            // The request that wanted it may have got another connection meanwhile.
            place.has_read();
            Ok(Routed {
                stream,
                is_proxied,
                place,
            })
        })
    }
}

/// A connection, which may end at a proxy that reads requests itself.
#[derive(Debug)]
pub(super) struct Routed {
    stream: Stream,
    is_proxied: bool,
    place: Place,
}

impl Routed {
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
        if self.place.is_closing(cx.waker()) {
            // To the caller the other side has closed an idle connection.
            return Poll::Ready(Ok(()));
        }
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if read.is_ready() {
            this.place.has_read();
        }
        read
    }
}

impl Write for Routed {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.place.has_written();
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
        self.place.has_written();
        self.stream().poll_write_vectored(cx, slices)
    }
}
