//! Measures the cost of decoding an OTLP request, by kind of point and encoding.
//!
//! A request is like those of a collector for a fleet: 20 resources, 2,000 points with six
//! attributes. Prints nanoseconds for each point, the best of many rounds, because slower rounds
//! are caused by other load on the machine. Labels remain undecoded, as in the steady state of a
//! server.

use firn_wire::WireLimits;
use firn_wire::otlp::{
    OtlpDecodeOptions, OtlpDecoder, OtlpDeltaMode, OtlpTranslation, to_protobuf,
};
use std::io::Write;
use std::time::Instant;

const RESOURCES: usize = 20;
const POINTS: usize = 2_000;
const ROUNDS: usize = 200;

/// Returns a request whose points have `values`, in a metric of the kind `kind`.
fn request(kind: &str, values: &str) -> String {
    let pair = |key: &str, value: &str| {
        format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#)
    };
    let resource = |number: usize| {
        let attributes = [
            pair("service.name", "checkout"),
            pair("service.namespace", "shop"),
            pair("service.instance.id", &format!("10.42.0.{number}:8080")),
            pair("k8s.pod.name", &format!("checkout-6d5f7c9b8-{number:05}")),
            pair("host.name", "ip-10-0-3-118.eu-central-1.compute.internal"),
        ];
        let metrics: Vec<String> = (0..POINTS / RESOURCES / 10)
            .map(|metric| {
                let points: Vec<String> = (0..10)
                    .map(|point| {
                        let attributes = [
                            pair("http.request.method", ["GET", "POST"][point % 2]),
                            pair("http.route", &format!("/api/v1/orders/{point}")),
                            pair("server.address", "checkout.shop.svc"),
                            pair("network.protocol.version", "1.1"),
                            pair("url.scheme", "https"),
                            r#"{"key":"http.response.status_code","value":{"intValue":"200"}}"#
                                .to_owned(),
                        ];
                        format!(
                            r#"{{"timeUnixNano":"1700000000000000000",
                            "startTimeUnixNano":"1600000000000000000",{values},
                            "attributes":[{}]}}"#,
                            attributes.join(",")
                        )
                    })
                    .collect();
                format!(
                    r#"{{"name":"http.server.request.duration.{metric}","unit":"s","{kind}":{{
                    "aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{}]}}}}"#,
                    points.join(",")
                )
            })
            .collect();
        format!(
            r#"{{"resource":{{"attributes":[{}]}},"scopeMetrics":[{{"scope":{{"name":"lib"}},
            "metrics":[{}]}}]}}"#,
            attributes.join(","),
            metrics.join(",")
        )
    };
    let resources: Vec<String> = (0..RESOURCES).map(resource).collect();
    format!(r#"{{"resourceMetrics":[{}]}}"#, resources.join(","))
}

/// Returns the best time of `work` over many rounds, in nanoseconds for each point.
fn best(mut work: impl FnMut() -> std::io::Result<()>) -> std::io::Result<f64> {
    let mut best = u128::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        work()?;
        best = best.min(started.elapsed().as_nanos());
    }
    Ok(best as f64 / POINTS as f64)
}

fn main() -> std::io::Result<()> {
    let translation = OtlpTranslation::default();
    let reader = OtlpDecodeOptions {
        translation: &translation,
        keeps_exemplars: true,
        labels_types: false,
        info_step_ns: 150_000_000_000,
    };
    let bytes_max = WireLimits::default().message_bytes_max;
    let mut out = std::io::stdout().lock();
    for (kind, values) in [
        ("sum", r#""asDouble":12345.5"#),
        (
            "histogram",
            r#""count":"60","sum":1.5,"explicitBounds":[0.005,0.01,0.025,0.05,0.1,0.25,0.5,1],
            "bucketCounts":["1","2","3","4","5","6","7","8","24"]"#,
        ),
        (
            "exponentialHistogram",
            r#""count":"61","sum":1.5,"scale":3,"zeroCount":"1","positive":{"offset":-20,
            "bucketCounts":["1","0","3","4","5","6","7","8","24","1","0","1"]}"#,
        ),
    ] {
        let json = request(kind, values);
        let mut message = Vec::new();
        to_protobuf(json.as_bytes(), bytes_max, &mut message).map_err(std::io::Error::other)?;
        let mut decoder = OtlpDecoder::new(WireLimits::default());
        let protobuf = best(|| {
            let read = decoder.decode_within(&reader, OtlpDeltaMode::Refuse, &message, None);
            let decoded = read.map_err(std::io::Error::other)?;
            std::hint::black_box(decoded.points.batch.series_count());
            Ok(())
        })?;
        let transcoding = best(|| {
            message.clear();
            to_protobuf(json.as_bytes(), bytes_max, &mut message).map_err(std::io::Error::other)
        })?;
        writeln!(
            out,
            "{kind:>20}: {protobuf:6.0} ns a point in protocol buffers, {:6.0} in JSON",
            protobuf + transcoding
        )?;
    }
    Ok(())
}
