//! Connection pool by origin: idle HTTP/1 connections, and HTTP/2 connections that concurrent
//! requests share.
//!
//! ```text
//! request -> HTTP/2 of the origin | newest idle HTTP/1 | new connection -> response
//!               ^-- again, if the server turns out to have closed a reused connection
//! ```
//!
//! Invariant: idle connections are watched. A connection leaves the pool when its server ends it or
//! sends anything, when [`IDLE`] has elapsed, and when its place is needed.

use super::alert::{AlertStream, Ending, error_chain_text};
use super::exchange::{ExchangeFailure, Http1Body, Http1Connection};
use super::response_head::{HEAD_BYTES_MAX, ResponseHead, StatusReason};
use super::route::{BoxError, ConnectorStream, ProxyConnector};
use bytes::Bytes;
use firn_model::sync::lock;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tower_service::Service;

/// Maximum idle time of a connection. It is longer than almost all scrape intervals.
const IDLE: Duration = Duration::from_secs(5 * 60);

/// Idle time of an HTTP/2 connection after which a ping is sent, as in Prometheus.
const PING_AFTER: Duration = Duration::from_secs(60);

pub(super) type HttpsStream = MaybeHttpsStream<ConnectorStream>;

/// Scheme and authority of the server of a connection.
pub(super) type Origin = (Scheme, Authority);

/// A pool of connections that are established in the same way.
pub(super) struct ConnectionPool {
    connector: HttpsConnector<ProxyConnector>,
    /// Whether only HTTP/2 is used, even without TLS.
    is_http2_alone: bool,
    open: Arc<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    http1: Mutex<HashMap<Origin, Vec<IdleConnection>>>,
    http2: Mutex<HashMap<Origin, Http2Connection>>,
}

/// A connection without a request. Dropping it stops the task that watches it.
struct IdleConnection {
    connection: Arc<Mutex<Option<Box<Http1Connection>>>>,
    watcher: AbortHandle,
}

/// An open HTTP/2 connection, and the error that ends it.
#[derive(Clone)]
struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    ending: Ending,
}

/// An HTTP/2 connection with the time of its last use.
#[derive(Clone)]
struct Http2Connection {
    http2: Http2,
    used: Arc<Mutex<Instant>>,
}

enum NewConnection {
    Http1(Box<Http1Connection>),
    Http2(Http2),
}

impl ConnectionPool {
    pub(super) fn new(connector: HttpsConnector<ProxyConnector>, is_http2_alone: bool) -> Self {
        Self {
            connector,
            is_http2_alone,
            open: Arc::default(),
        }
    }

    /// Sends `request` and returns as soon as the response head is complete. If the server had
    /// closed a reused connection, the request is sent again under the same conditions as in Go.
    pub(super) async fn send(
        &self,
        request: &Request<Bytes>,
    ) -> Result<Response<ResponseBody>, String> {
        let uri = request.uri();
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err("no Host in request URL".into());
        };
        let origin = (scheme.clone(), authority.clone());
        loop {
            let (connected, is_reused) = match self.open.take(&origin) {
                Some(connected) => (connected, true),
                None => (self.connect(&origin, uri).await?, false),
            };
            let failure = match connected {
                NewConnection::Http1(connection) => match connection.send(request).await {
                    Ok((head, connection)) => {
                        return Ok(self.response(head, request, connection, origin));
                    }
                    Err(failure) => failure,
                },
                NewConnection::Http2(http2) => match send_http2(http2, request).await {
                    Ok(response) => return Ok(response.map(ResponseBody::from)),
                    Err(failure) => {
                        self.open.remove_closed(&origin);
                        failure
                    }
                },
            };
            if !(is_reused && failure.may_repeat) {
                return Err(failure.message);
            }
        }
    }

    fn response(
        &self,
        mut head: ResponseHead,
        request: &Request<Bytes>,
        connection: Box<Http1Connection>,
        origin: Origin,
    ) -> Response<ResponseBody> {
        let headers = std::mem::take(&mut head.headers);
        let pool = WeakConnectionPool(Arc::downgrade(&self.open));
        let body = Http1Body::new(&head, request, connection, pool, origin);
        let mut response = Response::new(ResponseBody(ResponseBodyKind::Http1(body)));
        *response.status_mut() = head.status;
        *response.headers_mut() = headers;
        if head.status.canonical_reason() != Some(&head.reason) {
            response.extensions_mut().insert(StatusReason(head.reason));
        }
        response
    }

    async fn connect(&self, origin: &Origin, uri: &Uri) -> Result<NewConnection, String> {
        let connecting = self.connector.clone().call(uri.clone());
        let stream = connecting.await.map_err(|e| error_chain_text(&*e))?;
        if !self.is_http2_alone && !stream.connected().is_negotiated_h2() {
            return Ok(NewConnection::Http1(Box::new(Http1Connection::new(stream))));
        }
        let (stream, ending) = AlertStream::new(stream);
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .handshake(stream);
        let (sender, connection) = handshake.await.map_err(|e| error_chain_text(&e))?;
        let http2 = Http2 { sender, ending };
        let shared = Http2Connection {
            http2: http2.clone(),
            used: Arc::new(Mutex::new(Instant::now())),
        };
        lock(&self.open.http2).insert(origin.clone(), shared.clone());
        let (open, origin) = (Arc::downgrade(&self.open), origin.clone());
        let used = shared.used;
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            while timeout(IDLE, &mut connection).await.is_err() {
                if let Some(open) = open.upgrade() {
                    open.remove_unused(&origin, &used);
                }
            }
        });
        Ok(NewConnection::Http2(http2))
    }
}

impl OpenConnections {
    /// Takes a connection that can serve `origin` from the pool.
    fn take(&self, origin: &Origin) -> Option<NewConnection> {
        if let Some(shared) = lock(&self.http2).get(origin)
            && !shared.http2.sender.is_closed()
        {
            *lock(&shared.used) = Instant::now();
            return Some(NewConnection::Http2(shared.http2.clone()));
        }
        loop {
            let idle = lock(&self.http1).get_mut(origin)?.pop()?;
            if let Some(connection) = idle.take() {
                return Some(NewConnection::Http1(connection));
            }
        }
    }

    fn remove_closed(&self, origin: &Origin) {
        let mut all = lock(&self.http2);
        if all
            .get(origin)
            .is_some_and(|it| it.http2.sender.is_closed())
        {
            all.remove(origin);
        }
    }

    /// Removes the HTTP/2 connection of `origin` to which `used` belongs, if it has been idle for
    /// [`IDLE`]. It closes after its last response.
    fn remove_unused(&self, origin: &Origin, used: &Arc<Mutex<Instant>>) {
        let mut all = lock(&self.http2);
        if let Some(shared) = all.get(origin)
            && Arc::ptr_eq(&shared.used, used)
            && lock(used).elapsed() >= IDLE
        {
            all.remove(origin);
        }
    }

    fn put(self: &Arc<Self>, origin: &Origin, connection: Box<Http1Connection>) {
        let connection = Arc::new(Mutex::new(Some(connection)));
        let mut all = lock(&self.http1);
        let watcher = tokio::spawn(watch(
            connection.clone(),
            Arc::downgrade(self),
            origin.clone(),
        ));
        let idle = IdleConnection {
            connection,
            watcher: watcher.abort_handle(),
        };
        all.entry(origin.clone()).or_default().push(idle);
    }

    /// Removes the idle connections of `origin` that their watchers have closed.
    fn drop_ended(&self, origin: &Origin) {
        let mut all = lock(&self.http1);
        if let Some(idle) = all.get_mut(origin) {
            idle.retain(|idle| lock(&idle.connection).is_some());
            if idle.is_empty() {
                all.remove(origin);
            }
        }
    }
}

/// Waits until an idle connection ends or exceeds the maximum idle time, and closes it.
async fn watch(
    connection: Arc<Mutex<Option<Box<Http1Connection>>>>,
    open: Weak<OpenConnections>,
    origin: Origin,
) {
    let ended = poll_fn(|cx| match &mut *lock(&connection) {
        Some(connection) => connection.poll_idle_end(cx),
        None => Poll::Ready(()),
    });
    // In both cases the connection is closed.
    let _ = timeout(IDLE, ended).await;
    lock(&connection).take();
    if let Some(open) = open.upgrade() {
        open.drop_ended(&origin);
    }
}

impl IdleConnection {
    /// Returns the connection, or `None` if it has ended in the meantime.
    fn take(self) -> Option<Box<Http1Connection>> {
        let mut connection = lock(&self.connection).take()?;
        let mut cx = Context::from_waker(Waker::noop());
        match connection.poll_idle_end(&mut cx) {
            Poll::Pending => Some(connection),
            Poll::Ready(()) => None,
        }
    }
}

impl Drop for IdleConnection {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// Reference to the pool to which a connection returns, if the pool still exists.
#[derive(Clone)]
pub(super) struct WeakConnectionPool(Weak<OpenConnections>);

impl WeakConnectionPool {
    pub(super) fn put(&self, origin: &Origin, connection: Box<Http1Connection>) {
        if let Some(open) = self.0.upgrade() {
            open.put(origin, connection);
        }
    }
}

async fn send_http2(
    http2: Http2,
    request: &Request<Bytes>,
) -> Result<Response<Incoming>, ExchangeFailure> {
    let Http2 { mut sender, ending } = http2;
    let failure = |e: hyper::Error, may_repeat| ExchangeFailure {
        message: ending
            .get()
            .cloned()
            .unwrap_or_else(|| error_chain_text(&e)),
        may_repeat,
    };
    sender.ready().await.map_err(|e| failure(e, true))?;
    let sending = sender.send_request(request.clone().map(Full::new));
    sending.await.map_err(|e| {
        let may_repeat = e.is_canceled() || is_refused(&e);
        failure(e, may_repeat)
    })
}

/// Returns whether the server is known not to have processed the request.
fn is_refused(error: &hyper::Error) -> bool {
    let error = error.source().and_then(|e| e.downcast_ref::<h2::Error>());
    error.is_some_and(|error| match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => true,
        Some(h2::Reason::NO_ERROR) => error.is_go_away(),
        _ => false,
    })
}

/// Body of a response. Read it to its end, so that its connection can be reused.
pub struct ResponseBody(ResponseBodyKind);

enum ResponseBodyKind {
    Http1(Http1Body),
    /// Body of an HTTP/2 response, or of a connection outside of the pool.
    Hyper(Incoming),
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

impl From<Incoming> for ResponseBody {
    fn from(body: Incoming) -> Self {
        Self(ResponseBodyKind::Hyper(body))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().0 {
            ResponseBodyKind::Http1(body) => body
                .poll_data(cx)
                .map(|data| data.map(|data| data.map(Frame::data).map_err(BoxError::from))),
            ResponseBodyKind::Hyper(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(BoxError::from))),
        }
    }
}
