//! Extracts the bodies of HTTP/1 responses from the bytes of a connection, with the rules of Go's
//! `net/http/transfer.go` and `net/http/internal/chunked.go`.
//!
//! Invariant: bytes after the body remain in the buffer, and a body that ends early is an error.
//! Data is passed on as it arrives; at most one line of 4096 bytes is buffered.

use super::response_head::{BodyFraming, parse_headers, trim_line_end};
use bytes::{Bytes, BytesMut};

/// Maximum size in bytes of a line between chunks and of a trailer; the buffer size in Go.
const LINE_BYTES_MAX: usize = 4096;

/// Maximum number of bytes between chunks in excess of the allowance for each chunk; Go's limit.
const EXCESS_BYTES_MAX: u64 = 16 << 10;

const UNEXPECTED_END: &str = "unexpected EOF";

/// State machine that extracts one body, with or without chunked encoding.
#[derive(Debug)]
pub(super) struct BodyReader {
    state: BodyReaderState,
    /// Bytes that were not data, minus the allowance for each chunk.
    excess_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyReaderState {
    Rest(u64),
    UntilEnd,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    End,
}

/// Next part of a body, as returned by [`BodyReader::next_part`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyPart {
    Data(Bytes),
    /// More bytes must be received first.
    Missing,
    End,
}

impl BodyReader {
    pub(super) fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::Length(0) => BodyReaderState::End,
            BodyFraming::Length(length) => BodyReaderState::Rest(length),
            BodyFraming::Chunked => BodyReaderState::ChunkSize,
            BodyFraming::UntilEnd => BodyReaderState::UntilEnd,
        };
        Self {
            state,
            excess_bytes: 0,
        }
    }

    /// Returns whether the complete body has been extracted.
    pub(super) fn is_at_end(&self) -> bool {
        self.state == BodyReaderState::End
    }

    /// Extracts the next part from the beginning of `received`. Fails if the framing is malformed.
    pub(super) fn next_part(&mut self, received: &mut BytesMut) -> Result<BodyPart, String> {
        loop {
            let next = match self.state {
                BodyReaderState::End => return Ok(BodyPart::End),
                _ if received.is_empty() => return Ok(BodyPart::Missing),
                BodyReaderState::UntilEnd => return Ok(BodyPart::Data(received.split().freeze())),
                BodyReaderState::Rest(left) | BodyReaderState::Chunk(left) => {
                    return Ok(BodyPart::Data(self.take_data(left, received)));
                }
                BodyReaderState::ChunkSize => self.take_chunk_size(received)?,
                BodyReaderState::ChunkEnd => take_chunk_end(received)?,
                BodyReaderState::Trailer => skip_trailer(received)?,
            };
            match next {
                Some(state) => self.state = state,
                None => return Ok(BodyPart::Missing),
            }
        }
    }

    /// Handles the end of the connection. It is an error unless the body ends there.
    pub(super) fn handle_connection_end(&mut self) -> Result<(), String> {
        match self.state {
            BodyReaderState::UntilEnd | BodyReaderState::End => {
                self.state = BodyReaderState::End;
                Ok(())
            }
            BodyReaderState::Trailer => Err("http: unexpected EOF reading trailer".into()),
            _ => Err(UNEXPECTED_END.into()),
        }
    }

    fn take_data(&mut self, left: u64, received: &mut BytesMut) -> Bytes {
        let taken = usize::try_from(left).unwrap_or(usize::MAX);
        let data = received.split_to(taken.min(received.len())).freeze();
        let left = left - data.len() as u64;
        self.state = match (self.state, left) {
            (BodyReaderState::Chunk(_), 0) => BodyReaderState::ChunkEnd,
            (BodyReaderState::Chunk(_), left) => BodyReaderState::Chunk(left),
            (_, 0) => BodyReaderState::End,
            (_, left) => BodyReaderState::Rest(left),
        };
        data
    }

    fn take_chunk_size(
        &mut self,
        received: &mut BytesMut,
    ) -> Result<Option<BodyReaderState>, String> {
        let searched = received.get(..LINE_BYTES_MAX).unwrap_or(received);
        let Some(end) = searched.iter().position(|b| *b == b'\n') else {
            return if received.len() < LINE_BYTES_MAX {
                Ok(None)
            } else {
                Err("header line too long".into())
            };
        };
        let line = received.split_to(end + 1);
        let line = match line.iter().position(|b| *b == b'\r') {
            None => return Err("chunked line ends with bare LF".into()),
            Some(at) if at + 1 != end => return Err("invalid CR in chunked line".into()),
            Some(at) => &line[..at],
        };
        let size = parse_size(line)?;
        let granted = size.saturating_mul(2).saturating_add(16);
        let overhead = self.excess_bytes + line.len() as u64 + 2;
        self.excess_bytes = overhead.saturating_sub(granted);
        if self.excess_bytes > EXCESS_BYTES_MAX {
            return Err("chunked encoding contains too much non-data".into());
        }
        Ok(Some(match size {
            0 => BodyReaderState::Trailer,
            size => BodyReaderState::Chunk(size),
        }))
    }
}

/// Parses a chunk size in a line that may contain an extension.
fn parse_size(line: &[u8]) -> Result<u64, String> {
    let end = line.iter().rposition(|b| !matches!(b, b' ' | b'\t'));
    let line = end.map_or(&[][..], |end| &line[..=end]);
    let digits = line.split(|b| *b == b';').next().unwrap_or_default();
    if digits.is_empty() {
        return Err("empty hex number for chunk length".into());
    }
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err("invalid byte in chunk length".into());
    }
    let text = String::from_utf8_lossy(digits);
    match digits.len() {
        0..=16 => u64::from_str_radix(&text, 16).map_err(|e| e.to_string()),
        _ => Err("http chunk length too large".into()),
    }
}

fn take_chunk_end(received: &mut BytesMut) -> Result<Option<BodyReaderState>, String> {
    match received.get(..2) {
        None => Ok(None),
        Some(b"\r\n") => {
            let _ = received.split_to(2);
            Ok(Some(BodyReaderState::ChunkSize))
        }
        Some(_) => Err("malformed chunked encoding".into()),
    }
}

/// Skips the trailer, which is ignored but must be well-formed.
fn skip_trailer(received: &mut BytesMut) -> Result<Option<BodyReaderState>, String> {
    const BLANK_LINE: &[u8] = b"\r\n\r\n";
    match received.get(..2) {
        None => return Ok(None),
        Some(b"\r\n") => {
            let _ = received.split_to(2);
            return Ok(Some(BodyReaderState::End));
        }
        Some(_) => {}
    }
    let searched = received.get(..LINE_BYTES_MAX).unwrap_or(received);
    if !searched.windows(4).any(|bytes| bytes == BLANK_LINE) {
        return if received.len() < LINE_BYTES_MAX {
            Ok(None)
        } else {
            Err("http: suspiciously long trailer after chunked body".into())
        };
    }
    let mut length = 0;
    let lines = searched.split_inclusive(|b| *b == b'\n').map(|line| {
        length += line.len();
        trim_line_end(line)
    });
    parse_headers(lines)?;
    let _ = received.split_to(length);
    Ok(Some(BodyReaderState::End))
}
