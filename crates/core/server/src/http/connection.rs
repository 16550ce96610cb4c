//! Serves one connection: performs the handshake, passes requests from its socket to the router,
//! and sends the responses, until it ends.
//!
//! Invariant: over HTTP/1.1, a request whose body was not read completely or whose head was
//! rejected is the last one of its connection.

use super::accept::{ConnectionSource, HttpProtocol};
use super::http2;
use super::phase::{BusyConnectionGuard, ConnectionPhase};
use super::request_head::RequestHeadAttachment;
use super::socket::GuardedSocket;
use super::watched_body::{BodyObserver, ObservedBody};
use crate::admission::limits::ServerLimits;
use crate::metrics::ServerMetrics;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, Request, Response, header};
use firn_model::budget::Budget;
use firn_x509::handshake::certificate_reason;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioTimer;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

/// Context that all connections of a listener share. Cloned for each connection.
#[derive(Clone)]
pub(crate) struct ConnectionContext {
    /// Router that processes the requests.
    pub(crate) router: Router,
    /// Limits of connections, heads and timeouts.
    pub(crate) limits: ServerLimits,
    /// Memory budget of all long request heads.
    pub(crate) heads: Budget,
    /// Metrics of connections.
    pub(crate) metrics: Arc<ServerMetrics>,
}

/// An accepted connection whose handshake has not started, with its client.
pub(super) struct AcceptedConnection<A: ConnectionSource> {
    /// The connection before its handshake.
    pub(super) arriving: A::Arriving,
    /// Address of the client.
    pub(super) peer: SocketAddr,
}

/// Serves one connection until it ends. After `stopping` changes, it ends with the current request.
pub(super) fn serve<A: ConnectionSource>(
    connected: AcceptedConnection<A>,
    site: &ConnectionContext,
    mut stopping: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + use<A> {
    let AcceptedConnection { arriving, peer } = connected;
    let site = site.clone();
    let counted = site.metrics.connections.enter();
    site.metrics.connections_total.inc();
    async move {
        let agreed = tokio::select! {
            agreed = timeout(site.limits.header_read_max, A::negotiate(arriving)) => agreed,
            _ = stopping.changed() => return,
        };
        match agreed {
            Ok(Ok((stream, HttpProtocol::Http1))) => http1(stream, peer, &site, stopping).await,
            Ok(Ok((stream, HttpProtocol::Http2))) => {
                http2::serve(stream, peer, &site, stopping).await
            }
            Ok(Err(e)) => {
                site.metrics.handshakes_failed.inc();
                let error = certificate_reason(&e).unwrap_or_else(|| e.to_string());
                tracing::debug!(error, %peer, "TLS handshake failed");
            }
            Err(_) => {
                site.metrics.handshakes_failed.inc();
                tracing::debug!(error = "timed out", %peer, "TLS handshake failed");
            }
        }
        drop(counted);
    }
}

async fn http1<S>(
    stream: S,
    peer: SocketAddr,
    site: &ConnectionContext,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &site.limits;
    let phase = ConnectionPhase::default();
    let io = GuardedSocket::new(stream, phase.clone(), limits, site.heads.clone());
    let routes = TowerToHyperService::new(site.router.clone());
    let service = service_fn(move |request| answer(request, peer, phase.clone(), &routes));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // hyper starts this timeout at the end of a response, so it limits the idle time. The
        // socket limits the time for the headers.
        .header_read_timeout(limits.idle_max)
        .max_buf_size(limits.header_buffer_bytes)
        .max_headers(limits.headers_max)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        // An error means that the sender is gone, which is treated like a shutdown.
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(e) = outcome {
        tracing::debug!(error = %e, "connection failed");
    }
}

/// Processes one request. The connection is busy from the call of this function, rather than from
/// the first poll of the returned future, until the response was sent.
fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    phase: ConnectionPhase,
    routes: &TowerToHyperService<Router>,
) -> impl Future<Output = Result<Response<BusyBody>, Infallible>> + Send + use<> {
    let busy = phase.busy();
    let has_ended = Arc::new(AtomicBool::new(request.body().is_end_stream()));
    let watch = BodyEndRecorder(has_ended.clone());
    let mut request = request.map(|inner| ObservedBody { inner, watch });
    request.extensions_mut().insert(peer);
    let answer = match phase.take_beside() {
        Some(RequestHeadAttachment::Refusal(failure)) => Err(failure),
        Some(RequestHeadAttachment::Line(line)) => {
            request.extensions_mut().insert(Arc::new(line));
            Ok(routes.call(request))
        }
        None => Ok(routes.call(request)),
    };
    async move {
        let is_cut = answer.is_err();
        let mut response = match answer {
            Ok(answer) => answer.await?,
            Err(failure) => failure.into_plain(),
        };
        if is_cut || !has_ended.load(Ordering::Relaxed) {
            phase.end();
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(response.map(|inner| ObservedBody { inner, watch: busy }))
    }
}

/// A response body. The connection is busy until it is dropped, which happens after the last byte
/// was sent.
type BusyBody = ObservedBody<Body, BusyConnectionGuard>;

impl BodyObserver for BusyConnectionGuard {}

/// Records that a request body was read to its end. If it was not, the connection accepts no
/// further request.
struct BodyEndRecorder(Arc<AtomicBool>);

impl BodyObserver for BodyEndRecorder {
    fn end(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
