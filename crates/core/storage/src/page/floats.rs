//! Runs of floats: integers with a scale, or the order of their bits if there is no scale, with
//! separate outliers.
//!
//! ```text
//! run      = tag u8 | [scale u8] | [outliers] | rest of the integer run
//! tag      = bits 0-3 as of an integer run; bit 4 scale (else 0); bit 5 outliers; bit 6 reference
//! outliers = n varint | n x ((values since the outlier before) << 3 | kind) varint, [bits]
//! kind     = 0 bits f64; 1 staleness marker; 2 NaN of arithmetic; 3 -0; 4 +Inf; 5 -Inf
//! ```
//!
//! The scales are those of [`crate::encoding::format_decimal`]. Scale 16 uses the bits themselves
//! as an integer with the same order as the floats, so that full-precision floats that are close to
//! each other differ by few bits. With a reference column, the integers are the differences between
//! this column and the reference. Invariant: decoding returns the same bits for every f64.

use super::ints;
use super::planner::IntRunPlanner;
use super::runs;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::decimal::{BITS, DecimalConversion, DecimalScale, order_bits};
use crate::encoding::simd;
use crate::encoding::{DecodeError, push_uvarint};
use firn_model::sample::{NORMAL_NAN_BITS, STALE_NAN_BITS};

const SCALE: u8 = 1 << 4;
const OUTLIERS: u8 = 1 << 5;
const REFERENCE: u8 = 1 << 6;

/// Outliers that have a kind of their own, at the index of the kind minus one.
const KNOWN_OUTLIERS: [u64; 5] = [
    STALE_NAN_BITS,
    NORMAL_NAN_BITS,
    1 << 63,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
];

/// Number of values that are tested to find a scale for a run.
const PROBES: usize = 24;

/// Number of tested values without a scale after which the run is encoded without one.
const PROBES_IN_VAIN: usize = 6;

/// Bytes per value from which on ordered bits are tried beside a scale: few decimals need as many.
const WIDE_BYTES: usize = 3;

/// The integers of a run with their scale.
#[derive(Clone, Debug, Default)]
pub(super) struct ScaledRun {
    scale: u8,
    ints: Vec<i64>,
    outliers: Vec<(usize, u64)>,
    outlier_bytes: usize,
}

/// Encodes runs. Reuse an instance to keep its memory.
#[derive(Debug, Default)]
pub(super) struct FloatEncoder {
    plain: IntRunPlanner,
    other: IntRunPlanner,
    trial: ScaledRun,
    differences: Vec<i64>,
}

impl FloatEncoder {
    /// Appends a run of `values`, as differences from a run of the `reference` column if that is
    /// smaller. Stores the integers of the run in `scaled`, and returns whether the reference was
    /// used.
    pub(super) fn push_run(
        &mut self,
        out: &mut Vec<u8>,
        values: &[f64],
        reference: Option<&ScaledRun>,
        scaled: &mut ScaledRun,
    ) -> bool {
        let found = self.find_scale(values, scaled);
        let mut bytes = usize::MAX;
        if found {
            bytes = self.plain.plan_run(&scaled.ints) + scaled.outlier_bytes;
            let of_reference = reference.filter(|s| s.scale == scaled.scale);
            if let Some(reference) = of_reference
                && self.is_reference_worthwhile(bytes, scaled, reference)
            {
                write_run(out, &self.other, scaled, REFERENCE);
                return true;
            }
        }
        if bytes > WIDE_BYTES * values.len() || scaled.outlier_bytes > values.len() / 4 {
            self.trial.order_values(values);
            if self.other.plan_run(&self.trial.ints) < bytes {
                std::mem::swap(scaled, &mut self.trial);
                write_run(out, &self.other, scaled, 0);
                return false;
            }
        }
        write_run(out, &self.plain, scaled, 0);
        false
    }

    /// Returns whether the differences from a reference take clearly less space, so that it is
    /// worth decoding both columns.
    fn is_reference_worthwhile(
        &mut self,
        bytes: usize,
        scaled: &ScaledRun,
        reference: &ScaledRun,
    ) -> bool {
        let pairs = scaled.ints.iter().zip(&reference.ints);
        self.differences.clear();
        self.differences
            .extend(pairs.map(|(a, b)| a.wrapping_sub(*b)));
        let with_reference = self.other.plan_run(&self.differences) + scaled.outlier_bytes;
        with_reference + bytes / 8 < bytes
    }

    /// Finds the scale with the fewest outliers. Returns false if no tested value has a scale.
    fn find_scale(&mut self, values: &[f64], scaled: &mut ScaledRun) -> bool {
        let Some((divisor, factor)) = find_candidate_scales(values) else {
            scaled.outlier_bytes = usize::MAX;
            return false;
        };
        scaled.scale_values(divisor, values);
        if let Some(factor) = factor
            && !scaled.outliers.is_empty()
        {
            self.trial.scale_values(factor, values);
            if self.trial.outliers.len() < scaled.outliers.len() {
                std::mem::swap(scaled, &mut self.trial);
            }
        }
        true
    }
}

/// Returns the finest divisor among the scales of the tested values, and the most frequent factor
/// if any value needs one.
fn find_candidate_scales(values: &[f64]) -> Option<(DecimalScale, Option<DecimalScale>)> {
    let mut divisor = DecimalScale::default();
    let mut factors = [0u8; 32];
    let (mut found, mut in_vain) = (false, 0);
    let stride = values.len().div_ceil(PROBES).max(1);
    for value in values.iter().step_by(stride) {
        if divisor.to_int(*value).is_some() {
            found = true;
            continue;
        }
        match DecimalScale::find_for_value(*value) {
            Some((scale, _)) if scale.code() < BITS => {
                // It is coarser than the current one only because its integers would be too large.
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
    found.then(|| (divisor, factor.and_then(DecimalScale::from_code)))
}

impl ScaledRun {
    /// Converts `values` to integers with `scale`. An outlier repeats the previous integer.
    fn scale_values(&mut self, scale: DecimalScale, values: &[f64]) {
        self.scale = scale.code();
        self.outliers.clear();
        self.outlier_bytes = 0;
        if scale.convert_small_ints(values, &mut self.ints) {
            return;
        }
        self.ints.clear();
        let mut before = values.iter().find_map(|v| scale.to_int(*v)).unwrap_or(0);
        for (i, value) in values.iter().enumerate() {
            match scale.to_int(*value) {
                Some(int) => before = int,
                None => self.outliers.push((i, value.to_bits())),
            }
            self.ints.push(before);
        }
        let bytes = |(_, bits): &(usize, u64)| if KNOWN_OUTLIERS.contains(bits) { 1 } else { 9 };
        self.outlier_bytes = self.outliers.iter().map(bytes).sum();
    }

    /// Converts `values` to the order of their bits.
    fn order_values(&mut self, values: &[f64]) {
        self.scale = BITS;
        self.outliers.clear();
        self.outlier_bytes = 0;
        self.ints.clear();
        self.ints
            .extend(values.iter().map(|v| order_bits(v.to_bits())));
    }
}

fn write_run(out: &mut Vec<u8>, planner: &IntRunPlanner, scaled: &ScaledRun, tag: u8) {
    let scale = if scaled.scale == 0 { 0 } else { SCALE };
    let outliers = if scaled.outliers.is_empty() {
        0
    } else {
        OUTLIERS
    };
    planner.push_planned(out, tag | scale | outliers, |out| {
        if scale != 0 {
            out.push(scaled.scale);
        }
        if outliers != 0 {
            push_outliers(out, &scaled.outliers);
        }
    });
}

fn push_outliers(out: &mut Vec<u8>, outliers: &[(usize, u64)]) {
    push_uvarint(out, outliers.len() as u64);
    let mut next = 0;
    for (at, bits) in outliers {
        let known = KNOWN_OUTLIERS.iter().position(|k| k == bits);
        let kind = known.map_or(0, |k| k as u64 + 1);
        push_uvarint(out, ((at - next) as u64) << 3 | kind);
        if known.is_none() {
            out.extend_from_slice(&bits.to_le_bytes());
        }
        next = at + 1;
    }
}

/// The header of a run, before its integers.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloatRunHeader<'a> {
    tag: u8,
    /// Code of the scale, or [`BITS`].
    pub(super) scale: u8,
    outliers: Option<DecodeCursor<'a>>,
}

impl<'a> FloatRunHeader<'a> {
    /// Reads the header and moves the cursor to the integers.
    #[inline]
    pub(super) fn read(cursor: &mut DecodeCursor<'a>) -> Result<Self, DecodeError> {
        let tag = cursor.read_byte()?;
        let scale = match tag & SCALE {
            0 => 0,
            _ => cursor.read_byte()?,
        };
        if scale != BITS && DecimalScale::from_code(scale).is_none() {
            return Err(DecodeError("unknown scale"));
        }
        let outliers = (tag & OUTLIERS != 0).then_some(*cursor);
        if outliers.is_some() {
            for_each_outlier(cursor, |_, _| ())?;
        }
        Ok(Self {
            tag,
            scale,
            outliers,
        })
    }

    /// Returns whether the integers are differences from those of the reference column.
    pub(super) fn has_reference(&self) -> bool {
        self.tag & REFERENCE != 0
    }

    /// Returns the bits of the tag that describe the encoding of the integers.
    pub(super) fn ints_tag(&self) -> u8 {
        self.tag & ints::TAG_BITS
    }

    /// Appends the floats for `ints`, which begin at index `first` of the run, with its outliers.
    #[inline]
    pub(super) fn append_floats(
        &self,
        ints: &[i64],
        first: usize,
        into: &mut Vec<f64>,
    ) -> Result<(), DecodeError> {
        let base = into.len();
        into.resize(base + ints.len(), 0.0);
        simd::convert_to_floats(conversion_for_scale(self.scale), ints, &mut into[base..]);
        let Some(mut outliers) = self.outliers else {
            return Ok(());
        };
        for_each_outlier(&mut outliers, |at, bits| {
            let place = at
                .checked_sub(first)
                .and_then(|at| into[base..].get_mut(at));
            if let Some(place) = place {
                *place = f64::from_bits(bits);
            }
        })
    }
}

/// Decodes the outliers of a run, and calls `each` with the index and the bits of each.
fn for_each_outlier(
    cursor: &mut DecodeCursor<'_>,
    mut each: impl FnMut(usize, u64),
) -> Result<(), DecodeError> {
    let count = cursor.read_count(1)?;
    let mut at = 0usize;
    for _ in 0..count {
        let code = cursor.read_uvarint()?;
        let bits = match (code & 7) as usize {
            0 => cursor.read_u64()?,
            kind => *KNOWN_OUTLIERS
                .get(kind - 1)
                .ok_or(DecodeError("unknown kind of misfit"))?,
        };
        at = at.wrapping_add((code >> 3) as usize);
        each(at, bits);
        at = at.wrapping_add(1);
    }
    Ok(())
}

/// Returns the conversion for a scale that [`FloatRunHeader::read`] accepted.
#[inline]
fn conversion_for_scale(scale: u8) -> DecimalConversion {
    match scale {
        BITS => DecimalConversion::Ordered,
        code => DecimalScale::from_code(code)
            .map_or(DecimalConversion::One, DecimalScale::to_conversion),
    }
}

/// Skips a column of `count` floats without decoding its vectors.
pub(super) fn skip_column(cursor: &mut DecodeCursor<'_>, count: usize) -> Result<(), DecodeError> {
    runs::skip_runs(cursor, count, |cursor, count| {
        let head = FloatRunHeader::read(cursor)?;
        ints::skip_run(cursor, head.ints_tag(), count)
    })
}
