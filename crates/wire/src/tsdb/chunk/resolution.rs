//! Histograms finer than Firn's finest schema, as newer versions may write them: their buckets are
//! merged until they are coarse enough (`reduceResolution` in `model/histogram/generic.go`).

use super::layout::BUCKETS_MAX;
use crate::tsdb::error::Malformed;
use firn_model::histogram::{Counts, EXPONENTIAL_SCHEMA_MAX, Histogram, Span, bucket_indexes};

/// Makes the histogram as coarse as the finest schema that can be read, if it is finer.
pub(in crate::tsdb) fn reduce(histogram: &mut Histogram) -> Result<(), Malformed> {
    let shift = histogram.schema - EXPONENTIAL_SCHEMA_MAX;
    if shift <= 0 {
        return Ok(());
    }
    let (positive_spans, negative_spans) =
        (&mut histogram.positive_spans, &mut histogram.negative_spans);
    match &mut histogram.counts {
        Counts::Integer {
            positive, negative, ..
        } => {
            for (spans, deltas) in [(positive_spans, positive), (negative_spans, negative)] {
                to_counts(deltas);
                merge(spans, deltas, shift, i64::wrapping_add)?;
                to_deltas(deltas);
            }
        }
        Counts::Float {
            positive, negative, ..
        } => {
            for (spans, counts) in [(positive_spans, positive), (negative_spans, negative)] {
                merge(spans, counts, shift, |a, b| a + b)?;
            }
        }
    }
    histogram.schema = EXPONENTIAL_SCHEMA_MAX;
    Ok(())
}

fn to_counts(deltas: &mut [i64]) {
    let mut count = 0i64;
    for delta in deltas {
        count = count.wrapping_add(*delta);
        *delta = count;
    }
}

fn to_deltas(counts: &mut [i64]) {
    let mut before = 0i64;
    for count in counts {
        (*count, before) = (count.wrapping_sub(before), *count);
    }
}

fn merge<T: Copy>(
    spans: &mut Vec<Span>,
    counts: &mut Vec<T>,
    shift: i32,
    add: impl Fn(T, T) -> T,
) -> Result<(), Malformed> {
    let mut merged: Vec<(i64, T)> = Vec::new();
    for (index, count) in bucket_indexes(spans).zip(counts.iter()) {
        // A bucket ends where its index says: the end decides in which coarser one it lies.
        let target = ((index - 1) >> shift.min(63)) + 1;
        match merged.last_mut() {
            Some((last, sum)) if *last == target => *sum = add(*sum, *count),
            Some((last, _)) if *last > target => {
                return Err(Malformed::Invalid("a histogram's spans go back"));
            }
            _ => merged.push((target, *count)),
        }
    }
    let indexes: Vec<i64> = merged.iter().map(|(index, _)| *index).collect();
    *spans = spans_of(&indexes)?;
    *counts = merged.into_iter().map(|(_, count)| count).collect();
    Ok(())
}

/// The spans of the buckets with these indexes, which increase.
pub(in crate::tsdb) fn spans_of(indexes: &[i64]) -> Result<Vec<Span>, Malformed> {
    let mut spans: Vec<Span> = Vec::new();
    let mut end = 0i64;
    for index in indexes {
        let gap = index
            .checked_sub(end)
            .and_then(|gap| i32::try_from(gap).ok());
        let gap = gap.ok_or(Malformed::Invalid("a histogram's spans lie too far apart"))?;
        match spans.last_mut() {
            Some(span) if gap == 0 && u64::from(span.length) < BUCKETS_MAX => span.length += 1,
            Some(_) if gap < 0 => return Err(Malformed::Invalid("a histogram's spans go back")),
            _ => spans.push(Span {
                offset: gap,
                length: 1,
            }),
        }
        end = index + 1;
    }
    Ok(spans)
}
