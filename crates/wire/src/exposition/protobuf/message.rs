//! The messages of `io.prometheus.client`, limited to the fields that the parser uses.
//!
//! A message that occurs twice is merged, as everywhere in protobuf, and unknown fields are
//! skipped. Strings are validated where they are used.

use super::super::error::ParseError;
use crate::error::WireError;
use crate::protobuf::{Cursor, WireType, from_zigzag};
use firn_model::histogram::Span;

type Read<T> = Result<T, ParseError>;

/// Field names of the negative [`Side`] in error texts.
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
pub(super) struct Family<'t> {
    pub name: &'t [u8],
    pub help: &'t [u8],
    pub unit: &'t [u8],
    /// Value of the enumeration `MetricType`.
    pub kind: i32,
    pub metrics: Vec<&'t [u8]>,
}

impl<'t> Family<'t> {
    /// Replaces the fields with those of the family in `message`. Fails if a field has the wrong
    /// wire type.
    pub fn read(&mut self, message: &'t [u8]) -> Read<()> {
        (self.name, self.help, self.unit, self.kind) = (b"", b"", b"", 0);
        self.metrics.clear();
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            match number {
                1 => self.name = bytes(wire_type, &mut cursor, "Name")?,
                2 => self.help = bytes(wire_type, &mut cursor, "Help")?,
                3 => self.kind = integer(wire_type, &mut cursor, "Type")? as i32,
                4 => self.metrics.push(bytes(wire_type, &mut cursor, "Metric")?),
                5 => self.unit = bytes(wire_type, &mut cursor, "Unit")?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

/// One metric of a family, reused for all metrics of a body. The type of the family decides which
/// of the values is used.
#[derive(Clone, Debug, Default)]
pub(super) struct Metric<'t> {
    /// Undecoded messages, each with a name and a value.
    pub labels: Vec<&'t [u8]>,
    pub gauge: f64,
    pub untyped: f64,
    pub counter: Counter<'t>,
    pub summary: Summary,
    pub histogram: Histogram<'t>,
    pub time: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Counter<'t> {
    pub value: f64,
    pub exemplar: Option<&'t [u8]>,
    pub start: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    pub count: u64,
    pub sum: f64,
    /// Pairs of quantile and value.
    pub quantiles: Vec<(f64, f64)>,
    pub start: i64,
}

/// A histogram in classic form, native form or both; both forms share count, sum and start.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram<'t> {
    pub count: u64,
    pub count_float: f64,
    pub sum: f64,
    pub buckets: Vec<Bucket<'t>>,
    pub start: i64,
    pub schema: i32,
    pub zero_threshold: f64,
    pub zero_count: u64,
    pub zero_count_float: f64,
    pub negative: Side,
    pub positive: Side,
    pub exemplars: Vec<&'t [u8]>,
}

/// The native buckets of one sign: spans with integer deltas or float counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    pub spans: Vec<Span>,
    pub deltas: Vec<i64>,
    pub counts: Vec<f64>,
}

/// A classic bucket with its cumulative count and an undecoded exemplar.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket<'t> {
    pub count: u64,
    pub count_float: f64,
    pub bound: f64,
    pub exemplar: Option<&'t [u8]>,
}

impl<'t> Metric<'t> {
    /// Replaces the fields with those of the metric in `message`. Fails if a field has the wrong
    /// wire type.
    pub fn read(&mut self, message: &'t [u8]) -> Read<()> {
        self.clear();
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            match number {
                1 => self.labels.push(bytes(wire_type, &mut cursor, "Label")?),
                2 => read_value(&mut self.gauge, bytes(wire_type, &mut cursor, "Gauge")?)?,
                3 => self
                    .counter
                    .read(bytes(wire_type, &mut cursor, "Counter")?)?,
                4 => self
                    .summary
                    .read(bytes(wire_type, &mut cursor, "Summary")?)?,
                5 => read_value(&mut self.untyped, bytes(wire_type, &mut cursor, "Untyped")?)?,
                6 => self.time = integer(wire_type, &mut cursor, "TimestampMs")? as i64,
                7 => self
                    .histogram
                    .read(bytes(wire_type, &mut cursor, "Histogram")?)?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.labels.clear();
        (self.gauge, self.untyped, self.time) = (0.0, 0.0, 0);
        self.counter = Counter::default();
        let mut quantiles = std::mem::take(&mut self.summary.quantiles);
        quantiles.clear();
        self.summary = Summary {
            quantiles,
            ..Summary::default()
        };
        self.histogram.clear();
    }
}

/// Reads a message whose only field is a value. Gauges and untyped metrics are such messages.
fn read_value(value: &mut f64, message: &[u8]) -> Read<()> {
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            1 => *value = double(wire_type, &mut cursor, "Value")?,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(())
}

impl<'t> Counter<'t> {
    fn read(&mut self, message: &'t [u8]) -> Read<()> {
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            match number {
                1 => self.value = double(wire_type, &mut cursor, "Value")?,
                2 => self.exemplar = Some(exemplar(wire_type, &mut cursor, "Exemplar")?),
                3 => self.start = time(wire_type, &mut cursor, "StartTimestamp")?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

impl Summary {
    fn read(&mut self, message: &[u8]) -> Read<()> {
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            match number {
                1 => self.count = integer(wire_type, &mut cursor, "SampleCount")?,
                2 => self.sum = double(wire_type, &mut cursor, "SampleSum")?,
                3 => {
                    let message = bytes(wire_type, &mut cursor, "Quantile")?;
                    self.quantiles.push(quantile(message)?);
                }
                4 => self.start = time(wire_type, &mut cursor, "StartTimestamp")?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

fn quantile(message: &[u8]) -> Read<(f64, f64)> {
    let mut quantile = (0.0, 0.0);
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            1 => quantile.0 = double(wire_type, &mut cursor, "Quantile")?,
            2 => quantile.1 = double(wire_type, &mut cursor, "Value")?,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(quantile)
}

impl<'t> Histogram<'t> {
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
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            let cursor = &mut cursor;
            match number {
                1 => self.count = integer(wire_type, cursor, "SampleCount")?,
                2 => self.sum = double(wire_type, cursor, "SampleSum")?,
                3 => self
                    .buckets
                    .push(bucket(bytes(wire_type, cursor, "Bucket")?)?),
                4 => self.count_float = double(wire_type, cursor, "SampleCountFloat")?,
                5 => self.schema = from_zigzag(integer(wire_type, cursor, "Schema")?) as i32,
                6 => self.zero_threshold = double(wire_type, cursor, "ZeroThreshold")?,
                7 => self.zero_count = integer(wire_type, cursor, "ZeroCount")?,
                8 => self.zero_count_float = double(wire_type, cursor, "ZeroCountFloat")?,
                9..=11 => self
                    .negative
                    .read(number - 9, NEGATIVE, wire_type, cursor)?,
                12..=14 => self
                    .positive
                    .read(number - 12, POSITIVE, wire_type, cursor)?,
                15 => self.start = time(wire_type, cursor, "StartTimestamp")?,
                16 => self
                    .exemplars
                    .push(exemplar(wire_type, cursor, "Exemplars")?),
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }
}

fn bucket(message: &[u8]) -> Read<Bucket<'_>> {
    let mut bucket = Bucket::default();
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            1 => bucket.count = integer(wire_type, &mut cursor, "CumulativeCount")?,
            2 => bucket.bound = double(wire_type, &mut cursor, "UpperBound")?,
            3 => bucket.exemplar = Some(exemplar(wire_type, &mut cursor, "Exemplar")?),
            4 => bucket.count_float = double(wire_type, &mut cursor, "CumulativeCountFloat")?,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(bucket)
}

impl Side {
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
        cursor: &mut Cursor<'_>,
    ) -> Read<()> {
        let [spans, deltas, counts] = names;
        match which {
            0 => self.spans.push(span(bytes(wire_type, cursor, spans)?)?),
            1 if wire_type == WireType::Bytes => {
                let mut packed = Cursor::new(cursor.bytes()?);
                while !packed.rest().is_empty() {
                    self.deltas.push(from_zigzag(packed.varint()?));
                }
            }
            1 => {
                let delta = integer(wire_type, cursor, deltas)?;
                self.deltas.push(from_zigzag(delta));
            }
            _ if wire_type == WireType::Bytes => {
                let mut packed = Cursor::new(cursor.bytes()?);
                while !packed.rest().is_empty() {
                    self.counts.push(packed.double()?);
                }
            }
            _ => self.counts.push(double(wire_type, cursor, counts)?),
        }
        Ok(())
    }
}

fn span(message: &[u8]) -> Read<Span> {
    let (mut offset, mut length) = (0, 0);
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            1 => offset = from_zigzag(integer(wire_type, &mut cursor, "Offset")?) as i32,
            2 => length = integer(wire_type, &mut cursor, "Length")? as u32,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(Span { offset, length })
}

/// Reads a label and returns its name, `None` if the field is absent, and its value.
pub(super) fn label(message: &[u8]) -> Read<(Option<&[u8]>, &[u8])> {
    let (mut name, mut value) = (None, &b""[..]);
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            1 => name = Some(bytes(wire_type, &mut cursor, "Name")?),
            2 => value = bytes(wire_type, &mut cursor, "Value")?,
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok((name, value))
}

/// The decoded fields of an exemplar, which borrow from the body.
#[derive(Clone, Debug, Default)]
pub(super) struct Exemplar<'t> {
    pub labels: Vec<(&'t [u8], &'t [u8])>,
    pub value: f64,
    pub time: Option<i64>,
}

/// Decodes an exemplar; names and values of its labels are not validated. Fails if the message is
/// malformed.
pub(super) fn read_exemplar(message: &[u8]) -> Read<Exemplar<'_>> {
    let mut exemplar = Exemplar::default();
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            1 => {
                let (name, value) = label(bytes(wire_type, &mut cursor, "Label")?)?;
                exemplar.labels.push((name.unwrap_or_default(), value));
            }
            2 => exemplar.value = double(wire_type, &mut cursor, "Value")?,
            3 => exemplar.time = Some(time(wire_type, &mut cursor, "Timestamp")?),
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(exemplar)
}

/// Validates an exemplar and returns its message, which is decoded only if the caller requests it.
fn exemplar<'t>(
    wire_type: WireType,
    cursor: &mut Cursor<'t>,
    name: &'static str,
) -> Read<&'t [u8]> {
    let message = bytes(wire_type, cursor, name)?;
    read_exemplar(message)?;
    Ok(message)
}

/// Reads a `Timestamp` message and returns it in milliseconds since the epoch.
fn time(wire_type: WireType, cursor: &mut Cursor<'_>, name: &'static str) -> Read<i64> {
    let (mut seconds, mut nanos) = (0i64, 0i32);
    let mut cursor = Cursor::new(bytes(wire_type, cursor, name)?);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            1 => seconds = integer(wire_type, &mut cursor, "Seconds")? as i64,
            2 => nanos = integer(wire_type, &mut cursor, "Nanos")? as i32,
            _ => cursor.skip(wire_type)?,
        }
    }
    let millis = i64::from(nanos / 1_000_000);
    Ok(seconds.wrapping_mul(1000).wrapping_add(millis))
}

fn bytes<'t>(wire_type: WireType, cursor: &mut Cursor<'t>, name: &'static str) -> Read<&'t [u8]> {
    expect(wire_type, WireType::Bytes, name)?;
    Ok(cursor.bytes()?)
}

fn integer(wire_type: WireType, cursor: &mut Cursor<'_>, name: &'static str) -> Read<u64> {
    expect(wire_type, WireType::Varint, name)?;
    Ok(cursor.varint()?)
}

fn double(wire_type: WireType, cursor: &mut Cursor<'_>, name: &'static str) -> Read<f64> {
    expect(wire_type, WireType::Fixed64, name)?;
    Ok(cursor.double()?)
}

/// Fails unless the field `name` has the wire type of its declared type.
#[inline]
fn expect(wire_type: WireType, wanted: WireType, name: &'static str) -> Read<()> {
    if wire_type == wanted {
        return Ok(());
    }
    let number = wire_type as u8;
    let message = format!("proto: wrong wireType = {number} for field {name}");
    Err(ParseError::new(message))
}
