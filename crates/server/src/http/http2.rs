//! A connection that speaks HTTP/2: many requests at once over one stream of bytes.
//!
//! The protocol's own means bound what a client may have under way; what they do not bound is
//! looked at every few seconds: a connection without requests, and an answer that its client lets
//! stand.
//!
//! Invariant: a connection takes a bounded number of requests, heads and bytes on their way out,
//! and ends when its client is gone, says nothing or takes nothing for as long as over HTTP/1.1.

use super::connection::Site;
use super::watched_body::{Watch, WatchedBody};
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

/// Requests under way at once: a page of a dashboard asks for some twenty panels.
const STREAMS_MAX: u32 = 64;

/// Bytes of a request's headers, as over HTTP/1.1.
const HEADERS_BYTES_MAX: u32 = 64 << 10;

/// Bytes of an answer that wait for their client, beyond what it asked for.
const SEND_BYTES_MAX: usize = 32 << 10;

/// Bytes of bodies that a client may send before they are read: a push in one go.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// A client that is silent is asked whether it is there, and has so long to say so.
const PING_PAUSE: Duration = Duration::from_secs(30);
const PING_MAX: Duration = Duration::from_secs(20);

/// Between two looks at what is under way.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// Serves one connection to its end. It ends after the requests under way once `stopping` changes.
pub(super) async fn serve<S>(
    stream: S,
    peer: SocketAddr,
    site: &Site,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &site.limits;
    let requests = Requests::default();
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
                // The listener cuts what takes too long.
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
    entered: Entered,
    routes: &TowerToHyperService<Router>,
) -> impl Future<Output = Result<Response<WatchedBody<Body, Entered>>, Infallible>> + Send + use<> {
    request.extensions_mut().insert(peer);
    // Where HTTP/1.1 has a header, which is what the rest of the server reads.
    if let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let answer = routes.call(request.map(Body::new));
    async move {
        let response = answer.await?;
        let watch = entered;
        Ok(response.map(|inner| WatchedBody { inner, watch }))
    }
}

/// The requests under way on one connection. Clones share them.
#[derive(Clone)]
struct Requests(Arc<Mutex<UnderWay>>);

struct UnderWay {
    next: u64,
    /// Each with the moment since which a piece of its answer waits to be taken.
    waiting_since: HashMap<u64, Option<Instant>>,
    /// When the last one ended.
    idle_since: Instant,
}

impl Default for Requests {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(UnderWay {
            next: 0,
            waiting_since: HashMap::new(),
            idle_since: Instant::now(),
        })))
    }
}

impl Requests {
    /// A request is under way until what is returned is dropped.
    fn enter(&self) -> Entered {
        let mut all = lock(&self.0);
        let number = all.next;
        all.next += 1;
        all.waiting_since.insert(number, None);
        let requests = self.clone();
        Entered { requests, number }
    }

    /// Whether there was no request for so long.
    fn is_idle(&self, longest: Option<Duration>) -> bool {
        let all = lock(&self.0);
        let is_over = |longest| all.idle_since.elapsed() >= longest;
        all.waiting_since.is_empty() && longest.is_some_and(is_over)
    }

    /// Whether an answer was not taken for so long.
    fn is_stalled(&self, longest: Duration) -> bool {
        let all = lock(&self.0);
        let mut since = all.waiting_since.values().flatten();
        since.any(|since| since.elapsed() >= longest)
    }
}

/// A request under way.
struct Entered {
    requests: Requests,
    number: u64,
}

impl Entered {
    fn note(&self, since: Option<Instant>) {
        let mut all = lock(&self.requests.0);
        if let Some(known) = all.waiting_since.get_mut(&self.number) {
            *known = since;
        }
    }
}

impl Watch for Entered {
    fn asked(&mut self) {
        self.note(None);
    }

    fn data(&mut self, _bytes: usize) {
        self.note(Some(Instant::now()));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut all = lock(&self.requests.0);
        all.waiting_since.remove(&self.number);
        all.idle_since = Instant::now();
    }
}
