//! A body that its watcher follows: each piece of data, its end, and when it is dropped.

use axum::body::{Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Follows a body; it is dropped with the body, after the last byte was sent or the peer left.
pub(crate) trait Watch: Unpin {
    /// The next piece is asked for.
    fn asked(&mut self) {}

    /// A piece of so many bytes passed.
    fn data(&mut self, _bytes: usize) {}

    /// The body was read to its end.
    fn end(&mut self) {}
}

/// The body `inner` as it is, which `watch` follows.
pub(crate) struct WatchedBody<B, W> {
    pub(crate) inner: B,
    pub(crate) watch: W,
}

impl<B: HttpBody<Data = Bytes> + Unpin, W: Watch> HttpBody for WatchedBody<B, W> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        this.watch.asked();
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
