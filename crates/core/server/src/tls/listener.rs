//! Listener whose connections begin with a TLS handshake. Like Go's server, it responds to plain
//! HTTP requests with an HTTP error, because an HTTP client cannot interpret a TLS alert.

use crate::http::accept::{ConnectionSource, HttpProtocol, accept_tcp};
use firn_x509::listener::{HTTP2, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Function that returns the current TLS configuration. Called for each handshake on a blocking
/// thread, since it may read files.
pub type TlsConfigs = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// First byte of a TLS handshake record.
const HANDSHAKE: u8 = 0x16;

/// First letters of the methods by which Go detects plain HTTP: GET, HEAD, POST, PUT, OPTIONS.
const METHODS: &[u8] = b"GHPO";

const PLAIN_REFUSED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// How long, and in pieces of which size, the remaining input of a rejected client is read.
/// Otherwise the connection could be reset before the client has received the response.
const LINGER_MAX: Duration = Duration::from_millis(500);
const LINGER_READ_BYTES: usize = 4 << 10;

/// A TCP listener that performs a TLS handshake on each connection and returns the negotiated
/// protocol.
pub struct TlsListener {
    tcp: TcpListener,
    configs: TlsConfigs,
}

impl TlsListener {
    /// Creates a listener on `tcp`. Each handshake uses the configuration that `configs` returns at
    /// that time.
    pub fn new(tcp: TcpListener, configs: TlsConfigs) -> Self {
        Self { tcp, configs }
    }
}

impl ConnectionSource for TlsListener {
    type Arriving = (TcpStream, TlsConfigs);
    type Stream = TlsStream<TcpStream>;

    async fn accept(&self) -> io::Result<(Self::Arriving, SocketAddr)> {
        let (stream, peer) = accept_tcp(&self.tcp).await?;
        Ok(((stream, self.configs.clone()), peer))
    }

    async fn negotiate(arriving: Self::Arriving) -> io::Result<(Self::Stream, HttpProtocol)> {
        let (stream, configs) = arriving;
        let mut first = [0];
        if stream.peek(&mut first).await? == 1
            && first[0] != HANDSHAKE
            && METHODS.contains(&first[0])
        {
            refuse_plain(stream).await;
            let why = "client sent an HTTP request to an HTTPS server";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let config = spawn_blocking(move || configs());
        let config = config.await.map_err(io::Error::other)?;
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(name) if name == HTTP2 => HttpProtocol::Http2,
            _ => HttpProtocol::Http1,
        };
        Ok((stream, protocol))
    }
}

/// Sends the plain HTTP error response. Failures are ignored, since the connection is closed
/// anyway.
async fn refuse_plain(mut stream: TcpStream) {
    let told = async {
        stream.write_all(PLAIN_REFUSED).await?;
        stream.shutdown().await?;
        let mut scratch = [0; LINGER_READ_BYTES];
        while stream.read(&mut scratch).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(LINGER_MAX, told).await;
}
