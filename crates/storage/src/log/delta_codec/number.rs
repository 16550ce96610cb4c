//! Encoding of one value: its difference from the prediction for its series, in as many bits as the
//! differences of that series usually have (Rice coding with a width that is adapted as in LOCO-I:
//! Weinberger et al. 2000).
//!
//! ```text
//! series with a predictor:
//! 1 q times, 0, w bits    the difference is q << w | bits; q below 12, w the width of the series
//! 1 12 times, 0           whole difference: length - 1 in 6 bits, then its bits
//! 1 12 times, 10, whole   another number, with which the predictor restarts
//! 1 12 times, 11, whole   another number, which the predictor ignores
//! new series: whole
//! whole:
//! 1                       the number of the previous row
//! 01, difference          in the form of the previous row: length - 1 in 6 bits, then its bits
//! 00, form, difference    5 bits of form; the difference is from zero
//! ```

use super::predictor::{Series, Slab};
use crate::encoding::bits::{BITS_MAX, BitReader, BitWriter};
use crate::encoding::decimal::{BITS, Scale};
use crate::encoding::varint::bit_len;
use crate::encoding::{Malformed, unzigzag, zigzag};

const FORM_BITS: u32 = 5;

/// Number of one bits that mark a difference which is not encoded in the width of its series.
const ONES_MAX: u32 = 12;

/// Bits that store the length of a number, minus one.
const LENGTH_BITS: u32 = 6;

/// Maximum bytes of an encoded number, rounded up: the escape, its form, its length and 64 bits.
pub(super) const NUMBER_BYTES_MAX: usize = 12;

/// Extra bits of a number that restarts the predictor, compared to a difference of the same length.
const RESTART_BITS: u32 = ONES_MAX + 4 + FORM_BITS + LENGTH_BITS;

/// A float as an integer: scaled by a decimal scale, or its raw bits. Zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) form: u8,
    pub(super) int: i64,
}

impl Number {
    /// Returns the number for the float with these bits. `known` is its decimal scale and integer,
    /// if it has one.
    #[inline]
    pub(super) fn new(bits: u64, known: Option<(Scale, i64)>) -> Self {
        match known {
            Some((scale, int)) => Self {
                form: scale.code(),
                int,
            },
            None => Self {
                form: BITS,
                int: bits as i64,
            },
        }
    }

    /// Returns the bits of the float.
    #[inline]
    pub(super) fn bits(self) -> u64 {
        match Scale::from_code(self.form) {
            Some(scale) => scale.float(self.int).to_bits(),
            None => self.int as u64,
        }
    }

    /// Returns the integer of the float in another form, if it can be represented exactly in that
    /// form.
    fn in_form(self, form: u8) -> Option<i64> {
        match Scale::from_code(form) {
            Some(scale) => scale.int(f64::from_bits(self.bits())),
            None => Some(self.bits() as i64),
        }
    }

    fn is_finite(self) -> bool {
        f64::from_bits(self.bits()).is_finite()
    }
}

/// Returns the new width of a series after a difference was encoded in `width`.
#[inline]
fn adapted(width: u32, difference: u64) -> u32 {
    let bits = bit_len(difference) as u32;
    width + u32::from(bits > width + 1) - u32::from(bits < width)
}

fn length(difference: u64) -> u32 {
    bit_len(difference | 1) as u32
}

/// Encodes the numbers of one record, each relative to its predictor or to the previous row.
#[derive(Debug, Default)]
pub(super) struct NumberWriter {
    bytes: Vec<u8>,
    bits: BitWriter,
    before: Number,
}

impl NumberWriter {
    /// Starts a record: drops the bytes of the previous one and keeps their memory.
    pub(super) fn begin(&mut self) {
        self.bytes.clear();
        self.before = Number::default();
    }

    /// Returns the encoded numbers of the record.
    pub(super) fn finish(&mut self) -> &[u8] {
        std::mem::take(&mut self.bits).finish(&mut self.bytes);
        &self.bytes
    }

    #[inline]
    fn put(&mut self, bits: u64, width: u32) {
        self.bits.put(&mut self.bytes, bits, width);
    }

    /// Appends a number of the series at `index` of `slab`. Returns whether the series is new in
    /// the context.
    #[inline]
    pub(super) fn push(&mut self, slab: &mut Slab, index: u32, number: Number) -> bool {
        let mut series = slab.series(index);
        let form = series.form();
        self.before = match form {
            Some(form) if form == number.form => {
                self.push_difference(&mut series, number.int);
                number
            }
            Some(form) => self.push_other(&mut series, form, number),
            None => {
                self.push_whole(number);
                series.restart(number);
                number
            }
        };
        form.is_none()
    }

    /// Appends the difference of `int` from the prediction, and updates the predictor.
    #[inline]
    fn push_difference(&mut self, series: &mut Series<'_>, int: i64) {
        let width = series.width();
        let difference = zigzag(int.wrapping_sub(series.expected()));
        let above = difference >> width;
        if above >= u64::from(ONES_MAX) {
            self.put((1 << ONES_MAX) - 1, ONES_MAX + 1);
            self.push_length(difference);
            return series.go_to(int, length(difference) - 1);
        }
        let ones = above as u32;
        let low = difference & ((1 << width) - 1);
        let prefix = (1 << ones) - 1;
        if ones + 1 + width <= 64 {
            self.put(low << (ones + 1) | prefix, ones + 1 + width);
        } else {
            self.put(prefix, ones + 1);
            self.put(low, width);
        }
        series.go_to(int, adapted(width, difference));
    }

    /// Appends a difference as its length in bits and that many bits.
    fn push_length(&mut self, difference: u64) {
        let length = length(difference);
        self.put(u64::from(length - 1), LENGTH_BITS);
        self.put(difference, length);
    }

    /// Appends a number whose form differs from that of its series. Returns the number as it was
    /// encoded.
    #[cold]
    fn push_other(&mut self, series: &mut Series<'_>, form: u8, number: Number) -> Number {
        if let Some(int) = number.in_form(form) {
            let difference = zigzag(int.wrapping_sub(series.expected()));
            if length(difference) < length(zigzag(number.int)) + RESTART_BITS {
                self.push_difference(series, int);
                return Number { form, int };
            }
        }
        // Infinities and NaNs, mostly staleness markers, are bad predictions for the next value.
        let is_aside = !number.is_finite();
        let escape = (1 << (ONES_MAX + 1)) - 1;
        self.put(u64::from(is_aside) << (ONES_MAX + 1) | escape, ONES_MAX + 2);
        self.push_whole(number);
        if !is_aside {
            series.restart(number);
        }
        number
    }

    /// Appends a number independently of its series: a repetition of the previous row, a difference
    /// from it, or a form and an integer.
    fn push_whole(&mut self, number: Number) {
        if number == self.before {
            return self.put(1, 1);
        }
        let from = if number.form == self.before.form {
            self.put(0b10, 2);
            self.before.int
        } else {
            self.put(u64::from(number.form) << 2, 2 + FORM_BITS);
            0
        };
        self.push_length(zigzag(number.int.wrapping_sub(from)));
    }
}

/// Decodes the numbers of one record, in the order in which they were encoded.
#[derive(Debug)]
pub(super) struct NumberReader<'a> {
    bits: BitReader<'a>,
    before: Number,
}

impl<'a> NumberReader<'a> {
    /// Returns a reader at the first number in `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bits: BitReader::new(bytes),
            before: Number::default(),
        }
    }

    /// Decodes the next number, of the series at `index` of `slab`.
    #[inline]
    pub(super) fn next(&mut self, slab: &mut Slab, index: u32) -> Number {
        let mut series = slab.series(index);
        let Some(form) = series.form() else {
            (self.bits, self.before) = unknown(self.bits, self.before, &mut series);
            return self.before;
        };
        let bits = self.bits.peek();
        let ones = bits.trailing_ones();
        let width = series.width();
        if ones >= ONES_MAX || ones + 1 + width > BITS_MAX {
            (self.bits, self.before) = long(self.bits, self.before, &mut series, form);
            return self.before;
        }
        self.bits.skip((ones + 1 + width) as usize);
        let low = bits >> (ones + 1) & ((1 << width) - 1);
        let difference = u64::from(ones) << width | low;
        let int = series.expected().wrapping_add(unzigzag(difference));
        series.go_to(int, adapted(width, difference));
        self.before = Number { form, int };
        self.before
    }

    /// Returns an error if bytes remain after the last number.
    pub(super) fn finish(&self) -> Result<(), Malformed> {
        self.bits.finish()
    }
}

// These functions take and return the bits by value, so that the reader stays in registers around
// them.

/// Decodes the first number of a series.
#[cold]
fn unknown<'a>(
    mut bits: BitReader<'a>,
    before: Number,
    series: &mut Series<'_>,
) -> (BitReader<'a>, Number) {
    let number = whole(&mut bits, before);
    series.restart(number);
    (bits, number)
}

/// Decodes a number that needs more bits than a word has, or that is encoded with its length.
#[cold]
fn long<'a>(
    mut bits: BitReader<'a>,
    before: Number,
    series: &mut Series<'_>,
    form: u8,
) -> (BitReader<'a>, Number) {
    let ones = bits.peek().trailing_ones().min(ONES_MAX);
    let width = series.width();
    bits.skip(ones as usize);
    let is_other = bits.take(1) == 1;
    if is_other {
        let is_aside = bits.take(1) == 1;
        let number = whole(&mut bits, before);
        if !is_aside {
            series.restart(number);
        }
        return (bits, number);
    }
    let (difference, width) = if ones < ONES_MAX {
        let difference = u64::from(ones) << width | bits.take_long(width);
        (difference, adapted(width, difference))
    } else {
        let difference = whole_difference(&mut bits);
        (difference, length(difference) - 1)
    };
    let int = series.expected().wrapping_add(unzigzag(difference));
    series.go_to(int, width);
    (bits, Number { form, int })
}

/// Decodes a number that was encoded independently of its series.
fn whole(bits: &mut BitReader<'_>, before: Number) -> Number {
    if bits.take(1) == 1 {
        return before;
    }
    let from = if bits.take(1) == 1 {
        before
    } else {
        Number {
            form: bits.take(FORM_BITS) as u8,
            int: 0,
        }
    };
    let int = from.int.wrapping_add(unzigzag(whole_difference(bits)));
    Number { int, ..from }
}

fn whole_difference(bits: &mut BitReader<'_>) -> u64 {
    let length = bits.take(LENGTH_BITS) as u32 + 1;
    bits.take_long(length)
}
