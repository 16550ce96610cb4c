//! Preprocesses request lines and headers: accepts characters and lengths that Go's server accepts
//! but hyper's parser does not.
//!
//! ```text
//! first 48 KiB and 64 lines of a head   unchanged, except for quotes and angle brackets
//! further bytes of the line             kept separately: the rest of a long query
//! further headers                       only those that the server or its parser reads
//! beyond 1 MiB, or without memory       replaced by a minimal request that will be refused
//! ```
//!
//! `curl -g 'http://host/api/v1/query?query=up{job="x"}>1'` sends quotes and angle brackets
//! unescaped. Go's server accepts them, and Prometheus's documentation contains such commands.
//! hyper's strict URI parser rejects them, as well as URIs of more than 64 KiB. The characters are
//! therefore percent-encoded, which is equivalent, and the end of a long URI bypasses the parser.
//!
//! Invariant: memory of all heads beyond a few KiB per connection is reserved from one budget.

use super::failure::{ApiFailure, FailureCause};
use firn_model::budget::{Budget, Reservation};
use firn_model::error::ErrorKind;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Number of bytes of a head that are passed to the parser: three quarters of its buffer, so that
/// the relevant headers fit after them.
const PASSED_BYTES_MAX: usize = 48 << 10;

/// Size up to which a head is passed completely. It may still grow to three times this size.
const SHORT_BYTES_MAX: usize = PASSED_BYTES_MAX / 3;

/// Number of lines of a head that are passed unchanged. Together with the relevant headers they are
/// fewer than a hundred, which the parser handles without an allocation.
const PASSED_LINES_MAX: usize = 64;

/// Minimum size of [`PASSED_LINES_MAX`] lines: a letter, a colon and a line end each.
const FEW_LINES_BYTES: usize = 4 * PASSED_LINES_MAX;

/// Size of a head that each connection may hold without a reservation.
const FREE_BYTES: usize = 8 << 10;

/// Maximum size of a request line and its headers: Go's default with the slack that it allows.
pub(crate) const HEAD_BYTES_MAX: usize = (1 << 20) + 4096;

/// Number of copies of a long line that exist at the same time: as received, joined, and decoded.
const LINE_COPIES: usize = 3;

/// Headers that the server or its parser reads, in lower case.
const READ_HEADERS: [&[u8]; 16] = [
    b"accept",
    b"accept-encoding",
    b"access-control-request-headers",
    b"access-control-request-method",
    b"authorization",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"expect",
    b"host",
    b"if-none-match",
    b"origin",
    b"transfer-encoding",
    b"upgrade",
    b"x-scope-orgid",
];

/// Length of the longest of these names in bytes.
const READ_NAME_BYTES_MAX: usize = 30;

/// Part of a request that bypasses the parser and is attached to the request afterwards.
#[derive(Debug)]
pub(crate) enum RequestHeadAttachment {
    /// The end of a long URI.
    Line(LongUriTail),
    /// The failure with which the request must be answered.
    Refusal(ApiFailure),
}

/// The end of a long URI, with the reservation of its memory. Attached to the request as an
/// extension.
#[derive(Debug)]
pub(crate) struct LongUriTail {
    pub(crate) text: Vec<u8>,
    pub(crate) held: Reservation,
}

/// Position in a request head, as far as it was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestHeadPosition {
    /// In the method or URI.
    #[default]
    Uri,
    /// After the URI, in the protocol version.
    Version,
    /// In the headers, or possibly after them.
    Headers,
    /// After the end of the head.
    Ended,
}

/// Handling of the current header while a long head is filtered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeaderFilterState {
    /// The name is not complete yet.
    #[default]
    Unknown,
    Kept,
    /// The header is irrelevant: it is passed as long as there is room.
    CutShort,
    Dropped,
}

/// Tracks the received bytes of a connection up to the end of each request's head. One instance
/// exists per connection and is reset for each request.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    part: RequestHeadPosition,
    /// Number of bytes received.
    seen: usize,
    /// Number of bytes passed to the parser.
    passed: usize,
    /// Number of lines that were passed before filtering started.
    lines: usize,
    /// Number of headers that were passed by the filter.
    kept: usize,
    header: HeaderFilterState,
    /// Received part of the current header's name.
    name: Vec<u8>,
    /// The end of a long URI.
    long: Vec<u8>,
    held: Option<Reservation>,
}

/// Replacement for received bytes, decided by [`RequestHead::receive`] and passed to the parser.
#[derive(Debug)]
pub(crate) enum FilteredHeadBytes {
    /// The bytes are passed unchanged.
    AsTheyAre,
    /// These bytes are passed instead; possibly none.
    Instead(Vec<u8>),
    /// These bytes end the request, and all further input is ignored.
    Cut(Vec<u8>),
}

impl RequestHead {
    /// Resets the state for the first byte of the next request.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Returns the data that bypasses the parser after the head has ended; `None` if there is none.
    pub(crate) fn take_beside(&mut self) -> Option<RequestHeadAttachment> {
        if self.part != RequestHeadPosition::Ended {
            return None;
        }
        let held = self.held.take();
        let text = std::mem::take(&mut self.long);
        (!text.is_empty()).then_some(())?;
        held.map(|held| RequestHeadAttachment::Line(LongUriTail { text, held }))
    }

    /// Processes the next bytes of a head, possibly followed by a body. Memory beyond
    /// [`FREE_BYTES`] is reserved from `heads`. Returns a failure for a request that is too long or
    /// for which there is no memory.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        heads: &Budget,
    ) -> (FilteredHeadBytes, Option<ApiFailure>) {
        let seen = self.seen + bytes.len();
        let outcome = if seen <= FEW_LINES_BYTES || self.fits(bytes) {
            Ok(self.encode_line(bytes))
        } else {
            self.receive_long(bytes, heads)
        };
        match outcome {
            Ok(None) => (FilteredHeadBytes::AsTheyAre, None),
            Ok(Some(instead)) => (FilteredHeadBytes::Instead(instead), None),
            Err(failure) => (FilteredHeadBytes::Cut(self.cut()), Some(failure)),
        }
    }

    /// Returns whether the head can be passed without filtering or reservation: it ends within
    /// `bytes` with a permitted size and number of lines, or is still within the size that every
    /// connection may use.
    fn fits(&mut self, bytes: &[u8]) -> bool {
        // Bytes of the body after a head must not make it appear long.
        let room = SHORT_BYTES_MAX.saturating_sub(self.seen);
        let (lines, has_ended) = count_lines(&bytes[..bytes.len().min(room)]);
        self.lines += lines;
        let is_small = has_ended || self.seen + bytes.len() <= FREE_BYTES;
        is_small && self.lines <= PASSED_LINES_MAX
    }

    fn receive_long(
        &mut self,
        bytes: &[u8],
        heads: &Budget,
    ) -> Result<Option<Vec<u8>>, ApiFailure> {
        let seen = self.seen + bytes.len();
        if seen > SHORT_BYTES_MAX || self.lines > PASSED_LINES_MAX {
            return self.filter_head(bytes, heads).map(Some);
        }
        self.reserve(heads, seen)?;
        Ok(self.encode_line(bytes))
    }

    fn reserve(&mut self, heads: &Budget, bytes: usize) -> Result<(), ApiFailure> {
        let held = self.held.get_or_insert_with(|| heads.create_reservation());
        let more = bytes.saturating_sub(held.bytes());
        held.grow(more).map_err(|e| {
            // Other heads will end soon, so the client should retry.
            ApiFailure::new(FailureCause::Request(ErrorKind::Unavailable), e.message)
        })
    }

    /// Processes bytes of a head that is short so far. Returns a replacement if the line contains
    /// characters that must be encoded.
    fn encode_line(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.seen += bytes.len();
        self.passed += bytes.len();
        if self.part != RequestHeadPosition::Uri {
            self.note_line_end(bytes);
            return None;
        }
        let end = bytes.iter().position(|b| *b == b'\n');
        let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        if end.is_some() {
            self.part = RequestHeadPosition::Headers;
            self.note_line_end(rest);
        }
        if !line.iter().any(is_special) {
            return None;
        }
        let mut encoded = Vec::with_capacity(bytes.len() + 64);
        line.iter()
            .for_each(|byte| push_encoded(&mut encoded, *byte));
        encoded.extend_from_slice(rest);
        self.passed += encoded.len() - bytes.len();
        Some(encoded)
    }

    /// Records the header in which `bytes` end, in case that the head becomes long.
    fn note_line_end(&mut self, bytes: &[u8]) {
        self.name.clear();
        let start = bytes.iter().rposition(|b| *b == b'\n');
        self.header = match start.map(|at| &bytes[at + 1..]) {
            Some(b"") => HeaderFilterState::Unknown,
            Some(b"\r") => {
                self.name.push(b'\r');
                HeaderFilterState::Unknown
            }
            Some(line) if is_read(line) => HeaderFilterState::Kept,
            Some(line) if line.contains(&b':') => HeaderFilterState::CutShort,
            // An incomplete name was already passed, so the rest of its header must be passed as
            // well.
            Some(_) => HeaderFilterState::Kept,
            None if self.header == HeaderFilterState::CutShort => HeaderFilterState::CutShort,
            None => HeaderFilterState::Kept,
        };
    }

    /// Filters a long head, and everything after its first short part.
    fn filter_head(&mut self, bytes: &[u8], heads: &Budget) -> Result<Vec<u8>, ApiFailure> {
        self.reserve(heads, PASSED_BYTES_MAX)?;
        let mut out = Vec::with_capacity(bytes.len().min(PASSED_BYTES_MAX));
        for (i, byte) in bytes.iter().enumerate() {
            if self.part == RequestHeadPosition::Ended {
                out.extend_from_slice(&bytes[i..]);
                return Ok(out);
            }
            self.seen += 1;
            if self.seen > HEAD_BYTES_MAX {
                return Err(too_long());
            }
            match self.part {
                RequestHeadPosition::Uri => self.sift_uri(*byte, &mut out, heads)?,
                RequestHeadPosition::Version => {
                    out.push(*byte);
                    if *byte == b'\n' {
                        (self.part, self.header) =
                            (RequestHeadPosition::Headers, HeaderFilterState::Unknown);
                    }
                }
                _ => self.sift_header(*byte, &mut out),
            }
        }
        Ok(out)
    }

    fn sift_uri(&mut self, byte: u8, out: &mut Vec<u8>, heads: &Budget) -> Result<(), ApiFailure> {
        let is_long = self.passed >= PASSED_BYTES_MAX;
        if byte == b'\n' || (byte == b' ' && is_long) {
            out.push(byte);
            self.part = match byte {
                b'\n' => RequestHeadPosition::Headers,
                _ => RequestHeadPosition::Version,
            };
            self.header = HeaderFilterState::Unknown;
            return Ok(());
        }
        if is_long {
            if self.long.len() == self.long.capacity() {
                let room = (2 * self.long.capacity()).max(FREE_BYTES);
                self.reserve(heads, PASSED_BYTES_MAX + LINE_COPIES * room)?;
                self.long.reserve_exact(room - self.long.len());
            }
            self.long.push(byte);
            return Ok(());
        }
        let before = out.len();
        push_encoded(out, byte);
        self.passed += out.len() - before;
        Ok(())
    }

    fn sift_header(&mut self, byte: u8, out: &mut Vec<u8>) {
        let is_end = byte == b'\n';
        match self.header {
            HeaderFilterState::Kept => {
                out.push(byte);
                self.passed += 1;
            }
            HeaderFilterState::CutShort if is_end || self.passed < PASSED_BYTES_MAX => {
                out.push(byte);
                self.passed += 1;
            }
            HeaderFilterState::CutShort | HeaderFilterState::Dropped => {}
            HeaderFilterState::Unknown => {
                self.name.push(byte);
                if is_end && matches!(&self.name[..], b"\n" | b"\r\n") {
                    out.append(&mut self.name);
                    self.part = RequestHeadPosition::Ended;
                    return;
                }
                if is_end || byte == b':' || self.name.len() > READ_NAME_BYTES_MAX {
                    self.decide(out);
                }
            }
        }
        if is_end {
            self.name.clear();
            self.header = HeaderFilterState::Unknown;
        }
    }

    /// Returns whether irrelevant headers may be passed; passing is cheaper than filtering.
    fn has_room(&self) -> bool {
        self.passed < PASSED_BYTES_MAX && self.kept < PASSED_LINES_MAX
    }

    /// Decides about the current header after its name is complete, and passes the name if the
    /// header is kept.
    fn decide(&mut self, out: &mut Vec<u8>) {
        self.header = if is_read(&self.name) {
            HeaderFilterState::Kept
        } else if self.has_room() {
            HeaderFilterState::CutShort
        } else {
            HeaderFilterState::Dropped
        };
        if self.header != HeaderFilterState::Dropped {
            self.kept += 1;
            self.passed += self.name.len();
            out.append(&mut self.name);
        }
    }

    /// Returns the bytes that complete a valid request after the bytes passed so far.
    fn cut(&mut self) -> Vec<u8> {
        let end: &[u8] = match (self.part, self.passed) {
            (RequestHeadPosition::Uri, 0) => b"GET / HTTP/1.1\r\n\r\n",
            (RequestHeadPosition::Uri, _) => b" HTTP/1.1\r\n\r\n",
            (RequestHeadPosition::Version, _) => b"HTTP/1.1\r\n\r\n",
            _ => b"\r\n\r\n",
        };
        (self.part, self.long) = (RequestHeadPosition::Ended, Vec::new());
        self.held = None;
        end.to_vec()
    }
}

/// Returns whether the header that starts with `line` must be passed: it is relevant, continues the
/// previous line, or is malformed and must be rejected by the parser.
fn is_read(line: &[u8]) -> bool {
    let name = line.split(|b| *b == b':').next().unwrap_or_default();
    let is_known = |known: &&[u8]| known.eq_ignore_ascii_case(name.trim_ascii());
    line.first().is_some_and(u8::is_ascii_whitespace)
        || name.trim_ascii().is_empty()
        || READ_HEADERS.iter().any(is_known)
}

/// Returns the number of line ends in `bytes` up to an empty line, and whether there is an empty
/// line.
fn count_lines(bytes: &[u8]) -> (usize, bool) {
    let (mut rest, mut lines) = (bytes, 0);
    while let Some(end) = rest.iter().position(|b| *b == b'\n') {
        rest = &rest[end + 1..];
        lines += 1;
        if rest.starts_with(b"\n") || rest.starts_with(b"\r\n") {
            return (lines, true);
        }
    }
    (lines, false)
}

fn too_long() -> ApiFailure {
    let message = format!(
        "request line and headers are too long: more than {HEAD_BYTES_MAX} bytes, \
         limit {HEAD_BYTES_MAX}"
    );
    ApiFailure::new(FailureCause::HeadTooLarge, message)
}

fn is_special(byte: &u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>')
}

fn push_encoded(out: &mut Vec<u8>, byte: u8) {
    if is_special(&byte) {
        let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]];
        out.extend_from_slice(&[b'%', digits[0], digits[1]]);
    } else {
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a head in pieces of `step` bytes. Returns the input of the parser and the data that
    /// bypasses it.
    fn receive(sent: &[u8], step: usize, heads: &Budget) -> (Vec<u8>, Result<String, ApiFailure>) {
        let mut head = RequestHead::default();
        let (mut passed, mut beside) = (Vec::new(), String::new());
        for piece in sent.chunks(step) {
            match head.receive(piece, heads) {
                (FilteredHeadBytes::AsTheyAre, _) => passed.extend_from_slice(piece),
                (FilteredHeadBytes::Instead(instead), _) => passed.extend_from_slice(&instead),
                (FilteredHeadBytes::Cut(end), failure) => {
                    passed.extend_from_slice(&end);
                    return (passed, Err(failure.unwrap()));
                }
            }
            if let Some(RequestHeadAttachment::Line(line)) = head.take_beside() {
                beside.push_str(std::str::from_utf8(&line.text).unwrap());
            }
        }
        (passed, Ok(beside))
    }

    fn check(sent: &str, want: &str, want_beside: &str) {
        let heads = Budget::new("heads", 8 << 20);
        for step in [1, 7, 1000, 8 << 10, 64 << 10, 8 << 20] {
            let (passed, beside) = receive(sent.as_bytes(), step, &heads);
            let passed = String::from_utf8(passed).unwrap();
            assert_eq!(passed.len(), want.len(), "in steps of {step}");
            assert!(passed == want, "in steps of {step}");
            assert!(beside.unwrap() == want_beside, "in steps of {step}");
            assert_eq!(heads.used_bytes(), 0);
        }
    }

    #[test]
    fn head_that_is_short_has_its_line_encoded_and_nothing_else_touched() {
        check(
            "GET /a?q=up{x=\"y\"}>1 HTTP/1.1\r\nA: \"<\"\r\nB: \"\r\n\r\n",
            "GET /a?q=up{x=%22y%22}%3E1 HTTP/1.1\r\nA: \"<\"\r\nB: \"\r\n\r\n",
            "",
        );
        let mut head = RequestHead::default();
        let heads = Budget::new("heads", 0);
        let body = format!("POST / HTTP/1.1\r\nA: b\r\n\r\n{}", "<".repeat(60_000));
        let (received, failure) = head.receive(body.as_bytes(), &heads);
        let untouched = match received {
            FilteredHeadBytes::AsTheyAre => true,
            FilteredHeadBytes::Instead(same) => same == body.as_bytes(),
            FilteredHeadBytes::Cut(_) => false,
        };
        assert!(untouched && failure.is_none());
        head.restart();
        let (received, _) = head.receive(b"GET /< ", &heads);
        assert!(matches!(received, FilteredHeadBytes::Instead(line) if line == b"GET /%3C "));
    }

    #[test]
    fn line_that_is_long_travels_beside_its_request() {
        let query = "x=\"0123456789\"".repeat(30_000);
        let path = "GET /api/v1/query?";
        let rest = " HTTP/1.1\r\nHost: x\r\nX-Any: y\r\n\r\n";
        let heads = Budget::new("heads", 8 << 20);
        let sent = format!("{path}{query}{rest}");
        for step in [1000, 64 << 10] {
            let (passed, beside) = receive(sent.as_bytes(), step, &heads);
            let passed = String::from_utf8(passed).unwrap();
            let passed_query = passed
                .strip_prefix(path)
                .unwrap()
                .split(' ')
                .next()
                .unwrap();
            let joined = format!("{passed_query}{}", beside.unwrap());
            assert!(joined.replace("%22", "\"") == query, "in steps of {step}");
            assert!(passed.len() < 60_000 && passed.contains("\r\nHost: x\r\n"));
        }
        assert_eq!(heads.used_bytes(), 0);
    }

    #[test]
    fn headers_beyond_the_parser_are_passed_over_unless_somebody_reads_them() {
        let pads = |count: usize| -> String {
            (0..count)
                .map(|i| format!("X-Pad-{i:03}: {}\r\n", "p".repeat(1000)))
                .collect()
        };
        let start = "POST /a HTTP/1.1\r\nHost: x\r\n";
        let sent = format!("{start}{}content-LENGTH: 3\r\nY: z\r\n\r\nabc", pads(500));
        let heads = Budget::new("heads", 8 << 20);
        for step in [1, 1000, 8 << 10, 64 << 10] {
            let (passed, _) = receive(sent.as_bytes(), step, &heads);
            let passed = String::from_utf8(passed).unwrap();
            assert!(
                passed.starts_with(&format!("{start}{}", pads(40))),
                "{step}"
            );
            assert!(
                passed.len() < 64 << 10,
                "{} in steps of {step}",
                passed.len()
            );
            assert!(passed.contains("\ncontent-LENGTH: 3\r\n"), "{step}");
            assert!(passed.ends_with("\r\n\r\nabc"), "{step}");
            assert!(!passed.contains("\nY: z"), "{step}");
        }
        assert_eq!(heads.used_bytes(), 0);
    }

    #[test]
    fn head_beyond_the_limit_or_without_memory_is_cut_to_a_request() {
        let heads = Budget::new("heads", 8 << 20);
        let line = format!("GET /?{}", "q".repeat(HEAD_BYTES_MAX));
        let header = format!(
            "GET / HTTP/1.1\r\nA: b\r\n{}",
            "X: y\r\n".repeat(HEAD_BYTES_MAX / 6)
        );
        for sent in [line.clone(), header] {
            let (passed, outcome) = receive(sent.as_bytes(), 8 << 10, &heads);
            let failure = outcome.unwrap_err();
            assert_eq!(failure.cause, FailureCause::HeadTooLarge);
            let limit = "more than 1052672 bytes, limit 1052672";
            assert!(failure.message.ends_with(limit), "{}", failure.message);
            assert!(passed.len() < 64 << 10);
            assert!(passed.ends_with(b"\r\n\r\n"));
        }
        let few = Budget::new("request heads", 100_000);
        let (_, outcome) = receive(line.as_bytes(), 8 << 10, &few);
        let failure = outcome.unwrap_err();
        assert_eq!(failure.cause, FailureCause::Request(ErrorKind::Unavailable));
        let text = "request heads memory limit reached: ";
        assert!(failure.message.starts_with(text), "{}", failure.message);
        assert_eq!((few.used_bytes(), heads.used_bytes()), (0, 0));
    }
}
