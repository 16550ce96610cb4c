//! Times of packs: their distances from a line, or the original codes.
//!
//! The line continues from the newest time before the pack with a constant interval per sample. A
//! scrape that is sometimes late has times a few milliseconds after the line, so that a word
//! contains several times and decoding needs no branches. If a scrape is missing, the line is far
//! off and the codes are shorter.
//!
//! ```text
//! times = one for each pack:
//!   00..38       distance of each after the line; the byte is the number of bits of each
//!   40 | these   followed by a uvarint, the zigzag of the minimum distance of all of them
//!   80 | these   preceded by a uvarint, the zigzag of the difference between the interval of the
//!                line and the one between the newest times before the pack
//!   39           codes, whose last run ends with the pack
//! ```

use super::{FIRST_MAX, WIDTH, WIDTH_MAX, read_packed, split_packs};
use crate::encoding::bits::{push_bits, unpack};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::sink::{EncodeBuffer, EncodeSink};
use crate::encoding::time::{self, TimeState};
use crate::encoding::varint::bit_len;
use crate::encoding::{DecodeError, push_uvarint, unzigzag, zigzag};
use firn_model::sample::TimestampMs;

const LOW: u8 = 0x40;
const DISTANCE: u8 = 0x80;
const CODES: u8 = 0x39;

/// Maximum number of bytes by which a line may exceed its codes: it decodes several times as fast.
const DEARER_BYTES: usize = 4;

/// Appends the times of a pack. `changes` are the zigzags of the change of the interval at each
/// sample.
pub(super) fn push(changes: &[u64], out: &mut impl EncodeSink) {
    let mut codes = EncodeBuffer::<{ FIRST_MAX * 9 + 1 }>::default();
    codes.put(CODES);
    let mut run = 0;
    for change in changes {
        time::push_change(&mut codes, &mut run, *change);
    }
    let mut line = EncodeBuffer::<{ FIRST_MAX * 7 + 32 }>::default();
    let is_narrow = PackTimesLine::from_changes(changes).write(&mut line);
    let (codes, line) = (codes.as_bytes(), line.as_bytes());
    // Codes have one more byte, which marks them as codes.
    let bytes = if is_narrow && line.len() < codes.len() + DEARER_BYTES {
        line
    } else {
        codes
    };
    bytes.iter().for_each(|byte| out.put(*byte));
}

/// A line, and the distances of the times from it.
struct PackTimesLine {
    /// Difference between the interval of the line and the last interval before the pack.
    distance: i64,
    behind: [i64; FIRST_MAX],
    samples: usize,
}

impl PackTimesLine {
    /// Returns the line with the median of all intervals.
    fn from_changes(changes: &[u64]) -> Self {
        let (mut behind, samples) = ([0; FIRST_MAX], changes.len());
        let mut distance = 0i64;
        for (behind, change) in behind.iter_mut().zip(changes) {
            distance = distance.wrapping_add(unzigzag(*change));
            *behind = distance;
        }
        let mut distances = behind;
        let middle = distances[..samples].select_nth_unstable(samples / 2);
        let distance = *middle.1;
        let mut sum = 0i64;
        for behind in &mut behind[..samples] {
            sum = sum.wrapping_add(behind.wrapping_sub(distance));
            *behind = sum;
        }
        Self {
            distance,
            behind,
            samples,
        }
    }

    /// Writes the line. Returns false if its numbers are too wide.
    fn write(&self, out: &mut impl EncodeSink) -> bool {
        let behind = &self.behind[..self.samples];
        let low = behind.iter().copied().min().unwrap_or(0);
        let numbers = |low: i64| behind.iter().map(move |at| at.wrapping_sub(low) as u64);
        let width = |low: i64| bit_len(numbers(low).fold(0, |any, number| any | number));
        // No minimum is subtracted if that saves nothing.
        let (whole, above_low) = (width(0), width(low));
        let (low, width) = if above_low < whole {
            (low, above_low)
        } else {
            (0, whole)
        };
        if width > WIDTH_MAX {
            return false;
        }
        let flag = |flag: u8, number: i64| if number == 0 { 0 } else { flag };
        out.put(width as u8 | flag(LOW, low) | flag(DISTANCE, self.distance));
        for number in [self.distance, low] {
            if number != 0 {
                push_uvarint(out, zigzag(number));
            }
        }
        push_bits(out, width, numbers(low));
        true
    }
}

/// Decodes a time for each place of `out`. `state` is then the same as after decoding the original
/// codes.
pub(in crate::chunk) fn decode_times(
    bytes: &[u8],
    state: &mut TimeState,
    out: &mut [TimestampMs],
) -> Result<(), DecodeError> {
    let mut cursor = DecodeCursor::new(bytes);
    let (first, others) = split_packs(out)?;
    decode_pack(&mut cursor, state, first)?;
    for sixteen in others {
        decode_pack(&mut cursor, state, sixteen)?;
    }
    Ok(())
}

/// Decodes the times of one pack, which fill `out` exactly.
#[inline]
fn decode_pack(
    cursor: &mut DecodeCursor<'_>,
    state: &mut TimeState,
    out: &mut [TimestampMs],
) -> Result<(), DecodeError> {
    let head = cursor.read_byte()?;
    if head == CODES {
        return decode_codes(cursor, state, out);
    }
    let mut number = |flag: u8| match head & flag {
        0 => Ok(0),
        _ => cursor.read_uvarint().map(unzigzag),
    };
    let distance = state.delta.wrapping_add(number(DISTANCE)?);
    let time = state.time.wrapping_add(number(LOW)?);
    let width = usize::from(head & WIDTH);
    let behind = read_packed(cursor, width, out.len())?;
    let mut line = time;
    unpack(behind, width, out, |behind| {
        line = line.wrapping_add(distance);
        line.wrapping_add(behind as i64)
    });
    if let [.., before, time] = *out {
        let delta = time.wrapping_sub(before);
        *state = TimeState { time, delta };
    }
    Ok(())
}

/// Decodes the times of a pack that consists of the original codes.
fn decode_codes(
    cursor: &mut DecodeCursor<'_>,
    state: &mut TimeState,
    out: &mut [TimestampMs],
) -> Result<(), DecodeError> {
    let mut repeats = 0;
    for out in out {
        if repeats == 0 {
            repeats = state.apply_op(cursor.read_byte()?, cursor)?;
        }
        if repeats > 0 {
            repeats -= 1;
            state.repeat_delta();
        }
        *out = state.time;
    }
    Ok(())
}
