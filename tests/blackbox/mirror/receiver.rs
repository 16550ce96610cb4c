//! A receiver of remote write that answers as a test says and remembers what it took. It can die and
//! come back at the same port.

use crate::harness::server::wait_for;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// What it does with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Mood {
    /// Answers with this status and these header lines.
    Says(u16, String),
    /// Reads and never answers.
    Hangs,
    /// Reads and cuts the connection.
    Cuts,
}

impl Mood {
    /// A status without further headers.
    pub fn status(status: u16) -> Self {
        Self::Says(status, String::new())
    }
}

/// A request that was answered with 2xx.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The first line.
    pub line: String,
    /// `name: value`, names in small letters.
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

/// Says whether a receiver takes a body.
type Judge = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

struct Shared {
    judge: Judge,
    mood: Mutex<Mood>,
    taken: Mutex<Vec<Taken>>,
    requests: Mutex<usize>,
}

/// The receiver.
pub struct Receiver {
    /// `127.0.0.1:port`
    pub address: String,
    shared: Arc<Shared>,
    is_dead: Arc<AtomicBool>,
}

impl Receiver {
    /// Starts one at any free port that takes everything.
    pub fn start() -> Self {
        Self::judging(|_| true)
    }

    /// Starts one that answers 400 to bodies that `judge` does not take.
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

    /// The URL that bodies are posted to.
    pub fn url(&self) -> String {
        format!("http://{}/api/v1/write", self.address)
    }

    /// From the next request on.
    pub fn set(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// Refuses connections and closes those that there are with their next request.
    pub fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        // Wakes the one that accepts.
        let _ = TcpStream::connect(&self.address);
        wait_for("the port to be closed", || {
            TcpStream::connect(&self.address).is_err()
        });
    }

    /// Comes back at the same port.
    pub fn revive(&mut self) {
        let mut listener = None;
        wait_for("the port to be free", || {
            listener = TcpListener::bind(&self.address).ok();
            listener.is_some()
        });
        self.is_dead = listen(listener.unwrap(), self.shared.clone());
    }

    /// What it took so far.
    pub fn taken(&self) -> Vec<Taken> {
        self.shared.taken.lock().unwrap().clone()
    }

    /// The bodies that it took so far, as text.
    pub fn texts(&self) -> Vec<String> {
        let text = |taken: Taken| String::from_utf8(taken.body).unwrap();
        self.taken().into_iter().map(text).collect()
    }

    /// Requests that came, taken or not.
    pub fn requests(&self) -> usize {
        *self.shared.requests.lock().unwrap()
    }

    /// Waits until it took so many bodies.
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

/// Answers one request; none if the connection ends.
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
            // Ends with the client's patience.
            let _ = reader.read(&mut [0]);
            None
        }
        Mood::Says(status, lines) => {
            let status = match (shared.judge)(&body) {
                true => status,
                false => 400,
            };
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
