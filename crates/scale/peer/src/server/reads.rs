//! Streams of reads: receives requests, runs them on threads, and sends the frames of answers.
//!
//! ```text
//! request -> place among the reads -> thread: session -> messages -> frames -> stream
//!                client gone or time over: cancel flag of the session --^
//! ```
//!
//! Invariants: requests of a stream run one after another; a session ends with its stream; a
//! thread that waits for a slow client gives up at the deadline of its request.

use super::read_session::ReadSession;
use super::{PeerServerState, wait_for_stop};
use crate::failure::{PeerFailure, encode_failure};
use crate::frames::requests::TimedReadRequest;
use crate::frames::{AnswerFrameKind, PART_BYTES};
use bytes::Bytes;
use firn_model::cancel::{CancelReason, CancelToken};
use firn_model::error::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::{Status, Streaming};

/// Maximum duration of a request, regardless of the client.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The frames of a stream on their way to the client.
type FrameSender = Sender<Result<Bytes, Status>>;

/// Answers the requests of one stream until the client closes it or the server stops.
pub(super) async fn serve_reads(
    state: Arc<PeerServerState>,
    mut requests: Streaming<Bytes>,
    frames: FrameSender,
) {
    let mut session = ReadSession::new(state.service.clone(), state.budget.clone());
    let mut is_stopping = state.is_stopping.clone();
    loop {
        let received = tokio::select! {
            received = requests.message() => received,
            () = frames.closed() => return,
            () = wait_for_stop(&mut is_stopping) => {
                let _ = frames.send(Err(Status::unavailable("the node shuts down"))).await;
                return;
            }
        };
        let Ok(Some(request)) = received else {
            return;
        };
        session = match answer_read(&state, session, &request, &frames).await {
            Ok(session) => session,
            Err(status) => {
                let _ = frames.send(Err(status)).await;
                return;
            }
        };
    }
}

/// Answers one request. Returns the session for the next one.
async fn answer_read(
    state: &PeerServerState,
    mut session: ReadSession,
    request: &[u8],
    frames: &FrameSender,
) -> Result<ReadSession, Status> {
    let timed = TimedReadRequest::decode(request);
    let timed = timed.map_err(|e| Status::failed_precondition(e.to_string()))?;
    let timeout = Duration::from_millis(timed.timeout_ms).min(TIMEOUT_MAX);
    let deadline = Instant::now() + timeout;
    let mut answer = AnswerWriter {
        frames: frames.clone(),
        deadline,
        runtime: Handle::current(),
    };
    let place = tokio::select! {
        place = tokio::time::timeout_at(deadline, state.reads.clone().acquire_owned()) => place,
        () = frames.closed() => return Err(Status::cancelled("the client has left")),
    };
    let Ok(Ok(place)) = place else {
        let text = format!("no read of the peer could begin within {timeout:?}");
        let failure = PeerFailure::Unavailable(text);
        let _ = frames.send(Ok(failure_frame(&failure))).await;
        return Ok(session);
    };
    let cancel = session.cancel().clone();
    let task = tokio::task::spawn_blocking(move || {
        let answered = session.answer(&timed, &mut answer);
        answer.end(answered);
        drop(place);
        session
    });
    watch_read(task, &cancel, frames, deadline).await
}

/// Waits for the thread of a request. Cancels it if the client closes the stream or at the
/// deadline.
async fn watch_read(
    mut task: JoinHandle<ReadSession>,
    cancel: &CancelToken,
    frames: &FrameSender,
    deadline: Instant,
) -> Result<ReadSession, Status> {
    let finished = tokio::select! {
        finished = &mut task => finished,
        () = frames.closed() => {
            cancel.cancel(CancelReason::Canceled);
            task.await
        }
        () = tokio::time::sleep_until(deadline) => {
            cancel.cancel(CancelReason::Timeout);
            task.await
        }
    };
    finished.map_err(|_| Status::internal("the read panicked"))
}

fn failure_frame(failure: &PeerFailure) -> Bytes {
    let mut bytes = Vec::new();
    encode_failure(failure, &mut bytes);
    AnswerFrameKind::Failure.frame(&bytes).into()
}

/// Sends the messages of an answer from a thread that may wait.
pub(super) struct AnswerWriter {
    frames: FrameSender,
    deadline: Instant,
    runtime: Handle,
}

impl AnswerWriter {
    /// Sends a message in frames of at most [`PART_BYTES`]. Waits for the network. Fails if the
    /// client has closed the stream, or at the deadline.
    pub(super) fn message(&mut self, message: &[u8]) -> Result<(), PeerFailure> {
        let mut rest = message;
        while rest.len() > PART_BYTES {
            let (part, behind) = rest.split_at(PART_BYTES);
            self.send(AnswerFrameKind::Part.frame(part).into())?;
            rest = behind;
        }
        self.send(AnswerFrameKind::Message.frame(rest).into())
    }

    fn end(&mut self, answered: Result<(), PeerFailure>) {
        let frame = match answered {
            Ok(()) => AnswerFrameKind::End.frame(&[]).into(),
            Err(failure) => failure_frame(&failure),
        };
        // The client does not wait any more if it cannot be sent.
        let _ = self.send(frame);
    }

    fn send(&self, frame: Bytes) -> Result<(), PeerFailure> {
        let sending = tokio::time::timeout_at(self.deadline, self.frames.send(Ok(frame)));
        match self.runtime.block_on(sending) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Error::new(ErrorKind::Canceled, "the client has left").into()),
            Err(_) => Err(Error::new(ErrorKind::Timeout, "the client reads too slowly").into()),
        }
    }
}
