//! The walk through a decompressed version 1.0 request: from `WriteRequest` to the series of a
//! batch.

use super::charges::{EXEMPLAR_BYTES, RequestMemoryAccount, SAMPLE_BYTES, SERIES_BYTES};
use super::refusal::{WriteRejectionReason, WriteRejections};
use super::{exemplar, field, histogram, keys, labels, metadata, plain, sample};
use crate::error::WireError;
use crate::limits::WireLimits;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use firn_model::batch::Batch;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::START_UNKNOWN;

/// Field key of a sample in a series.
const SAMPLE_KEY: u8 = 0x12;

/// Counts of the parts of a request that are not in the batch: rejected series and exemplars. They
/// become part of the [`super::DecodedWriteRequest`].
#[derive(Debug, Default)]
pub(crate) struct WriteRejectionCounts {
    pub(crate) refused: WriteRejections,
    /// Invalid exemplars of valid series, by reason.
    pub(crate) refused_exemplars: WriteRejections,
    /// Number of exemplars that are not kept.
    pub(crate) exemplars: usize,
}

/// The parts of a series after its leading labels, which are decoded before the labels.
#[derive(Default)]
struct WriteSeriesParts {
    /// Number of samples in the batch.
    samples: usize,
    /// True if there are further labels among the samples.
    has_label: bool,
    /// True if exemplars were added to the batch. Senders put exemplars in separate series.
    has_exemplar: bool,
    /// The first error of an invalid histogram, and the number of invalid histograms.
    lost: Option<(Error, usize)>,
}

/// The state of a version 1.0 request that is being decoded into a batch. It exists for the
/// duration of one decoding call.
pub(super) struct Request<'d> {
    limits: &'d WireLimits,
    batch: &'d mut Batch,
    metadata: &'d mut MetadataBatch,
    charges: RequestMemoryAccount<'d>,
    keeps_exemplars: bool,
    series_count: usize,
    pub(super) counts: WriteRejectionCounts,
}

impl<'d> Request<'d> {
    pub(super) fn new(
        limits: &'d WireLimits,
        batch: &'d mut Batch,
        metadata: &'d mut MetadataBatch,
        memory: Option<&'d mut Reservation>,
        keeps_exemplars: bool,
    ) -> Self {
        Self {
            limits,
            batch,
            metadata,
            charges: RequestMemoryAccount::new(limits, memory),
            keeps_exemplars,
            series_count: 0,
            counts: WriteRejectionCounts::default(),
        }
    }

    pub(super) fn read(&mut self, message: &[u8]) -> Result<(), WireError> {
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field()? {
            match number {
                field::REQUEST_SERIES => {
                    expect_wire_type(wire_type, WireType::Bytes)?;
                    let series = cursor.read_bytes()?;
                    let start = message.len() - cursor.rest().len() - series.len();
                    self.read_series(message, start, series)?;
                }
                field::REQUEST_METADATA => {
                    expect_wire_type(wire_type, WireType::Bytes)?;
                    metadata::read(cursor.read_bytes()?, &mut self.charges, self.metadata)?;
                }
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }

    /// Decodes one `TimeSeries`, which begins at offset `start` of the message, and adds it to the
    /// batch or rejects it.
    #[inline]
    fn read_series(
        &mut self,
        message: &[u8],
        start: usize,
        series: &[u8],
    ) -> Result<(), WireError> {
        if self.series_count == self.limits.series_count_max {
            let limit = self.limits.series_count_max;
            return Err(WireError::TooManySeries { limit });
        }
        self.series_count += 1;
        self.charges.add(SERIES_BYTES)?;
        let labels_end = keys::labels_end(series);
        let (key, rest) = series.split_at(labels_end);
        if !key.is_empty()
            && let Some((time, value)) = parse_sole_sample(rest)
        {
            self.charges.add(SAMPLE_BYTES)?;
            self.batch.push_float(time, value);
            self.batch.end_unread_series(start..start + labels_end);
            return Ok(());
        }
        let parts = self.read_parts(rest)?;
        let may_wait = !key.is_empty() && !parts.has_label && parts.lost.is_none();
        if may_wait && (parts.samples > 0 || parts.has_exemplar) {
            self.batch.end_unread_series(start..start + labels_end);
            return Ok(());
        }
        self.read_at_once(message, start, series, parts)
    }

    /// Adds or rejects a series whose labels must be decoded at once; its samples are in the batch
    /// already.
    #[cold]
    fn read_at_once(
        &mut self,
        message: &[u8],
        start: usize,
        series: &[u8],
        parts: WriteSeriesParts,
    ) -> Result<(), WireError> {
        let arena = self.batch.label_bytes();
        let labels_start = arena.len();
        let beyond = message.get(start..).unwrap_or_default();
        let labels = match plain::copy_labels(series, beyond, self.limits, arena) {
            Some(_) if !parts.has_label => Ok(()),
            _ => {
                arena.truncate(labels_start);
                labels::decode_labels(series, self.limits, arena)?
            }
        };
        let refused = &mut self.counts.refused;
        if let (Ok(()), Some((why, count))) = (&labels, &parts.lost) {
            let labels = LabelsRef::from_canonical(arena.get(labels_start..).unwrap_or_default());
            refused.add(start, WriteRejectionReason::Histogram, *count, || {
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

    /// Decodes all parts of a series except for the labels into the batch. Fails if a part is
    /// malformed or the batch exceeds its limit.
    fn read_parts(&mut self, message: &[u8]) -> Result<WriteSeriesParts, WireError> {
        let mut parts = WriteSeriesParts::default();
        let before = self.batch.sample_count();
        let mut cursor = ProtobufCursor::new(message);
        while let Some((number, wire_type)) = cursor.read_field()? {
            if !(field::SERIES_LABEL..=field::SERIES_HISTOGRAM).contains(&number) {
                cursor.skip(wire_type)?;
                continue;
            }
            expect_wire_type(wire_type, WireType::Bytes)?;
            let part = cursor.read_bytes()?;
            match number {
                field::SERIES_LABEL => parts.has_label = true,
                field::SERIES_SAMPLE => self.read_sample(part)?,
                field::SERIES_EXEMPLAR if self.keeps_exemplars => {
                    self.charges
                        .add(EXEMPLAR_BYTES.saturating_add(part.len()))?;
                    exemplar::read(part, self.batch)?;
                    parts.has_exemplar = true;
                }
                field::SERIES_EXEMPLAR => self.counts.exemplars += 1,
                _ => {
                    if let Err(why) = self.read_histogram(part)? {
                        parts.lost.get_or_insert((why, 0)).1 += 1;
                    }
                }
            }
        }
        parts.samples = self.batch.sample_count() - before;
        Ok(parts)
    }

    fn read_sample(&mut self, message: &[u8]) -> Result<(), WireError> {
        self.charges.add(SAMPLE_BYTES)?;
        let sample = sample::read(message)?;
        self.batch.push_float(sample.time, sample.value);
        Ok(())
    }

    /// Adds a histogram, or returns why it is invalid; the outer error is for the whole message.
    fn read_histogram(&mut self, message: &[u8]) -> Result<Result<(), Error>, WireError> {
        self.charges.add(histogram::memory_bytes(message)?)?;
        let mut sample = histogram::decode(message)?;
        // Version 1.0 has no start timestamps.
        sample.start_time = START_UNKNOWN;
        let valid = histogram::reduce_resolution(&mut sample.histogram);
        if valid.is_ok() {
            self.batch.push_histogram(sample);
        }
        Ok(valid)
    }
}

/// Returns timestamp and value if `rest` is exactly one plain sample.
#[inline]
fn parse_sole_sample(rest: &[u8]) -> Option<(i64, f64)> {
    match rest {
        [SAMPLE_KEY, bytes, message @ ..] if usize::from(*bytes) == message.len() => {
            sample::parse_plain(message)
        }
        _ => None,
    }
}
