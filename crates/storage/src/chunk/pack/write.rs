//! Encoding of a pack: converts the codes of a chunk to distances from a line and steps of one
//! width.

use super::{
    CODES, DEARER_BYTES, FIRST_APART, FIRST_MAX, FIRST_MIN, ORDERED, Packs, SAMPLES, SCALE,
    WIDTH_MAX, ZIGZAG, times,
};
use crate::encoding::bits::push_bits;
use crate::encoding::cursor::Cursor;
use crate::encoding::decimal::ordered;
use crate::encoding::sink::{Buffer, Sink};
use crate::encoding::varint::bit_len;
use crate::encoding::{Malformed, push_uvarint, time, unzigzag, value, zigzag};

/// An encoded pack, to be inserted into a body.
pub(in crate::chunk) struct Pack {
    pub(super) samples: usize,
    pub(super) times: Buffer<{ FIRST_MAX * 9 + 9 }>,
    pub(super) values: Buffer<{ FIRST_MAX * 11 + 9 }>,
}

impl Pack {
    /// Packs the `samples` floats in `codes`, which follow `packs`. Returns `None` if they are too
    /// few or too many, or not only floats. `last` are the bits of the last one. No code may
    /// continue a run that began before.
    pub(in crate::chunk) fn of(
        packs: Packs,
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
            times: Buffer::default(),
            values: Buffer::default(),
        };
        let mut steps = pack.write_times(codes, packs.is_raw).ok()?;
        steps.find_order(samples, last);
        if !steps.write(samples, &mut pack.values) {
            pack.write_codes(codes).ok()?;
        }
        Some(pack)
    }

    /// Encodes the times and returns the values.
    fn write_times(&mut self, codes: &[u8], is_raw: bool) -> Result<Values, Malformed> {
        let mut walk = Walk::new(codes);
        let (mut steps, mut changes) = (Values::default(), [0; FIRST_MAX]);
        for (i, change) in changes[..self.samples].iter_mut().enumerate() {
            *change = walk.change()?;
            let left = walk.cursor.len();
            let kind = match walk.value()? {
                value::Code::Repeats(_) => continue,
                value::Code::Step(step) => {
                    steps.of[i] = unzigzag(step);
                    // The repeats before it were not of the integer.
                    match is_raw && i > 0 && steps.kind == Kind::Repeats {
                        true => Kind::Mixed,
                        false => Kind::Integers,
                    }
                }
                value::Code::Xor(bits) => {
                    steps.of[i] = bits as i64;
                    Kind::Bits
                }
                value::Code::Scale => {
                    steps.scale = Some(walk.cursor.byte()?);
                    steps.of[i] = unzigzag(value::Code::step_of_scale(&mut walk.cursor)?);
                    match i {
                        0 => Kind::Integers,
                        _ => Kind::Mixed,
                    }
                }
            };
            steps.kind = steps.kind.with(kind);
            steps.code_bytes += left - walk.cursor.len();
        }
        times::push(&changes[..self.samples], &mut self.times);
        Ok(steps)
    }

    /// Copies the codes of the values into the pack, for values that have no steps of one kind.
    #[cold]
    fn write_codes(&mut self, codes: &[u8]) -> Result<(), Malformed> {
        let (mut walk, mut run) = (Walk::new(codes), 0);
        self.values.put(CODES);
        for _ in 0..self.samples {
            walk.change()?;
            let before = walk.cursor.rest();
            match walk.value()? {
                value::Code::Repeats(_) => {
                    value::push_run(&mut self.values, &mut run);
                    continue;
                }
                value::Code::Scale => {
                    walk.cursor.byte()?;
                    value::Code::step_of_scale(&mut walk.cursor)?;
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
struct Walk<'a> {
    cursor: Cursor<'a>,
    time_repeats: u32,
    value_repeats: u32,
}

impl<'a> Walk<'a> {
    fn new(codes: &'a [u8]) -> Self {
        Self {
            cursor: Cursor::new(codes),
            time_repeats: 0,
            value_repeats: 0,
        }
    }

    /// Returns the zigzag of the change of the next interval.
    #[inline]
    fn change(&mut self) -> Result<u64, Malformed> {
        if self.time_repeats == 0 {
            match time::Code::read(self.cursor.byte()?, &mut self.cursor)? {
                time::Code::Change(change) => return Ok(change),
                time::Code::Repeats(repeats) => self.time_repeats = repeats,
            }
        }
        self.time_repeats -= 1;
        Ok(0)
    }

    /// Returns the next value. Runs are returned one by one; a scale is returned without the step
    /// that follows.
    #[inline]
    fn value(&mut self) -> Result<value::Code, Malformed> {
        if self.value_repeats == 0 {
            let code = value::Code::read(self.cursor.byte()?, &mut self.cursor)?;
            let value::Code::Repeats(repeats) = code else {
                return Ok(code);
            };
            self.value_repeats = repeats;
        }
        self.value_repeats -= 1;
        Ok(value::Code::Repeats(1))
    }
}

/// Kind of the codes of a pack, apart from repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Only repeats, neither steps nor bits.
    Repeats,
    /// Steps of the integer, which is constant in between.
    Integers,
    /// Bits, exclusive-or with the previous ones.
    Bits,
    /// Both steps of integers and changes of raw bits.
    Mixed,
}

impl Kind {
    fn with(self, other: Self) -> Self {
        match self {
            Self::Repeats => other,
            same if same == other => same,
            _ => Self::Mixed,
        }
    }
}

/// The values of a pack, between codes and bytes.
struct Values {
    kind: Kind,
    /// Code of the scale at the first value, if it changes there.
    scale: Option<u8>,
    of: [i64; FIRST_MAX],
    code_bytes: usize,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            kind: Kind::Repeats,
            scale: None,
            of: [0; FIRST_MAX],
            code_bytes: 0,
        }
    }
}

impl Values {
    /// Converts exclusive-or bits to steps of the order of the bits. `last` are the bits of the
    /// last value.
    fn find_order(&mut self, samples: usize, last: u64) {
        if self.kind != Kind::Bits {
            return;
        }
        let of = &mut self.of[..samples];
        let mut bits = of.iter().fold(last, |bits, xor| bits ^ *xor as u64);
        for step in of {
            let before = ordered(bits);
            bits ^= *step as u64;
            *step = ordered(bits).wrapping_sub(before);
        }
    }

    /// Writes the values as steps. Returns false if that takes much more space than their codes.
    fn write(mut self, samples: usize, out: &mut impl Sink) -> bool {
        if self.kind == Kind::Mixed {
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
        let is_apart =
            apart_saves > bit_len(first).div_ceil(7) || whole == 0 && self.kind != Kind::Repeats;
        let width = if is_apart { bit_len(behind) } else { whole };
        if width > WIDTH_MAX || (width * samples).div_ceil(8) > self.code_bytes + DEARER_BYTES {
            return false;
        }
        if let Some(scale) = self.scale {
            out.put(SCALE);
            out.put(scale);
        }
        if self.kind == Kind::Bits {
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
