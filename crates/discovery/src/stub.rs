//! Servers on the loopback that answer as the platforms do, and what discoveries publish of that.

use super::discover::{Refresh, Refreshed};
use super::group::Group;
use super::published::Published;
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

/// How long something may take to happen; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Path and query.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

/// An answer.
pub(super) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    chunks: UnboundedReceiver<Bytes>,
}

impl Reply {
    /// A text.
    pub(super) fn of(status: u16, text: &str) -> Self {
        let (sender, reply) = Self::open(status);
        let _ = sender.send(Bytes::copy_from_slice(text.as_bytes()));
        reply
    }

    /// An answer that goes on until the sender is dropped.
    pub(super) fn open(status: u16) -> (UnboundedSender<Bytes>, Self) {
        let (sender, chunks) = unbounded_channel();
        let reply = Self {
            status,
            headers: vec![("content-type", "application/json".into())],
            chunks,
        };
        (sender, reply)
    }

    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

struct Chunks(UnboundedReceiver<Bytes>);

impl Body for Chunks {
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

/// A server, and what it was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Stub {
    /// `http://127.0.0.1:port`
    pub(super) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stub {
    /// Answers each request by `answer`.
    pub(super) async fn start<F, R>(answer: F) -> Self
    where
        F: Fn(Asked) -> R + Clone + Send + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stub = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            ..Self::default()
        };
        let asked = stub.asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer.clone(), asked.clone()));
            }
        });
        stub
    }

    /// Like [`Self::start`], at a Unix socket.
    pub(super) async fn start_unix<F, R>(path: &Path, answer: F) -> Self
    where
        F: Fn(Asked) -> R + Clone + Send + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        let listener = UnixListener::bind(path).unwrap();
        let stub = Self::default();
        let asked = stub.asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer.clone(), asked.clone()));
            }
        });
        stub
    }

    /// The requests so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Their paths.
    pub(super) fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.path).collect()
    }
}

async fn serve<S, F, R>(stream: S, answer: F, asked: Arc<Mutex<Vec<Asked>>>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Fn(Asked) -> R + Clone + Send + 'static,
    R: Future<Output = Reply> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (answer, asked) = (answer.clone(), asked.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let one = Asked {
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
            Ok::<_, Infallible>(response.body(Chunks(reply.chunks)).unwrap())
        }
    });
    let http1 = hyper::server::conn::http1::Builder::new();
    // It ends when the client leaves, which is no failure.
    let _ = http1.serve_connection(TokioIo::new(stream), service).await;
}

/// A server that answers by path and query, in a way that a test changes while it is asked.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) stub: Stub,
    known: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
}

impl Answers {
    /// Answers with 200 and these texts; with 404 to all else.
    pub(super) async fn start(pairs: &[(&str, &str)]) -> Self {
        let known: Arc<Mutex<BTreeMap<String, (u16, String)>>> = Arc::default();
        let answers = known.clone();
        let stub = Stub::start(move |asked: Asked| {
            let (status, text) = answers
                .lock()
                .unwrap()
                .get(&asked.path)
                .cloned()
                .unwrap_or_else(|| (404, format!("no answer to {}", asked.path)));
            async move { Reply::of(status, &text) }
        })
        .await;
        let answers = Self { stub, known };
        for (path, text) in pairs {
            answers.set(path, 200, text);
        }
        answers
    }

    /// Answers `path` so from now on; `$URL` in the text is where the server is.
    pub(super) fn set(&self, path: &str, status: u16, text: &str) {
        let text = text.replace("$URL", &self.stub.url);
        let mut known = self.known.lock().unwrap();
        known.insert(path.to_owned(), (status, text));
    }

    pub(super) fn url(&self) -> &str {
        &self.stub.url
    }
}

/// A source that is asked by hand, and what it published.
pub(super) struct Followed {
    source: Refreshed,
    to: Published,
}

impl Followed {
    pub(super) fn new(source: impl Refresh) -> Self {
        let clock = Arc::new(SimClock::default());
        Self {
            source: Refreshed::new(source),
            to: Published::new(Arc::default(), clock),
        }
    }

    /// Asks once; the targets as they are then.
    pub(super) async fn next(&mut self) -> Vec<String> {
        self.source.once(&self.to).await;
        let groups = self.to.groups();
        groups.map_or(Vec::new(), |groups| shown(&groups))
    }

    /// Holds that targets stay while the server fails at `path`, and that this is counted.
    pub(super) async fn stays_while(&mut self, answers: &Answers, path: &str) {
        let before = self.next().await;
        let failures = self.to.failures.get();
        let known = answers.known.lock().unwrap()[path].clone();
        for (status, text) in [(503, "{}"), (200, "<html>")] {
            answers.set(path, status, text);
            assert_eq!(self.next().await, before, "{path} {status}");
        }
        assert_eq!(self.to.failures.get(), failures + 2, "{path}");
        answers.set(path, known.0, &known.1);
        assert_eq!(self.next().await, before, "{path}");
        assert_eq!(self.to.failures.get(), failures + 2, "{path}");
    }
}

/// A place for lists, and what is told of new ones.
pub(super) struct Seen {
    pub(super) to: Arc<Published>,
    changed: Arc<Notify>,
}

impl Seen {
    pub(super) fn new() -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            to: Arc::new(Published::new(
                changed.clone(),
                Arc::new(SimClock::default()),
            )),
            changed,
        }
    }

    /// Waits for the next list.
    pub(super) async fn next(&self) -> Vec<String> {
        let news = timeout(PATIENCE, self.changed.notified()).await;
        news.expect("a list in time");
        shown(&self.to.groups().unwrap())
    }
}

/// Targets as lines: the address and the labels, which lose `prefix`.
pub(super) fn shown(groups: &[Group]) -> Vec<String> {
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

/// Waits until `is_so`, looking again and again.
pub(super) async fn until(mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, looking)
        .await
        .expect("it happens in time");
}

/// Puts one of `parts` in the place of up to eleven bytes.
pub(super) fn damage<P: AsRef<[u8]>>(bytes: &mut Vec<u8>, parts: &[P], rng: &SimRng) {
    let at = rng.below(bytes.len() as u64) as usize;
    let end = at + rng.below((bytes.len() - at) as u64).min(12) as usize;
    let part = parts[rng.below(parts.len() as u64) as usize].as_ref();
    bytes.splice(at..end, part.iter().copied());
}
