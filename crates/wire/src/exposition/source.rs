//! Dispatches to the parser of a format, so that [`super::Parser`] does not depend on it.

use super::convert::Converter;
use super::error::ParseError;
use super::event::{Entry, Metadata, Place, Sample};
use super::format::Format;
use super::openmetrics::OpenMetricsParser;
use super::pairs::LabelPairs;
use super::protobuf::{Histograms, ProtobufParser};
use super::switches::Switches;
use super::text::TextParser;
use firn_model::exemplar::Exemplars;
use firn_model::metadata::MetricType;
use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// The parsers of the formats, and the converter that wraps one of them. Large ones are boxed.
#[derive(Debug)]
pub(super) enum Source<'t> {
    Text(TextParser<'t>),
    OpenMetrics(Box<OpenMetricsParser<'t>>),
    Protobuf(Box<ProtobufParser<'t>>),
    Converted(Box<Converter<'t>>),
}

/// Dispatches methods that all parsers have with the same signature.
impl<'t> Source<'t> {
    /// Returns the parser of `format` at the start of `body`.
    pub(super) fn new(format: Format, body: &'t [u8], switches: Switches) -> Self {
        let is_labelled = switches.type_and_unit_labels;
        let mut source = match format {
            Format::Text => Self::Text(TextParser::new(body, is_labelled)),
            Format::OpenMetrics => Self::OpenMetrics(Box::new(OpenMetricsParser::new(
                body,
                is_labelled,
                switches.start_times,
            ))),
            Format::Protobuf => {
                let histograms = Histograms {
                    native: switches.native_histograms,
                    converted: switches.convert_classic_histograms,
                    classic: switches.always_classic_histograms,
                };
                Self::Protobuf(Box::new(ProtobufParser::new(body, is_labelled, histograms)))
            }
        };
        if switches.convert_classic_histograms && format != Format::Protobuf {
            let keeps_classic = switches.always_classic_histograms;
            source = Self::Converted(Box::new(Converter::new(source, keeps_classic)));
        }
        source
    }

    /// Returns the position in the text. A protobuf body counts as a single line.
    pub(super) fn place(&self) -> Place {
        match self {
            Source::Text(source) => source.place(),
            Source::OpenMetrics(source) => source.place(),
            Source::Protobuf(_) | Source::Converted(_) => Place {
                line: 0,
                is_at_end: true,
                kind: MetricType::Unknown,
            },
        }
    }

    /// Continues a text whose latest `# TYPE` line declared `kind`.
    pub(super) fn resume(&mut self, kind: MetricType) {
        match self {
            Source::Text(source) => source.resume(kind),
            Source::OpenMetrics(source) => source.resume(kind),
            Source::Protobuf(_) | Source::Converted(_) => {}
        }
    }

    #[inline]
    pub(super) fn advance(&mut self, expected: &[u8]) -> Result<Option<Entry>, ParseError> {
        match self {
            Source::Text(source) => source.advance(expected),
            Source::OpenMetrics(source) => source.advance(expected),
            Source::Protobuf(source) => source.advance(expected),
            Source::Converted(source) => source.advance(expected),
        }
    }

    #[inline]
    pub(super) fn sample(&self) -> Sample<'_> {
        match self {
            Source::Text(source) => source.sample(),
            Source::OpenMetrics(source) => source.sample(),
            Source::Protobuf(source) => source.sample(),
            Source::Converted(source) => source.sample(),
        }
    }

    pub(super) fn metadata(&self) -> Metadata<'_> {
        match self {
            Source::Text(source) => source.metadata(),
            Source::OpenMetrics(source) => source.metadata(),
            Source::Protobuf(source) => source.metadata(),
            Source::Converted(source) => source.metadata(),
        }
    }

    pub(super) fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        match self {
            Source::Text(source) => source.labels(out),
            Source::OpenMetrics(source) => source.labels(out),
            Source::Protobuf(source) => source.labels(out),
            Source::Converted(source) => source.labels(out),
        }
    }

    pub(super) fn exemplars(&self, out: &mut Exemplars) {
        match self {
            Source::Text(_) => {}
            Source::OpenMetrics(source) => source.exemplars(out),
            Source::Protobuf(source) => source.exemplars(out),
            Source::Converted(source) => source.exemplars(out),
        }
    }

    pub(super) fn start(&mut self) -> TimestampMs {
        match self {
            Source::Text(_) => START_UNKNOWN,
            Source::OpenMetrics(source) => source.start(),
            Source::Protobuf(source) => source.start(),
            Source::Converted(source) => source.start(),
        }
    }
}
