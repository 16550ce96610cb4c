//! A remote-write receiver that answers as a test requires and records accepted requests. It can
//! stop and start again at the same port.

use crate::harness::server::wait_for;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// Reaction to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Mood {
    /// Responds with this status and these header lines.
    Says(u16, String),
    /// Reads the request and never responds.
    Hangs,
    /// Reads the request and closes the connection.
    Cuts,
}

impl Mood {
    /// Returns a reaction with a status and no further headers.
    pub fn status(status: u16) -> Self {
        Self::Says(status, String::new())
    }
}

/// A request that was answered with 2xx.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The request line.
    pub line: String,
    /// Lines `name: value`, with names in lower case.
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

/// Returns whether a receiver accepts a body.
type Judge = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

struct Shared {
    judge: Judge,
    mood: Mutex<Mood>,
    taken: Mutex<Vec<Taken>>,
    requests: Mutex<usize>,
}

/// A running receiver.
pub struct Receiver {
    /// Address as `127.0.0.1:port`.
    pub address: String,
    shared: Arc<Shared>,
    is_dead: Arc<AtomicBool>,
}

impl Receiver {
    /// Starts a receiver at a free port that accepts everything.
    pub fn start() -> Self {
        Self::judging(|_| true)
    }

    /// Starts a receiver that responds with 400 to bodies rejected by `judge`.
    pub fn judging(judge: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            judge: Box::new(judge),
            mood: Mutex::new(Mood::status(204)),
            taken: Mutex::default(),
            requests: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_dead = listen(listener, shared.clone());
        Self {
            address,
            shared,
            is_dead,
        }
    }

    /// Returns the URL that bodies are posted to.
    pub fn url(&self) -> String {
        format!("http://{}/api/v1/write", self.address)
    }

    /// Sets the reaction to the following requests.
    pub fn set(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// Refuses connections, and closes existing ones at their next request.
    pub fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(&self.address);
        wait_for("the port to be closed", || {
            TcpStream::connect(&self.address).is_err()
        });
    }

    /// Listens again at the same port.
    pub fn revive(&mut self) {
        let mut listener = None;
        wait_for("the port to be free", || {
            listener = TcpListener::bind(&self.address).ok();
            listener.is_some()
        });
        self.is_dead = listen(listener.unwrap(), self.shared.clone());
    }

    /// Returns the requests accepted so far.
    pub fn taken(&self) -> Vec<Taken> {
        self.shared.taken.lock().unwrap().clone()
    }

    /// Returns the bodies accepted so far, as text.
    pub fn texts(&self) -> Vec<String> {
        let text = |taken: Taken| String::from_utf8(taken.body).unwrap();
        self.taken().into_iter().map(text).collect()
    }

    /// Returns the number of received requests, accepted or not.
    pub fn requests(&self) -> usize {
        *self.shared.requests.lock().unwrap()
    }

    /// Waits until `count` bodies were accepted.
    pub fn wait(&self, count: usize) {
        wait_for(&format!("{count} bodies at {}", self.address), || {
            self.shared.taken.lock().unwrap().len() >= count
        });
    }
}

fn listen(listener: TcpListener, shared: Arc<Shared>) -> Arc<AtomicBool> {
    let is_dead = Arc::new(AtomicBool::new(false));
    let dead = is_dead.clone();
    spawn(move || {
        for stream in listener.incoming().flatten() {
            if dead.load(Ordering::SeqCst) {
                return;
            }
            let (shared, dead) = (shared.clone(), dead.clone());
            spawn(move || while serve(&stream, &shared, &dead).is_some() {});
        }
    });
    is_dead
}

/// Answers one request. Returns `None` if the connection ends.
fn serve(stream: &TcpStream, shared: &Shared, dead: &AtomicBool) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => headers.push(line.to_owned()),
        }
    }
    let line = headers.remove(0);
    for header in &mut headers {
        let (name, value) = header.split_once(':')?;
        *header = format!("{}: {}", name.to_lowercase(), value.trim());
    }
    let length = headers
        .iter()
        .find_map(|h| h.strip_prefix("content-length: "));
    // A body without a length is empty.
    let mut body = vec![0; length.unwrap_or("0").parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    if dead.load(Ordering::SeqCst) {
        return None;
    }
    *shared.requests.lock().unwrap() += 1;
    let mood = shared.mood.lock().unwrap().clone();
    match mood {
        Mood::Cuts => None,
        Mood::Hangs => {
            // Ends with the client's timeout.
            let _ = reader.read(&mut [0]);
            None
        }
        Mood::Says(status, lines) => {
            let status = if (shared.judge)(&body) { status } else { 400 };
            if (200..300).contains(&status) {
                shared.taken.lock().unwrap().push(Taken {
                    line,
                    headers,
                    body,
                });
            }
            let head = format!("HTTP/1.1 {status} x\r\n{lines}");
            let head = match status {
                204 => head + "\r\n",
                _ => head + "Content-Length: 5\r\n\r\nno-no",
            };
            reader.into_inner().write_all(head.as_bytes()).ok()
        }
    }
}
