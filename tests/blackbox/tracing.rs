//! `tracing`: spans of what the server does reach a collector, by HTTP and by gRPC.

use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::mirror::receiver::Receiver;
use crate::now_ms;
use std::path::Path;

fn start(dir: &Path, tracing: &str) -> Server {
    let file = dir.join("firn.yml");
    let rules = "groups:\n- name: g\n  interval: 1s\n  rules: [{record: made, expr: 'count(m)'}]\n";
    std::fs::write(dir.join("rules.yml"), rules).unwrap();
    let config = format!("scrape_configs: []\nrule_files: [rules.yml]\ntracing: {tracing}\n");
    std::fs::write(&file, config).unwrap();
    let server = Server::start(&dir.join("data"), &["--config", file.to_str().unwrap()]);
    let series = Series::new(&[("__name__", "m"), ("i", "a")], &[(now_ms(), 1.0)]);
    let answer = server.http().write(&body(&[series]));
    assert_eq!(answer.status, 204, "{}", answer.body);
    server
}

/// Whether `bytes` has `text`.
fn has(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

#[test]
fn request_of_a_sampled_trace_is_told_with_index_and_data_apart() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let tracing = format!(
        "{{client_type: http, endpoint: '{}', insecure: true, headers: {{X-Team: a}}}}",
        receiver.address
    );
    let server = start(dir.path(), &tracing);
    let http = server.http();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let id: Vec<u8> = (0..16)
        .map(|i| u8::from_str_radix(&trace[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    for (parent, is_sampled) in [(trace, "01"), (&*"9".repeat(32), "00")] {
        let header = format!("00-{parent}-00f067aa0ba902b7-{is_sampled}");
        let path = "/api/v1/query?query=sum(m)";
        let ask = crate::raw::Ask {
            headers: vec![format!("traceparent: {header}")],
            ..crate::raw::Ask::get(path)
        };
        assert_eq!(ask.send(&server.address).status, 200);
    }
    assert_eq!(http.get("/api/v1/query?query=m").status, 200);
    wait_for("the spans of the request", || {
        receiver
            .taken()
            .iter()
            .any(|taken| has(&taken.body, b"querierRead"))
    });
    assert!(server.stop().success());
    let taken = receiver.taken();
    let all: Vec<u8> = taken.iter().flat_map(|taken| taken.body.clone()).collect();
    for text in [
        "service.name",
        "GET /api/v1/query",
        "promqlExecQueue",
        "promqlEval",
        "querierSelect",
        "querierRead",
        "{__name__=\"m\"}",
        "sum(m)",
    ] {
        assert!(has(&all, text.as_bytes()), "{text}");
    }
    assert!(has(&all, &id));
    assert!(!has(&all, &[0x99; 16]));
    // Nobody asked for the traces that begin here.
    assert!(!has(&all, b"GET /-/ready") && !has(&all, b"count(m)"));
    assert!(taken[0].headers.contains(&"x-team: a".to_owned()));
    assert!(
        taken[0]
            .headers
            .contains(&"content-type: application/x-protobuf".to_owned())
    );
}

#[test]
fn traces_that_begin_here_are_sampled_by_the_fraction_and_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    let tracing = format!(
        "{{client_type: http, endpoint: '{}', insecure: true, sampling_fraction: 1}}",
        receiver.address
    );
    let server = start(dir.path(), &tracing);
    wait_for("the span of a rule", || {
        receiver
            .taken()
            .iter()
            .any(|taken| has(&taken.body, b"count(m)"))
    });
    let exported = |server: &Server| server.http().get("/metrics").body;
    assert!(exported(&server).contains("firn_spans_total{outcome=\"exported\"}"));
    std::fs::write(dir.path().join("firn.yml"), "scrape_configs: []\n").unwrap();
    server.signal(rustix::process::Signal::HUP);
    server.wait_log("spans are not exported any more");
    let before = receiver.taken().len();
    assert_eq!(server.http().get("/api/v1/query?query=m").status, 200);
    assert!(server.stop().success());
    assert_eq!(receiver.taken().len(), before);
}
