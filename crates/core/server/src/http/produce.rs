//! Streams responses in bounded pieces, which are rendered when the client can receive them, so
//! that a response is never completely in memory.
//!
//! ```text
//! Produce (renders a piece) -> Encoder (gzip, deflate) -> StreamBody -> hyper -> socket
//! ```
//!
//! Invariant: about one piece of each current response exists as text. A piece is small enough to
//! be rendered on the async runtime: a few hundred microseconds with compression.

use crate::admission::run::{ENDED, QueryRun};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Response, header};
use firn_model::budget::Reservation;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http_body::Frame;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Size of a piece before compression in bytes, which bounds the time of rendering it.
const PIECE_BYTES: usize = 32 << 10;

/// Minimum size of a response that is compressed. Smaller ones fit into one packet anyway.
const COMPRESSED_BYTES_MIN: usize = 1 << 10;

/// Renders a response piece by piece. Implemented by the documents of the API.
pub(crate) trait ResponseProducer: Send {
    /// Appends about `bytes_max` bytes to `out`, or the rest of the response. Returns whether there
    /// is more.
    fn produce(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool;
}

/// Splits a complete text into pieces, so that compressing one does not take long.
impl ResponseProducer for Bytes {
    fn produce(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let piece = self.split_to(self.len().min(bytes_max));
        out.extend_from_slice(&piece);
        !self.is_empty()
    }
}

/// A complete text with the reservation of its memory, which is released after it was sent.
/// Rendered in pieces like other documents.
pub(crate) struct RenderedText {
    rest: Bytes,
    _memory: Reservation,
}

impl RenderedText {
    pub(crate) fn new(bytes: Vec<u8>, memory: Reservation) -> Self {
        Self {
            rest: bytes.into(),
            _memory: memory,
        }
    }
}

impl RenderedText {
    /// Returns the text that was not sent yet: all of it before the first piece.
    pub(crate) fn start(&self) -> &[u8] {
        &self.rest
    }
}

impl ResponseProducer for RenderedText {
    fn produce(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        self.rest.produce(out, bytes_max)
    }
}

/// Compression of a response, chosen by the client's `Accept-Encoding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseEncoding {
    Identity,
    Gzip,
    Deflate,
}

impl ResponseEncoding {
    /// Returns the first supported encoding in the `Accept-Encoding` header, as upstream does.
    /// Weights are ignored.
    pub(crate) fn from_request(request: &Request) -> Self {
        let accepted = request.headers().get(header::ACCEPT_ENCODING);
        let accepted = accepted
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let known = accepted.split(',').find_map(|name| match name.trim() {
            "gzip" => Some(ResponseEncoding::Gzip),
            "deflate" => Some(ResponseEncoding::Deflate),
            _ => None,
        });
        known.unwrap_or(ResponseEncoding::Identity)
    }
}

/// Returns a 200 response with the output of `source`. A response that fits into one piece has a
/// `Content-Length`; a longer one is sent with chunked encoding.
pub(crate) fn respond(
    source: impl ResponseProducer + 'static,
    content_type: &'static str,
    encoding: ResponseEncoding,
) -> Response<Body> {
    respond_of_query(source, content_type, encoding, None)
}

/// Returns a response like [`respond`] for the query of `run`. If the query is ended, the
/// connection is closed before the end of the response, because its status was already sent.
pub(crate) fn respond_of_query(
    mut source: impl ResponseProducer + 'static,
    content_type: &'static str,
    encoding: ResponseEncoding,
    run: Option<Arc<QueryRun>>,
) -> Response<Body> {
    let mut piece = Vec::with_capacity(1 << 10);
    let more = source.produce(&mut piece, PIECE_BYTES);
    let encoding = if more || piece.len() >= COMPRESSED_BYTES_MIN {
        encoding
    } else {
        ResponseEncoding::Identity
    };
    let mut encoder = ResponseEncoder::new(encoding);
    let first = encoder.encode(piece, more);
    let mut response = Response::new(if !more {
        Body::from(first)
    } else {
        Body::new(ResponseStreamBody {
            first: Some(first),
            source: Some(Box::new(source)),
            run,
            encoder,
            has_yielded: false,
        })
    });
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let name = match encoding {
        ResponseEncoding::Identity => return response,
        ResponseEncoding::Gzip => "gzip",
        ResponseEncoding::Deflate => "deflate",
    };
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
    response
}

enum ResponseEncoder {
    Identity,
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(ZlibEncoder<Vec<u8>>),
}

impl ResponseEncoder {
    fn new(encoding: ResponseEncoding) -> Self {
        // The fastest level: responses consist of digits and repeated labels, which compress about
        // tenfold at any level.
        let level = Compression::fast();
        match encoding {
            ResponseEncoding::Identity => ResponseEncoder::Identity,
            ResponseEncoding::Gzip => ResponseEncoder::Gzip(GzEncoder::new(Vec::new(), level)),
            ResponseEncoding::Deflate => {
                ResponseEncoder::Deflate(ZlibEncoder::new(Vec::new(), level))
            }
        }
    }

    fn encode(&mut self, piece: Vec<u8>, more: bool) -> Bytes {
        const INFALLIBLE: &str = "writing to a Vec does not fail";
        let encoded = match self {
            ResponseEncoder::Identity => piece,
            ResponseEncoder::Gzip(encoder) => {
                encoder.write_all(&piece).expect(INFALLIBLE);
                if !more {
                    encoder.try_finish().expect(INFALLIBLE);
                }
                std::mem::take(encoder.get_mut())
            }
            ResponseEncoder::Deflate(encoder) => {
                encoder.write_all(&piece).expect(INFALLIBLE);
                if !more {
                    encoder.try_finish().expect(INFALLIBLE);
                }
                std::mem::take(encoder.get_mut())
            }
        };
        Bytes::from(encoded)
    }
}

struct ResponseStreamBody {
    first: Option<Bytes>,
    /// `None` after everything was rendered.
    source: Option<Box<dyn ResponseProducer>>,
    /// The query of the response, which ends with it.
    run: Option<Arc<QueryRun>>,
    encoder: ResponseEncoder,
    /// True if other tasks were able to run since the last piece.
    has_yielded: bool,
}

impl http_body::Body for ResponseStreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.run.as_ref().is_some_and(|run| run.is_ended()) && this.source.take().is_some() {
            return Poll::Ready(Some(Err(io::Error::other(ENDED))));
        }
        if let Some(first) = this.first.take().filter(|bytes| !bytes.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        loop {
            let Some(source) = &mut this.source else {
                return Poll::Ready(None);
            };
            if !std::mem::replace(&mut this.has_yielded, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            this.has_yielded = false;
            let mut piece = Vec::with_capacity(PIECE_BYTES + (PIECE_BYTES >> 3));
            let more = source.produce(&mut piece, PIECE_BYTES);
            let encoded = this.encoder.encode(piece, more);
            if !more {
                this.source = None;
                this.run = None;
            }
            // The compressor may buffer a whole piece.
            if !encoded.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(encoded))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.source.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::{GzDecoder, ZlibDecoder};
    use http_body_util::BodyExt;
    use std::io::Read;

    /// Produces numbered lines, a few at a time.
    struct Lines(std::ops::Range<u32>);

    impl ResponseProducer for Lines {
        fn produce(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
            while out.len() < bytes_max {
                let Some(n) = self.0.next() else { return false };
                writeln!(out, "{n}").unwrap();
            }
            true
        }
    }

    async fn check(lines: u32, encoding: ResponseEncoding, content_encoding: Option<&str>) {
        let mut want = Vec::new();
        let _ = Lines(0..lines).produce(&mut want, usize::MAX);
        let response = respond(Lines(0..lines), "text/plain", encoding);
        let named = response.headers().get(header::CONTENT_ENCODING).cloned();
        assert_eq!(
            named.as_ref().map(|v| v.to_str().unwrap()),
            content_encoding
        );
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let mut got = Vec::new();
        match content_encoding {
            None => got.extend_from_slice(&bytes),
            Some("gzip") => drop(GzDecoder::new(&bytes[..]).read_to_end(&mut got).unwrap()),
            Some(_) => drop(ZlibDecoder::new(&bytes[..]).read_to_end(&mut got).unwrap()),
        }
        assert!(got == want, "{lines} lines, {encoding:?}");
    }

    #[test]
    fn finished_text_is_cut_into_pieces() {
        let mut text = Bytes::from(vec![b'x'; 70]);
        let mut piece = Vec::new();
        let mut lengths = Vec::new();
        loop {
            let more = text.produce(&mut piece, 32);
            lengths.push(piece.len());
            piece.clear();
            if !more {
                break;
            }
        }
        assert_eq!(lengths, [32, 32, 6]);
    }

    #[tokio::test]
    async fn respond_streams_every_byte_in_every_encoding() {
        for lines in [1000, 7000, 300_000] {
            check(lines, ResponseEncoding::Identity, None).await;
            check(lines, ResponseEncoding::Gzip, Some("gzip")).await;
            check(lines, ResponseEncoding::Deflate, Some("deflate")).await;
        }
        check(10, ResponseEncoding::Gzip, None).await;
        check(0, ResponseEncoding::Gzip, None).await;
    }

    #[test]
    fn encoding_of_request_takes_the_first_known() {
        let cases = [
            ("", ResponseEncoding::Identity),
            ("br", ResponseEncoding::Identity),
            ("gzip", ResponseEncoding::Gzip),
            ("br, deflate, gzip", ResponseEncoding::Deflate),
            ("br,gzip", ResponseEncoding::Gzip),
        ];
        for (accepted, want) in cases {
            let request = Request::get("/").header(header::ACCEPT_ENCODING, accepted);
            let request = request.body(Body::empty()).unwrap();
            assert_eq!(ResponseEncoding::from_request(&request), want, "{accepted}");
        }
    }
}
