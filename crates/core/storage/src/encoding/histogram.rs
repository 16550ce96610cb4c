//! Encoding of native histograms of every kind, exact to the bit. A histogram is encoded relative
//! to the previous one if both have the same shape.
//!
//! ```text
//! histogram = flags u8 | shape if flags has NEW_SHAPE | counts
//! flags     = bit 0 float counts, bit 1 NEW_SHAPE, bits 2-3 reset hint
//! shape     = schema zigzag varint | zero threshold 8 bytes
//!           | spans, positive and negative: n varint, n x (offset zigzag varint, length varint)
//!           | custom bounds: n varint, n x 8 bytes
//!           | positive buckets varint | negative buckets varint
//! counts    = sum xor | count | zero count | positive buckets | negative buckets
//!             integers: zigzag varint of the step; floats: xor
//! xor       = 00 for equal bits, else (zero bytes below) << 4 | bytes, and these bytes
//! ```

use super::DecodeError;
use super::cursor::DecodeCursor;
use super::sink::EncodeSink;
use super::varint::{byte_len, push_uvarint, unzigzag, zigzag};
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use std::sync::Arc;

const FLOAT: u8 = 1;
const NEW_SHAPE: u8 = 2;

/// Appends `histogram` with `hint` as its counter reset hint, encoded relative to `previous`.
pub(crate) fn push_histogram(
    out: &mut Vec<u8>,
    previous: Option<&Histogram>,
    histogram: &Histogram,
    hint: ResetHint,
) {
    let previous = previous.filter(|p| has_same_shape(p, histogram));
    let is_float = matches!(histogram.counts, HistogramCounts::Float { .. });
    let shape = if previous.is_none() { NEW_SHAPE } else { 0 };
    out.push(u8::from(is_float) | shape | hint_code(hint) << 2);
    if previous.is_none() {
        push_shape(out, histogram);
    }
    push_xor(out, previous.map_or(0.0, |p| p.sum), histogram.sum);
    push_counts(out, previous.map(|p| &p.counts), &histogram.counts);
}

/// Returns whether all fields except the counter reset hint are bit for bit equal.
pub(crate) fn is_equal_except_hint(a: &Histogram, b: &Histogram) -> bool {
    let bytes = |histogram| {
        let mut bytes = Vec::new();
        push_histogram(&mut bytes, None, histogram, ResetHint::Unknown);
        bytes
    };
    bytes(a) == bytes(b)
}

/// Returns whether two histograms have the same schema, spans, bounds and numbers of buckets, so
/// that only their counts differ.
pub(crate) fn has_same_shape(a: &Histogram, b: &Histogram) -> bool {
    a.schema == b.schema
        && a.zero_threshold.to_bits() == b.zero_threshold.to_bits()
        && a.positive_spans == b.positive_spans
        && a.negative_spans == b.negative_spans
        && has_same_bits(&a.custom_values, &b.custom_values)
        && count_buckets(&a.counts) == count_buckets(&b.counts)
}

/// Replaces the histogram in `kept` by another one with `hint` as its hint. Reuses the memory of
/// the old one if no other reference to it exists and the shapes are equal.
pub(crate) fn replace_histogram(
    kept: &mut Option<Arc<Histogram>>,
    by: &Histogram,
    hint: ResetHint,
) {
    let own = kept.as_mut().and_then(Arc::get_mut);
    match own.filter(|own| has_same_shape(own, by)) {
        Some(own) => {
            own.reset_hint = hint;
            own.sum = by.sum;
            replace_counts(&mut own.counts, &by.counts);
        }
        None => {
            *kept = Some(Arc::new(Histogram {
                reset_hint: hint,
                ..by.clone()
            }));
        }
    }
}

/// Replaces counts by others with the same numbers of buckets.
fn replace_counts(own: &mut HistogramCounts, by: &HistogramCounts) {
    match (own, by) {
        (
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            },
            HistogramCounts::Integer {
                count: by_count,
                zero_count: by_zero,
                positive: by_positive,
                negative: by_negative,
            },
        ) => {
            (*count, *zero_count) = (*by_count, *by_zero);
            positive.clone_from(by_positive);
            negative.clone_from(by_negative);
        }
        (
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            },
            HistogramCounts::Float {
                count: by_count,
                zero_count: by_zero,
                positive: by_positive,
                negative: by_negative,
            },
        ) => {
            (*count, *zero_count) = (*by_count, *by_zero);
            positive.clone_from(by_positive);
            negative.clone_from(by_negative);
        }
        (own, by) => *own = by.clone(),
    }
}

fn has_same_bits(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

/// Returns whether the counts are floats, and the numbers of positive and negative buckets.
pub(crate) fn count_buckets(counts: &HistogramCounts) -> (bool, usize, usize) {
    match counts {
        HistogramCounts::Integer {
            positive, negative, ..
        } => (false, positive.len(), negative.len()),
        HistogramCounts::Float {
            positive, negative, ..
        } => (true, positive.len(), negative.len()),
    }
}

/// Returns the code of a counter reset hint, in two bits.
pub(crate) fn hint_code(hint: ResetHint) -> u8 {
    match hint {
        ResetHint::Unknown => 0,
        ResetHint::Reset => 1,
        ResetHint::NotReset => 2,
        ResetHint::Gauge => 3,
    }
}

/// Returns the counter reset hint with this code; only the low two bits are used.
pub(crate) fn hint_from_code(code: u8) -> ResetHint {
    match code & 3 {
        0 => ResetHint::Unknown,
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        _ => ResetHint::Gauge,
    }
}

/// Appends everything of a histogram except its counts, sum and hint.
pub(crate) fn push_shape(out: &mut Vec<u8>, histogram: &Histogram) {
    push_uvarint(out, zigzag(i64::from(histogram.schema)));
    out.put_low(histogram.zero_threshold.to_bits(), 8);
    for spans in [&histogram.positive_spans, &histogram.negative_spans] {
        push_uvarint(out, spans.len() as u64);
        for span in spans {
            push_uvarint(out, zigzag(i64::from(span.offset)));
            push_uvarint(out, u64::from(span.length));
        }
    }
    push_uvarint(out, histogram.custom_values.len() as u64);
    for bound in &histogram.custom_values {
        out.put_low(bound.to_bits(), 8);
    }
    let (_, positive, negative) = count_buckets(&histogram.counts);
    push_uvarint(out, positive as u64);
    push_uvarint(out, negative as u64);
}

fn push_counts(out: &mut Vec<u8>, previous: Option<&HistogramCounts>, counts: &HistogramCounts) {
    match counts {
        HistogramCounts::Integer {
            count,
            zero_count,
            positive,
            negative,
        } => {
            let (p_count, p_zero, p_positive, p_negative) = match previous {
                Some(HistogramCounts::Integer {
                    count,
                    zero_count,
                    positive,
                    negative,
                }) => (*count, *zero_count, &positive[..], &negative[..]),
                _ => (0, 0, &[][..], &[][..]),
            };
            push_step(out, p_count as i64, *count as i64);
            push_step(out, p_zero as i64, *zero_count as i64);
            for (side, before) in [(positive, p_positive), (negative, p_negative)] {
                for (i, n) in side.iter().enumerate() {
                    push_step(out, before.get(i).copied().unwrap_or(0), *n);
                }
            }
        }
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => {
            let (p_count, p_zero, p_positive, p_negative) = match previous {
                Some(HistogramCounts::Float {
                    count,
                    zero_count,
                    positive,
                    negative,
                }) => (*count, *zero_count, &positive[..], &negative[..]),
                _ => (0.0, 0.0, &[][..], &[][..]),
            };
            push_xor(out, p_count, *count);
            push_xor(out, p_zero, *zero_count);
            for (side, before) in [(positive, p_positive), (negative, p_negative)] {
                for (i, n) in side.iter().enumerate() {
                    push_xor(out, before.get(i).copied().unwrap_or(0.0), *n);
                }
            }
        }
    }
}

fn push_step(out: &mut Vec<u8>, before: i64, n: i64) {
    push_uvarint(out, zigzag(n.wrapping_sub(before)));
}

fn push_xor(out: &mut Vec<u8>, before: f64, value: f64) {
    let xor = before.to_bits() ^ value.to_bits();
    if xor == 0 {
        return out.push(0);
    }
    let below = xor.trailing_zeros() as usize / 8;
    let shifted = xor >> (8 * below);
    let len = byte_len(shifted);
    out.push((below << 4 | len) as u8);
    out.put_low(shifted, len);
}

/// Decodes a histogram that was encoded relative to `previous`.
pub(crate) fn read_histogram(
    cursor: &mut DecodeCursor<'_>,
    previous: Option<&Histogram>,
) -> Result<Histogram, DecodeError> {
    let flags = cursor.read_byte()?;
    if flags >= 1 << 4 {
        return Err(DecodeError("unknown histogram flags"));
    }
    let is_float = flags & FLOAT != 0;
    let fresh;
    let base = if flags & NEW_SHAPE != 0 {
        fresh = read_shape(cursor, is_float)?;
        &fresh
    } else {
        previous.ok_or(DecodeError("histogram without a shape"))?
    };
    let sum = read_xor(cursor, base.sum)?;
    let counts = read_counts(cursor, &base.counts)?;
    if is_float != matches!(counts, HistogramCounts::Float { .. }) {
        return Err(DecodeError("histogram changes kind without a shape"));
    }
    Ok(Histogram {
        reset_hint: hint_from_code(flags >> 2),
        sum,
        counts,
        ..base.clone()
    })
}

/// Decodes a shape and returns a histogram of that shape with all counts zero.
pub(crate) fn read_shape(
    cursor: &mut DecodeCursor<'_>,
    is_float: bool,
) -> Result<Histogram, DecodeError> {
    let schema = i32::try_from(unzigzag(cursor.read_uvarint()?))
        .map_err(|_| DecodeError("histogram schema out of range"))?;
    let zero_threshold = f64::from_bits(cursor.read_u64()?);
    let positive_spans = read_spans(cursor)?;
    let negative_spans = read_spans(cursor)?;
    let custom_values = (0..cursor.read_count(8)?)
        .map(|_| cursor.read_u64().map(f64::from_bits))
        .collect::<Result<_, _>>()?;
    let positive = cursor.read_count(1)?;
    let negative = cursor.read_count(1)?;
    let counts = if is_float {
        HistogramCounts::Float {
            count: 0.0,
            zero_count: 0.0,
            positive: vec![0.0; positive],
            negative: vec![0.0; negative],
        }
    } else {
        HistogramCounts::Integer {
            count: 0,
            zero_count: 0,
            positive: vec![0; positive],
            negative: vec![0; negative],
        }
    };
    Ok(Histogram {
        reset_hint: ResetHint::Unknown,
        schema,
        zero_threshold,
        sum: 0.0,
        counts,
        positive_spans,
        negative_spans,
        custom_values,
    })
}

fn read_spans(cursor: &mut DecodeCursor<'_>) -> Result<Vec<BucketSpan>, DecodeError> {
    let out_of_range = DecodeError("histogram span out of range");
    (0..cursor.read_count(2)?)
        .map(|_| {
            Ok(BucketSpan {
                offset: i32::try_from(unzigzag(cursor.read_uvarint()?))
                    .map_err(|_| out_of_range)?,
                length: u32::try_from(cursor.read_uvarint()?).map_err(|_| out_of_range)?,
            })
        })
        .collect()
}

fn read_counts(
    cursor: &mut DecodeCursor<'_>,
    base: &HistogramCounts,
) -> Result<HistogramCounts, DecodeError> {
    Ok(match base {
        HistogramCounts::Integer {
            count,
            zero_count,
            positive,
            negative,
        } => HistogramCounts::Integer {
            count: read_step(cursor, *count as i64)? as u64,
            zero_count: read_step(cursor, *zero_count as i64)? as u64,
            positive: read_each(cursor, positive, read_step)?,
            negative: read_each(cursor, negative, read_step)?,
        },
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => HistogramCounts::Float {
            count: read_xor(cursor, *count)?,
            zero_count: read_xor(cursor, *zero_count)?,
            positive: read_each(cursor, positive, read_xor)?,
            negative: read_each(cursor, negative, read_xor)?,
        },
    })
}

fn read_each<T: Copy>(
    cursor: &mut DecodeCursor<'_>,
    before: &[T],
    read: impl Fn(&mut DecodeCursor<'_>, T) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    before.iter().map(|b| read(cursor, *b)).collect()
}

fn read_step(cursor: &mut DecodeCursor<'_>, before: i64) -> Result<i64, DecodeError> {
    Ok(before.wrapping_add(unzigzag(cursor.read_uvarint()?)))
}

fn read_xor(cursor: &mut DecodeCursor<'_>, before: f64) -> Result<f64, DecodeError> {
    let op = cursor.read_byte()?;
    if op == 0 {
        return Ok(before);
    }
    let (below, len) = (usize::from(op >> 4), usize::from(op & 0x0f));
    if len == 0 || below + len > 8 {
        return Err(DecodeError("unknown float code"));
    }
    let xor = cursor.read_number(len)? << (8 * below);
    Ok(f64::from_bits(before.to_bits() ^ xor))
}
