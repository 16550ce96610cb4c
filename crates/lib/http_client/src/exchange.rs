//! One HTTP/1 connection, which sends a request and reads its response at the same time.
//!
//! ```text
//! idle -> send -> response head -> body, in pieces -> idle again
//!                   |                '-- dropped, interrupted or last response: closed
//!                   '-- none: a failure, which states whether the request may be sent again
//! ```
//!
//! Invariant: a connection becomes idle only after the request has been sent completely, the body
//! has been read to its end, and no bytes remain. The pool selects the connection for a request.

use super::alert::{PREFIX, stream_error};
use super::framing::{BodyPart, BodyReader};
use super::pool::{HttpsStream, Origin, WeakConnectionPool};
use super::response_head::{HEAD_BYTES_MAX, ResponseHead, find_head_length};
use bytes::{Buf, Bytes, BytesMut, buf::Chain};
use hyper::Method;
use hyper::Request;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Write};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Size in bytes of the first read of a response. Reads that fill the buffer double it, up to the
/// maximum.
const READ_BYTES_MIN: usize = 8 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// An open HTTP/1 connection with its read buffer and the unsent rest of the request.
pub(super) struct Http1Connection {
    stream: TokioIo<HttpsStream>,
    received: BytesMut,
    read_bytes: usize,
    unsent: Chain<Bytes, Bytes>,
    sent_bytes: usize,
    send_error: Option<String>,
    /// Whether the connection has served an earlier request.
    is_reused: bool,
}

/// Why there is no response, and whether the request may be repeated.
#[derive(Debug)]
pub(super) struct ExchangeFailure {
    pub(super) message: String,
    /// Whether the request may be sent again. True if the server may have closed a reused
    /// connection before it received the request: either nothing was sent, or nothing was received
    /// and the request is idempotent.
    pub(super) may_repeat: bool,
}

impl Http1Connection {
    pub(super) fn new(stream: HttpsStream) -> Self {
        Self {
            stream: TokioIo::new(stream),
            received: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            unsent: Bytes::new().chain(Bytes::new()),
            sent_bytes: 0,
            send_error: None,
            is_reused: false,
        }
    }

    /// Sends `request` and returns as soon as the response head is complete.
    pub(super) async fn send(
        mut self: Box<Self>,
        request: &Request<Bytes>,
    ) -> Result<(ResponseHead, Box<Self>), ExchangeFailure> {
        let head = encode(request, self.stream.inner().connected().is_proxied());
        self.unsent = head.chain(request.body().clone());
        self.sent_bytes = 0;
        let mut heads = ResponseHeadScanner::default();
        match poll_fn(|cx| self.poll_exchange(cx, &mut heads)).await {
            Ok(head) => Ok((head, self)),
            Err(message) => {
                let has_no_answer = heads.bytes == 0 && self.received.is_empty();
                let may_repeat = self.sent_bytes == 0 || has_no_answer && is_replayable(request);
                Err(ExchangeFailure {
                    may_repeat: may_repeat && self.is_reused,
                    message,
                })
            }
        }
    }

    fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        heads: &mut ResponseHeadScanner,
    ) -> Poll<Result<ResponseHead, String>> {
        self.poll_send(cx);
        let head = self.poll_head(cx, heads);
        // A server that rejects a request early may have sent the reason, so a complete head and an
        // alert take precedence over a send error.
        match (head, &self.send_error) {
            (Poll::Ready(Ok(head)), _) => Poll::Ready(Ok(head)),
            (Poll::Ready(Err(alert)), Some(_)) if alert.starts_with(PREFIX) => {
                Poll::Ready(Err(alert))
            }
            (_, Some(error)) => Poll::Ready(Err(error.clone())),
            (head, None) => head,
        }
    }

    /// Sends the rest of the request, as far as the connection accepts it.
    fn poll_send(&mut self, cx: &mut Context<'_>) {
        while self.unsent.has_remaining() && self.send_error.is_none() {
            match pin!(self.stream.write_buf(&mut self.unsent)).poll(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => self.send_error = Some("connection closed".into()),
                Poll::Ready(Ok(count)) => self.sent_bytes += count,
                Poll::Ready(Err(e)) => self.send_error = Some(stream_error(&e)),
            }
        }
        // An empty remainder would still reference the memory of the whole body.
        self.unsent = Bytes::new().chain(Bytes::new());
        if let Poll::Ready(Err(e)) = Pin::new(&mut self.stream).poll_flush(cx) {
            self.send_error = Some(stream_error(&e));
        }
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        heads: &mut ResponseHeadScanner,
    ) -> Poll<Result<ResponseHead, String>> {
        loop {
            if let Some(head) = heads.take_final_head(&mut self.received)? {
                return Poll::Ready(Ok(head));
            }
            if ready!(self.poll_fill(cx)).map_err(|e| stream_error(&e))? == 0 {
                let end = if self.received.is_empty() && heads.bytes == 0 {
                    "EOF"
                } else {
                    "unexpected EOF"
                };
                return Poll::Ready(Err(end.to_owned()));
            }
        }
    }

    /// Reads more bytes. Returns zero at the end of the connection.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.received.reserve(self.read_bytes);
        let read = ready!(pin!(self.stream.read_buf(&mut self.received)).poll(cx));
        if self.received.len() == self.received.capacity() {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        }
        Poll::Ready(match read {
            // As in Go, TLS that ends without `close_notify` is a regular end, unless it is inside
            // a record.
            Err(e) if e.kind() == ErrorKind::UnexpectedEof && self.is_between_records() => Ok(0),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "unexpected EOF inside a TLS record",
            )),
            read => read,
        })
    }

    fn is_between_records(&self) -> bool {
        match self.stream.inner() {
            MaybeHttpsStream::Http(_) => false,
            MaybeHttpsStream::Https(tls) => {
                let (routed, _) = tls.inner().get_ref();
                routed.inner().is_between_records()
            }
        }
    }

    /// Completes when an idle connection has ended. An unsolicited byte ends it too.
    pub(super) fn poll_idle_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // There can be many idle connections, so they have no buffer.
        let mut byte = [0];
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte));
        read.map(drop)
    }

    /// Returns whether the request has been sent completely and no unread bytes remain.
    fn is_clean(&self) -> bool {
        !self.unsent.has_remaining() && self.send_error.is_none() && self.received.is_empty()
    }
}

/// Returns whether `request` may reach the server twice, by Go's rule.
fn is_replayable(request: &Request<Bytes>) -> bool {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    let headers = request.headers();
    is_safe || headers.contains_key("idempotency-key") || headers.contains_key("x-idempotency-key")
}

/// Response heads of one request, including interim ones, whose total size is limited.
#[derive(Default)]
struct ResponseHeadScanner {
    bytes: usize,
    scanned: usize,
}

impl ResponseHeadScanner {
    /// Returns the head of the final response if it is complete. Skips interim responses.
    fn take_final_head(&mut self, received: &mut BytesMut) -> Result<Option<ResponseHead>, String> {
        loop {
            let length = find_head_length(received, &mut self.scanned);
            if self.bytes + length.unwrap_or(received.len()) > HEAD_BYTES_MAX {
                return Err(format!(
                    "net/http: server response headers exceeded {HEAD_BYTES_MAX} bytes; aborted"
                ));
            }
            let Some(length) = length else {
                return Ok(None);
            };
            let head = ResponseHead::parse(&received.split_to(length))?;
            (self.bytes, self.scanned) = (self.bytes + length, 0);
            if !head.is_interim() {
                return Ok(Some(head));
            }
        }
    }
}

/// Encodes the head of `request`. For a proxy, it contains the complete URL.
fn encode(request: &Request<Bytes>, is_proxied: bool) -> Bytes {
    let uri = request.uri();
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let host = host.strip_suffix(':').unwrap_or(host);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let slash = if path.starts_with('/') { "" } else { "/" };
    let origin = if is_proxied {
        format!("{}://{host}", uri.scheme_str().unwrap_or("http"))
    } else {
        String::new()
    };
    let method = request.method();
    let mut head = format!("{method} {origin}{slash}{path} HTTP/1.1\r\n").into_bytes();
    let headers = request.headers();
    if !headers.contains_key(HOST) {
        head.extend_from_slice(format!("host: {host}\r\n").as_bytes());
    }
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    let length = request.body().len();
    if (length > 0 || method != Method::GET) && !headers.contains_key(CONTENT_LENGTH) {
        // Writing to memory cannot fail.
        let _ = write!(head, "content-length: {length}\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

/// Body of an HTTP/1 response. Owns the connection until the body has been read, and then returns
/// it to the pool.
pub(super) struct Http1Body {
    connection: Option<Box<Http1Connection>>,
    reader: BodyReader,
    may_be_kept: bool,
    pool: WeakConnectionPool,
    origin: Origin,
}

impl Http1Body {
    pub(super) fn new(
        head: &ResponseHead,
        request: &Request<Bytes>,
        connection: Box<Http1Connection>,
        pool: WeakConnectionPool,
        origin: Origin,
    ) -> Self {
        let asked_to_close = request.headers().contains_key(CONNECTION);
        let mut body = Self {
            connection: Some(connection),
            reader: BodyReader::new(head.framing),
            may_be_kept: !head.is_last && !asked_to_close,
            pool,
            origin,
        };
        body.release();
        body
    }

    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, String>>> {
        let data = ready!(self.poll_part(cx));
        if matches!(data, Some(Err(_))) {
            self.connection = None;
        }
        self.release();
        Poll::Ready(data)
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, String>>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(None);
        };
        connection.poll_send(cx);
        loop {
            match self.reader.next_part(&mut connection.received) {
                Ok(BodyPart::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(BodyPart::End) => return Poll::Ready(None),
                Ok(BodyPart::Missing) => {}
                Err(message) => return Poll::Ready(Some(Err(message))),
            }
            match ready!(connection.poll_fill(cx)) {
                Ok(0) => {
                    if let Err(message) = self.reader.handle_connection_end() {
                        return Poll::Ready(Some(Err(message)));
                    }
                    self.may_be_kept = false;
                }
                Ok(_) => {}
                Err(e) => return Poll::Ready(Some(Err(e.to_string()))),
            }
        }
    }

    /// Returns the connection to the pool if the body has been read to its end.
    fn release(&mut self) {
        if !self.reader.is_at_end() {
            return;
        }
        if let Some(mut connection) = self.connection.take()
            && self.may_be_kept
            && connection.is_clean()
        {
            connection.is_reused = true;
            connection.received = BytesMut::new();
            connection.read_bytes = READ_BYTES_MIN;
            self.pool.put(&self.origin, connection);
        }
    }
}
