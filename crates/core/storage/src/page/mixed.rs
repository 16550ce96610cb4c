//! Columns with histograms: sections of floats, and of histograms of one shape.
//!
//! ```text
//! mixed   = stretch*                               until the column's samples are covered
//! stretch = (samples << 1 | histograms?) varint | bytes varint | floats or histograms
//! histograms = float counts? u8 | shape | hints | sums | counts | zero counts | buckets*
//! ```
//!
//! The shape is encoded as in [`crate::encoding::histogram`]. Hints are an integer column, sums a
//! float column. Float counts are float columns. Integer counts are integer columns: buckets
//! contain absolute counts, and the total count contains the observations that are in no bucket.

use super::floats::{self, FloatEncoder};
use super::ints;
use super::limits::HISTOGRAM_NUMBERS_MAX;
use super::planner::IntRunPlanner;
use super::values;
use crate::chunk::SampleColumns;
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::histogram::{
    count_buckets, has_same_shape, hint_code, hint_from_code, push_shape, read_shape,
};
use crate::encoding::{DecodeError, push_uvarint};
use firn_model::columns::HISTOGRAM_PLACEHOLDER;
use firn_model::histogram::{Histogram, HistogramCounts};
use std::ops::Range;
use std::sync::Arc;

/// Returns the number of buckets, spans and bounds of all histograms of a column, to which the
/// limits apply.
pub(crate) fn count_numbers(columns: &SampleColumns) -> usize {
    columns
        .histograms
        .iter()
        .map(|(_, h)| count_histogram_numbers(h))
        .sum()
}

/// Returns the number of buckets, spans and bounds of one histogram.
pub(crate) fn count_histogram_numbers(h: &Histogram) -> usize {
    h.counts.bucket_count()
        + h.positive_spans.len()
        + h.negative_spans.len()
        + h.custom_values.len()
}

/// The encoders for the columns of a page, with their working memory.
#[derive(Debug, Default)]
pub(crate) struct ColumnEncoders {
    pub(super) floats: FloatEncoder,
    /// Encoder of the columns of integers.
    pub(crate) ints: IntRunPlanner,
}

/// Encodes the values and histograms of `columns` and appends them to `out`.
pub(super) fn push_column(
    out: &mut Vec<u8>,
    encoders: &mut ColumnEncoders,
    columns: &SampleColumns,
) {
    let mut histograms = &columns.histograms[..];
    let mut at = 0;
    let mut payload = Vec::new();
    while at < columns.values.len() {
        payload.clear();
        let next = histograms
            .first()
            .map_or(columns.values.len(), |(i, _)| *i as usize);
        let len = if at < next {
            values::push_standalone(
                &mut payload,
                &mut encoders.floats,
                &columns.values[at..next],
            );
            next - at
        } else {
            let is_alike = |w: &[(u32, Arc<Histogram>)]| {
                w[1].0 == w[0].0 + 1 && has_same_shape(&w[0].1, &w[1].1)
            };
            let len = 1 + histograms.windows(2).take_while(|w| is_alike(w)).count();
            let (stretch, rest) = histograms.split_at(len);
            push_same_shape(&mut payload, encoders, stretch);
            histograms = rest;
            len
        };
        push_uvarint(out, (len as u64) << 1 | u64::from(at >= next));
        push_uvarint(out, payload.len() as u64);
        out.extend_from_slice(&payload);
        at += len;
    }
}

/// Encodes consecutive histograms of one shape as columns of hints, sums and counts.
fn push_same_shape(
    out: &mut Vec<u8>,
    encoders: &mut ColumnEncoders,
    stretch: &[(u32, Arc<Histogram>)],
) {
    let ColumnEncoders { floats, ints } = encoders;
    let Some((_, first)) = stretch.first() else {
        return;
    };
    out.push(u8::from(matches!(
        first.counts,
        HistogramCounts::Float { .. }
    )));
    push_shape(out, first);
    let hints = stretch
        .iter()
        .map(|(_, h)| i64::from(hint_code(h.reset_hint)));
    ints::push_column(out, ints, &hints.collect::<Vec<_>>());
    let sums: Vec<f64> = stretch.iter().map(|(_, h)| h.sum).collect();
    values::push_standalone(out, floats, &sums);
    let rows: Vec<HistogramCountRow> = stretch
        .iter()
        .map(|(_, h)| HistogramCountRow::from_counts(&h.counts))
        .collect();
    let (mut integers, mut numbers) = (Vec::new(), Vec::new());
    for i in 0..rows[0].number_count() {
        integers.clear();
        numbers.clear();
        for row in &rows {
            match row {
                HistogramCountRow::Integers(row) => integers.push(row[i]),
                HistogramCountRow::Floats(row) => numbers.push(row[i]),
            }
        }
        if integers.is_empty() {
            values::push_standalone(out, floats, &numbers)
        } else {
            ints::push_column(out, ints, &integers)
        }
    }
}

/// The counts of one histogram as stored: total, zero bucket, then positive and negative buckets.
/// Integer buckets are absolute, and the integer total contains the observations that are in no
/// bucket.
#[derive(Clone)]
enum HistogramCountRow {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
}

impl HistogramCountRow {
    fn from_counts(counts: &HistogramCounts) -> Self {
        match counts {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => {
                let mut row = vec![0, *zero_count as i64];
                for side in [positive, negative] {
                    let mut bucket = 0i64;
                    row.extend(side.iter().map(|delta| {
                        bucket = bucket.wrapping_add(*delta);
                        bucket
                    }));
                }
                let known = row.iter().fold(0i64, |sum, n| sum.wrapping_add(*n));
                row[0] = (*count as i64).wrapping_sub(known);
                Self::Integers(row)
            }
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => Self::Floats([&[*count, *zero_count], &positive[..], &negative[..]].concat()),
        }
    }

    /// Returns the counts of a histogram with `positive` positive buckets.
    fn into_counts(self, positive: usize) -> HistogramCounts {
        match self {
            Self::Integers(row) => {
                let count = row.iter().fold(0i64, |sum, n| sum.wrapping_add(*n)) as u64;
                let deltas = |buckets: &[i64]| {
                    let before = std::iter::once(&0).chain(buckets);
                    let pairs = buckets.iter().zip(before);
                    pairs.map(|(n, before)| n.wrapping_sub(*before)).collect()
                };
                let (positive, negative) = row[2..].split_at(positive);
                HistogramCounts::Integer {
                    count,
                    zero_count: row[1] as u64,
                    positive: deltas(positive),
                    negative: deltas(negative),
                }
            }
            Self::Floats(row) => {
                let (positive, negative) = row[2..].split_at(positive);
                HistogramCounts::Float {
                    count: row[0],
                    zero_count: row[1],
                    positive: positive.to_vec(),
                    negative: negative.to_vec(),
                }
            }
        }
    }

    fn number_count(&self) -> usize {
        match self {
            Self::Integers(row) => row.len(),
            Self::Floats(row) => row.len(),
        }
    }
}

/// Decodes the samples `wanted` of a column of `count` and appends them to the values and
/// histograms of `into`. The index of a histogram is its position in the values.
pub(crate) fn read_column(
    mut cursor: DecodeCursor<'_>,
    count: usize,
    wanted: Range<usize>,
    into: &mut SampleColumns,
) -> Result<(), DecodeError> {
    let (mut at, mut budget) = (0, HISTOGRAM_NUMBERS_MAX);
    while at < count && at < wanted.end {
        let head = cursor.read_uvarint()?;
        let len = usize::try_from(head >> 1).unwrap_or(usize::MAX);
        let payload = DecodeCursor::new(cursor.read_prefixed()?);
        if len == 0 || len > count - at {
            return Err(DecodeError("run longer than its column"));
        }
        let part = wanted.start.saturating_sub(at).min(len)..(wanted.end - at).min(len);
        at += len;
        if part.is_empty() {
            continue;
        }
        if head & 1 == 0 {
            values::read_standalone(payload, len, part, &mut into.values)?;
        } else {
            read_same_shape(payload, len, part, &mut budget, into)?;
        }
    }
    Ok(())
}

/// Decodes the wanted histograms of a section with one shape, within the remaining budget of
/// buckets.
fn read_same_shape(
    mut cursor: DecodeCursor<'_>,
    count: usize,
    wanted: Range<usize>,
    budget: &mut usize,
    into: &mut SampleColumns,
) -> Result<(), DecodeError> {
    let is_float = match cursor.read_byte()? {
        0 => false,
        1 => true,
        _ => return Err(DecodeError("unknown kind of histogram")),
    };
    let mut shape = read_shape(&mut cursor, is_float)?;
    // The limit applies to all histograms of the column together, so that a shape cannot be
    // repeated for free.
    let rest = budget.checked_sub(count_histogram_numbers(&shape).saturating_mul(wanted.len()));
    *budget = rest.ok_or(DecodeError("more buckets than a column may have"))?;
    let mut rows = vec![HistogramCountRow::from_counts(&shape.counts); wanted.len()];
    let (_, positive, _) = count_buckets(&shape.counts);
    // The shape is cloned for each histogram, which has its own counts.
    shape.counts = HistogramCountRow::Floats(vec![0.0; 2]).into_counts(0);
    let mut hints = Vec::new();
    ints::read_column(cursor, count, wanted.clone(), &mut hints)?;
    ints::skip_column(&mut cursor, count)?;
    let mut sums = Vec::new();
    values::read_standalone(cursor, count, wanted.clone(), &mut sums)?;
    floats::skip_column(&mut cursor, count)?;
    let (mut integers, mut numbers) = (Vec::new(), Vec::new());
    for i in 0..rows.first().map_or(0, HistogramCountRow::number_count) {
        integers.clear();
        numbers.clear();
        if is_float {
            values::read_standalone(cursor, count, wanted.clone(), &mut numbers)?;
            floats::skip_column(&mut cursor, count)?;
        } else {
            ints::read_column(cursor, count, wanted.clone(), &mut integers)?;
            ints::skip_column(&mut cursor, count)?;
        }
        for (k, row) in rows.iter_mut().enumerate() {
            match row {
                HistogramCountRow::Integers(row) => row[i] = integers[k],
                HistogramCountRow::Floats(row) => row[i] = numbers[k],
            }
        }
    }
    for ((row, hint), sum) in rows.into_iter().zip(hints).zip(sums) {
        let index = into.values.len() as u32;
        into.values.push(HISTOGRAM_PLACEHOLDER);
        let histogram = Histogram {
            reset_hint: hint_from_code(hint as u8),
            sum,
            counts: row.into_counts(positive),
            ..shape.clone()
        };
        into.histograms.push((index, Arc::new(histogram)));
    }
    Ok(())
}
