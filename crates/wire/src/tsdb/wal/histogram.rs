//! Decodes a histogram in a WAL record (`EncodeHistogram` in `tsdb/record/record.go`).

use crate::tsdb::bytes::Cursor;
use crate::tsdb::chunk::{bucket_count, is_known_schema, reduce};
use crate::tsdb::error::Malformed;
use firn_model::histogram::{CUSTOM_BUCKETS_SCHEMA, Counts, Histogram, ResetHint, Span};

/// A histogram, or its schema as the error value if that is unknown.
pub(super) type Read = Result<Histogram, i32>;

/// Reads a histogram with integer or float counts; fails if spans and counts do not match.
pub(super) fn read(cursor: &mut Cursor<'_>, is_float: bool) -> Result<Read, Malformed> {
    let reset_hint = match cursor.byte()? {
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        3 => ResetHint::Gauge,
        _ => ResetHint::Unknown,
    };
    let schema = cursor.varint()? as i32;
    let zero_threshold = cursor.float()?;
    let mut histogram = match is_float {
        false => {
            let (zero_count, count) = (cursor.uvarint()?, cursor.uvarint()?);
            let sum = cursor.float()?;
            let (positive_spans, negative_spans) = (spans(cursor)?, spans(cursor)?);
            let counts = Counts::Integer {
                count,
                zero_count,
                positive: integers(cursor)?,
                negative: integers(cursor)?,
            };
            shape(sum, positive_spans, negative_spans, counts)
        }
        true => {
            let (zero_count, count) = (cursor.float()?, cursor.float()?);
            let sum = cursor.float()?;
            let (positive_spans, negative_spans) = (spans(cursor)?, spans(cursor)?);
            let counts = Counts::Float {
                count,
                zero_count,
                positive: floats(cursor)?,
                negative: floats(cursor)?,
            };
            shape(sum, positive_spans, negative_spans, counts)
        }
    };
    if schema == CUSTOM_BUCKETS_SCHEMA {
        histogram.custom_values = floats(cursor)?;
    }
    if !is_known_schema(schema) {
        return Ok(Err(schema));
    }
    (histogram.reset_hint, histogram.schema) = (reset_hint, schema);
    histogram.zero_threshold = zero_threshold;
    check(&histogram)?;
    reduce(&mut histogram)?;
    Ok(Ok(histogram))
}

fn shape(
    sum: f64,
    positive_spans: Vec<Span>,
    negative_spans: Vec<Span>,
    counts: Counts,
) -> Histogram {
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 0,
        zero_threshold: 0.0,
        sum,
        counts,
        positive_spans,
        negative_spans,
        custom_values: Vec::new(),
    }
}

fn check(histogram: &Histogram) -> Result<(), Malformed> {
    let (positives, negatives) = match &histogram.counts {
        Counts::Integer {
            positive, negative, ..
        } => (positive.len(), negative.len()),
        Counts::Float {
            positive, negative, ..
        } => (positive.len(), negative.len()),
    };
    let fits = bucket_count(&histogram.positive_spans)? == positives
        && bucket_count(&histogram.negative_spans)? == negatives;
    match fits {
        true => Ok(()),
        false => Err(Malformed::Invalid(
            "spans and buckets of a histogram do not fit",
        )),
    }
}

fn spans(cursor: &mut Cursor<'_>) -> Result<Vec<Span>, Malformed> {
    let count = cursor.count(2)?;
    let mut spans = Vec::with_capacity(count);
    for _ in 0..count {
        let offset = cursor.varint()? as i32;
        let length = cursor.uvarint()? as u32;
        spans.push(Span { offset, length });
    }
    Ok(spans)
}

fn integers(cursor: &mut Cursor<'_>) -> Result<Vec<i64>, Malformed> {
    (0..cursor.count(1)?).map(|_| cursor.varint()).collect()
}

fn floats(cursor: &mut Cursor<'_>) -> Result<Vec<f64>, Malformed> {
    (0..cursor.count(8)?).map(|_| cursor.float()).collect()
}
