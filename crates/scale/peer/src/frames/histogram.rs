//! Native histograms in frames: every field exactly, with the bits of all floats.
//!
//! ```text
//! hint u8 | schema | zero threshold | sum | form u8 | counts | spans+ | spans- | custom bounds
//! counts = integer: count, zero count, deltas+, deltas-   float: count, zero count, counts+, -
//! ```
//!
//! Invariant: a decoded histogram has as many buckets on each side as its spans cover. Other rules
//! for histograms are left to the node that received the sample.

use crate::bytes::{
    MalformedFrame, PeerFrameReader, push_count, push_f64, push_varint, push_zigzag,
};
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};

const HINTS: [ResetHint; 4] = [
    ResetHint::Unknown,
    ResetHint::Reset,
    ResetHint::NotReset,
    ResetHint::Gauge,
];

const INTEGER: u8 = 0;
const FLOAT: u8 = 1;

/// Appends a histogram.
pub(crate) fn push_histogram(histogram: &Histogram, into: &mut Vec<u8>) {
    let hint = HINTS.iter().position(|hint| *hint == histogram.reset_hint);
    into.push(hint.expect("all hints are listed") as u8);
    push_zigzag(i64::from(histogram.schema), into);
    push_f64(histogram.zero_threshold, into);
    push_f64(histogram.sum, into);
    match &histogram.counts {
        HistogramCounts::Integer {
            count,
            zero_count,
            positive,
            negative,
        } => {
            into.push(INTEGER);
            push_varint(*count, into);
            push_varint(*zero_count, into);
            push_list(positive, into, |delta, into| push_zigzag(*delta, into));
            push_list(negative, into, |delta, into| push_zigzag(*delta, into));
        }
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => {
            into.push(FLOAT);
            push_f64(*count, into);
            push_f64(*zero_count, into);
            push_list(positive, into, |count, into| push_f64(*count, into));
            push_list(negative, into, |count, into| push_f64(*count, into));
        }
    }
    push_list(&histogram.positive_spans, into, push_span);
    push_list(&histogram.negative_spans, into, push_span);
    push_list(&histogram.custom_values, into, |bound, into| {
        push_f64(*bound, into);
    });
}

fn push_list<T>(items: &[T], into: &mut Vec<u8>, push: impl Fn(&T, &mut Vec<u8>)) {
    push_count(items.len(), into);
    items.iter().for_each(|item| push(item, into));
}

fn push_span(span: &BucketSpan, into: &mut Vec<u8>) {
    push_zigzag(i64::from(span.offset), into);
    push_varint(u64::from(span.length), into);
}

/// Reads a histogram.
pub(crate) fn read_histogram(
    reader: &mut PeerFrameReader<'_>,
) -> Result<Histogram, MalformedFrame> {
    let hint = HINTS.get(usize::from(reader.u8()?)).copied();
    let reset_hint = hint.ok_or(MalformedFrame("unknown reset hint"))?;
    let schema = read_i32(reader)?;
    let (zero_threshold, sum) = (reader.f64()?, reader.f64()?);
    let counts = match reader.u8()? {
        INTEGER => HistogramCounts::Integer {
            count: reader.varint()?,
            zero_count: reader.varint()?,
            positive: read_list(reader, 1, PeerFrameReader::zigzag)?,
            negative: read_list(reader, 1, PeerFrameReader::zigzag)?,
        },
        FLOAT => HistogramCounts::Float {
            count: reader.f64()?,
            zero_count: reader.f64()?,
            positive: read_list(reader, 8, PeerFrameReader::f64)?,
            negative: read_list(reader, 8, PeerFrameReader::f64)?,
        },
        _ => return Err(MalformedFrame("unknown form of histogram counts")),
    };
    let histogram = Histogram {
        reset_hint,
        schema,
        zero_threshold,
        sum,
        counts,
        positive_spans: read_list(reader, 2, read_span)?,
        negative_spans: read_list(reader, 2, read_span)?,
        custom_values: read_list(reader, 8, PeerFrameReader::f64)?,
    };
    check_spans(&histogram)?;
    Ok(histogram)
}

fn check_spans(histogram: &Histogram) -> Result<(), MalformedFrame> {
    let (positive, negative) = match &histogram.counts {
        HistogramCounts::Integer {
            positive, negative, ..
        } => (positive.len(), negative.len()),
        HistogramCounts::Float {
            positive, negative, ..
        } => (positive.len(), negative.len()),
    };
    let covered = |spans: &[BucketSpan]| spans.iter().map(|span| u64::from(span.length)).sum();
    let positive_covered: u64 = covered(&histogram.positive_spans);
    let negative_covered: u64 = covered(&histogram.negative_spans);
    if (positive_covered, negative_covered) == (positive as u64, negative as u64) {
        Ok(())
    } else {
        Err(MalformedFrame(
            "spans of a histogram differ from its buckets",
        ))
    }
}

fn read_list<'a, T>(
    reader: &mut PeerFrameReader<'a>,
    bytes_min: usize,
    read: impl Fn(&mut PeerFrameReader<'a>) -> Result<T, MalformedFrame>,
) -> Result<Vec<T>, MalformedFrame> {
    let count = reader.count(bytes_min)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(read(reader)?);
    }
    Ok(items)
}

fn read_span(reader: &mut PeerFrameReader<'_>) -> Result<BucketSpan, MalformedFrame> {
    Ok(BucketSpan {
        offset: read_i32(reader)?,
        length: reader.u32()?,
    })
}

fn read_i32(reader: &mut PeerFrameReader<'_>) -> Result<i32, MalformedFrame> {
    let number = reader.zigzag()?;
    i32::try_from(number).map_err(|_| MalformedFrame("signed number of more than 32 bits"))
}
