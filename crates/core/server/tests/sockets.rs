//! Tests of slow, silent, endless, numerous and disconnected clients over real sockets. Limits are
//! set to milliseconds, and every wait polls with a deadline.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

mod support;

use firn_model::cancel::CancelReason;
use firn_server::ServerLimits;
use firn_server::parts::AppParts;
use firn_server::serve;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Fixture, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Maximum time for which a test waits for an expected event.
const DEADLINE: Duration = Duration::from_secs(10);

/// Value of the time limit under test.
const SHORT: Duration = Duration::from_millis(80);

struct Server {
    fixture: Fixture,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Server {
    async fn start(change: impl FnOnce(&mut ServerLimits)) -> Self {
        Self::start_of(|parts| change(&mut parts.limits)).await
    }

    async fn start_of(change: impl FnOnce(&mut AppParts)) -> Self {
        let fixture = Fixture::ready(change);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let app = fixture.app.clone();
        let running = tokio::spawn(serve(listener, app, async {
            let _ = stopped.await;
        }));
        Self {
            fixture,
            address,
            stop,
            running,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Opens a connection and sends `text`.
    async fn send(&self, text: &str) -> TcpStream {
        let mut socket = self.connect().await;
        socket.write_all(text.as_bytes()).await.unwrap();
        socket
    }

    /// Requests `path` on a new connection and returns the complete response.
    async fn get(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        read_to_end(self.send(&request).await).await
    }
}

/// Returns all bytes until the server closes the connection. Fails if it does not.
async fn read_to_end(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset after the response also ends the connection.
    let _ = timeout(DEADLINE, socket.read_to_end(&mut bytes))
        .await
        .expect("the server closes the connection");
    String::from_utf8(bytes).unwrap()
}

/// Reads until the text ends with `end`.
async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut byte = [0];
        let read = timeout(DEADLINE, socket.read_exact(&mut byte)).await;
        read.expect("an answer comes").unwrap();
        text.push(char::from(byte[0]));
    }
    text
}

#[tokio::test]
async fn connection_without_whole_headers_is_closed() {
    let server = Server::start(|limits| limits.header_read_max = SHORT).await;
    for sent in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\nA: "] {
        let start = Instant::now();
        let answer = read_to_end(server.send(sent).await).await;
        assert_eq!(answer, "", "{sent:?}");
        assert!(start.elapsed() >= SHORT, "{sent:?}");
    }
}

#[tokio::test]
async fn idle_connection_is_kept_for_a_while_and_closed() {
    let server = Server::start(|limits| {
        limits.header_read_max = SHORT;
        limits.idle_max = Some(4 * SHORT);
    })
    .await;
    let mut socket = server.connect().await;
    for _ in 0..2 {
        let request = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n";
        socket.write_all(request).await.unwrap();
        let answer = read_until(&mut socket, "Firn is Healthy.\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    let start = Instant::now();
    assert_eq!(read_to_end(socket).await, "");
    assert!(start.elapsed() >= 2 * SHORT, "{:?}", start.elapsed());
}

#[tokio::test]
async fn second_request_without_whole_headers_is_closed_before_idle_ends() {
    let server = Server::start(|limits| limits.header_read_max = SHORT).await;
    let mut socket = server.connect().await;
    let request = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let _ = read_until(&mut socket, "Firn is Healthy.\n").await;
    socket.write_all(b"GET /").await.unwrap();
    assert_eq!(read_to_end(socket).await, "");
}

#[tokio::test]
async fn body_that_drips_is_given_up() {
    let server = Server::start(|limits| limits.body_grace = SHORT).await;
    for head in [
        "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc",
        "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n1\r\nq\r\n",
    ] {
        let answer = read_to_end(server.send(head).await).await;
        assert!(
            answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn connection_after_an_unread_body_is_closed() {
    let server = Server::start(|_| {}).await;
    let get = "GET /api/v1/query?query=vector+1&x=\"> HTTP/1.1\r\nHost: x\r\n\
               Connection: close\r\n\r\n";
    for (path, body, closes) in [
        ("/nowhere", "", true),
        ("/nowhere", get, true),
        ("/api/v1/query", "query=vector+1", false),
    ] {
        let length = if body.is_empty() {
            get.len()
        } else {
            body.len()
        };
        let mut socket = server
            .send(&format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}"
            ))
            .await;
        let head = read_until(&mut socket, "\r\n\r\n").await;
        assert_eq!(head.contains("connection: close\r\n"), closes, "{head}");
        // The server may already have closed the connection.
        let _ = socket.write_all(get.as_bytes()).await;
        let rest = read_to_end(socket).await;
        assert_eq!(rest.contains("HTTP/1.1 200 OK\r\n"), !closes, "{rest}");
    }
}

#[tokio::test]
async fn body_without_end_is_refused_at_the_limit() {
    let server = Server::start(|_| {}).await;
    let head = "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let socket = server.send(head).await;
    let (mut reader, mut writer) = socket.into_split();
    let endless = tokio::spawn(async move {
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        while writer.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    let mut answer = [0; 12];
    let read = timeout(DEADLINE, reader.read_exact(&mut answer)).await;
    read.expect("an answer comes").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    timeout(DEADLINE, endless)
        .await
        .expect("the connection ends")
        .unwrap();
}

#[tokio::test]
async fn head_as_long_as_upstream_takes_it_is_taken() {
    let server = Server::start(|_| {}).await;
    let headers = |count: usize, bytes: usize| -> String {
        let pad = "p".repeat(bytes);
        (0..count)
            .map(|i| format!("X-Pad-{i}: {pad}\r\n"))
            .collect()
    };
    let query = |bytes: usize| format!("/api/v1/query?x=%22{}\"&query=1", "x".repeat(bytes));
    for (path, headers) in [
        (query(60_000), String::new()),
        (query(200_000), headers(150, 10)),
        (query(900_000), String::new()),
        ("/-/healthy".into(), headers(150, 10)),
        ("/-/healthy".into(), headers(900, 1000)),
        ("/-/healthy".into(), headers(40_000, 1)),
        ("/-/healthy".into(), headers(3, 300_000)),
    ] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n");
        let answer = read_to_end(server.send(&request).await).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n"),
            "{} and {} bytes: {answer}",
            path.len(),
            headers.len()
        );
    }
    // The connection remains usable afterwards.
    let mut socket = server.connect().await;
    for bytes in [100_000, 10, 300_000] {
        let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", query(bytes));
        socket.write_all(request.as_bytes()).await.unwrap();
        let answer = read_until(&mut socket, "}}").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    assert_eq!(server.fixture.memory.used_bytes(), 0);
}

#[tokio::test]
async fn head_that_is_too_long_is_refused_with_the_limit() {
    let server = Server::start(|_| {}).await;
    let limit = "request line and headers are too long: more than 1052672 bytes, limit 1052672\n";
    for request in [
        format!(
            "GET /?{} HTTP/1.1\r\nHost: x\r\n\r\n",
            "q".repeat(1_100_000)
        ),
        format!(
            "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
            format!("X-A: {}\r\n", "y".repeat(2000)).repeat(600)
        ),
    ] {
        let socket = server.connect().await;
        let (mut reader, mut writer) = socket.into_split();
        let sending = tokio::spawn(async move { writer.write_all(request.as_bytes()).await });
        let mut answer = vec![0; 4096];
        let read = timeout(DEADLINE, reader.read(&mut answer)).await;
        let count = read.expect("an answer comes").unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert!(answer.ends_with(limit), "{answer}");
        // The client may be unable to send the rest.
        let _ = sending.await.unwrap();
    }
}

#[tokio::test]
async fn heads_of_all_connections_share_one_memory() {
    let server = Server::start(|limits| limits.heads_bytes_max = 300_000).await;
    let path = format!("/api/v1/query?query=1&x={}", "x".repeat(200_000));
    let answer = server.get(&path).await;
    assert!(
        answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
        "{answer}"
    );
    assert!(
        answer.contains("request heads memory limit reached: "),
        "{answer}"
    );
    let answer = server.get("/-/healthy").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(server.fixture.memory.used_bytes(), 0);
}

#[tokio::test]
async fn client_that_goes_away_while_memory_is_given_back_cancels_its_query() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let looks = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let begun = looks.clone();
    let watch = move || {
        begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        // Blocks until the test ends, or until the server waits for it.
        let _ = held.lock().unwrap().recv_timeout(DEADLINE);
    };
    let server = Server::start_of(|parts| parts.watch_memory = Arc::new(watch)).await;
    let engine = &server.fixture.engine;
    let socket = server
        .send("GET /api/v1/query?query=block HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    eventually("look", || {
        looks.load(std::sync::atomic::Ordering::SeqCst) == 1
    })
    .await;
    let gone = Instant::now();
    drop(socket);
    eventually("cancel", || !engine.reasons.lock().unwrap().is_empty()).await;
    let took = gone.elapsed();
    assert!(took < Duration::from_millis(100), "canceled after {took:?}");
    drop(release);
}

#[tokio::test]
async fn client_that_goes_away_cancels_its_query() {
    let server = Server::start(|_| {}).await;
    let engine = &server.fixture.engine;
    for request in [
        "GET /api/v1/query?query=block HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\nquery=block",
    ] {
        let socket = server.send(request).await;
        eventually("query", || {
            engine.blocked.load(std::sync::atomic::Ordering::SeqCst) == 1
        })
        .await;
        let gone = Instant::now();
        drop(socket);
        eventually("cancel", || !engine.reasons.lock().unwrap().is_empty()).await;
        let took = gone.elapsed();
        assert!(took < Duration::from_millis(100), "canceled after {took:?}");
        assert_eq!(
            engine.reasons.lock().unwrap().pop(),
            Some(CancelReason::Canceled)
        );
        eventually("end", || {
            engine.blocked.load(std::sync::atomic::Ordering::SeqCst) == 0
        })
        .await;
    }
}

#[tokio::test]
async fn client_that_does_not_read_loses_its_answer() {
    let server = Server::start(|limits| limits.response_stall_max = SHORT).await;
    let request = "GET /api/v1/query?query=vector+500000 HTTP/1.1\r\nHost: x\r\n\r\n";
    let socket = server.send(request).await;
    let memory = server.fixture.memory.clone();
    eventually("answer", || memory.used_bytes() > 0).await;
    eventually("end of the answer", || memory.used_bytes() == 0).await;
    drop(socket);
}

#[tokio::test]
async fn long_answer_is_whole() {
    let server = Server::start(|_| {}).await;
    let answer = server.get("/api/v1/query?query=vector+100000&time=0").await;
    assert!(
        answer.contains("transfer-encoding: chunked\r\n"),
        "{}",
        &answer[..300]
    );
    assert_eq!(answer.matches(r#""__name__":"up""#).count(), 100_000);
}

#[tokio::test]
async fn silent_connections_over_the_limit_do_not_shut_others_out() {
    let server = Server::start(|limits| {
        limits.connections_max = 4;
        limits.header_read_max = SHORT;
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(server.connect().await);
    }
    let answer = server.get("/-/healthy").await;
    assert!(answer.ends_with("Firn is Healthy.\n"), "{answer}");
}

#[tokio::test]
async fn request_line_with_bare_quotes_is_understood() {
    let server = Server::start(|_| {}).await;
    let answer = server
        .get(r#"/api/v1/series?match[]=up{job="a"}&match[]={job="none"}"#)
        .await;
    assert!(
        answer.ends_with(r#""data":[{"__name__":"up","job":"a"}]}"#),
        "{answer}"
    );
    let long = format!("/api/v1/labels?x={}", "\"".repeat(10_000));
    let answer = server.get(&long).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test]
async fn headers_over_a_limit_are_refused() {
    let server = Server::start(|_| {}).await;
    let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(300 << 10));
    let many = format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "Accept-Encoding: x\r\n".repeat(200)
    );
    for text in [long, many] {
        let answer = read_to_end(server.send(&text).await).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test]
async fn stop_lets_requests_under_way_end() {
    let server = Server::start(|_| {}).await;
    let idle = server.connect().await;
    let request = "GET /api/v1/query?query=block&timeout=300ms HTTP/1.1\r\nHost: x\r\n\r\n";
    let socket = server.send(request).await;
    let engine = server.fixture.engine.clone();
    eventually("query", || {
        engine.blocked.load(std::sync::atomic::Ordering::SeqCst) == 1
    })
    .await;
    server.stop.send(()).unwrap();
    let answer = read_to_end(socket).await;
    assert!(
        answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
        "{answer}"
    );
    let stopped = timeout(DEADLINE, server.running).await;
    stopped.expect("the server ends").unwrap();
    drop(idle);
}

#[tokio::test]
async fn stop_cuts_requests_that_do_not_end() {
    let server = Server::start(|limits| limits.shutdown_grace = SHORT).await;
    let request = "GET /api/v1/query?query=block HTTP/1.1\r\nHost: x\r\n\r\n";
    let socket = server.send(request).await;
    let engine = server.fixture.engine.clone();
    eventually("query", || {
        engine.blocked.load(std::sync::atomic::Ordering::SeqCst) == 1
    })
    .await;
    server.stop.send(()).unwrap();
    let stopped = timeout(DEADLINE, server.running).await;
    stopped.expect("the server ends").unwrap();
    assert_eq!(read_to_end(socket).await, "");
    eventually("cancel", || {
        *engine.reasons.lock().unwrap() == [CancelReason::Canceled]
    })
    .await;
}
