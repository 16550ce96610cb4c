//! A minimal HTTP server whose responses are chosen by the caller. It is used as a scrape target
//! and as a receiver.

use crate::error::MirrorError;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a request's head in bytes.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

/// Maximum length of a request's body in bytes.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// Timeout of each read from a connection, after which it is closed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A received HTTP request, read completely before it is passed to the answering function.
pub struct Request {
    /// Path and query string, as in the request line.
    pub path: String,
    /// Headers as `name: value`, with names in lower case.
    pub headers: Vec<String>,
    /// The body; empty if the length is missing or exceeds the limit.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns the value of the header `name`, which must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.headers.iter().find_map(|h| h.strip_prefix(&prefix))
    }
}

/// An HTTP server that runs until the process ends, even if this value is dropped.
pub struct ExpositionServer {
    /// Local address with the actual port, such as `127.0.0.1:9090`.
    pub address: String,
}

impl ExpositionServer {
    /// Listens on `address` and calls `answer` for each request, on a thread per connection. The
    /// connection is closed after one request.
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

/// Handles one request. If the client disconnects before it is complete, `answer` is not called.
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

/// Writes a complete response. Errors are ignored, because the client may have disconnected.
pub fn respond(stream: &mut TcpStream, status: &str, content_type: &str, body: impl AsRef<[u8]>) {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}

/// Writes a response with metrics in the text exposition format, with status 200.
pub fn expose(stream: &mut TcpStream, body: &str) {
    respond(stream, "200 OK", "text/plain; version=0.0.4", body);
}
