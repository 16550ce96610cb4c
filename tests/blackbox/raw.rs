//! Raw HTTP requests: methods, headers and bodies that an ordinary client would not send.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Long enough for a profile of some seconds, and for resolving function names in a build without
/// optimization.
const PATIENCE: Duration = Duration::from_secs(120);

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub method: String,
    pub path: String,
    /// Lines `JsonFieldNameVisitor: value`.
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Ask {
    /// Creates a GET request.
    pub fn get(path: &str) -> Self {
        Self {
            method: "GET".into(),
            path: path.into(),
            ..Self::default()
        }
    }

    /// Sends the request to the server at `address` on a new connection.
    pub fn send(&self, address: &str) -> Reply {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let reply = self.send_over(&mut stream);
        reply.unwrap_or_else(|e| panic!("no answer to {} {}: {e}", self.method, self.path))
    }

    /// Sends the request over `stream` with `Connection: close`.
    pub fn send_over(&self, stream: &mut (impl Read + Write)) -> io::Result<Reply> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let length = format!("Content-Length: {}", self.body.len());
        let always = ["Host: localhost", "Connection: close", &length];
        for line in always.into_iter().chain(self.headers.iter().map(|h| &**h)) {
            head += &format!("{line}\r\n");
        }
        head += "\r\n";
        // A server may respond and close the connection before it has read everything.
        let sent = stream.write_all(head.as_bytes());
        let _ = sent.and_then(|()| stream.write_all(&self.body));
        let mut answer = Vec::new();
        // Such a server may reset the connection after its response, which is complete
        // nevertheless.
        let read = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else {
            let none = format!("{} bytes, {read:?}", answer.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, none));
        };
        let body = answer.split_off(end + 4);
        let head = String::from_utf8_lossy(&answer).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok(Reply {
            status: status.unwrap_or_else(|| panic!("no status: {head}")),
            head,
            body,
        })
    }
}
