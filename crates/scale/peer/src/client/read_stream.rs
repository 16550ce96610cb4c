//! A stream of reads: requests of threads, and the answers in the same order.
//!
//! ```text
//! threads -> queue -> task -> requests -> peer
//! thread  <- its channel <- task <- frames of answers, in the order of the requests
//! ```
//!
//! A thread waits for frames of its answer and checks its cancel flag meanwhile. Invariants: after
//! a failure of the stream every request fails with it; dropping the stream ends the task and, at
//! the peer, the selection.

use super::PeerClient;
use crate::codec::{READ_PATH, RawCodec};
use crate::failure::{PeerFailure, decode_failure};
use crate::frames::AnswerFrameKind;
use crate::frames::requests::{PeerReadRequest, TimedReadRequest};
use bytes::Bytes;
use firn_model::budget::{Budget, Reservation};
use firn_model::cancel::CancelToken;
use firn_model::error::{Error, ErrorKind};
use firn_model::store::SelectRequest;
use firn_model::sync::lock;
use http::uri::PathAndQuery;
use std::collections::VecDeque;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

/// Maximum number of requests of a stream that wait for an answer: more than threads that compute.
const REQUESTS_MAX: usize = 1024;

/// The interval in which a waiting thread checks its cancel flag.
const CANCEL_INTERVAL: Duration = Duration::from_millis(10);

/// The limits of one request.
#[derive(Clone, Copy)]
pub(super) struct ReadLimits<'a> {
    /// The flag that ends the wait.
    pub(super) cancel: &'a CancelToken,
    /// The budget of received messages.
    pub(super) budget: &'a Budget,
    /// Maximum duration of the request.
    pub(super) timeout: Duration,
}

impl<'a> ReadLimits<'a> {
    pub(super) fn of_select(request: &SelectRequest<'a>, scope: &super::PeerReadScope) -> Self {
        Self {
            cancel: request.cancel,
            budget: request.budget,
            timeout: scope.timeout,
        }
    }
}

/// A request on its way, and the channel of the thread that waits for its answer.
struct ReadOperation {
    request: Bytes,
    answer: std::sync::mpsc::Sender<Bytes>,
}

/// An open stream of reads.
pub(super) struct ReadStream {
    client: PeerClient,
    operations: mpsc::Sender<ReadOperation>,
    failure: Arc<Mutex<Option<PeerFailure>>>,
    task: AbortHandle,
}

impl Drop for ReadStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ReadStream {
    /// Opens a stream. Errors of the connection are those of the first request.
    pub(super) fn open(client: &PeerClient) -> Self {
        let (operations, queue) = mpsc::channel(REQUESTS_MAX);
        let failure = Arc::new(Mutex::new(None));
        let task = ReadStreamTask {
            client: client.clone(),
            queue,
            waiting: VecDeque::new(),
            failure: failure.clone(),
        };
        let task = client.0.runtime.spawn(task.run()).abort_handle();
        Self {
            client: client.clone(),
            operations,
            failure,
            task,
        }
    }

    /// Sends a request. Its answer is read from the result.
    pub(super) fn request<'a>(
        &'a self,
        request: PeerReadRequest,
        limits: ReadLimits<'a>,
    ) -> Result<AnswerReader<'a>, PeerFailure> {
        let budget = limits.budget;
        let free_bytes = budget.limit_bytes().saturating_sub(budget.used_bytes());
        let timed = TimedReadRequest {
            timeout_ms: limits.timeout.as_millis() as u64,
            budget_bytes: free_bytes as u64,
            request,
        };
        let (answer, frames) = std::sync::mpsc::channel();
        let operation = ReadOperation {
            request: timed.encode().into(),
            answer,
        };
        match self.operations.try_send(operation) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(self.failure()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Err(PeerFailure::Unavailable(format!(
                    "too many reads of a selection at once: limit {REQUESTS_MAX}"
                )));
            }
        }
        Ok(AnswerReader {
            stream: self,
            frames,
            limits,
            deadline: Instant::now() + limits.timeout,
        })
    }

    fn failure(&self) -> PeerFailure {
        lock(&self.failure).clone().unwrap_or_else(|| {
            let address = self.client.address();
            PeerFailure::Unavailable(format!("peer {address}: the runtime of the node has ended"))
        })
    }
}

/// A message of an answer, whose memory is reserved.
pub(super) struct AnswerMessage {
    pub(super) bytes: Bytes,
    _memory: Reservation,
}

/// Reads the answer of a request, message by message.
pub(super) struct AnswerReader<'a> {
    stream: &'a ReadStream,
    frames: std::sync::mpsc::Receiver<Bytes>,
    limits: ReadLimits<'a>,
    deadline: Instant,
}

impl AnswerReader<'_> {
    /// Returns the next message, or `None` if the answer is complete. Waits for it.
    pub(super) fn next_message(&mut self) -> Result<Option<AnswerMessage>, PeerFailure> {
        let mut memory = self.limits.budget.create_reservation();
        let mut parts: Vec<u8> = Vec::new();
        loop {
            let frame = self.wait()?;
            let (kind, payload) = AnswerFrameKind::split(&frame)?;
            match kind {
                AnswerFrameKind::End if parts.is_empty() => return Ok(None),
                AnswerFrameKind::End => return Err(self.defect("ends within a message")),
                AnswerFrameKind::Failure => return Err(decode_failure(payload)?),
                AnswerFrameKind::Part | AnswerFrameKind::Message => {}
            }
            memory.grow(payload.len())?;
            if kind == AnswerFrameKind::Part {
                parts.extend_from_slice(payload);
                continue;
            }
            let bytes = if parts.is_empty() {
                frame.slice_ref(payload)
            } else {
                parts.extend_from_slice(payload);
                parts.into()
            };
            let _memory = memory;
            return Ok(Some(AnswerMessage { bytes, _memory }));
        }
    }

    /// Returns the next message of an answer that must have one.
    pub(super) fn expect_message(&mut self) -> Result<AnswerMessage, PeerFailure> {
        let message = self.next_message()?;
        message.ok_or_else(|| self.defect("ends too early"))
    }

    fn defect(&self, text: &str) -> PeerFailure {
        let address = self.stream.client.address();
        Error::new(
            ErrorKind::Internal,
            format!("answer of peer {address} {text}"),
        )
        .into()
    }

    fn wait(&self) -> Result<Bytes, PeerFailure> {
        loop {
            self.limits.cancel.check()?;
            if self.stream.client.is_disconnected() {
                return Err(self.stream.client.disconnected_failure());
            }
            match self.frames.recv_timeout(CANCEL_INTERVAL) {
                Ok(frame) => return Ok(frame),
                Err(RecvTimeoutError::Disconnected) => return Err(self.stream.failure()),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= self.deadline => {
                    return Err(self.stream.client.timeout_failure(self.limits.timeout));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// The task of a stream.
struct ReadStreamTask {
    client: PeerClient,
    queue: mpsc::Receiver<ReadOperation>,
    /// The channels of threads whose answers are incomplete, in the order of their requests.
    waiting: VecDeque<std::sync::mpsc::Sender<Bytes>>,
    failure: Arc<Mutex<Option<PeerFailure>>>,
}

impl ReadStreamTask {
    async fn run(mut self) {
        let Err(status) = self.exchange().await;
        // Threads find the reason after their channels are closed.
        *lock(&self.failure) = Some(self.client.status_failure(&status));
    }

    /// Passes requests and answers on until the stream fails.
    async fn exchange(&mut self) -> Result<std::convert::Infallible, Status> {
        let (requests, outgoing) = mpsc::channel(REQUESTS_MAX);
        let mut answers = self.open(outgoing).await?;
        loop {
            tokio::select! {
                operation = self.queue.recv() => {
                    let operation = operation.ok_or_else(|| Status::cancelled("closed"))?;
                    let sent = requests.try_send(operation.request);
                    sent.map_err(|_| Status::unavailable("the stream is full or closed"))?;
                    self.waiting.push_back(operation.answer);
                }
                frame = answers.message() => {
                    let frame = frame?;
                    let frame = frame.ok_or_else(|| Status::unavailable("the stream has ended"))?;
                    self.pass_on(frame);
                }
            }
        }
    }

    async fn open(&self, outgoing: mpsc::Receiver<Bytes>) -> Result<Streaming<Bytes>, Status> {
        let mut grpc = self.client.grpc();
        let ready = grpc.ready().await;
        ready.map_err(|e| Status::from_error(Box::new(e)))?;
        let mut request = Request::new(ReceiverStream::new(outgoing));
        self.client.0.credentials.sign(request.metadata_mut());
        let path = PathAndQuery::from_static(READ_PATH);
        Ok(grpc.streaming(request, path, RawCodec).await?.into_inner())
    }

    fn pass_on(&mut self, frame: Bytes) {
        let kind = AnswerFrameKind::split(&frame).map(|(kind, _)| kind);
        let is_last = matches!(kind, Ok(AnswerFrameKind::End | AnswerFrameKind::Failure));
        if let Some(thread) = self.waiting.front() {
            // A thread that was canceled does not wait any more.
            let _ = thread.send(frame);
        }
        if is_last {
            self.waiting.pop_front();
        }
    }
}
