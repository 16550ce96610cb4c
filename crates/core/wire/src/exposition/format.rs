//! Scrape formats: the `ConnectionSource` header that requests them, and the choice of a parser
//! from the content type of a response.

use super::error::ParseError;
use super::media_type;
use firn_model::quote::quote;
use std::fmt::Write;

/// The syntax of a scraped body, which selects the parser. Versions of a format are parsed alike.
/// The content type of the response determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpositionFormat {
    /// Prometheus text format, any version, without exemplars.
    Text,
    /// OpenMetrics text format, any version, with exemplars.
    OpenMetrics,
    /// Delimited protocol buffers: each family is preceded by its length.
    Protobuf,
}

/// The format chosen for a body, and a warning if its content type was not usable and the fallback
/// was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenFormat {
    /// The format with which to parse the body.
    pub format: ExpositionFormat,
    /// Why the fallback protocol was used instead of the content type, if it was.
    pub complaint: Option<String>,
}

impl ExpositionFormat {
    /// Returns the format for the content type `header`, or that of the `fallback` protocol
    /// if the header is blank, malformed or unsupported. Without a fallback, fails with the error
    /// text of Prometheus.
    pub fn from_content_type(
        header: &str,
        fallback: Option<ScrapeProtocol>,
    ) -> Result<ChosenFormat, ParseError> {
        if header.is_empty() {
            let target = "non-compliant scrape target sending blank Content-Type";
            return choose_fallback(
                fallback,
                format!("{target} and no fallback_scrape_protocol specified for target"),
                target,
            );
        }
        let quoted = quote(header.as_bytes());
        match media_type::parse(header) {
            Err(e) => choose_fallback(
                fallback,
                format!(
                    "cannot parse Content-Type {quoted} and no fallback_scrape_protocol for \
                     target\n{e}"
                ),
                &format!("could not parse received Content-Type {quoted}"),
            ),
            Ok(media_type) => match Self::from_media_type(&media_type) {
                Some(format) => Ok(ChosenFormat {
                    format,
                    complaint: None,
                }),
                None => {
                    let received = format!("received unsupported Content-Type {quoted}");
                    let without = "and no fallback_scrape_protocol specified for target";
                    choose_fallback(fallback, format!("{received} {without}"), &received)
                }
            },
        }
    }

    fn from_media_type(media_type: &str) -> Option<Self> {
        match media_type {
            "text/plain" => Some(ExpositionFormat::Text),
            "application/openmetrics-text" => Some(ExpositionFormat::OpenMetrics),
            "application/vnd.google.protobuf" => Some(ExpositionFormat::Protobuf),
            _ => None,
        }
    }
}

/// Returns the format of the fallback protocol, with `why` in the warning; fails with the text
/// `without` if there is no fallback.
fn choose_fallback(
    fallback: Option<ScrapeProtocol>,
    without: String,
    why: &str,
) -> Result<ChosenFormat, ParseError> {
    let Some(protocol) = fallback else {
        return Err(ParseError::new(without));
    };
    let media_type = protocol.media_type();
    let format =
        ExpositionFormat::from_media_type(media_type).ok_or_else(|| ParseError::new(without))?;
    let media_type = quote(media_type.as_bytes());
    Ok(ChosenFormat {
        format,
        complaint: Some(format!(
            "{why}, using fallback_scrape_protocol {media_type}"
        )),
    })
}

/// A format and its version, with the names that the `scrape_protocols` setting uses. The order in
/// the setting is the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScrapeProtocol {
    /// Delimited protocol buffers of `io.prometheus.client.MetricFamily`.
    PrometheusProto,
    /// Prometheus text format 0.0.4.
    PrometheusText0_0_4,
    /// Prometheus text format 1.0.0, which has quoted names.
    PrometheusText1_0_0,
    /// OpenMetrics text format 0.0.1, from before the standard.
    OpenMetricsText0_0_1,
    /// OpenMetrics text format 1.0.0.
    OpenMetricsText1_0_0,
}

impl ScrapeProtocol {
    /// All protocols, sorted by their configuration names.
    pub const ALL: [ScrapeProtocol; 5] = [
        ScrapeProtocol::OpenMetricsText0_0_1,
        ScrapeProtocol::OpenMetricsText1_0_0,
        ScrapeProtocol::PrometheusProto,
        ScrapeProtocol::PrometheusText0_0_4,
        ScrapeProtocol::PrometheusText1_0_0,
    ];

    /// Protocols that a scrape requests by default, in order of preference.
    pub const DEFAULT: [ScrapeProtocol; 4] = [
        ScrapeProtocol::OpenMetricsText1_0_0,
        ScrapeProtocol::OpenMetricsText0_0_1,
        ScrapeProtocol::PrometheusText1_0_0,
        ScrapeProtocol::PrometheusText0_0_4,
    ];

    /// Protocols that a scrape requests by default if it accepts native histograms, in order of
    /// preference.
    pub const DEFAULT_WITH_NATIVE_HISTOGRAMS: [ScrapeProtocol; 5] = [
        ScrapeProtocol::PrometheusProto,
        ScrapeProtocol::OpenMetricsText1_0_0,
        ScrapeProtocol::OpenMetricsText0_0_1,
        ScrapeProtocol::PrometheusText1_0_0,
        ScrapeProtocol::PrometheusText0_0_4,
    ];

    /// Returns the name of the protocol in the configuration, with its version.
    pub fn name(self) -> &'static str {
        match self {
            ScrapeProtocol::PrometheusProto => "PrometheusProto",
            ScrapeProtocol::PrometheusText0_0_4 => "PrometheusText0.0.4",
            ScrapeProtocol::PrometheusText1_0_0 => "PrometheusText1.0.0",
            ScrapeProtocol::OpenMetricsText0_0_1 => "OpenMetricsText0.0.1",
            ScrapeProtocol::OpenMetricsText1_0_0 => "OpenMetricsText1.0.0",
        }
    }

    /// Returns the protocol with this name in the configuration, or `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == name)
    }

    /// Returns the media type with its parameters, as the `ConnectionSource` header needs it.
    fn accept_value(self) -> &'static str {
        match self {
            ScrapeProtocol::PrometheusProto => {
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                 encoding=delimited"
            }
            ScrapeProtocol::PrometheusText0_0_4 => "text/plain;version=0.0.4",
            ScrapeProtocol::PrometheusText1_0_0 => "text/plain;version=1.0.0",
            ScrapeProtocol::OpenMetricsText0_0_1 => "application/openmetrics-text;version=0.0.1",
            ScrapeProtocol::OpenMetricsText1_0_0 => "application/openmetrics-text;version=1.0.0",
        }
    }

    fn media_type(self) -> &'static str {
        self.accept_value().split(';').next().unwrap_or("")
    }

    /// Returns whether the version has quoted names, and therefore accepts an escaping parameter.
    fn has_escaping(self) -> bool {
        matches!(
            self,
            ScrapeProtocol::PrometheusText1_0_0 | ScrapeProtocol::OpenMetricsText1_0_0
        )
    }
}

/// The escaping that a target must apply to names which are invalid in the legacy character set. It
/// is requested in the `ConnectionSource` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScrapeNameEscaping {
    /// Names are sent unchanged, in quotes where the format needs them.
    #[default]
    AllowUtf8,
    /// Invalid characters are replaced by underscores.
    Underscores,
    /// Dots are written as `_dot_`.
    Dots,
    /// Invalid characters are written as their code points.
    Values,
}

impl ScrapeNameEscaping {
    /// Returns the name of the escaping in headers and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            ScrapeNameEscaping::AllowUtf8 => "allow-utf-8",
            ScrapeNameEscaping::Underscores => "underscores",
            ScrapeNameEscaping::Dots => "dots",
            ScrapeNameEscaping::Values => "values",
        }
    }
}

/// Returns the `ConnectionSource` header that requests `protocols`, which are in order of
/// preference.
pub fn accept_header(protocols: &[ScrapeProtocol], escaping: ScrapeNameEscaping) -> String {
    let mut header = String::new();
    // One weight for each protocol and one for `*/*`, so that each has one digit.
    let mut weight = ScrapeProtocol::ALL.len() + 1;
    for protocol in protocols {
        header.push_str(protocol.accept_value());
        if protocol.has_escaping() {
            header.push_str(";escaping=");
            header.push_str(escaping.name());
        }
        // Writing to a string cannot fail.
        let _ = write!(header, ";q=0.{weight},");
        weight = weight.saturating_sub(1);
    }
    let _ = write!(header, "*/*;q=0.{weight}");
    header
}
