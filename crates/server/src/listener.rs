//! Accepting connections and serving them until told to stop.
//!
//! Invariant: there are never more connections than the limit; each ends when its client is too
//! slow, goes away, or the server stops.

use crate::app::App;
use crate::request_head::Beside;
use crate::routes::router;
use crate::socket::{Busy, GuardedSocket, Phase};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Request, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioTimer;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long to wait after a failed accept: file descriptors may have run out, and come back.
/// Doubled up to the longest with each that fails.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Between two lines in the log about failed accepts.
const ACCEPT_REPORT_PAUSE: Duration = Duration::from_secs(60);

/// Serves `app` on `listener` until `shutdown` resolves; then lets requests under way end for as
/// long as the limits say.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut server = Server::new(app);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (socket, peer, place) = tokio::select! {
            () = &mut shutdown => break,
            accepted = server.accept(&listener) => accepted,
        };
        while connections.try_join_next().is_some() {}
        let connection = server.connection(socket, peer);
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    server.app.stop();
    server.drain(connections).await;
    Ok(())
}

/// Failed accepts that the log does not know of yet.
#[derive(Default)]
struct AcceptFailures {
    count: u64,
    reported: Option<Instant>,
}

impl AcceptFailures {
    /// Counts one; says in the log how many there were, once in a while.
    fn report(&mut self, error: &io::Error) {
        self.count += 1;
        let is_quiet = |at: Instant| at.elapsed() < ACCEPT_REPORT_PAUSE;
        if !self.reported.is_some_and(is_quiet) {
            tracing::warn!(error = %error, count = self.count, "accept connection");
            *self = Self {
                count: 0,
                reported: Some(Instant::now()),
            };
        }
    }
}

struct Server {
    app: App,
    router: Router,
    places: Arc<Semaphore>,
    failures: AcceptFailures,
    /// Changes once: when connections shall end after the request under way.
    stopping: watch::Sender<bool>,
}

impl Server {
    fn new(app: App) -> Self {
        Self {
            places: Arc::new(Semaphore::new(app.limits().connections_max)),
            router: router(app.clone()),
            failures: AcceptFailures::default(),
            stopping: watch::Sender::new(false),
            app,
        }
    }

    /// Waits for a place first: further clients wait in the kernel's backlog and cost nothing. What
    /// fails is tried again.
    async fn accept(
        &mut self,
        listener: &TcpListener,
    ) -> (TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
        // It is never closed.
        let place = self.places.clone().acquire_owned().await.ok();
        let mut pause = ACCEPT_PAUSE_MIN;
        loop {
            let accepted = listener.accept().await;
            // Answers are written whole: waiting for more to send only delays them.
            match accepted
                .and_then(|(socket, peer)| socket.set_nodelay(true).map(|()| (socket, peer)))
            {
                Ok((socket, peer)) => return (socket, peer, place),
                Err(e) => {
                    self.app.metrics.accepts_failed.inc();
                    self.failures.report(&e);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }

    /// Serves one connection to its end.
    fn connection(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + use<> {
        let limits = self.app.limits();
        let phase = Phase::default();
        let heads = self.app.heads.clone();
        let io = GuardedSocket::new(socket, phase.clone(), limits, heads);
        let routes = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let busy = phase.busy();
            let phase = phase.clone();
            let (mut request, has_ended) = RequestBody::watch(request);
            request.extensions_mut().insert(peer);
            let answer = match phase.take_beside() {
                Some(Beside::Refusal(failure)) => Err(failure),
                Some(Beside::Line(line)) => {
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
                Ok::<_, Infallible>(response.map(|inner| BusyBody { inner, _busy: busy }))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // Runs from the end of an answer: it bounds the pause. The socket bounds the headers.
            .header_read_timeout(limits.idle_max)
            .max_buf_size(limits.header_buffer_bytes)
            .max_headers(limits.headers_max)
            .serve_connection(io, service);
        let mut stopping = self.stopping.subscribe();
        let counted = self.app.metrics.connections.enter();
        self.app.metrics.connections_total.inc();
        async move {
            let mut connection = pin!(connection);
            let outcome = tokio::select! {
                outcome = connection.as_mut() => outcome,
                // An error means that the server is gone: the same as its wish to stop.
                _ = stopping.changed() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(e) = outcome {
                tracing::debug!(error = %e, "end connection");
            }
            drop(counted);
        }
    }

    async fn drain(self, mut connections: JoinSet<()>) {
        self.stopping.send_replace(true);
        let grace = self.app.limits().shutdown_grace;
        let all_ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all_ended).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "cut connections at shutdown"
            );
        }
        connections.shutdown().await;
    }
}

/// A request's body that tells whether it was read to its end.
struct RequestBody {
    inner: Incoming,
    has_ended: Arc<AtomicBool>,
}

impl RequestBody {
    fn watch(request: Request<Incoming>) -> (Request<Self>, Arc<AtomicBool>) {
        let has_ended = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        let watched = request.map(|inner| Self {
            inner,
            has_ended: has_ended.clone(),
        });
        (watched, has_ended)
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        if matches!(polled, Poll::Ready(None)) {
            this.has_ended.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An answer's body; the connection is busy until it was sent.
struct BusyBody {
    inner: Body,
    _busy: Busy,
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
