//! Decodes the points of each kind of metric.
//!
//! Attributes and exemplars remain undecoded messages. Values are decoded here, but validated only
//! when they are converted to samples.

use super::field::{buckets, explicit, exponential, number, point, quantile, summary};
use super::trouble::OtlpDecodeError;
use crate::error::WireError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type, from_zigzag};
use crate::remote_write::WriteRejectionReason;

/// The flag of a point without a recorded value, which ends its series.
const NO_RECORDED_VALUE: u64 = 1;

/// Largest number of attributes of a point or resource, and of exemplars of a point. It exceeds the
/// label limit of a series, and limits the memory that a message of many small parts can take.
pub(super) const PARTS_MAX: usize = 4096;

/// Largest number of buckets of one side, or of quantiles: more than any client creates.
const BUCKETS_MAX: usize = 1 << 16;

/// Fields that points of all kinds share, besides their times. Reused for all points of a request.
#[derive(Debug, Default)]
pub(super) struct PointCommonFields<'m> {
    /// Undecoded `KeyValue` messages in message order.
    pub attributes: Vec<&'m [u8]>,
    /// Undecoded `Exemplar` messages in message order.
    pub exemplars: Vec<&'m [u8]>,
    /// True if the point marks its series as stale.
    pub is_stale: bool,
}

/// The time range that a point covers, in nanoseconds since the Unix epoch, as sent. Accumulation
/// sets the start to that of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointTimes {
    /// Start time; zero if it is unknown.
    pub start: u64,
    /// Time of the observation, the end of the range.
    pub time: u64,
}

/// The value of a number point in its original type, so that integer deltas add up exactly. It
/// becomes a float only in the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointNumber {
    /// A 64-bit integer.
    Int(i64),
    /// A float, which may be NaN or infinite.
    Double(f64),
}

impl PointNumber {
    /// Returns the value as a float, which may round a large integer.
    pub fn to_float(self) -> f64 {
        match self {
            PointNumber::Int(value) => value as f64,
            PointNumber::Double(value) => value,
        }
    }
}

/// A point of a gauge or a sum, without its attributes. Both kinds of metrics encode it in the same
/// way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberPoint {
    /// Start and end time.
    pub times: PointTimes,
    /// The value; 0 if the point has none.
    pub value: PointNumber,
}

/// A point of a histogram with explicit bounds, without its attributes. Reused for all points of a
/// request. Counts and bounds are validated when it is converted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExplicitHistogramPoint {
    /// Start and end time.
    pub times: PointTimes,
    /// Total number of observations.
    pub count: u64,
    /// Sum of the observations, if it is known.
    pub sum: Option<f64>,
    /// Upper bounds of all buckets except for the last, whose bound is infinite.
    pub bounds: Vec<f64>,
    /// Number of observations in each bucket, not cumulative.
    pub counts: Vec<u64>,
}

/// Exponential buckets of one sign: the bounds grow by a constant factor, which the scale of the
/// point determines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExponentialBuckets {
    /// Index of the first bucket.
    pub offset: i32,
    /// Number of observations in each bucket, not cumulative.
    pub counts: Vec<u64>,
}

/// A point of an exponential histogram, without its attributes. Reused for all points of a request.
/// Counts are validated when it is converted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExponentialHistogramPoint {
    /// Start and end time.
    pub times: PointTimes,
    /// Total number of observations.
    pub count: u64,
    /// Sum of the observations, if it is known.
    pub sum: Option<f64>,
    /// Resolution: the factor between two bounds is 2^2^-scale.
    pub scale: i32,
    /// Number of observations in the zero bucket.
    pub zero_count: u64,
    /// Upper bound of the absolute values in the zero bucket.
    pub zero_threshold: f64,
    /// Buckets of positive observations above the zero threshold.
    pub positive: ExponentialBuckets,
    /// Buckets of negative observations, indexed by absolute value.
    pub negative: ExponentialBuckets,
}

/// A point of a summary, without its attributes. Reused for all points of a request. It becomes one
/// series for each quantile, and two for count and sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SummaryPoint {
    pub times: PointTimes,
    pub count: u64,
    pub sum: f64,
    /// Pairs of quantile and value, in message order.
    pub quantiles: Vec<(f64, f64)>,
}

impl PointCommonFields<'_> {
    fn clear(&mut self) {
        self.attributes.clear();
        self.exemplars.clear();
        self.is_stale = false;
    }
}

/// Appends an attribute or exemplar; fails if there are too many.
pub(super) fn push_part<'m>(
    parts: &mut Vec<&'m [u8]>,
    part: &'m [u8],
) -> Result<(), OtlpDecodeError> {
    if parts.len() == PARTS_MAX {
        let what = format!("too many attributes or exemplars, limit {PARTS_MAX}");
        return Err(OtlpDecodeError::reject_point(
            WriteRejectionReason::TooManyLabels,
            what,
        ));
    }
    parts.push(part);
    Ok(())
}

/// Appends a bucket or quantile; fails if there are too many.
fn push_bucket<T>(buckets: &mut Vec<T>, bucket: T) -> Result<(), OtlpDecodeError> {
    if buckets.len() == BUCKETS_MAX {
        let what = format!("too many buckets or quantiles, limit {BUCKETS_MAX}");
        return Err(OtlpDecodeError::reject_point(
            WriteRejectionReason::Histogram,
            what,
        ));
    }
    buckets.push(bucket);
    Ok(())
}

/// Numbers of the shared fields, which differ between the kinds of points; times have the same
/// numbers in all of them.
struct PointFieldNumbers {
    attributes: u32,
    exemplars: Option<u32>,
    flags: u32,
}

/// Reads the field if it is one that all kinds of points share; returns false otherwise. Fails if
/// the field has the wrong wire type.
#[inline]
fn read_common_field<'m>(
    number: u32,
    wire_type: WireType,
    places: &PointFieldNumbers,
    cursor: &mut ProtobufCursor<'m>,
    into: (&mut PointCommonFields<'m>, &mut PointTimes),
) -> Result<bool, OtlpDecodeError> {
    let (frame, times) = into;
    let want = |wanted| expect_wire_type(wire_type, wanted);
    match number {
        _ if number == places.attributes => {
            want(WireType::Bytes)?;
            push_part(&mut frame.attributes, cursor.read_bytes()?)?;
        }
        point::START_TIME => {
            want(WireType::Fixed64)?;
            times.start = cursor.read_fixed64()?;
        }
        point::TIME => {
            want(WireType::Fixed64)?;
            times.time = cursor.read_fixed64()?;
        }
        _ if number == places.flags => {
            want(WireType::Varint)?;
            frame.is_stale = cursor.read_varint()? & NO_RECORDED_VALUE != 0;
        }
        _ if Some(number) == places.exemplars => {
            want(WireType::Bytes)?;
            push_part(&mut frame.exemplars, cursor.read_bytes()?)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Decodes a `NumberDataPoint`; `frame` gets the shared fields. Fails if the message is malformed.
pub(super) fn read_number<'m>(
    message: &'m [u8],
    frame: &mut PointCommonFields<'m>,
) -> Result<NumberPoint, OtlpDecodeError> {
    const PLACES: PointFieldNumbers = PointFieldNumbers {
        attributes: number::ATTRIBUTES,
        exemplars: Some(number::EXEMPLARS),
        flags: number::FLAGS,
    };
    frame.clear();
    let mut times = PointTimes::default();
    let mut value = PointNumber::Int(0);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            number::AS_DOUBLE => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                value = PointNumber::Double(cursor.read_double()?);
            }
            number::AS_INT => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                value = PointNumber::Int(cursor.read_fixed64()? as i64);
            }
            _ => {
                let into = (&mut *frame, &mut times);
                if !read_common_field(number, wire_type, &PLACES, &mut cursor, into)? {
                    cursor.skip(wire_type)?;
                }
            }
        }
    }
    Ok(NumberPoint { times, value })
}

/// Decodes a `HistogramDataPoint` into `point`; `frame` gets the shared fields. Fails if the
/// message is malformed or has too many buckets.
pub(super) fn read_explicit<'m>(
    message: &'m [u8],
    frame: &mut PointCommonFields<'m>,
    point: &mut ExplicitHistogramPoint,
) -> Result<(), OtlpDecodeError> {
    const PLACES: PointFieldNumbers = PointFieldNumbers {
        attributes: explicit::ATTRIBUTES,
        exemplars: Some(explicit::EXEMPLARS),
        flags: explicit::FLAGS,
    };
    frame.clear();
    *point = ExplicitHistogramPoint {
        bounds: emptied(&mut point.bounds),
        counts: emptied(&mut point.counts),
        ..ExplicitHistogramPoint::default()
    };
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            explicit::COUNT => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                point.count = cursor.read_fixed64()?;
            }
            explicit::SUM => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                point.sum = Some(cursor.read_double()?);
            }
            explicit::BUCKET_COUNTS => {
                read_packed_numbers(
                    wire_type,
                    &mut cursor,
                    ProtobufCursor::read_fixed64,
                    &mut point.counts,
                )?;
            }
            explicit::BOUNDS => {
                read_packed_numbers(
                    wire_type,
                    &mut cursor,
                    ProtobufCursor::read_double,
                    &mut point.bounds,
                )?;
            }
            _ => {
                let into = (&mut *frame, &mut point.times);
                if !read_common_field(number, wire_type, &PLACES, &mut cursor, into)? {
                    cursor.skip(wire_type)?;
                }
            }
        }
    }
    Ok(())
}

fn emptied<T>(list: &mut Vec<T>) -> Vec<T> {
    list.clear();
    std::mem::take(list)
}

/// Reads repeated numbers of eight bytes, packed or one at a time. Fails if there are too many.
fn read_packed_numbers<'m, T>(
    wire_type: WireType,
    cursor: &mut ProtobufCursor<'m>,
    read: impl Fn(&mut ProtobufCursor<'m>) -> Result<T, WireError>,
    into: &mut Vec<T>,
) -> Result<(), OtlpDecodeError> {
    if wire_type == WireType::Fixed64 {
        return push_bucket(into, read(cursor)?);
    }
    expect_wire_type(wire_type, WireType::Bytes)?;
    let mut numbers = ProtobufCursor::new(cursor.read_bytes()?);
    while !numbers.rest().is_empty() {
        push_bucket(into, read(&mut numbers)?)?;
    }
    Ok(())
}

/// Decodes an `ExponentialHistogramDataPoint` into `point`; `frame` gets the shared fields.
/// Fails if the message is malformed or has too many buckets.
pub(super) fn read_exponential<'m>(
    message: &'m [u8],
    frame: &mut PointCommonFields<'m>,
    point: &mut ExponentialHistogramPoint,
) -> Result<(), OtlpDecodeError> {
    const PLACES: PointFieldNumbers = PointFieldNumbers {
        attributes: exponential::ATTRIBUTES,
        exemplars: Some(exponential::EXEMPLARS),
        flags: exponential::FLAGS,
    };
    frame.clear();
    *point = ExponentialHistogramPoint {
        positive: ExponentialBuckets {
            offset: 0,
            counts: emptied(&mut point.positive.counts),
        },
        negative: ExponentialBuckets {
            offset: 0,
            counts: emptied(&mut point.negative.counts),
        },
        ..ExponentialHistogramPoint::default()
    };
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            exponential::COUNT | exponential::ZERO_COUNT => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                let count = cursor.read_fixed64()?;
                match number {
                    exponential::COUNT => point.count = count,
                    _ => point.zero_count = count,
                }
            }
            exponential::SUM => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                point.sum = Some(cursor.read_double()?);
            }
            exponential::ZERO_THRESHOLD => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                point.zero_threshold = cursor.read_double()?;
            }
            exponential::SCALE => {
                expect_wire_type(wire_type, WireType::Varint)?;
                point.scale = from_zigzag(cursor.read_varint()?) as i32;
            }
            exponential::POSITIVE | exponential::NEGATIVE => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                let side = match number {
                    exponential::POSITIVE => &mut point.positive,
                    _ => &mut point.negative,
                };
                read_buckets(cursor.read_bytes()?, side)?;
            }
            _ => {
                let into = (&mut *frame, &mut point.times);
                if !read_common_field(number, wire_type, &PLACES, &mut cursor, into)? {
                    cursor.skip(wire_type)?;
                }
            }
        }
    }
    Ok(())
}

fn read_buckets(message: &[u8], into: &mut ExponentialBuckets) -> Result<(), OtlpDecodeError> {
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match (number, wire_type) {
            (buckets::OFFSET, _) => {
                expect_wire_type(wire_type, WireType::Varint)?;
                into.offset = from_zigzag(cursor.read_varint()?) as i32;
            }
            (buckets::COUNTS, WireType::Varint) => {
                push_bucket(&mut into.counts, cursor.read_varint()?)?;
            }
            (buckets::COUNTS, _) => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                let mut counts = ProtobufCursor::new(cursor.read_bytes()?);
                while !counts.rest().is_empty() {
                    push_bucket(&mut into.counts, counts.read_varint()?)?;
                }
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(())
}

/// Decodes a `SummaryDataPoint` into `point`; `frame` gets the shared fields. Fails if the
/// message is malformed or has too many quantiles.
pub(super) fn read_summary<'m>(
    message: &'m [u8],
    frame: &mut PointCommonFields<'m>,
    point: &mut SummaryPoint,
) -> Result<(), OtlpDecodeError> {
    const PLACES: PointFieldNumbers = PointFieldNumbers {
        attributes: summary::ATTRIBUTES,
        exemplars: None,
        flags: summary::FLAGS,
    };
    frame.clear();
    *point = SummaryPoint {
        quantiles: emptied(&mut point.quantiles),
        ..SummaryPoint::default()
    };
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            summary::COUNT => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                point.count = cursor.read_fixed64()?;
            }
            summary::SUM => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                point.sum = cursor.read_double()?;
            }
            summary::QUANTILES => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                let quantile = read_quantile(cursor.read_bytes()?)?;
                push_bucket(&mut point.quantiles, quantile)?;
            }
            _ => {
                let into = (&mut *frame, &mut point.times);
                if !read_common_field(number, wire_type, &PLACES, &mut cursor, into)? {
                    cursor.skip(wire_type)?;
                }
            }
        }
    }
    Ok(())
}

fn read_quantile(message: &[u8]) -> Result<(f64, f64), OtlpDecodeError> {
    let (mut quantile, mut value) = (0.0, 0.0);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        let part = match number {
            quantile::QUANTILE => &mut quantile,
            quantile::VALUE => &mut value,
            _ => {
                cursor.skip(wire_type)?;
                continue;
            }
        };
        expect_wire_type(wire_type, WireType::Fixed64)?;
        *part = cursor.read_double()?;
    }
    Ok((quantile, value))
}
