//! Encoding of segments of the body log, version 1 (`docs/format/mirror.md`).
//!
//! ```text
//! segment = header | frame*
//! header  = "firnmir" | 1 | start u64 | CRC-32C of these 16 bytes u32
//! frame   = length of the payload u32 | CRC-32C of these 4 bytes and the payload u32 | payload
//! payload = time in ms i64 | fields u8 | { which u8 | length u16 | value }* | body
//! which   = index of a header | 255 for the counts of the body's contents; others are skipped
//! ```
//!
//! Invariant: lengths that are read from disk are validated before memory is allocated for them.

use bytes::Bytes;
use firn_model::sample::TimestampMs;
use firn_wire::remote_write::WriteRequestContents;

/// Request headers that are stored and forwarded with a body. Their order is part of the format.
pub const PASSED_HEADERS: [&str; 4] = [
    "content-type",
    "content-encoding",
    "x-prometheus-remote-write-version",
    "x-scope-orgid",
];

/// Length of a segment's header in bytes.
pub(super) const HEADER_BYTES: usize = 20;

/// Length in bytes of the prefix of a payload: its length and checksum.
pub(super) const PREFIX_BYTES: usize = 8;

const MAGIC: &[u8; 8] = b"firnmir\x01";
const TIME_BYTES: usize = 8;

/// Maximum length of a payload: the longest body that a server accepts, and its headers.
const PAYLOAD_BYTES_MAX: usize = 128 << 20;

/// Field number of the counts of a body's contents.
const CONTENTS: u8 = 255;

/// Length of this field in bytes: four counts and two times. Older versions lack the second time.
const CONTENTS_BYTES: usize = 4 * 4 + 8 + 8;

/// Length of the four counts in bytes.
const COUNTS_BYTES: usize = 4 * 4;

/// Header values with their indices in [`PASSED_HEADERS`], in the order in which they are stored.
pub type Headers = Vec<(usize, Bytes)>;

/// A received remote-write request: the part of it that is stored and forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedWrite {
    /// The headers that are stored and forwarded with the body.
    pub headers: Headers,
    /// Counts of its contents if they had been determined when it was stored, so that it need not
    /// be decoded.
    pub contents: Option<WriteRequestContents>,
    /// The compressed body, unchanged since it was received.
    pub body: Bytes,
}

impl ReceivedWrite {
    /// Returns the value of one of [`PASSED_HEADERS`] if it is valid UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(at, _)| PASSED_HEADERS.get(*at) == Some(&name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    }
}

/// A body that was read from the log, with its position and arrival time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyLogEntry {
    /// Position in the log at which its frame begins.
    pub at: u64,
    /// Position in the log at which the next frame begins.
    pub end: u64,
    /// Wall-clock time of its arrival in milliseconds since the epoch.
    pub time_ms: TimestampMs,
    /// The stored request, whose parts share the memory of the read.
    pub write: ReceivedWrite,
}

/// The result of decoding a frame at a position of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyLogFrame {
    /// A complete frame: arrival time, request and length in bytes.
    Whole(TimestampMs, ReceivedWrite, usize),
    /// The start of a frame that has this length in bytes.
    Short(usize),
    /// Not a valid frame, with a description of the fault.
    Damaged(&'static str),
}

/// Returns the header of a segment that begins at position `start`.
pub(super) fn header(start: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&start.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the length in bytes of a request's frame.
pub fn frame_bytes(write: &ReceivedWrite) -> usize {
    let headers: usize = write.headers.iter().map(|(_, value)| 3 + value.len()).sum();
    let contents = write.contents.map_or(0, |_| 3 + CONTENTS_BYTES);
    PREFIX_BYTES + TIME_BYTES + 1 + headers + contents + write.body.len()
}

/// Appends the frame of a request that arrived at `time_ms` and returns its length in bytes.
pub(super) fn push_frame(out: &mut Vec<u8>, time_ms: TimestampMs, write: &ReceivedWrite) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    out.extend_from_slice(&time_ms.to_le_bytes());
    out.push((write.headers.len() + usize::from(write.contents.is_some())) as u8);
    for (which, value) in &write.headers {
        // The server limits the head of a request to 1 MiB. No remote-write receiver evaluates
        // values longer than 64 KiB.
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        out.push(*which as u8);
        out.extend_from_slice(&(value.len() as u16).to_le_bytes());
        out.extend_from_slice(value);
    }
    if let Some(contents) = &write.contents {
        push_contents(out, contents);
    }
    out.extend_from_slice(&write.body);
    let payload = (out.len() - start - PREFIX_BYTES) as u32;
    out[start..start + 4].copy_from_slice(&payload.to_le_bytes());
    let sum = checksum(payload, &out[start + PREFIX_BYTES..]);
    out[start + 4..start + PREFIX_BYTES].copy_from_slice(&sum.to_le_bytes());
    out.len() - start
}

fn push_contents(out: &mut Vec<u8>, contents: &WriteRequestContents) {
    out.push(CONTENTS);
    out.extend_from_slice(&(CONTENTS_BYTES as u16).to_le_bytes());
    let WriteRequestContents {
        samples,
        histograms,
        exemplars,
        metadata,
        newest,
        oldest,
    } = *contents;
    for count in [samples, histograms, exemplars, metadata] {
        out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }
    out.extend_from_slice(&newest.to_le_bytes());
    out.extend_from_slice(&oldest.to_le_bytes());
}

fn read_contents(value: &[u8]) -> Option<WriteRequestContents> {
    let (counts, times) = value.split_at_checked(COUNTS_BYTES)?;
    let (counts, _) = counts.as_chunks::<4>();
    let (times, _) = times.as_chunks::<8>();
    let mut times = times.iter().map(|time| i64::from_le_bytes(*time));
    let mut counts = counts
        .iter()
        .map(|count| u64::from(u32::from_le_bytes(*count)));
    Some(WriteRequestContents {
        samples: counts.next()?,
        histograms: counts.next()?,
        exemplars: counts.next()?,
        metadata: counts.next()?,
        newest: times.next()?,
        oldest: times.next().unwrap_or(TimestampMs::MIN),
    })
}

fn checksum(length: u32, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length.to_le_bytes()), payload)
}

/// Returns the length of the frame that begins with `prefix` and its arrival time, without
/// validating the checksum.
pub(super) fn peek(prefix: &[u8]) -> Option<(usize, TimestampMs)> {
    let length = u32::from_le_bytes(*prefix.first_chunk::<4>()?) as usize;
    let time = prefix.get(PREFIX_BYTES..)?.first_chunk::<TIME_BYTES>()?;
    let is_sound = (TIME_BYTES..=PAYLOAD_BYTES_MAX).contains(&length);
    is_sound.then(|| (PREFIX_BYTES + length, i64::from_le_bytes(*time)))
}

/// Returns the counts of the contents from the frame that begins with `prefix`, if they were stored
/// and `prefix` is long enough. The checksum is not validated.
pub(super) fn peek_contents(prefix: &[u8]) -> Option<WriteRequestContents> {
    let mut rest = prefix.get(PREFIX_BYTES + TIME_BYTES..)?;
    let (count, fields) = rest.split_first()?;
    rest = fields;
    for _ in 0..*count {
        let (which, value) = rest.split_first()?;
        let (length, value) = value.split_first_chunk::<2>()?;
        let (value, behind) = value.split_at_checked(u16::from_le_bytes(*length).into())?;
        if *which == CONTENTS {
            return read_contents(value);
        }
        rest = behind;
    }
    None
}

/// Decodes the frame at `offset` of bytes that have never left this process, without validating the
/// checksum. Returns `None` at their end.
pub(super) fn own_frame(
    bytes: &Bytes,
    offset: usize,
) -> Option<(TimestampMs, ReceivedWrite, usize)> {
    let (frame_bytes, time_ms) = peek(bytes.get(offset..)?)?;
    let start = offset + PREFIX_BYTES + TIME_BYTES;
    let write = read_write(bytes, start, offset + frame_bytes)?;
    Some((time_ms, write, frame_bytes))
}

/// Decodes and validates the frame at `offset`. The parts of a complete frame share `bytes`.
pub(super) fn read_frame(bytes: &Bytes, offset: usize) -> BodyLogFrame {
    let rest = bytes.get(offset..).unwrap_or_default();
    if rest.len() < PREFIX_BYTES + TIME_BYTES {
        return BodyLogFrame::Short(PREFIX_BYTES + TIME_BYTES);
    }
    let Some((frame_bytes, time_ms)) = peek(rest) else {
        return BodyLogFrame::Damaged("the length of a body is not sound");
    };
    let Some(payload) = rest.get(PREFIX_BYTES..frame_bytes) else {
        return BodyLogFrame::Short(frame_bytes);
    };
    let sum = rest.get(4..).and_then(|sum| sum.first_chunk::<4>());
    let length = (frame_bytes - PREFIX_BYTES) as u32;
    if sum.map(|sum| u32::from_le_bytes(*sum)) != Some(checksum(length, payload)) {
        return BodyLogFrame::Damaged("the checksum of a body does not fit");
    }
    let start = offset + PREFIX_BYTES + TIME_BYTES;
    match read_write(bytes, start, offset + frame_bytes) {
        Some(write) => BodyLogFrame::Whole(time_ms, write, frame_bytes),
        None => BodyLogFrame::Damaged("the headers of a body are not sound"),
    }
}

fn read_write(bytes: &Bytes, start: usize, end: usize) -> Option<ReceivedWrite> {
    let mut at = start;
    let count = *bytes.get(at)?;
    at += 1;
    let mut headers = Vec::with_capacity(PASSED_HEADERS.len());
    let mut contents = None;
    for _ in 0..count {
        let which = usize::from(*bytes.get(at)?);
        let length = u16::from_le_bytes(*bytes.get(at + 1..)?.first_chunk::<2>()?);
        let value = at + 3..at + 3 + usize::from(length);
        if value.end > end {
            return None;
        }
        at = value.end;
        match which {
            _ if which < PASSED_HEADERS.len() => headers.push((which, bytes.slice(value))),
            _ if which == usize::from(CONTENTS) => {
                contents = Some(read_contents(bytes.get(value)?)?);
            }
            _ => {}
        }
    }
    (at <= end).then(|| ReceivedWrite {
        headers,
        contents,
        body: bytes.slice(at..end),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(body: &'static [u8]) -> ReceivedWrite {
        ReceivedWrite {
            headers: vec![
                (0, Bytes::from_static(b"application/x-protobuf")),
                (2, Bytes::from_static(b"0.1.0")),
            ],
            contents: None,
            body: Bytes::from_static(body),
        }
    }

    #[test]
    fn frame_read_back_is_what_was_written_and_a_part_of_it_is_short() {
        let mut out = vec![7; 3];
        let bytes = push_frame(&mut out, -5, &write(b"body"));
        assert_eq!(bytes, frame_bytes(&write(b"body")));
        let whole = Bytes::from(out);
        assert_eq!(
            read_frame(&whole, 3),
            BodyLogFrame::Whole(-5, write(b"body"), bytes)
        );
        for cut in 3..whole.len() {
            let part = whole.slice(..cut);
            assert!(
                matches!(read_frame(&part, 3), BodyLogFrame::Short(_)),
                "{cut}"
            );
        }
    }

    /// Returns a request with counts of its contents.
    fn known_write() -> ReceivedWrite {
        ReceivedWrite {
            contents: Some(WriteRequestContents {
                samples: 2_000,
                histograms: 3,
                exemplars: 4,
                metadata: 5,
                newest: -6,
                oldest: -7,
            }),
            ..write(b"snappy")
        }
    }

    #[test]
    fn frame_says_what_its_body_holds_if_that_is_known() {
        let mut out = Vec::new();
        let bytes = push_frame(&mut out, 1_000, &known_write());
        assert_eq!(bytes, frame_bytes(&known_write()));
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN_OF_KNOWN);
        let whole = Bytes::from(out);
        assert_eq!(
            read_frame(&whole, 0),
            BodyLogFrame::Whole(1_000, known_write(), bytes)
        );
    }

    #[test]
    fn frame_of_before_says_all_but_the_time_of_the_oldest_sample() {
        let bytes = GOLDEN_WITHOUT_OLDEST.as_bytes();
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).unwrap();
            u8::from_str_radix(pair, 16).unwrap()
        };
        let bytes: Vec<u8> = bytes.chunks(2).map(byte).collect();
        let known = known_write();
        let contents = known.contents.map(|contents| WriteRequestContents {
            oldest: TimestampMs::MIN,
            ..contents
        });
        assert_eq!(peek_contents(&bytes), contents);
        let expected = ReceivedWrite { contents, ..known };
        let read = read_frame(&bytes.clone().into(), 0);
        assert_eq!(read, BodyLogFrame::Whole(1_000, expected, bytes.len()));
    }

    #[test]
    fn frame_with_a_field_of_later_versions_is_read_without_it() {
        let mut out = Vec::new();
        push_frame(&mut out, 1_000, &known_write());
        let field = PREFIX_BYTES + TIME_BYTES + 1 + 3 + 22 + 3 + 5;
        assert_eq!(out[field], CONTENTS);
        out[field] = 200;
        let whole = Bytes::from(out);
        let read = own_frame(&whole, 0).expect("a frame");
        assert_eq!(read.1, write(b"snappy"));
    }

    #[test]
    fn frame_with_any_bit_turned_is_never_taken_for_another() {
        let mut out = Vec::new();
        push_frame(&mut out, 5, &write(b"body"));
        for bit in 0..out.len() * 8 {
            let mut bytes = out.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let frame = read_frame(&Bytes::from(bytes), 0);
            assert!(
                !matches!(frame, BodyLogFrame::Whole(..)),
                "{bit}: {frame:?}"
            );
        }
    }

    #[test]
    fn stored_bytes_are_those_of_version_1() {
        let mut out = header(258).to_vec();
        push_frame(&mut out, 1_000, &write(b"snappy"));
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }

    /// Written by this version; all later versions must be able to read it.
    const GOLDEN: &str = "6669726e6d6972010201000000000000598d60ce\
        30000000185c2966e803000000000000\
        020016006170706c69636174696f6e2f782d70726f746f627566020500302e312e30736e61707079";

    /// Written by this version, with the counts of the contents.
    const GOLDEN_OF_KNOWN: &str = "5300000093daab24e8030000000000000300\
        16006170706c69636174696f6e2f782d70726f746f627566020500302e312e30\
        ff2000d0070000030000000400000005000000fafffffffffffffff9ffffffffffffff736e61707079";

    /// Written by a version without the oldest timestamp.
    const GOLDEN_WITHOUT_OLDEST: &str = "4b000000e9412d59e8030000000000000300\
        16006170706c69636174696f6e2f782d70726f746f627566020500302e312e30\
        ff1800d0070000030000000400000005000000faffffffffffffff736e61707079";
}
