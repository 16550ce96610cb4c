//! A socket that disconnects clients which send their requests too slowly or do not read the
//! response.
//!
//! The deadlines depend on the connection's [`ConnectionPhase`]. A request whose body was not read
//! completely is the last one of its connection: the following bytes may belong to that body and
//! must not be interpreted as a request line.
//!
//! [`super::body`] limits the time of a body, and hyper the idle time between requests. While a
//! request is processed, the client may be silent for any time.
//!
//! The underlying stream may be of any type. A TLS stream may perform its handshake in the first
//! read: the deadline of the first head starts with the connection.

use super::phase::ConnectionPhase;
use super::request_head::{FilteredHeadBytes, RequestHead, RequestHeadAttachment};
use crate::admission::limits::ServerLimits;
use firn_model::budget::Budget;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Maximum time and size of input that is read from a refused client: the time is Go's, and the
/// size twice the longest accepted body.
const LINGER_MAX: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 64 << 20;

/// Size of each such read, and the number of reads before other tasks may run.
const LINGER_READ_BYTES: usize = 16 << 10;
const LINGER_READS: usize = 16;

/// A stream `S` with deadlines and preprocessing of request heads. hyper reads from it and writes
/// to it.
#[derive(Debug)]
pub(crate) struct GuardedSocket<S> {
    inner: S,
    phase: ConnectionPhase,
    head: RequestHead,
    /// Memory budget of request heads.
    heads: Budget,
    /// Bytes of a rewritten head that did not fit into the reader's buffer.
    carry: Vec<u8>,
    /// True if all further input is ignored.
    is_cut: bool,
    is_shut: bool,
    /// Number of bytes that were read and discarded since the shutdown.
    lingered: usize,
    read_timer: SocketDeadline,
    write_timer: SocketDeadline,
    header_read_max: Duration,
    response_stall_max: Duration,
}

/// A deadline that is active while the socket waits for the client. Allocates only while it is
/// active.
#[derive(Debug, Default)]
struct SocketDeadline(Option<Pin<Box<Sleep>>>);

impl SocketDeadline {
    fn clear(&mut self) {
        self.0 = None;
    }

    /// Returns ready when `after` has elapsed since the first call after [`SocketDeadline::clear`].
    fn poll(&mut self, cx: &mut Context<'_>, after: Duration) -> Poll<io::Error> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep(after)));
        timer
            .as_mut()
            .poll(cx)
            .map(|()| io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> GuardedSocket<S> {
    /// Creates the socket of a new connection, whose first request is expected immediately.
    pub(crate) fn new(
        inner: S,
        phase: ConnectionPhase,
        limits: &ServerLimits,
        heads: Budget,
    ) -> TokioIo<Self> {
        TokioIo::new(Self {
            inner,
            phase,
            head: RequestHead::default(),
            heads,
            carry: Vec::new(),
            is_cut: false,
            is_shut: false,
            lingered: 0,
            read_timer: SocketDeadline::default(),
            write_timer: SocketDeadline::default(),
            header_read_max: limits.header_read_max,
            response_stall_max: limits.response_stall_max,
        })
    }

    /// Enforces the deadline of a request head, which starts with its first byte.
    fn watch_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.phase.is_head() {
            return self.read_timer.poll(cx, self.header_read_max);
        }
        self.read_timer.clear();
        Poll::Pending
    }

    /// Processes received bytes, which are in `buf` from `start` on. May replace them.
    fn received(&mut self, buf: &mut ReadBuf<'_>, start: usize) {
        if buf.filled().len() == start {
            return;
        }
        // The first byte of a request ends the idle period.
        if self.phase.begin_head() {
            self.head.restart();
        }
        if !self.phase.is_head() {
            return;
        }
        let (received, failure) = self.head.receive(&buf.filled()[start..], &self.heads);
        let instead = match received {
            FilteredHeadBytes::AsTheyAre => return,
            FilteredHeadBytes::Instead(bytes) => bytes,
            FilteredHeadBytes::Cut(bytes) => {
                self.is_cut = true;
                bytes
            }
        };
        let beside = self.head.take_beside();
        if let Some(beside) = failure.map(RequestHeadAttachment::Refusal).or(beside) {
            self.phase.put_beside(beside);
        }
        buf.set_filled(start);
        let (fitting, rest) = instead.split_at(instead.len().min(buf.remaining()));
        buf.put_slice(fitting);
        self.carry = rest.to_vec();
    }

    /// Reads and discards the remaining input of a refused client. Closing a socket with unread
    /// input resets the connection, so that the client would not receive the response.
    fn drain_input(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; LINGER_READ_BYTES];
        for _ in 0..LINGER_READS {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    self.lingered += buf.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.read_timer.poll(cx, LINGER_MAX).map(drop),
            }
        }
        if self.lingered > LINGER_BYTES_MAX {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        self.read_timer.poll(cx, LINGER_MAX).map(drop)
    }

    /// Enforces the deadline of a write, which is active while the client does not read.
    fn watch_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_timer.clear();
            return written;
        }
        self.write_timer.poll(cx, self.response_stall_max).map(Err)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for GuardedSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.carry.is_empty() {
            let fitting = this.carry.len().min(buf.remaining());
            buf.put_slice(&this.carry[..fitting]);
            this.carry.drain(..fitting);
            return Poll::Ready(Ok(()));
        }
        let start = buf.filled().len();
        while !this.is_cut {
            let Poll::Ready(outcome) = Pin::new(&mut this.inner).poll_read(cx, buf) else {
                return this.watch_head(cx).map(Err);
            };
            let has_ended = buf.filled().len() == start;
            this.received(buf, start);
            // An empty read means end of input to the caller, so continue if all bytes were kept
            // separately.
            if outcome.is_err() || has_ended || buf.filled().len() > start {
                return Poll::Ready(outcome);
            }
        }
        // An end of input would be interpreted as a disconnect before the response.
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.watch_write(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.watch_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            this.is_shut = true;
            this.read_timer.clear();
        }
        if this.phase.is_last() {
            this.drain_input(cx).map(Ok)
        } else {
            Poll::Ready(Ok(()))
        }
    }
}
