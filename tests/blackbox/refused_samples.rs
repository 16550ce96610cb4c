//! Log lines about rejected samples.

use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use firn_mirror::target::{ExpositionServer, expose};
use rustix::process::Signal;

/// Stops the server and waits until its log has `count` lines with `text` about rejected samples.
fn lines_after_stop(mut server: Server, text: &str, count: usize) -> Vec<String> {
    server.signal(Signal::TERM);
    assert!(server.wait_end().success());
    let mut lines = Vec::new();
    wait_for(&format!("{count} lines with {text}"), || {
        let is_one =
            |line: &String| line.contains(" msg=\"samples rejected\" ") && line.contains(text);
        lines = server.log().into_iter().filter(is_one).collect();
        lines.len() >= count
    });
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

#[test]
fn pushes_that_are_refused_make_one_line_at_once_and_one_at_the_end() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let now = now_ms();
    let push = |times: &[i64]| {
        let samples: Vec<(i64, f64)> = times.iter().map(|time| (*time, 1.0)).collect();
        http.write(&body(&[Series::new(&[("__name__", "m")], &samples)]))
            .status
    };
    assert_eq!(push(&[now]), 204);
    for _ in 0..100 {
        // Older than the out-of-order window.
        let old = now - 40 * 60_000;
        assert_eq!(push(&[old - 2, old - 1, now + 3_600_000]), 400);
    }
    server.wait_log("reason=too_far_in_future");
    let discards = http.get("/api/v1/status/discards").json();
    let discards = discards["data"].as_array().unwrap();
    let of = |reason: &str| {
        discards
            .iter()
            .find(|kind| kind["reason"] == reason)
            .unwrap()
    };
    let (old, ahead) = (of("too_old"), of("too_far_in_future"));
    assert_eq!(
        (&old["samples"], &old["writes"]),
        (&200.into(), &100.into())
    );
    assert_eq!(
        (&ahead["samples"], &ahead["writes"]),
        (&100.into(), &100.into())
    );
    assert_eq!(old["sender"]["kind"], "push");
    assert_eq!(old["sender"]["address"], "127.0.0.1");
    assert!(
        old["example"]
            .as_str()
            .unwrap()
            .starts_with("too old sample"),
        "{old}"
    );
    let lines = lines_after_stop(server, "", 4);
    let has = |line: &str, parts: &[&str]| parts.iter().all(|part| line.contains(part));
    let late = "too old sample for series {__name__=\\\"m\\\"} at timestamp ";
    let ahead = "timestamp is too far in the future for series {__name__=\\\"m\\\"}";
    let wanted: [&[&str]; 4] = [
        &[
            "level=WARN",
            "reason=too_old",
            "tenant=anonymous from=127.0.0.1",
            "samples=2 writes=1",
            late,
        ],
        &[
            "reason=too_far_in_future",
            "samples=1 writes=1",
            ahead,
            " bound=",
        ],
        &["reason=too_old", "samples=198 writes=99", late],
        &[
            "reason=too_far_in_future",
            "samples=99 writes=99",
            ahead,
            " bound=",
        ],
    ];
    for (line, parts) in lines.iter().zip(wanted) {
        assert!(has(line, parts), "{line}: {parts:?}");
    }
}

#[test]
fn scrapes_that_are_refused_are_told_by_job() {
    let answer = |_: &_, stream: &mut _| expose(stream, "a 1\na 2\nb 1 99999999999999\n");
    let target = ExpositionServer::start("127.0.0.1:0", answer).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("firn.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: odd\n  \
         static_configs: [{{targets: ['{}']}}]\n",
        target.address
    );
    std::fs::write(&config, text).unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(&dir.path().join("data"), &flags);
    wait_for("three scrapes", || {
        let metrics = server.http().get("/metrics").body;
        let counts = metrics.lines().find_map(|line| {
            line.strip_prefix("firn_ingest_samples_dropped_total{reason=\"duplicate_timestamp\"} ")
        });
        counts.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count >= 3))
    });
    let discards = server.http().get("/api/v1/status/discards").json();
    let discards = discards["data"].as_array().unwrap();
    let kinds = discards
        .iter()
        .map(|kind| (&kind["sender"]["kind"], &kind["job"]));
    let scrape = (&serde_json::json!("scrape"), &serde_json::json!("odd"));
    assert!(kinds.into_iter().all(|kind| kind == scrape), "{discards:?}");
    assert_eq!(discards.len(), 2, "{discards:?}");
    let lines = lines_after_stop(server, " job=odd samples=", 4);
    for (reason, example) in [
        (
            "reason=duplicate_timestamp",
            "duplicate sample for timestamp for series {__name__=\\\"a\\\"",
        ),
        (
            "reason=too_far_in_future",
            "too far in the future for series {__name__=\\\"b\\\"",
        ),
    ] {
        let of_reason: Vec<_> = lines.iter().filter(|line| line.contains(reason)).collect();
        assert_eq!(of_reason.len(), 2, "{lines:#?}");
        assert!(of_reason[0].contains(example), "{lines:#?}");
    }
}
