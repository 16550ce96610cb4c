//! Where connections come from.
//!
//! The listener and all that is above it know a stream of bytes and the address of its client, and
//! nothing of TCP: TLS or a stream in memory takes its place by implementing [`Accept`].

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A source of connections.
pub trait Accept: Send + Sync {
    /// What carries the bytes of a connection. A handshake belongs into its first read, not into
    /// [`Accept::accept`]: a slow client would keep the others waiting, and would have no deadline.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next connection; returns it with the address of its client. An error concerns
    /// one connection: the caller tries again after a pause.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // Answers are written whole: waiting for more to send only delays them.
        stream.set_nodelay(true)?;
        Ok((stream, peer))
    }
}
