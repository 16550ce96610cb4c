//! Encodes the read requests that this server sends to others.

use super::field;
use crate::protobuf::{put_bytes, put_integer};
use crate::snappy;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;

/// The accepted response types in order of preference: chunks, then samples.
const ACCEPTED: [u8; 2] = [1, 0];

/// A read request with one query, which this server sends to a remote-read endpoint. Both response
/// types are accepted.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingReadRequest<'a> {
    /// Time range of the query, both ends included.
    pub range: TimeRange,
    /// Matchers, all of which a series must satisfy.
    pub matchers: &'a [Matcher],
    /// True if only labels and no samples are requested.
    pub is_about_series: bool,
}

impl OutgoingReadRequest<'_> {
    /// Encodes the body of the request, compressed with snappy.
    pub fn encode(&self) -> Vec<u8> {
        let (start, end) = (self.range.min as u64, self.range.max as u64);
        let (mut query, mut part) = (Vec::new(), Vec::new());
        put_integer(&mut query, field::START, start);
        put_integer(&mut query, field::END, end);
        for matcher in self.matchers {
            part.clear();
            put_integer(
                &mut part,
                field::MATCHER_TYPE,
                match_op_number(matcher.op()),
            );
            put_bytes(&mut part, field::MATCHER_NAME, matcher.name().as_bytes());
            put_bytes(&mut part, field::MATCHER_VALUE, matcher.value());
            put_bytes(&mut query, field::MATCHERS, &part);
        }
        if self.is_about_series {
            part.clear();
            put_bytes(&mut part, field::HINT_FUNC, b"series");
            put_integer(&mut part, field::HINT_START, start);
            put_integer(&mut part, field::HINT_END, end);
            put_bytes(&mut query, field::HINTS, &part);
        }
        let mut message = Vec::new();
        put_bytes(&mut message, field::QUERIES, &query);
        put_bytes(&mut message, field::ACCEPTED, &ACCEPTED);
        snappy::compress(&message)
    }
}

fn match_op_number(op: MatchOp) -> u64 {
    match op {
        MatchOp::Equal => 0,
        MatchOp::NotEqual => 1,
        MatchOp::Regex => 2,
        MatchOp::NotRegex => 3,
    }
}
