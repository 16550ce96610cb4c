//! What a parser finds, one after the other.

use firn_model::histogram::Histogram;
use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;
use std::borrow::Cow;

/// What a parser has found.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'p> {
    /// A sample of a series.
    Sample(Sample<'p>),
    /// Something about a metric family.
    Metadata(Metadata<'p>),
}

/// A sample and the bytes by which its series is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'p> {
    /// The series as it stands in the exposition. In one format, equal keys mean equal labels.
    pub key: &'p [u8],
    /// Whether `key` is what [`super::Parser::advance_expecting`] was given to expect.
    pub is_expected: bool,
    /// The time that the target gave the sample.
    pub time: Option<TimestampMs>,
    /// Since when the sample counts, if asked for and known.
    pub start: Option<TimestampMs>,
    /// The value.
    pub value: Value<'p>,
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'p> {
    /// A number. Every NaN but a staleness marker of the target's own is the ordinary one.
    Float(f64),
    /// A native histogram, without empty buckets at its ends. It need not be valid.
    Histogram(&'p Histogram),
}

/// Something that a target says about a metric family.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata<'p> {
    /// The family's name. In the text formats it may be anything in quotes.
    pub name: &'p [u8],
    /// What is said.
    pub field: Field<'p>,
}

/// One of the things that can be said about a metric family.
#[derive(Clone, Debug, PartialEq)]
pub enum Field<'p> {
    /// Its type.
    Type(MetricType),
    /// A sentence for people.
    Help(Cow<'p, [u8]>),
    /// The unit of its values.
    Unit(&'p [u8]),
}

/// What a format's parser has just read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Sample,
    Metadata,
    /// Tells nothing, but ends a classic histogram.
    Comment,
}

/// How far a parser of a text has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Where the line under way begins.
    pub line: usize,
    /// Whether it has looked at all that there is.
    pub is_at_end: bool,
    /// The type last stated, of whatever family.
    pub kind: MetricType,
}
