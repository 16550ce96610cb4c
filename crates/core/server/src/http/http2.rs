//! Serves a connection over HTTP/2, with many concurrent requests on one byte stream.
//!
//! The settings of the protocol limit most resources of a client. A periodic check covers the rest:
//! connections without requests, and responses that the client does not read.
//!
//! Invariant: the numbers of requests, headers and buffered bytes of a connection are bounded. It
//! is closed if its client has disconnected, is idle or does not read, after the same times as over
//! HTTP/1.1.

use super::connection::ConnectionContext;
use super::watched_body::{BodyObserver, ObservedBody};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use firn_model::sync::lock;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, interval};

/// Maximum number of concurrent requests. A dashboard requests about twenty panels at once.
const STREAMS_MAX: u32 = 64;

/// Maximum size of the headers of a request in bytes, as over HTTP/1.1.
const HEADERS_BYTES_MAX: u32 = 64 << 10;

/// Maximum number of buffered bytes of a response beyond the client's flow-control window.
const SEND_BYTES_MAX: usize = 32 << 10;

/// Flow-control windows: bytes of bodies that a client may send before they are read, sufficient
/// for a typical push.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Interval of pings to a silent client, and the time for its answer.
const PING_PAUSE: Duration = Duration::from_secs(30);
const PING_MAX: Duration = Duration::from_secs(20);

/// Interval of the checks for idle and stalled connections.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// Serves one connection until it ends. After `stopping` changes, it ends with the current
/// requests.
pub(super) async fn serve<S>(
    stream: S,
    peer: SocketAddr,
    site: &ConnectionContext,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &site.limits;
    let requests = Http2Requests::default();
    let under_way = requests.clone();
    let routes = TowerToHyperService::new(site.router.clone());
    let service = service_fn(move |request| answer(request, peer, requests.enter(), &routes));
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .max_send_buf_size(SEND_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_PAUSE)
        .keep_alive_timeout(PING_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut looks = interval(LOOK_PAUSE);
    let mut ends_at = None;
    loop {
        tokio::select! {
            outcome = connection.as_mut() => {
                if let Err(e) = outcome {
                    tracing::debug!(error = %e, "connection failed");
                }
                return;
            }
            _ = stopping.changed(), if ends_at.is_none() => {
                connection.as_mut().graceful_shutdown();
                // The listener aborts the connection if that takes too long.
                ends_at = Some(Instant::now() + limits.shutdown_grace);
            }
            _ = looks.tick() => {
                let is_over = ends_at.is_some_and(|at| at <= Instant::now());
                if is_over || under_way.is_stalled(limits.response_stall_max) {
                    tracing::debug!(%peer, "closing connection");
                    return;
                }
                if ends_at.is_none() && under_way.is_idle(limits.idle_max) {
                    connection.as_mut().graceful_shutdown();
                    ends_at = Some(Instant::now() + limits.response_stall_max);
                }
            }
        }
    }
}

fn answer(
    mut request: Request<Incoming>,
    peer: SocketAddr,
    entered: Http2RequestGuard,
    routes: &TowerToHyperService<Router>,
) -> impl Future<Output = Result<Response<ObservedBody<Body, Http2RequestGuard>>, Infallible>>
+ Send
+ use<> {
    request.extensions_mut().insert(peer);
    // The rest of the server expects the `Host` header of HTTP/1.1.
    if let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let answer = routes.call(request.map(Body::new));
    async move {
        let response = answer.await?;
        let watch = entered;
        Ok(response.map(|inner| ObservedBody { inner, watch }))
    }
}

/// The current requests of one connection, checked periodically by its task. Clones share the
/// state.
#[derive(Clone)]
struct Http2Requests(Arc<Mutex<Http2RequestsState>>);

struct Http2RequestsState {
    next: u64,
    /// For each request, the time since which a piece of its response has been waiting for the
    /// client.
    waiting_since: HashMap<u64, Option<Instant>>,
    /// Time at which the last request ended.
    idle_since: Instant,
}

impl Default for Http2Requests {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Http2RequestsState {
            next: 0,
            waiting_since: HashMap::new(),
            idle_since: Instant::now(),
        })))
    }
}

impl Http2Requests {
    /// Registers a request as current until the returned guard is dropped.
    fn enter(&self) -> Http2RequestGuard {
        let mut all = lock(&self.0);
        let number = all.next;
        all.next += 1;
        all.waiting_since.insert(number, None);
        let requests = self.clone();
        Http2RequestGuard { requests, number }
    }

    /// Returns whether the connection has had no requests for at least `longest`; false without a
    /// limit.
    fn is_idle(&self, longest: Option<Duration>) -> bool {
        let all = lock(&self.0);
        let is_over = |longest| all.idle_since.elapsed() >= longest;
        all.waiting_since.is_empty() && longest.is_some_and(is_over)
    }

    /// Returns whether a piece of any response has been waiting for at least `longest`.
    fn is_stalled(&self, longest: Duration) -> bool {
        let all = lock(&self.0);
        let mut since = all.waiting_since.values().flatten();
        since.any(|since| since.elapsed() >= longest)
    }
}

/// Guard of a current request, which records the progress of its response and removes it when
/// dropped.
struct Http2RequestGuard {
    requests: Http2Requests,
    number: u64,
}

impl Http2RequestGuard {
    fn set_waiting_since(&self, since: Option<Instant>) {
        let mut all = lock(&self.requests.0);
        if let Some(known) = all.waiting_since.get_mut(&self.number) {
            *known = since;
        }
    }
}

impl BodyObserver for Http2RequestGuard {
    fn on_piece_requested(&mut self) {
        self.set_waiting_since(None);
    }

    fn data(&mut self, _bytes: usize) {
        self.set_waiting_since(Some(Instant::now()));
    }
}

impl Drop for Http2RequestGuard {
    fn drop(&mut self) {
        let mut all = lock(&self.requests.0);
        all.waiting_since.remove(&self.number);
        all.idle_since = Instant::now();
    }
}
