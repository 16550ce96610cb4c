//! Times of packs: how far each is from a line, or the codes that they were.
//!
//! The line goes on from the newest time before the pack by one distance a sample. A scrape that is
//! late now and then lies a few milliseconds behind it, so that times decode several to a word and
//! none waits for a branch; where a scrape is missing the line is far off, and codes are shorter.
//!
//! ```text
//! times = one for each pack:
//!   00..38       how far each is behind the line, of so many bits
//!   40 | these   behind it a uvarint, the zigzag of what all of them are behind the line at least
//!   80 | these   before that a uvarint, the zigzag of what the line's distance is more than the
//!                one between the newest times before the pack
//!   39           codes, whose last run ends with the pack
//! ```

use super::{FIRST_MAX, WIDTH, WIDTH_MAX, apart, read_packed};
use crate::encoding::bits::{push_bits, unpack};
use crate::encoding::cursor::Cursor;
use crate::encoding::sink::{Buffer, Sink};
use crate::encoding::time::{self, TimeState};
use crate::encoding::varint::bit_len;
use crate::encoding::{Malformed, push_uvarint, unzigzag, zigzag};
use firn_model::sample::TimestampMs;

const LOW: u8 = 0x40;
const DISTANCE: u8 = 0x80;
const CODES: u8 = 0x39;

/// How many more bytes than its codes a line may take: it decodes several times as fast.
const DEARER_BYTES: usize = 4;

/// Appends a pack's times, of which it is known how the distance changes to each, as zigzag.
pub(super) fn push(changes: &[u64], out: &mut impl Sink) {
    let mut codes = Buffer::<{ FIRST_MAX * 9 + 1 }>::default();
    codes.put(CODES);
    let mut run = 0;
    for change in changes {
        time::push_change(&mut codes, &mut run, *change);
    }
    let mut line = Buffer::<{ FIRST_MAX * 7 + 32 }>::default();
    let is_narrow = Line::of(changes).write(&mut line);
    let (codes, line) = (codes.as_bytes(), line.as_bytes());
    // Codes have one more, which says that they are codes.
    let bytes = match is_narrow && line.len() < codes.len() + DEARER_BYTES {
        true => line,
        false => codes,
    };
    bytes.iter().for_each(|byte| out.put(*byte));
}

/// A line and how far times are behind it.
struct Line {
    /// What its distance is more than the one before the pack.
    distance: i64,
    behind: [i64; FIRST_MAX],
    samples: usize,
}

impl Line {
    /// The line of the middle one of all distances.
    fn of(changes: &[u64]) -> Self {
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

    /// Writes it, if its numbers are not too wide.
    fn write(&self, out: &mut impl Sink) -> bool {
        let behind = &self.behind[..self.samples];
        let low = behind.iter().copied().min().unwrap_or(0);
        let numbers = |low: i64| behind.iter().map(move |at| at.wrapping_sub(low) as u64);
        let width = |low: i64| bit_len(numbers(low).fold(0, |any, number| any | number));
        // Nothing is taken off where that saves nothing.
        let (whole, above_low) = (width(0), width(low));
        let (low, width) = match above_low < whole {
            true => (low, above_low),
            false => (0, whole),
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

/// Reads a time for each place of `out`; `state` goes on as if it had read their codes.
pub(in crate::chunk) fn read(
    bytes: &[u8],
    state: &mut TimeState,
    out: &mut [TimestampMs],
) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(bytes);
    let (first, others) = apart(out)?;
    one(&mut cursor, state, first)?;
    for sixteen in others {
        one(&mut cursor, state, sixteen)?;
    }
    Ok(())
}

#[inline]
fn one(
    cursor: &mut Cursor<'_>,
    state: &mut TimeState,
    out: &mut [TimestampMs],
) -> Result<(), Malformed> {
    let head = cursor.byte()?;
    if head == CODES {
        return codes(cursor, state, out);
    }
    let mut number = |flag: u8| match head & flag {
        0 => Ok(0),
        _ => cursor.uvarint().map(unzigzag),
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

fn codes(
    cursor: &mut Cursor<'_>,
    state: &mut TimeState,
    out: &mut [TimestampMs],
) -> Result<(), Malformed> {
    let mut repeats = 0;
    for out in out {
        if repeats == 0 {
            repeats = state.apply(cursor.byte()?, cursor)?;
        }
        if repeats > 0 {
            repeats -= 1;
            state.repeat();
        }
        *out = state.time;
    }
    Ok(())
}
