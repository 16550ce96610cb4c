//! Packs: about sixteen consecutive floats, encoded again so that they can be decoded many at a
//! time.
//!
//! Times and values are stored separately. Times are stored as their distance from a line
//! ([`times`]), which gives the same bytes for series that were scraped together, so that a reader
//! of several series decodes them once. Values are stored as steps with as many bits as the widest
//! step needs. Invariant: a pack decodes to the same samples as the codes it replaces, and leaves
//! the decoder in the same state.
//!
//! ```text
//! packs  = f9 | samples u15, is raw u1 | bytes of times u16 | bytes of values u16 | times | values
//! values = one for each pack:
//!   00..38       steps, none negative; the byte is the number of bits of each
//!   40..78       the same for zigzags of steps
//!   80 | these   followed by a uvarint, the zigzag of the first step, which is 0 among the others
//!   39 SS        the scale is SS from here on, the integer before is 0; one of the above follows
//!   3a           codes, a run for each value that repeats
//!   3b           steps of the order of the bits, not of the integer; one of the above follows
//! ```

pub(super) mod times;
pub(super) mod values;
mod write;

pub(super) use write::EncodedPack;

use crate::encoding::DecodeError;
use crate::encoding::bits::BITS_MAX;
use crate::encoding::cursor::DecodeCursor;

/// Number of samples of a pack, except for the first one of a chunk.
const SAMPLES: usize = 16;

/// Minimum number of samples of the first pack, at which packs save more than they cost.
const FIRST_MIN: usize = 9;

/// Maximum number of samples of the first pack.
const FIRST_MAX: usize = FIRST_MIN + SAMPLES - 1;

const FIRST_TIME_BYTES: usize = 8;

/// Operation after the first time: packs follow.
const PACKED: u8 = 0xf9;

/// Bytes of the header of the packs.
const HEADER_BYTES: usize = 6;

/// Maximum number of bits of a step.
const WIDTH_MAX: usize = BITS_MAX as usize;

const WIDTH: u8 = 0x3f;
const ZIGZAG: u8 = 0x40;
const FIRST_APART: u8 = 0x80;
const SCALE: u8 = 0x39;
const CODES: u8 = 0x3a;
const ORDERED: u8 = 0x3b;

/// Flag in the number of samples: the newest value is not given by the integer and the scale.
const RAW: u16 = 1 << 15;

/// Maximum number of bytes by which a pack of steps may exceed its codes: it decodes several times
/// as fast.
const DEARER_BYTES: usize = 8;

/// Header of the packs of a body, which follow the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PacksHeader {
    /// Number of samples; zero if the body has no packs and no header.
    pub(super) samples: usize,
    /// Bytes of the encoded times.
    times: usize,
    /// Bytes of the encoded values.
    values: usize,
    is_raw: bool,
}

impl PacksHeader {
    /// Reads the header of a body, which may be empty.
    pub(super) fn find(body: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(body.get(FIRST_TIME_BYTES..).unwrap_or(&[]));
        match cursor.rest().first() {
            Some(&PACKED) => {
                cursor.read_byte()?;
                Self::read(cursor.read_number(HEADER_BYTES)?)
            }
            _ => Ok(Self::default()),
        }
    }

    fn read(word: u64) -> Result<Self, DecodeError> {
        let samples = word as u16;
        let packs = Self {
            samples: usize::from(samples & !RAW),
            times: usize::from((word >> 16) as u16),
            values: usize::from((word >> 32) as u16),
            is_raw: samples & RAW != 0,
        };
        // Each pack has at least a byte of values. The number of samples determines an allocation,
        // so it is checked against that.
        match packs.samples.checked_sub(FIRST_MIN) {
            Some(behind) if behind / SAMPLES < packs.values => Ok(packs),
            _ => Err(DecodeError("packs without their values")),
        }
    }

    fn word(self) -> u64 {
        let raw = if self.is_raw { RAW } else { 0 };
        let samples = u64::from(self.samples as u16 | raw);
        samples | (self.times as u64) << 16 | (self.values as u64) << 32
    }

    /// Returns the header after appending `pack`, or `None` if its fields would overflow.
    pub(super) fn with_pack(self, pack: &EncodedPack, is_raw: bool) -> Option<Self> {
        let with = Self {
            samples: self.samples + pack.samples,
            times: self.times + pack.times.as_bytes().len(),
            values: self.values + pack.values.as_bytes().len(),
            is_raw,
        };
        let most = with.samples.max(with.times).max(with.values);
        (most < usize::from(RAW)).then_some(with)
    }

    fn values_at(self) -> usize {
        FIRST_TIME_BYTES + 1 + HEADER_BYTES + self.times
    }

    /// Returns the offset of the codes after the packs in a body.
    pub(super) fn end(self) -> usize {
        match self.samples {
            0 => FIRST_TIME_BYTES,
            _ => self.values_at() + self.values,
        }
    }

    /// Inserts `pack` into `body`, whose packs are described by `before`. The body must be long
    /// enough for the new header `self`.
    pub(super) fn insert(self, before: Self, pack: &EncodedPack, body: &mut [u8]) {
        let (old, new) = (before.values_at(), self.values_at());
        body.copy_within(old..old + before.values, new);
        body[new + before.values..self.end()].copy_from_slice(pack.values.as_bytes());
        body[old..new].copy_from_slice(pack.times.as_bytes());
        body[FIRST_TIME_BYTES] = PACKED;
        let word = &self.word().to_le_bytes()[..HEADER_BYTES];
        body[FIRST_TIME_BYTES + 1..][..HEADER_BYTES].copy_from_slice(word);
    }

    /// Returns the bytes of the times and those of the values in `body`.
    pub(super) fn bytes(self, body: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
        let all = body
            .get(..self.end())
            .ok_or(DecodeError("packs cut short"))?;
        let (times, values) = all.split_at(self.values_at());
        Ok((&times[self.values_at() - self.times..], values))
    }
}

/// Returns whether a chunk of `samples` samples should pack now. Chunks of one `phase` pack at the
/// same samples, so that equal times have equal bytes. Other phases pack at other samples, so that
/// the work is spread over the scrapes.
#[inline]
pub(super) fn is_due(samples: usize, phase: u32) -> bool {
    (samples + phase as usize).is_multiple_of(SAMPLES)
}

/// Splits `out` into the places of the first pack and those of each further pack.
#[inline]
fn split_packs<T>(out: &mut [T]) -> Result<(&mut [T], &mut [[T; SAMPLES]]), DecodeError> {
    let Some(behind) = out.len().checked_sub(FIRST_MIN) else {
        return Err(DecodeError("too few samples in packs"));
    };
    let (first, others) = out.split_at_mut(FIRST_MIN + behind % SAMPLES);
    Ok((first, others.as_chunks_mut().0))
}

/// Skips as many `numbers` of `width` bits. Returns bytes that begin with them.
#[inline]
fn read_packed<'a>(
    cursor: &mut DecodeCursor<'a>,
    width: usize,
    numbers: usize,
) -> Result<&'a [u8], DecodeError> {
    if width > WIDTH_MAX {
        return Err(DecodeError("unknown pack"));
    }
    let bytes = cursor.rest();
    cursor.read_bytes((width * numbers).div_ceil(8))?;
    Ok(bytes)
}
