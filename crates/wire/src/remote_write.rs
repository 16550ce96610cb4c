//! Remote write: a snappy block around a protobuf message, `WriteRequest` of version 1.0 or
//! `io.prometheus.write.v2.Request` of version 2.0.
//!
//! ```text
//! body -- snappy --> message -- walk --> Batch, labels unread -- asked for --> labels
//!                                   \--> refused series, by reason <------------/
//! ```
//!
//! A sender repeats the labels of its series in every request, and the store knows the series by
//! the bytes they come in. So the labels at the start of a series are left as they are, and
//! [`Decoded`] reads those that the store asks for: in the steady state none, which is half of the
//! cost of decoding. Labels that stand elsewhere in a series are read at once.
//!
//! A series whose labels cannot stand is refused and reported, the others are decoded: what comes
//! of it is the receiver's decision. Semantics are those of Prometheus 3.14's receiver
//! (`storage/remote/write_handler.go`): labels may come in any order, those with an empty value
//! do not count, fields that are not known are passed over, and exemplars of version 1.0 are
//! counted where the store keeps none.

mod charges;
mod contents;
mod encode;
mod exemplar;
mod extend;
mod field;
mod histogram;
mod interned;
mod keys;
mod labels;
mod metadata;
mod plain;
mod refusal;
mod request;
mod sample;
mod seams;
#[cfg(test)]
mod tests;
mod zeros;

pub(crate) use charges::{Charges, EXEMPLAR_BYTES, SAMPLE_BYTES, SERIES_BYTES};
pub use contents::Contents;
pub use encode::{encode, encode_histogram, encode_metadata, encode_range};
pub use extend::Extra;
pub use histogram::decode as decode_histogram;
pub(crate) use histogram::fit as fit_histogram;
pub(crate) use interned::KEY_COPIES;
pub use interned::encode_interned;
pub use keys::KEY_FORMAT;
pub(crate) use keys::{begin_label, push_begun_label, push_label};
pub(crate) use labels::name_and_value;
pub use labels::{Offence, push_checked};
pub(crate) use metadata::push as push_metadata;
pub use refusal::{Refusal, Refusals, Refused};
pub(crate) use request::Counts;
pub(crate) use sample::read as read_sample;
pub use seams::{Joined, Seams, since};
pub use zeros::Zeros;

use crate::error::WireError;
use crate::limits::WireLimits;
use crate::snappy;
use firn_model::batch::{Batch, Reading, Source};
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use firn_model::metadata::MetadataBatch;
use interned::{Interned, Symbols};
use request::Request;

/// A version of the protocol, which a sender names by its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `prometheus.WriteRequest`
    #[default]
    V1,
    /// `io.prometheus.write.v2.Request`
    V2,
}

impl Version {
    /// Both.
    pub const ALL: [Version; 2] = [Version::V1, Version::V2];

    /// The name of its message.
    pub fn message(self) -> &'static str {
        match self {
            Version::V1 => "prometheus.WriteRequest",
            Version::V2 => "io.prometheus.write.v2.Request",
        }
    }

    /// The version of the message with this name.
    pub fn of_message(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.message() == name)
    }

    /// The names of the messages of `versions`, as lists of them are written.
    pub fn messages(versions: &[Version]) -> String {
        let names: Vec<&str> = versions.iter().map(|it| it.message()).collect();
        names.join(", ")
    }
}

/// How a request is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// What it is.
    pub version: Version,
    /// Whether exemplars of version 1.0 are read or counted. Those of 2.0 are read, since the
    /// sender is told of each.
    pub keeps_exemplars: bool,
    /// Whether type and unit of version 2.0 become labels: `type-and-unit-labels`.
    pub labels_types: bool,
}

/// Reads requests one after the other and reuses its memory.
#[derive(Debug, Default)]
pub struct Decoder {
    limits: WireLimits,
    batch: Batch,
    metadata: MetadataBatch,
    /// A message of version 2.0, of which the batch has keys alone.
    interned: Vec<u8>,
    symbols: Symbols,
}

/// What a request held: a [`Source`] of samples whose labels are read where they are asked for.
#[derive(Debug)]
pub struct Decoded<'d> {
    /// The series that can stand as far as they have been read, with at least one sample or
    /// exemplar each.
    pub batch: &'d mut Batch,
    /// What was refused up to now, and why.
    pub refused: Refusals,
    /// Exemplars of series that stand which cannot stand themselves, and why.
    pub refused_exemplars: Refusals,
    /// Exemplars of series that were refused since they were read.
    pub lost_exemplars: usize,
    /// Exemplars that are not kept, as [`Reader::keeps_exemplars`] says.
    pub exemplar_count: usize,
    /// What the request says of metrics.
    pub metadata: &'d MetadataBatch,
    /// Bytes that the series take in a log at most.
    pub log_bytes: usize,
    /// Bytes of memory that the keys lie in.
    key_bytes: usize,
    limits: &'d WireLimits,
    /// Memory for the key that the format makes of labels.
    format_key: Vec<u8>,
    /// Why the message as a whole is malformed, once labels showed it.
    failure: Option<WireError>,
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

    /// Reads a request's body, labels included. Fails if the message as a whole is malformed or
    /// over a limit.
    pub fn decode(&mut self, reader: Reader, body: &[u8]) -> Result<Decoded<'_>, WireError> {
        let mut decoded = self.decode_within(reader, body, None)?;
        for series in 0..decoded.batch.series_count() {
            decoded.read(series)?;
        }
        Ok(decoded)
    }

    /// Reads a request's body and leaves labels unread where it can. What the samples take in
    /// memory is reserved in `memory` before they take it. The message and the labels, which take
    /// no more than the message, are the caller's to reserve.
    pub fn decode_within(
        &mut self,
        reader: Reader,
        body: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<Decoded<'_>, WireError> {
        self.batch.clear();
        self.metadata.clear();
        let (counts, log_bytes) = match reader.version {
            Version::V1 => self.read_plain(reader, body, memory),
            Version::V2 => self.read_interned(reader, body, memory),
        }?;
        let into = (&mut self.batch, &self.metadata);
        Ok(Decoded::of_keys(into, counts, log_bytes, &self.limits))
    }

    fn read_plain(
        &mut self,
        reader: Reader,
        body: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<(Counts, usize), WireError> {
        let mut message = self.batch.take_message();
        let unpacked = snappy::decompress(body, self.limits.message_bytes_max, &mut message);
        let read = unpacked.and_then(|()| {
            let into = (&mut self.batch, &mut self.metadata);
            let mut request = Request::new(&self.limits, into, memory, reader.keeps_exemplars);
            request.read(&message)?;
            Ok(request.counts)
        });
        let message_bytes = message.len();
        self.batch.put_message(message, KEY_FORMAT);
        Ok((read?, message_bytes))
    }

    fn read_interned(
        &mut self,
        reader: Reader,
        body: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<(Counts, usize), WireError> {
        let message = &mut self.interned;
        snappy::decompress(body, self.limits.message_bytes_max, message)?;
        let into = (&mut self.batch, &mut self.metadata);
        let symbols = &mut self.symbols;
        let mut request = Interned::new(&self.limits, into, symbols, memory, reader.labels_types);
        let read = request.read(message);
        let (keys, key_bytes, counts) = request.finish();
        self.batch.put_message(keys, KEY_FORMAT);
        read.map(|()| (counts, key_bytes + message.len()))
    }

    /// Bytes of memory that the decoder keeps for the next request.
    pub fn memory_bytes(&self) -> usize {
        self.batch.memory_bytes()
            + self.metadata.memory_bytes()
            + self.interned.capacity()
            + self.symbols.memory_bytes()
    }
}

impl<'d> Decoded<'d> {
    /// What a walk made of a request: series whose keys are of [`KEY_FORMAT`], in the batch.
    pub(crate) fn of_keys(
        (batch, metadata): (&'d mut Batch, &'d MetadataBatch),
        counts: Counts,
        log_bytes: usize,
        limits: &'d WireLimits,
    ) -> Self {
        Self {
            key_bytes: batch.message_bytes(),
            batch,
            refused: counts.refused,
            refused_exemplars: counts.refused_exemplars,
            lost_exemplars: 0,
            exemplar_count: counts.exemplars,
            metadata,
            log_bytes,
            limits,
            format_key: Vec::new(),
            failure: None,
        }
    }

    /// What was refused, once the labels that were asked for have been read; or why one of them
    /// shows that the message as a whole is malformed.
    pub fn finish(self) -> Result<Refusals, WireError> {
        match self.failure {
            None => Ok(self.refused),
            Some(failure) => Err(failure),
        }
    }

    fn read(&mut self, series: usize) -> Result<(), WireError> {
        let samples = self.batch.series(series);
        let sample_count = samples.times.len() + samples.histograms.len();
        let key_bytes = self.key_bytes;
        let (limits, refused) = (self.limits, &mut self.refused);
        let format_key = &mut self.format_key;
        let mut is_refused = false;
        self.batch.read_key(series, |key, beyond, arena| {
            let start = arena.len();
            match plain::copy(key, beyond, limits, arena) {
                Some(copied) if copied.is_key => return Ok(Reading::StandsByKey),
                Some(_) => {}
                None => {
                    if let Err(offence) = labels::careful(key, limits, arena)? {
                        let at = key_bytes - beyond.len();
                        is_refused = true;
                        refused.add(at, offence.refusal, sample_count, || offence.message);
                        return Ok(Reading::Refused);
                    }
                }
            }
            let labels = LabelsRef::from_canonical(arena.get(start..).unwrap_or_default());
            format_key.clear();
            KEY_FORMAT.push_key(format_key, labels);
            Ok(match **format_key == *key {
                true => Reading::StandsByKey,
                false => Reading::Stands,
            })
        })?;
        if is_refused {
            let exemplars = self.batch.exemplars();
            self.lost_exemplars += exemplars.of_series(series as u64).count();
        }
        Ok(())
    }
}

impl Source for Decoded<'_> {
    fn batch(&self) -> &Batch {
        self.batch
    }

    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error> {
        for series in series {
            if let Err(failure) = self.read(*series as usize) {
                self.failure = Some(failure.clone());
                return Err(failure.into());
            }
        }
        Ok(())
    }

    fn take_out(&mut self, series: &[u32]) -> Option<Batch> {
        self.batch.take_out(series);
        None
    }
}
