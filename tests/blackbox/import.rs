//! `POST /api/v1/import/prometheus` with text of any age and length.

use crate::harness::http::{Answer, Http};
use crate::harness::server::Server;
use crate::now_ms;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const PATH: &str = "/api/v1/import/prometheus";
const TEXT: (&str, &str) = ("Content-Type", "text/plain");
const OPEN: (&str, &str) = (
    "Content-Type",
    "application/openmetrics-text; version=1.0.0",
);
const YEAR_MS: i64 = 31_557_600_000;

/// Starts a server that otherwise accepts no late samples and has unlimited retention.
fn start(data: &Path) -> Server {
    let config = data.parent().unwrap().join("nothing.yml");
    std::fs::write(&config, "storage: {tsdb: {out_of_order_time_window: 0s}}\n").unwrap();
    let config = config.to_str().unwrap();
    Server::start(
        data,
        &["--config", config, "--storage.tsdb.retention.time", "100y"],
    )
}

/// Creates a temporary folder with a path for the data folder in it.
fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    (folder, data)
}

/// Returns the samples of `selector`, as pairs of milliseconds and value, in the hour before
/// `time_ms`.
fn samples(http: &Http, selector: &str, time_ms: i64) -> Vec<(i64, f64)> {
    let found = http.query(&format!("{selector}[1h]"), time_ms);
    let values = found[0]["values"].as_array().cloned().unwrap_or_default();
    let pair = |pair: &serde_json::Value| {
        let time = (pair[0].as_f64().unwrap() * 1e3).round() as i64;
        (time, pair[1].as_str().unwrap().parse().unwrap())
    };
    values.iter().map(pair).collect()
}

#[track_caller]
fn check_error(answer: &Answer, status: u16, error_type: &str, text: &str) {
    assert_eq!(answer.status, status, "{}", answer.body);
    let json = answer.json();
    assert_eq!(json["status"], "error");
    assert_eq!(json["errorType"], error_type, "{json}");
    let error = json["error"].as_str().unwrap();
    assert!(error.contains(text), "{error} has no {text}");
}

#[test]
fn import_of_any_age_is_found_at_once_and_after_kill_and_stop() {
    let (_folder, data) = folder();
    let mut server = start(&data);
    let now = now_ms();
    let old = now - 10 * YEAR_MS;
    let future = now + 9 * 60_000;
    let text = format!(
        "# TYPE aged gauge\naged 1 1\naged 2 {old}\naged 3 {now}\naged 4 \
         {future}\naged{{a=\"b\"}} 5\n"
    );
    let answer = server.http().send(PATH, &[TEXT], text.as_bytes());
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    for end in ["at once", "after a kill", "after a stop"] {
        let http = server.http();
        for (time, value) in [(1, 1.0), (old, 2.0), (now, 3.0), (future, 4.0)] {
            let found = samples(&http, "aged{a=\"\"}", time);
            assert_eq!(found.last(), Some(&(time, value)), "{end}");
        }
        let undated = samples(&http, "aged{a=\"b\"}", now + 60_000);
        assert!((undated[0].0 - now).abs() < 60_000, "{undated:?}");
        match end {
            "at once" => server.kill(),
            _ => assert!(server.stop().success()),
        }
        server = start(&data);
    }
    let late = format!("aged 9 {}\n", now + 11 * 60_000);
    let answer = server.http().send(PATH, &[TEXT], late.as_bytes());
    let said = "line 1: out of bounds: timestamp is too far in the future";
    check_error(&answer, 400, "bad_data", said);
}

#[test]
fn import_understands_formats_packings_and_parameters() {
    let (_folder, data) = folder();
    let server = start(&data);
    let http = server.http();
    let gzip = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let packed = ("Content-Encoding", "gzip");
    // The content type of data sent by curl.
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let open = "# TYPE o counter\no_total 7 1000.5 # {id=\"x\"} 1\n# EOF\n";
    for (headers, body) in [
        (vec![OPEN], open.as_bytes().to_vec()),
        (vec![OPEN, packed], gzip(open)),
        (vec![form], b"p 8 2000\n".to_vec()),
        (vec![packed], gzip("q 9 3000\n")),
    ] {
        let answer = http.send(PATH, &headers, &body);
        assert_eq!(answer.status, 204, "{headers:?}: {}", answer.body);
    }
    assert_eq!(samples(&http, "o_total", 1_000_500), [(1_000_500, 7.0)]);
    assert_eq!(samples(&http, "p", 2000), [(2000, 8.0)]);
    assert_eq!(samples(&http, "q", 3000), [(3000, 9.0)]);
    let path = format!("{PATH}?extra_label=job=x%3Dy&extra_label=a=b&timestamp=5000");
    let answer = http.send(&path, &[], b"r{a=\"c\"} 1\nr 2 6000");
    assert_eq!(answer.status, 204, "{}", answer.body);
    let found = samples(&http, "r{job=\"x=y\",a=\"b\"}", 7000);
    assert_eq!(found, [(5000, 1.0), (6000, 2.0)]);
}

#[test]
fn import_that_is_wrong_says_where_and_why() {
    let (_folder, data) = folder();
    let server = start(&data);
    let http = server.http();
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Headers<'_>, &[u8], u16, &str); 11] = [
        (
            "",
            &[TEXT],
            b"a 1 1\na{ 1\n",
            400,
            "line 2: expected label name, got",
        ),
        (
            "",
            &[TEXT],
            b"\xff 1\n",
            400,
            "line 1: expected a valid start token",
        ),
        ("", &[TEXT], b"a 1 9999999999999999999\n", 400, "line 1: "),
        (
            "",
            &[OPEN],
            b"a 1 1\n",
            400,
            "line 2: data does not end with # EOF",
        ),
        (
            "",
            &[],
            b"a 1 1\n# EOF\n",
            400,
            "Content-Type: application/openmetrics-text",
        ),
        (
            "?extra_label=x",
            &[TEXT],
            b"a 1 1\n",
            400,
            "expected name=value, got \"x\"",
        ),
        (
            "?timestamp=yesterday",
            &[TEXT],
            b"a 1\n",
            400,
            "\"yesterday\"",
        ),
        (
            "",
            &[TEXT, ("Content-Encoding", "br")],
            b"a 1\n",
            415,
            "\"br\"",
        ),
        (
            "",
            &[TEXT, ("Content-Encoding", "gzip")],
            b"a 1\n",
            400,
            "gzip: corrupt",
        ),
        (
            "",
            &[TEXT, ("Content-Encoding", "zstd")],
            b"a 1\n",
            400,
            "zstd: ",
        ),
        (
            "",
            &[("Content-Type", "application/vnd.google.protobuf")],
            b"\x01",
            415,
            "use text",
        ),
    ];
    for (parameters, headers, body, status, said) in cases {
        let answer = http.send(&format!("{PATH}{parameters}"), headers, body);
        check_error(&answer, status, "bad_data", said);
    }
    let mixed = format!("kept 1 1\nbad{{x=\"{}\"}} 1 1\n", "y".repeat(20_000));
    let answer = http.send(PATH, &[TEXT], mixed.as_bytes());
    check_error(
        &answer,
        400,
        "bad_data",
        "line 2: label value too long: 20000 bytes",
    );
    assert_eq!(samples(&http, "kept", 1), [(1, 1.0)]);
    assert!(http.query("a", 1000).as_array().unwrap().is_empty());
}

/// Returns lines with one sample each, of `series` series, one per second from `start_ms`.
fn lines(from: u64, to: u64, series: u64, start_ms: i64) -> String {
    let line = |i: u64| {
        let (number, second) = (i % series, i / series);
        let time = start_ms + 1000 * second as i64;
        format!("bulk{{instance=\"host-{number:04}.example.org\",job=\"node\"}} {i} {time}\n")
    };
    (from..to).map(line).collect()
}

#[test]
fn import_of_100_megabytes_is_stored_whole_in_little_memory() {
    let (_folder, data) = folder();
    let server = start(&data);
    let resident = || {
        let path = format!("/proc/{}/status", server.pid().as_raw_nonzero());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib: u64 = line
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kib >> 10
    };
    let before = resident();
    // 70 bytes per line.
    let (count, series) = (1_450_000u64, 500u64);
    let start_ms = now_ms() - 2 * YEAR_MS;
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(120)))
        .unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut bytes = 0;
    for from in (0..count).step_by(10_000) {
        let part = lines(from, (from + 10_000).min(count), series, start_ms);
        bytes += part.len();
        write!(stream, "{:x}\r\n{part}\r\n", part.len()).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(bytes > 100_000_000, "{bytes}");
    let grown = resident() - before;
    println!("{count} samples, {bytes} bytes, {grown} MiB more at most");
    // Late samples wait in memory for their block, 32 bytes each; the text does not.
    assert!(grown < 110, "{grown} MiB");
    server.kill();
    let server = start(&data);
    let end_ms = start_ms + (count / series) as i64 * 1000;
    let found = server
        .http()
        .query("sum(count_over_time(bulk[1h]))", end_ms);
    assert_eq!(found[0]["value"][1], count.to_string(), "{found}");
}

#[test]
fn import_that_is_killed_loses_nothing_that_it_acknowledged() {
    let (_folder, data) = folder();
    let start_ms = now_ms() - 3 * YEAR_MS;
    let (mut next, each) = (0u64, 2_000u64);
    let mut round = 0u64;
    while round < 6 || next <= 10 * each {
        let server = start(&data);
        let http = server.http();
        let found = |end: u64| {
            let time = start_ms + (end / 10) as i64 * 1000;
            let found = http.query("sum(count_over_time(bulk[1d]))", time);
            found[0]["value"][1]
                .as_str()
                .unwrap_or("0")
                .parse::<u64>()
                .unwrap()
        };
        assert!(found(next + 10 * each) >= next, "before round {round}");
        let pid = server.pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30 + 47 * round));
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        loop {
            let body = lines(next, next + each, 10, start_ms);
            match http.send(PATH, &[TEXT], body.as_bytes()).status {
                204 => next += each,
                _ => break,
            }
        }
        killer.join().unwrap();
        round += 1;
        assert!(round < 60, "only {next} were acknowledged");
    }
    let server = start(&data);
    let end_ms = start_ms + (next / 10) as i64 * 1000;
    let mut values: Vec<f64> = Vec::new();
    for host in 0..10 {
        let selector = format!("bulk{{instance=\"host-{host:04}.example.org\"}}");
        let mut at = start_ms + 3_599_999;
        while at < end_ms + 3_600_000 {
            let found = samples(&server.http(), &selector, at);
            values.extend(found.into_iter().map(|(_, value)| value));
            at += 3_600_000;
        }
    }
    values.sort_by(f64::total_cmp);
    let acked = values.iter().take(next as usize).copied();
    assert!(acked.eq((0..next).map(|i| i as f64)), "{next} acknowledged");
}
