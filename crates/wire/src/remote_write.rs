//! Remote write 1.0: a snappy block around a protobuf `WriteRequest`.
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
//! do not count, fields that are not known are passed over, metadata is counted, and so are
//! exemplars where the store keeps none.

mod encode;
mod exemplar;
mod field;
mod histogram;
mod keys;
mod labels;
mod plain;
mod refusal;
mod request;
#[cfg(test)]
mod tests;

pub use encode::{encode, encode_histogram};
pub use histogram::decode as decode_histogram;
pub use keys::KEY_FORMAT;
pub use labels::{Offence, push_checked};
pub use refusal::{Refusal, Refusals, Refused};

use crate::error::WireError;
use crate::limits::WireLimits;
use crate::snappy;
use firn_model::batch::{Batch, Reading, Source};
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use request::Request;

/// Reads requests one after the other and reuses its memory.
#[derive(Debug, Default)]
pub struct Decoder {
    limits: WireLimits,
    keeps_exemplars: bool,
    batch: Batch,
}

/// What a request held: a [`Source`] of samples whose labels are read where they are asked for.
#[derive(Debug)]
pub struct Decoded<'d> {
    /// The series that can stand as far as they have been read, with at least one sample or
    /// exemplar each.
    pub batch: &'d mut Batch,
    /// What was refused up to now, and why.
    pub refused: Refusals,
    /// Exemplars that are not kept: all, unless [`Decoder::keep_exemplars`] says otherwise.
    pub exemplar_count: usize,
    /// Metadata of metrics, which is not kept.
    pub metadata_count: usize,
    /// Bytes of the message.
    pub message_bytes: usize,
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

    /// Says whether exemplars are read or counted.
    pub fn keep_exemplars(&mut self, keeps_exemplars: bool) {
        self.keeps_exemplars = keeps_exemplars;
    }

    /// Reads a request's body, labels included. Fails if the message as a whole is malformed or
    /// over a limit.
    pub fn decode(&mut self, body: &[u8]) -> Result<Decoded<'_>, WireError> {
        let mut decoded = self.decode_within(body, None)?;
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
        body: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<Decoded<'_>, WireError> {
        self.batch.clear();
        let mut message = self.batch.take_message();
        let unpacked = snappy::decompress(body, self.limits.message_bytes_max, &mut message);
        let read = unpacked.and_then(|()| {
            let mut request =
                Request::new(&self.limits, &mut self.batch, memory, self.keeps_exemplars);
            request.read(&message)?;
            Ok(request.counts)
        });
        let message_bytes = message.len();
        self.batch.put_message(message, KEY_FORMAT);
        let counts = read?;
        Ok(Decoded {
            batch: &mut self.batch,
            refused: counts.refused,
            exemplar_count: counts.exemplars,
            metadata_count: counts.metadata,
            message_bytes,
            limits: &self.limits,
            format_key: Vec::new(),
            failure: None,
        })
    }

    /// Bytes of memory that the decoder keeps for the next request.
    pub fn memory_bytes(&self) -> usize {
        self.batch.memory_bytes()
    }
}

impl Decoded<'_> {
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
        let message_bytes = self.message_bytes;
        let (limits, refused) = (self.limits, &mut self.refused);
        let format_key = &mut self.format_key;
        self.batch.read_key(series, |key, beyond, arena| {
            let start = arena.len();
            match plain::copy(key, beyond, limits, arena) {
                Some(copied) if copied.is_key => return Ok(Reading::StandsByKey),
                Some(_) => {}
                None => {
                    if let Err(offence) = labels::careful(key, limits, arena)? {
                        let at = message_bytes - beyond.len();
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
        })
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
