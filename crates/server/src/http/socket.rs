//! A socket that gives up on a client that is slow to say what it wants or does not read what it
//! gets.
//!
//! The deadlines follow the connection's [`Phase`]. A request whose body was not read to its end is
//! the last one of its connection: what follows could be the rest of that body, and must not be
//! taken for a request line.
//!
//! [`super::body`] keeps the time of a body, hyper the pause between requests; here a request under
//! way may be silent for as long as the server works on it.
//!
//! The stream below may be anything that carries bytes. One that has to agree with its client
//! before the first byte, as TLS does, may do so in its first read: the deadline of the first head
//! runs from the start of the connection.

use super::phase::Phase;
use super::request_head::{Beside, Received, RequestHead};
use crate::admission::limits::Limits;
use firn_model::budget::Budget;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long what a refused client still sends is read, and how much of it: as long as in Go, and
/// twice the longest body that is taken anywhere.
const LINGER_MAX: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 64 << 20;

/// Bytes of a read of it, and reads until others have their turn.
const LINGER_READ_BYTES: usize = 16 << 10;
const LINGER_READS: usize = 16;

/// The socket over a stream `S`.
#[derive(Debug)]
pub(crate) struct GuardedSocket<S> {
    inner: S,
    phase: Phase,
    head: RequestHead,
    /// Memory of heads.
    heads: Budget,
    /// Bytes of a rewritten head that found no room yet.
    carry: Vec<u8>,
    /// Whether nothing that still comes is read.
    is_cut: bool,
    is_shut: bool,
    /// Bytes that were read since.
    lingered: usize,
    read_timer: Timer,
    write_timer: Timer,
    header_read_max: Duration,
    response_stall_max: Duration,
}

/// A deadline that exists while something is awaited.
#[derive(Debug, Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    fn clear(&mut self) {
        self.0 = None;
    }

    /// Ready when `after` has passed since the first call since it was cleared.
    fn poll(&mut self, cx: &mut Context<'_>, after: Duration) -> Poll<io::Error> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep(after)));
        timer
            .as_mut()
            .poll(cx)
            .map(|()| io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> GuardedSocket<S> {
    /// A fresh connection: its first request is due at once.
    pub(crate) fn new(inner: S, phase: Phase, limits: &Limits, heads: Budget) -> TokioIo<Self> {
        TokioIo::new(Self {
            inner,
            phase,
            head: RequestHead::default(),
            heads,
            carry: Vec::new(),
            is_cut: false,
            is_shut: false,
            lingered: 0,
            read_timer: Timer::default(),
            write_timer: Timer::default(),
            header_read_max: limits.header_read_max,
            response_stall_max: limits.response_stall_max,
        })
    }

    /// Keeps the deadline of a request's headers: it runs from their first byte.
    fn watch_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.phase.is_head() {
            return self.read_timer.poll(cx, self.header_read_max);
        }
        self.read_timer.clear();
        Poll::Pending
    }

    /// Notes that bytes came, which stand in `buf` from `start` on.
    fn received(&mut self, buf: &mut ReadBuf<'_>, start: usize) {
        if buf.filled().len() == start {
            return;
        }
        // The first byte of a request ends the pause before it.
        if self.phase.begin_head() {
            self.head.restart();
        }
        if !self.phase.is_head() {
            return;
        }
        let (received, failure) = self.head.receive(&buf.filled()[start..], &self.heads);
        let instead = match received {
            Received::AsTheyAre => return,
            Received::Instead(bytes) => bytes,
            Received::Cut(bytes) => {
                self.is_cut = true;
                bytes
            }
        };
        let beside = self.head.take_beside();
        if let Some(beside) = failure.map(Beside::Refusal).or(beside) {
            self.phase.put_beside(beside);
        }
        buf.set_filled(start);
        let (fitting, rest) = instead.split_at(instead.len().min(buf.remaining()));
        buf.put_slice(fitting);
        self.carry = rest.to_vec();
    }

    /// Reads what a client still sends that was refused, and forgets it: a socket that is closed
    /// with unread bytes resets the connection, and the answer is lost on its way.
    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

    /// Keeps the deadline of writing: it runs while the client takes nothing.
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
            // Nothing read is the end; what was kept apart is not.
            if outcome.is_err() || has_ended || buf.filled().len() > start {
                return Poll::Ready(outcome);
            }
        }
        // The end would be taken for a client that went away before its answer.
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
        match this.phase.is_last() {
            true => this.linger(cx).map(Ok),
            false => Poll::Ready(Ok(())),
        }
    }
}
