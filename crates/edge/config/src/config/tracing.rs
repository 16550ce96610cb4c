//! The section `tracing`: collector and sampling of spans, with the checks of upstream.

use super::http;
use super::read;
use super::remote::check_headers;
use firn_ingest::span_export::{SpanCollector, SpanProtocol};
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::time::Duration;

/// Default for `timeout` of an export, as in OpenTelemetry's exporters.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the export of spans. A config without the section `tracing` has none, and nothing is
/// exported.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingSettings {
    /// Collector that receives the spans: endpoint, protocol and TLS.
    pub collector: SpanCollector,
    /// `sampling_fraction`: share of traces that are exported, from 0 to 1.
    pub fraction: f64,
}

/// Reads the section of a config in the folder `dir`, if it is set.
pub fn tracing(root: &YamlNode, dir: &Path) -> Result<Option<TracingSettings>, YamlError> {
    let Some(node) = root.get("tracing").filter(|section| !section.is_null()) else {
        return Ok(None);
    };
    let protocol = protocol(node)?;
    let tls = http::tls(node.get("tls_config"), dir)?;
    check_headers(
        node,
        "custom authorization header configuration is not yet supported",
    )?;
    if read::string(node, "endpoint").is_empty() {
        return Err(node.error("tracing endpoint must be set"));
    }
    let is_compressed = match read::string(node, "compression").as_str() {
        "" => false,
        "gzip" => true,
        other => {
            return Err(node.error(format!(
                "invalid compression type {other} provided, valid options: gzip"
            )));
        }
    };
    let headers = read::entries(node.get("headers")).iter();
    let headers = headers.map(|entry| {
        let value = entry.node.text().unwrap_or_default();
        (entry.key.clone(), value.to_owned())
    });
    let timeout = read::duration(node, "timeout").filter(|timeout| !timeout.is_zero());
    Ok(Some(TracingSettings {
        collector: SpanCollector {
            protocol,
            endpoint: read::string(node, "endpoint"),
            tls: (!read::flag_or(node, "insecure", false)).then_some(tls),
            headers: headers.collect(),
            is_compressed,
            timeout: timeout.unwrap_or(TIMEOUT),
        },
        fraction: read::number(node, "sampling_fraction").unwrap_or(0.0),
    }))
}

fn protocol(node: &YamlNode) -> Result<SpanProtocol, YamlError> {
    match read::text(node, "client_type") {
        None | Some("grpc") => Ok(SpanProtocol::Grpc),
        Some("http") => Ok(SpanProtocol::Http),
        Some(other) => Err(node.error(format!(
            "expected tracing client type to be to be http or grpc, but got {other}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<TracingSettings> {
        let root = firn_yaml::parse(text).unwrap().unwrap();
        tracing(&root, Path::new("/etc/firn")).unwrap()
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
        assert_eq!((protocol, timeout), (SpanProtocol::Grpc, TIMEOUT));
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
