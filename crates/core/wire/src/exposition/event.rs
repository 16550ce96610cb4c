//! The events that [`super::ExpositionParser`] yields, one for each sample and each line of
//! metadata.

use firn_model::histogram::Histogram;
use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;
use std::borrow::Cow;

/// One event of a parsed body: a sample, or one field of the metadata of a family. Borrows from the
/// parser until it advances.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpositionEvent<'p> {
    /// A sample of a series, to be stored.
    Sample(ExpositionSample<'p>),
    /// One field of the metadata of a metric family.
    Metadata(ExpositionMetadata<'p>),
}

/// A sample, with the bytes that identify its series in the body. Labels and exemplars are decoded
/// on demand by the parser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpositionSample<'p> {
    /// The series as written in the body. Within one format, equal keys mean equal labels.
    pub key: &'p [u8],
    /// True if `key` equals the key that was passed to
    /// [`super::ExpositionParser::advance_expecting`].
    pub is_expected: bool,
    /// Timestamp of the sample, if the target exposes one.
    pub time: Option<TimestampMs>,
    /// Start time of the sample, if the switches request it and the body contains it.
    pub start: Option<TimestampMs>,
    /// The value of the sample, borrowed from the parser.
    pub value: ExpositionValue<'p>,
}

/// The value of a sample: a float, or a native histogram that the parser owns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpositionValue<'p> {
    /// A float. All NaNs are normalized, except for staleness markers that the target itself sends.
    Float(f64),
    /// A native histogram without empty buckets at its ends. It is not validated.
    Histogram(&'p Histogram),
}

/// One field of the metadata of a metric family, from a metadata line or message.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpositionMetadata<'p> {
    /// Name of the family. In the text formats a quoted name may contain any bytes.
    pub name: &'p [u8],
    /// The field and its value in this event.
    pub field: FamilyMetadataField<'p>,
}

/// A field of the metadata of a metric family with its value, as written by the target.
#[derive(Clone, Debug, PartialEq)]
pub enum FamilyMetadataField<'p> {
    /// The type of the metric, which also applies to the following samples.
    Type(MetricType),
    /// The help text, unescaped where the format escapes it.
    Help(Cow<'p, [u8]>),
    /// The unit of the values, which only some formats transmit.
    Unit(&'p [u8]),
}

/// The kind of entry that a parser of one format has just read, before it becomes an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpositionEntryKind {
    Sample,
    Metadata,
    /// A comment: yields no event, but ends the classic histogram before it.
    Comment,
}

/// The position of a parser in a text, with the state that parsing the rest needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpositionPosition {
    /// Offset of the first byte of the current line.
    pub line: usize,
    /// True if the parser has read to the end of the text.
    pub is_at_end: bool,
    /// Type in the latest `# TYPE` line of any family.
    pub kind: MetricType,
}
