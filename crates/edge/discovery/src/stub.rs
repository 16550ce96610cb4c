//! Stub servers for tests, and helpers that run discoveries against them.

use super::discover::{Refresh, RefreshTask};
use super::group::TargetGroup;
use super::published::PublishedTargets;
use firn_model::env::sim::{SimClock, SimRng};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Timeout for expected events; it elapses only in a failing test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request that a stub received.
#[derive(Clone, Debug)]
pub(super) struct StubRequest {
    /// Path and query of the request.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

/// Response of a stub.
pub(super) struct StubResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    chunks: UnboundedReceiver<Bytes>,
}

impl StubResponse {
    /// Creates a response with a status and a JSON text.
    pub(super) fn with_status(status: u16, text: &str) -> Self {
        let (sender, reply) = Self::open_stream(status);
        let _ = sender.send(Bytes::copy_from_slice(text.as_bytes()));
        reply
    }

    /// Creates a response whose body continues until the sender is dropped.
    pub(super) fn open_stream(status: u16) -> (UnboundedSender<Bytes>, Self) {
        let (sender, chunks) = unbounded_channel();
        let reply = Self {
            status,
            headers: vec![("content-type", "application/json".into())],
            chunks,
        };
        (sender, reply)
    }

    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

struct StubBody(UnboundedReceiver<Bytes>);

impl Body for StubBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|chunk| chunk.map(|c| Ok(Frame::data(c))))
    }
}

/// A server on the loopback that records its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct StubServer {
    /// Base URL, `http://127.0.0.1:port`.
    pub(super) url: String,
    asked: Arc<Mutex<Vec<StubRequest>>>,
}

impl StubServer {
    /// Starts a server that calls `answer` for each request.
    pub(super) async fn start<F, R>(answer: F) -> Self
    where
        F: Fn(StubRequest) -> R + Clone + Send + 'static,
        R: Future<Output = StubResponse> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stub = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            ..Self::default()
        };
        let asked = stub.asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(stream, answer.clone(), asked.clone()));
            }
        });
        stub
    }

    /// Starts a server like [`Self::start`] that listens on a Unix socket.
    pub(super) async fn start_unix<F, R>(path: &Path, answer: F) -> Self
    where
        F: Fn(StubRequest) -> R + Clone + Send + 'static,
        R: Future<Output = StubResponse> + Send + 'static,
    {
        let listener = UnixListener::bind(path).unwrap();
        let stub = Self::default();
        let asked = stub.asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(stream, answer.clone(), asked.clone()));
            }
        });
        stub
    }

    /// Returns the requests received so far.
    pub(super) fn received_requests(&self) -> Vec<StubRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// Returns the paths of the requests received so far.
    pub(super) fn received_paths(&self) -> Vec<String> {
        self.received_requests()
            .into_iter()
            .map(|asked| asked.path)
            .collect()
    }
}

async fn serve_connection<S, F, R>(stream: S, answer: F, asked: Arc<Mutex<Vec<StubRequest>>>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Fn(StubRequest) -> R + Clone + Send + 'static,
    R: Future<Output = StubResponse> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (answer, asked) = (answer.clone(), asked.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let one = StubRequest {
                path: parts.uri.to_string(),
                headers: parts.headers,
                body: String::from_utf8(bytes.to_vec()).unwrap(),
            };
            asked.lock().unwrap().push(one.clone());
            let reply = answer(one).await;
            let mut response = Response::builder().status(reply.status);
            for (name, value) in reply.headers {
                response = response.header(name, value);
            }
            Ok::<_, Infallible>(response.body(StubBody(reply.chunks)).unwrap())
        }
    });
    let http1 = hyper::server::conn::http1::Builder::new();
    // The connection ends with an error when the client disconnects, which is expected.
    let _ = http1.serve_connection(TokioIo::new(stream), service).await;
}

/// A server with a fixed response per path and query, which a test can change at any time.
#[derive(Clone)]
pub(super) struct StubRoutes {
    pub(super) stub: StubServer,
    known: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
}

impl StubRoutes {
    /// Starts a server that responds with status 200 and these texts, and with 404 for all other
    /// paths.
    pub(super) async fn start(pairs: &[(&str, &str)]) -> Self {
        let known: Arc<Mutex<BTreeMap<String, (u16, String)>>> = Arc::default();
        let answers = known.clone();
        let stub = StubServer::start(move |asked: StubRequest| {
            let (status, text) = answers
                .lock()
                .unwrap()
                .get(&asked.path)
                .cloned()
                .unwrap_or_else(|| (404, format!("no answer to {}", asked.path)));
            async move { StubResponse::with_status(status, &text) }
        })
        .await;
        let answers = Self { stub, known };
        for (path, text) in pairs {
            answers.set_response(path, 200, text);
        }
        answers
    }

    /// Sets the response for `path`. `$URL` in the text is replaced with the URL of the server.
    pub(super) fn set_response(&self, path: &str, status: u16, text: &str) {
        let text = text.replace("$URL", &self.stub.url);
        let mut known = self.known.lock().unwrap();
        known.insert(path.to_owned(), (status, text));
    }

    pub(super) fn url(&self) -> &str {
        &self.stub.url
    }
}

/// A polled discovery whose refreshes the test triggers, with its published list.
pub(super) struct ManualRefresh {
    source: RefreshTask,
    to: PublishedTargets,
}

impl ManualRefresh {
    pub(super) fn new(source: impl Refresh) -> Self {
        let clock = Arc::new(SimClock::default());
        Self {
            source: RefreshTask::new(source),
            to: PublishedTargets::new(Arc::default(), clock),
        }
    }

    /// Refreshes once and returns the published targets.
    pub(super) async fn refresh_targets(&mut self) -> Vec<String> {
        self.source.refresh_once(&self.to).await;
        let groups = self.to.groups();
        groups.map_or(Vec::new(), |groups| format_targets(&groups))
    }

    /// Checks that the targets remain while the server fails at `path`, and that the failures are
    /// counted.
    pub(super) async fn check_targets_kept(&mut self, answers: &StubRoutes, path: &str) {
        let before = self.refresh_targets().await;
        let failures = self.to.failures.get();
        let known = answers.known.lock().unwrap()[path].clone();
        for (status, text) in [(503, "{}"), (200, "<html>")] {
            answers.set_response(path, status, text);
            assert_eq!(self.refresh_targets().await, before, "{path} {status}");
        }
        assert_eq!(self.to.failures.get(), failures + 2, "{path}");
        answers.set_response(path, known.0, &known.1);
        assert_eq!(self.refresh_targets().await, before, "{path}");
        assert_eq!(self.to.failures.get(), failures + 2, "{path}");
    }
}

/// Receiver of the lists of a running discovery.
pub(super) struct TargetListReceiver {
    pub(super) to: Arc<PublishedTargets>,
    changed: Arc<Notify>,
}

impl TargetListReceiver {
    pub(super) fn new() -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            to: Arc::new(PublishedTargets::new(
                changed.clone(),
                Arc::new(SimClock::default()),
            )),
            changed,
        }
    }

    /// Waits for the next list and returns its targets.
    pub(super) async fn next_targets(&self) -> Vec<String> {
        let news = timeout(PATIENCE, self.changed.notified()).await;
        news.expect("a list in time");
        format_targets(&self.to.groups().unwrap())
    }
}

/// Formats targets as lines of address and labels, without the prefix `__meta_`.
pub(super) fn format_targets(groups: &[TargetGroup]) -> Vec<String> {
    let mut lines = Vec::new();
    for group in groups {
        for address in &group.targets {
            let mut line = address.clone();
            for (name, value) in &group.labels {
                let name = name.strip_prefix("__meta_").unwrap_or(name);
                line += &format!(" {name}={value}");
            }
            lines.push(line);
        }
    }
    lines
}

/// Waits until `is_so` returns true, checking repeatedly.
pub(super) async fn wait_until(mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, looking)
        .await
        .expect("it happens in time");
}

/// Replaces up to eleven bytes at a random position with one of `parts`.
pub(super) fn damage_bytes<P: AsRef<[u8]>>(bytes: &mut Vec<u8>, parts: &[P], rng: &SimRng) {
    let at = rng.next_below(bytes.len() as u64) as usize;
    let end = at + rng.next_below((bytes.len() - at) as u64).min(12) as usize;
    let part = parts[rng.next_below(parts.len() as u64) as usize].as_ref();
    bytes.splice(at..end, part.iter().copied());
}
