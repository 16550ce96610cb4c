//! Parser of HTTP/1 response heads, with the rules of Go's `net/http/response.go`,
//! `net/http/transfer.go` and `net/textproto/reader.go`.
//!
//! ```text
//! bytes -> find_head_length (is the head complete?) -> parse -> status, headers, body framing
//! ```
//!
//! Invariant: a head has at most [`HEAD_BYTES_MAX`] bytes and [`HEADERS_MAX`] header lines, and its
//! framing is unambiguous: contradicting lengths and unknown transfer encodings are errors.
//!
//! The caller reads from the socket and skips interim responses.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRAILER, TRANSFER_ENCODING,
};
use hyper::{Response, StatusCode, Version};
use std::borrow::Cow;

/// Maximum total size in bytes of all heads before a body; Go's limit.
pub(super) const HEAD_BYTES_MAX: usize = 10 << 20;

/// Maximum number of header lines, close to the capacity of [`HeaderMap`]. Go has no such limit.
pub(super) const HEADERS_MAX: usize = 20_000;

/// A parsed response head, with the framing of its body.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    /// Reason phrase after the status code.
    pub(super) reason: String,
    pub(super) headers: HeaderMap,
    pub(super) framing: BodyFraming,
    /// Whether the connection must be closed after this response.
    pub(super) is_last: bool,
}

/// How the end of the body is determined: by length, by chunks or by the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    Length(u64),
    Chunked,
    UntilEnd,
}

/// Returns the length in bytes of the head at the beginning of `bytes`, or `None` if it is
/// incomplete. `scanned` is the position at which the last call stopped; zero at first.
pub(super) fn find_head_length(bytes: &[u8], scanned: &mut usize) -> Option<usize> {
    if *scanned == 0 && (bytes.starts_with(b"\n") || bytes.starts_with(b"\r\n")) {
        // The status line is empty, which the parser rejects.
        return Some(bytes.iter().position(|b| *b == b'\n')? + 1);
    }
    while let Some(offset) = bytes.get(*scanned..)?.iter().position(|b| *b == b'\n') {
        let next = *scanned + offset + 1;
        match bytes.get(next..)? {
            [b'\n', ..] => return Some(next + 1),
            [b'\r', b'\n', ..] => return Some(next + 2),
            [] | [b'\r'] => {
                *scanned = next - 1;
                return None;
            }
            _ => *scanned = next,
        }
    }
    *scanned = bytes.len();
    None
}

impl ResponseHead {
    /// Parses a head that [`find_head_length`] found to be complete. Fails if it is malformed or
    /// its framing is ambiguous.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut lines = bytes.split_inclusive(|b| *b == b'\n').map(trim_line_end);
        let (version, status, reason) = parse_status_line(lines.next().unwrap_or_default())?;
        let mut headers = parse_headers(lines)?;
        let (framing, is_last) = determine_framing(version, status, &mut headers)?;
        Ok(Self {
            status,
            reason,
            headers,
            framing,
            is_last,
        })
    }

    /// Returns whether another head follows. Status 101 is final, as it ends HTTP on the
    /// connection.
    pub(super) fn is_interim(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }
}

/// Removes the line end: LF, optionally preceded by CR.
pub(super) fn trim_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Reason of an HTTP/1 response that is not the usual one of its status.
#[derive(Clone, Debug)]
pub(super) struct StatusReason(pub(super) String);

/// Returns the status of a response with the reason that the server sent, which may name the cause
/// of an error. The usual reason of the status replaces a missing one of HTTP/2.
pub fn status_text<B>(response: &Response<B>) -> String {
    let status = response.status();
    match response.extensions().get::<StatusReason>() {
        None => status.to_string(),
        Some(StatusReason(reason)) if reason.is_empty() => status.as_str().to_owned(),
        Some(StatusReason(reason)) => format!("{} {reason}", status.as_str()),
    }
}

fn parse_status_line(line: &[u8]) -> Result<(Version, StatusCode, String), String> {
    let text = String::from_utf8_lossy(line);
    let Some((protocol, rest)) = text.split_once(' ') else {
        return Err(format!("malformed HTTP response {text:?}"));
    };
    let rest = rest.trim_start_matches(' ');
    let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let status = match code.len() {
        3 => code.parse().ok(),
        _ => None,
    };
    let status = status.ok_or_else(|| format!("malformed HTTP status code {code:?}"))?;
    let version = match protocol.as_bytes() {
        b"HTTP/1.0" => Version::HTTP_10,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            match major {
                b'0' => Version::HTTP_09,
                _ => Version::HTTP_11,
            }
        }
        _ => return Err(format!("malformed HTTP version {protocol:?}")),
    };
    Ok((version, status, reason.to_owned()))
}

/// Parses header lines up to the empty line that ends a head or a trailer.
pub(super) fn parse_headers<'l>(
    lines: impl Iterator<Item = &'l [u8]>,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (number, field) in unfold(lines)?.iter().enumerate() {
        let malformed = || {
            let shown = String::from_utf8_lossy(field.get(..100).unwrap_or(field));
            format!("malformed MIME header line: {shown:?}")
        };
        let colon = field.iter().position(|b| *b == b':').unwrap_or_default();
        let (name, value) = (&field[..colon], &field[colon + 1..]);
        let value = HeaderValue::from_bytes(trim_start(value)).map_err(|_| malformed())?;
        match HeaderName::from_bytes(name) {
            Ok(name) => {
                let appended = headers.try_append(name, value);
                appended.map_err(|_| too_many_headers_error(number))?;
            }
            // As in Go, such a name is valid, but is a different name: `Content-Length : 4` sets no
            // length.
            Err(_) if is_name_with_blanks(name) => {}
            Err(_) => return Err(malformed()),
        }
    }
    Ok(headers)
}

/// Joins header lines with their continuation lines. Each returned line contains a colon.
fn unfold<'l>(lines: impl Iterator<Item = &'l [u8]>) -> Result<Vec<Cow<'l, [u8]>>, String> {
    let mut fields: Vec<Cow<'_, [u8]>> = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let shown = || String::from_utf8_lossy(line.get(..80).unwrap_or(line)).into_owned();
        let is_continuation = matches!(line.first(), Some(b' ' | b'\t'));
        let is_full = fields.len() == HEADERS_MAX;
        match fields.last_mut() {
            Some(last) if is_continuation => {
                let last = last.to_mut();
                last.push(b' ');
                last.extend_from_slice(trim(line));
            }
            None if is_continuation => {
                return Err(format!("malformed MIME header initial line: {:?}", shown()));
            }
            _ if !line.contains(&b':') => {
                return Err(format!(
                    "malformed MIME header: missing colon: {:?}",
                    shown()
                ));
            }
            _ if is_full => return Err(too_many_headers_error(HEADERS_MAX)),
            _ => fields.push(Cow::Borrowed(trim(line))),
        }
    }
    Ok(fields)
}

fn too_many_headers_error(count: usize) -> String {
    format!("response has too many header lines: more than {count}, limit {HEADERS_MAX}")
}

fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|b| !matches!(b, b' ' | b'\t'));
    start.map_or(&[], |start| &text[start..])
}

fn trim(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|b| !matches!(b, b' ' | b'\t'));
    end.map_or(&[], |end| trim_start(&text[..=end]))
}

/// Returns whether `name` would be a valid header name if spaces were allowed and its length were
/// not limited.
fn is_name_with_blanks(name: &[u8]) -> bool {
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~ ".contains(b);
    !name.is_empty() && name.iter().all(is_token)
}

/// Returns how the body ends, and whether the connection ends with it.
fn determine_framing(
    version: Version,
    status: StatusCode,
    headers: &mut HeaderMap,
) -> Result<(BodyFraming, bool), String> {
    let is_chunked = is_chunked(version, headers)?;
    let length = parse_content_length(headers)?;
    if is_chunked {
        check_trailer(headers)?;
    }
    let is_last = is_last(version, headers);
    let has_body = !status.is_informational() && !matches!(status.as_u16(), 204 | 304);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok((BodyFraming::UntilEnd, true));
    }
    Ok(match (has_body, is_chunked, length) {
        (false, _, _) => (BodyFraming::Length(0), is_last),
        (true, true, _) => (BodyFraming::Chunked, is_last),
        (true, false, Some(length)) => (BodyFraming::Length(length), is_last),
        (true, false, None) => (BodyFraming::UntilEnd, true),
    })
}

fn is_chunked(version: Version, headers: &mut HeaderMap) -> Result<bool, String> {
    let values: Vec<HeaderValue> = headers.get_all(TRANSFER_ENCODING).iter().cloned().collect();
    headers.remove(TRANSFER_ENCODING);
    match values.as_slice() {
        [] => Ok(false),
        _ if version != Version::HTTP_11 => Ok(false),
        [one] if one.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        [one] => Err(format!("unsupported transfer encoding: {one:?}")),
        several => Err(format!("too many transfer encodings: {several:?}")),
    }
}

fn parse_content_length(headers: &HeaderMap) -> Result<Option<u64>, String> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = values.next().map(|value| trim(value.as_bytes())) else {
        return Ok(None);
    };
    let shown = String::from_utf8_lossy(first);
    if values.any(|other| trim(other.as_bytes()) != first) {
        return Err("http: message cannot contain multiple Content-Length headers".into());
    }
    let is_number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    let length = shown.parse().ok().filter(|length| *length < 1 << 63);
    match length {
        Some(length) if is_number => Ok(Some(length)),
        _ => Err(format!("bad Content-Length {shown:?}")),
    }
}

/// Rejects trailers that announce headers which describe the framing.
fn check_trailer(headers: &HeaderMap) -> Result<(), String> {
    for name in headers.get_all(TRAILER).iter().flat_map(split_tokens) {
        let bad = [TRANSFER_ENCODING, TRAILER, CONTENT_LENGTH];
        if bad
            .iter()
            .any(|bad| name.eq_ignore_ascii_case(bad.as_str().as_bytes()))
        {
            let name = String::from_utf8_lossy(name);
            return Err(format!("bad trailer key {name:?}"));
        }
    }
    Ok(())
}

fn split_tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|b| *b == b',').map(trim)
}

fn is_last(version: Version, headers: &HeaderMap) -> bool {
    let has = |wanted: &[u8]| {
        let mut tokens = headers.get_all(CONNECTION).iter().flat_map(split_tokens);
        tokens.any(|token| token.eq_ignore_ascii_case(wanted))
    };
    match version {
        Version::HTTP_09 => true,
        Version::HTTP_10 => has(b"close") || !has(b"keep-alive"),
        _ => has(b"close"),
    }
}
