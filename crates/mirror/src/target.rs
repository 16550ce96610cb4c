//! A server of one's own making, which may answer however it likes: a scrape target, a receiver.

use crate::error::MirrorError;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest head of a request.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

/// The longest body of a request.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// How long a read of a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A request as it came.
pub struct Request {
    /// Path and query.
    pub path: String,
    /// `name: value`, names in small letters.
    pub headers: Vec<String>,
    /// What came behind them; empty for a length that is not said, or beyond the limit.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.headers.iter().find_map(|h| h.strip_prefix(&prefix))
    }
}

/// A server that lives as long as the process.
pub struct Target {
    /// `127.0.0.1:port`
    pub address: String,
}

impl Target {
    /// Listens at `address` and answers each request by `answer`, on a thread of its own; then the
    /// connection ends.
    pub fn start(
        address: &str,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Result<Self, MirrorError> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            let address = listener.local_addr()?.to_string();
            Ok((listener, address))
        });
        let (listener, address) =
            bound.map_err(MirrorError::file("listen at", Path::new(address)))?;
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.clone();
                std::thread::spawn(move || serve(stream, &*answer));
            }
        });
        Ok(Self { address })
    }
}

/// Answers one request; a client that breaks off gets no answer.
fn serve(mut stream: TcpStream, answer: &dyn Fn(&Request, &mut TcpStream)) {
    if let Some(request) = read_request(&stream) {
        answer(&request, &mut stream);
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT)).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = reader.by_ref().take(REQUEST_BYTES_MAX);
    let mut first = String::new();
    head.read_line(&mut first).ok()?;
    let mut headers = Vec::new();
    for line in head.lines().map_while(Result::ok) {
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push(format!("{}: {}", name.to_lowercase(), value.trim()));
    }
    let mut request = Request {
        path: first.split(' ').nth(1)?.to_owned(),
        headers,
        body: Vec::new(),
    };
    let length = request.header("content-length");
    let length = length.and_then(|length| length.parse::<u64>().ok());
    if let Some(length) = length.filter(|length| *length <= BODY_BYTES_MAX) {
        reader.take(length).read_to_end(&mut request.body).ok()?;
    }
    Some(request)
}

/// Writes a whole answer; the client may have gone.
pub fn respond(stream: &mut TcpStream, status: &str, content_type: &str, body: impl AsRef<[u8]>) {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}

/// Writes an exposition in the text format.
pub fn expose(stream: &mut TcpStream, body: &str) {
    respond(stream, "200 OK", "text/plain; version=0.0.4", body);
}
