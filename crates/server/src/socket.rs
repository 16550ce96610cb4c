//! A socket that gives up on a client that is slow to say what it wants or does not read what it
//! gets.
//!
//! ```text
//! Idle --first byte--> Head --request complete--> Busy --answer sent--> Idle
//! ```
//!
//! A request whose body was not read to its end is the last one of its connection: what follows
//! could be the rest of that body, and must not be taken for a request line.
//!
//! Time for a body is kept by [`crate::body`], the pause between requests by hyper; here a request
//! under way may be silent for as long as the server works on it.

use crate::limits::Limits;
use crate::request_line::RequestLine;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

const HEAD: u8 = 0;
const BUSY: u8 = 1;
const IDLE: u8 = 2;
const LAST: u8 = 3;

/// Where a connection stands; shared by its socket and its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase(Arc<AtomicU8>);

impl Phase {
    /// A request is complete and under way until the guard is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.0.store(BUSY, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// No request may follow the one under way.
    pub(crate) fn end(&self) {
        self.0.store(LAST, Ordering::Relaxed);
    }
}

/// Holds a connection busy.
#[derive(Debug)]
pub(crate) struct Busy(Phase);

impl Drop for Busy {
    fn drop(&mut self) {
        // After the last request nothing changes any more.
        let phase = &self.0.0;
        let _ = phase.compare_exchange(BUSY, IDLE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The socket.
#[derive(Debug)]
pub(crate) struct GuardedSocket {
    inner: TcpStream,
    phase: Phase,
    request_line: RequestLine,
    /// Bytes of a rewritten request line that found no room yet.
    carry: Vec<u8>,
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

impl GuardedSocket {
    /// A fresh connection: its first request is due at once.
    pub(crate) fn new(inner: TcpStream, phase: Phase, limits: &Limits) -> TokioIo<Self> {
        TokioIo::new(Self {
            inner,
            phase,
            request_line: RequestLine::default(),
            carry: Vec::new(),
            read_timer: Timer::default(),
            write_timer: Timer::default(),
            header_read_max: limits.header_read_max,
            response_stall_max: limits.response_stall_max,
        })
    }

    /// Keeps the deadline of a request's headers: it runs from their first byte.
    fn watch_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.phase.0.load(Ordering::Relaxed) == HEAD {
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
        let phase = &self.phase.0;
        if phase
            .compare_exchange(IDLE, HEAD, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.request_line.restart();
        }
        if let Some(rewritten) = self.request_line.rewrite(&buf.filled()[start..]) {
            buf.set_filled(start);
            let (fitting, rest) = rewritten.split_at(rewritten.len().min(buf.remaining()));
            buf.put_slice(fitting);
            self.carry = rest.to_vec();
        }
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

impl AsyncRead for GuardedSocket {
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
        let filled = buf.filled().len();
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Ready(outcome) => {
                this.received(buf, filled);
                Poll::Ready(outcome)
            }
            Poll::Pending => this.watch_head(cx).map(Err),
        }
    }
}

impl AsyncWrite for GuardedSocket {
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
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
