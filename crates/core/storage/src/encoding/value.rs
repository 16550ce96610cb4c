//! Encoding of float values: runs of repeats, small steps of decimal-scaled integers, and raw bits
//! where no scale fits.
//!
//! ```text
//! 00..9f       zigzag of the integer's step, -80..=79
//! a0..bf       a run of 1..=32 repeats of the newest bits; the last run grows in place
//! c0..df XX    zigzag of the integer's step, 13 bits
//! e0..e7 X*    zigzag of the integer's step, 1..=8 bytes
//! e8..ef X*    the low 1..=8 bytes of the bits, exclusive-or with the newest bits
//! f0 SS        the scale is SS from here on, and the integer before is 0
//! ```
//!
//! Invariant: decoding returns the same bits for every f64.

use super::DecodeError;
use super::cursor::DecodeCursor;
use super::decimal::{DecimalConversion, DecimalScale};
use super::sink::EncodeSink;
use super::time::push_repeat;
use super::varint::{byte_len, unzigzag, zigzag};

const RUN: u8 = 0xa0;
const RUN_MAX: u8 = 32;
const THIRTEEN_BITS: u8 = 0xc0;
const BYTES: u8 = 0xe0;
const XOR: u8 = 0xe8;
const XOR_LAST: u8 = 0xef;
const SCALE: u8 = 0xf0;

/// Number of values without a scale after which the encoder stops to search for one: a column of
/// full-precision floats would cost 31 needless multiplications per value.
const MISSES_MAX: u8 = 4;

/// The state that the next value is encoded against. An encoder and its decoder go through the same
/// states, except for `misses`, which only the encoder uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ValueState {
    /// Bits of the newest float.
    pub(crate) bits: u64,
    /// The newest integer, to which the next step is added.
    pub(crate) int: i64,
    pub(crate) form: ValueScaleState,
}

/// Encoding of the newest values. A struct of its own, so that a series can store the state in 18
/// bytes instead of 24.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ValueScaleState {
    scale: DecimalScale,
    /// Number of failed searches for a scale, combined with [`RAW`].
    misses: u8,
}

/// Flag: the newest float is not given by the integer and the scale.
const RAW: u8 = 0x80;

impl ValueScaleState {
    fn is_raw(self) -> bool {
        self.misses & RAW != 0
    }
}

/// A decoded operation of the value encoding: the next values, relative to the newest one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueDeltaOp {
    /// This number of values with the newest bits.
    Repeats(u32),
    /// The zigzag of a step of the integer.
    Step(u64),
    /// Exclusive-or of the next float's bits with the newest ones.
    Xor(u64),
    /// A change of the scale; a scale and a step follow.
    Scale,
}

impl ValueDeltaOp {
    /// Decodes the operation `op` and the bytes that belong to it.
    #[inline(always)]
    pub(crate) fn read(op: u8, cursor: &mut DecodeCursor<'_>) -> Result<Self, DecodeError> {
        Ok(match op {
            ..RUN => Self::Step(u64::from(op)),
            RUN..THIRTEEN_BITS => Self::Repeats(u32::from(op - RUN) + 1),
            THIRTEEN_BITS..BYTES => {
                Self::Step(u64::from(op & 0x1f) << 8 | u64::from(cursor.read_byte()?))
            }
            BYTES..XOR => Self::Step(cursor.read_number(usize::from(op - BYTES) + 1)?),
            XOR..=XOR_LAST => Self::Xor(cursor.read_number(usize::from(op - XOR) + 1)?),
            SCALE => Self::Scale,
            _ => return Err(DecodeError("unknown value code")),
        })
    }

    /// Decodes the zigzag of the step after a scale.
    pub(crate) fn read_scale_step(cursor: &mut DecodeCursor<'_>) -> Result<u64, DecodeError> {
        match Self::read(cursor.read_byte()?, cursor)? {
            Self::Step(step) => Ok(step),
            _ => Err(DecodeError("scale without an integer")),
        }
    }
}

/// Appends one more repeat. `run_at` is the position of the growing run in `out`, zero for none.
pub(crate) fn push_run(out: &mut impl EncodeSink, run_at: &mut u16) {
    push_repeat(out, run_at, RUN, RUN_MAX);
}

impl ValueState {
    /// Appends `value`. `run_at` is the position of the growing run in `out`, zero for none.
    pub(crate) fn push(&mut self, out: &mut impl EncodeSink, run_at: &mut u16, value: f64) {
        if !self.push_if_fitting(out, run_at, value) {
            self.push_outlier(out, value);
            self.bits = value.to_bits();
        }
    }

    /// Appends `value` if it repeats the newest one or has an integer in the current scale;
    /// otherwise returns false and appends nothing. Calls nothing else, so that the whole state
    /// stays in registers.
    #[inline]
    pub(crate) fn push_if_fitting(
        &mut self,
        out: &mut impl EncodeSink,
        run_at: &mut u16,
        value: f64,
    ) -> bool {
        let bits = value.to_bits();
        if bits == self.bits {
            push_repeat(out, run_at, RUN, RUN_MAX);
            return true;
        }
        *run_at = 0;
        let Some(int) = self.form.scale.to_int(value) else {
            return false;
        };
        if self.form.is_raw() && !self.is_nearer(int, bits) {
            self.push_bits(out, bits);
        } else {
            self.push_int(out, int);
        }
        self.bits = bits;
        true
    }

    /// Returns whether a step to `int` is shorter than the changed bytes of `bits`. Most
    /// full-precision floats below ten happen to be integers of 16 digits: a column of them should
    /// remain encoded as bits.
    #[cold]
    fn is_nearer(&self, int: i64, bits: u64) -> bool {
        let step = zigzag(int.wrapping_sub(self.int));
        byte_len(step) < byte_len(bits ^ self.bits)
    }

    /// Appends `value`, whose scale and integer are given by the caller, if there are any.
    #[inline]
    pub(crate) fn push_with_int(
        &mut self,
        out: &mut impl EncodeSink,
        run_at: &mut u16,
        value: f64,
        known: Option<(DecimalScale, i64)>,
    ) {
        let bits = value.to_bits();
        if bits == self.bits {
            return push_repeat(out, run_at, RUN, RUN_MAX);
        }
        *run_at = 0;
        match known {
            Some((scale, int)) => {
                if scale != self.form.scale {
                    self.push_scale(out, scale);
                }
                self.push_int(out, int);
            }
            None => self.push_bits(out, bits),
        }
        self.bits = bits;
    }

    /// Returns scale and integer of the newest value, if it has them.
    #[inline]
    pub(crate) fn newest_int(&self) -> Option<(DecimalScale, i64)> {
        (!self.form.is_raw()).then_some((self.form.scale, self.int))
    }

    fn push_scale(&mut self, out: &mut impl EncodeSink, scale: DecimalScale) {
        out.put(SCALE);
        out.put(scale.code());
        self.form.scale = scale;
        self.int = 0;
    }

    fn push_bits(&mut self, out: &mut impl EncodeSink, bits: u64) {
        let xor = bits ^ self.bits;
        let len = byte_len(xor);
        out.put(XOR + len as u8 - 1);
        out.put_low(xor, len);
        self.form.misses |= RAW;
    }

    #[inline]
    fn push_int(&mut self, out: &mut impl EncodeSink, int: i64) {
        let step = zigzag(int.wrapping_sub(self.int));
        self.int = int;
        self.form.misses &= !RAW;
        if step < u64::from(RUN) {
            out.put(step as u8);
        } else if step < 1 << 13 {
            out.put(THIRTEEN_BITS | (step >> 8) as u8);
            out.put(step as u8);
        } else {
            let len = byte_len(step);
            out.put(BYTES + len as u8 - 1);
            out.put_low(step, len);
        }
    }

    /// Appends a value that the current scale does not fit: with another scale, or as bits.
    #[cold]
    fn push_outlier(&mut self, out: &mut impl EncodeSink, value: f64) {
        if self.form.misses & !RAW < MISSES_MAX
            && let Some((scale, int)) = DecimalScale::find_for_value(value)
        {
            self.push_scale(out, scale);
            return self.push_int(out, int);
        }
        // Infinities and NaNs, mostly staleness markers, give no indication of the values around
        // them.
        if value.is_finite() {
            self.form.misses = (self.form.misses + 1).min(RAW | MISSES_MAX);
        }
        self.push_bits(out, value.to_bits());
    }

    /// Decodes and applies an operation. For a run, returns how many repeats of
    /// [`ValueState::bits`] are due; otherwise advances the state to the next value and returns
    /// zero.
    #[inline(always)]
    pub(crate) fn apply_op(
        &mut self,
        op: u8,
        cursor: &mut DecodeCursor<'_>,
    ) -> Result<u32, DecodeError> {
        // The fast path for nearly all samples, whose operation is one byte.
        if op < RUN {
            self.apply_step(u64::from(op));
            return Ok(0);
        }
        if op < THIRTEEN_BITS {
            return Ok(u32::from(op - RUN) + 1);
        }
        match ValueDeltaOp::read(op, cursor)? {
            ValueDeltaOp::Repeats(repeats) => return Ok(repeats),
            ValueDeltaOp::Step(step) => self.apply_step(step),
            ValueDeltaOp::Xor(bits) => {
                self.bits ^= bits;
                self.form.misses |= RAW;
            }
            ValueDeltaOp::Scale => (*self, *cursor) = self.read_rescaled(*cursor)?,
        }
        Ok(0)
    }

    /// Advances by a zigzag step of the integer.
    #[inline]
    pub(crate) fn apply_step(&mut self, step: u64) {
        self.int = self.int.wrapping_add(unzigzag(step));
        self.form.misses &= !RAW;
        self.bits = self.form.scale.to_float(self.int).to_bits();
    }

    /// Returns the conversion of integers of the current scale to floats.
    #[inline]
    pub(crate) fn current_conversion(&self) -> DecimalConversion {
        self.form.scale.to_conversion()
    }

    /// Advances to a float that is given by `int` and the scale.
    #[inline]
    pub(crate) fn set_int(&mut self, int: i64, float: f64) {
        (self.int, self.bits) = (int, float.to_bits());
        self.form.misses &= !RAW;
    }

    /// Advances to a float that is not given by the integer and the scale.
    #[inline]
    pub(crate) fn set_bits(&mut self, float: f64) {
        self.bits = float.to_bits();
        self.form.misses |= RAW;
    }

    /// Returns whether the newest float is not given by the integer and the scale.
    pub(crate) fn is_raw(&self) -> bool {
        self.form.is_raw()
    }

    /// Changes to the scale with this code, and resets the integer to 0.
    pub(crate) fn set_scale(&mut self, code: u8) -> Result<(), DecodeError> {
        self.form.scale = DecimalScale::from_code(code).ok_or(DecodeError("unknown scale"))?;
        self.int = 0;
        Ok(())
    }

    /// Decodes the bytes after a change of the scale. Takes and returns state and cursor by value,
    /// so that the caller can keep its own in registers.
    #[cold]
    fn read_rescaled<'a>(
        mut self,
        mut cursor: DecodeCursor<'a>,
    ) -> Result<(Self, DecodeCursor<'a>), DecodeError> {
        self.set_scale(cursor.read_byte()?)?;
        let step = ValueDeltaOp::read_scale_step(&mut cursor)?;
        self.apply_step(step);
        Ok((self, cursor))
    }
}
