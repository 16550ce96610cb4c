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

use super::predictor::{PredictorSlab, SeriesPredictor};
use crate::encoding::bits::{BITS_MAX, LsbBitReader, LsbBitWriter};
use crate::encoding::decimal::{BITS, DecimalScale};
use crate::encoding::varint::bit_len;
use crate::encoding::{DecodeError, unzigzag, zigzag};

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
pub(super) struct DeltaNumber {
    pub(super) form: u8,
    pub(super) int: i64,
}

impl DeltaNumber {
    /// Returns the number for the float with these bits. `known` is its decimal scale and integer,
    /// if it has one.
    #[inline]
    pub(super) fn new(bits: u64, known: Option<(DecimalScale, i64)>) -> Self {
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
        match DecimalScale::from_code(self.form) {
            Some(scale) => scale.to_float(self.int).to_bits(),
            None => self.int as u64,
        }
    }

    /// Returns the integer of the float in another form, if it can be represented exactly in that
    /// form.
    fn convert_to_form(self, form: u8) -> Option<i64> {
        match DecimalScale::from_code(form) {
            Some(scale) => scale.to_int(f64::from_bits(self.bits())),
            None => Some(self.bits() as i64),
        }
    }

    fn is_finite(self) -> bool {
        f64::from_bits(self.bits()).is_finite()
    }
}

/// Returns the new width of a series after a difference was encoded in `width`.
#[inline]
fn adapt_width(width: u32, difference: u64) -> u32 {
    let bits = bit_len(difference) as u32;
    width + u32::from(bits > width + 1) - u32::from(bits < width)
}

fn length(difference: u64) -> u32 {
    bit_len(difference | 1) as u32
}

/// Encodes the numbers of one record, each relative to its predictor or to the previous row.
#[derive(Debug, Default)]
pub(super) struct DeltaNumberWriter {
    bytes: Vec<u8>,
    bits: LsbBitWriter,
    before: DeltaNumber,
}

impl DeltaNumberWriter {
    /// Starts a record: drops the bytes of the previous one and keeps their memory.
    pub(super) fn begin(&mut self) {
        self.bytes.clear();
        self.before = DeltaNumber::default();
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
    pub(super) fn push(
        &mut self,
        slab: &mut PredictorSlab,
        index: u32,
        number: DeltaNumber,
    ) -> bool {
        let mut series = slab.series(index);
        let form = series.form();
        self.before = match form {
            Some(form) if form == number.form => {
                self.push_difference(&mut series, number.int);
                number
            }
            Some(form) => self.push_changed_form(&mut series, form, number),
            None => {
                self.push_independent(number);
                series.restart(number);
                number
            }
        };
        form.is_none()
    }

    /// Appends the difference of `int` from the prediction, and updates the predictor.
    #[inline]
    fn push_difference(&mut self, series: &mut SeriesPredictor<'_>, int: i64) {
        let width = series.width();
        let difference = zigzag(int.wrapping_sub(series.predict_next()));
        let above = difference >> width;
        if above >= u64::from(ONES_MAX) {
            self.put((1 << ONES_MAX) - 1, ONES_MAX + 1);
            self.push_long_difference(difference);
            return series.update(int, length(difference) - 1);
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
        series.update(int, adapt_width(width, difference));
    }

    /// Appends a difference as its length in bits and that many bits.
    fn push_long_difference(&mut self, difference: u64) {
        let length = length(difference);
        self.put(u64::from(length - 1), LENGTH_BITS);
        self.put(difference, length);
    }

    /// Appends a number whose form differs from that of its series. Returns the number as it was
    /// encoded.
    #[cold]
    fn push_changed_form(
        &mut self,
        series: &mut SeriesPredictor<'_>,
        form: u8,
        number: DeltaNumber,
    ) -> DeltaNumber {
        if let Some(int) = number.convert_to_form(form) {
            let difference = zigzag(int.wrapping_sub(series.predict_next()));
            if length(difference) < length(zigzag(number.int)) + RESTART_BITS {
                self.push_difference(series, int);
                return DeltaNumber { form, int };
            }
        }
        // Infinities and NaNs, mostly staleness markers, are bad predictions for the next value.
        let is_aside = !number.is_finite();
        let escape = (1 << (ONES_MAX + 1)) - 1;
        self.put(u64::from(is_aside) << (ONES_MAX + 1) | escape, ONES_MAX + 2);
        self.push_independent(number);
        if !is_aside {
            series.restart(number);
        }
        number
    }

    /// Appends a number independently of its series: a repetition of the previous row, a difference
    /// from it, or a form and an integer.
    fn push_independent(&mut self, number: DeltaNumber) {
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
        self.push_long_difference(zigzag(number.int.wrapping_sub(from)));
    }
}

/// Decodes the numbers of one record, in the order in which they were encoded.
#[derive(Debug)]
pub(super) struct DeltaNumberReader<'a> {
    bits: LsbBitReader<'a>,
    before: DeltaNumber,
}

impl<'a> DeltaNumberReader<'a> {
    /// Returns a reader at the first number in `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bits: LsbBitReader::new(bytes),
            before: DeltaNumber::default(),
        }
    }

    /// Decodes the next number, of the series at `index` of `slab`.
    #[inline]
    pub(super) fn next(&mut self, slab: &mut PredictorSlab, index: u32) -> DeltaNumber {
        let mut series = slab.series(index);
        let Some(form) = series.form() else {
            (self.bits, self.before) = read_first(self.bits, self.before, &mut series);
            return self.before;
        };
        let bits = self.bits.peek();
        let ones = bits.trailing_ones();
        let width = series.width();
        if ones >= ONES_MAX || ones + 1 + width > BITS_MAX {
            (self.bits, self.before) = read_long(self.bits, self.before, &mut series, form);
            return self.before;
        }
        self.bits.skip((ones + 1 + width) as usize);
        let low = bits >> (ones + 1) & ((1 << width) - 1);
        let difference = u64::from(ones) << width | low;
        let int = series.predict_next().wrapping_add(unzigzag(difference));
        series.update(int, adapt_width(width, difference));
        self.before = DeltaNumber { form, int };
        self.before
    }

    /// Returns an error if bytes remain after the last number.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        self.bits.finish()
    }
}

// These functions take and return the bits by value, so that the reader stays in registers around
// them.

/// Decodes the first number of a series.
#[cold]
fn read_first<'a>(
    mut bits: LsbBitReader<'a>,
    before: DeltaNumber,
    series: &mut SeriesPredictor<'_>,
) -> (LsbBitReader<'a>, DeltaNumber) {
    let number = read_independent(&mut bits, before);
    series.restart(number);
    (bits, number)
}

/// Decodes a number that needs more bits than a word has, or that is encoded with its length.
#[cold]
fn read_long<'a>(
    mut bits: LsbBitReader<'a>,
    before: DeltaNumber,
    series: &mut SeriesPredictor<'_>,
    form: u8,
) -> (LsbBitReader<'a>, DeltaNumber) {
    let ones = bits.peek().trailing_ones().min(ONES_MAX);
    let width = series.width();
    bits.skip(ones as usize);
    let is_other = bits.take(1) == 1;
    if is_other {
        let is_aside = bits.take(1) == 1;
        let number = read_independent(&mut bits, before);
        if !is_aside {
            series.restart(number);
        }
        return (bits, number);
    }
    let (difference, width) = if ones < ONES_MAX {
        let difference = u64::from(ones) << width | bits.take_long(width);
        (difference, adapt_width(width, difference))
    } else {
        let difference = read_long_difference(&mut bits);
        (difference, length(difference) - 1)
    };
    let int = series.predict_next().wrapping_add(unzigzag(difference));
    series.update(int, width);
    (bits, DeltaNumber { form, int })
}

/// Decodes a number that was encoded independently of its series.
fn read_independent(bits: &mut LsbBitReader<'_>, before: DeltaNumber) -> DeltaNumber {
    if bits.take(1) == 1 {
        return before;
    }
    let from = if bits.take(1) == 1 {
        before
    } else {
        DeltaNumber {
            form: bits.take(FORM_BITS) as u8,
            int: 0,
        }
    };
    let int = from.int.wrapping_add(unzigzag(read_long_difference(bits)));
    DeltaNumber { int, ..from }
}

fn read_long_difference(bits: &mut LsbBitReader<'_>) -> u64 {
    let length = bits.take(LENGTH_BITS) as u32 + 1;
    bits.take_long(length)
}
