//! A session with a ZooKeeper server, which reads nodes and receives events when they change.
//!
//! ```text
//! connect -> request -> reply       one outstanding request at a time
//!                    -> events      may arrive before the reply, and without a request
//! ```
//!
//! Invariant: a failed session cannot be used again; the next session reads everything.
//! [`firn_wire::zookeeper`] encodes and decodes the messages.

use super::super::api::wrong;
use firn_model::error::Error;
use firn_wire::zookeeper::{
    Frames, NO_NODE, Reply, Said, Wanted, granted_ms, greeting, ping, request,
};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

/// Maximum number of events that have arrived but not been read. More end the session.
const EVENTS_MAX: usize = 100_000;

/// An established session with a server, which executes one request at a time.
pub(super) struct Session {
    stream: TcpStream,
    /// Received bytes that have not been decoded yet.
    incoming: Frames,
    events: VecDeque<String>,
    number: i32,
    /// Session timeout granted by the server: it expects a message at least this often.
    patience: Duration,
    /// Time of the last sent message.
    sent: Instant,
}

impl Session {
    /// Begins a session with the server at `address` and requests `patience` as the session
    /// timeout.
    pub(super) async fn begin(address: &str, patience: Duration) -> Result<Self, Error> {
        let begin = async {
            let stream = TcpStream::connect(address).await.map_err(failed)?;
            let mut session = Self {
                stream,
                incoming: Frames::default(),
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
        self.send(greeting(asked_ms)).await?;
        let frame = self.frame().await?;
        match granted_ms(&frame)? {
            Some(ms) => self.patience = Duration::from_millis(ms),
            None => return Err(wrong("the server rejected the session")),
        }
        Ok(())
    }

    /// Returns the data of the node at `path`, or `None` if it does not exist. The next change of
    /// the node is reported as an event.
    pub(super) async fn data(&mut self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        self.ask(Wanted::Data, path, |reply| reply.data()).await
    }

    /// Returns the names of the children of `path`, or `None` if the node does not exist. The next
    /// added or removed child is reported as an event.
    pub(super) async fn children(&mut self, path: &str) -> Result<Option<Vec<String>>, Error> {
        self.ask(Wanted::Children, path, |reply| reply.children())
            .await
    }

    /// Sends a request about `path` that also sets a watch. Returns the part of the reply that
    /// `read` extracts, or `None` if the node does not exist.
    async fn ask<T>(
        &mut self,
        wanted: Wanted,
        path: &str,
        read: impl Fn(&Reply<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.number = self.number.checked_add(1).unwrap_or(1);
        let number = self.number;
        let patience = self.patience;
        let reply = async {
            self.send(request(number, wanted, path)).await?;
            loop {
                let frame = self.frame().await?;
                if let Some(reply) = self.take(&frame)? {
                    let got = reply.number;
                    return match (got == number, reply.error) {
                        (false, _) => Err(wrong(format!("reply {got} to request {number}"))),
                        (true, 0) => read(&reply).map(Some),
                        (true, NO_NODE) => Ok(None),
                        (true, error) => Err(wrong(format!("{path}: error {error}"))),
                    };
                }
            }
        };
        let none = |_| wrong(format!("{path}: no answer in {patience:?}"));
        timeout(patience, reply).await.map_err(none)?
    }

    /// Waits for the next event and returns the path of the changed node. Sends pings meanwhile,
    /// which keep the session alive.
    pub(super) async fn event(&mut self) -> Result<String, Error> {
        let mut heard = Instant::now();
        loop {
            if let Some(path) = self.events.pop_front() {
                return Ok(path);
            }
            let (sign, end) = (self.sent + self.patience / 3, heard + self.patience);
            tokio::select! {
                frame = self.frame() => {
                    heard = Instant::now();
                    let frame = frame?;
                    self.take(&frame)?;
                }
                () = sleep_until(sign) => self.send(ping()).await?,
                () = sleep_until(end) => return Err(wrong("the server is silent")),
            }
        }
    }

    /// Queues an event, or returns a reply. Fails if the server has ended the session.
    fn take<'f>(&mut self, frame: &'f [u8]) -> Result<Option<Reply<'f>>, Error> {
        match Said::read(frame)? {
            Said::Alive => Ok(None),
            Said::Reply(reply) => Ok(Some(reply)),
            Said::State(state) => Err(wrong(format!("the session is in state {state}"))),
            Said::Changed(_) if self.events.len() == EVENTS_MAX => {
                Err(wrong(format!("more than {EVENTS_MAX} events wait")))
            }
            Said::Changed(path) => {
                self.events.push_back(path);
                Ok(None)
            }
        }
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        self.stream.write_all(&bytes).await.map_err(failed)?;
        self.sent = Instant::now();
        Ok(())
    }

    /// Reads the next frame. Cancel-safe: received bytes remain buffered.
    async fn frame(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(frame) = self.incoming.take()? {
                return Ok(frame);
            }
            let read = self.stream.read_buf(self.incoming.space()).await;
            if read.map_err(failed)? == 0 {
                return Err(wrong("the server closed the connection"));
            }
        }
    }
}

fn failed(e: std::io::Error) -> Error {
    wrong(e.to_string())
}
