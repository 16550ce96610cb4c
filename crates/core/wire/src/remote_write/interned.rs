//! The walk through a decompressed remote-write 2.0 request, whose strings are interned: from
//! `io.prometheus.write.v2.Request` to the series of a batch.
//!
//! ```text
//! symbols --> table --.
//! series: refs -------+--> key of remote write 1.0, labels undecoded until the store needs them
//!         samples, histograms, exemplars --> columns
//!         metadata --> batch of metadata, without repetitions
//! ```
//!
//! A series therefore has the same key in both versions, and its labels are validated by the code
//! for 1.0. Semantics are those of the receiver in Prometheus 3.14: a series with invalid
//! references, labels or metadata is rejected and reported, and so is one without a sample, while
//! the others are stored; labels may be in any order. Symbols may follow the series that refer to
//! them.

mod encode;
mod exemplar;
mod plain;
mod refs;
mod symbols;
#[cfg(test)]
mod tests;

pub use encode::encode_interned;
use plain::{PlainFloatSeries, parse_plain_series};
use refs::{Pair, SeriesMetadataRefs, decode_metadata, decode_packed, kept_bytes, validate_series};
pub(crate) use symbols::KEY_COPIES;
pub(super) use symbols::WriteRequestSymbols;

use self::exemplar::LABEL_BYTES_MAX;
use super::charges::{EXEMPLAR_BYTES, RequestMemoryAccount, SAMPLE_BYTES, SERIES_BYTES};
use super::field::interned as field;
use super::labels::{SeriesRejection, push_checked};
use super::metadata::{self, ReceivedMetadata};
use super::refusal::WriteRejectionReason;
use super::request::WriteRejectionCounts;
use super::{histogram, sample};
use crate::error::WireError;
use crate::limits::WireLimits;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use firn_model::batch::Batch;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use firn_model::metadata::MetadataBatch;
use firn_model::sample::START_UNKNOWN;
use std::borrow::Cow;
use symbols::{MessageSymbols, SYMBOL_BYTES, SeriesKeyBuffer, SeriesKeyRange};

/// Memory for decoding one packed reference beyond the message: its number, and half of a pair.
const REF_BYTES: usize = size_of::<u32>() + size_of::<Pair<'static>>() / 2;

/// The parts of a series that are not in the batch, collected before its labels are resolved.
#[derive(Default)]
struct InternedSeriesParts<'m> {
    refs: Refs<'m>,
    samples: usize,
    said: SeriesMetadataRefs,
    /// The first error of an invalid histogram, and the number of invalid histograms.
    lost: Option<(Error, usize)>,
    /// The first error of an invalid exemplar, and the number of invalid exemplars.
    lost_exemplars: Option<(SeriesRejection, usize)>,
}

/// References of labels: a slice of the message if they are packed in one piece, as all senders
/// write them, or else a copy.
type Refs<'m> = Cow<'m, [u8]>;

/// The state of a request that is being decoded into a batch, with the symbol table of its message.
pub(super) struct InternedRequestDecoder<'d> {
    limits: &'d WireLimits,
    batch: &'d mut Batch,
    metadata: &'d mut MetadataBatch,
    symbols: &'d mut WriteRequestSymbols,
    keys: SeriesKeyBuffer,
    charges: RequestMemoryAccount<'d>,
    /// True if type and unit become labels.
    labels_types: bool,
    /// Metadata that was added last, indexed by the symbol of the metric name.
    said: Vec<SeriesMetadataRefs>,
    series_count: usize,
    pub(super) counts: WriteRejectionCounts,
}

impl<'d> InternedRequestDecoder<'d> {
    pub(super) fn new(
        limits: &'d WireLimits,
        batch: &'d mut Batch,
        metadata: &'d mut MetadataBatch,
        symbols: &'d mut WriteRequestSymbols,
        memory: Option<&'d mut Reservation>,
        labels_types: bool,
    ) -> Self {
        symbols.clear();
        Self {
            limits,
            keys: SeriesKeyBuffer::new(batch.take_message()),
            batch,
            metadata,
            symbols,
            charges: RequestMemoryAccount::new(limits, memory),
            labels_types,
            said: Vec::new(),
            series_count: 0,
            counts: WriteRejectionCounts::default(),
        }
    }

    pub(super) fn read(&mut self, message: &[u8]) -> Result<(), WireError> {
        let mut cursor = ProtobufCursor::new(message);
        let mut first_series = None;
        loop {
            let at = cursor.clone();
            let Some((number, wire_type)) = cursor.read_field()? else {
                break;
            };
            match number {
                field::REQUEST_SYMBOL => {
                    expect_wire_type(wire_type, WireType::Bytes)?;
                    self.charges.add(SYMBOL_BYTES)?;
                    let bytes = cursor.read_bytes()?.len();
                    let end = message.len() - cursor.rest().len();
                    self.symbols.push(message, end - bytes, bytes);
                }
                field::REQUEST_SERIES => {
                    expect_wire_type(wire_type, WireType::Bytes)?;
                    first_series.get_or_insert(at);
                    cursor.read_bytes()?;
                }
                _ => cursor.skip(wire_type)?,
            }
        }
        let mut cursor = first_series.unwrap_or(cursor);
        while let Some((number, wire_type)) = cursor.read_field()? {
            match number {
                field::REQUEST_SERIES => self.read_series(message, cursor.read_bytes()?)?,
                _ => cursor.skip(wire_type)?,
            }
        }
        Ok(())
    }

    /// Returns the memory of the keys, their size, and the counts of rejected parts.
    pub(super) fn finish(self) -> (Vec<u8>, usize, WriteRejectionCounts) {
        let key_bytes = self.keys.end();
        (self.keys.into_bytes(), key_bytes, self.counts)
    }

    /// Decodes one `TimeSeries` and adds it to the batch or rejects it.
    #[inline]
    fn read_series(&mut self, message: &[u8], series: &[u8]) -> Result<(), WireError> {
        if self.series_count == self.limits.series_count_max {
            let limit = self.limits.series_count_max;
            return Err(WireError::TooManySeries { limit });
        }
        self.series_count += 1;
        self.charges.add(SERIES_BYTES)?;
        if let Some(plain) = parse_plain_series(series)
            && self.push_plain_series(message, plain)?
        {
            return Ok(());
        }
        let parts = self.read_parts(message, series)?;
        let may_wait = parts.samples > 0
            && parts.lost.is_none()
            && parts.lost_exemplars.is_none()
            && !self.labels_types
            && self.has_symbols(parts.said);
        if may_wait {
            let table = MessageSymbols::new(message, self.symbols);
            let key = self
                .keys
                .write(&parts.refs, table, self.limits, &mut self.charges)?;
            if let Some(key) = key {
                self.push_metadata(message, key, parts.said)?;
                self.batch.end_unread_series(key.start..key.end);
                return Ok(());
            }
        }
        self.read_at_once(message, parts)
    }

    /// Adds a plain series to the batch. Returns `false`, without changes, if the slow path must
    /// validate it.
    #[inline]
    fn push_plain_series(
        &mut self,
        message: &[u8],
        plain: PlainFloatSeries<'_>,
    ) -> Result<bool, WireError> {
        let said = decode_metadata(plain.said)?;
        if self.labels_types || !self.has_symbols(said) {
            return Ok(false);
        }
        let table = MessageSymbols::new(message, self.symbols);
        let key = self
            .keys
            .write(plain.refs, table, self.limits, &mut self.charges)?;
        let Some(key) = key else { return Ok(false) };
        self.charges.add(SAMPLE_BYTES)?;
        self.batch.push_float(plain.time, plain.value);
        self.push_metadata(message, key, said)?;
        self.batch.end_unread_series(key.start..key.end);
        Ok(true)
    }

    /// Returns whether the references of the metadata are in the symbol table.
    #[inline]
    fn has_symbols(&self, said: SeriesMetadataRefs) -> bool {
        let symbols = self.symbols.len();
        (said.help as usize) < symbols && (said.unit as usize) < symbols
    }

    /// Adds the metadata of a series, unless the previous series of the metric had the same. Fails
    /// if the batch exceeds its limit.
    #[inline]
    fn push_metadata(
        &mut self,
        message: &[u8],
        key: SeriesKeyRange,
        said: SeriesMetadataRefs,
    ) -> Result<(), WireError> {
        match (key.metric, said == SeriesMetadataRefs::default()) {
            (Some(metric), false) => self.push_metadata_once(message, metric, said),
            _ => Ok(()),
        }
    }

    fn push_metadata_once(
        &mut self,
        message: &[u8],
        metric: u32,
        said: SeriesMetadataRefs,
    ) -> Result<(), WireError> {
        if self.said.is_empty() {
            self.charges
                .add(self.symbols.len() * size_of::<SeriesMetadataRefs>())?;
            self.said
                .resize(self.symbols.len(), SeriesMetadataRefs::default());
        }
        match self.said.get_mut(metric as usize) {
            Some(last) if *last != said => *last = said,
            _ => return Ok(()),
        }
        let text = |number| self.symbols.get(message, number).unwrap_or_default();
        let received = ReceivedMetadata {
            name: text(metric),
            kind: metadata::metric_type(said.kind),
            help: text(said.help),
            unit: text(said.unit),
        };
        metadata::push(received, &mut self.charges, self.metadata)
    }

    /// Decodes all parts of a series except for the labels into the batch. Fails if a part is
    /// malformed or the batch exceeds its limit.
    #[inline]
    fn read_parts<'m>(
        &mut self,
        message: &[u8],
        series: &'m [u8],
    ) -> Result<InternedSeriesParts<'m>, WireError> {
        let mut parts = InternedSeriesParts::default();
        let mut cursor = ProtobufCursor::new(series);
        while let Some((number, wire_type)) = cursor.read_field()? {
            if number == field::SERIES_LABEL_REFS && wire_type == WireType::Varint {
                let before = cursor.rest();
                cursor.read_varint()?;
                let read = before.len() - cursor.rest().len();
                let one = before.get(..read).unwrap_or_default();
                parts.refs.to_mut().extend_from_slice(one);
                continue;
            }
            if !(field::SERIES_LABEL_REFS..=field::SERIES_METADATA).contains(&number) {
                cursor.skip(wire_type)?;
                continue;
            }
            expect_wire_type(wire_type, WireType::Bytes)?;
            let part = cursor.read_bytes()?;
            match number {
                field::SERIES_LABEL_REFS if parts.refs.is_empty() => parts.refs = part.into(),
                field::SERIES_LABEL_REFS => parts.refs.to_mut().extend_from_slice(part),
                field::SERIES_SAMPLE => {
                    self.read_sample(part)?;
                    parts.samples += 1;
                }
                field::SERIES_HISTOGRAM => match self.read_histogram(part)? {
                    Ok(()) => parts.samples += 1,
                    Err(why) => parts.lost.get_or_insert((why, 0)).1 += 1,
                },
                field::SERIES_EXEMPLAR => {
                    self.charges
                        .add(EXEMPLAR_BYTES + LABEL_BYTES_MAX + REF_BYTES * part.len())?;
                    let table = MessageSymbols::new(message, self.symbols);
                    if let Err(offence) = exemplar::read(part, table, self.batch)? {
                        parts.lost_exemplars.get_or_insert((offence, 0)).1 += 1;
                    }
                }
                _ => parts.said = decode_metadata(part)?,
            }
        }
        Ok(parts)
    }

    #[inline]
    fn read_sample(&mut self, message: &[u8]) -> Result<(), WireError> {
        self.charges.add(SAMPLE_BYTES)?;
        if let Some((time, value)) = sample::parse_plain(message) {
            self.batch.push_float(time, value);
            return Ok(());
        }
        let sample = sample::read(message)?;
        if sample.start_time == START_UNKNOWN {
            self.batch.push_float(sample.time, sample.value);
        } else {
            // The first start timestamp of a batch allocates a column for them.
            self.charges.add(SAMPLE_BYTES)?;
            let (time, value) = (sample.time, sample.value);
            self.batch
                .push_float_with_start(time, value, sample.start_time);
        }
        Ok(())
    }

    /// Adds a histogram, or returns why it is invalid; the outer error is for the whole message.
    fn read_histogram(&mut self, message: &[u8]) -> Result<Result<(), Error>, WireError> {
        self.charges.add(histogram::memory_bytes(message)?)?;
        let mut sample = histogram::decode(message)?;
        let valid = histogram::reduce_resolution(&mut sample.histogram);
        if valid.is_ok() {
            self.batch.push_histogram(sample);
        }
        Ok(valid)
    }

    /// Adds or rejects a series whose labels must be decoded at once; its samples are in the batch
    /// already.
    #[cold]
    fn read_at_once(
        &mut self,
        message: &[u8],
        parts: InternedSeriesParts<'_>,
    ) -> Result<(), WireError> {
        let at = self.keys.end();
        let lost = parts.lost.as_ref().map_or(0, |(_, count)| *count);
        let sent = parts.samples + lost;
        self.charges.add(REF_BYTES * parts.refs.len())?;
        let refs = decode_packed(&parts.refs)?;
        let table = MessageSymbols::new(message, self.symbols);
        let judged = match validate_series(&refs, parts.said, table, self.labels_types) {
            Ok(pairs) => {
                self.charges
                    .add(KEY_COPIES * kept_bytes(&pairs, self.limits))?;
                Ok(pairs)
            }
            Err(offence) => Err(offence),
        };
        let arena = self.batch.label_bytes();
        let start = arena.len();
        let judged = judged.and_then(|pairs| push_checked(pairs, self.limits, arena));
        if let Err(offence) = judged {
            self.counts
                .refused
                .add(at, offence.refusal, sent, || offence.message);
            self.batch.drop_series();
            return Ok(());
        }
        let labels = LabelsRef::from_canonical(arena.get(start..).unwrap_or_default());
        let WriteRejectionCounts {
            refused,
            refused_exemplars,
            ..
        } = &mut self.counts;
        if let Some((why, count)) = &parts.lost {
            refused.add(at, WriteRejectionReason::Histogram, *count, || {
                format!("{why} for series {labels}")
            });
        }
        if let Some((offence, count)) = parts.lost_exemplars {
            refused_exemplars.add(at, offence.refusal, count, || {
                format!("parsing exemplar for series {labels}: {}", offence.message)
            });
        }
        if sent == 0 {
            refused.add(at, WriteRejectionReason::NoSamples, 0, || {
                format!(
                    "TimeSeries must contain at least one sample or histogram for series {labels}"
                )
            });
        }
        if parts.samples == 0 {
            self.batch.drop_series();
            return Ok(());
        }
        let name = labels.get(METRIC_NAME);
        let metric = refs.as_chunks::<2>().0.iter().find_map(|[n, v]| {
            let is_name = self.symbols.get(message, *n) == Some(METRIC_NAME.as_bytes());
            (is_name && self.symbols.get(message, *v) == Some(name)).then_some(*v)
        });
        let key = SeriesKeyRange {
            start: at,
            end: at,
            metric,
        };
        self.batch.end_series();
        self.push_metadata(message, key, parts.said)
    }
}
