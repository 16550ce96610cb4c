//! The walk through an unpacked request: from `WriteRequest` to the series of a batch.

use super::refusal::{Refusal, Refusals};
use super::{exemplar, field, histogram, keys, labels, plain};
use crate::error::WireError;
use crate::limits::WireLimits;
use crate::protobuf::{Cursor, WireType, expect};
use firn_model::batch::Batch;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;

/// What a series costs in a batch besides its labels and samples.
const SERIES_BYTES: usize = 20;

/// What a float sample costs in a batch.
const SAMPLE_BYTES: usize = 16;

/// What an exemplar costs in a batch besides its labels.
const EXEMPLAR_BYTES: usize = 40;

/// Memory is reserved in steps of this: a request of 2,000 samples takes two.
const RESERVE_STEP_BYTES: usize = 64 << 10;

/// The keys of a sample's fields, and of a sample in a series.
const VALUE_KEY: u8 = 0x09;
const TIME_KEY: u8 = 0x10;
const SAMPLE_KEY: u8 = 0x12;

/// What a request held besides what is in the batch.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) refused: Refusals,
    pub(super) exemplars: usize,
    pub(super) metadata: usize,
}

/// What a series has besides the labels at its start.
#[derive(Default)]
struct Parts {
    /// Samples that are in the batch.
    samples: usize,
    /// Whether there are labels among the samples, too.
    has_label: bool,
    /// Whether there are exemplars that are kept. A sender sends them in series of their own.
    has_exemplar: bool,
    /// How many histograms cannot stand, and why the first one cannot.
    lost: Option<(Error, usize)>,
}

/// A request that is being read into a batch.
pub(super) struct Request<'d> {
    limits: &'d WireLimits,
    batch: &'d mut Batch,
    memory: Option<&'d mut Reservation>,
    keeps_exemplars: bool,
    batch_bytes: usize,
    reserved_bytes: usize,
    series_count: usize,
    pub(super) counts: Counts,
}

impl<'d> Request<'d> {
    pub(super) fn new(
        limits: &'d WireLimits,
        batch: &'d mut Batch,
        memory: Option<&'d mut Reservation>,
        keeps_exemplars: bool,
    ) -> Self {
        Self {
            limits,
            batch,
            memory,
            keeps_exemplars,
            batch_bytes: 0,
            reserved_bytes: 0,
            series_count: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn read(&mut self, message: &[u8]) -> Result<(), WireError> {
        let mut cursor = Cursor::new(message);
        while let Some((number, wire_type)) = cursor.field()? {
            match number {
                field::REQUEST_SERIES => {
                    expect(wire_type, WireType::Bytes)?;
                    let series = cursor.bytes()?;
                    let start = message.len() - cursor.rest().len() - series.len();
                    self.series(message, start, series)?;
                }
                field::REQUEST_METADATA => {
                    expect(wire_type, WireType::Bytes)?;
                    cursor.bytes()?;
                    self.counts.metadata += 1;
                }
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }

    /// Reads one `TimeSeries`, which begins at `start` of the message, and ends it in the batch or
    /// refuses it.
    #[inline]
    fn series(&mut self, message: &[u8], start: usize, series: &[u8]) -> Result<(), WireError> {
        if self.series_count == self.limits.series_count_max {
            let limit = self.limits.series_count_max;
            return Err(WireError::TooManySeries { limit });
        }
        self.series_count += 1;
        self.charge(SERIES_BYTES)?;
        let labels_end = keys::labels_end(series);
        let (key, rest) = series.split_at(labels_end);
        if !key.is_empty()
            && let Some((time, value)) = sole_sample(rest)
        {
            self.charge(SAMPLE_BYTES)?;
            self.batch.push_float(time, value);
            self.batch.end_unread_series(start..start + labels_end);
            return Ok(());
        }
        let parts = self.parts(rest)?;
        let may_wait = !key.is_empty() && !parts.has_label && parts.lost.is_none();
        if may_wait && (parts.samples > 0 || parts.has_exemplar) {
            self.batch.end_unread_series(start..start + labels_end);
            return Ok(());
        }
        self.read_at_once(message, start, series, parts)
    }

    /// Ends or refuses a series whose labels cannot wait; its samples are in the batch already.
    #[cold]
    fn read_at_once(
        &mut self,
        message: &[u8],
        start: usize,
        series: &[u8],
        parts: Parts,
    ) -> Result<(), WireError> {
        let arena = self.batch.label_bytes();
        let labels_start = arena.len();
        let beyond = message.get(start..).unwrap_or_default();
        let labels = match plain::copy(series, beyond, self.limits, arena) {
            Some(_) if !parts.has_label => Ok(()),
            _ => {
                arena.truncate(labels_start);
                labels::careful(series, self.limits, arena)?
            }
        };
        let refused = &mut self.counts.refused;
        if let (Ok(()), Some((why, count))) = (&labels, &parts.lost) {
            let labels = LabelsRef::from_canonical(arena.get(labels_start..).unwrap_or_default());
            refused.add(start, Refusal::Histogram, *count, || {
                format!("{why} for series {labels}")
            });
        }
        if let Err(offence) = labels {
            let lost = parts.samples + parts.lost.as_ref().map_or(0, |(_, count)| *count);
            refused.add(start, offence.refusal, lost, || offence.message);
            self.batch.drop_series();
        } else if parts.samples == 0 && !parts.has_exemplar {
            self.batch.drop_series();
        } else {
            self.batch.end_series();
        }
        Ok(())
    }

    /// Reads what a series has besides labels into the batch.
    fn parts(&mut self, message: &[u8]) -> Result<Parts, WireError> {
        let mut parts = Parts::default();
        let before = self.batch.sample_count();
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
                field::SERIES_EXEMPLAR if self.keeps_exemplars => {
                    self.charge(EXEMPLAR_BYTES.saturating_add(part.len()))?;
                    exemplar::read(part, self.batch)?;
                    parts.has_exemplar = true;
                }
                field::SERIES_EXEMPLAR => self.counts.exemplars += 1,
                _ => {
                    if let Err(why) = self.histogram(part)? {
                        parts.lost.get_or_insert((why, 0)).1 += 1;
                    }
                }
            }
        }
        parts.samples = self.batch.sample_count() - before;
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

/// The time and value of the one sample that `rest` is, if it stands there as Go's encoder writes
/// it, with a time of the years 1971 to 2109: a varint of six bytes.
#[inline]
fn sole_sample(rest: &[u8]) -> Option<(i64, f64)> {
    let (value, time) = match *rest {
        [
            SAMPLE_KEY,
            16,
            VALUE_KEY,
            v0,
            v1,
            v2,
            v3,
            v4,
            v5,
            v6,
            v7,
            TIME_KEY,
            ref time @ ..,
        ] => (f64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]), time),
        // Zero is left out.
        [SAMPLE_KEY, 7, TIME_KEY, ref time @ ..] => (0.0, time),
        _ => return None,
    };
    let &[b0, b1, b2, b3, b4, b5] = time else {
        return None;
    };
    if b0 & b1 & b2 & b3 & b4 & 0x80 == 0 || b5 & 0x80 != 0 {
        return None;
    }
    let bits = |byte: u8, shift: u32| i64::from(byte & 0x7f) << shift;
    let low = bits(b0, 0) | bits(b1, 7) | bits(b2, 14);
    let high = bits(b3, 21) | bits(b4, 28) | bits(b5, 35);
    Some((low | high, value))
}
