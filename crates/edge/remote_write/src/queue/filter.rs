//! Selects the series of a body that a target receives: those that match, or a share of all.
//!
//! A share is determined by the hash of a series' labels. The choice for a series is therefore the
//! same on all targets and after all restarts, and a smaller share is a subset of each larger one.
//! Filtering decodes the body; a target that receives everything needs no decoding.

use super::bodies::ReceivedWrite;
use super::target::{Request, RequestParcel, RequestPreparer, WantedBodies};
use bytes::Bytes;
use firn_model::matcher::Matcher;
use firn_wire::remote_write::{MergedRequestBounds, WriteRequestContents};
use firn_wire::snappy;
use firn_wire::thinning::{self, Pair, ThinnedMessage, WriteMessageType};

/// The series that a target of `firn mirror` receives: those that matchers select, and a share of
/// them.
#[derive(Clone, Debug)]
pub struct TargetSeriesFilter {
    /// Sets of matchers. A series is selected if all matchers of one set match, or if there are no
    /// sets.
    pub matchers: Vec<Vec<Matcher>>,
    /// Share of the selected series that is sent, from 0 to 1.
    pub ratio: f64,
}

impl Default for TargetSeriesFilter {
    fn default() -> Self {
        Self {
            matchers: Vec::new(),
            ratio: 1.0,
        }
    }
}

/// Returns the message type of a request according to its `Content-Type` header.
pub fn message_type(write: &ReceivedWrite) -> WriteMessageType {
    let content_type = write.header("content-type").unwrap_or_default();
    let is_v2 = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or_default();
        name.trim() == "proto" && value.trim().trim_matches('"') == "io.prometheus.write.v2.Request"
    };
    if content_type.split(';').skip(1).any(is_v2) {
        WriteMessageType::V2
    } else {
        WriteMessageType::V1
    }
}

/// Decompresses the message of a request, which may have at most `bytes_max` bytes. Fails with the
/// reason for the log.
pub fn unpack(write: &ReceivedWrite, bytes_max: usize) -> Result<Vec<u8>, String> {
    match write.header("content-encoding") {
        None | Some("" | "snappy") => {}
        Some(other) => {
            return Err(format!(
                "content encoding {other:?} is not supported: expected snappy"
            ));
        }
    }
    let mut message = Vec::new();
    let unpacked = snappy::decompress(&write.body, bytes_max, &mut message);
    unpacked.map(|()| message).map_err(|e| e.to_string())
}

impl TargetSeriesFilter {
    /// Returns whether all series are selected, so that bodies need not be decoded.
    pub fn is_open(&self) -> bool {
        self.matchers.is_empty() && self.ratio >= 1.0
    }

    /// Returns the selected part of `write`, whose message may have at most `bytes_max` bytes.
    fn apply(&self, write: &ReceivedWrite, bytes_max: usize) -> WantedBodies {
        if self.is_open() {
            return with_body(write, write.body.clone());
        }
        let message = match unpack(write, bytes_max) {
            Ok(message) => message,
            Err(why) => return WantedBodies::Unreadable(why),
        };
        match thinning::thin(&message, message_type(write), |pairs| {
            self.matches_series(pairs)
        }) {
            Ok(ThinnedMessage::Whole) => with_body(write, write.body.clone()),
            Ok(ThinnedMessage::Part(part)) => with_body(write, snappy::compress(&part).into()),
            Ok(ThinnedMessage::Nothing) => WantedBodies::Nothing,
            Err(e) => WantedBodies::Unreadable(e.to_string()),
        }
    }

    fn matches_series(&self, pairs: &mut [Pair<'_>]) -> bool {
        let value = |name: &str| {
            let found = pairs.iter().find(|(n, _)| *n == name.as_bytes());
            found.map_or(&b""[..], |(_, value)| value)
        };
        let all_match = |set: &Vec<Matcher>| {
            set.iter()
                .all(|matcher| matcher.matches(value(matcher.name())))
        };
        if !self.matchers.is_empty() && !self.matchers.iter().any(all_match) {
            return false;
        }
        self.ratio >= 1.0 || is_in_share(pairs, self.ratio)
    }
}

impl RequestPreparer for TargetSeriesFilter {
    fn is_quick(&self, _writes: &[&ReceivedWrite], _is_behind: bool) -> bool {
        self.is_open()
    }

    fn prepare(
        &self,
        writes: &[&ReceivedWrite],
        bytes_max: usize,
        _is_behind: bool,
    ) -> Vec<RequestParcel> {
        let parcel = |write: &&ReceivedWrite| RequestParcel {
            bodies: 1,
            wanted: self.apply(write, bytes_max),
            dropped: WriteRequestContents::default(),
            is_full: true,
        };
        writes.iter().map(parcel).collect()
    }
}

/// Returns one request with the headers of `write` and the given body.
fn with_body(write: &ReceivedWrite, body: Bytes) -> WantedBodies {
    let write = ReceivedWrite {
        headers: write.headers.clone(),
        contents: None,
        body,
    };
    WantedBodies::Lanes(vec![vec![Request {
        write,
        contents: WriteRequestContents::default(),
        seams: MergedRequestBounds::None,
    }]])
}

/// Returns whether the hash of these labels is in the first `ratio` of all hashes.
fn is_in_share(pairs: &mut [Pair<'_>], ratio: f64) -> bool {
    if !pairs.is_sorted() {
        pairs.sort_unstable();
    }
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for (name, value) in pairs.iter() {
        hasher.update(name);
        hasher.update(b"\xff");
        hasher.update(value);
        hasher.update(b"\xff");
    }
    // The upper 53 bits are converted to a fraction exactly.
    let fraction = (hasher.digest() >> 11) as f64 / (1u64 << 53) as f64;
    fraction < ratio
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::matcher::MatchOp;

    const LIMIT: usize = 1 << 20;

    /// Returns a request of version 1.0 with the series `m{i="..."}`, with sorted or unsorted
    /// labels.
    fn request(series: impl Iterator<Item = u32>, is_sorted: bool) -> ReceivedWrite {
        let mut message = Vec::new();
        for i in series {
            let mut labels = [("__name__", "m".to_owned()), ("i", i.to_string())].map(label);
            if !is_sorted {
                labels.reverse();
            }
            push_message(&mut message, 1, &labels.concat());
        }
        ReceivedWrite {
            headers: Vec::new(),
            contents: None,
            body: snappy::compress(&message).into(),
        }
    }

    /// Appends a length-delimited field: a string or a message, shorter than 128 bytes.
    fn push_message(out: &mut Vec<u8>, field: u8, message: &[u8]) {
        let length = u8::try_from(message.len()).unwrap();
        assert!(length < 128, "the length is one byte");
        out.extend_from_slice(&[field << 3 | 2, length]);
        out.extend_from_slice(message);
    }

    fn label((name, value): (&str, String)) -> Vec<u8> {
        let (mut label, mut field) = (Vec::new(), Vec::new());
        push_message(&mut label, 1, name.as_bytes());
        push_message(&mut label, 2, value.as_bytes());
        push_message(&mut field, 1, &label);
        field
    }

    fn matching(name: &str, op: MatchOp, value: &str) -> TargetSeriesFilter {
        TargetSeriesFilter {
            matchers: vec![vec![Matcher::new(name, op, value.as_bytes()).unwrap()]],
            ..TargetSeriesFilter::default()
        }
    }

    /// Returns the numbers of the series that pass the filter.
    fn left(filter: &TargetSeriesFilter, is_sorted: bool) -> Vec<u32> {
        let is_left = |i: &u32| {
            let one = request(std::iter::once(*i), is_sorted);
            filter.apply(&one, LIMIT) == with_body(&one, one.body.clone())
        };
        (0..1000).filter(is_left).collect()
    }

    #[test]
    fn filter_by_matchers_sends_what_matches_one_of_them() {
        let all = request(0..30, true);
        let mut filter = matching("i", MatchOp::Regex, "1.");
        let expected = request(10..20, true).body;
        assert_eq!(filter.apply(&all, LIMIT), with_body(&all, expected));
        // An absent label matches like an empty one.
        let more = matching("absent", MatchOp::Equal, "");
        filter.matchers.extend(more.matchers);
        assert_eq!(filter.apply(&all, LIMIT), with_body(&all, all.body.clone()));
        let none = matching("i", MatchOp::Equal, "x");
        assert_eq!(none.apply(&all, LIMIT), WantedBodies::Nothing);
    }

    #[test]
    fn share_of_series_is_a_part_of_every_larger_one_whatever_the_order_of_labels() {
        let share = |ratio| TargetSeriesFilter {
            matchers: Vec::new(),
            ratio,
        };
        let (tenth, half) = (left(&share(0.1), true), left(&share(0.5), true));
        assert!((70..130).contains(&tenth.len()), "{}", tenth.len());
        assert!((430..570).contains(&half.len()), "{}", half.len());
        assert!(tenth.iter().all(|i| half.contains(i)));
        assert_eq!(left(&share(0.1), false), tenth);
        assert!(left(&share(0.0), true).is_empty());
        assert_eq!(left(&share(1.0), true).len(), 1000);
    }

    #[test]
    fn body_that_cannot_be_read_is_named_unless_all_is_sent() {
        let broken = ReceivedWrite {
            headers: Vec::new(),
            contents: None,
            body: Bytes::from_static(b"\xff\xff\xff\xff\xff"),
        };
        let whole = with_body(&broken, broken.body.clone());
        assert_eq!(TargetSeriesFilter::default().apply(&broken, LIMIT), whole);
        let filter = matching("i", MatchOp::Equal, "x");
        let unreadable = |write: &ReceivedWrite| {
            matches!(filter.apply(write, LIMIT), WantedBodies::Unreadable(_))
        };
        assert!(unreadable(&broken));
        let zstd = ReceivedWrite {
            headers: vec![(1, Bytes::from_static(b"zstd"))],
            ..request(0..1, true)
        };
        assert!(unreadable(&zstd));
    }
}
