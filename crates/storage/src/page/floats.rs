//! Blocks of floats: integers under a scale, or the order of their bits where no scale does, with
//! misfits beside.
//!
//! ```text
//! block   = tag u8 | [scale u8] | [misfits] | rest of the integer block
//! tag     = bits 0-3 as of an integer block; bit 4 scale (else 0); bit 5 misfits; bit 6 sibling
//! misfits = n varint | n x ((values since the misfit before) << 3 | kind) varint, [bits]
//! kind    = 0 bits f64; 1 staleness marker; 2 NaN of arithmetic; 3 -0; 4 +Inf; 5 -Inf
//! ```
//!
//! Scales are those of [`crate::encoding::decimal`]; scale 16 takes the bits themselves as an integer
//! that is ordered as the floats are, so that full-precision floats that lie near each other
//! differ by few bits. With a sibling, the integers are what the sibling's lack to this column's.
//! Invariant: bits come back as they went in, for every f64.

use super::blocks;
use super::instructions::Instructions;
use super::ints;
use super::planner::Planner;
use crate::encoding::cursor::Cursor;
use crate::encoding::decimal::{OFFSET, SMALL, Scale, Scaling};
use crate::encoding::{Malformed, ordered, push_uvarint};
use firn_model::sample::{NORMAL_NAN_BITS, STALE_NAN_BITS};

const SCALE: u8 = 1 << 4;
const MISFITS: u8 = 1 << 5;
const SIBLING: u8 = 1 << 6;

/// The scale of ordered bits.
const ORDERED: u8 = 16;

/// Misfits that have a kind of their own; the kind is the index plus one.
const KNOWN_MISFITS: [u64; 5] = [
    STALE_NAN_BITS,
    NORMAL_NAN_BITS,
    1 << 63,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
];

/// Values that are looked at to find a scale for a block.
const PROBES: usize = 24;

/// Probes without a scale after which a block is taken to have none.
const PROBES_IN_VAIN: usize = 6;

/// Bytes a value from which on ordered bits are tried beside a scale: few decimals need as many.
const WIDE_BYTES: usize = 3;

/// Integers of a block under a scale.
#[derive(Clone, Debug, Default)]
pub(super) struct Scaled {
    scale: u8,
    ints: Vec<i64>,
    misfits: Vec<(usize, u64)>,
    misfit_bytes: usize,
}

/// Writes blocks. Reuse one to keep its memory.
#[derive(Debug, Default)]
pub(super) struct FloatEncoder {
    plain: Planner,
    other: Planner,
    trial: Scaled,
    differences: Vec<i64>,
}

impl FloatEncoder {
    /// Appends a block of `values`, as differences to `sibling` if that is smaller. Leaves the
    /// block's integers in `scaled` and says whether the sibling is used.
    pub(super) fn push(
        &mut self,
        out: &mut Vec<u8>,
        values: &[f64],
        sibling: Option<&Scaled>,
        scaled: &mut Scaled,
    ) -> bool {
        let found = self.find_scale(values, scaled);
        let mut bytes = usize::MAX;
        if found {
            bytes = self.plain.plan(&scaled.ints) + scaled.misfit_bytes;
            let of_sibling = sibling.filter(|s| s.scale == scaled.scale);
            if let Some(sibling) = of_sibling
                && self.beats(bytes, scaled, sibling)
            {
                write(out, &self.other, scaled, SIBLING);
                return true;
            }
        }
        if bytes > WIDE_BYTES * values.len() || scaled.misfit_bytes > values.len() / 4 {
            self.trial.order(values);
            if self.other.plan(&self.trial.ints) < bytes {
                std::mem::swap(scaled, &mut self.trial);
                write(out, &self.other, scaled, 0);
                return false;
            }
        }
        write(out, &self.plain, scaled, 0);
        false
    }

    /// Whether the differences to a sibling take clearly less, so that a reader should decode both.
    fn beats(&mut self, bytes: usize, scaled: &Scaled, sibling: &Scaled) -> bool {
        let pairs = scaled.ints.iter().zip(&sibling.ints);
        self.differences.clear();
        self.differences
            .extend(pairs.map(|(a, b)| a.wrapping_sub(*b)));
        let with_sibling = self.other.plan(&self.differences) + scaled.misfit_bytes;
        with_sibling + bytes / 8 < bytes
    }

    /// Finds the scale with the fewest misfits. False if no value had one.
    fn find_scale(&mut self, values: &[f64], scaled: &mut Scaled) -> bool {
        let Some((divisor, factor)) = candidates(values) else {
            scaled.misfit_bytes = usize::MAX;
            return false;
        };
        scaled.apply(divisor, values);
        if let Some(factor) = factor
            && !scaled.misfits.is_empty()
        {
            self.trial.apply(factor, values);
            if self.trial.misfits.len() < scaled.misfits.len() {
                std::mem::swap(scaled, &mut self.trial);
            }
        }
        true
    }
}

/// The finest divisor among the scales of probed values, and the commonest factor if any needs one.
fn candidates(values: &[f64]) -> Option<(Scale, Option<Scale>)> {
    let mut divisor = Scale::default();
    let mut factors = [0u8; 32];
    let (mut found, mut in_vain) = (false, 0);
    let stride = values.len().div_ceil(PROBES).max(1);
    for value in values.iter().step_by(stride) {
        if divisor.int(*value).is_some() {
            found = true;
            continue;
        }
        match Scale::find(*value) {
            Some((scale, _)) if scale.code() < ORDERED => {
                // Coarser than the one so far it is only because its integers would be too large.
                if scale.code() > divisor.code() {
                    divisor = scale;
                }
                found = true;
            }
            Some((scale, _)) => {
                factors[usize::from(scale.code())] += 1;
                found = true;
            }
            None if value.is_finite() => in_vain += 1,
            None => (),
        }
        if in_vain > PROBES_IN_VAIN {
            return None;
        }
    }
    let commonest = (0..32u8)
        .rev()
        .max_by_key(|code| factors[usize::from(*code)]);
    let factor = commonest.filter(|code| factors[usize::from(*code)] > 0);
    found.then(|| (divisor, factor.and_then(Scale::from_code)))
}

impl Scaled {
    /// Takes `values` under `scale`; where a value does not fit, the integer before stands in.
    fn apply(&mut self, scale: Scale, values: &[f64]) {
        self.scale = scale.code();
        self.misfits.clear();
        self.misfit_bytes = 0;
        if to_ints(self.scale, values, &mut self.ints) {
            return;
        }
        self.ints.clear();
        let mut before = values.iter().find_map(|v| scale.int(*v)).unwrap_or(0);
        for (i, value) in values.iter().enumerate() {
            match scale.int(*value) {
                Some(int) => before = int,
                None => self.misfits.push((i, value.to_bits())),
            }
            self.ints.push(before);
        }
        let bytes = |(_, bits): &(usize, u64)| if KNOWN_MISFITS.contains(bits) { 1 } else { 9 };
        self.misfit_bytes = self.misfits.iter().map(bytes).sum();
    }

    /// Takes the bits of `values`.
    fn order(&mut self, values: &[f64]) {
        self.scale = ORDERED;
        self.misfits.clear();
        self.misfit_bytes = 0;
        self.ints.clear();
        self.ints
            .extend(values.iter().map(|v| ordered(v.to_bits())));
    }
}

fn write(out: &mut Vec<u8>, planner: &Planner, scaled: &Scaled, tag: u8) {
    let scale = if scaled.scale == 0 { 0 } else { SCALE };
    let misfits = if scaled.misfits.is_empty() {
        0
    } else {
        MISFITS
    };
    planner.push(out, tag | scale | misfits, |out| {
        if scale != 0 {
            out.push(scaled.scale);
        }
        if misfits != 0 {
            push_misfits(out, &scaled.misfits);
        }
    });
}

fn push_misfits(out: &mut Vec<u8>, misfits: &[(usize, u64)]) {
    push_uvarint(out, misfits.len() as u64);
    let mut next = 0;
    for (at, bits) in misfits {
        let known = KNOWN_MISFITS.iter().position(|k| k == bits);
        let kind = known.map_or(0, |k| k as u64 + 1);
        push_uvarint(out, ((at - next) as u64) << 3 | kind);
        if known.is_none() {
            out.extend_from_slice(&bits.to_le_bytes());
        }
        next = at + 1;
    }
}

/// What stands before the integers of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    tag: u8,
    /// The scale's code, or [`ORDERED`].
    pub(super) scale: u8,
    misfits: Option<Cursor<'a>>,
}

impl<'a> Head<'a> {
    /// Reads it; the cursor is then where the integers begin.
    #[inline]
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Self, Malformed> {
        let tag = cursor.byte()?;
        let scale = match tag & SCALE {
            0 => 0,
            _ => cursor.byte()?,
        };
        if scale != ORDERED && Scale::from_code(scale).is_none() {
            return Err(Malformed("unknown scale"));
        }
        let misfits = (tag & MISFITS != 0).then_some(*cursor);
        if misfits.is_some() {
            each_misfit(cursor, |_, _| ())?;
        }
        Ok(Self {
            tag,
            scale,
            misfits,
        })
    }

    /// Whether the integers are differences to a sibling's.
    pub(super) fn has_sibling(&self) -> bool {
        self.tag & SIBLING != 0
    }

    /// The bits of the tag that tell how the integers are to be read.
    pub(super) fn tag_of_ints(&self) -> u8 {
        self.tag & ints::TAG_BITS
    }

    /// Appends floats for `ints`, which begin with the `first`th of the block.
    #[inline]
    pub(super) fn append(
        &self,
        ints: &[i64],
        first: usize,
        (with, into): (Instructions, &mut Vec<f64>),
    ) -> Result<(), Malformed> {
        let base = into.len();
        append_floats(scaling_of(self.scale), ints, (with, into));
        let Some(mut misfits) = self.misfits else {
            return Ok(());
        };
        each_misfit(&mut misfits, |at, bits| {
            let place = at
                .checked_sub(first)
                .and_then(|at| into[base..].get_mut(at));
            if let Some(place) = place {
                *place = f64::from_bits(bits);
            }
        })
    }
}

fn each_misfit(cursor: &mut Cursor<'_>, mut each: impl FnMut(usize, u64)) -> Result<(), Malformed> {
    let count = cursor.count(1)?;
    let mut at = 0usize;
    for _ in 0..count {
        let code = cursor.uvarint()?;
        let bits = match (code & 7) as usize {
            0 => cursor.u64()?,
            kind => *KNOWN_MISFITS
                .get(kind - 1)
                .ok_or(Malformed("unknown kind of misfit"))?,
        };
        at = at.wrapping_add((code >> 3) as usize);
        each(at, bits);
        at = at.wrapping_add(1);
    }
    Ok(())
}

/// The divisor of a scale, a power of ten that is a float. One if it has none.
fn divisor_of(scale: u8) -> f64 {
    match scale {
        ..ORDERED => 10u64.pow(u32::from(scale)) as f64,
        _ => 1.0,
    }
}

/// The factor of a scale. One if it has none.
fn factor_of(scale: u8) -> f64 {
    match scale {
        ..=ORDERED => 1.0,
        _ => Scale::from_code(scale).map_or(1.0, |s| s.float(1)),
    }
}

/// How integers become floats under a scale which [`Head::read`] accepted.
#[inline]
fn scaling_of(scale: u8) -> Scaling {
    match scale {
        ORDERED => Scaling::Ordered,
        code => Scale::from_code(code).map_or(Scaling::One, Scale::scaling),
    }
}

/// Appends floats for integers.
#[inline]
pub(super) fn append_floats(
    scaling: Scaling,
    ints: &[i64],
    (with, into): (Instructions, &mut Vec<f64>),
) {
    if with.convert(scaling, ints, into) {
        return;
    }
    match scaling {
        Scaling::Ordered => {
            into.extend(
                ints.iter()
                    .map(|int| f64::from_bits(ordered(*int as u64) as u64)),
            );
        }
        Scaling::One => convert(ints, into, |float| float),
        Scaling::Divisor(by) => convert(ints, into, |float| float / by.power),
        Scaling::Factor(factor) => convert(ints, into, |float| float * factor),
    }
}

/// Integers to floats and through `scale`, several at a time where all are small: the integer is
/// put into the fraction of a float of 2^52 and more, of which that number is taken again.
#[inline]
fn convert(ints: &[i64], into: &mut Vec<f64>, scale: impl Fn(f64) -> f64) {
    let above = |int: &i64| int.wrapping_add(SMALL) as u64 >> 52;
    if ints.iter().fold(0, |any, int| any | above(int)) == 0 {
        into.extend(ints.iter().map(|int| {
            let biased = (*int as u64).wrapping_add(OFFSET.to_bits());
            scale(f64::from_bits(biased) - OFFSET)
        }));
    } else {
        into.extend(ints.iter().map(|int| scale(*int as f64)));
    }
}

/// The way back, if all values are small integers under a scale of decimals; otherwise `ints` is
/// of no use.
fn to_ints(scale: u8, values: &[f64], ints: &mut Vec<i64>) -> bool {
    let power = divisor_of(scale & 15);
    let (divisor, factor) = (divisor_of(scale), factor_of(scale));
    ints.clear();
    let mut off = 0;
    ints.extend(values.iter().map(|value| {
        // To the nearest, as beyond 2^52 there are integers alone.
        let biased = value * power + OFFSET;
        let int = biased.to_bits().wrapping_sub(OFFSET.to_bits()) as i64;
        let back = (biased - OFFSET) / divisor * factor;
        off |= back.to_bits() ^ value.to_bits() | int.wrapping_add(SMALL) as u64 >> 52;
        int
    }));
    off == 0
}

/// Passes over a column of `count` floats.
pub(super) fn skip_column(cursor: &mut Cursor<'_>, count: usize) -> Result<(), Malformed> {
    blocks::pass(cursor, count, |cursor, count| {
        let head = Head::read(cursor)?;
        ints::skip(cursor, head.tag_of_ints(), count)
    })
}
