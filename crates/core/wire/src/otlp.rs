//! OTLP metrics: decodes `ExportMetricsServiceRequest` messages in protobuf or JSON.
//!
//! ```text
//! JSON -- json --> message -- walk --> Batch: keys of series, samples, exemplars, metadata
//!                              |  \--> rejected points, counted by reason
//!                           translation (names, attributes -> labels), deltas (accumulated or not)
//! ```
//!
//! Labels are encoded like those of remote write 1.0, so that a series has the same key in both
//! protocols, and a store that has the key in its cache decodes no labels. Semantics and error
//! texts are those of the receiver in Prometheus 3.14 (`storage/remote/otlptranslator`), except
//! that invalid points are left out and reported where upstream rejects the whole request.

mod answer;
mod emit;
mod exemplar;
mod field;
mod info;
mod json;
mod key;
mod label_names;
mod labels;
mod metric;
mod names;
mod native;
mod order;
mod point;
mod request;
mod schema;
mod stream;
mod target_info;
#[cfg(test)]
mod tests;
mod text;
mod translation;
mod trouble;
mod value;

pub use answer::{OtlpEncoding, OtlpResponse};
pub use json::to_protobuf;
pub use point::{
    ExplicitHistogramPoint, ExponentialBuckets, ExponentialHistogramPoint, NumberPoint,
    PointNumber, PointTimes,
};
pub use stream::OtlpStreamId;
pub use translation::{AttributePromotion, OtlpTranslation, TranslationStrategy};

use crate::error::WireError;
use crate::limits::WireLimits;
use crate::remote_write::{DecodedWriteRequest, SeriesRejection, WriteRejectionCounts};
use firn_model::batch::Batch;
use firn_model::budget::Reservation;
use firn_model::metadata::MetadataBatch;
use request::{OtlpBatches, OtlpRequestDecoder};

/// Options for decoding requests, which the configuration and feature flags determine. A decoder
/// can be used with different options for each request.
#[derive(Clone, Copy, Debug)]
pub struct OtlpDecodeOptions<'t> {
    /// How metric names and attributes become series names and labels.
    pub translation: &'t OtlpTranslation,
    /// True if exemplars are decoded; otherwise they are only counted.
    pub keeps_exemplars: bool,
    /// True if type and unit become labels (`type-and-unit-labels`).
    pub labels_types: bool,
    /// Largest distance between two samples of `target_info` in nanoseconds.
    pub info_step_ns: u64,
}

/// The treatment of points with delta temporality, which feature flags select. By default they are
/// rejected, as in upstream.
pub enum OtlpDeltaMode<'d> {
    /// Reject delta points.
    Refuse,
    /// Store delta points unchanged (`otlp-native-delta-ingestion`).
    Keep,
    /// Accumulate delta points to cumulative ones (`otlp-deltatocumulative`).
    Accumulate(&'d mut dyn AccumulateDeltas),
}

impl OtlpDeltaMode<'_> {
    fn is_accumulating(&self) -> bool {
        matches!(self, OtlpDeltaMode::Accumulate(_))
    }
}

/// Accumulates delta points: replaces each by the cumulative point of its stream, or rejects it
/// with the reason. Implemented by the ingest crate, which keeps the streams between requests.
pub trait AccumulateDeltas {
    /// Replaces a float or integer point by the sum of its stream. Returns the reason if the point
    /// must be rejected.
    fn accumulate_number(
        &mut self,
        stream: OtlpStreamId,
        point: &mut NumberPoint,
    ) -> Result<(), SeriesRejection>;

    /// Replaces a point of a histogram with explicit bounds by the sum of its stream. Returns the
    /// reason if the point must be rejected.
    fn accumulate_explicit(
        &mut self,
        stream: OtlpStreamId,
        point: &mut ExplicitHistogramPoint,
    ) -> Result<(), SeriesRejection>;

    /// Replaces a point of an exponential histogram by the sum of its stream, which may have a
    /// coarser scale.
    fn accumulate_exponential(
        &mut self,
        stream: OtlpStreamId,
        point: &mut ExponentialHistogramPoint,
    ) -> Result<(), SeriesRejection>;
}

/// A decoded request, which borrows the memory of its decoder. The two parts are stored separately,
/// so that a rejected `target_info` sample does not affect the response.
#[derive(Debug)]
pub struct DecodedOtlp<'d> {
    /// The samples of the data points, and the metadata of the request.
    pub points: DecodedWriteRequest<'d>,
    /// The samples of `target_info`, derived from the resources of the points.
    pub target_info: DecodedWriteRequest<'d>,
}

/// Decodes one request after another and reuses the memory of the previous one. Each decoder serves
/// one request at a time; the pipeline keeps several.
#[derive(Debug, Default)]
pub struct OtlpDecoder {
    limits: WireLimits,
    batch: Batch,
    target_info: Batch,
    metadata: MetadataBatch,
    made: Vec<u8>,
}

impl OtlpDecoder {
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

    /// Decodes a protobuf request and leaves labels undecoded, like
    /// [`crate::remote_write::RemoteWriteDecoder::decode_within`]. The memory for samples and
    /// labels is reserved in `memory` before it is allocated; the caller reserves the memory of the
    /// message. Fails if the message as a whole is malformed or exceeds a limit.
    pub fn decode_within<'a>(
        &mut self,
        reader: &OtlpDecodeOptions<'a>,
        deltas: OtlpDeltaMode<'a>,
        message: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<DecodedOtlp<'_>, WireError> {
        self.batch.clear();
        self.target_info.clear();
        self.metadata.clear();
        let into = OtlpBatches {
            points: &mut self.batch,
            target_info: &mut self.target_info,
            metadata: &mut self.metadata,
        };
        let made = std::mem::take(&mut self.made);
        let mut walk = OtlpRequestDecoder::new(reader, deltas, &self.limits, into, made, memory);
        let read = walk.read(message);
        let (made, counts) = walk.finish();
        self.made = made;
        read?;
        let log_bytes = self.batch.message_bytes() + message.len();
        let info_bytes = self.target_info.message_bytes();
        Ok(DecodedOtlp {
            points: DecodedWriteRequest::from_keys(
                &mut self.batch,
                &self.metadata,
                counts,
                log_bytes,
                &self.limits,
            ),
            target_info: DecodedWriteRequest::from_keys(
                &mut self.target_info,
                &self.metadata,
                WriteRejectionCounts::default(),
                info_bytes,
                &self.limits,
            ),
        })
    }

    /// Returns the bytes of memory that the decoder retains for the next request.
    pub fn memory_bytes(&self) -> usize {
        self.batch.memory_bytes()
            + self.target_info.memory_bytes()
            + self.metadata.memory_bytes()
            + self.made.capacity()
    }
}
