//! Blocks of integers: taken relative to their smallest, to the one before, or to a line through
//! the two before, divided by what divides them all, and packed in vectors.
//!
//! ```text
//! block = tag u8 | .. | base | first if DELTA2 | low unless PLAIN | [step varint] | vector*
//! tag   = bits 0-1 transform: 0 PLAIN, 1 DELTA, 2 DELTA2, 3 LINE; bit 2 step; bit 3 lows
//! base, first, low  zigzag varint
//! vector            if the tag has lows, a varint that is added to its numbers, then the numbers
//! ```
//!
//! With `n` for a number of a vector: PLAIN `v = base + step n`; DELTA `v = before + low + step n`;
//! DELTA2 the same of the differences; LINE `v = before + low`, without vectors. The first value is
//! `base`, the first difference of DELTA2 `first`, whatever the numbers say there. Arithmetic
//! wraps, so every sequence of i64 is representable.

use super::bits::VECTOR;
use super::blocks::{self, BLOCK};
use super::vector::{self, Layout};
use crate::codec::cursor::Cursor;
use crate::codec::{Malformed, push_uvarint, unzigzag, zigzag};
use std::ops::Range;

const PLAIN: u8 = 0;
const DELTA: u8 = 1;
const DELTA2: u8 = 2;
const LINE: u8 = 3;
const TRANSFORM: u8 = 3;
const STEP: u8 = 1 << 2;
const LOWS: u8 = 1 << 3;

/// The bits of a tag that this module gives a meaning.
pub(super) const TAG_BITS: u8 = TRANSFORM | STEP | LOWS;

/// The values that one low is chosen for; see [`Encoder::lows`].
const GROUP: usize = 16;

/// Finds the smallest form of a block. Reuse one to keep its memory.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    /// What the transform at trial makes of the values.
    sequence: Vec<i64>,
    trial: Form,
    best: Form,
}

/// One form of a block.
#[derive(Debug, Default)]
struct Form {
    transform: u8,
    base: i64,
    first: i64,
    low: i64,
    step: u64,
    numbers: Vec<u64>,
    /// What each vector's numbers are less; all zero without lows.
    lows: Vec<u64>,
    layouts: Vec<Layout>,
    bytes: usize,
}

impl Encoder {
    /// Finds the best form of at most [`BLOCK`] values and returns its bytes; the next
    /// [`Encoder::push`] writes it.
    pub(super) fn plan(&mut self, values: &[i64]) -> usize {
        self.best.bytes = usize::MAX;
        let base = values.first().copied().unwrap_or(0);
        let first = values.get(1).map_or(0, |v| v.wrapping_sub(base));
        if values.windows(2).all(|w| w[1].wrapping_sub(w[0]) == first) {
            self.best.begin(LINE, base, first, first);
            self.best.close();
            return self.best.bytes;
        }
        self.sequence.clear();
        self.sequence.extend_from_slice(values);
        self.consider(PLAIN, base, first);
        for (transform, known) in [(DELTA, 1), (DELTA2, 2)] {
            for i in (known..values.len()).rev() {
                self.sequence[i] = self.sequence[i].wrapping_sub(self.sequence[i - 1]);
            }
            // What the numbers say there is not looked at: let it disturb nothing.
            let next = self.sequence.get(known).copied().unwrap_or(0);
            self.sequence[..known].fill(next);
            self.consider(transform, base, first);
        }
        self.best.bytes
    }

    /// Tries the sequence that a transform made.
    fn consider(&mut self, transform: u8, base: i64, first: i64) {
        let (least, usual) = self.lows();
        self.attempt(transform, base, first, least);
        if usual != least {
            self.attempt(transform, base, first, usual);
        }
    }

    /// The least of the sequence, and the least but for a few outliers if numbers get narrower by
    /// it: what lies below wraps around and becomes an exception.
    fn lows(&self) -> (i64, i64) {
        let mut ends = [(0i64, 0i64); BLOCK.div_ceil(GROUP)];
        let groups = self.sequence.chunks(GROUP).zip(&mut ends);
        let mut count = 0;
        for (group, ends) in groups {
            let least = group.iter().fold(i64::MAX, |least, v| least.min(*v));
            let most = group.iter().fold(i64::MIN, |most, v| most.max(*v));
            *ends = (least, most);
            count += 1;
        }
        let ends = &mut ends[..count];
        let outliers = count / 8;
        ends.sort_unstable_by_key(|(_, most)| *most);
        let most = ends[count - 1 - outliers].1;
        ends.sort_unstable();
        let (least, usual) = (ends[0].0, ends[outliers].0);
        let width = |low: i64| 64 - (most.wrapping_sub(low) as u64).leading_zeros();
        if width(usual) < width(least) {
            (least, usual)
        } else {
            (least, least)
        }
    }

    /// Makes the form with this low, and keeps it if it is the best so far.
    fn attempt(&mut self, transform: u8, base: i64, first: i64, low: i64) {
        let form = &mut self.trial;
        let base = if transform == PLAIN { low } else { base };
        form.begin(transform, base, first, low);
        let numbers = self.sequence.iter().map(|v| v.wrapping_sub(low) as u64);
        form.numbers.extend(numbers);
        form.divide();
        form.lay_out();
        form.close();
        if form.bytes < self.best.bytes {
            std::mem::swap(&mut self.trial, &mut self.best);
        }
    }

    /// Appends the tag with the bits of `tag` besides, what `between` appends, and the form that
    /// was planned last.
    pub(super) fn push(&self, out: &mut Vec<u8>, tag: u8, between: impl FnOnce(&mut Vec<u8>)) {
        let form = &self.best;
        let step = if form.step > 1 { STEP } else { 0 };
        let lows = if form.has_lows() { LOWS } else { 0 };
        out.push(tag | form.transform | step | lows);
        between(out);
        push_uvarint(out, zigzag(form.base));
        if form.transform == DELTA2 {
            push_uvarint(out, zigzag(form.first));
        }
        if form.transform != PLAIN {
            push_uvarint(out, zigzag(form.low));
        }
        if form.step > 1 {
            push_uvarint(out, form.step);
        }
        let vectors = form.numbers.chunks(VECTOR).zip(&form.layouts);
        for ((numbers, layout), less) in vectors.zip(&form.lows) {
            if lows != 0 {
                push_uvarint(out, *less);
            }
            layout.push(out, numbers);
        }
    }
}

impl Form {
    fn begin(&mut self, transform: u8, base: i64, first: i64, low: i64) {
        self.transform = transform;
        (self.base, self.first, self.low) = (base, first, low);
        self.step = 1;
        self.numbers.clear();
        self.lows.clear();
        self.layouts.clear();
        self.bytes = 0;
    }

    /// Divides the numbers by what divides them all.
    fn divide(&mut self) {
        let mut step = 0;
        for n in &self.numbers {
            // Below the low they are negative.
            step = gcd(step, (*n as i64).unsigned_abs());
            if step == 1 {
                return;
            }
        }
        if let Ok(divisor) = i64::try_from(step)
            && divisor > 1
        {
            self.step = step;
            for n in &mut self.numbers {
                *n = (*n as i64 / divisor) as u64;
            }
        }
    }

    /// Decides on lows and widths.
    fn lay_out(&mut self) {
        let bytes = |layouts: &[Layout]| layouts.iter().map(|l| l.bytes).sum::<usize>();
        self.layouts
            .extend(self.numbers.chunks(VECTOR).map(Layout::of));
        self.bytes = bytes(&self.layouts);
        let least = |v: &[u64]| v.iter().fold(u64::MAX, |least, n| least.min(*n));
        self.lows.extend(self.numbers.chunks(VECTOR).map(least));
        let mut lower = [0u64; VECTOR];
        let mut layouts = Vec::with_capacity(self.layouts.len());
        for (numbers, low) in self.numbers.chunks(VECTOR).zip(&self.lows) {
            for (to, n) in lower.iter_mut().zip(numbers) {
                *to = n - low;
            }
            layouts.push(Layout::of(&lower[..numbers.len()]));
        }
        let with_lows = bytes(&layouts) + self.lows.iter().map(|n| varint_bytes(*n)).sum::<usize>();
        if with_lows >= self.bytes {
            self.lows.fill(0);
            return;
        }
        self.bytes = with_lows;
        self.layouts = layouts;
        for (numbers, low) in self.numbers.chunks_mut(VECTOR).zip(&self.lows) {
            numbers.iter_mut().for_each(|n| *n -= low);
        }
    }

    /// Adds the bytes in front of the vectors.
    fn close(&mut self) {
        self.bytes += 1 + varint_bytes(zigzag(self.base));
        if self.transform != PLAIN {
            self.bytes += varint_bytes(zigzag(self.low));
        }
        if self.transform == DELTA2 {
            self.bytes += varint_bytes(zigzag(self.first));
        }
        if self.step > 1 {
            self.bytes += varint_bytes(self.step);
        }
    }

    fn has_lows(&self) -> bool {
        self.lows.iter().any(|n| *n != 0)
    }
}

fn varint_bytes(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Appends a column.
pub(super) fn push_column(out: &mut Vec<u8>, encoder: &mut Encoder, values: &[i64]) {
    blocks::push(out, values.len(), |out, range| {
        encoder.plan(&values[range]);
        encoder.push(out, 0, |_| ());
    });
}

/// Appends the values `wanted` of a column of `count` to `into`. The cursor must be the column's
/// own: it may end anywhere.
pub(super) fn read_column(
    cursor: Cursor<'_>,
    count: usize,
    wanted: Range<usize>,
    into: &mut Vec<i64>,
) -> Result<(), Malformed> {
    let mut values = [0; BLOCK];
    for block in blocks::covering(count, wanted) {
        let mut cursor = cursor;
        blocks::seek(&mut cursor, count, block.index)?;
        let tag = read_tag(&mut cursor)?;
        read(
            &mut cursor,
            tag,
            block.count,
            block.wanted.clone(),
            &mut values,
        )?;
        into.extend_from_slice(&values[block.wanted]);
    }
    Ok(())
}

/// Passes over a column of `count` values.
pub(super) fn skip_column(cursor: &mut Cursor<'_>, count: usize) -> Result<(), Malformed> {
    blocks::pass(cursor, count, |cursor, count| {
        let tag = read_tag(cursor)?;
        skip(cursor, tag, count)
    })
}

fn read_tag(cursor: &mut Cursor<'_>) -> Result<u8, Malformed> {
    match cursor.byte()? {
        tag if tag & !TAG_BITS == 0 => Ok(tag),
        _ => Err(Malformed("unknown bits in the tag of an integer block")),
    }
}

/// What stands before the vectors.
struct Head {
    transform: u8,
    base: i64,
    first: i64,
    low: i64,
    step: i64,
    has_lows: bool,
}

impl Head {
    #[inline]
    fn read(cursor: &mut Cursor<'_>, tag: u8) -> Result<Self, Malformed> {
        let transform = tag & TRANSFORM;
        let base = unzigzag(cursor.uvarint()?);
        let first = match transform {
            DELTA2 => unzigzag(cursor.uvarint()?),
            _ => 0,
        };
        let low = match transform {
            PLAIN => 0,
            _ => unzigzag(cursor.uvarint()?),
        };
        let step = match tag & STEP {
            0 => 1,
            _ => cursor.uvarint()? as i64,
        };
        Ok(Self {
            transform,
            base,
            first,
            low,
            step,
            has_lows: tag & LOWS != 0,
        })
    }
}

/// Reads a block of `count` values, whose tag has been read, and puts the `wanted` ones of them in
/// their places in `out`; other places may change too.
#[inline]
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    tag: u8,
    count: usize,
    wanted: Range<usize>,
    out: &mut [i64; BLOCK],
) -> Result<(), Malformed> {
    let head = Head::read(cursor, tag)?;
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
    let mut numbers = [0; VECTOR];
    let mut state = None;
    for (at, out) in out.as_chunks_mut::<VECTOR>().0.iter_mut().enumerate() {
        let start = at * VECTOR;
        if start >= wanted.end {
            break;
        }
        let count = (count - start).min(VECTOR);
        let less = if head.has_lows { cursor.uvarint()? } else { 0 };
        if head.transform == PLAIN && start + count <= wanted.start {
            vector::skip(cursor, count)?;
            continue;
        }
        vector::read(cursor, count, &mut numbers)?;
        let low = head.low.wrapping_add(head.step.wrapping_mul(less as i64));
        scale(&numbers, head.step, low, out);
        match head.transform {
            PLAIN => out.iter_mut().for_each(|v| *v = v.wrapping_add(head.base)),
            DELTA => {
                let before = *state.get_or_insert((head.base.wrapping_sub(out[0]), 0));
                state = Some((add_up(before.0, out), 0));
            }
            _ => {
                let difference = head.first.wrapping_sub(out[1]);
                let before = *state.get_or_insert((
                    head.base.wrapping_sub(difference),
                    difference.wrapping_sub(out[0]),
                ));
                let last_difference = add_up(before.1, out);
                state = Some((add_up(before.0, out), last_difference));
            }
        }
    }
    Ok(())
}

/// Numbers to what they stand for.
#[inline]
fn scale(numbers: &[u64; VECTOR], step: i64, low: i64, out: &mut [i64; VECTOR]) {
    if step == 1 {
        for (out, n) in out.iter_mut().zip(numbers) {
            *out = low.wrapping_add(*n as i64);
        }
        return;
    }
    for (out, n) in out.iter_mut().zip(numbers) {
        *out = low.wrapping_add(step.wrapping_mul(*n as i64));
    }
}

/// Makes differences into values; returns the last one.
#[inline]
fn add_up(before: i64, out: &mut [i64; VECTOR]) -> i64 {
    let mut value = before;
    for out in out {
        value = value.wrapping_add(*out);
        *out = value;
    }
    value
}

/// Passes over a block of `count` values whose tag has been read.
pub(super) fn skip(cursor: &mut Cursor<'_>, tag: u8, count: usize) -> Result<(), Malformed> {
    let head = Head::read(cursor, tag)?;
    if head.transform == LINE {
        return Ok(());
    }
    for start in (0..count).step_by(VECTOR) {
        if head.has_lows {
            cursor.uvarint()?;
        }
        vector::skip(cursor, (count - start).min(VECTOR))?;
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
        push_column(&mut bytes, &mut Encoder::default(), values);
        let n = values.len();
        for wanted in [0..n, n / 2..n, n / 3..n / 2, 0..1, n - 1..n, n..n] {
            let mut read = Vec::new();
            read_column(Cursor::new(&bytes), n, wanted.clone(), &mut read).unwrap();
            assert_eq!(read, values[wanted.clone()], "{wanted:?} of {context}");
        }
        let mut cursor = Cursor::new(&bytes);
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
