//! Decodes a histogram in a WAL record (`EncodeHistogram` in `tsdb/record/record.go`).

use crate::bytes::TsdbByteCursor;
use crate::chunk::{bucket_count, is_known_schema, reduce_resolution};
use crate::error::MalformedTsdbBytes;
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};

/// A histogram, or its schema as the error value if that is unknown.
pub(super) type Read = Result<Histogram, i32>;

/// Reads a histogram with integer or float counts; fails if spans and counts do not match.
pub(super) fn read(
    cursor: &mut TsdbByteCursor<'_>,
    is_float: bool,
) -> Result<Read, MalformedTsdbBytes> {
    let reset_hint = match cursor.read_byte()? {
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        3 => ResetHint::Gauge,
        _ => ResetHint::Unknown,
    };
    let schema = cursor.read_varint()? as i32;
    let zero_threshold = cursor.read_float()?;
    let mut histogram = if !is_float {
        let (zero_count, count) = (cursor.read_uvarint()?, cursor.read_uvarint()?);
        let sum = cursor.read_float()?;
        let (positive_spans, negative_spans) = (read_spans(cursor)?, read_spans(cursor)?);
        let counts = HistogramCounts::Integer {
            count,
            zero_count,
            positive: read_integers(cursor)?,
            negative: read_integers(cursor)?,
        };
        read_shape(sum, positive_spans, negative_spans, counts)
    } else {
        let (zero_count, count) = (cursor.read_float()?, cursor.read_float()?);
        let sum = cursor.read_float()?;
        let (positive_spans, negative_spans) = (read_spans(cursor)?, read_spans(cursor)?);
        let counts = HistogramCounts::Float {
            count,
            zero_count,
            positive: read_floats(cursor)?,
            negative: read_floats(cursor)?,
        };
        read_shape(sum, positive_spans, negative_spans, counts)
    };
    if schema == CUSTOM_BUCKETS_SCHEMA {
        histogram.custom_values = read_floats(cursor)?;
    }
    if !is_known_schema(schema) {
        return Ok(Err(schema));
    }
    (histogram.reset_hint, histogram.schema) = (reset_hint, schema);
    histogram.zero_threshold = zero_threshold;
    check(&histogram)?;
    reduce_resolution(&mut histogram)?;
    Ok(Ok(histogram))
}

fn read_shape(
    sum: f64,
    positive_spans: Vec<BucketSpan>,
    negative_spans: Vec<BucketSpan>,
    counts: HistogramCounts,
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

fn check(histogram: &Histogram) -> Result<(), MalformedTsdbBytes> {
    let (positives, negatives) = match &histogram.counts {
        HistogramCounts::Integer {
            positive, negative, ..
        } => (positive.len(), negative.len()),
        HistogramCounts::Float {
            positive, negative, ..
        } => (positive.len(), negative.len()),
    };
    let fits = bucket_count(&histogram.positive_spans)? == positives
        && bucket_count(&histogram.negative_spans)? == negatives;
    if fits {
        Ok(())
    } else {
        Err(MalformedTsdbBytes::Invalid(
            "spans and buckets of a histogram do not fit",
        ))
    }
}

fn read_spans(cursor: &mut TsdbByteCursor<'_>) -> Result<Vec<BucketSpan>, MalformedTsdbBytes> {
    let count = cursor.read_count(2)?;
    let mut spans = Vec::with_capacity(count);
    for _ in 0..count {
        let offset = cursor.read_varint()? as i32;
        let length = cursor.read_uvarint()? as u32;
        spans.push(BucketSpan { offset, length });
    }
    Ok(spans)
}

fn read_integers(cursor: &mut TsdbByteCursor<'_>) -> Result<Vec<i64>, MalformedTsdbBytes> {
    (0..cursor.read_count(1)?)
        .map(|_| cursor.read_varint())
        .collect()
}

fn read_floats(cursor: &mut TsdbByteCursor<'_>) -> Result<Vec<f64>, MalformedTsdbBytes> {
    (0..cursor.read_count(8)?)
        .map(|_| cursor.read_float())
        .collect()
}
