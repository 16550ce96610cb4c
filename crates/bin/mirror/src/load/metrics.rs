//! Metrics of a running load, exposed for Prometheus. Latencies are native histograms if the
//! scraper accepts protobuf, and classic ones otherwise.

use super::trial::asking::QueryLatencyMetrics;
use crate::error::MirrorError;
use crate::push::{PushProgress, now_ms};
use crate::target::{self, ExpositionServer};
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::metrics::{DURATION_BOUNDS_SECONDS, DurationHistogram};
use firn_wire::federation::{FederatedValue, FederationFormat, FederationWriter};
use std::fmt::Write;
use std::sync::Arc;

/// The metrics of one system, which its senders update and [`listen`] exposes.
#[derive(Clone, Debug)]
pub struct LoadMetrics {
    /// Name of the system in the label `system`: `queried` or `unqueried`.
    pub system: &'static str,
    /// Progress, latencies and failures of its writes.
    pub writes: Arc<PushProgress>,
    /// Latencies and failures of its queries.
    pub reads: Arc<QueryLatencyMetrics>,
}

impl LoadMetrics {
    /// Creates the metrics of one system, all zero.
    pub fn for_system(system: &'static str) -> Self {
        Self {
            system,
            writes: Arc::default(),
            reads: Arc::default(),
        }
    }
}

/// Serves the metrics under `/metrics` at `address` until the process ends. Fails if the address
/// cannot be bound.
pub fn listen(address: &str, shown: Vec<LoadMetrics>) -> Result<ExpositionServer, MirrorError> {
    ExpositionServer::start(address, move |request, stream| {
        let path = request.path.split('?').next().unwrap_or_default();
        if path != "/metrics" {
            let body = "metrics are served under /metrics\n";
            return target::respond(stream, "404 Not Found", "text/plain", body);
        }
        let accept = request.header("accept").unwrap_or_default();
        let format = FederationFormat::negotiate(accept);
        let body = if format.is_protobuf() {
            protobuf(&shown, format)
        } else {
            text(&shown).into_bytes()
        };
        target::respond(stream, "200 OK", &format.content_type(), body);
    })
}

/// A histogram family: its name, its help text, and its histograms with their labels.
struct LatencyHistogramFamily<'a> {
    name: &'static str,
    help: &'static str,
    members: Vec<(Vec<(&'static str, &'static str)>, &'a DurationHistogram)>,
}

fn families(shown: &[LoadMetrics]) -> [LatencyHistogramFamily<'_>; 2] {
    let writes = shown
        .iter()
        .map(|s| (vec![("system", s.system)], &s.writes.push));
    let reads = shown.iter().flat_map(|s| {
        [("instant", &s.reads.instant), ("range", &s.reads.range)]
            .map(|(kind, times)| (vec![("kind", kind), ("system", s.system)], times))
    });
    [
        LatencyHistogramFamily {
            name: "firn_load_push_duration_seconds",
            help: "Duration of write requests.",
            members: writes.collect(),
        },
        LatencyHistogramFamily {
            name: "firn_load_question_duration_seconds",
            help: "Duration of queries, from the time at which they were due.",
            members: reads.collect(),
        },
    ]
}

fn counters(shown: &[LoadMetrics]) -> Vec<(&'static str, &'static str, &'static str, u64)> {
    let mut out = Vec::new();
    for s in shown {
        let name = "firn_load_push_failures_total";
        let help = "Failed write requests.";
        out.push((name, help, s.system, s.writes.failures.get()));
    }
    for s in shown {
        let name = "firn_load_question_failures_total";
        let help = "Failed queries.";
        out.push((name, help, s.system, s.reads.failures.get()));
    }
    out
}

fn protobuf(shown: &[LoadMetrics], format: FederationFormat) -> Vec<u8> {
    let (mut out, now) = (Vec::new(), now_ms());
    let mut written = FederationWriter::new(format, &Labels::empty());
    let labels = |name: &'static str, own: &[(&'static str, &'static str)]| {
        Labels::from_pairs(std::iter::once((METRIC_NAME, name)).chain(own.iter().copied()))
    };
    for (name, _, system, count) in counters(shown) {
        let labels = labels(name, &[("system", system)]);
        let value = FederatedValue::Float(count as f64);
        written.push(&mut out, labels.as_ref(), now, value);
    }
    for family in families(shown) {
        for (own, times) in family.members {
            let labels = labels(family.name, &own);
            let histogram = times.to_native_histogram();
            let value = FederatedValue::Histogram(&histogram);
            written.push(&mut out, labels.as_ref(), now, value);
        }
    }
    written.finish(&mut out);
    out
}

fn text(shown: &[LoadMetrics]) -> String {
    let mut out = String::new();
    let mut last = "";
    // Writing to a string cannot fail.
    for (name, help, system, count) in counters(shown) {
        if std::mem::replace(&mut last, name) != name {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        }
        let _ = writeln!(out, "{name}{{system=\"{system}\"}} {count}");
    }
    for family in families(shown) {
        let name = family.name;
        let _ = writeln!(
            out,
            "# HELP {name} {}\n# TYPE {name} histogram",
            family.help
        );
        for (own, times) in family.members {
            let own: Vec<String> = own.iter().map(|(n, v)| format!("{n}=\"{v}\"")).collect();
            push_classic(&mut out, name, &own.join(","), times);
        }
    }
    out
}

fn push_classic(out: &mut String, name: &str, own: &str, times: &DurationHistogram) {
    let mut total = 0;
    let bounds = DURATION_BOUNDS_SECONDS.iter().map(f64::to_string);
    let bounds = bounds.chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(times.bucket_counts()) {
        total += count;
        let _ = writeln!(out, "{name}_bucket{{{own},le=\"{bound}\"}} {total}");
    }
    let _ = writeln!(out, "{name}_sum{{{own}}} {}", times.sum_seconds());
    let _ = writeln!(out, "{name}_count{{{own}}} {total}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;

    fn ask(address: &str, accept: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    }

    #[test]
    fn latencies_are_classic_in_text_and_native_in_protocol_buffers() {
        let shown = LoadMetrics {
            system: "queried",
            writes: Arc::default(),
            reads: Arc::default(),
        };
        shown.writes.push.observe(Duration::from_millis(3));
        shown.reads.range.observe(Duration::from_secs(3));
        shown.reads.failures.inc();
        let target = listen("127.0.0.1:0", vec![shown]).unwrap();
        let text = String::from_utf8(ask(&target.address, "text/plain;version=0.0.4")).unwrap();
        for line in [
            "firn_load_push_duration_seconds_bucket{system=\"queried\",le=\"0.0025\"} 0\n",
            "firn_load_push_duration_seconds_bucket{system=\"queried\",le=\"0.005\"} 1\n",
            "firn_load_question_duration_seconds_count{kind=\"range\",system=\"queried\"} 1\n",
            "firn_load_question_failures_total{system=\"queried\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                      encoding=delimited";
        let answer = ask(&target.address, accept);
        let shown = String::from_utf8_lossy(&answer);
        assert!(shown.contains("encoding=delimited"), "{shown}");
        let start = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let body = &answer[start..];
        assert!(shown.contains("firn_load_push_duration_seconds"), "{shown}");
        // The schema of the native histogram is 2, and there are no classic buckets.
        assert!(body.windows(2).any(|w| w == [0x28, 4]), "{body:?}");
        assert!(!shown.contains("_bucket"), "{shown}");
    }
}
