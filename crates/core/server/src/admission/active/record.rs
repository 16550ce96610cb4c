//! Encoding of the file of active queries; see `docs/format/queries-active.md`.
//!
//! Invariant: decoding arbitrary bytes neither panics nor allocates more than the size of a slot. A
//! slot is one aligned page of the system's cache, and a write within one page is not interrupted
//! by the end of the process.

use firn_model::sample::TimestampMs;

/// Size of the header and of each slot, in bytes.
pub(crate) const SLOT_BYTES: usize = 4096;

/// Start of a slot without a record.
pub(super) const FREE: [u8; 4] = [0; 4];

const MAGIC: &[u8; 8] = b"FIRNACT\0";
const VERSION: u32 = 1;

/// Length and checksum before the payload of a record, in bytes.
const FRAME_BYTES: usize = 8;

/// Numbers of a record: start time, range start, range end, step, and length of the whole
/// expression.
const NUMBERS_BYTES: usize = 5 * 8;

/// Returns the offset of slot `slot` in the file.
pub(super) fn offset_of(slot: u64) -> u64 {
    (slot + 1) * SLOT_BYTES as u64
}

/// Interpretation of the first page of a file, which decides whether its slots are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActiveFileHeader {
    /// The file has this version; slots follow.
    Ours,
    /// The page is missing or contains only zeros.
    Empty,
    /// The page has other content: another version or another program.
    Foreign,
}

impl ActiveFileHeader {
    /// Returns the complete header page: magic, version, slot size and checksum, padded with zeros.
    pub(super) fn encode() -> Vec<u8> {
        let mut page = Vec::with_capacity(SLOT_BYTES);
        page.extend_from_slice(MAGIC);
        page.extend_from_slice(&VERSION.to_le_bytes());
        page.extend_from_slice(&(SLOT_BYTES as u32).to_le_bytes());
        let sum = crc32c::crc32c(&page);
        page.extend_from_slice(&sum.to_le_bytes());
        page.resize(SLOT_BYTES, 0);
        page
    }

    /// Classifies the first bytes of a file, which may be fewer than a page.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        const HEADER_BYTES: usize = 20;
        let ours = Self::encode();
        if bytes.get(..HEADER_BYTES) == Some(&ours[..HEADER_BYTES]) {
            return ActiveFileHeader::Ours;
        }
        if bytes.iter().all(|byte| *byte == 0) {
            ActiveFileHeader::Empty
        } else {
            ActiveFileHeader::Foreign
        }
    }
}

/// Evaluation range of a query. Start and end are equal for an instant query, with a step of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActiveQueryRange {
    pub(crate) start: TimestampMs,
    pub(crate) end: TimestampMs,
    pub(crate) step_ms: i64,
}

/// A record of an active query, to be encoded when the query starts. Borrows its texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveQueryRecord<'a> {
    /// Name of the endpoint that received the query.
    pub(crate) handler: &'static str,
    pub(crate) tenant: &'a str,
    pub(crate) started: TimestampMs,
    /// Evaluation range; `None` for requests without one.
    pub(crate) range: Option<ActiveQueryRange>,
    /// Query or selectors, truncated to the size of a slot.
    pub(crate) expression: &'a str,
    /// Length of the whole expression in bytes.
    pub(crate) expression_bytes: usize,
}

impl ActiveQueryRecord<'_> {
    /// Encodes the record for its slot. An expression that is too long is truncated at the end.
    pub(super) fn encode(&self) -> Vec<u8> {
        let no_range = ActiveQueryRange {
            start: TimestampMs::MIN,
            end: TimestampMs::MIN,
            step_ms: 0,
        };
        let range = self.range.unwrap_or(no_range);
        let mut out = vec![0; FRAME_BYTES];
        for number in [
            self.started,
            range.start,
            range.end,
            range.step_ms,
            self.expression_bytes as i64,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        push_short(&mut out, self.handler);
        push_short(&mut out, self.tenant);
        let room = SLOT_BYTES - out.len();
        let kept = self.expression.floor_char_boundary(room);
        out.extend_from_slice(&self.expression.as_bytes()[..kept]);
        let (frame, payload) = out.split_at_mut(FRAME_BYTES);
        frame[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        frame[4..].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        out
    }
}

/// Appends a text of at most 255 bytes. Handler names are a closed set, and tenant names have at
/// most 150 bytes.
fn push_short(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(usize::from(u8::MAX))];
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

/// A record that was found in the file at a start: a query that was active at the end of the
/// previous process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecoveredQuery {
    pub(super) handler: String,
    pub(super) tenant: String,
    pub(super) started: TimestampMs,
    pub(super) range: Option<ActiveQueryRange>,
    pub(super) expression: String,
    /// Number of bytes by which the expression was truncated.
    pub(super) cut_bytes: u64,
}

impl RecoveredQuery {
    /// Decodes a slot; `None` if it contains no valid record. Verifies length and checksum.
    pub(super) fn decode(slot: &[u8]) -> Option<Self> {
        let (length, rest) = slot.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let payload = rest.get(..u32::from_le_bytes(*length) as usize)?;
        if payload.is_empty() || crc32c::crc32c(payload) != u32::from_le_bytes(*sum) {
            return None;
        }
        let (numbers, rest) = payload.split_at_checked(NUMBERS_BYTES)?;
        let mut numbers = numbers.chunks_exact(8).map(|bytes| {
            let bytes = bytes.try_into().expect("chunks of eight bytes");
            i64::from_le_bytes(bytes)
        });
        let mut next = || numbers.next();
        let (started, start, end, step_ms) = (next()?, next()?, next()?, next()?);
        let expression_bytes = next()?;
        let (handler, rest) = split_short(rest)?;
        let (tenant, expression) = split_short(rest)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let range = ActiveQueryRange {
            start,
            end,
            step_ms,
        };
        Some(Self {
            handler: text(handler),
            tenant: text(tenant),
            started,
            range: (start != TimestampMs::MIN).then_some(range),
            cut_bytes: (expression_bytes as u64).saturating_sub(expression.len() as u64),
            expression: text(expression),
        })
    }
}

fn split_short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}
