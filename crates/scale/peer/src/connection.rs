//! TCP connections between nodes, with or without TLS: made by clients, and accepted by a server.
//!
//! ```text
//! client: address -> TCP -> TLS? -> tonic      server: listener -> TLS? -> queue -> tonic
//! ```
//!
//! Limits: [`CONNECTIONS_MAX`] connections of a server, whose handshakes end within
//! [`HANDSHAKE_TIMEOUT`]. Invariant: a connection that fails does not end the listener.

use crate::tls::RenewedPeerTls;
use firn_x509::handshake::certificate_reason;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::transport::server::Connected;
use tower_service::Service;

/// Maximum number of open connections of a server.
pub const CONNECTIONS_MAX: usize = 1024;

/// Maximum duration of a TLS handshake at the server.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a connection could not be accepted, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

trait PeerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerStream for T {}

/// A connection to a peer.
pub(crate) struct PeerConnection {
    stream: Box<dyn PeerStream>,
    /// The place of an accepted connection among [`CONNECTIONS_MAX`].
    _place: Option<OwnedSemaphorePermit>,
}

impl Connected for PeerConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for PeerConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for PeerConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Connects to one address, for tonic.
#[derive(Clone)]
pub(crate) struct PeerConnector {
    address: Arc<str>,
    tls: Option<PeerConnectorTls>,
}

#[derive(Clone)]
struct PeerConnectorTls {
    files: Arc<RenewedPeerTls>,
    name: ServerName<'static>,
}

impl PeerConnector {
    /// Creates a connector to `host:port`. Fails with a text if the host cannot be in a
    /// certificate.
    pub(crate) fn new(address: &str, tls: Option<Arc<RenewedPeerTls>>) -> Result<Self, String> {
        let tls = match tls {
            None => None,
            Some(files) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
                let name = ServerName::try_from(bare.unwrap_or(host).to_owned());
                let name = name.map_err(|e| format!("address of peer {address:?}: {e}"))?;
                Some(PeerConnectorTls { files, name })
            }
        };
        Ok(Self {
            address: address.into(),
            tls,
        })
    }

    async fn connect(self) -> io::Result<TokioIo<PeerConnection>> {
        let stream = TcpStream::connect(&*self.address).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn PeerStream> = match self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let configs = tls.files.load_current().await;
                let connected = TlsConnector::from(configs.client)
                    .connect(tls.name, stream)
                    .await;
                Box::new(connected.map_err(name_certificate_error)?)
            }
        };
        let _place = None;
        Ok(TokioIo::new(PeerConnection { stream, _place }))
    }
}

/// Returns the error with the reason why a certificate was rejected as its text, if it was.
fn name_certificate_error(error: io::Error) -> io::Error {
    match certificate_reason(&error) {
        Some(reason) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

impl Service<http::Uri> for PeerConnector {
    type Response = TokioIo<PeerConnection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// Accepts connections until `accepted` is closed, and sends them to it after their handshakes.
pub(crate) async fn accept_connections(
    listener: TcpListener,
    tls: Option<Arc<RenewedPeerTls>>,
    accepted: mpsc::Sender<io::Result<PeerConnection>>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let accepting = async {
            tokio::select! {
                stream = listener.accept() => Some(stream),
                () = accepted.closed() => None,
            }
        };
        let stream = match accepting.await {
            None => return,
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => {
                tracing::warn!(%error, "a connection of a peer could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        tokio::spawn(shake_hands(stream, tls.clone(), place, accepted.clone()));
    }
}

async fn shake_hands(
    stream: TcpStream,
    tls: Option<Arc<RenewedPeerTls>>,
    place: OwnedSemaphorePermit,
    accepted: mpsc::Sender<io::Result<PeerConnection>>,
) {
    let peer = stream.peer_addr().ok();
    let connecting = async {
        stream.set_nodelay(true)?;
        let stream: Box<dyn PeerStream> = match tls {
            None => Box::new(stream),
            Some(files) => {
                let configs = files.load_current().await;
                let accepted = TlsAcceptor::from(configs.server).accept(stream).await;
                Box::new(accepted.map_err(name_certificate_error)?)
            }
        };
        Ok::<_, io::Error>(stream)
    };
    let connected = tokio::time::timeout(HANDSHAKE_TIMEOUT, connecting).await;
    match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => {
            let _place = Some(place);
            // The server shuts down if nothing receives the connection.
            let _ = accepted.send(Ok(PeerConnection { stream, _place })).await;
        }
        Err(error) => tracing::warn!(?peer, %error, "a handshake with a peer failed"),
    }
}
