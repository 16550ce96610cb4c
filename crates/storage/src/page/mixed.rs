//! Columns with histograms: runs of floats and of histograms of one shape.
//!
//! ```text
//! mixed   = run*                                   until the column's samples are covered
//! run     = (samples << 1 | histograms?) varint | bytes varint | floats or histograms
//! histograms = float counts? u8 | shape | hints | sums | counts | zero counts | buckets*
//! ```
//!
//! The shape is that of [`crate::encoding::histogram`]. Hints are an integer column, sums a float
//! column. Float counts are float columns as they are; integer ones are integer columns: of a
//! bucket the absolute count, of all observations what the buckets do not account for.

use super::HISTOGRAM_NUMBERS_MAX;
use super::floats::{self, FloatEncoder};
use super::ints;
use super::planner::Planner;
use super::values;
use crate::chunk::Columns;
use crate::encoding::cursor::Cursor;
use crate::encoding::histogram::{hint_code, hint_from_code, push_shape, read_shape, same_shape};
use crate::encoding::{Malformed, push_uvarint};
use firn_model::columns::HISTOGRAM_PLACEHOLDER;
use firn_model::histogram::{Counts, Histogram};
use std::ops::Range;
use std::sync::Arc;

/// Buckets, spans and bounds of all histograms of a column: what limits are about.
pub(super) fn numbers(columns: &Columns) -> usize {
    columns.histograms.iter().map(|(_, h)| numbers_of(h)).sum()
}

fn numbers_of(h: &Histogram) -> usize {
    h.counts.bucket_count()
        + h.positive_spans.len()
        + h.negative_spans.len()
        + h.custom_values.len()
}

/// Appends the samples of `columns`.
pub(super) fn push(
    out: &mut Vec<u8>,
    (floats, ints): (&mut FloatEncoder, &mut Planner),
    columns: &Columns,
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
            values::push_alone(&mut payload, floats, &columns.values[at..next]);
            next - at
        } else {
            let is_run =
                |w: &[(u32, Arc<Histogram>)]| w[1].0 == w[0].0 + 1 && same_shape(&w[0].1, &w[1].1);
            let len = 1 + histograms.windows(2).take_while(|w| is_run(w)).count();
            let (run, rest) = histograms.split_at(len);
            push_run(&mut payload, (floats, ints), run);
            histograms = rest;
            len
        };
        push_uvarint(out, (len as u64) << 1 | u64::from(at >= next));
        push_uvarint(out, payload.len() as u64);
        out.extend_from_slice(&payload);
        at += len;
    }
}

fn push_run(
    out: &mut Vec<u8>,
    (floats, ints): (&mut FloatEncoder, &mut Planner),
    run: &[(u32, Arc<Histogram>)],
) {
    let Some((_, first)) = run.first() else {
        return;
    };
    out.push(u8::from(matches!(first.counts, Counts::Float { .. })));
    push_shape(out, first);
    let hints = run.iter().map(|(_, h)| i64::from(hint_code(h.reset_hint)));
    ints::push_column(out, ints, &hints.collect::<Vec<_>>());
    let sums: Vec<f64> = run.iter().map(|(_, h)| h.sum).collect();
    values::push_alone(out, floats, &sums);
    let rows: Vec<Row> = run.iter().map(|(_, h)| Row::of(&h.counts)).collect();
    let width = rows[0].numbers();
    for i in 0..width {
        match &rows[0] {
            Row::Integers(_) => {
                let column: Vec<i64> = rows.iter().map(|r| r.integer(i)).collect();
                ints::push_column(out, ints, &column);
            }
            Row::Floats(_) => {
                let column: Vec<f64> = rows.iter().map(|r| r.float(i)).collect();
                values::push_alone(out, floats, &column);
            }
        }
    }
}

/// The counts of one histogram as the numbers that are stored: all observations, the zero bucket,
/// then positive and negative buckets.
enum Row {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
}

impl Row {
    fn of(counts: &Counts) -> Self {
        match counts {
            Counts::Integer {
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
            Counts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => Self::Floats([&[*count, *zero_count], &positive[..], &negative[..]].concat()),
        }
    }

    fn numbers(&self) -> usize {
        match self {
            Self::Integers(row) => row.len(),
            Self::Floats(row) => row.len(),
        }
    }

    fn integer(&self, i: usize) -> i64 {
        match self {
            Self::Integers(row) => row[i],
            Self::Floats(_) => 0,
        }
    }

    fn float(&self, i: usize) -> f64 {
        match self {
            Self::Integers(_) => 0.0,
            Self::Floats(row) => row[i],
        }
    }
}

/// Appends the samples `wanted` of a column of `count` to values and histograms of `into`; the
/// first one gets the index that the values have room for next.
pub(super) fn read(
    mut cursor: Cursor<'_>,
    count: usize,
    wanted: Range<usize>,
    into: &mut Columns,
) -> Result<(), Malformed> {
    let (mut at, mut budget) = (0, HISTOGRAM_NUMBERS_MAX);
    while at < count && at < wanted.end {
        let head = cursor.uvarint()?;
        let len = usize::try_from(head >> 1).unwrap_or(usize::MAX);
        let payload = Cursor::new(cursor.prefixed()?);
        if len == 0 || len > count - at {
            return Err(Malformed("run longer than its column"));
        }
        let part = wanted.start.saturating_sub(at).min(len)..(wanted.end - at).min(len);
        at += len;
        if part.is_empty() {
            continue;
        }
        if head & 1 == 0 {
            values::read_alone(payload, len, part, &mut into.values)?;
        } else {
            read_run(payload, len, part, (&mut budget, into))?;
        }
    }
    Ok(())
}

fn read_run(
    mut cursor: Cursor<'_>,
    count: usize,
    wanted: Range<usize>,
    (budget, into): (&mut usize, &mut Columns),
) -> Result<(), Malformed> {
    let is_float = match cursor.byte()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed("unknown kind of histogram")),
    };
    let shape = read_shape(&mut cursor, is_float)?;
    // The page's limit holds for all histograms together, so that no shape can be had for nothing.
    let rest = budget.checked_sub(numbers_of(&shape).saturating_mul(wanted.len()));
    *budget = rest.ok_or(Malformed("more buckets than a column may have"))?;
    let width = Row::of(&shape.counts).numbers();
    let mut hints = Vec::new();
    ints::read_column(cursor, count, wanted.clone(), &mut hints)?;
    ints::skip_column(&mut cursor, count)?;
    let mut sums = Vec::new();
    values::read_alone(cursor, count, wanted.clone(), &mut sums)?;
    floats::skip_column(&mut cursor, count)?;
    let mut histograms: Vec<Histogram> = Vec::with_capacity(wanted.len());
    for (hint, sum) in hints.iter().zip(&sums) {
        histograms.push(Histogram {
            reset_hint: hint_from_code(*hint as u8),
            sum: *sum,
            ..shape.clone()
        });
    }
    let (mut integers, mut numbers) = (Vec::new(), Vec::new());
    for i in 0..width {
        if is_float {
            numbers.clear();
            values::read_alone(cursor, count, wanted.clone(), &mut numbers)?;
            floats::skip_column(&mut cursor, count)?;
            let pairs = histograms.iter_mut().zip(&numbers);
            pairs.for_each(|(h, n)| set_float(&mut h.counts, i, *n));
        } else {
            integers.clear();
            ints::read_column(cursor, count, wanted.clone(), &mut integers)?;
            ints::skip_column(&mut cursor, count)?;
            let pairs = histograms.iter_mut().zip(&integers);
            pairs.for_each(|(h, n)| set_integer(&mut h.counts, i, *n));
        }
    }
    for mut histogram in histograms {
        settle(&mut histogram.counts);
        let index = into.values.len() as u32;
        into.values.push(HISTOGRAM_PLACEHOLDER);
        into.histograms.push((index, Arc::new(histogram)));
    }
    Ok(())
}

/// Sets the `i`th number of a row.
fn set_float(counts: &mut Counts, i: usize, n: f64) {
    let Counts::Float {
        count,
        zero_count,
        positive,
        negative,
    } = counts
    else {
        return;
    };
    match i {
        0 => *count = n,
        1 => *zero_count = n,
        _ => set_bucket((positive, negative), i - 2, n),
    }
}

/// Sets the `i`th number of a row.
fn set_integer(counts: &mut Counts, i: usize, n: i64) {
    let Counts::Integer {
        count,
        zero_count,
        positive,
        negative,
    } = counts
    else {
        return;
    };
    match i {
        0 => *count = n as u64,
        1 => *zero_count = n as u64,
        _ => set_bucket((positive, negative), i - 2, n),
    }
}

fn set_bucket<T>((positive, negative): (&mut [T], &mut [T]), i: usize, n: T) {
    let place = match i.checked_sub(positive.len()) {
        None => positive.get_mut(i),
        Some(i) => negative.get_mut(i),
    };
    if let Some(place) = place {
        *place = n;
    }
}

/// Turns absolute integer buckets into differences, and what they do not account for into the
/// count of all.
fn settle(counts: &mut Counts) {
    let Counts::Integer {
        count,
        zero_count,
        positive,
        negative,
    } = counts
    else {
        return;
    };
    *count = count.wrapping_add(*zero_count);
    for side in [positive, negative] {
        let mut before = 0i64;
        for bucket in side {
            *count = count.wrapping_add(*bucket as u64);
            (before, *bucket) = (*bucket, bucket.wrapping_sub(before));
        }
    }
}
