//! Decodes the read requests that this server receives.

use super::field;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use crate::snappy;
use firn_model::error::{Error, ErrorKind};
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::{TimeRange, TimestampMs};

/// Largest size of a decompressed request in bytes, as in Prometheus.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Largest number of queries in a request; Prometheus sends one.
const QUERIES_MAX: usize = 1_000;

/// Largest number of matchers of a query, and of accepted response types.
const MATCHERS_MAX: usize = 1_000;

/// The type of a response, chosen by [`ReadRequest::response_type`]. Clients list the types that
/// they accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResponseType {
    /// All samples in one message, the only type that old clients accept.
    Samples,
    /// A stream of frames that contain chunks.
    StreamedXorChunks,
}

/// A decoded read request, whose numbers of queries and matchers are limited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadRequest {
    /// Queries, whose results are returned in the same order.
    pub queries: Vec<ReadQuery>,
    /// Numbers of the response types that the client accepts, in order of preference.
    accepted: Vec<u64>,
}

/// One query of a read request: a time range and matchers.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadQuery {
    /// Time range of the query, narrowed to that of its hints if there are any.
    pub range: TimeRange,
    /// Matchers, all of which a series must satisfy.
    pub matchers: Vec<Matcher>,
    /// True if only labels and no samples are requested.
    pub is_about_series: bool,
}

impl ReadRequest {
    /// Returns the first response type that the client accepts and this server supports; fails with
    /// the error text of Prometheus if there is none.
    pub fn response_type(&self) -> Result<ReadResponseType, Error> {
        if self.accepted.is_empty() {
            return Ok(ReadResponseType::Samples);
        }
        let known = self.accepted.iter().find_map(|number| match number {
            0 => Some(ReadResponseType::Samples),
            1 => Some(ReadResponseType::StreamedXorChunks),
            _ => None,
        });
        known.ok_or_else(|| {
            let accepted: Vec<_> = self
                .accepted
                .iter()
                .map(|n| (*n as i32).to_string())
                .collect();
            let message = format!(
                "server does not support any of the requested response types: [{}]; supported: \
                 map[SAMPLES:{{}} STREAMED_XOR_CHUNKS:{{}}]",
                accepted.join(" ")
            );
            Error::new(ErrorKind::Invalid, message)
        })
    }
}

/// Decodes the compressed body of a request; fails if it is malformed or exceeds a limit.
pub fn decode(body: &[u8]) -> Result<ReadRequest, Error> {
    let mut message = Vec::new();
    snappy::decompress(body, MESSAGE_BYTES_MAX, &mut message)?;
    let mut request = ReadRequest::default();
    let mut cursor = ProtobufCursor::new(&message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match (number, wire_type) {
            (field::QUERIES, _) => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                if request.queries.len() == QUERIES_MAX {
                    return Err(too_many("queries in one read", QUERIES_MAX));
                }
                request.queries.push(decode_query(cursor.read_bytes()?)?);
            }
            (field::ACCEPTED, WireType::Bytes) => {
                let mut packed = ProtobufCursor::new(cursor.read_bytes()?);
                while !packed.rest().is_empty() {
                    push_accepted(&mut request, packed.read_varint()?)?;
                }
            }
            (field::ACCEPTED, _) => {
                expect_wire_type(wire_type, WireType::Varint)?;
                push_accepted(&mut request, cursor.read_varint()?)?;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(request)
}

fn too_many(what: &str, limit: usize) -> Error {
    Error::new(
        ErrorKind::Limited,
        format!("too many {what}: limit {limit}"),
    )
}

fn push_accepted(request: &mut ReadRequest, number: u64) -> Result<(), Error> {
    if request.accepted.len() == MATCHERS_MAX {
        return Err(too_many("response types", MATCHERS_MAX));
    }
    request.accepted.push(number);
    Ok(())
}

/// The hints of a query, as far as they are used. Without hints, the whole range of the query is
/// read.
#[derive(Default)]
struct ReadHints {
    start: TimestampMs,
    end: TimestampMs,
    is_about_series: bool,
}

fn decode_query(message: &[u8]) -> Result<ReadQuery, Error> {
    let (mut start, mut end) = (0, 0);
    let mut matchers = Vec::new();
    let mut hints = None;
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::START => start = time(&mut cursor, wire_type)?,
            field::END => end = time(&mut cursor, wire_type)?,
            field::MATCHERS => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                if matchers.len() == MATCHERS_MAX {
                    return Err(too_many("matchers in one query", MATCHERS_MAX));
                }
                matchers.push(decode_matcher(cursor.read_bytes()?)?);
            }
            field::HINTS => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                hints = Some(read_hints(cursor.read_bytes()?)?);
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    if let Some(hints) = &hints {
        (start, end) = (start.max(hints.start), end.min(hints.end));
    }
    Ok(ReadQuery {
        range: TimeRange::new(start, end),
        matchers,
        is_about_series: hints.is_some_and(|hints| hints.is_about_series),
    })
}

fn time(cursor: &mut ProtobufCursor<'_>, wire_type: WireType) -> Result<TimestampMs, WireError> {
    expect_wire_type(wire_type, WireType::Varint)?;
    Ok(cursor.read_varint()? as i64)
}

fn read_hints(message: &[u8]) -> Result<ReadHints, WireError> {
    let mut hints = ReadHints::default();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::HINT_START => hints.start = time(&mut cursor, wire_type)?,
            field::HINT_END => hints.end = time(&mut cursor, wire_type)?,
            field::HINT_FUNC => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                hints.is_about_series = cursor.read_bytes()? == b"series";
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(hints)
}

fn decode_matcher(message: &[u8]) -> Result<Matcher, Error> {
    let (mut kind, mut name, mut value) = (0, &b""[..], &b""[..]);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::MATCHER_TYPE => {
                expect_wire_type(wire_type, WireType::Varint)?;
                kind = cursor.read_varint()?;
            }
            field::MATCHER_NAME => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                name = cursor.read_bytes()?;
            }
            field::MATCHER_VALUE => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                value = cursor.read_bytes()?;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    let op = match kind {
        0 => MatchOp::Equal,
        1 => MatchOp::NotEqual,
        2 => MatchOp::Regex,
        3 => MatchOp::NotRegex,
        _ => return Err(Error::new(ErrorKind::Invalid, "invalid matcher type")),
    };
    let name = std::str::from_utf8(name);
    let name = name.map_err(|_| Error::new(ErrorKind::Invalid, "label name is not UTF-8"))?;
    Matcher::new(name, op, value)
}
