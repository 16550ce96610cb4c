//! A listener whose connections agree on TLS first.
//!
//! What speaks plain HTTP is told so, as Go's server does: a TLS alert would be noise to it.

use super::HTTP2;
use crate::http::accept::{Accept, Protocol, accept_tcp};
use rustls::server::ServerConfig;
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

/// What handshakes follow now. Called for each, off the async threads: it may read files.
pub type TlsConfigs = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// The first byte of a handshake.
const HANDSHAKE: u8 = 0x16;

/// First letters of the methods by which Go knows plain HTTP: GET, HEAD, POST, PUT, OPTIONS.
const METHODS: &[u8] = b"GHPO";

const PLAIN_REFUSED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// How long what a refused client still sends is read, so that the answer is not lost on its way,
/// and how much of it at a time.
const LINGER_MAX: Duration = Duration::from_millis(500);
const LINGER_READ_BYTES: usize = 4 << 10;

/// A socket that speaks TLS.
pub struct TlsListener {
    tcp: TcpListener,
    configs: TlsConfigs,
}

impl TlsListener {
    /// Handshakes on the connections of `tcp`, each by what `configs` says then.
    pub fn new(tcp: TcpListener, configs: TlsConfigs) -> Self {
        Self { tcp, configs }
    }
}

impl Accept for TlsListener {
    type Arriving = (TcpStream, TlsConfigs);
    type Stream = TlsStream<TcpStream>;

    async fn accept(&self) -> io::Result<(Self::Arriving, SocketAddr)> {
        let (stream, peer) = accept_tcp(&self.tcp).await?;
        Ok(((stream, self.configs.clone()), peer))
    }

    async fn agree((stream, configs): Self::Arriving) -> io::Result<(Self::Stream, Protocol)> {
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
            Some(name) if name == HTTP2 => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Ok((stream, protocol))
    }
}

/// Says in plain HTTP that this is no place for it. A client that does not listen is its own loss.
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
