//! OTLP from outside: pushed as protobuf and as JSON, queried, still stored after a kill; and
//! invalid requests.

use crate::harness::http::{Answer, Http};
use crate::harness::server::Server;
use crate::harness::write::{Series, body};
use crate::now_ms;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::Write;

const PATH: &str = "/api/v1/otlp/v1/metrics";
const JSON: (&str, &str) = ("Content-Type", "application/json");
const PROTOBUF: (&str, &str) = ("Content-Type", "application/x-protobuf");
const GZIP: (&str, &str) = ("Content-Encoding", "gzip");

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Encodes a length-delimited protobuf field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

fn fixed(number: u8, bits: u64) -> Vec<u8> {
    let mut out = vec![number << 3 | 1];
    out.extend_from_slice(&bits.to_le_bytes());
    out
}

/// Returns a protobuf request with one point of a gauge `name` of the service `shop`.
fn protobuf(name: &str, time_ms: i64, value: f64) -> Vec<u8> {
    let pair = |key: &str, value: &str| {
        let value = field(1, value.as_bytes());
        [field(1, key.as_bytes()), field(2, &value)].concat()
    };
    let point = [
        field(7, &pair("http.method", "GET")),
        fixed(3, time_ms as u64 * 1_000_000),
        fixed(4, value.to_bits()),
    ]
    .concat();
    let metric = [
        field(1, name.as_bytes()),
        field(3, b"s"),
        field(5, &field(1, &point)),
    ]
    .concat();
    let resource = [
        field(1, &pair("service.name", "shop")),
        field(1, &pair("host.name", "h")),
    ]
    .concat();
    let scope = field(2, &field(2, &metric));
    field(1, &[field(1, &resource), scope].concat())
}

/// Returns a JSON request with these metrics.
fn request(metrics: Value) -> Vec<u8> {
    let resource = json!({"attributes": [
        {"key": "service.name", "value": {"stringValue": "shop"}},
        {"key": "service.instance.id", "value": {"stringValue": "i-1"}},
    ]});
    let scopes = json!([{"metrics": metrics}]);
    json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]})
        .to_string()
        .into_bytes()
}

fn gauge(name: &str, time_ms: i64, value: f64) -> Value {
    json!({"name": name, "description": "A gauge.", "gauge": {"dataPoints": [
        {"timeUnixNano": format!("{time_ms}000000"), "asDouble": value}]}})
}

fn histogram(time_ms: i64) -> Value {
    json!({"name": "lat", "unit": "ms", "exponentialHistogram": {
        "aggregationTemporality": 2, "dataPoints": [{
            "timeUnixNano": format!("{time_ms}000000"), "count": "3", "sum": 4.5, "scale": 0,
            "positive": {"offset": 0, "bucketCounts": ["1", "2"]}}]}})
}

fn delta(time_ms: i64) -> Value {
    json!({"name": "d", "sum": {"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [
        {"timeUnixNano": format!("{time_ms}000000"), "asInt": "5"}]}})
}

/// Returns the value of the only series of `expression`.
#[track_caller]
fn value(http: &Http, expression: &str, time_ms: i64) -> String {
    let found = http.query(expression, time_ms);
    assert_eq!(
        found.as_array().map(Vec::len),
        Some(1),
        "{expression}: {found}"
    );
    found[0]["value"][1].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn check(answer: &Answer, status: u16, media_type: &str, text: &str) {
    assert_eq!(answer.status, status, "{}", answer.body);
    assert_eq!(answer.header("content-type"), media_type);
    assert!(answer.body.contains(text), "{} has no {text}", answer.body);
}

#[test]
fn writes_at_the_paths_of_other_systems_are_stored() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let (http, now) = (server.http(), now_ms());
    let snappy = ("Content-Encoding", "snappy");
    let pushes = [
        "/api/v1/push",
        "/api/v1/receive",
        "/prometheus/api/v1/write",
    ];
    for (i, path) in pushes.into_iter().enumerate() {
        let name = format!("pushed_{i}");
        let series = Series::new(&[("__name__", &name)], &[(now, i as f64)]);
        let answer = http.send(path, &[snappy, PROTOBUF], &body(&[series]));
        assert_eq!(answer.status, 204, "{path}: {}", answer.body);
        assert_eq!(value(&http, &name, now), i.to_string(), "{path}");
    }
    let exports = ["/otlp/v1/metrics", "/opentelemetry/v1/metrics"];
    for (i, path) in exports.into_iter().enumerate() {
        let name = format!("exported_{i}");
        let body = request(json!([gauge(&name, now, 2.5)]));
        check(&http.send(path, &[JSON], &body), 200, JSON.1, "{}");
        assert_eq!(value(&http, &name, now), "2.5", "{path}");
    }
}

#[test]
fn otlp_in_both_forms_is_there_at_once_and_after_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let (http, now) = (server.http(), now_ms());
    let plain = http.send(PATH, &[PROTOBUF], &protobuf("a.b", now, 1.5));
    check(&plain, 200, PROTOBUF.1, "");
    assert_eq!(plain.body, "");
    let packed = gzip(&protobuf("c.d", now, 2.5));
    check(
        &http.send(PATH, &[PROTOBUF, GZIP], &packed),
        200,
        PROTOBUF.1,
        "",
    );
    let body = request(json!([gauge("e", now, 3.5), histogram(now)]));
    let answer = http.send(PATH, &[JSON, GZIP], &gzip(&body));
    check(&answer, 200, JSON.1, "{}");
    let look = |http: &Http| {
        let wanted = "a_b_seconds{job=\"shop\", http_method=\"GET\"}";
        assert_eq!(value(http, wanted, now), "1.5");
        assert_eq!(value(http, "c_d_seconds", now), "2.5");
        assert_eq!(value(http, "target_info{host_name=\"h\"}", now), "1");
        let wanted = "e{job=\"shop\", instance=\"i-1\"}";
        assert_eq!(value(http, wanted, now), "3.5");
        assert_eq!(value(http, "histogram_sum(lat_milliseconds)", now), "4.5");
    };
    look(&http);
    let said = http.get("/api/v1/metadata").json();
    let wanted = json!([{"type": "gauge", "help": "A gauge.", "unit": ""}]);
    assert_eq!(said["data"]["e"], wanted, "{said}");
    assert_eq!(said["data"]["a_b_seconds"][0]["unit"], "seconds");
    server.kill();
    look(&Server::start(data.path(), &[]).http());
}

#[test]
fn otlp_that_cannot_stand_is_refused_or_named_beside_what_is_stored() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let (http, now) = (server.http(), now_ms());
    let mixed = request(json!([gauge("ok", now, 1.0), delta(now)]));
    let answer = http.send(PATH, &[JSON], &mixed);
    check(
        &answer,
        200,
        JSON.1,
        "invalid temporality and type combination",
    );
    assert_eq!(answer.json()["partialSuccess"]["rejectedDataPoints"], "1");
    assert_eq!(value(&http, "ok", now), "1");
    // Samples of `target_info` between the two points are too old as well, although they were
    // generated.
    let hours = 2 * 3600 * 1000;
    let late = request(json!([
        gauge("too_old", now - hours, 1.0),
        gauge("in_time", now, 1.0)
    ]));
    let answer = http.send(PATH, &[JSON], &late);
    check(&answer, 200, JSON.1, "1 of 2 samples dropped");
    assert_eq!(answer.json()["partialSuccess"]["rejectedDataPoints"], "1");
    assert_eq!(value(&http, "in_time", now), "1");
    let bad = request(json!([delta(now)]));
    let answer = http.send(PATH, &[JSON], &bad);
    check(
        &answer,
        400,
        JSON.1,
        "invalid temporality and type combination",
    );
    assert_eq!(answer.json()["code"], 3);
    let again = request(json!([gauge("ok", now, 2.0)]));
    let answer = http.send(PATH, &[JSON], &again);
    check(&answer, 400, JSON.1, "duplicate sample for timestamp");
    for (headers, status, text) in [
        (
            vec![("Content-Type", "text/plain")],
            415,
            "unsupported content type: text/plain",
        ),
        (vec![], 415, "unsupported content type: "),
        (
            vec![JSON, ("Content-Encoding", "zstd")],
            415,
            "unsupported compression: zstd",
        ),
        (vec![JSON], 400, "JSON: "),
        (vec![PROTOBUF], 400, "protobuf: "),
        (vec![PROTOBUF, GZIP], 400, ""),
    ] {
        let answer = http.send(PATH, &headers, b"\x0a\xffno request");
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.body);
        assert!(answer.body.contains(text), "{headers:?}: {}", answer.body);
    }
}

#[test]
fn otlp_bombs_cost_their_sender_an_error_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let zeros = vec![0; 40 << 20];
    let packed = gzip(&zeros);
    // The trailer of the compressed data contains a wrong, small size.
    let lying = [&packed[..], &gzip(b"{}")].concat();
    let deep = format!("{}{}", r#"{"resourceMetrics":"#, "[".repeat(1 << 20));
    let nested = (0..2000).fold(Vec::new(), |inner, _| field(1, &inner));
    let long = [&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &[0; 100]].concat();
    let points = format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"service.name","value":
        {{"stringValue":"{}"}}}}]}},"scopeMetrics":[{{"metrics":[{{"name":"m","gauge":
        {{"dataPoints":[{}{{}}]}}}}]}}]}}]}}"#,
        "x".repeat(16_000),
        "{},".repeat(200_000),
    );
    for (what, headers, body) in [
        ("zeros", vec![PROTOBUF, GZIP], packed),
        ("a lie", vec![PROTOBUF, GZIP], lying),
        ("depth", vec![JSON], deep.into_bytes()),
        ("nested lists", vec![PROTOBUF], nested),
        ("a length", vec![PROTOBUF], long),
        ("repeated labels", vec![JSON, GZIP], gzip(points.as_bytes())),
    ] {
        let answer = http.send(PATH, &headers, &body);
        let is_refused = (400..500).contains(&answer.status);
        // A message with empty parts contains no samples.
        let is_empty = answer.status == 200 && answer.body.is_empty();
        assert!(
            is_refused || is_empty,
            "{what}: {} {}",
            answer.status,
            answer.body
        );
    }
    let now = now_ms();
    let body = request(json!([gauge("alive", now, 1.0)]));
    assert_eq!(http.send(PATH, &[JSON], &body).status, 200);
    assert_eq!(value(&http, "alive", now), "1");
}

#[test]
fn otlp_deltas_are_added_up_or_kept_as_the_features_say() {
    for (feature, want) in [
        ("otlp-deltatocumulative", "10"),
        ("otlp-native-delta-ingestion", "5"),
    ] {
        let data = tempfile::tempdir().unwrap();
        let flag = format!("--enable-feature={feature}");
        let server = Server::start(data.path(), &[&flag]);
        let (http, now) = (server.http(), now_ms());
        for time in [now - 1_000, now] {
            let answer = http.send(PATH, &[JSON], &request(json!([delta(time)])));
            check(&answer, 200, JSON.1, "{}");
        }
        assert_eq!(value(&http, "d_total", now), want, "{feature}");
    }
}

/// Returns a counter `requests` of two pods.
fn counter(time_ms: i64, values: [u64; 2]) -> Value {
    let points = ["a", "b"].into_iter().zip(values).map(|(pod, value)| {
        json!({"timeUnixNano": format!("{time_ms}000000"), "asInt": value.to_string(),
            "attributes": [{"key": "pod", "value": {"stringValue": pod}}]})
    });
    json!({"name": "requests", "sum": {"aggregationTemporality": 2, "isMonotonic": true,
        "dataPoints": points.collect::<Vec<_>>()}})
}

#[test]
fn otlp_is_aggregated_on_its_way_and_what_is_dropped_is_not_stored() {
    const STEP_MS: i64 = 15_000;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("firn.yml");
    let rules =
        "[{record: 'job:requests:total', expr: 'sum by (job) (requests_total)', drop: true}]";
    let group = format!("{{name: g, stream: true, interval: 15s, delay: 0s, rules: {rules}}}");
    let text = format!("firn: {{aggregation: {{groups: [{group}]}}}}\n");
    std::fs::write(&config, text).unwrap();
    let data = folder.path().join("data");
    let flags = ["--config", config.to_str().unwrap()];
    let mut server = Server::start(&data, &flags);
    let base = (now_ms() - 600_000) / STEP_MS * STEP_MS;
    for (step, values) in [(0, [7, 100]), (1, [10, 100]), (2, [10, 105]), (3, [2, 105])] {
        let time = base + step * STEP_MS;
        let body = request(json!([counter(time, values), gauge("kept", time, 1.0)]));
        let answer = server.http().send(PATH, &[JSON], &body);
        check(&answer, 200, JSON.1, "{}");
        if step == 1 {
            // The accumulated state is in the WAL.
            server.kill();
            server = Server::start(&data, &flags);
        }
    }
    let body = request(json!([gauge("kept", base + 6 * STEP_MS, 1.0)]));
    check(&server.http().send(PATH, &[JSON], &body), 200, JSON.1, "{}");
    let http = server.http();
    let total = "{__name__=\"job:requests:total\", job=\"shop\"}";
    crate::harness::server::wait_for("the total after a reset", || {
        // 3 more, 5 more, and 2 since the reset.
        http.query(total, base + 3 * STEP_MS)[0]["value"][1] == "10"
    });
    assert_eq!(value(&http, total, base + STEP_MS), "3");
    assert_eq!(value(&http, total, base + 2 * STEP_MS), "8");
    let stored = http.query("requests_total", base + 3 * STEP_MS);
    assert!(stored.as_array().unwrap().is_empty(), "{stored}");
    assert_eq!(value(&http, "kept", base + 3 * STEP_MS), "1");
}

#[test]
fn otlp_section_of_the_config_holds_and_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("firn.yml");
    std::fs::write(
        &config,
        "otlp: {promote_resource_attributes: [host.name]}\n",
    )
    .unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--web.enable-lifecycle",
    ];
    let server = Server::start(&folder.path().join("data"), &flags);
    let (http, now) = (server.http(), now_ms());
    let push = |name: &str| {
        http.send(PATH, &[PROTOBUF], &protobuf(name, now, 1.0))
            .status
    };
    assert_eq!(push("a.b"), 200);
    assert_eq!(value(&http, "a_b_seconds{host_name=\"h\"}", now), "1");
    std::fs::write(&config, "otlp: {translation_strategy: NoTranslation}\n").unwrap();
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    server.wait_log("config reloaded");
    // The new configuration is applied concurrently with the answer.
    crate::harness::server::wait_for("the new translation", || {
        push("c.d");
        http.query("{\"c.d\", host_name=\"\"}", now)
            .as_array()
            .is_some_and(|found| found.len() == 1)
    });
    let shown = http.get("/api/v1/status/config").json();
    let text = shown["data"]["yaml"].as_str().unwrap_or_default();
    assert!(
        text.contains("translation_strategy: NoTranslation"),
        "{text}"
    );
}

/// Returns the times and values of the samples of `selector` up to `now`.
fn samples(http: &Http, selector: &str, now: i64) -> String {
    let found = http.query(&format!("{selector}[1h]"), now);
    let series = found.as_array().unwrap();
    assert_eq!(series.len(), 1, "{selector}: {found}");
    match series[0].get("values") {
        Some(values) => values.to_string(),
        None => series[0]["histograms"].to_string(),
    }
}

#[test]
fn starts_of_pushes_become_zeros_where_the_feature_is_on_as_with_prometheus() {
    let data = tempfile::tempdir().unwrap();
    let on = ["--enable-feature=created-timestamp-zero-ingestion"];
    let server = Server::start(data.path(), &on);
    // Prometheus 3.14 stores the same samples for these requests.
    let (http, now) = (server.http(), now_ms() / 1000 * 1000);
    let point = |time: i64, start: i64, value: f64| {
        json!({"timeUnixNano": format!("{time}000000"), "asDouble": value,
            "startTimeUnixNano": format!("{start}000000")})
    };
    let push = |points: Value| {
        let metric = json!({"name": "hits", "sum": {"aggregationTemporality": 2,
            "isMonotonic": true, "dataPoints": points}});
        let mut histogram = histogram(now - 20_000);
        histogram["exponentialHistogram"]["dataPoints"][0]["startTimeUnixNano"] =
            json!(format!("{}000000", now - 30_000));
        let body = request(json!([metric, histogram]));
        assert_eq!(http.send(PATH, &[JSON], &body).status, 200);
    };
    let at = |time: i64, value: u32| format!("[{},\"{value}\"]", time / 1000);
    let (first, second) = (now - 60_000, now - 40_000);
    push(json!([point(first, first - 5_000, 7.0)]));
    let begun = [at(first - 5_000, 0), at(first, 7)];
    assert_eq!(
        samples(&http, "hits_total", now),
        format!("[{}]", begun.join(","))
    );
    // The same start again, and then a reset.
    push(json!([point(first + 10_000, first - 5_000, 8.0)]));
    push(json!([point(second, second - 1_000, 2.0)]));
    let since = [at(first + 10_000, 8), at(second - 1_000, 0), at(second, 2)];
    assert_eq!(
        samples(&http, "hits_total", now),
        format!("[{}]", [&begun[..], &since].concat().join(","))
    );
    let counts = samples(&http, "lat_milliseconds", now);
    let zero = format!(
        "[[{},{{\"count\":\"0\",\"sum\":\"0\"}}]",
        (now - 30_000) / 1000
    );
    assert!(counts.starts_with(&zero), "{counts}");
    drop(server);
    let server = Server::start(data.path(), &[]);
    push_plainly(&server.http(), now);
    let found = samples(&server.http(), "plain_total", now);
    assert_eq!(found, format!("[{}]", at(now, 1)));
}

/// Pushes a counter with a start time to a server without the feature.
fn push_plainly(http: &Http, now: i64) {
    let metric = json!({"name": "plain", "sum": {"aggregationTemporality": 2, "isMonotonic": true,
        "dataPoints": [{"timeUnixNano": format!("{now}000000"), "asInt": "1",
            "startTimeUnixNano": format!("{}000000", now - 9_000)}]}});
    let answer = http.send(PATH, &[JSON], &request(json!([metric])));
    assert_eq!(answer.status, 200, "{}", answer.body);
}
