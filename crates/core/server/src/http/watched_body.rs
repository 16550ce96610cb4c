//! A body with an observer of its pieces, its end and its drop.

use axum::body::{Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Observer of a body. It is dropped with the body, after the last byte was sent or the peer
/// disconnected.
pub(crate) trait BodyObserver: Unpin {
    /// Called when the next piece is requested.
    fn on_piece_requested(&mut self) {}

    /// Called when a piece with this number of bytes has passed.
    fn data(&mut self, _bytes: usize) {}

    /// Called when the body was read completely.
    fn end(&mut self) {}
}

/// The body `inner`, unchanged, with the observer `watch`. Used for requests and responses.
pub(crate) struct ObservedBody<B, W> {
    pub(crate) inner: B,
    pub(crate) watch: W,
}

impl<B: HttpBody<Data = Bytes> + Unpin, W: BodyObserver> HttpBody for ObservedBody<B, W> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        this.watch.on_piece_requested();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.watch.data(data.len());
                }
            }
            Poll::Ready(None) => this.watch.end(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
