//! Establishes connections to servers, directly or through a proxy.
//!
//! ```text
//! http  through an HTTP proxy: the proxy receives the complete URL
//! https through an HTTP proxy: CONNECT, then TLS inside the tunnel
//! any   through a SOCKS proxy: the proxy connects, then as if directly
//! ```

use super::alert::error_chain_text;
use super::places::{ConnectionSlot, ConnectionSlots};
use super::proxy::{Proxy, ProxyKind, ProxyRules};
use super::settings::ProxySettings;
use super::tls_records::TlsRecords;
use super::tunnel::open_tunnel;
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream, ResolveServerName};
use hyper_util::client::legacy::connect::proxy::SocksV5;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tower_service::Service;

/// Size in bytes of the buffer for reading TLS records.
const RECORD_READ_BYTES: usize = 8 << 10;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<ConnectorStream, BoxError>> + Send>>;

/// Connector that uses a proxy if the settings require it.
#[derive(Clone, Debug)]
pub(super) struct ProxyConnector {
    /// Rules that select a proxy, or the error in the settings.
    rules: Result<Arc<ProxyRules>, String>,
    connect_headers: HeaderMap,
    tcp: HttpConnector,
    places: ConnectionSlots,
    /// Connector to proxies, which may use TLS.
    to_proxy: Option<HttpsConnector<HttpConnector>>,
}

impl ProxyConnector {
    pub(super) fn new(settings: &ProxySettings, places: ConnectionSlots) -> Self {
        let rules = ProxyRules::new(settings, |name| std::env::var(name).ok());
        let mut connect_headers = HeaderMap::new();
        for (name, values) in &settings.connect_headers {
            for value in values {
                if let (Ok(name), Ok(value)) = (
                    HeaderName::from_bytes(name.as_bytes()),
                    HeaderValue::from_str(value),
                ) {
                    connect_headers.append(name, value);
                }
            }
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self {
            rules: rules.map(Arc::new),
            connect_headers,
            tcp,
            places,
            to_proxy: None,
        }
    }

    /// Sets the TLS configuration for proxies. The connection to a proxy uses HTTP/1.
    pub(super) fn with_tls(
        mut self,
        config: &ClientConfig,
        names: Arc<dyn ResolveServerName + Send + Sync>,
    ) -> Self {
        let mut config = config.clone();
        config.alpn_protocols.clear();
        self.to_proxy = Some(HttpsConnector::new(self.tcp.clone(), config, false, names));
        self
    }

    /// Returns the proxy for requests to `uri`, if any. Fails if the settings are invalid.
    pub(super) fn proxy_for(&self, uri: &Uri) -> Result<Option<&Proxy>, String> {
        match &self.rules {
            Ok(rules) => rules.proxy_for(uri),
            Err(message) => Err(message.clone()),
        }
    }

    /// Connects to `uri`. Returns the stream, and whether it ends at a proxy that interprets
    /// requests.
    async fn open_stream(mut self, uri: Uri) -> Result<(Stream, bool), BoxError> {
        match self.proxy_for(&uri)?.cloned() {
            Some(proxy) => self.open_proxy_stream(proxy, uri).await,
            None => Ok((MaybeHttpsStream::Http(self.tcp.call(uri).await?), false)),
        }
    }

    async fn open_proxy_stream(self, proxy: Proxy, uri: Uri) -> Result<(Stream, bool), BoxError> {
        if proxy.kind == ProxyKind::Socks {
            let mut socks = SocksV5::new(proxy.uri, self.tcp);
            if let Some((user, password)) = proxy.user {
                socks = socks.with_auth(user, password);
            }
            let stream = socks.call(uri).await?;
            return Ok((MaybeHttpsStream::Http(stream), false));
        }
        let mut to_proxy = self.to_proxy.clone().ok_or("no way to the proxy")?;
        let connecting = to_proxy.call(proxy.uri.clone()).await;
        let mut stream =
            connecting.map_err(|e| format!("proxyconnect tcp: {}", error_chain_text(&*e)))?;
        if uri.scheme_str() == Some("http") {
            return Ok((stream, true));
        }
        let mut tokio_stream = TokioIo::new(stream);
        let headers = self.connect_headers;
        open_tunnel(&mut tokio_stream, headers, &proxy, &uri).await?;
        stream = tokio_stream.into_inner();
        Ok((stream, false))
    }
}

impl Service<Uri> for ProxyConnector {
    type Response = ConnectorStream;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The connector is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let route = self.clone();
        Box::pin(async move {
            let place = route.places.acquire().await;
            let records = match uri.scheme_str() {
                Some("https") => Some(TlsRecords::default()),
                _ => None,
            };
            let (stream, is_proxied) = route.open_stream(uri).await?;
            place.record_read();
            Ok(ConnectorStream {
                stream,
                is_proxied,
                place,
                records,
            })
        })
    }
}

/// An established connection that holds its place. It may end at a proxy that interprets requests.
#[derive(Debug)]
pub(super) struct ConnectorStream {
    stream: Stream,
    is_proxied: bool,
    place: ConnectionSlot,
    /// Position within the received TLS records, if the stream uses TLS.
    records: Option<TlsRecords>,
}

impl ConnectorStream {
    /// Returns whether the last TLS record is complete, so that the stream may end here.
    pub(super) fn is_between_records(&self) -> bool {
        self.records
            .as_ref()
            .is_some_and(TlsRecords::is_between_records)
    }

    fn pin_stream(self: Pin<&mut Self>) -> Pin<&mut Stream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Connection for ConnectorStream {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_proxied)
    }
}

impl Read for ConnectorStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.place.is_closing(cx.waker()) {
            // To the reader this looks like an idle connection that the server has closed.
            return Poll::Ready(Ok(()));
        }
        let this = self.get_mut();
        let stream = Pin::new(&mut this.stream);
        let read = match &mut this.records {
            None => stream.poll_read(cx, buf),
            Some(records) => {
                // Safe code can inspect the received bytes only in a buffer of its own.
                let mut bytes = [0; RECORD_READ_BYTES];
                let room = bytes.len().min(buf.remaining());
                let mut chunk = ReadBuf::new(&mut bytes[..room]);
                let read = stream.poll_read(cx, chunk.unfilled());
                records.advance(chunk.filled());
                buf.put_slice(chunk.filled());
                read
            }
        };
        if read.is_ready() {
            this.place.record_read();
        }
        read
    }
}

impl Write for ConnectorStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.place.record_write();
        self.pin_stream().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin_stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin_stream().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.place.record_write();
        self.pin_stream().poll_write_vectored(cx, slices)
    }
}
