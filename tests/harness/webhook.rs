//! An Alertmanager that accepts and records every alert.

use super::server::DEADLINE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;

/// The server and its received requests.
pub struct Webhook {
    /// Address as `127.0.0.1:port`.
    pub address: String,
    requests: Receiver<(String, Value)>,
}

impl Webhook {
    /// Starts a webhook at any free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, requests) = channel();
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                spawn(move || serve(stream, &sender));
            }
        });
        Self { address, requests }
    }

    /// Waits for the next request and returns its request line and its alerts.
    pub fn next(&self) -> (String, Vec<Value>) {
        let (line, body) = self.requests.recv_timeout(DEADLINE).unwrap();
        (line, body.as_array().unwrap().clone())
    }

    /// Waits for the next alert for which `is_wanted` is true.
    pub fn next_alert(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(alert) = self.next().1.into_iter().find(&is_wanted) {
                return alert;
            }
        }
    }
}

/// Answers the only request of a connection.
fn serve(stream: TcpStream, sender: &Sender<(String, Value)>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.split("content-length: ").nth(1)?;
    let mut body = vec![0; length.split("\r\n").next()?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let line = head.lines().next()?.to_owned();
    let body = serde_json::from_slice(&body).unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    reader.get_mut().write_all(answer).ok()?;
    sender.send((line, body)).ok()
}
