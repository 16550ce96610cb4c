//! The section `tracing`: collector and sampling of spans, with the checks of upstream.

use super::remote::check_headers;
use ConfigValueShape::{Bool, Duration, Map, Number, Text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, KeyPrinting, key};
use firn_config_schema::section::ConfigSection;
use firn_http_client::http_config::{self, TLS};
use firn_ingest::span_export::{SpanCollector, SpanProtocol};
use firn_yaml::YamlError;

/// Keys of the section.
pub const KEYS: &[ConfigKey] = &[
    key("client_type", Text).or("grpc"),
    key("endpoint", Text),
    key("sampling_fraction", Number),
    key("insecure", Bool),
    key("tls_config", TLS),
    key("headers", Map(&Text)),
    key("compression", Text),
    // The default of OpenTelemetry's exporters, which Prometheus does not print.
    key("timeout", Duration)
        .or("10s")
        .printed(KeyPrinting::IfSet),
];

/// Settings of the export of spans. A config without the section `tracing` has none, and nothing is
/// exported.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingSettings {
    /// Collector that receives the spans: endpoint, protocol and TLS.
    pub collector: SpanCollector,
    /// `sampling_fraction`: share of traces that are exported, from 0 to 1.
    pub fraction: f64,
}

/// Reads the section, if it is set.
pub fn tracing(section: ConfigSection<'_>) -> Result<Option<TracingSettings>, YamlError> {
    if !section.is_set() {
        return Ok(None);
    }
    let protocol = match section.text("client_type") {
        "grpc" => SpanProtocol::Grpc,
        "http" => SpanProtocol::Http,
        other => {
            return Err(section.error(format!(
                "expected tracing client type to be to be http or grpc, but got {other}"
            )));
        }
    };
    let tls = http_config::tls(section.get("tls_config"), section.dir())?;
    check_headers(
        section,
        "custom authorization header configuration is not yet supported",
    )?;
    let endpoint = section.text("endpoint").to_owned();
    if endpoint.is_empty() {
        return Err(section.error("tracing endpoint must be set"));
    }
    let is_compressed = match section.text("compression") {
        "" => false,
        "gzip" => true,
        other => {
            return Err(section.error(format!(
                "invalid compression type {other} provided, valid options: gzip"
            )));
        }
    };
    let headers = section.entries("headers").iter();
    let headers = headers.map(|entry| {
        let value = entry.node.text().unwrap_or_default();
        (entry.key.clone(), value.to_owned())
    });
    Ok(Some(TracingSettings {
        collector: SpanCollector {
            protocol,
            endpoint,
            tls: (!section.flag("insecure")).then_some(tls),
            headers: headers.collect(),
            is_compressed,
            timeout: section.duration("timeout"),
        },
        fraction: section
            .number_if_set("sampling_fraction")
            .unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::KEYS as CONFIG;
    use std::path::Path;
    use std::time::Duration;

    fn read(text: &str) -> Option<TracingSettings> {
        let root = firn_yaml::parse(text).unwrap().unwrap();
        let root = ConfigSection::new(Some(&root), CONFIG, Path::new("/etc/firn"));
        tracing(root.section("tracing")).unwrap()
    }

    #[test]
    fn collector_is_read_with_defaults_of_the_exporters() {
        assert_eq!(read("tracing:"), None);
        let plain = read("tracing: {endpoint: 'a:4317'}").unwrap();
        assert_eq!(plain.fraction, 0.0);
        let SpanCollector {
            protocol,
            tls,
            timeout,
            is_compressed,
            ..
        } = plain.collector;
        assert_eq!(
            (protocol, timeout),
            (SpanProtocol::Grpc, Duration::from_secs(10))
        );
        assert!(tls.is_some() && !is_compressed);
        let full = read(
            "tracing: {endpoint: 'a:4318', client_type: http, insecure: true, timeout: 3s, \
             compression: gzip, sampling_fraction: 0.5, headers: {X-Team: a}}",
        );
        let full = full.unwrap();
        assert_eq!(full.fraction, 0.5);
        let expected = SpanCollector {
            protocol: SpanProtocol::Http,
            endpoint: "a:4318".to_owned(),
            tls: None,
            headers: vec![("X-Team".to_owned(), "a".to_owned())],
            is_compressed: true,
            timeout: Duration::from_secs(3),
        };
        assert_eq!(full.collector, expected);
    }
}
