//! Abstraction of the source of connections.
//!
//! The listener and all code above it depend only on a byte stream and the address of its client,
//! not on TCP. TLS and in-memory streams implement [`ConnectionSource`].

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// Protocol of a connection, negotiated before the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpProtocol {
    /// HTTP/1.0 and HTTP/1.1.
    Http1,
    /// HTTP/2, negotiated during the TLS handshake.
    Http2,
}

/// A source of connections, for example a TCP or TLS listener. The server owns it until it stops.
pub trait ConnectionSource: Send + Sync + 'static {
    /// An accepted connection before its handshake.
    type Arriving: Send + 'static;

    /// The byte stream of a connection after its handshake.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection and returns it with the address of its client. An error
    /// concerns a single connection: the caller tries again after a pause.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Arriving, SocketAddr)>> + Send;

    /// Performs the handshake and returns the negotiated protocol. The caller limits its duration;
    /// other connections are accepted meanwhile.
    fn negotiate(
        arriving: Self::Arriving,
    ) -> impl Future<Output = io::Result<(Self::Stream, HttpProtocol)>> + Send;
}

impl ConnectionSource for TcpListener {
    type Arriving = TcpStream;
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        accept_tcp(self).await
    }

    async fn negotiate(arriving: TcpStream) -> io::Result<(TcpStream, HttpProtocol)> {
        Ok((arriving, HttpProtocol::Http1))
    }
}

/// Accepts the next connection of a TCP socket and sets its options.
pub(crate) async fn accept_tcp(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept().await?;
    // Responses are written in whole pieces, so Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    Ok((stream, peer))
}
