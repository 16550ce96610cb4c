//! Reduction of the resolution: merges neighbouring buckets until the schema is reached.
//!
//! One step merges pairs of buckets: bucket `i` of a schema covers the same values as buckets
//! `2i - 1` and `2i` of the next higher resolution. Follows `reduceResolution` in
//! `model/histogram/generic.go` of Prometheus.

use super::{BucketSpan, Histogram, HistogramCounts, bucket_indexes};
use crate::error::{Error, ErrorKind};

/// The highest exponential schema that a newer version may write. Its resolution is reduced here.
pub const EXPONENTIAL_SCHEMA_RESERVED_MAX: i32 = 52;

/// Maximum number of buckets in one span. The schema and the range of floats permit less than
/// 300,000 buckets.
const SPAN_LENGTH_MAX: u32 = 1 << 20;

impl Histogram {
    /// Reduces the resolution to `schema` if it is higher. Fails with
    /// [`crate::error::ErrorKind::Invalid`] if spans are out of order or too far apart. O(buckets).
    pub fn reduce_to(&mut self, schema: i32) -> Result<(), Error> {
        let shift = self.schema.saturating_sub(schema);
        if shift <= 0 {
            return Ok(());
        }
        let (positive_spans, negative_spans) = (&mut self.positive_spans, &mut self.negative_spans);
        match &mut self.counts {
            HistogramCounts::Integer {
                positive, negative, ..
            } => {
                for (spans, deltas) in [(positive_spans, positive), (negative_spans, negative)] {
                    to_counts(deltas);
                    merge(spans, deltas, shift, i64::wrapping_add)?;
                    to_deltas(deltas);
                }
            }
            HistogramCounts::Float {
                positive, negative, ..
            } => {
                for (spans, counts) in [(positive_spans, positive), (negative_spans, negative)] {
                    merge(spans, counts, shift, |a, b| a + b)?;
                }
            }
        }
        self.schema = schema;
        Ok(())
    }
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
    spans: &mut Vec<BucketSpan>,
    counts: &mut Vec<T>,
    shift: i32,
    add: impl Fn(T, T) -> T,
) -> Result<(), Error> {
    let mut merged: Vec<(i64, T)> = Vec::new();
    for (index, count) in bucket_indexes(spans).zip(counts.iter()) {
        // The index of a bucket refers to its upper bound, which determines the merged bucket.
        let target = ((index - 1) >> shift.min(63)) + 1;
        match merged.last_mut() {
            Some((last, sum)) if *last == target => *sum = add(*sum, *count),
            Some((last, _)) if *last > target => return Err(falling()),
            _ => merged.push((target, *count)),
        }
    }
    let indexes: Vec<i64> = merged.iter().map(|(index, _)| *index).collect();
    *spans = spans_from_indexes(&indexes)?;
    *counts = merged.into_iter().map(|(_, count)| count).collect();
    Ok(())
}

/// Returns the spans of the buckets with these indexes. Fails if the indexes are not in ascending
/// order, or are too far apart.
pub fn spans_from_indexes(indexes: &[i64]) -> Result<Vec<BucketSpan>, Error> {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut end = 0i64;
    for index in indexes {
        let gap = index
            .checked_sub(end)
            .and_then(|gap| i32::try_from(gap).ok());
        let too_far = || Error::new(ErrorKind::Invalid, "spans of a histogram are too far apart");
        let gap = gap.ok_or_else(too_far)?;
        match spans.last_mut() {
            Some(span) if gap == 0 && span.length < SPAN_LENGTH_MAX => span.length += 1,
            Some(_) if gap < 0 => return Err(falling()),
            _ => spans.push(BucketSpan {
                offset: gap,
                length: 1,
            }),
        }
        end = index + 1;
    }
    Ok(spans)
}

fn falling() -> Error {
    Error::new(ErrorKind::Invalid, "spans of a histogram are out of order")
}
