//! Texts of connection errors: TLS alerts have those of Go's `crypto/tls`. A stream of HTTP/2 keeps
//! the error that ended it.
//!
//! A server that requires a client certificate completes the handshake of TLS 1.3 and then sends an
//! alert. By then the client may already be sending, so that it sees a broken pipe, and the HTTP/2
//! connection reports that instead, or only that it has ended. The alert names the cause, so it
//! takes precedence.

use firn_x509::handshake::certificate_reason;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// Beginning of the text of each alert.
pub(super) const PREFIX: &str = "remote error: tls: ";

/// Returns Go's text of the alert that `error` reports, or `None` if it is another error.
pub(super) fn alert_text(error: &(dyn Error + 'static)) -> Option<String> {
    let mut error = error;
    while let Some(inner) = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        error = inner;
    }
    match error.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => {
            let number = u8::from(*alert);
            let name = TEXTS.iter().find(|(known, _)| *known == number);
            Some(match name {
                Some((_, text)) => format!("{PREFIX}{text}"),
                None => format!("{PREFIX}alert({number})"),
            })
        }
        _ => None,
    }
}

/// Returns Go's text of an alert, or the text of another error.
pub(super) fn stream_error(error: &io::Error) -> String {
    alert_text(error).unwrap_or_else(|| error.to_string())
}

/// Returns an error and its causes as one text. If the server's certificate was rejected, or the
/// server sent an alert, returns only the reason for that. Repeated texts are omitted, because many
/// errors contain the text of their cause.
pub(super) fn error_chain_text(error: &(dyn Error + 'static)) -> String {
    let mut reasons: Vec<String> = Vec::new();
    let mut source = Some(error);
    while let Some(reason) = source {
        if let Some(text) = certificate_reason(reason).or_else(|| alert_text(reason)) {
            return text;
        }
        let text = reason.to_string();
        if !reasons.iter().any(|known| known.contains(&text)) {
            reasons.push(text);
        }
        source = reason.source();
    }
    reasons.join(": ")
}

/// Error that ended an HTTP/2 connection, shared with the requests of the connection.
pub(super) type Ending = Arc<OnceLock<String>>;

/// A stream that records the first error, or the alert behind it.
pub(super) struct AlertStream<S> {
    stream: S,
    ending: Ending,
}

impl<S: Read + Unpin> AlertStream<S> {
    pub(super) fn new(stream: S) -> (Self, Ending) {
        let ending = Ending::default();
        let shared = ending.clone();
        (Self { stream, ending }, shared)
    }

    fn record(&self, error: &io::Error) {
        // The first error ends the connection.
        let _ = self.ending.set(stream_error(error));
    }

    /// Records a failed write, or the alert behind it. The connection is over, so other bytes are
    /// of no use.
    fn after_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result {
            let mut bytes = [0; 1024];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, buffer.unfilled()) {
                Poll::Ready(Err(alert)) if alert_text(&alert).is_some() => self.record(&alert),
                _ => self.record(error),
            }
        }
        result
    }
}

impl<S: Read + Unpin> Read for AlertStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Err(error)) = &read {
            self.record(error);
        }
        read
    }
}

impl<S: Read + Write + Unpin> Write for AlertStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.after_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.after_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.after_write(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Numbers and texts of the alerts, from `alert.go`.
const TEXTS: &[(u8, &str)] = &[
    (0, "close notify"),
    (10, "unexpected message"),
    (20, "bad record MAC"),
    (21, "decryption failed"),
    (22, "record overflow"),
    (30, "decompression failure"),
    (40, "handshake failure"),
    (42, "bad certificate"),
    (43, "unsupported certificate"),
    (44, "revoked certificate"),
    (45, "expired certificate"),
    (46, "unknown certificate"),
    (47, "illegal parameter"),
    (48, "unknown certificate authority"),
    (49, "access denied"),
    (50, "error decoding message"),
    (51, "error decrypting message"),
    (60, "export restriction"),
    (70, "protocol version not supported"),
    (71, "insufficient security level"),
    (80, "internal error"),
    (86, "inappropriate fallback"),
    (90, "user canceled"),
    (100, "no renegotiation"),
    (109, "missing extension"),
    (110, "unsupported extension"),
    (111, "certificate unobtainable"),
    (112, "unrecognized name"),
    (113, "bad certificate status response"),
    (114, "bad certificate hash value"),
    (115, "unknown PSK identity"),
    (116, "certificate required"),
    (120, "no application protocol"),
    (121, "encrypted client hello required"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription;

    #[test]
    fn alert_texts_are_those_of_go() {
        let text = |number| {
            let alert = rustls::Error::AlertReceived(AlertDescription::from(number));
            alert_text(&io::Error::other(alert)).unwrap()
        };
        assert_eq!(text(116), "remote error: tls: certificate required");
        assert_eq!(text(48), "remote error: tls: unknown certificate authority");
        assert_eq!(text(200), "remote error: tls: alert(200)");
        assert_eq!(alert_text(&io::Error::other("alert")), None);
        assert!(TEXTS.is_sorted());
    }
}
