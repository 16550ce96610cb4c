//! `tracing`: spans of the server reach a collector over HTTP and gRPC.

use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::mirror::receiver::{Mood, Receiver};
use crate::now_ms;
use serde_json::Value;
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

/// Returns whether `bytes` contains `text`.
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
    // Traces that start in the server itself were not requested.
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
    for text in [&b"count(m)"[..], b"ruleAppend", b"ruleCommit"] {
        wait_for("the spans of a rule", || {
            receiver.taken().iter().any(|taken| has(&taken.body, text))
        });
    }
    let exported = |server: &Server| server.http().get("/metrics").body;
    assert!(exported(&server).contains("firn_spans_total{outcome=\"exported\"}"));
    std::fs::write(dir.path().join("firn.yml"), "scrape_configs: []\n").unwrap();
    server.signal(rustix::process::Signal::HUP);
    server.wait_log("export of spans stopped");
    assert_eq!(server.http().get("/api/v1/query?query=m").status, 200);
    assert!(server.stop().success());
    // Spans that ended before the reload may still be in transit.
    let mut taken = receiver.taken().into_iter();
    assert!(!taken.any(|taken| has(&taken.body, b"GET /api/v1/query")));
}

/// Returns the `traceparent` header of each request that `receiver` accepted.
fn parents(receiver: &Receiver) -> Vec<String> {
    let header = |taken: crate::mirror::receiver::Taken| {
        let mut headers = taken.headers.into_iter();
        let value = headers.find_map(|line| line.strip_prefix("traceparent: ").map(str::to_owned));
        value.unwrap_or_default()
    };
    receiver.taken().into_iter().map(header).collect()
}

/// Parses hexadecimal digits into bytes.
fn bytes_of(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Starts a server that scrapes a target, forwards to a receiver, reads from a server and writes a
/// query log.
fn start_between(dir: &Path, others: &[Receiver; 4], fraction: f64) -> Server {
    let [collector, target, sent_to, read_from] = others;
    for other in others {
        other.set(Mood::status(200));
    }
    let config = format!(
        "global: {{query_log_file: queries.log}}\n\
         tracing: {{client_type: http, endpoint: '{}', insecure: true, \
         sampling_fraction: {fraction}}}\n\
         scrape_configs:\n- job_name: j\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  \
         static_configs: [{{targets: ['{}']}}]\n\
         remote_write: [{{url: '{}', name: there}}]\n\
         remote_read: [{{url: 'http://{}/read', read_recent: true}}]\n",
        collector.address,
        target.address,
        sent_to.url(),
        read_from.address
    );
    let file = dir.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    Server::start(&dir.join("data"), &["--config", file.to_str().unwrap()])
}

/// Returns the line of the query `m` in the log.
fn logged(dir: &Path) -> Value {
    let text = std::fs::read_to_string(dir.join("queries.log")).unwrap();
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| line["params"]["query"] == "m").unwrap()
}

#[test]
fn scrapes_writes_and_requests_to_others_are_told_and_others_hear_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let others = [(); 4].map(|()| Receiver::start());
    let [collector, target, sent_to, read_from] = &others;
    let server = start_between(dir.path(), &others, 1.0);
    let series = Series::new(&[("__name__", "m"), ("i", "a")], &[(now_ms(), 1.0)]);
    assert_eq!(server.http().write(&body(&[series])).status, 204);
    assert_eq!(server.http().get("/api/v1/query?query=m").status, 200);
    sent_to.wait(1);
    target.wait(1);
    read_from.wait(1);
    assert!(server.stop().success());
    let taken = collector.taken();
    let all: Vec<u8> = taken.iter().flat_map(|taken| taken.body.clone()).collect();
    for text in [
        "scrape",
        "scrapeRequest",
        "scrapeRead",
        "scrapeAppend",
        "scrapeCommit",
        "POST /api/v1/write",
        "writeRead",
        "writeDecode",
        "writeAppend",
        "writeCommit",
        "http.response.body.size",
        "Remote Send Batch",
        "Remote Store",
        "there",
        "Remote Read",
    ] {
        assert!(has(&all, text.as_bytes()), "{text}");
    }
    for (name, asked) in [("target", target), ("sent", sent_to), ("read", read_from)] {
        let parent = parents(asked).remove(0);
        let parts: Vec<&str> = parent.split('-').collect();
        let ["00", trace, span, "01"] = parts[..] else {
            panic!("{name}: {parent:?}");
        };
        assert!(
            has(&all, &bytes_of(trace)) && has(&all, &bytes_of(span)),
            "{name}"
        );
    }
    let line = logged(dir.path());
    for key in ["traceID", "spanID"] {
        let id = bytes_of(line[key].as_str().unwrap());
        assert!(has(&all, &id), "{key}: {line}");
    }
}

#[test]
fn trace_that_is_not_sampled_is_passed_on_so_that_others_do_not_sample_it_either() {
    let dir = tempfile::tempdir().unwrap();
    let others = [(); 4].map(|()| Receiver::start());
    let [collector, target, _, read_from] = &others;
    let server = start_between(dir.path(), &others, 0.0);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let ask = crate::raw::Ask {
        headers: vec![format!("traceparent: 00-{trace}-00f067aa0ba902b7-00")],
        ..crate::raw::Ask::get("/api/v1/query?query=m")
    };
    assert_eq!(ask.send(&server.address).status, 200);
    target.wait(1);
    read_from.wait(1);
    assert!(server.stop().success());
    assert!(parents(target)[0].ends_with("-00"), "{:?}", parents(target));
    let parent = parents(read_from).remove(0);
    assert!(
        parent.starts_with(&format!("00-{trace}-")) && parent.ends_with("-00"),
        "{parent}"
    );
    assert_eq!(logged(dir.path())["traceID"], trace);
    assert_eq!(collector.requests(), 0);
}
