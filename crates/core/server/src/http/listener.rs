//! Accepts connections and serves them until the server stops.
//!
//! Invariant: the number of connections never exceeds the limit. Each one ends when its client is
//! too slow or disconnects, or the server stops.

use super::accept::ConnectionSource;
use super::connection::{self, AcceptedConnection, ConnectionContext};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Minimum and maximum pause after a failed accept, for example for lack of file descriptors. The
/// pause doubles with each further failure.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Minimum time between two log messages about failed accepts.
const ACCEPT_REPORT_PAUSE: Duration = Duration::from_secs(60);

/// Serves the connections of `source` until `shutdown` resolves. Then waits for current requests up
/// to the grace period in the limits.
pub(crate) async fn serve(
    source: impl ConnectionSource,
    site: ConnectionContext,
    shutdown: impl Future<Output = ()>,
) {
    let mut server = HttpServer::new(site);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (connected, place) = tokio::select! {
            () = &mut shutdown => break,
            accepted = server.accept(&source) => accepted,
        };
        while connections.try_join_next().is_some() {}
        let connection = connection::serve(connected, &server.site, server.stopping.subscribe());
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(source);
    server.drain(connections).await;
}

/// Counter of failed accepts that are not logged yet, to limit the log messages.
#[derive(Default)]
struct AcceptFailures {
    count: u64,
    reported: Option<Instant>,
}

impl AcceptFailures {
    /// Counts a failure. Logs the number of failures since the last message at most once per
    /// interval.
    fn report(&mut self, error: &io::Error) {
        self.count += 1;
        let is_quiet = |at: Instant| at.elapsed() < ACCEPT_REPORT_PAUSE;
        if !self.reported.is_some_and(is_quiet) {
            tracing::warn!(error = %error, count = self.count, "failed to accept a connection");
            *self = Self {
                count: 0,
                reported: Some(Instant::now()),
            };
        }
    }
}

struct HttpServer {
    site: ConnectionContext,
    places: Arc<Semaphore>,
    failures: AcceptFailures,
    /// Changes once, when connections must end after the current request.
    stopping: watch::Sender<bool>,
}

impl HttpServer {
    fn new(site: ConnectionContext) -> Self {
        Self {
            places: Arc::new(Semaphore::new(site.limits.connections_max)),
            failures: AcceptFailures::default(),
            stopping: watch::Sender::new(false),
            site,
        }
    }

    /// Waits for a free connection slot before accepting, so that further clients wait in the
    /// kernel's backlog without cost. Retries failed accepts.
    async fn accept<A: ConnectionSource>(
        &mut self,
        source: &A,
    ) -> (AcceptedConnection<A>, Option<OwnedSemaphorePermit>) {
        // The semaphore is never closed.
        let place = self.places.clone().acquire_owned().await.ok();
        let mut pause = ACCEPT_PAUSE_MIN;
        loop {
            match source.accept().await {
                Ok((arriving, peer)) => return (AcceptedConnection { arriving, peer }, place),
                Err(e) => {
                    self.site.metrics.accepts_failed.inc();
                    self.failures.report(&e);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            }
        }
    }

    async fn drain(self, mut connections: JoinSet<()>) {
        self.stopping.send_replace(true);
        let grace = self.site.limits.shutdown_grace;
        let all_ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all_ended).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "closing open connections at shutdown"
            );
        }
        connections.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::limits::ServerLimits;
    use crate::http::accept::HttpProtocol;
    use axum::Router;
    use axum::routing::get;
    use firn_model::budget::Budget;
    use firn_model::shares::BudgetShares;
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::{Mutex, mpsc, oneshot};

    /// In-memory streams, in the order in which a test opens them.
    struct Streams(Mutex<mpsc::UnboundedReceiver<DuplexStream>>);

    impl ConnectionSource for Streams {
        type Arriving = DuplexStream;
        type Stream = DuplexStream;

        async fn accept(&self) -> io::Result<(DuplexStream, SocketAddr)> {
            match self.0.lock().await.recv().await {
                Some(stream) => Ok((stream, (Ipv4Addr::LOCALHOST, 1).into())),
                None => std::future::pending().await,
            }
        }

        async fn negotiate(arriving: DuplexStream) -> io::Result<(DuplexStream, HttpProtocol)> {
            Ok((arriving, HttpProtocol::Http1))
        }
    }

    fn site() -> ConnectionContext {
        ConnectionContext {
            router: Router::new().route("/", get(async || "hello")),
            limits: ServerLimits::from_shares(&BudgetShares::from_limit(1 << 30)),
            heads: Budget::new("request heads", 1 << 20),
            metrics: Arc::default(),
        }
    }

    async fn answer(stream: &mut DuplexStream, request: &str) -> String {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with("hello") {
            let mut bytes = [0; 512];
            let read = stream.read(&mut bytes).await.unwrap();
            assert_ne!(read, 0, "the connection ended: {answer}");
            answer += std::str::from_utf8(&bytes[..read]).unwrap();
        }
        answer
    }

    #[tokio::test]
    async fn listener_over_streams_in_memory_answers_and_stops_as_over_sockets() {
        let (opened, streams) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let site = site();
        let metrics = site.metrics.clone();
        let serving = tokio::spawn(serve(Streams(Mutex::new(streams)), site, async {
            let _ = stopped.await;
        }));
        let mut clients = Vec::new();
        for _ in 0..2 {
            let (mut client, server) = duplex(64);
            opened.send(server).unwrap();
            for _ in 0..2 {
                let answer = answer(&mut client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            }
            clients.push(client);
        }
        assert_eq!(metrics.connections_total.get(), 2);
        stop.send(()).unwrap();
        serving.await.unwrap();
        for mut client in clients {
            assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        }
    }
}
