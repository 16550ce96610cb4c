//! A session with a server of ZooKeeper: reading nodes, and hearing when they change.
//!
//! ```text
//! connect -> request -> reply       one request is under way at a time
//!                    -> events      which may come before it, and while nothing is asked
//! ```
//!
//! Invariant: a frame is read only up to a bound, and no length in it is trusted. A session that
//! fails is over: the next one reads everything anew.
//!
//! Source: `zookeeper.jute` of ZooKeeper, whose integers are big-endian.

use super::super::api::wrong;
use firn_model::error::Error;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

/// Bytes of a frame at most: what the servers allow for a node, several times over, so that lists
/// of many children fit.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// Events that wait while nothing hears them; a session with more of them is over.
const EVENTS_MAX: usize = 100_000;

/// Kinds of requests.
const GET_DATA: i32 = 4;
const GET_CHILDREN: i32 = 8;
const PING: i32 = 11;

/// Numbers that stand for what is no reply to a request.
const OF_EVENT: i32 = -1;
const OF_PING: i32 = -2;

/// The error that says that a node does not exist.
const NO_NODE: i32 = -101;

/// An event that is about the session and no node.
const ABOUT_SESSION: i32 = -1;

/// See the module.
pub(super) struct Session {
    stream: TcpStream,
    /// What came and was not read.
    incoming: Vec<u8>,
    events: VecDeque<String>,
    number: i32,
    /// How long the server waits for a sign of life, as it said.
    patience: Duration,
    /// When it got one last.
    sent: Instant,
}

impl Session {
    /// Begins a session with the server at `address`, which is to wait for as long as `patience`.
    pub(super) async fn begin(address: &str, patience: Duration) -> Result<Self, Error> {
        let begin = async {
            let stream = TcpStream::connect(address).await.map_err(failed)?;
            let mut session = Self {
                stream,
                incoming: Vec::new(),
                events: VecDeque::new(),
                number: 0,
                patience,
                sent: Instant::now(),
            };
            session.greet().await?;
            Ok(session)
        };
        let none = |_| wrong(format!("{address}: no answer in {patience:?}"));
        timeout(patience, begin).await.map_err(none)?
    }

    async fn greet(&mut self) -> Result<(), Error> {
        let asked_ms = i32::try_from(self.patience.as_millis()).unwrap_or(i32::MAX);
        let mut out = Vec::new();
        put_int(&mut out, 0);
        out.extend(0i64.to_be_bytes());
        put_int(&mut out, asked_ms);
        out.extend(0i64.to_be_bytes());
        put_bytes(&mut out, &[0; 16]);
        self.send(out).await?;
        let frame = self.frame().await?;
        let mut fields = Fields(&frame);
        let (_version, granted_ms) = (fields.int()?, fields.int()?);
        match u64::try_from(granted_ms) {
            Ok(ms) if ms > 0 => self.patience = Duration::from_millis(ms),
            _ => return Err(wrong("the server takes no session")),
        }
        Ok(())
    }

    /// What the node at `path` holds; `None` if there is no such node. Its next change is an event.
    pub(super) async fn data(&mut self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let Some(reply) = self.ask(GET_DATA, path).await? else {
            return Ok(None);
        };
        Ok(Some(Fields(&reply).bytes()?.to_vec()))
    }

    /// The names of the nodes below `path`; `None` if there is no such node. When one comes or goes
    /// next is an event.
    pub(super) async fn children(&mut self, path: &str) -> Result<Option<Vec<String>>, Error> {
        let Some(reply) = self.ask(GET_CHILDREN, path).await? else {
            return Ok(None);
        };
        let mut fields = Fields(&reply);
        let count = fields.int()?.max(0);
        let names = (0..count).map(|_| Ok(text(fields.bytes()?)));
        names.collect::<Result<_, Error>>().map(Some)
    }

    /// Asks about `path`, and to be told of its next change; what the reply holds, or `None` where
    /// there is no node.
    async fn ask(&mut self, kind: i32, path: &str) -> Result<Option<Vec<u8>>, Error> {
        self.number = self.number.checked_add(1).unwrap_or(1);
        let number = self.number;
        let mut out = Vec::new();
        put_int(&mut out, number);
        put_int(&mut out, kind);
        put_bytes(&mut out, path.as_bytes());
        out.push(1);
        let patience = self.patience;
        let reply = async {
            self.send(out).await?;
            loop {
                let frame = self.frame().await?;
                if let Some(reply) = self.take(&frame)? {
                    let got = reply.number;
                    return match (got == number, reply.error) {
                        (false, _) => Err(wrong(format!("reply {got} to request {number}"))),
                        (true, 0) => Ok(Some(reply.body.to_vec())),
                        (true, NO_NODE) => Ok(None),
                        (true, error) => Err(wrong(format!("{path}: error {error}"))),
                    };
                }
            }
        };
        let none = |_| wrong(format!("{path}: no answer in {patience:?}"));
        timeout(patience, reply).await.map_err(none)?
    }

    /// The path of the next node that changed. Waits for it, and keeps the session alive.
    pub(super) async fn event(&mut self) -> Result<String, Error> {
        let mut heard = Instant::now();
        loop {
            if let Some(path) = self.events.pop_front() {
                return Ok(path);
            }
            let (ping, end) = (self.sent + self.patience / 3, heard + self.patience);
            tokio::select! {
                frame = self.frame() => {
                    heard = Instant::now();
                    let frame = frame?;
                    self.take(&frame)?;
                }
                () = sleep_until(ping) => {
                    let mut out = Vec::new();
                    put_int(&mut out, OF_PING);
                    put_int(&mut out, PING);
                    self.send(out).await?;
                }
                () = sleep_until(end) => return Err(wrong("the server is silent")),
            }
        }
    }

    /// Keeps an event; a reply is given back.
    fn take<'f>(&mut self, frame: &'f [u8]) -> Result<Option<Reply<'f>>, Error> {
        let mut fields = Fields(frame);
        let number = fields.int()?;
        let (_zxid, error) = (fields.long()?, fields.int()?);
        match number {
            OF_PING => Ok(None),
            OF_EVENT => {
                let (kind, state) = (fields.int()?, fields.int()?);
                if kind == ABOUT_SESSION {
                    return Err(wrong(format!("the session is in state {state}")));
                }
                if self.events.len() == EVENTS_MAX {
                    return Err(wrong(format!("more than {EVENTS_MAX} events wait")));
                }
                self.events.push_back(text(fields.bytes()?));
                Ok(None)
            }
            number => Ok(Some(Reply {
                number,
                error,
                body: fields.0,
            })),
        }
    }

    async fn send(&mut self, body: Vec<u8>) -> Result<(), Error> {
        let mut out = Vec::with_capacity(4 + body.len());
        put_bytes(&mut out, &body);
        self.stream.write_all(&out).await.map_err(failed)?;
        self.sent = Instant::now();
        Ok(())
    }

    /// The next frame. May be dropped at any point: what came is kept.
    async fn frame(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(length) = self.incoming.first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > FRAME_BYTES_MAX {
                    return Err(wrong(format!(
                        "frame is too long: {length} bytes, limit {FRAME_BYTES_MAX}"
                    )));
                }
                if self.incoming.len() >= 4 + length {
                    let rest = self.incoming.split_off(4 + length);
                    let frame = std::mem::replace(&mut self.incoming, rest);
                    return Ok(frame[4..].to_vec());
                }
            }
            let read = self.stream.read_buf(&mut self.incoming).await;
            if read.map_err(failed)? == 0 {
                return Err(wrong("the server closed the connection"));
            }
        }
    }
}

fn failed(e: std::io::Error) -> Error {
    wrong(e.to_string())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn put_int(out: &mut Vec<u8>, number: i32) {
    out.extend(number.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // What is sent here is a path or less.
    put_int(out, i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    out.extend_from_slice(bytes);
}

/// A reply to a request.
struct Reply<'f> {
    number: i32,
    error: i32,
    body: &'f [u8],
}

/// The fields of a frame that are not read yet.
struct Fields<'f>(&'f [u8]);

impl<'f> Fields<'f> {
    fn take(&mut self, bytes: usize) -> Result<&'f [u8], Error> {
        let (field, rest) = self
            .0
            .split_at_checked(bytes)
            .ok_or_else(|| wrong("frame ends within a field"))?;
        self.0 = rest;
        Ok(field)
    }

    fn int(&mut self) -> Result<i32, Error> {
        let field = self.take(4)?;
        Ok(field
            .iter()
            .fold(0u32, |all, byte| all << 8 | u32::from(*byte)) as i32)
    }

    fn long(&mut self) -> Result<i64, Error> {
        let (high, low) = (self.int()?, self.int()?);
        Ok(i64::from(high) << 32 | i64::from(low as u32))
    }

    /// A field with its length before it; -1 is none.
    fn bytes(&mut self) -> Result<&'f [u8], Error> {
        let length = usize::try_from(self.int()?).unwrap_or(0);
        self.take(length)
    }
}
