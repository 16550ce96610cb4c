//! Encoding of a pack: converts the codes of a chunk to distances from a line and steps of one
//! width.

use super::{
    CODES, DEARER_BYTES, FIRST_APART, FIRST_MAX, FIRST_MIN, ORDERED, PacksHeader, SAMPLES, SCALE,
    WIDTH_MAX, ZIGZAG, times,
};
use crate::encoding::bits::push_bits;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::decimal::order_bits;
use crate::encoding::sink::{EncodeBuffer, EncodeSink};
use crate::encoding::varint::bit_len;
use crate::encoding::{DecodeError, push_uvarint, time, unzigzag, value, zigzag};

/// An encoded pack, to be inserted into a body.
pub(in crate::chunk) struct EncodedPack {
    pub(super) samples: usize,
    pub(super) times: EncodeBuffer<{ FIRST_MAX * 9 + 9 }>,
    pub(super) values: EncodeBuffer<{ FIRST_MAX * 11 + 9 }>,
}

impl EncodedPack {
    /// Packs the `samples` floats in `codes`, which follow `packs`. Returns `None` if they are too
    /// few or too many, or not only floats. `last` are the bits of the last one. No code may
    /// continue a run that began before.
    pub(in crate::chunk) fn encode(
        packs: PacksHeader,
        codes: &[u8],
        samples: usize,
        last: u64,
    ) -> Option<Self> {
        let wanted = match packs.samples {
            0 => FIRST_MIN..=FIRST_MAX,
            _ => SAMPLES..=SAMPLES,
        };
        if !wanted.contains(&samples) {
            return None;
        }
        let mut pack = Self {
            samples,
            times: EncodeBuffer::default(),
            values: EncodeBuffer::default(),
        };
        let mut steps = pack.write_times(codes, packs.is_raw).ok()?;
        steps.find_order(samples, last);
        if !steps.write(samples, &mut pack.values) {
            pack.write_codes(codes).ok()?;
        }
        Some(pack)
    }

    /// Encodes the times and returns the values.
    fn write_times(&mut self, codes: &[u8], is_raw: bool) -> Result<PackValues, DecodeError> {
        let mut walk = PackCodeCursor::new(codes);
        let (mut steps, mut changes) = (PackValues::default(), [0; FIRST_MAX]);
        for (i, change) in changes[..self.samples].iter_mut().enumerate() {
            *change = walk.next_change()?;
            let left = walk.cursor.len();
            let kind = match walk.next_value()? {
                value::ValueDeltaOp::Repeats(_) => continue,
                value::ValueDeltaOp::Step(step) => {
                    steps.of[i] = unzigzag(step);
                    // The repeats before it were not of the integer.
                    if is_raw && i > 0 && steps.kind == PackValueKind::Repeats {
                        PackValueKind::Mixed
                    } else {
                        PackValueKind::Integers
                    }
                }
                value::ValueDeltaOp::Xor(bits) => {
                    steps.of[i] = bits as i64;
                    PackValueKind::Bits
                }
                value::ValueDeltaOp::Scale => {
                    steps.scale = Some(walk.cursor.read_byte()?);
                    steps.of[i] = unzigzag(value::ValueDeltaOp::read_scale_step(&mut walk.cursor)?);
                    match i {
                        0 => PackValueKind::Integers,
                        _ => PackValueKind::Mixed,
                    }
                }
            };
            steps.kind = steps.kind.combine(kind);
            steps.code_bytes += left - walk.cursor.len();
        }
        times::push(&changes[..self.samples], &mut self.times);
        Ok(steps)
    }

    /// Copies the codes of the values into the pack, for values that have no steps of one kind.
    #[cold]
    fn write_codes(&mut self, codes: &[u8]) -> Result<(), DecodeError> {
        let (mut walk, mut run) = (PackCodeCursor::new(codes), 0);
        self.values.put(CODES);
        for _ in 0..self.samples {
            walk.next_change()?;
            let before = walk.cursor.rest();
            match walk.next_value()? {
                value::ValueDeltaOp::Repeats(_) => {
                    value::push_run(&mut self.values, &mut run);
                    continue;
                }
                value::ValueDeltaOp::Scale => {
                    walk.cursor.read_byte()?;
                    value::ValueDeltaOp::read_scale_step(&mut walk.cursor)?;
                }
                _ => (),
            }
            run = 0;
            let code = &before[..before.len() - walk.cursor.len()];
            code.iter().for_each(|byte| self.values.put(*byte));
        }
        Ok(())
    }
}

/// Position of a reader in the codes to pack.
struct PackCodeCursor<'a> {
    cursor: DecodeCursor<'a>,
    time_repeats: u32,
    value_repeats: u32,
}

impl<'a> PackCodeCursor<'a> {
    fn new(codes: &'a [u8]) -> Self {
        Self {
            cursor: DecodeCursor::new(codes),
            time_repeats: 0,
            value_repeats: 0,
        }
    }

    /// Returns the zigzag of the change of the next interval.
    #[inline]
    fn next_change(&mut self) -> Result<u64, DecodeError> {
        if self.time_repeats == 0 {
            match time::TimeDeltaOp::read(self.cursor.read_byte()?, &mut self.cursor)? {
                time::TimeDeltaOp::Change(change) => return Ok(change),
                time::TimeDeltaOp::Repeats(repeats) => self.time_repeats = repeats,
            }
        }
        self.time_repeats -= 1;
        Ok(0)
    }

    /// Returns the next value. Runs are returned one by one; a scale is returned without the step
    /// that follows.
    #[inline]
    fn next_value(&mut self) -> Result<value::ValueDeltaOp, DecodeError> {
        if self.value_repeats == 0 {
            let code = value::ValueDeltaOp::read(self.cursor.read_byte()?, &mut self.cursor)?;
            let value::ValueDeltaOp::Repeats(repeats) = code else {
                return Ok(code);
            };
            self.value_repeats = repeats;
        }
        self.value_repeats -= 1;
        Ok(value::ValueDeltaOp::Repeats(1))
    }
}

/// Kind of the codes of a pack, apart from repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackValueKind {
    /// Only repeats, neither steps nor bits.
    Repeats,
    /// Steps of the integer, which is constant in between.
    Integers,
    /// Bits, exclusive-or with the previous ones.
    Bits,
    /// Both steps of integers and changes of raw bits.
    Mixed,
}

impl PackValueKind {
    fn combine(self, other: Self) -> Self {
        match self {
            Self::Repeats => other,
            same if same == other => same,
            _ => Self::Mixed,
        }
    }
}

/// The values of a pack, between codes and bytes.
struct PackValues {
    kind: PackValueKind,
    /// Code of the scale at the first value, if it changes there.
    scale: Option<u8>,
    of: [i64; FIRST_MAX],
    code_bytes: usize,
}

impl Default for PackValues {
    fn default() -> Self {
        Self {
            kind: PackValueKind::Repeats,
            scale: None,
            of: [0; FIRST_MAX],
            code_bytes: 0,
        }
    }
}

impl PackValues {
    /// Converts exclusive-or bits to steps of the order of the bits. `last` are the bits of the
    /// last value.
    fn find_order(&mut self, samples: usize, last: u64) {
        if self.kind != PackValueKind::Bits {
            return;
        }
        let of = &mut self.of[..samples];
        let mut bits = of.iter().fold(last, |bits, xor| bits ^ *xor as u64);
        for step in of {
            let before = order_bits(bits);
            bits ^= *step as u64;
            *step = order_bits(bits).wrapping_sub(before);
        }
    }

    /// Writes the values as steps. Returns false if that takes much more space than their codes.
    fn write(mut self, samples: usize, out: &mut impl EncodeSink) -> bool {
        if self.kind == PackValueKind::Mixed {
            return false;
        }
        let first = zigzag(self.of[0]);
        // The places after the last value are zero.
        let is_falling = self.of.iter().fold(0, |any, step| any | step) < 0;
        if is_falling {
            for step in &mut self.of {
                *step = zigzag(*step) as i64;
            }
        }
        let behind = self.of[1..].iter().fold(0, |any, step| any | step) as u64;
        let whole = bit_len(behind | self.of[0] as u64);
        let apart_saves = (whole - bit_len(behind)) * samples / 8;
        let is_apart = apart_saves > bit_len(first).div_ceil(7)
            || whole == 0 && self.kind != PackValueKind::Repeats;
        let width = if is_apart { bit_len(behind) } else { whole };
        if width > WIDTH_MAX || (width * samples).div_ceil(8) > self.code_bytes + DEARER_BYTES {
            return false;
        }
        if let Some(scale) = self.scale {
            out.put(SCALE);
            out.put(scale);
        }
        if self.kind == PackValueKind::Bits {
            out.put(ORDERED);
        }
        let zigzags = if is_falling { ZIGZAG } else { 0 };
        let apart = if is_apart { FIRST_APART } else { 0 };
        out.put(width as u8 | zigzags | apart);
        if is_apart {
            push_uvarint(out, first);
            self.of[0] = 0;
        }
        let numbers = self.of[..samples].iter().map(|step| *step as u64);
        push_bits(out, width, numbers);
        true
    }
}
