//! A session with a ZooKeeper server, which reads nodes and receives events when they change.
//!
//! ```text
//! connect -> request -> reply       one outstanding request at a time
//!                    -> events      may arrive before the reply, and without a request
//! ```
//!
//! Invariant: a failed session cannot be used again; the next session reads everything.
//! [`firn_wire::zookeeper`] encodes and decodes the messages.

use crate::api::invalid_response_error;
use firn_model::error::Error;
use firn_wire::zookeeper::{
    NO_NODE, ZookeeperFrameBuffer, ZookeeperMessage, ZookeeperNodePart, ZookeeperReply,
    decode_session_timeout_ms, encode_connect_request, encode_ping, encode_read_request,
};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

/// Maximum number of events that have arrived but not been read. More end the session.
const EVENTS_MAX: usize = 100_000;

/// An established session with a server, which executes one request at a time.
pub(super) struct ZookeeperSession {
    stream: TcpStream,
    /// Received bytes that have not been decoded yet.
    incoming: ZookeeperFrameBuffer,
    events: VecDeque<String>,
    number: i32,
    /// Session timeout granted by the server: it expects a message at least this often.
    patience: Duration,
    /// Time of the last sent message.
    sent: Instant,
}

impl ZookeeperSession {
    /// Begins a session with the server at `address` and requests `patience` as the session
    /// timeout.
    pub(super) async fn open_session(address: &str, patience: Duration) -> Result<Self, Error> {
        let begin = async {
            let stream = TcpStream::connect(address).await.map_err(io_failure)?;
            let mut session = Self {
                stream,
                incoming: ZookeeperFrameBuffer::default(),
                events: VecDeque::new(),
                number: 0,
                patience,
                sent: Instant::now(),
            };
            session.exchange_greeting().await?;
            Ok(session)
        };
        let none = |_| invalid_response_error(format!("{address}: no answer in {patience:?}"));
        timeout(patience, begin).await.map_err(none)?
    }

    async fn exchange_greeting(&mut self) -> Result<(), Error> {
        let asked_ms = i32::try_from(self.patience.as_millis()).unwrap_or(i32::MAX);
        self.send_bytes(encode_connect_request(asked_ms)).await?;
        let frame = self.read_frame().await?;
        match decode_session_timeout_ms(&frame)? {
            Some(ms) => self.patience = Duration::from_millis(ms),
            None => return Err(invalid_response_error("the server rejected the session")),
        }
        Ok(())
    }

    /// Returns the data of the node at `path`, or `None` if it does not exist. The next change of
    /// the node is reported as an event.
    pub(super) async fn read_data(&mut self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        self.send_watch_request(ZookeeperNodePart::Data, path, |reply| reply.decode_data())
            .await
    }

    /// Returns the names of the children of `path`, or `None` if the node does not exist. The next
    /// added or removed child is reported as an event.
    pub(super) async fn list_children(&mut self, path: &str) -> Result<Option<Vec<String>>, Error> {
        self.send_watch_request(ZookeeperNodePart::Children, path, |reply| {
            reply.decode_children()
        })
        .await
    }

    /// Sends a request about `path` that also sets a watch. Returns the part of the reply that
    /// `read` extracts, or `None` if the node does not exist.
    async fn send_watch_request<T>(
        &mut self,
        wanted: ZookeeperNodePart,
        path: &str,
        read: impl Fn(&ZookeeperReply<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.number = self.number.checked_add(1).unwrap_or(1);
        let number = self.number;
        let patience = self.patience;
        let reply = async {
            self.send_bytes(encode_read_request(number, wanted, path))
                .await?;
            loop {
                let frame = self.read_frame().await?;
                if let Some(reply) = self.process_frame(&frame)? {
                    let got = reply.number;
                    return match (got == number, reply.error) {
                        (false, _) => Err(invalid_response_error(format!(
                            "reply {got} to request {number}"
                        ))),
                        (true, 0) => read(&reply).map(Some),
                        (true, NO_NODE) => Ok(None),
                        (true, error) => {
                            Err(invalid_response_error(format!("{path}: error {error}")))
                        }
                    };
                }
            }
        };
        let none = |_| invalid_response_error(format!("{path}: no answer in {patience:?}"));
        timeout(patience, reply).await.map_err(none)?
    }

    /// Waits for the next event and returns the path of the changed node. Sends pings meanwhile,
    /// which keep the session alive.
    pub(super) async fn next_event(&mut self) -> Result<String, Error> {
        let mut heard = Instant::now();
        loop {
            if let Some(path) = self.events.pop_front() {
                return Ok(path);
            }
            let (sign, end) = (self.sent + self.patience / 3, heard + self.patience);
            tokio::select! {
                frame = self.read_frame() => {
                    heard = Instant::now();
                    let frame = frame?;
                    self.process_frame(&frame)?;
                }
                () = sleep_until(sign) => self.send_bytes(encode_ping()).await?,
                () = sleep_until(end) => return Err(invalid_response_error("the server is silent")),
            }
        }
    }

    /// Queues an event, or returns a reply. Fails if the server has ended the session.
    fn process_frame<'f>(&mut self, frame: &'f [u8]) -> Result<Option<ZookeeperReply<'f>>, Error> {
        match ZookeeperMessage::decode(frame)? {
            ZookeeperMessage::Alive => Ok(None),
            ZookeeperMessage::Reply(reply) => Ok(Some(reply)),
            ZookeeperMessage::State(state) => Err(invalid_response_error(format!(
                "the session is in state {state}"
            ))),
            ZookeeperMessage::Changed(_) if self.events.len() == EVENTS_MAX => Err(
                invalid_response_error(format!("more than {EVENTS_MAX} events wait")),
            ),
            ZookeeperMessage::Changed(path) => {
                self.events.push_back(path);
                Ok(None)
            }
        }
    }

    async fn send_bytes(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        self.stream.write_all(&bytes).await.map_err(io_failure)?;
        self.sent = Instant::now();
        Ok(())
    }

    /// Reads the next frame. Cancel-safe: received bytes remain buffered.
    async fn read_frame(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(frame) = self.incoming.take_frame()? {
                return Ok(frame);
            }
            let read = self.stream.read_buf(self.incoming.buffer_mut()).await;
            if read.map_err(io_failure)? == 0 {
                return Err(invalid_response_error("the server closed the connection"));
            }
        }
    }
}

fn io_failure(e: std::io::Error) -> Error {
    invalid_response_error(e.to_string())
}
