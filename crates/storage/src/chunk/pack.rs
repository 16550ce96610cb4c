//! Packs: the codes of some sixteen consecutive floats, written again so that they decode many at a
//! time.
//!
//! Times and values part. Times become distances from a line ([`times`]), the same bytes for series
//! that were scraped together: a reader of one after the other follows them once. Values
//! become steps of as many bits as the widest needs. Invariant: what was packed decodes to the same
//! samples and leaves the decoder in the same state as the codes did.
//!
//! ```text
//! packs  = f9 | samples u15, is raw u1 | bytes of times u16 | bytes of values u16 | times | values
//! values = one for each pack:
//!   00..38       no step is negative, each of so many bits
//!   40..78       the same for zigzags of steps
//!   80 | these   behind it a uvarint, the zigzag of the first step, 0 among the others
//!   39 SS        the scale is SS from here on, the integer before is 0; one of the above follows
//!   3a           codes, a run for each value that repeats
//!   3b           steps not of the integer but of the order of the bits; one of the above follows
//! ```

pub(super) mod times;
pub(super) mod values;
mod write;

pub(super) use write::Pack;

use crate::encoding::Malformed;
use crate::encoding::bits::BITS_MAX;
use crate::encoding::cursor::Cursor;

/// Samples of a pack, but for the first of a chunk.
const SAMPLES: usize = 16;

/// The first pack has at least so many: what comes with packs is paid for by then.
const FIRST_MIN: usize = 9;

/// The first pack has at most so many.
const FIRST_MAX: usize = FIRST_MIN + SAMPLES - 1;

const FIRST_TIME_BYTES: usize = 8;

/// Operation behind the first time: packs follow.
const PACKED: u8 = 0xf9;

/// Bytes that say how much packs hold.
const HEADER_BYTES: usize = 6;

/// Bits of a step at most.
const WIDTH_MAX: usize = BITS_MAX as usize;

const WIDTH: u8 = 0x3f;
const ZIGZAG: u8 = 0x40;
const FIRST_APART: u8 = 0x80;
const SCALE: u8 = 0x39;
const CODES: u8 = 0x3a;
const ORDERED: u8 = 0x3b;

/// In the number of samples: the newest value is not what the integer and the scale say.
const RAW: u16 = 1 << 15;

/// How many more bytes than its codes a pack of steps may take: it decodes several times as fast.
const DEARER_BYTES: usize = 8;

/// How much the packs of a body hold. They lie behind the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packs {
    /// Samples; without any there are no packs, nor anything that says so.
    pub(super) samples: usize,
    /// Bytes of their times.
    times: usize,
    /// Bytes of their values.
    values: usize,
    is_raw: bool,
}

impl Packs {
    /// Those of a body that is whole or none.
    pub(super) fn find(body: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body.get(FIRST_TIME_BYTES..).unwrap_or(&[]));
        match cursor.rest().first() {
            Some(&PACKED) => {
                cursor.byte()?;
                Self::read(cursor.number(HEADER_BYTES)?)
            }
            _ => Ok(Self::default()),
        }
    }

    fn read(word: u64) -> Result<Self, Malformed> {
        let samples = word as u16;
        let packs = Self {
            samples: usize::from(samples & !RAW),
            times: usize::from((word >> 16) as u16),
            values: usize::from((word >> 32) as u16),
            is_raw: samples & RAW != 0,
        };
        // Each pack has a byte of values: memory for samples is taken by this number.
        match packs.samples.checked_sub(FIRST_MIN) {
            Some(behind) if behind / SAMPLES < packs.values => Ok(packs),
            _ => Err(Malformed("packs without their values")),
        }
    }

    fn word(self) -> u64 {
        let raw = if self.is_raw { RAW } else { 0 };
        let samples = u64::from(self.samples as u16 | raw);
        samples | (self.times as u64) << 16 | (self.values as u64) << 32
    }

    /// The packs with `pack` behind the others; `None` if the header cannot count them.
    pub(super) fn with(self, pack: &Pack, is_raw: bool) -> Option<Self> {
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

    /// Where the codes behind them begin in a body.
    pub(super) fn end(self) -> usize {
        match self.samples {
            0 => FIRST_TIME_BYTES,
            _ => self.values_at() + self.values,
        }
    }

    /// Puts `pack` into `body`, which held `before` and is long enough for these.
    pub(super) fn insert(self, before: Self, pack: &Pack, body: &mut [u8]) {
        let (old, new) = (before.values_at(), self.values_at());
        body.copy_within(old..old + before.values, new);
        body[new + before.values..self.end()].copy_from_slice(pack.values.as_bytes());
        body[old..new].copy_from_slice(pack.times.as_bytes());
        body[FIRST_TIME_BYTES] = PACKED;
        let word = &self.word().to_le_bytes()[..HEADER_BYTES];
        body[FIRST_TIME_BYTES + 1..][..HEADER_BYTES].copy_from_slice(word);
    }

    /// The bytes of times and those of values, in the body in which they were found.
    pub(super) fn bytes(self, body: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
        let all = body.get(..self.end()).ok_or(Malformed("packs cut short"))?;
        let (times, values) = all.split_at(self.values_at());
        Ok((&times[self.values_at() - self.times..], values))
    }
}

/// Whether a chunk of `samples` samples should pack now. Chunks of one `phase` pack at the same
/// samples, so that equal times have equal bytes; other phases pack at other samples, so that the
/// work is spread over scrapes.
#[inline]
pub(super) fn is_due(samples: usize, phase: u32) -> bool {
    (samples + phase as usize).is_multiple_of(SAMPLES)
}

/// Cuts `out` into the places of the first pack and those of each other pack.
#[inline]
fn apart<T>(out: &mut [T]) -> Result<(&mut [T], &mut [[T; SAMPLES]]), Malformed> {
    let Some(behind) = out.len().checked_sub(FIRST_MIN) else {
        return Err(Malformed("too few samples in packs"));
    };
    let (first, others) = out.split_at_mut(FIRST_MIN + behind % SAMPLES);
    Ok((first, others.as_chunks_mut().0))
}

/// Passes over as many numbers of `width` bits; returns bytes that begin with them.
#[inline]
fn read_packed<'a>(
    cursor: &mut Cursor<'a>,
    width: usize,
    numbers: usize,
) -> Result<&'a [u8], Malformed> {
    if width > WIDTH_MAX {
        return Err(Malformed("unknown pack"));
    }
    let bytes = cursor.rest();
    cursor.bytes((width * numbers).div_ceil(8))?;
    Ok(bytes)
}
