//! The messages of `io.prometheus.client`, limited to the fields that the parser uses.
//!
//! A message that occurs twice is merged, as everywhere in protobuf, and unknown fields are
//! skipped. Strings are validated where they are used.

use super::super::error::ParseError;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, from_zigzag};
use firn_model::histogram::BucketSpan;

type Read<T> = Result<T, ParseError>;

/// Field names of the negative [`NativeSideMessage`] in error texts.
const NEGATIVE: [&str; 3] = ["NegativeSpan", "NegativeDelta", "NegativeCount"];
const POSITIVE: [&str; 3] = ["PositiveSpan", "PositiveDelta", "PositiveCount"];

/// Converts a decoding error to the wording of Prometheus where Prometheus has one.
impl From<WireError> for ParseError {
    fn from(error: WireError) -> Self {
        ParseError::new(match error {
            WireError::Protobuf("unexpected end of message") => "unexpected EOF".into(),
            WireError::Protobuf(what) => format!("proto: {what}"),
            other => other.to_string(),
        })
    }
}

/// A metric family, reused for all families of a body; its metrics are kept as undecoded messages.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyMessage<'t> {
    pub name: &'t [u8],
    pub help: &'t [u8],
    pub unit: &'t [u8],
    /// Value of the enumeration `MetricType`.
    pub kind: i32,
    pub metrics: Vec<&'t [u8]>,
}

impl<'t> FamilyMessage<'t> {
    /// Replaces the fields with those of the family in `message`. Fails if a field has the wrong
    /// wire type.
    pub fn read(&mut self, message: &'t [u8]) -> Read<()> {
        (self.name, self.help, self.unit, self.kind) = (b"", b"", b"", 0);
        self.metrics.clear();
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field()? {
            match number {
                1 => self.name = read_bytes(wire_type, &mut cursor, "Name")?,
                2 => self.help = read_bytes(wire_type, &mut cursor, "Help")?,
                3 => self.kind = read_integer(wire_type, &mut cursor, "Type")? as i32,
                4 => self
                    .metrics
                    .push(read_bytes(wire_type, &mut cursor, "Metric")?),
                5 => self.unit = read_bytes(wire_type, &mut cursor, "Unit")?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

/// One metric of a family, reused for all metrics of a body. The type of the family decides which
/// of the values is used.
#[derive(Clone, Debug, Default)]
pub(super) struct MetricMessage<'t> {
    /// Undecoded messages, each with a name and a value.
    pub labels: Vec<&'t [u8]>,
    pub gauge: f64,
    pub untyped: f64,
    pub counter: CounterMessage<'t>,
    pub summary: SummaryMessage,
    pub histogram: HistogramMessage<'t>,
    pub time: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CounterMessage<'t> {
    pub value: f64,
    pub exemplar: Option<&'t [u8]>,
    pub start: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SummaryMessage {
    pub count: u64,
    pub sum: f64,
    /// Pairs of quantile and value.
    pub quantiles: Vec<(f64, f64)>,
    pub start: i64,
}

/// A histogram in classic form, native form or both; both forms share count, sum and start.
#[derive(Clone, Debug, Default)]
pub(super) struct HistogramMessage<'t> {
    pub count: u64,
    pub count_float: f64,
    pub sum: f64,
    pub buckets: Vec<ClassicBucketMessage<'t>>,
    pub start: i64,
    pub schema: i32,
    pub zero_threshold: f64,
    pub zero_count: u64,
    pub zero_count_float: f64,
    pub negative: NativeSideMessage,
    pub positive: NativeSideMessage,
    pub exemplars: Vec<&'t [u8]>,
}

/// The native buckets of one sign: spans with integer deltas or float counts.
#[derive(Clone, Debug, Default)]
pub(super) struct NativeSideMessage {
    pub spans: Vec<BucketSpan>,
    pub deltas: Vec<i64>,
    pub counts: Vec<f64>,
}

/// A classic bucket with its cumulative count and an undecoded exemplar.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassicBucketMessage<'t> {
    pub count: u64,
    pub count_float: f64,
    pub bound: f64,
    pub exemplar: Option<&'t [u8]>,
}

impl<'t> MetricMessage<'t> {
    /// Replaces the fields with those of the metric in `message`. Fails if a field has the wrong
    /// wire type.
    pub fn read(&mut self, message: &'t [u8]) -> Read<()> {
        self.clear();
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field()? {
            match number {
                1 => self
                    .labels
                    .push(read_bytes(wire_type, &mut cursor, "Label")?),
                2 => read_value(
                    &mut self.gauge,
                    read_bytes(wire_type, &mut cursor, "Gauge")?,
                )?,
                3 => self
                    .counter
                    .read(read_bytes(wire_type, &mut cursor, "Counter")?)?,
                4 => self
                    .summary
                    .read(read_bytes(wire_type, &mut cursor, "Summary")?)?,
                5 => read_value(
                    &mut self.untyped,
                    read_bytes(wire_type, &mut cursor, "Untyped")?,
                )?,
                6 => self.time = read_integer(wire_type, &mut cursor, "TimestampMs")? as i64,
                7 => self
                    .histogram
                    .read(read_bytes(wire_type, &mut cursor, "Histogram")?)?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.labels.clear();
        (self.gauge, self.untyped, self.time) = (0.0, 0.0, 0);
        self.counter = CounterMessage::default();
        let mut quantiles = std::mem::take(&mut self.summary.quantiles);
        quantiles.clear();
        self.summary = SummaryMessage {
            quantiles,
            ..SummaryMessage::default()
        };
        self.histogram.clear();
    }
}

/// Reads a message whose only field is a value. Gauges and untyped metrics are such messages.
fn read_value(value: &mut f64, message: &[u8]) -> Read<()> {
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            1 => *value = read_double(wire_type, &mut cursor, "Value")?,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(())
}

impl<'t> CounterMessage<'t> {
    fn read(&mut self, message: &'t [u8]) -> Read<()> {
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field()? {
            match number {
                1 => self.value = read_double(wire_type, &mut cursor, "Value")?,
                2 => self.exemplar = Some(check_exemplar(wire_type, &mut cursor, "Exemplar")?),
                3 => self.start = read_time(wire_type, &mut cursor, "StartTimestamp")?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

impl SummaryMessage {
    fn read(&mut self, message: &[u8]) -> Read<()> {
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field()? {
            match number {
                1 => self.count = read_integer(wire_type, &mut cursor, "SampleCount")?,
                2 => self.sum = read_double(wire_type, &mut cursor, "SampleSum")?,
                3 => {
                    let message = read_bytes(wire_type, &mut cursor, "Quantile")?;
                    self.quantiles.push(read_quantile(message)?);
                }
                4 => self.start = read_time(wire_type, &mut cursor, "StartTimestamp")?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

fn read_quantile(message: &[u8]) -> Read<(f64, f64)> {
    let mut quantile = (0.0, 0.0);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            1 => quantile.0 = read_double(wire_type, &mut cursor, "Quantile")?,
            2 => quantile.1 = read_double(wire_type, &mut cursor, "Value")?,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(quantile)
}

impl<'t> HistogramMessage<'t> {
    fn clear(&mut self) {
        (self.count, self.count_float, self.sum, self.start) = (0, 0.0, 0.0, 0);
        (self.schema, self.zero_threshold) = (0, 0.0);
        (self.zero_count, self.zero_count_float) = (0, 0.0);
        self.buckets.clear();
        self.negative.clear();
        self.positive.clear();
        self.exemplars.clear();
    }

    fn read(&mut self, message: &'t [u8]) -> Read<()> {
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field()? {
            let cursor = &mut cursor;
            match number {
                1 => self.count = read_integer(wire_type, cursor, "SampleCount")?,
                2 => self.sum = read_double(wire_type, cursor, "SampleSum")?,
                3 => self
                    .buckets
                    .push(read_bucket(read_bytes(wire_type, cursor, "Bucket")?)?),
                4 => self.count_float = read_double(wire_type, cursor, "SampleCountFloat")?,
                5 => self.schema = from_zigzag(read_integer(wire_type, cursor, "Schema")?) as i32,
                6 => self.zero_threshold = read_double(wire_type, cursor, "ZeroThreshold")?,
                7 => self.zero_count = read_integer(wire_type, cursor, "ZeroCount")?,
                8 => self.zero_count_float = read_double(wire_type, cursor, "ZeroCountFloat")?,
                9..=11 => self
                    .negative
                    .read(number - 9, NEGATIVE, wire_type, cursor)?,
                12..=14 => self
                    .positive
                    .read(number - 12, POSITIVE, wire_type, cursor)?,
                15 => self.start = read_time(wire_type, cursor, "StartTimestamp")?,
                16 => self
                    .exemplars
                    .push(check_exemplar(wire_type, cursor, "Exemplars")?),
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

fn read_bucket(message: &[u8]) -> Read<ClassicBucketMessage<'_>> {
    let mut bucket = ClassicBucketMessage::default();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            1 => bucket.count = read_integer(wire_type, &mut cursor, "CumulativeCount")?,
            2 => bucket.bound = read_double(wire_type, &mut cursor, "UpperBound")?,
            3 => bucket.exemplar = Some(check_exemplar(wire_type, &mut cursor, "Exemplar")?),
            4 => bucket.count_float = read_double(wire_type, &mut cursor, "CumulativeCountFloat")?,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(bucket)
}

impl NativeSideMessage {
    fn clear(&mut self) {
        self.spans.clear();
        self.deltas.clear();
        self.counts.clear();
    }

    /// Reads one field of the side: spans, deltas or counts, whose field numbers are consecutive.
    fn read(
        &mut self,
        which: u32,
        names: [&'static str; 3],
        wire_type: WireType,
        cursor: &mut ProtobufCursor<'_>,
    ) -> Read<()> {
        let [spans, deltas, counts] = names;
        match which {
            0 => self
                .spans
                .push(read_span(read_bytes(wire_type, cursor, spans)?)?),
            1 if wire_type == WireType::Bytes => {
                let mut packed = ProtobufCursor::new(cursor.read_bytes()?);
                while !packed.rest().is_empty() {
                    self.deltas.push(from_zigzag(packed.read_varint()?));
                }
            }
            1 => {
                let delta = read_integer(wire_type, cursor, deltas)?;
                self.deltas.push(from_zigzag(delta));
            }
            _ if wire_type == WireType::Bytes => {
                let mut packed = ProtobufCursor::new(cursor.read_bytes()?);
                while !packed.rest().is_empty() {
                    self.counts.push(packed.read_double()?);
                }
            }
            _ => self.counts.push(read_double(wire_type, cursor, counts)?),
        }
        Ok(())
    }
}

fn read_span(message: &[u8]) -> Read<BucketSpan> {
    let (mut offset, mut length) = (0, 0);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            1 => offset = from_zigzag(read_integer(wire_type, &mut cursor, "Offset")?) as i32,
            2 => length = read_integer(wire_type, &mut cursor, "Length")? as u32,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(BucketSpan { offset, length })
}

/// Reads a label and returns its name, `None` if the field is absent, and its value.
pub(super) fn read_label(message: &[u8]) -> Read<(Option<&[u8]>, &[u8])> {
    let (mut name, mut value) = (None, &b""[..]);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            1 => name = Some(read_bytes(wire_type, &mut cursor, "Name")?),
            2 => value = read_bytes(wire_type, &mut cursor, "Value")?,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok((name, value))
}

/// The decoded fields of an exemplar, which borrow from the body.
#[derive(Clone, Debug, Default)]
pub(super) struct ExemplarMessage<'t> {
    pub labels: Vec<(&'t [u8], &'t [u8])>,
    pub value: f64,
    pub time: Option<i64>,
}

/// Decodes an exemplar; names and values of its labels are not validated. Fails if the message is
/// malformed.
pub(super) fn read_exemplar(message: &[u8]) -> Read<ExemplarMessage<'_>> {
    let mut exemplar = ExemplarMessage::default();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            1 => {
                let (name, value) = read_label(read_bytes(wire_type, &mut cursor, "Label")?)?;
                exemplar.labels.push((name.unwrap_or_default(), value));
            }
            2 => exemplar.value = read_double(wire_type, &mut cursor, "Value")?,
            3 => exemplar.time = Some(read_time(wire_type, &mut cursor, "Timestamp")?),
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(exemplar)
}

/// Validates an exemplar and returns its message, which is decoded only if the caller requests it.
fn check_exemplar<'t>(
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'t>,
    name: &'static str,
) -> Read<&'t [u8]> {
    let message = read_bytes(wire_type, cursor, name)?;
    read_exemplar(message)?;
    Ok(message)
}

/// Reads a `Timestamp` message and returns it in milliseconds since the epoch.
fn read_time(
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'_>,
    name: &'static str,
) -> Read<i64> {
    let (mut seconds, mut nanos) = (0i64, 0i32);
    let mut cursor = ProtobufCursor::new(read_bytes(wire_type, cursor, name)?);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            1 => seconds = read_integer(wire_type, &mut cursor, "Seconds")? as i64,
            2 => nanos = read_integer(wire_type, &mut cursor, "Nanos")? as i32,
            _ => cursor.skip(wire_type)?,
        }
    }
    let millis = i64::from(nanos / 1_000_000);
    Ok(seconds.wrapping_mul(1000).wrapping_add(millis))
}

fn read_bytes<'t>(
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'t>,
    name: &'static str,
) -> Read<&'t [u8]> {
    expect_wire_type(wire_type, WireType::Bytes, name)?;
    Ok(cursor.read_bytes()?)
}

fn read_integer(
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'_>,
    name: &'static str,
) -> Read<u64> {
    expect_wire_type(wire_type, WireType::Varint, name)?;
    Ok(cursor.read_varint()?)
}

fn read_double(
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'_>,
    name: &'static str,
) -> Read<f64> {
    expect_wire_type(wire_type, WireType::Fixed64, name)?;
    Ok(cursor.read_double()?)
}

/// Fails unless the field `name` has the wire type of its declared type.
#[inline]
fn expect_wire_type(wire_type: WireType, wanted: WireType, name: &'static str) -> Read<()> {
    if wire_type == wanted {
        return Ok(());
    }
    let number = wire_type as u8;
    let message = format!("proto: wrong wireType = {number} for field {name}");
    Err(ParseError::new(message))
}
