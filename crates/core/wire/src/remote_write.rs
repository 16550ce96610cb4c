//! Remote write: a snappy block with a protobuf message, `WriteRequest` in version 1.0 or
//! `io.prometheus.write.v2.Request` in version 2.0.
//!
//! ```text
//! body -- snappy --> message -- walk --> Batch, labels undecoded -- on demand --> labels
//!                                   \--> rejected series, by reason <--------------/
//! ```
//!
//! A sender repeats the labels of its series in every request, and the store finds a series by the
//! encoded bytes of its labels. Therefore the labels at the start of a series remain undecoded, and
//! [`DecodedWriteRequest`] decodes only those that the store requests: in the steady state none,
//! which saves half of the cost of decoding. Labels at other positions in a series are decoded at
//! once.
//!
//! A series with invalid labels is rejected and reported, and the others are decoded: the receiver
//! decides about the response. Semantics are those of the receiver in Prometheus 3.14
//! (`storage/remote/write_handler.go`): labels may be in any order, labels with an empty value are
//! ignored, unknown fields are skipped, and exemplars of version 1.0 are only counted if the store
//! does not keep them.

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

pub(crate) use charges::{EXEMPLAR_BYTES, RequestMemoryAccount, SAMPLE_BYTES, SERIES_BYTES};
pub use contents::WriteRequestContents;
pub use encode::{encode, encode_histogram, encode_metadata, encode_range};
pub use extend::ExtraLabels;
pub use histogram::decode as decode_histogram;
pub(crate) use histogram::reduce_resolution as fit_histogram;
pub(crate) use interned::KEY_COPIES;
pub use interned::encode_interned;
pub use keys::{KEY_FORMAT, visit_labels};
pub(crate) use keys::{begin_label, push_begun_label, push_label};
pub(crate) use labels::name_and_value;
pub use labels::{SeriesRejection, push_checked};
pub(crate) use metadata::{ReceivedMetadata, push as push_metadata};
pub use refusal::{RejectedSeries, WriteRejectionReason, WriteRejections};
pub(crate) use request::WriteRejectionCounts;
pub(crate) use sample::read as read_sample;
pub use seams::{MergedBody, MergedRequestBounds, encode_since};
pub use zeros::ZeroSampleGenerator;

use crate::error::WireError;
use crate::limits::WireLimits;
use crate::snappy;
use firn_model::batch::{Batch, BatchSource, LabelDecodeOutcome};
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use firn_model::metadata::MetadataBatch;
use interned::{InternedRequestDecoder, WriteRequestSymbols};
use request::Request;
use std::sync::LazyLock;

/// A version of the protocol, which a sender selects by the name of the message in the content
/// type. Version 1.0 is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteWriteVersion {
    /// Version 1.0: `prometheus.WriteRequest`.
    #[default]
    V1,
    /// Version 2.0: `io.prometheus.write.v2.Request`.
    V2,
}

impl RemoteWriteVersion {
    /// Both versions, in the order of their numbers.
    pub const ALL: [RemoteWriteVersion; 2] = [RemoteWriteVersion::V1, RemoteWriteVersion::V2];

    /// Returns the full name of the protobuf message, as in content types and the configuration.
    pub fn message_name(self) -> &'static str {
        match self {
            RemoteWriteVersion::V1 => "prometheus.WriteRequest",
            RemoteWriteVersion::V2 => "io.prometheus.write.v2.Request",
        }
    }

    /// Returns the version whose message has this full name, or `None` for an unknown one.
    pub fn from_message_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.message_name() == name)
    }

    /// Returns the message names of `versions` as a comma-separated list, for headers and error
    /// texts.
    pub fn join_message_names(versions: &[RemoteWriteVersion]) -> String {
        let names: Vec<&str> = versions.iter().map(|it| it.message_name()).collect();
        names.join(", ")
    }
}

/// Options for decoding requests, which the request headers and feature flags determine. A decoder
/// can be used with different options for each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteWriteOptions {
    /// Version of the request, from its content type.
    pub version: RemoteWriteVersion,
    /// True if exemplars of version 1.0 are decoded; otherwise they are only counted. Those of 2.0
    /// are always decoded, because the response reports how many were stored.
    pub keeps_exemplars: bool,
    /// True if type and unit of version 2.0 become labels (`type-and-unit-labels`).
    pub labels_types: bool,
}

/// Decodes one request after another and reuses the memory of the previous one. Each decoder serves
/// one request at a time; the pipeline keeps several.
#[derive(Debug, Default)]
pub struct RemoteWriteDecoder {
    limits: WireLimits,
    batch: Batch,
    metadata: MetadataBatch,
    /// The message of a version 2.0 request; the batch contains only the keys derived from it.
    interned: Vec<u8>,
    symbols: WriteRequestSymbols,
}

/// A decoded request: a [`BatchSource`] of samples whose labels are decoded on demand. Borrows the
/// memory of its decoder, and ends with [`DecodedWriteRequest::finish`].
#[derive(Debug)]
pub struct DecodedWriteRequest<'d> {
    /// The series that are valid as far as they were decoded, each with at least one sample or
    /// exemplar.
    pub batch: &'d mut Batch,
    /// Series that were rejected so far, by reason.
    pub refused: WriteRejections,
    /// Invalid exemplars of valid series, by reason.
    pub refused_exemplars: WriteRejections,
    /// Number of exemplars whose series was rejected after they were decoded.
    pub lost_exemplars: usize,
    /// Number of exemplars that were not decoded because of
    /// [`RemoteWriteOptions::keeps_exemplars`].
    pub exemplar_count: usize,
    /// Metric metadata in the request, without repetitions of the same metadata.
    pub metadata: &'d MetadataBatch,
    /// Upper bound for the size of the series in a log, in bytes.
    pub log_bytes: usize,
    /// Bytes of memory that contain the keys.
    key_bytes: usize,
    limits: &'d WireLimits,
    /// Working memory for the canonical key of decoded labels.
    format_key: Vec<u8>,
    /// The reason why the message as a whole is malformed, if decoding labels found one.
    failure: Option<WireError>,
}

/// Returns the uncompressed size that `body` declares, in bytes; fails if it exceeds the limit.
pub fn message_bytes(body: &[u8], limits: &WireLimits) -> Result<usize, WireError> {
    snappy::declared_bytes(body, limits.message_bytes_max)
}

impl RemoteWriteDecoder {
    /// Returns a decoder with these limits, which has not allocated memory yet.
    pub fn new(limits: WireLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Sets the maximum number of labels of the series in further requests.
    pub fn set_labels_max(&mut self, labels_max: usize) {
        self.limits.label_count_max = labels_max;
    }

    /// Decodes a request with all labels. Fails if the message as a whole is malformed or exceeds a
    /// limit.
    pub fn decode(
        &mut self,
        reader: RemoteWriteOptions,
        body: &[u8],
    ) -> Result<DecodedWriteRequest<'_>, WireError> {
        let mut decoded = self.decode_within(reader, body, None)?;
        for series in 0..decoded.batch.series_count() {
            decoded.read(series)?;
        }
        Ok(decoded)
    }

    /// Decodes a request but leaves labels undecoded where possible. The memory of the samples is
    /// reserved in `memory` before it is allocated. The caller reserves that of the message and of
    /// the labels, which need no more than the message.
    pub fn decode_within(
        &mut self,
        reader: RemoteWriteOptions,
        body: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<DecodedWriteRequest<'_>, WireError> {
        self.batch.clear();
        self.metadata.clear();
        let (counts, log_bytes) = match reader.version {
            RemoteWriteVersion::V1 => self.read_plain(reader, body, memory),
            RemoteWriteVersion::V2 => self.read_interned(reader, body, memory),
        }?;
        Ok(DecodedWriteRequest::from_keys(
            &mut self.batch,
            &self.metadata,
            counts,
            log_bytes,
            &self.limits,
        ))
    }

    fn read_plain(
        &mut self,
        reader: RemoteWriteOptions,
        body: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<(WriteRejectionCounts, usize), WireError> {
        let mut message = self.batch.take_message();
        let unpacked = snappy::decompress(body, self.limits.message_bytes_max, &mut message);
        let read = unpacked.and_then(|()| {
            let (batch, metadata) = (&mut self.batch, &mut self.metadata);
            let keeps_exemplars = reader.keeps_exemplars;
            let mut request = Request::new(&self.limits, batch, metadata, memory, keeps_exemplars);
            request.read(&message)?;
            Ok(request.counts)
        });
        let message_bytes = message.len();
        self.batch.put_message(message, KEY_FORMAT);
        Ok((read?, message_bytes))
    }

    fn read_interned(
        &mut self,
        reader: RemoteWriteOptions,
        body: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<(WriteRejectionCounts, usize), WireError> {
        let message = &mut self.interned;
        snappy::decompress(body, self.limits.message_bytes_max, message)?;
        let mut request = InternedRequestDecoder::new(
            &self.limits,
            &mut self.batch,
            &mut self.metadata,
            &mut self.symbols,
            memory,
            reader.labels_types,
        );
        let read = request.read(message);
        let (keys, key_bytes, counts) = request.finish();
        self.batch.put_message(keys, KEY_FORMAT);
        read.map(|()| (counts, key_bytes + message.len()))
    }

    /// Returns the bytes of memory that the decoder retains for the next request.
    pub fn memory_bytes(&self) -> usize {
        self.batch.memory_bytes()
            + self.metadata.memory_bytes()
            + self.interned.capacity()
            + self.symbols.memory_bytes()
    }
}

impl<'d> DecodedWriteRequest<'d> {
    /// Wraps a batch whose undecoded keys have the format [`KEY_FORMAT`] and were received from
    /// another process that decoded the request, without metadata. `limits` apply to the labels
    /// that are decoded.
    pub fn of_keys(batch: &'d mut Batch, limits: &'d WireLimits) -> Self {
        static NO_METADATA: LazyLock<MetadataBatch> = LazyLock::new(MetadataBatch::default);
        let counts = WriteRejectionCounts::default();
        let log_bytes = batch.message_bytes();
        Self::from_keys(batch, &NO_METADATA, counts, log_bytes, limits)
    }

    /// Wraps the result of a walk: series whose keys have the format [`KEY_FORMAT`], in the batch.
    pub(crate) fn from_keys(
        batch: &'d mut Batch,
        metadata: &'d MetadataBatch,
        counts: WriteRejectionCounts,
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

    /// Replaces the series by those of `batch`, whose undecoded keys have the format
    /// [`KEY_FORMAT`]. Series that were rejected so far remain counted.
    pub fn replace_batch(&mut self, batch: Batch) {
        self.key_bytes = batch.message_bytes();
        *self.batch = batch;
    }

    /// Decodes the labels of all series with more than `labels_max` labels, so that a decoder with
    /// this limit rejects them. The labels of other existing series remain undecoded.
    pub fn reject_many_labels(&mut self, labels_max: usize) -> Result<(), Error> {
        let has_many = |series: &u32| {
            let mut labels = 0;
            let key = self.batch.key(*series as usize);
            let counted = key.map(|key| keys::visit_labels(key, |_, _, _| labels += 1));
            counted.is_some() && labels > labels_max
        };
        let all = 0..self.batch.series_count() as u32;
        let many: Vec<u32> = all.filter(has_many).collect();
        self.read_labels(&many)
    }

    /// Returns the rejected series after all requested labels were decoded. Fails if one of them
    /// has shown that the message as a whole is malformed.
    pub fn finish(self) -> Result<WriteRejections, WireError> {
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
            match plain::copy_labels(key, beyond, limits, arena) {
                Some(copied) if copied.is_key => return Ok(LabelDecodeOutcome::StandsByKey),
                Some(_) => {}
                None => {
                    if let Err(offence) = labels::decode_labels(key, limits, arena)? {
                        let at = key_bytes - beyond.len();
                        is_refused = true;
                        refused.add(at, offence.refusal, sample_count, || offence.message);
                        return Ok(LabelDecodeOutcome::Refused);
                    }
                }
            }
            let labels = LabelsRef::from_canonical(arena.get(start..).unwrap_or_default());
            format_key.clear();
            KEY_FORMAT.push_key(format_key, labels);
            Ok(if **format_key == *key {
                LabelDecodeOutcome::StandsByKey
            } else {
                LabelDecodeOutcome::Stands
            })
        })?;
        if is_refused {
            let exemplars = self.batch.exemplars();
            self.lost_exemplars += exemplars.iter_series(series as u64).count();
        }
        Ok(())
    }
}

impl BatchSource for DecodedWriteRequest<'_> {
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

    fn remove_series(&mut self, series: &[u32]) -> Option<Batch> {
        self.batch.remove_series(series);
        None
    }
}
