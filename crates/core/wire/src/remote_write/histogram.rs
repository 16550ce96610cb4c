//! Decodes the native histograms of both versions; version 1.0 has no start timestamps.
//!
//! A message is walked twice: first to compute its memory, then to decode it. As in every protobuf
//! `oneof`, the last count decides whether the histogram has integer or float counts; buckets of
//! the other kind are ignored.

use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type, from_zigzag};
use firn_model::batch::HistogramSample;
use firn_model::error::Error;
use firn_model::histogram::{
    BucketSpan, EXPONENTIAL_SCHEMA_MAX, EXPONENTIAL_SCHEMA_RESERVED_MAX, Histogram,
    HistogramCounts, ResetHint,
};

/// Field numbers of `Histogram` and `BucketSpan`.
pub(super) mod field {
    pub const COUNT_INTEGER: u32 = 1;
    pub const COUNT_FLOAT: u32 = 2;
    pub const SUM: u32 = 3;
    pub const SCHEMA: u32 = 4;
    pub const ZERO_THRESHOLD: u32 = 5;
    pub const ZERO_COUNT_INTEGER: u32 = 6;
    pub const ZERO_COUNT_FLOAT: u32 = 7;
    pub const NEGATIVE_SPANS: u32 = 8;
    pub const NEGATIVE_DELTAS: u32 = 9;
    pub const NEGATIVE_COUNTS: u32 = 10;
    pub const POSITIVE_SPANS: u32 = 11;
    pub const POSITIVE_DELTAS: u32 = 12;
    pub const POSITIVE_COUNTS: u32 = 13;
    pub const RESET_HINT: u32 = 14;
    pub const TIME: u32 = 15;
    pub const CUSTOM_VALUES: u32 = 16;
    pub const START_TIME: u32 = 17;
    pub const SPAN_OFFSET: u32 = 1;
    pub const SPAN_LENGTH: u32 = 2;
}

/// Returns an upper bound for the memory that decoding `message` takes, in bytes. Fails if the
/// message is malformed.
pub(super) fn memory_bytes(message: &[u8]) -> Result<usize, WireError> {
    let mut bytes = size_of::<HistogramSample>();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        let is_packed = wire_type == WireType::Bytes;
        bytes += match number {
            field::NEGATIVE_DELTAS | field::POSITIVE_DELTAS if is_packed => {
                let deltas = cursor.read_bytes()?;
                8 * deltas.iter().filter(|byte| **byte < 0x80).count()
            }
            field::NEGATIVE_COUNTS | field::POSITIVE_COUNTS | field::CUSTOM_VALUES if is_packed => {
                cursor.read_bytes()?.len()
            }
            field::NEGATIVE_SPANS..=field::POSITIVE_COUNTS | field::CUSTOM_VALUES => {
                cursor.skip(wire_type)?;
                size_of::<BucketSpan>().max(8)
            }
            _ => {
                cursor.skip(wire_type)?;
                0
            }
        };
    }
    Ok(bytes)
}

/// The decoded fields of a message, with both kinds of counts, of which the last one sent is used.
#[derive(Default)]
struct WriteHistogramFields {
    is_float: bool,
    count_integer: u64,
    count_float: f64,
    zero_count_integer: u64,
    zero_count_float: f64,
    negative: WriteHistogramBuckets,
    positive: WriteHistogramBuckets,
    time: i64,
    start_time: i64,
}

/// The buckets of one sign, in both representations, of which one is used.
#[derive(Default)]
struct WriteHistogramBuckets {
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

/// Decodes a histogram without validating it; fails only if the message is malformed.
pub fn decode(message: &[u8]) -> Result<HistogramSample, WireError> {
    let mut fields = WriteHistogramFields::default();
    let mut histogram = Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 0,
        zero_threshold: 0.0,
        sum: 0.0,
        counts: HistogramCounts::Integer {
            count: 0,
            zero_count: 0,
            positive: Vec::new(),
            negative: Vec::new(),
        },
        positive_spans: Vec::new(),
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    };
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        if !fields.read(number, wire_type, &mut cursor)? {
            read_shape(&mut histogram, number, wire_type, &mut cursor)?;
        }
    }
    let (time, start_time) = (fields.time, fields.start_time);
    histogram.counts = fields.into_counts();
    Ok(HistogramSample {
        time,
        start_time,
        histogram,
    })
}

/// Reduces a histogram with a finer schema than Firn supports to the finest supported one, and
/// validates it.
pub(crate) fn reduce_resolution(histogram: &mut Histogram) -> Result<(), Error> {
    if histogram.schema <= EXPONENTIAL_SCHEMA_RESERVED_MAX {
        histogram.reduce_to(EXPONENTIAL_SCHEMA_MAX)?;
    }
    histogram.validate()
}

impl WriteHistogramFields {
    /// Reads the field if it is one of these; returns false otherwise. Fails if the field has the
    /// wrong wire type.
    fn read(
        &mut self,
        number: u32,
        wire_type: WireType,
        cursor: &mut ProtobufCursor<'_>,
    ) -> Result<bool, WireError> {
        match number {
            field::COUNT_INTEGER => {
                self.count_integer = read_integer(wire_type, cursor)?;
                self.is_float = false;
            }
            field::COUNT_FLOAT => {
                self.count_float = read_double(wire_type, cursor)?;
                self.is_float = true;
            }
            field::ZERO_COUNT_INTEGER => {
                self.zero_count_integer = read_integer(wire_type, cursor)?;
                self.zero_count_float = 0.0;
            }
            field::ZERO_COUNT_FLOAT => {
                self.zero_count_float = read_double(wire_type, cursor)?;
                self.zero_count_integer = 0;
            }
            field::NEGATIVE_DELTAS => read_deltas(&mut self.negative.deltas, wire_type, cursor)?,
            field::POSITIVE_DELTAS => read_deltas(&mut self.positive.deltas, wire_type, cursor)?,
            field::NEGATIVE_COUNTS => read_doubles(&mut self.negative.counts, wire_type, cursor)?,
            field::POSITIVE_COUNTS => read_doubles(&mut self.positive.counts, wire_type, cursor)?,
            field::TIME => self.time = read_integer(wire_type, cursor)? as i64,
            // Zero means unknown, as in the model.
            field::START_TIME => self.start_time = read_integer(wire_type, cursor)? as i64,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn into_counts(self) -> HistogramCounts {
        if self.is_float {
            HistogramCounts::Float {
                count: self.count_float,
                zero_count: self.zero_count_float,
                positive: self.positive.counts,
                negative: self.negative.counts,
            }
        } else {
            HistogramCounts::Integer {
                count: self.count_integer,
                zero_count: self.zero_count_integer,
                positive: self.positive.deltas,
                negative: self.negative.deltas,
            }
        }
    }
}

/// Reads a field that both kinds share, or skips an unknown one. Fails if a known field has the
/// wrong wire type.
fn read_shape(
    histogram: &mut Histogram,
    number: u32,
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'_>,
) -> Result<(), WireError> {
    match number {
        field::SUM => histogram.sum = read_double(wire_type, cursor)?,
        field::SCHEMA => histogram.schema = from_zigzag(read_integer(wire_type, cursor)?) as i32,
        field::ZERO_THRESHOLD => histogram.zero_threshold = read_double(wire_type, cursor)?,
        field::NEGATIVE_SPANS => histogram.negative_spans.push(read_span(wire_type, cursor)?),
        field::POSITIVE_SPANS => histogram.positive_spans.push(read_span(wire_type, cursor)?),
        field::CUSTOM_VALUES => read_doubles(&mut histogram.custom_values, wire_type, cursor)?,
        field::RESET_HINT => {
            histogram.reset_hint = match read_integer(wire_type, cursor)? {
                1 => ResetHint::Reset,
                2 => ResetHint::NotReset,
                3 => ResetHint::Gauge,
                _ => ResetHint::Unknown,
            }
        }
        _ => cursor.skip(wire_type)?,
    }
    Ok(())
}

fn read_integer(wire_type: WireType, cursor: &mut ProtobufCursor<'_>) -> Result<u64, WireError> {
    expect_wire_type(wire_type, WireType::Varint)?;
    cursor.read_varint()
}

fn read_double(wire_type: WireType, cursor: &mut ProtobufCursor<'_>) -> Result<f64, WireError> {
    expect_wire_type(wire_type, WireType::Fixed64)?;
    cursor.read_double()
}

/// Reads one bucket delta, or many packed ones, and appends them to `into`.
fn read_deltas(
    into: &mut Vec<i64>,
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'_>,
) -> Result<(), WireError> {
    if wire_type != WireType::Bytes {
        into.push(from_zigzag(read_integer(wire_type, cursor)?));
        return Ok(());
    }
    let mut packed = ProtobufCursor::new(cursor.read_bytes()?);
    while !packed.rest().is_empty() {
        into.push(from_zigzag(packed.read_varint()?));
    }
    Ok(())
}

/// Reads one float, or many packed ones, and appends them to `into`.
fn read_doubles(
    into: &mut Vec<f64>,
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'_>,
) -> Result<(), WireError> {
    if wire_type != WireType::Bytes {
        into.push(read_double(wire_type, cursor)?);
        return Ok(());
    }
    let mut packed = ProtobufCursor::new(cursor.read_bytes()?);
    while !packed.rest().is_empty() {
        into.push(packed.read_double()?);
    }
    Ok(())
}

fn read_span(
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'_>,
) -> Result<BucketSpan, WireError> {
    expect_wire_type(wire_type, WireType::Bytes)?;
    let mut span = BucketSpan {
        offset: 0,
        length: 0,
    };
    let mut cursor = ProtobufCursor::new(cursor.read_bytes()?);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::SPAN_OFFSET => {
                span.offset = from_zigzag(read_integer(wire_type, &mut cursor)?) as i32
            }
            field::SPAN_LENGTH => span.length = read_integer(wire_type, &mut cursor)? as u32,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(span)
}
