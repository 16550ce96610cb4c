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
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use labels::SeriesLabels;

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
        snappy::decompress(body, self.limits.message_bytes_max, &mut self.message)?;
        self.batch.clear();
        let mut request = Request::new(&self.limits, &mut self.batch);
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

/// A request that is being read into a batch.
struct Request<'d> {
    limits: &'d WireLimits,
    batch: &'d mut Batch,
    batch_bytes: usize,
    series_count: usize,
    refused: Refusals,
    exemplar_count: usize,
    metadata_count: usize,
}

impl<'d> Request<'d> {
    fn new(limits: &'d WireLimits, batch: &'d mut Batch) -> Self {
        Self {
            limits,
            batch,
            batch_bytes: 0,
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
                    self.series(cursor.bytes()?)?;
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

    /// Reads one `TimeSeries` and ends it in the batch, or refuses it.
    fn series(&mut self, message: &[u8]) -> Result<(), WireError> {
        if self.series_count == self.limits.series_count_max {
            let limit = self.limits.series_count_max;
            return Err(WireError::TooManySeries { limit });
        }
        self.series_count += 1;
        self.charge(SERIES_BYTES)?;
        let samples_before = self.batch.sample_count();
        let mut labels = SeriesLabels::new(self.batch.label_bytes().len());
        let mut cursor = Cursor::new(message);
        let mut lost: Option<(Error, usize)> = None;
        while let Some((number, wire_type)) = cursor.field()? {
            if !(field::SERIES_LABEL..=field::SERIES_HISTOGRAM).contains(&number) {
                cursor.skip(wire_type)?;
                continue;
            }
            expect(wire_type, WireType::Bytes)?;
            let part = cursor.bytes()?;
            match number {
                field::SERIES_LABEL => labels.push(part, self.limits, self.batch.label_bytes())?,
                field::SERIES_SAMPLE => self.sample(part)?,
                field::SERIES_EXEMPLAR => self.exemplar_count += 1,
                _ => {
                    if let Err(why) = self.histogram(part)? {
                        lost.get_or_insert((why, 0)).1 += 1;
                    }
                }
            }
        }
        self.end_series(message, &labels, samples_before, lost)
    }
}

impl Request<'_> {
    fn sample(&mut self, message: &[u8]) -> Result<(), WireError> {
        self.charge(SAMPLE_BYTES)?;
        let mut cursor = Cursor::new(message);
        let (mut value, mut time) = (0.0, 0);
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

    /// Ends the series in the batch or takes it back. `lost` are histograms that cannot stand.
    fn end_series(
        &mut self,
        message: &[u8],
        labels: &SeriesLabels<'_>,
        samples_before: usize,
        lost: Option<(Error, usize)>,
    ) -> Result<(), WireError> {
        let arena = self.batch.label_bytes();
        let outcome = labels.finish(message, self.limits, arena)?;
        if let (Ok(()), Some((why, count))) = (&outcome, &lost) {
            let labels = arena.get(labels.start()..).unwrap_or_default();
            let labels = LabelsRef::from_canonical(labels);
            self.refused.add(Refusal::Histogram, *count, || {
                format!("{why} for series {labels}")
            });
        }
        let samples = self.batch.sample_count() - samples_before;
        if let Err(offence) = outcome {
            let histograms = lost.map_or(0, |(_, count)| count);
            self.refused
                .add(offence.refusal, samples + histograms, || offence.message);
            self.batch.drop_series();
        } else if samples == 0 {
            self.batch.drop_series();
        } else {
            self.batch.end_series();
        }
        Ok(())
    }

    /// Counts memory of the batch before it is taken.
    #[inline]
    fn charge(&mut self, bytes: usize) -> Result<(), WireError> {
        self.batch_bytes += bytes;
        if self.batch_bytes > self.limits.batch_bytes_max {
            let limit = self.limits.batch_bytes_max;
            return Err(WireError::TooManySamples { limit });
        }
        Ok(())
    }
}
