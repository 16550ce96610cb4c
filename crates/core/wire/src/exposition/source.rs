//! Dispatches to the parser of a format, so that [`super::ExpositionParser`] does not depend on it.

use super::convert::HistogramConverter;
use super::error::ParseError;
use super::event::{ExpositionEntryKind, ExpositionMetadata, ExpositionPosition, ExpositionSample};
use super::format::ExpositionFormat;
use super::openmetrics::OpenMetricsParser;
use super::pairs::LabelPairs;
use super::protobuf::{HistogramEmission, ProtobufParser};
use super::switches::ParserSwitches;
use super::text::TextParser;
use firn_model::exemplar::SampleExemplars;
use firn_model::metadata::MetricType;
use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// The parsers of the formats, and the converter that wraps one of them. Large ones are boxed.
#[derive(Debug)]
pub(super) enum FormatParser<'t> {
    Text(TextParser<'t>),
    OpenMetrics(Box<OpenMetricsParser<'t>>),
    Protobuf(Box<ProtobufParser<'t>>),
    Converted(Box<HistogramConverter<'t>>),
}

/// Dispatches methods that all parsers have with the same signature.
impl<'t> FormatParser<'t> {
    /// Returns the parser of `format` at the start of `body`.
    pub(super) fn new(format: ExpositionFormat, body: &'t [u8], switches: ParserSwitches) -> Self {
        let is_labelled = switches.type_and_unit_labels;
        let mut source =
            match format {
                ExpositionFormat::Text => Self::Text(TextParser::new(body, is_labelled)),
                ExpositionFormat::OpenMetrics => Self::OpenMetrics(Box::new(
                    OpenMetricsParser::new(body, is_labelled, switches.start_times),
                )),
                ExpositionFormat::Protobuf => {
                    let histograms = HistogramEmission {
                        native: switches.native_histograms,
                        converted: switches.convert_classic_histograms,
                        classic: switches.always_classic_histograms,
                    };
                    Self::Protobuf(Box::new(ProtobufParser::new(body, is_labelled, histograms)))
                }
            };
        if switches.convert_classic_histograms && format != ExpositionFormat::Protobuf {
            let keeps_classic = switches.always_classic_histograms;
            source = Self::Converted(Box::new(HistogramConverter::new(source, keeps_classic)));
        }
        source
    }

    /// Returns the position in the text. A protobuf body counts as a single line.
    pub(super) fn position(&self) -> ExpositionPosition {
        match self {
            FormatParser::Text(source) => source.position(),
            FormatParser::OpenMetrics(source) => source.position(),
            FormatParser::Protobuf(_) | FormatParser::Converted(_) => ExpositionPosition {
                line: 0,
                is_at_end: true,
                kind: MetricType::Unknown,
            },
        }
    }

    /// Continues a text whose latest `# TYPE` line declared `kind`.
    pub(super) fn resume(&mut self, kind: MetricType) {
        match self {
            FormatParser::Text(source) => source.resume(kind),
            FormatParser::OpenMetrics(source) => source.resume(kind),
            FormatParser::Protobuf(_) | FormatParser::Converted(_) => {}
        }
    }

    #[inline]
    pub(super) fn advance(
        &mut self,
        expected: &[u8],
    ) -> Result<Option<ExpositionEntryKind>, ParseError> {
        match self {
            FormatParser::Text(source) => source.advance(expected),
            FormatParser::OpenMetrics(source) => source.advance(expected),
            FormatParser::Protobuf(source) => source.advance(expected),
            FormatParser::Converted(source) => source.advance(expected),
        }
    }

    #[inline]
    pub(super) fn sample(&self) -> ExpositionSample<'_> {
        match self {
            FormatParser::Text(source) => source.sample(),
            FormatParser::OpenMetrics(source) => source.sample(),
            FormatParser::Protobuf(source) => source.sample(),
            FormatParser::Converted(source) => source.sample(),
        }
    }

    pub(super) fn metadata(&self) -> ExpositionMetadata<'_> {
        match self {
            FormatParser::Text(source) => source.metadata(),
            FormatParser::OpenMetrics(source) => source.metadata(),
            FormatParser::Protobuf(source) => source.metadata(),
            FormatParser::Converted(source) => source.metadata(),
        }
    }

    pub(super) fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        match self {
            FormatParser::Text(source) => source.labels(out),
            FormatParser::OpenMetrics(source) => source.labels(out),
            FormatParser::Protobuf(source) => source.labels(out),
            FormatParser::Converted(source) => source.labels(out),
        }
    }

    pub(super) fn exemplars(&self, out: &mut SampleExemplars) {
        match self {
            FormatParser::Text(_) => {}
            FormatParser::OpenMetrics(source) => source.exemplars(out),
            FormatParser::Protobuf(source) => source.exemplars(out),
            FormatParser::Converted(source) => source.exemplars(out),
        }
    }

    pub(super) fn start(&mut self) -> TimestampMs {
        match self {
            FormatParser::Text(_) => START_UNKNOWN,
            FormatParser::OpenMetrics(source) => source.start(),
            FormatParser::Protobuf(source) => source.start(),
            FormatParser::Converted(source) => source.start(),
        }
    }
}
