//! Response bodies that a thread produces while the client reads them, connected by a bounded
//! channel.
//!
//! Invariant: the producer waits while the channel is full, and gets an error after the client
//! disconnected or the query was ended.

use crate::admission::run::{ENDED, QueryRun};
use axum::body::{Body, Bytes};
use firn_model::budget::Reservation;
use http_body::Frame;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The receiving end of the channel, as a response body. Dropping it informs the producer.
pub(crate) struct ChannelBody {
    pieces: Receiver<io::Result<Bytes>>,
    /// The query whose result the body contains, if any.
    run: Option<Arc<QueryRun>>,
}

impl ChannelBody {
    /// Creates a body and the sender of its pieces, of which at most `waiting_max` may be queued.
    /// Sending an error ends the body and its connection. So does the end of `run`, the query whose
    /// result the body contains.
    pub(crate) fn open(
        waiting_max: usize,
        run: Option<Arc<QueryRun>>,
    ) -> (Body, Sender<io::Result<Bytes>>) {
        let (sender, pieces) = channel(waiting_max);
        (Body::new(Self { pieces, run }), sender)
    }

    /// Creates a body from complete bytes. Their memory stays reserved until they were sent.
    pub(crate) fn whole(bytes: Bytes, memory: Reservation) -> Body {
        Body::new(WholeBody {
            bytes: Some(bytes),
            _memory: memory,
        })
    }
}

impl http_body::Body for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let piece = this.pieces.poll_recv(cx);
        if piece.is_ready() && this.run.as_ref().is_some_and(|run| run.is_ended()) {
            return Poll::Ready(Some(Err(io::Error::other(ENDED))));
        }
        piece.map(|piece| Some(piece?.map(Frame::data)))
    }
}

/// A body with an announced length, sent in one piece.
struct WholeBody {
    bytes: Option<Bytes>,
    _memory: Reservation,
}

impl http_body::Body for WholeBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = self.get_mut().bytes.take();
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}
