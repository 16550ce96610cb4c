//! OTLP metrics: `ExportMetricsServiceRequest`, as protocol buffers or JSON.
//!
//! ```text
//! JSON -- json --> message -- walk --> Batch: keys of series, samples, exemplars, metadata
//!                              |  \--> what was refused, by reason
//!                           translation (names, attributes -> labels), deltas (added up or not)
//! ```
//!
//! Labels are put together in the form that remote write 1.0 has them in, so a series has one key
//! whichever protocol brings it, and a store that knows the key reads no labels. Meaning and words
//! are those of Prometheus 3.14's receiver (`storage/remote/otlptranslator`), but that what cannot
//! stand is left out and named where upstream refuses the request.

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

pub use answer::{Answer, Format};
pub use json::to_protobuf;
pub use point::{Buckets, ExplicitPoint, ExponentialPoint, Number, NumberPoint, Times};
pub use stream::Stream;
pub use translation::{Promotion, Strategy, Translation};

use crate::error::WireError;
use crate::limits::WireLimits;
use crate::remote_write::{Counts, Decoded, Offence};
use firn_model::batch::Batch;
use firn_model::budget::Reservation;
use firn_model::metadata::MetadataBatch;
use request::Walk;

/// How requests are read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'t> {
    /// How metrics become series.
    pub translation: &'t Translation,
    /// Whether exemplars are read or counted.
    pub keeps_exemplars: bool,
    /// Whether type and unit become labels: `type-and-unit-labels`.
    pub labels_types: bool,
    /// Nanoseconds between samples of `target_info` at most.
    pub info_step_ns: u64,
}

/// What is done with points that count since the one before.
pub enum Deltas<'d> {
    /// They are refused.
    Refuse,
    /// They are stored as they are: `otlp-native-delta-ingestion`.
    Keep,
    /// They are added up: `otlp-deltatocumulative`.
    Accumulate(&'d mut dyn Accumulate),
}

impl Deltas<'_> {
    fn accumulate(&self) -> bool {
        matches!(self, Deltas::Accumulate(_))
    }
}

/// Adds points up: each becomes what was counted since the stream began, or is refused.
pub trait Accumulate {
    /// Adds a number.
    fn number(&mut self, stream: Stream, point: &mut NumberPoint) -> Result<(), Offence>;

    /// Adds a histogram with explicit bounds.
    fn explicit(&mut self, stream: Stream, point: &mut ExplicitPoint) -> Result<(), Offence>;

    /// Adds an exponential histogram.
    fn exponential(&mut self, stream: Stream, point: &mut ExponentialPoint) -> Result<(), Offence>;
}

/// A decoded request.
#[derive(Debug)]
pub struct DecodedOtlp<'d> {
    /// The samples of the data points, and the metadata of the request.
    pub points: Decoded<'d>,
    /// The samples of `target_info`, which follow from the resources of the points.
    pub target_info: Decoded<'d>,
}

/// Reads requests one after the other and reuses its memory.
#[derive(Debug, Default)]
pub struct Decoder {
    limits: WireLimits,
    batch: Batch,
    target_info: Batch,
    metadata: MetadataBatch,
    made: Vec<u8>,
}

impl Decoder {
    /// A decoder without memory yet.
    pub fn new(limits: WireLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Reads a request in protocol buffers and leaves labels unread, as
    /// [`crate::remote_write::Decoder::decode_within`] does. What samples and labels take is
    /// reserved in `memory` before they take it; the message is the caller's to reserve. Fails if
    /// the message as a whole is malformed or over a limit.
    pub fn decode_within<'a>(
        &mut self,
        (reader, deltas): (&Reader<'a>, Deltas<'a>),
        message: &[u8],
        memory: Option<&mut Reservation>,
    ) -> Result<DecodedOtlp<'_>, WireError> {
        self.batch.clear();
        self.target_info.clear();
        self.metadata.clear();
        let into = (&mut self.batch, &mut self.target_info, &mut self.metadata);
        let made = std::mem::take(&mut self.made);
        let mut walk = Walk::new((reader, deltas), &self.limits, into, made, memory);
        let read = walk.read(message);
        let (made, counts) = walk.finish();
        self.made = made;
        read?;
        let log_bytes = self.batch.message_bytes() + message.len();
        let points = (&mut self.batch, &self.metadata);
        let info_bytes = self.target_info.message_bytes();
        let target_info = (&mut self.target_info, &self.metadata);
        Ok(DecodedOtlp {
            points: Decoded::of_keys(points, counts, log_bytes, &self.limits),
            target_info: Decoded::of_keys(target_info, Counts::default(), info_bytes, &self.limits),
        })
    }

    /// Bytes of memory that the decoder keeps for the next request.
    pub fn memory_bytes(&self) -> usize {
        self.batch.memory_bytes()
            + self.target_info.memory_bytes()
            + self.metadata.memory_bytes()
            + self.made.capacity()
    }
}
