//! Where connections come from.
//!
//! The listener and all that is above it know a stream of bytes and the address of its client, and
//! nothing of TCP: TLS or a stream in memory takes its place by implementing [`Accept`].

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// What is spoken over a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 and 1.1.
    Http1,
    /// HTTP/2, agreed on before.
    Http2,
}

/// A source of connections.
pub trait Accept: Send + Sync + 'static {
    /// A connection whose client has said nothing yet.
    type Arriving: Send + 'static;

    /// What carries the bytes of a connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection; returns it with the address of its client. An error concerns
    /// one connection: the caller tries again after a pause.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Arriving, SocketAddr)>> + Send;

    /// Agrees with the client on what is spoken. The caller bounds the time; others are accepted
    /// meanwhile.
    fn agree(
        arriving: Self::Arriving,
    ) -> impl Future<Output = io::Result<(Self::Stream, Protocol)>> + Send;
}

impl Accept for TcpListener {
    type Arriving = TcpStream;
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        accept_tcp(self).await
    }

    async fn agree(arriving: TcpStream) -> io::Result<(TcpStream, Protocol)> {
        Ok((arriving, Protocol::Http1))
    }
}

/// The next connection of a socket.
pub(crate) async fn accept_tcp(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept().await?;
    // Answers are written whole: waiting for more to send only delays them.
    stream.set_nodelay(true)?;
    Ok((stream, peer))
}
