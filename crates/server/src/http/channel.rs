//! Bodies that a thread makes while the client takes them: a channel with few places.
//!
//! Invariant: who makes the body waits while the places are taken, and is told when the client is
//! gone.

use axum::body::{Body, Bytes};
use firn_model::budget::Reservation;
use http_body::Frame;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The end of the channel at which the client is.
pub(crate) struct ChannelBody {
    pieces: Receiver<io::Result<Bytes>>,
}

impl ChannelBody {
    /// A body, and where its pieces are sent, of which so many may wait. An error ends it, and the
    /// connection with it.
    pub(crate) fn open(waiting_max: usize) -> (Body, Sender<io::Result<Bytes>>) {
        let (sender, pieces) = channel(waiting_max);
        (Body::new(Self { pieces }), sender)
    }

    /// A body that is there, with the memory that it takes until it was sent.
    pub(crate) fn whole(bytes: Bytes, memory: Reservation) -> Body {
        Body::new(Whole {
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
        let piece = self.get_mut().pieces.poll_recv(cx);
        piece.map(|piece| Some(piece?.map(Frame::data)))
    }
}

/// Bytes with a length, in one piece.
struct Whole {
    bytes: Option<Bytes>,
    _memory: Reservation,
}

impl http_body::Body for Whole {
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
