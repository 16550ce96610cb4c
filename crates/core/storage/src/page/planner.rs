//! Planner: finds the smallest encoding of a run of integers.
//!
//! Simple measures of the values exclude most encodings. The remaining ones are laid out in full
//! and compared by their size.

use super::ints::{DELTA, DELTA2, LINE, LOWS, PLAIN, STEP, ZIGZAG};
use super::vector::VectorLayout;
use crate::encoding::lanes::VECTOR;
use crate::encoding::varint::{bit_len, push_uvarint, uvarint_len, zigzag};

/// Number of values that are examined together for extremes.
const GROUP: usize = 16;

/// Minimum number of groups of a vector for ignoring its most extreme group.
const GROUPS_TRIMMED: usize = 4;

/// Finds the smallest encoding of a run. Reuse an instance to keep its memory.
#[derive(Debug, Default)]
pub(crate) struct IntRunPlanner {
    /// The values after each transform.
    sequences: [Vec<i64>; 3],
    trial: IntRunEncoding,
    best: IntRunEncoding,
}

/// One encoding of a run: its transform and parameters, and the numbers that it would write.
#[derive(Debug, Default)]
struct IntRunEncoding {
    tag: u8,
    transform: u8,
    base: i64,
    first: i64,
    low: i64,
    step: u64,
    numbers: Vec<u64>,
    /// The low of each vector, which is subtracted from its numbers; all zero without lows.
    lows: Vec<u64>,
    layouts: Vec<VectorLayout>,
    /// Layouts with lows, during the comparison with those without.
    lowered: Vec<VectorLayout>,
    bytes: usize,
}

/// The range of the values of a run after a transform, with and without extremes.
#[derive(Clone, Copy, Debug)]
struct IntRunSpread {
    least: i64,
    /// The minimum without extremes; larger than `least` if a few values are far below the rest.
    usual: i64,
    /// Lower bound of the bits of its vectors, without extremes.
    bits: usize,
}

impl IntRunPlanner {
    /// Finds the best encoding of the values of a run and returns its size in bytes; the next
    /// [`IntRunPlanner::push`] writes it.
    pub(super) fn plan_run(&mut self, values: &[i64]) -> usize {
        self.best.bytes = usize::MAX;
        let base = values.first().copied().unwrap_or(0);
        let first = values.get(1).map_or(0, |v| v.wrapping_sub(base));
        if is_line(values, first) {
            self.best.reset(LINE, base, first, first);
            self.best.add_prefix_bytes();
            return self.best.bytes;
        }
        let [plain, delta, delta2] = &mut self.sequences;
        plain.clear();
        plain.extend_from_slice(values);
        // The first numbers are ignored by decoders, so they get a value that does not affect the
        // rest.
        compute_differences(plain, delta, 1);
        compute_differences(delta, delta2, 2);
        let spreads = [
            measure_spread(plain),
            measure_spread(delta),
            measure_spread(delta2),
        ];
        let least = spreads.iter().map(|s| s.bits).min().unwrap_or(0);
        // The estimate may be wrong by a quarter of a bit per value.
        let enough = least + values.len() / 4;
        for transform in [PLAIN, DELTA, DELTA2] {
            let spread = spreads[usize::from(transform)];
            if spread.bits <= enough {
                self.try_transform(transform, base, first, spread);
            }
        }
        self.best.bytes
    }

    /// Tries the lows that may suit a transform.
    fn try_transform(&mut self, transform: u8, base: i64, first: i64, spread: IntRunSpread) {
        self.try_low(transform, base, first, spread.least);
        if spread.usual != spread.least {
            self.try_low(transform, base, first, spread.usual);
        }
        let sequence = &self.sequences[usize::from(transform)];
        if let Some(center) = find_majority(sequence) {
            self.trial.reset(transform, base, first, center);
            self.trial.set_sequence(sequence);
            self.trial.zigzag_numbers();
            self.keep_smaller();
        }
    }

    /// Tries a low. Numbers below it wrap around and become exceptions.
    fn try_low(&mut self, transform: u8, base: i64, first: i64, low: i64) {
        self.trial.reset(transform, base, first, low);
        self.trial
            .set_sequence(&self.sequences[usize::from(transform)]);
        self.trial.choose_vector_lows();
        self.keep_smaller();
    }

    fn keep_smaller(&mut self) {
        self.trial.add_prefix_bytes();
        if self.trial.bytes < self.best.bytes {
            std::mem::swap(&mut self.trial, &mut self.best);
        }
    }

    /// Appends the planned encoding: its tag combined with the bits of `tag`, the output of
    /// `between`, and the rest.
    pub(super) fn push_planned(
        &self,
        out: &mut Vec<u8>,
        tag: u8,
        between: impl FnOnce(&mut Vec<u8>),
    ) {
        let form = &self.best;
        out.push(tag | form.tag);
        between(out);
        push_uvarint(out, zigzag(form.base));
        if form.transform == DELTA2 {
            push_uvarint(out, zigzag(form.first));
        }
        if form.has_low() {
            push_uvarint(out, zigzag(form.low));
        }
        if form.step > 1 {
            push_uvarint(out, form.step);
        }
        let vectors = form.numbers.chunks(VECTOR).zip(&form.layouts);
        for ((numbers, layout), low) in vectors.zip(&form.lows) {
            if form.tag & LOWS != 0 {
                push_uvarint(out, *low);
            }
            layout.push_vector(out, numbers);
        }
    }
}

impl IntRunEncoding {
    fn reset(&mut self, transform: u8, base: i64, first: i64, low: i64) {
        self.tag = transform;
        self.transform = transform;
        // Plain values have no separate first value: their low is the base.
        self.base = if transform == PLAIN { low } else { base };
        (self.first, self.low) = (first, low);
        self.step = 1;
        self.numbers.clear();
        self.lows.clear();
        self.layouts.clear();
        self.bytes = 0;
    }

    fn has_low(&self) -> bool {
        self.transform != PLAIN
    }

    /// Subtracts the low from `sequence` and divides the result by its greatest common divisor.
    fn set_sequence(&mut self, sequence: &[i64]) {
        let low = self.low;
        let numbers = sequence.iter().map(|v| v.wrapping_sub(low) as u64);
        self.numbers.extend(numbers);
        let twos = self
            .numbers
            .iter()
            .fold(0, |all, n| all | n)
            .trailing_zeros();
        let mut odd = 0;
        for n in &self.numbers {
            // Numbers below the low are negative.
            odd = gcd(odd, (*n as i64).unsigned_abs() >> twos.min(63));
            if odd == 1 {
                break;
            }
        }
        let step = u128::from(odd) << twos;
        if step <= 1 || step > i64::MAX as u128 {
            return;
        }
        self.tag |= STEP;
        self.step = step as u64;
        // Division without a remainder is multiplication by the inverse of the odd part.
        let inverse = compute_inverse(odd);
        for n in &mut self.numbers {
            *n = ((*n as i64 >> twos) as u64).wrapping_mul(inverse);
        }
    }

    /// Chooses the low of each vector, or none, and the widths of all vectors.
    fn choose_vector_lows(&mut self) {
        let mut may_gain = false;
        for numbers in self.numbers.chunks(VECTOR) {
            self.layouts.push(VectorLayout::choose_smallest(numbers));
            let least = numbers.iter().fold(u64::MAX, |least, n| least.min(*n));
            let most = numbers.iter().fold(0, |most, n| most.max(*n));
            may_gain |= (most - least).leading_zeros() > most.leading_zeros();
            self.lows.push(least);
        }
        self.bytes = sum_layout_bytes(&self.layouts);
        if !may_gain {
            self.lows.fill(0);
            return;
        }
        let mut lower = [0u64; VECTOR];
        self.lowered.clear();
        for (numbers, low) in self.numbers.chunks(VECTOR).zip(&self.lows) {
            for (to, n) in lower.iter_mut().zip(numbers) {
                *to = n - low;
            }
            self.lowered
                .push(VectorLayout::choose_smallest(&lower[..numbers.len()]));
        }
        let lows: usize = self.lows.iter().map(|n| uvarint_len(*n)).sum();
        if sum_layout_bytes(&self.lowered) + lows >= self.bytes {
            self.lows.fill(0);
            return;
        }
        self.tag |= LOWS;
        self.bytes = sum_layout_bytes(&self.lowered) + lows;
        std::mem::swap(&mut self.layouts, &mut self.lowered);
        for (numbers, low) in self.numbers.chunks_mut(VECTOR).zip(&self.lows) {
            numbers.iter_mut().for_each(|n| *n -= low);
        }
    }

    /// Applies zigzag to the numbers, for values on both sides of the low.
    fn zigzag_numbers(&mut self) {
        self.tag |= ZIGZAG;
        self.numbers.iter_mut().for_each(|n| *n = zigzag(*n as i64));
        self.layouts.extend(
            self.numbers
                .chunks(VECTOR)
                .map(VectorLayout::choose_smallest),
        );
        self.lows.resize(self.layouts.len(), 0);
        self.bytes = sum_layout_bytes(&self.layouts);
    }

    /// Adds the bytes before the vectors to the size.
    fn add_prefix_bytes(&mut self) {
        self.bytes += 1 + uvarint_len(zigzag(self.base));
        if self.has_low() {
            self.bytes += uvarint_len(zigzag(self.low));
        }
        if self.transform == DELTA2 {
            self.bytes += uvarint_len(zigzag(self.first));
        }
        if self.step > 1 {
            self.bytes += uvarint_len(self.step);
        }
    }
}

fn is_line(values: &[i64], step: i64) -> bool {
    let off = |w: &[i64]| w[1].wrapping_sub(w[0]) ^ step;
    values.windows(2).fold(0, |any, w| any | off(w)) == 0
}

/// Computes the differences of neighbours of `from`. The first `known` ones are set to the one
/// after them.
fn compute_differences(from: &[i64], to: &mut Vec<i64>, known: usize) {
    to.clear();
    let pairs = from.iter().zip(from.get(1..).unwrap_or(&[]));
    to.push(0);
    to.extend(pairs.map(|(a, b)| b.wrapping_sub(*a)));
    let next = to.get(known).copied().unwrap_or(0);
    let known = known.min(to.len());
    to[..known].fill(next);
}

/// Measures a sequence vector by vector, and ignores extremes that occur in only one group of a
/// vector.
fn measure_spread(sequence: &[i64]) -> IntRunSpread {
    let mut spread = IntRunSpread {
        least: i64::MAX,
        usual: i64::MAX,
        bits: 0,
    };
    for vector in sequence.chunks(VECTOR) {
        let (mut least, mut less) = (i64::MAX, i64::MAX);
        let (mut most, mut more) = (i64::MIN, i64::MIN);
        for group in vector.chunks(GROUP) {
            let low = group.iter().fold(i64::MAX, |low, v| low.min(*v));
            let high = group.iter().fold(i64::MIN, |high, v| high.max(*v));
            less = less.min(low.max(least));
            least = least.min(low);
            more = more.max(high.min(most));
            most = most.max(high);
        }
        let trims = vector.len() >= GROUP * GROUPS_TRIMMED;
        let (usual, top) = if trims { (less, more) } else { (least, most) };
        let width = bit_len(top.wrapping_sub(usual) as u64);
        spread.bits += width * vector.len();
        spread.least = spread.least.min(least);
        spread.usual = spread.usual.min(usual);
    }
    spread
}

/// Returns the value that most elements of a sequence have, if there is one.
fn find_majority(sequence: &[i64]) -> Option<i64> {
    // It is usually among three samples; if it is missed, the cost is small.
    let at = |part: usize| sequence.get(sequence.len() * part / 4).copied();
    let (a, b, c) = (at(1)?, at(2)?, at(3)?);
    let value = if a == b || a == c { a } else { b };
    let count = sequence.iter().filter(|v| **v == value).count();
    (count > sequence.len() / 4 * 3).then_some(value)
}

fn sum_layout_bytes(layouts: &[VectorLayout]) -> usize {
    layouts.iter().map(|l| l.bytes).sum()
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    if a != 0 && b.is_multiple_of(a) {
        return a;
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration.
fn compute_inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    inverse
}
