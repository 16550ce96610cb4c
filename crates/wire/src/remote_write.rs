//! Remote write 1.0: a snappy block around a protobuf `WriteRequest`.
//!
//! ```text
//! body -- snappy --> message -- walk --> Batch
//!                                   \--> refused series, by reason
//! ```
//!
//! A series whose labels cannot stand is refused and reported, the others are decoded: what comes
//! of it is the receiver's decision. Semantics are those of Prometheus 3.14's receiver
//! (`storage/remote/write_handler.go`): labels may come in any order, those with an empty value
//! do not count, fields that are not known are passed over, exemplars and metadata are counted.

mod encode;
mod histogram;
mod labels;
mod plain;
mod refusal;
#[cfg(test)]
mod tests;

pub use encode::encode;
pub use refusal::{Refusal, Refusals, Refused};

use crate::error::WireError;
use crate::limits::WireLimits;
use crate::protobuf::{Cursor, WireType, expect};
use crate::snappy;
use firn_model::batch::Batch;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;

/// Numbers of the fields of `WriteRequest` and `TimeSeries`.
mod field {
    pub const REQUEST_SERIES: u32 = 1;
    pub const REQUEST_METADATA: u32 = 3;
    pub const SERIES_LABEL: u32 = 1;
    pub const SERIES_SAMPLE: u32 = 2;
    pub const SERIES_EXEMPLAR: u32 = 3;
    pub const SERIES_HISTOGRAM: u32 = 4;
    pub const SAMPLE_VALUE: u32 = 1;
    pub const SAMPLE_TIME: u32 = 2;
    pub const LABEL_NAME: u32 = 1;
    pub const LABEL_VALUE: u32 = 2;
}

/// What a series costs in a batch besides its labels and samples.
const SERIES_BYTES: usize = 12;

/// What a float sample costs in a batch.
const SAMPLE_BYTES: usize = 16;

/// Memory is reserved in steps of this: a request of 2,000 samples takes one.
const RESERVE_STEP_BYTES: usize = 64 << 10;

/// Reads requests one after the other and reuses its memory.
#[derive(Debug, Default)]
pub struct Decoder {
    limits: WireLimits,
    message: Vec<u8>,
    batch: Batch,
}

/// What a request held.
#[derive(Debug)]
pub struct Decoded<'d> {
    /// The series that can stand, with at least one sample each.
    pub batch: &'d Batch,
    /// What was refused, and why.
    pub refused: Refusals,
    /// Exemplars, which are not kept.
    pub exemplar_count: usize,
    /// Metadata of metrics, which is not kept.
    pub metadata_count: usize,
    /// Bytes of the message.
    pub message_bytes: usize,
}

/// Bytes that `body` declares to unpack to; fails if that is over the limit.
pub fn message_bytes(body: &[u8], limits: &WireLimits) -> Result<usize, WireError> {
    snappy::declared_bytes(body, limits.message_bytes_max)
}

impl Decoder {
    /// A decoder without memory yet.
    pub fn new(limits: WireLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Reads a request's body. Fails if the message as a whole is malformed or over a limit.
    pub fn decode(&mut self, body: &[u8]) -> Result<Decoded<'_>, WireError> {
        self.decode_within(body, None)
    }

    /// The same, and what the samples take in memory is reserved in `memory` before they take it.
    /// The message and the labels, which take no more than the message, are the caller's to
    /// reserve.
    pub fn decode_within(
        &mut self,
        body: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<Decoded<'_>, WireError> {
        snappy::decompress(body, self.limits.message_bytes_max, &mut self.message)?;
        self.batch.clear();
        let mut request = Request::new(&self.limits, &mut self.batch, memory);
        request.read(&self.message)?;
        let Request {
            refused,
            exemplar_count,
            metadata_count,
            ..
        } = request;
        Ok(Decoded {
            batch: &self.batch,
            refused,
            exemplar_count,
            metadata_count,
            message_bytes: self.message.len(),
        })
    }

    /// Bytes of memory that the decoder keeps for the next request.
    pub fn memory_bytes(&self) -> usize {
        self.message.capacity() + self.batch.memory_bytes()
    }
}

/// What a series has besides the labels at its start.
#[derive(Default)]
struct Parts {
    /// Whether there are labels among the samples, too.
    has_label: bool,
    /// How many histograms cannot stand, and why the first one cannot.
    lost: Option<(Error, usize)>,
}

/// A request that is being read into a batch.
struct Request<'d> {
    limits: &'d WireLimits,
    batch: &'d mut Batch,
    memory: Option<&'d mut Reservation>,
    batch_bytes: usize,
    reserved_bytes: usize,
    series_count: usize,
    refused: Refusals,
    exemplar_count: usize,
    metadata_count: usize,
}

impl<'d> Request<'d> {
    fn new(
        limits: &'d WireLimits,
        batch: &'d mut Batch,
        memory: Option<&'d mut Reservation>,
    ) -> Self {
        Self {
            limits,
            batch,
            memory,
            batch_bytes: 0,
            reserved_bytes: 0,
            series_count: 0,
            refused: Refusals::default(),
            exemplar_count: 0,
            metadata_count: 0,
        }
    }

    fn read(&mut self, message: &[u8]) -> Result<(), WireError> {
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            match number {
                field::REQUEST_SERIES => {
                    expect(wire_type, WireType::Bytes)?;
                    let series = cursor.bytes()?;
                    let start = message.len() - cursor.rest().len() - series.len();
                    self.series(series, message.get(start..).unwrap_or_default())?;
                }
                field::REQUEST_METADATA => {
                    expect(wire_type, WireType::Bytes)?;
                    cursor.bytes()?;
                    self.metadata_count += 1;
                }
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }

    /// Reads one `TimeSeries` and ends it in the batch, or refuses it. `beyond` is the request from
    /// where the series starts.
    fn series(&mut self, series: &[u8], beyond: &[u8]) -> Result<(), WireError> {
        if self.series_count == self.limits.series_count_max {
            let limit = self.limits.series_count_max;
            return Err(WireError::TooManySeries { limit });
        }
        self.series_count += 1;
        self.charge(SERIES_BYTES)?;
        let samples_before = self.batch.sample_count();
        let labels_start = self.batch.label_bytes().len();
        let plain = plain::copy(series, beyond, self.limits, self.batch.label_bytes());
        let parts = self.parts(series.get(plain.unwrap_or(0)..).unwrap_or_default())?;
        let arena = self.batch.label_bytes();
        let labels = match plain {
            Some(_) if !parts.has_label => Ok(()),
            _ => {
                arena.truncate(labels_start);
                labels::careful(series, self.limits, arena)?
            }
        };
        if let (Ok(()), Some((why, count))) = (&labels, &parts.lost) {
            let labels = LabelsRef::from_canonical(arena.get(labels_start..).unwrap_or_default());
            self.refused.add(Refusal::Histogram, *count, || {
                format!("{why} for series {labels}")
            });
        }
        let samples = self.batch.sample_count() - samples_before;
        if let Err(offence) = labels {
            let lost = samples + parts.lost.map_or(0, |(_, count)| count);
            self.refused.add(offence.refusal, lost, || offence.message);
            self.batch.drop_series();
        } else if samples == 0 {
            self.batch.drop_series();
        } else {
            self.batch.end_series();
        }
        Ok(())
    }

    /// Reads what a series has besides labels into the batch.
    #[inline]
    fn parts(&mut self, message: &[u8]) -> Result<Parts, WireError> {
        let mut parts = Parts::default();
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            if !(field::SERIES_LABEL..=field::SERIES_HISTOGRAM).contains(&number) {
                cursor.skip(wire_type)?;
                continue;
            }
            expect(wire_type, WireType::Bytes)?;
            let part = cursor.bytes()?;
            match number {
                field::SERIES_LABEL => parts.has_label = true,
                field::SERIES_SAMPLE => self.sample(part)?,
                field::SERIES_EXEMPLAR => self.exemplar_count += 1,
                _ => {
                    if let Err(why) = self.histogram(part)? {
                        parts.lost.get_or_insert((why, 0)).1 += 1;
                    }
                }
            }
        }
        Ok(parts)
    }

    #[inline]
    fn sample(&mut self, message: &[u8]) -> Result<(), WireError> {
        self.charge(SAMPLE_BYTES)?;
        let (mut value, mut time) = (0.0, 0);
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            match number {
                field::SAMPLE_VALUE => {
                    expect(wire_type, WireType::Fixed64)?;
                    value = cursor.double()?;
                }
                field::SAMPLE_TIME => {
                    expect(wire_type, WireType::Varint)?;
                    time = cursor.varint()? as i64;
                }
                _ => cursor.skip(wire_type)?,
            }
        }
        self.batch.push_float(time, value);
        Ok(())
    }

    /// Adds a histogram, or says why it cannot stand; the outer error is for the whole message.
    fn histogram(&mut self, message: &[u8]) -> Result<Result<(), Error>, WireError> {
        self.charge(histogram::memory_bytes(message)?)?;
        let sample = histogram::decode(message)?;
        let valid = sample.histogram.validate();
        if valid.is_ok() {
            self.batch.push_histogram(sample);
        }
        Ok(valid)
    }

    /// Reserves what is counted, and a step more so that this is rare.
    #[cold]
    fn reserve(&mut self) -> Result<(), WireError> {
        let limit = self.limits.batch_bytes_max;
        if self.batch_bytes > limit {
            return Err(WireError::TooManySamples { limit });
        }
        let wanted = self
            .batch_bytes
            .saturating_add(RESERVE_STEP_BYTES)
            .min(limit);
        if let Some(memory) = &mut self.memory {
            memory
                .grow(wanted - self.reserved_bytes)
                .map_err(|e| WireError::NoMemory(e.message))?;
        }
        self.reserved_bytes = wanted;
        Ok(())
    }

    /// Counts memory of the batch before it is taken.
    #[inline]
    fn charge(&mut self, bytes: usize) -> Result<(), WireError> {
        self.batch_bytes += bytes;
        if self.batch_bytes > self.reserved_bytes {
            self.reserve()?;
        }
        Ok(())
    }
}
