//! Formats: asking a target for them, and telling from its answer which one it took.

use super::error::ParseError;
use super::media_type;
use firn_model::quote::quote;
use std::fmt::Write;

/// How a body is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Prometheus's text format, any version.
    Text,
    /// OpenMetrics in text, any version.
    OpenMetrics,
    /// Protocol buffers, each family with its length before it.
    Protobuf,
}

/// The format of a body, and what was wrong with the header that should have named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// How to read the body.
    pub format: Format,
    /// Why the fallback was taken, if it was.
    pub complaint: Option<String>,
}

impl Format {
    /// The format that the content type `header` names; if it names none that can be read, that of
    /// the `fallback`. Fails with Prometheus's words without one.
    pub fn of_content_type(
        header: &str,
        fallback: Option<ScrapeProtocol>,
    ) -> Result<Chosen, ParseError> {
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
            Ok(media_type) => match Self::of_media_type(&media_type) {
                Some(format) => Ok(Chosen {
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

    fn of_media_type(media_type: &str) -> Option<Self> {
        match media_type {
            "text/plain" => Some(Format::Text),
            "application/openmetrics-text" => Some(Format::OpenMetrics),
            "application/vnd.google.protobuf" => Some(Format::Protobuf),
            _ => None,
        }
    }
}

/// Takes the fallback and complains of `why` it was needed, or fails with `without`.
fn choose_fallback(
    fallback: Option<ScrapeProtocol>,
    without: String,
    why: &str,
) -> Result<Chosen, ParseError> {
    let Some(protocol) = fallback else {
        return Err(ParseError::new(without));
    };
    let media_type = protocol.media_type();
    let format = Format::of_media_type(media_type).ok_or_else(|| ParseError::new(without))?;
    let media_type = quote(media_type.as_bytes());
    Ok(Chosen {
        format,
        complaint: Some(format!(
            "{why}, using fallback_scrape_protocol {media_type}"
        )),
    })
}

/// A format and its version, as the configuration names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScrapeProtocol {
    /// Protocol buffers.
    PrometheusProto,
    /// Prometheus's text format.
    PrometheusText0_0_4,
    /// Prometheus's text format with names in quotes.
    PrometheusText1_0_0,
    /// OpenMetrics before it was a standard.
    OpenMetricsText0_0_1,
    /// OpenMetrics.
    OpenMetricsText1_0_0,
}

impl ScrapeProtocol {
    /// All of them, in the order of their names.
    pub const ALL: [ScrapeProtocol; 5] = [
        ScrapeProtocol::OpenMetricsText0_0_1,
        ScrapeProtocol::OpenMetricsText1_0_0,
        ScrapeProtocol::PrometheusProto,
        ScrapeProtocol::PrometheusText0_0_4,
        ScrapeProtocol::PrometheusText1_0_0,
    ];

    /// What is asked for if nothing else is configured, the best first.
    pub const DEFAULT: [ScrapeProtocol; 4] = [
        ScrapeProtocol::OpenMetricsText1_0_0,
        ScrapeProtocol::OpenMetricsText0_0_1,
        ScrapeProtocol::PrometheusText1_0_0,
        ScrapeProtocol::PrometheusText0_0_4,
    ];

    /// What is asked for if native histograms are scraped and nothing else is configured.
    pub const DEFAULT_WITH_NATIVE_HISTOGRAMS: [ScrapeProtocol; 5] = [
        ScrapeProtocol::PrometheusProto,
        ScrapeProtocol::OpenMetricsText1_0_0,
        ScrapeProtocol::OpenMetricsText0_0_1,
        ScrapeProtocol::PrometheusText1_0_0,
        ScrapeProtocol::PrometheusText0_0_4,
    ];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            ScrapeProtocol::PrometheusProto => "PrometheusProto",
            ScrapeProtocol::PrometheusText0_0_4 => "PrometheusText0.0.4",
            ScrapeProtocol::PrometheusText1_0_0 => "PrometheusText1.0.0",
            ScrapeProtocol::OpenMetricsText0_0_1 => "OpenMetricsText0.0.1",
            ScrapeProtocol::OpenMetricsText1_0_0 => "OpenMetricsText1.0.0",
        }
    }

    /// The protocol with this name in the configuration.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name() == name)
    }

    /// The media type and its parameters.
    fn header(self) -> &'static str {
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
        self.header().split(';').next().unwrap_or("")
    }

    /// Whether the version has names in quotes, and therefore escapes for those without.
    fn knows_escaping(self) -> bool {
        matches!(
            self,
            ScrapeProtocol::PrometheusText1_0_0 | ScrapeProtocol::OpenMetricsText1_0_0
        )
    }
}

/// What a target does with names that older systems could not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Escaping {
    /// Sends them as they are.
    #[default]
    AllowUtf8,
    /// Replaces what is foreign by underscores.
    Underscores,
    /// Writes dots as `_dot_`.
    Dots,
    /// Writes what is foreign as numbers.
    Values,
}

impl Escaping {
    /// The name in headers and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Escaping::AllowUtf8 => "allow-utf-8",
            Escaping::Underscores => "underscores",
            Escaping::Dots => "dots",
            Escaping::Values => "values",
        }
    }
}

/// The `Accept` header that asks for `protocols`, the best first.
pub fn accept_header(protocols: &[ScrapeProtocol], escaping: Escaping) -> String {
    let mut header = String::new();
    // One for each protocol that there is and one for anything else, so that all have one digit.
    let mut weight = ScrapeProtocol::ALL.len() + 1;
    for protocol in protocols {
        header.push_str(protocol.header());
        if protocol.knows_escaping() {
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
