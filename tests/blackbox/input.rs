//! Invalid requests: each is answered with the right status and has no other effect.

use crate::harness::http::Answer;
use crate::harness::server::Server;
use crate::harness::write::{Series, body, compress, message, push_uvarint};
use crate::{Kept, now_ms};

/// Returns a compressed body with one sample of one series with these labels.
fn labelled(labels: &[(&str, &str)]) -> Vec<u8> {
    body(&[Series::new(labels, &[(now_ms(), 1.0)])])
}

#[test]
fn write_of_bad_bodies_is_refused_and_changes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let kept = Kept::store(&http);
    let good = message(&[Series::new(&[("__name__", "x")], &[(now_ms(), 1.0)])]);
    let mut gigabytes = Vec::new();
    push_uvarint(&mut gigabytes, 3 << 30);
    gigabytes.extend_from_slice(&compress(&good)[1..]);
    let mut invalid_name = Series::new(&[("__name__", "x")], &[(now_ms(), 1.0)]);
    invalid_name
        .labels
        .push((b"\xff\xfe".to_vec(), b"v".to_vec()));
    let mut invalid_value = Series::new(&[("__name__", "x")], &[(now_ms(), 1.0)]);
    invalid_value
        .labels
        .push((b"a".to_vec(), b"\xff\xfe".to_vec()));
    let long = "x".repeat(1 << 20);
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        (
            "a body that is not snappy",
            b"\xff\xff\xff\xff\xff\xff\xff".to_vec(),
            400,
        ),
        ("a cut body", compress(&good)[..9].to_vec(), 400),
        ("an empty body", Vec::new(), 400),
        ("a body that declares gigabytes", gigabytes, 400),
        (
            "bytes that are not protobuf",
            compress(b"\x0a\xff\xff\xff\xff\x0f"),
            400,
        ),
        ("a cut message", compress(&good[..good.len() - 3]), 400),
        (
            "a field of the wrong type",
            compress(b"\x0d\x01\x02\x03\x04"),
            400,
        ),
        (
            "a label without a name",
            labelled(&[("__name__", "x"), ("", "v")]),
            400,
        ),
        (
            "a label twice",
            labelled(&[("__name__", "x"), ("a", "1"), ("a", "2")]),
            400,
        ),
        ("no metric name", labelled(&[("a", "1")]), 400),
        (
            "a name of a megabyte",
            labelled(&[("__name__", "x"), (&long, "1")]),
            400,
        ),
        (
            "a value of a megabyte",
            labelled(&[("__name__", "x"), ("a", &long)]),
            400,
        ),
        ("a name that is not UTF-8", body(&[invalid_name]), 400),
        ("a value that is not UTF-8", body(&[invalid_value]), 400),
    ];
    for (what, bytes, status) in cases {
        let answer = http.write(&bytes);
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
        assert!(!answer.body.is_empty(), "{what}: no reason");
        kept.check(&http, what);
    }
    assert_eq!(
        http.query("{__name__=~\"x.*\"}", now_ms()),
        serde_json::json!([])
    );
}

#[test]
fn write_of_unsorted_labels_is_stored_sorted() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let answer = http.write(&labelled(&[("b", "2"), ("a", "1"), ("__name__", "x")]));
    assert_eq!(answer.status, 204, "{}", answer.body);
    let result = http.query("x", now_ms());
    let want = serde_json::json!({"__name__": "x", "a": "1", "b": "2"});
    assert_eq!(result[0]["metric"], want);
}

#[test]
fn write_with_some_bad_samples_stores_the_rest() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let kept = Kept::store(&http);
    let now = now_ms();
    let one = |name: &str, time| Series::new(&[("__name__", name)], &[(time, 1.0)]);
    let hour = 3_600_000;
    let sent = [
        one("good", now),
        one("future", now + hour),
        one("old", now - 30 * hour),
    ];
    let answer = http.write(&body(&sent));
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(answer.body.contains("future"), "{}", answer.body);
    assert_eq!(http.query("good", now)[0]["value"][1], "1");
    assert_eq!(http.query("future", now + hour), serde_json::json!([]));
    let older = [Series::new(
        &[("__name__", "kept"), ("name", "a")],
        &[(kept.time_ms - 31 * 60_000, 7.0)],
    )];
    let Answer {
        status, body: text, ..
    } = http.write(&body(&older));
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("too old sample"), "{text}");
    let other = [Series::new(
        &[("__name__", "kept"), ("name", "a")],
        &[(kept.time_ms, 7.0)],
    )];
    let Answer {
        status, body: text, ..
    } = http.write(&body(&other));
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("duplicate"), "{text}");
    kept.check(&http, "samples that were refused");
    let again = [Series::new(
        &[("__name__", "kept"), ("name", "a")],
        &[(kept.time_ms, 0.1)],
    )];
    assert_eq!(
        http.write(&body(&again)).status,
        204,
        "the same sample again"
    );
}

#[test]
fn query_of_bad_parameters_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--query.max-samples", "50"]);
    let http = server.http();
    let kept = Kept::store(&http);
    let time = (kept.time_ms / 1000).to_string();
    let long = format!("{{__name__=~\"{}\"}}", r"\\pL".repeat(1 << 18));
    let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let instant = |expr: &str| http.post("/api/v1/query", &[("query", expr), ("time", &time)]);
    let steps = http.post(
        "/api/v1/query_range",
        &[
            ("query", "1"),
            ("start", "0"),
            ("end", "11001"),
            ("step", "1"),
        ],
    );
    let cases = [
        ("a regex of a megabyte", instant(&long), 400, "bad_data"),
        (
            "a repetition of repetitions",
            instant("{a=~\"(a{1000}){1000}\"}"),
            400,
            "bad_data",
        ),
        (
            "a hundred thousand parentheses",
            instant(&deep),
            400,
            "bad_data",
        ),
        (
            "too many samples",
            instant("count_over_time(vector(1)[1h:1s])"),
            422,
            "execution",
        ),
        ("too many steps", steps, 400, "bad_data"),
        ("no query", instant(""), 400, "bad_data"),
    ];
    for (what, answer, status, kind) in cases {
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
        assert_eq!(answer.json()["errorType"], kind, "{what}: {}", answer.body);
        kept.check(&http, what);
    }
}

#[test]
fn query_of_what_prometheus_takes_too_is_answered() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--enable-feature=promql-duration-expr"]);
    let http = server.http();
    let kept = Kept::store(&http);
    let time = (kept.time_ms / 1000).to_string();
    let ask = |path: &str, expr: &str| http.post(path, &[("query", expr), ("time", &time)]);
    let chain = |operators: usize| vec!["kept"; operators + 1].join(" or ");
    let nest = format!("{}kept{}", "abs(".repeat(1_000), ")".repeat(1_000));
    let choices: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let choices = choices.join("|");
    let instant = "/api/v1/query";
    for (path, expr) in [
        (instant, chain(10_000)),
        (instant, nest.clone()),
        (instant, r#"{__name__=~"\\pL{1000}1"}"#.to_owned()),
        (instant, format!("{{__name__=~\"{choices}\"}}")),
        (instant, format!("{{__name__=~\"({choices})-.*\"}}")),
        (
            instant,
            format!("{{__name__=~\"{}\"}}", "(a|b)".repeat(1 << 16)),
        ),
        ("/api/v1/parse_query", chain(10_000)),
        ("/api/v1/parse_query", nest.clone()),
        ("/api/v1/format_query", chain(4_000)),
        ("/api/v1/format_query", nest),
    ] {
        let answer = ask(path, &expr);
        let shown = (path, &expr[..60.min(expr.len())]);
        assert_eq!(answer.status, 200, "{shown:?}: {:.300}", answer.body);
    }
    for (expr, error) in [
        ("m[step()*4]", "2:10: duration must be greater than 0"),
        (
            "rate(m[5m-step()-5m])",
            "7:19: duration must be greater than 0",
        ),
        (
            &chain(12_000),
            "1:1: parse error: expression has too many operators in a row: \
             11001 or more, limit 11000",
        ),
    ] {
        let answer = ask(instant, expr);
        let shown = &expr[..20.min(expr.len())];
        assert_eq!(answer.status, 400, "{shown}: {}", answer.body);
        let json = answer.json();
        assert_eq!(json["errorType"], "bad_data", "{shown}");
        let error = format!("invalid parameter \"query\": {error}");
        assert_eq!(json["error"], error, "{shown}");
    }
    kept.check(&http, "what Prometheus takes too");
}
