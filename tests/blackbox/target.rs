//! A scrape target of the test's own making, which may answer however it likes.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// A request as it came.
pub struct Request {
    /// Path and query.
    pub path: String,
    /// `name: value`, names in small letters.
    pub headers: Vec<String>,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.headers.iter().find_map(|h| h.strip_prefix(&prefix))
    }
}

/// A server on the loopback that lives as long as the test.
pub struct Target {
    /// `127.0.0.1:port`
    pub address: String,
}

impl Target {
    /// Answers each request by `answer`, on a thread of its own; then the connection ends.
    pub fn start(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.clone();
                std::thread::spawn(move || serve(stream, &*answer));
            }
        });
        Self { address }
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Request, &mut TcpStream)) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket can be cloned"));
    let mut first = String::new();
    if reader.read_line(&mut first).is_err() {
        return;
    }
    let mut headers = Vec::new();
    for line in reader.lines().map_while(Result::ok) {
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push(format!("{}: {}", name.to_lowercase(), value.trim()));
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    answer(&Request { path, headers }, &mut stream);
}

/// Writes a whole answer; the client may have gone.
pub fn respond(stream: &mut TcpStream, status: &str, content_type: &str, body: &str) {
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
}

/// Writes an exposition.
pub fn expose(stream: &mut TcpStream, body: &str) {
    respond(stream, "200 OK", "text/plain; version=0.0.4", body);
}
