//! Runs of integers: stored relative to the smallest one, to the previous one, or to a line through
//! the two previous ones, divided by a common divisor, and packed in vectors.
//!
//! ```text
//! run = tag u8 | .. | base | first if DELTA2 | low unless PLAIN | [step varint] | vector*
//! tag   = bits 0-1 transform: 0 PLAIN, 1 DELTA, 2 DELTA2, 3 LINE; bit 2 step; bit 3 lows;
//!         bit 7 zigzag
//! base, first, low  zigzag varint
//! vector            if the tag has lows, a varint that is added to its numbers, then the numbers
//! ```
//!
//! With `n` for a number of a vector: PLAIN `v = base + step n`; DELTA `v = before + low + step n`;
//! DELTA2 the same of the differences; LINE `v = before + low`, without vectors. The first value is
//! `base` and the first difference of DELTA2 is `first`, regardless of the numbers at their
//! positions. Arithmetic wraps, so every sequence of i64 is representable.

use super::planner::IntRunPlanner;
use super::runs::{self, ColumnRun};
use super::vector;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::lanes::VECTOR;
use crate::encoding::simd::prefix_sum;
use crate::encoding::{DecodeError, unzigzag};
use std::ops::Range;

pub(super) const PLAIN: u8 = 0;
pub(super) const DELTA: u8 = 1;
pub(super) const DELTA2: u8 = 2;
pub(super) const LINE: u8 = 3;
const TRANSFORM: u8 = 3;
pub(super) const STEP: u8 = 1 << 2;
pub(super) const LOWS: u8 = 1 << 3;
pub(super) const ZIGZAG: u8 = 1 << 7;

/// The bits of a tag that belong to this module.
pub(super) const TAG_BITS: u8 = TRANSFORM | STEP | LOWS | ZIGZAG;

/// Encodes a column of integers and appends it to `out`.
pub(crate) fn push_column(out: &mut Vec<u8>, planner: &mut IntRunPlanner, values: &[i64]) {
    runs::push_runs(out, values.len(), |out, range| {
        planner.plan_run(&values[range]);
        planner.push_planned(out, 0, |_| ());
    });
}

/// Decodes the values `wanted` of a column of `count` and appends them to `into`. Takes a copy of
/// the cursor, which may end anywhere.
pub(crate) fn read_column(
    cursor: DecodeCursor<'_>,
    count: usize,
    wanted: Range<usize>,
    into: &mut Vec<i64>,
) -> Result<(), DecodeError> {
    for run in runs::find_covering_runs(count, wanted) {
        let mut cursor = cursor;
        runs::seek_run(&mut cursor, count, run.index)?;
        let tag = read_tag(&mut cursor)?;
        let base = into.len();
        into.resize(base + run.padded_count(), 0);
        let values = &mut into[base..];
        read_run(&mut cursor, tag, &run, &mut *values)?;
        values.copy_within(run.wanted.clone(), 0);
        into.truncate(base + run.wanted.len());
    }
    Ok(())
}

/// Skips a column of `count` integers without decoding its vectors.
pub(crate) fn skip_column(cursor: &mut DecodeCursor<'_>, count: usize) -> Result<(), DecodeError> {
    runs::skip_runs(cursor, count, |cursor, count| {
        let tag = read_tag(cursor)?;
        skip_run(cursor, tag, count)
    })
}

fn read_tag(cursor: &mut DecodeCursor<'_>) -> Result<u8, DecodeError> {
    match cursor.read_byte()? {
        tag if tag & !TAG_BITS == 0 => Ok(tag),
        _ => Err(DecodeError("unknown bits in the tag of an integer run")),
    }
}

/// The header of a run, before its vectors.
struct IntRunHeader {
    transform: u8,
    base: i64,
    first: i64,
    low: i64,
    step: i64,
    has_lows: bool,
    is_folded: bool,
}

impl IntRunHeader {
    #[inline]
    fn read(cursor: &mut DecodeCursor<'_>, tag: u8) -> Result<Self, DecodeError> {
        let transform = tag & TRANSFORM;
        let base = unzigzag(cursor.read_uvarint()?);
        let first = match transform {
            DELTA2 => unzigzag(cursor.read_uvarint()?),
            _ => 0,
        };
        let low = match transform {
            PLAIN => 0,
            _ => unzigzag(cursor.read_uvarint()?),
        };
        let step = match tag & STEP {
            0 => 1,
            _ => cursor.read_uvarint()? as i64,
        };
        Ok(Self {
            transform,
            base,
            first,
            low,
            step,
            has_lows: tag & LOWS != 0,
            is_folded: tag & ZIGZAG != 0,
        })
    }
}

/// Decodes a run after its tag. Stores the wanted values at their positions in `out`, which has
/// room for all values of the run; other positions may change too.
#[inline]
pub(super) fn read_run(
    cursor: &mut DecodeCursor<'_>,
    tag: u8,
    run: &ColumnRun,
    out: &mut [i64],
) -> Result<(), DecodeError> {
    let (count, wanted) = (run.count, run.wanted.clone());
    let head = IntRunHeader::read(cursor, tag)?;
    if head.transform == LINE {
        let mut value = head
            .base
            .wrapping_add(head.low.wrapping_mul(wanted.start as i64));
        for out in &mut out[wanted] {
            *out = value;
            value = value.wrapping_add(head.low);
        }
        return Ok(());
    }
    let mut state = None;
    for (at, out) in out.as_chunks_mut::<VECTOR>().0.iter_mut().enumerate() {
        let start = at * VECTOR;
        if start >= wanted.end {
            break;
        }
        // The loops process eight values at a time, and stop after the last wanted one.
        let needed = (wanted.end - start).next_multiple_of(8).min(VECTOR);
        let out = &mut out[..needed];
        let count = (count - start).min(VECTOR);
        let low = if head.has_lows {
            cursor.read_uvarint()?
        } else {
            0
        };
        if head.transform == PLAIN && start + count <= wanted.start {
            vector::skip_vector(cursor, count)?;
            continue;
        }
        head.decode_vector(cursor, count, low as i64, &mut *out)?;
        match head.transform {
            PLAIN => (),
            DELTA => {
                let (before, _) = state.unwrap_or((head.base.wrapping_sub(out[0]), 0));
                state = Some((prefix_sum(before, &mut *out), 0));
            }
            _ => {
                // Chosen so that the first two values become the base and the base plus the first
                // difference.
                let second = head.first.wrapping_sub(out[1]);
                let first = second.wrapping_sub(out[0]);
                let before = head.base.wrapping_sub(second);
                let (before, difference) = state.unwrap_or((before, first));
                let difference = prefix_sum(difference, &mut *out);
                state = Some((prefix_sum(before, out), difference));
            }
        }
    }
    Ok(())
}

impl IntRunHeader {
    /// Decodes the numbers of a vector and converts them to values or differences; `less` is the
    /// low of the vector.
    #[inline]
    fn decode_vector(
        &self,
        cursor: &mut DecodeCursor<'_>,
        count: usize,
        less: i64,
        out: &mut [i64],
    ) -> Result<(), DecodeError> {
        let low = match self.transform {
            PLAIN => self.base,
            _ => self.low,
        };
        if self.step == 1 && !self.is_folded {
            return vector::read_vector(cursor, count, low.wrapping_add(less), out);
        }
        vector::read_vector(cursor, count, less, &mut *out)?;
        if self.is_folded {
            out.iter_mut().for_each(|n| *n = unzigzag(*n as u64));
        }
        // Steps are usually powers of two, and shifts can be vectorized.
        if self.step.count_ones() == 1 {
            let twos = self.step.trailing_zeros();
            out.iter_mut()
                .for_each(|n| *n = low.wrapping_add(*n << twos));
        } else {
            let step = self.step;
            out.iter_mut()
                .for_each(|n| *n = low.wrapping_add(step.wrapping_mul(*n)));
        }
        Ok(())
    }
}

/// Skips a run of `count` values after its tag.
pub(super) fn skip_run(
    cursor: &mut DecodeCursor<'_>,
    tag: u8,
    count: usize,
) -> Result<(), DecodeError> {
    let head = IntRunHeader::read(cursor, tag)?;
    if head.transform == LINE {
        return Ok(());
    }
    for start in (0..count).step_by(VECTOR) {
        if head.has_lows {
            cursor.read_uvarint()?;
        }
        vector::skip_vector(cursor, (count - start).min(VECTOR))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;

    fn check(values: &[i64], context: &str) -> usize {
        let mut bytes = Vec::new();
        push_column(&mut bytes, &mut IntRunPlanner::default(), values);
        let n = values.len();
        for wanted in [0..n, n / 2..n, n / 3..n / 2, 0..1, n - 1..n, n..n] {
            let mut read = Vec::new();
            read_column(DecodeCursor::new(&bytes), n, wanted.clone(), &mut read).unwrap();
            assert_eq!(read, values[wanted.clone()], "{wanted:?} of {context}");
        }
        let mut cursor = DecodeCursor::new(&bytes);
        skip_column(&mut cursor, n).unwrap();
        assert!(cursor.is_empty(), "{context}");
        bytes.len()
    }

    #[test]
    fn ints_of_every_shape_return_in_any_range() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let n = [1, 2, 3, 100, 128, 129, 480, 1_024, 1_025, 3_000][seed as usize % 10];
            let width = (rng.next_u64() % 65) as u32;
            let (kind, step) = (rng.next_u64() % 6, 1 + rng.next_u64() as i64 % 5_000);
            let mut value = rng.next_u64() as i64;
            let values: Vec<i64> = (0..n)
                .map(|i| {
                    let noise = rng.next_u64().checked_shr(64 - width).unwrap_or(0) as i64;
                    match kind {
                        0 => value = noise,
                        1 => value = value.wrapping_add(noise),
                        2 => value = value.wrapping_add(i * step).wrapping_add(noise),
                        3 => value = value.wrapping_add(step),
                        4 => return noise.wrapping_mul(step),
                        _ if rng.next_u64().is_multiple_of(50) => value = noise,
                        _ => value = value.wrapping_add(noise % 10),
                    }
                    value
                })
                .collect();
            check(&values, &format!("seed {seed}, kind {kind}"));
        }
    }

    #[test]
    fn ints_of_known_shapes_take_few_bytes() {
        let bytes = |value: fn(i64) -> i64| {
            let values: Vec<i64> = (0..480).map(value).collect();
            check(&values, "known shape")
        };
        assert_eq!(bytes(|_| 7), 3);
        assert_eq!(bytes(|i| i * 15_000), 5);
        // Two bits each, four vectors, and a reset that is an exception.
        assert!(bytes(|i| i + i / 3 % 2) <= 120 + 4 + 4);
        assert!(bytes(|i| if i < 200 { i * 3 + i % 2 } else { i * 3 }) <= 135);
        assert!(bytes(|i| i * i) <= 12);
        assert!(bytes(|i| (i % 16) * 4_096) <= 240 + 10);
    }
}
