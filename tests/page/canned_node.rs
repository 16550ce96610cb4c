//! A node of a cluster in any state: the files of the page, and a status that the test sets.
//!
//! The server closes each connection after one response.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::spawn;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../ui");

/// The server. It lives as long as the test program.
pub struct CannedNode {
    /// Address as `127.0.0.1:port`.
    pub address: String,
    status: Arc<Mutex<Value>>,
}

impl CannedNode {
    /// Starts a node at any free port, whose response of the status has `data`.
    pub fn start(data: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let status = Arc::new(Mutex::new(data));
        let shown = status.clone();
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let shown = shown.clone();
                spawn(move || answer(stream, &shown));
            }
        });
        Self { address, status }
    }

    /// Sets the `data` of further responses.
    pub fn set_status(&self, data: Value) {
        *self.status.lock().unwrap() = data;
    }
}

/// Answers the only request of a connection. The node is not ready, as during a replay.
fn answer(mut stream: TcpStream, status: &Mutex<Value>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let first = lines.next()?.ok()?;
    while !lines.next()?.ok()?.is_empty() {}
    let path = first.split(' ').nth(1)?.split('?').next()?.to_owned();
    let (code, kind, body) = match path.as_str() {
        "/api/v1/status/cluster" => {
            let data = status.lock().unwrap().clone();
            let body = json!({"status": "success", "data": data}).to_string();
            (200, "application/json", body)
        }
        "/-/ready" => (503, "text/plain", String::new()),
        path => {
            let name = path.rsplit('/').next()?;
            let name = if name.contains('.') {
                name
            } else {
                "index.html"
            };
            let kind = match name.rsplit('.').next()? {
                "js" => "text/javascript",
                "css" => "text/css",
                "svg" => "image/svg+xml",
                _ => "text/html",
            };
            let body = std::fs::read_to_string(Path::new(FILES).join(name)).ok()?;
            (200, kind, body)
        }
    };
    let head = format!(
        "HTTP/1.1 {code} Status\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()
}
