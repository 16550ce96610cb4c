//! Tests of remote write on the in-process router.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

mod support;

use axum::body::Body;
use axum::http::Request;
use firn_wire::remote_write::RemoteWriteVersion;
use support::{Fixture, send};

type Headers<'a> = &'a [(&'a str, &'a str)];

fn write(body: Vec<u8>, headers: Headers<'_>) -> Request<Body> {
    let mut request = Request::post("/api/v1/write");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body)).unwrap()
}

const SENDER: [(&str, &str); 3] = [
    ("content-encoding", "snappy"),
    ("content-type", "application/x-protobuf"),
    ("x-prometheus-remote-write-version", "0.1.0"),
];

#[tokio::test]
async fn write_is_answered_when_it_is_durable() {
    let fixture = Fixture::ready(|parts| parts.multitenancy = true);
    let mut headers = SENDER.to_vec();
    headers.push(("x-scope-orgid", "team-a"));
    let reply = send(&fixture, write(support::write_body(&["a", "b"]), &headers)).await;
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    assert_eq!(
        *fixture.log.stored.lock().unwrap(),
        [("team-a".to_owned(), 2)]
    );
}

#[tokio::test]
async fn write_that_is_not_stored_whole_says_why_in_plain_text() {
    let fixture = Fixture::ready(|_| {});
    let cases = [
        (
            vec!["a", "late"],
            400,
            "out of order sample for series {__name__=\"late\"} at timestamp 1000; 1 of 2 samples dropped: 1 out_of_order\n",
        ),
        (vec!["broken"], 503, "log is closed\n"),
        (vec!["panic"], 500, "the write failed: see the log\n"),
    ];
    for (metrics, status, text) in cases {
        let reply = send(&fixture, write(support::write_body(&metrics), &SENDER)).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (status, text),
            "{metrics:?}"
        );
        assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
        let retry = if status == 503 { "1" } else { "" };
        assert_eq!(reply.header("retry-after"), retry, "{metrics:?}");
    }
    let reply = send(&fixture, write(b"\xff\xff\xff\xff\x0f".to_vec(), &SENDER)).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
}

#[tokio::test]
async fn write_in_another_form_is_refused_as_unsupported() {
    let fixture = Fixture::ready(|_| {});
    let cases: [(Headers<'_>, u16, &str); 8] = [
        (&[], 204, ""),
        (
            &[
                ("content-encoding", "Snappy"),
                (
                    "content-type",
                    "Application/X-Protobuf; charset=x; Proto=\"prometheus.WriteRequest\"",
                ),
            ],
            204,
            "",
        ),
        (
            &[(
                "content-type",
                "application/x-protobuf;proto=prometheus.WriteRequest",
            )],
            204,
            "",
        ),
        (
            &[("content-encoding", "gzip")],
            415,
            "gzip encoding (compression) is not accepted by this server; only snappy is acceptable\n",
        ),
        (
            &[("content-type", "application/json")],
            415,
            "expected application/x-protobuf as the first (media) part, got application/json content-type\n",
        ),
        (
            &[("content-type", "application/x-protobuf;proto=x")],
            415,
            concat!(
                "got application/x-protobuf;proto=x content type; unknown type for remote write ",
                "protobuf message x, supported: prometheus.WriteRequest, ",
                "io.prometheus.write.v2.Request\n"
            ),
        ),
        (
            &[("content-type", "application/x-protobuf;x")],
            415,
            concat!(
                "as per https://www.rfc-editor.org/rfc/rfc9110#parameter expected parameters ",
                "to be key-values, got x in application/x-protobuf;x content-type\n"
            ),
        ),
        (
            &[("origin", "http://evil.example"), ("host", "firn")],
            403,
            "origin is not allowed to change state: \"http://evil.example\"\n",
        ),
    ];
    for (headers, status, text) in cases {
        let reply = send(&fixture, write(support::write_body(&["a"]), headers)).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (status, text),
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn write_of_a_message_that_is_not_taken_is_refused() {
    let only_v2 = Fixture::ready(|parts| parts.web.write_versions = vec![RemoteWriteVersion::V2]);
    let request = write(support::write_body(&["a"]), &[]);
    let reply = send(&only_v2, request).await;
    let text = "prometheus.WriteRequest protobuf message is not accepted by this server; \
                only accepts io.prometheus.write.v2.Request\n";
    assert_eq!((reply.status, reply.body.as_str()), (415, text));
}

#[tokio::test]
async fn write_over_a_limit_is_refused() {
    let fixture = Fixture::ready(|_| {});
    let reply = send(&fixture, write(vec![0; 3 << 20], &SENDER)).await;
    assert_eq!(reply.status, 413, "{}", reply.body);
    let text = "body too large: 3145728 bytes, limit ";
    assert!(reply.body.contains(text), "{}", reply.body);
    // The header announces 31 MiB of decompressed data.
    let reply = send(&fixture, write(b"\x80\x80\xc0\x0f".to_vec(), &SENDER)).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    let text = "message too large: 32505856 bytes decompressed, limit ";
    assert!(reply.body.starts_with(text), "{}", reply.body);
    let starting = Fixture::starting(|_| {});
    let reply = send(&starting, write(support::write_body(&["a"]), &SENDER)).await;
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, "1"),
        "{}",
        reply.body
    );
}
