//! Tests of loads: they are reproducible byte for byte, are stored in files without loss, and
//! report the responses of the receiver.

use super::*;
use crate::request;
use crate::target::{ExpositionServer, respond};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;

fn options(line: &str) -> Options {
    Options::parse(line.split_whitespace().map(OsString::from)).unwrap()
}

fn made(line: &str) -> (PreparedLoadSummary, Vec<(usize, Request)>) {
    let mut requests = Vec::new();
    let summary = make(&options(line), &mut |sender, request| {
        requests.push((sender, request));
        Ok(())
    });
    (summary.unwrap(), requests)
}

const LINE: &str = "--series 7520 --samples 3 --senders 3 --start 1700000000000";

#[test]
fn load_of_equal_seed_has_equal_bytes() {
    assert_eq!(made(LINE), made(LINE));
    assert_ne!(made(LINE).1, made(&format!("{LINE} --seed 2")).1);
}

#[test]
fn load_is_split_over_senders_and_requests_without_loss() {
    let (summary, requests) = made(LINE);
    assert_eq!((summary.series, summary.samples), (7_520, 22_560));
    let sent: u64 = requests.iter().map(|(_, r)| u64::from(r.samples)).sum();
    assert_eq!(sent, summary.samples);
    for sender in 0..3 {
        let due: Vec<_> = requests
            .iter()
            .filter(|(s, _)| *s == sender)
            .map(|(_, r)| r.due_ms)
            .collect();
        assert!(
            due.len() >= 3 && due.is_sorted(),
            "sender {sender}: {due:?}"
        );
    }
}

#[test]
fn load_prepared_in_files_reads_back_equal() {
    let dir = tempfile::tempdir().unwrap();
    let summary = prepare(&options(LINE), dir.path()).unwrap();
    let (expected, requests) = made(LINE);
    assert_eq!(summary, expected);
    assert_eq!(prepared::read_summary(dir.path()).unwrap(), expected);
    for sender in 0..3 {
        let kept: Vec<_> = prepared::PreparedLoadReader::open(dir.path(), sender)
            .unwrap()
            .map(|r| (sender, r.unwrap()))
            .collect();
        let made: Vec<_> = requests
            .iter()
            .filter(|(s, _)| *s == sender)
            .cloned()
            .collect();
        assert_eq!(kept, made, "sender {sender}");
    }
}

/// Returns the samples of a load in the order in which they are sent: labels, time, bits of the
/// value.
fn samples(line: &str) -> Vec<(String, i64, u64)> {
    let mut decoder =
        firn_wire::remote_write::RemoteWriteDecoder::new(firn_wire::WireLimits::default());
    let mut out = Vec::new();
    for (_, request) in made(line).1 {
        let decoded = decoder
            .decode(
                firn_wire::remote_write::RemoteWriteOptions::default(),
                &request.body,
            )
            .unwrap();
        for series in decoded.batch.iter() {
            for (time, value) in series.times.iter().zip(series.values) {
                out.push((series.labels.to_string(), *time, value.to_bits()));
            }
        }
    }
    out
}

#[test]
fn load_of_a_pair_and_of_late_samples_holds_each_sample_of_the_plain_one() {
    let plain = "--series 376 --samples 20 --senders 2 --start 1700000000000 --churn 0.5 \
                 --churn-period 1m";
    let sorted = |mut samples: Vec<(String, i64, u64)>| {
        samples.sort();
        samples
    };
    let once = sorted(samples(plain));
    let late = samples(&format!("{plain} --late 0.1 --late-by 1m"));
    let newest = |sent: &[(String, i64, u64)]| {
        let mut newest = std::collections::HashMap::new();
        let mut behind = 0;
        for (labels, time, _) in sent {
            let known: &mut i64 = newest.entry(labels.clone()).or_default();
            behind += usize::from(time < known);
            *known = (*known).max(*time);
        }
        behind
    };
    assert_eq!(newest(&samples(plain)), 0);
    let behind = newest(&late);
    let share = behind as f64 / late.len() as f64;
    assert!((0.05..0.11).contains(&share), "{share}");
    assert_eq!(sorted(late), once);
    let pair = samples(&format!("{plain} --replicas 2"));
    assert_eq!(
        made(&format!("{plain} --replicas 2")).0.samples as usize,
        pair.len()
    );
    for replica in ["replica-0", "replica-1"] {
        let label = format!("__replica__=\"{replica}\", ");
        let own = pair.iter().filter(|(labels, _, _)| labels.contains(&label));
        let own = own.map(|(labels, time, value)| (labels.replace(&label, ""), *time, *value));
        assert_eq!(sorted(own.collect()), once);
    }
}

/// Returns the floats, histograms and exemplars in the bodies of a load, formatted as texts.
fn contents(requests: &[Request]) -> [Vec<String>; 3] {
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for request in requests {
        let batch = recording::read(request.protocol, &request.body).unwrap();
        for (number, series) in batch.iter().enumerate() {
            let labels = series.labels;
            for (time, value) in series.times.iter().zip(series.values) {
                all[0].push(format!("{labels} {time} {}", value.to_bits()));
            }
            let histograms = series.histograms.iter();
            all[1].extend(histograms.map(|h| format!("{labels} {} {:?}", h.time, h.histogram)));
            let exemplars = batch.exemplars().iter_series(number as u64);
            all[2]
                .extend(exemplars.map(|e| format!("{labels} {} {} {}", e.labels, e.time, e.value)));
        }
    }
    all
}

#[test]
fn load_of_either_version_holds_the_same_histograms_and_exemplars() {
    let line = "--series 388 --samples 4 --senders 2 --start 1700000000000 --native-histograms \
                --exemplars 0.5";
    let bodies = |line: &str| -> Vec<Request> {
        let requests = made(line).1.into_iter();
        requests.map(|(_, request)| request).collect()
    };
    let one = bodies(line);
    let [floats, histograms, exemplars] = contents(&one);
    assert_eq!((floats.len(), histograms.len()), (4 * 376, 4 * 12));
    // Exemplars belong to the samples of 168 buckets and 12 native histograms.
    let share = exemplars.len() as f64 / (4.0 * 180.0);
    assert!((0.4..0.6).contains(&share), "{share}");
    assert!(exemplars[0].contains("trace_id"), "{}", exemplars[0]);
    let two = bodies(&format!("{line} --protocol 2"));
    assert!(
        two.iter()
            .all(|request| request.protocol == request::RemoteWriteProtocol::Two)
    );
    assert_eq!(contents(&two), [floats, histograms, exemplars]);
}

#[test]
fn recorded_stream_is_sent_again_at_another_time() {
    for protocol in ["1", "2"] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("recorded");
        let address = {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap().to_string()
        };
        let recorder = thread::spawn({
            let (folder, address) = (folder.clone(), address.clone());
            move || {
                let line = format!(
                    "--record {} --listen {address} --duration 3s",
                    folder.display()
                );
                trial(&line)
            }
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(&address).is_err() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(5));
        }
        let line = format!(
            "--url http://{address}/api/v1/write --series 388 --samples 3 --senders 1 \
             --start 1700000000000 --native-histograms --exemplars 0.5 --protocol {protocol}"
        );
        let (text, sent) = trial(&line);
        assert_eq!(sent, Ok(()), "{text}");
        let (text, recorded) = recorder.join().unwrap();
        assert_eq!(recorded, Ok(()), "{text}");
        let summary: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&summary["samples"], &summary["series"]),
            (&(3 * 388).into(), &388.into())
        );
        let reader = prepared::PreparedLoadReader::open(&folder, 0).unwrap();
        let recorded: Vec<Request> = reader.map(Result::unwrap).collect();
        let original: Vec<Request> = made(&line).1.into_iter().map(|(_, r)| r).collect();
        assert_eq!(contents(&recorded), contents(&original));
        let mut shift = TimestampShift::from_offset(100_000_000_000);
        let moved: Vec<Request> = recorded
            .iter()
            .map(|request| shift.apply(request.clone()).unwrap())
            .collect();
        let moved_text = |texts: [Vec<String>; 3]| {
            let again = |text: String| text.replace(" 18000000", " 17000000");
            texts.map(|texts| texts.into_iter().map(again).collect::<Vec<_>>())
        };
        assert_eq!(moved_text(contents(&moved)), contents(&recorded));
        let first = contents(&moved)[1][0].clone();
        assert!(first.contains(" 18000000"), "{first}");
        // When the recording is sent to a receiver, its timestamps are shifted to the present.
        let url = system(0, "200 OK");
        let line = format!("--url {url} --replay {} --shift", folder.display());
        let (text, sent) = trial(&line);
        assert_eq!(sent, Ok(()), "{text}");
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["samples"], 3 * 388);
    }
}

/// Answers the requests of one connection with the given statuses, then closes it.
fn answer(stream: TcpStream, statuses: &[&str]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    for status in statuses {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let text = "too much";
        let length = if status.starts_with("204") {
            0
        } else {
            text.len()
        };
        let text = &text[..length];
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{text}"
        )
        .unwrap();
    }
}

#[test]
fn load_refused_in_part_is_reported_and_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/api/v1/write", listener.local_addr().unwrap());
    let receiver = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        answer(
            stream,
            &["204 No Content", "429 Too Many Requests", "204 No Content"],
        );
    });
    let line = format!("--url {url} --series 2000 --samples 2 --senders 1 --interval 1s");
    let (text, ended) = trial(&format!("{line} --keep-going"));
    receiver.join().unwrap();
    let why = "429 Too Many Requests: too much";
    let want = format!("1 of 3 requests failed, the first one with: {url}: {why}");
    assert_eq!(ended, Err(want));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["requests"], 3);
    assert_eq!(report["failed"], 1);
    assert_eq!(report["samples"], 4_512 - 2_000);
    assert!(report["push_ms"]["max"].as_f64().unwrap() > 0.0);
}

#[test]
fn load_stops_at_the_first_request_that_fails() {
    let seen = Arc::new(Mutex::new(0));
    let count = Arc::clone(&seen);
    let system = ExpositionServer::start("127.0.0.1:0", move |_, stream| {
        *count.lock().unwrap() += 1;
        respond(stream, "404 Not Found", "text/plain", "no such route");
    })
    .unwrap();
    let url = format!("http://{}", system.address);
    let many = "--series 20000 --duration 1h --senders 3";
    let (text, ended) = plain_trial(&format!("--url {url} {many}"));
    let why = ended.unwrap_err();
    let first = format!("{url}/api/v1/write: 404 Not Found: no such route\n  stopped after ");
    assert!(why.starts_with(&first), "{why}");
    assert!(why.ends_with("; --keep-going sends the rest"), "{why}");
    assert_eq!(text, "");
    assert!((1..=3).contains(&*seen.lock().unwrap()));
    // No process listens at the first URL; sending to the second system stops with the first one.
    let closed = "http://127.0.0.1:1";
    let other = system_url(0);
    let line = format!("--url {closed} --unqueried-url {other} {many} --live");
    let why = plain_trial(&line).1.unwrap_err();
    assert!(
        why.starts_with("http://127.0.0.1:1/api/v1/write: "),
        "{why}"
    );
    assert!(why.contains("Connection refused"), "{why}");
}

#[test]
fn report_for_people_is_rounded() {
    let url = system(0, "200 OK");
    let dir = tempfile::tempdir().unwrap();
    let line = format!("--url {url} --series 3760 --samples 20");
    let (text, ended) = plain_trial(&line);
    assert_eq!(ended, Ok(()));
    assert!(text.starts_with("writes  75.2 k samples in "), "{text}");
    assert!(text.lines().next().unwrap().ends_with("/s"), "{text}");
    let folder = dir.path().join("prepared");
    let (text, ended) = plain_trial(&format!("{line} --prepare {}", folder.display()));
    assert_eq!(ended, Ok(()));
    assert!(
        text.starts_with("prepared  75.2 k samples of 3760 series in "),
        "{text}"
    );
    assert!(text.ends_with("iB\n"), "{text}");
}

/// Starts a system that accepts writes after `write_ms`, and returns the URL of the server.
fn system_url(write_ms: u64) -> String {
    let url = system(write_ms, "200 OK");
    url.strip_suffix("/api/v1/write").unwrap().to_owned()
}

/// Starts a system that accepts writes after `write_ms` and answers queries with `status`, and
/// returns its remote-write URL.
fn system(write_ms: u64, status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || while serve(&stream, write_ms, status).is_some() {});
        }
    });
    format!("http://{address}/api/v1/write")
}

fn serve(stream: &TcpStream, write_ms: u64, status: &str) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        let line = head[start..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    let answer = if head.starts_with("POST") {
        thread::sleep(std::time::Duration::from_millis(write_ms));
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
    } else {
        let body = "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[]}}";
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let mut stream = stream;
    stream.write_all(answer.as_bytes()).ok()
}

/// Runs a load test with its report in JSON and returns its output and exit status.
fn trial(line: &str) -> (String, Result<(), String>) {
    plain_trial(&format!("--json {line}"))
}

/// Runs a load test with its report as text and returns its output and exit status.
fn plain_trial(line: &str) -> (String, Result<(), String>) {
    let mut out = Vec::new();
    let ended = run(line.split_whitespace().map(OsString::from), &mut out);
    let text = String::from_utf8(out).unwrap();
    (text, ended.map_err(|e| e.to_string()))
}

#[test]
fn load_test_asks_beside_the_writes_and_reaches_its_goals() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("questions");
    std::fs::write(&list, "# two\nweight=3 up\nrange=10m rate(up[1m])\n").unwrap();
    let url = system(1, "200 OK");
    let line = format!(
        "--url {url} --series 3000 --samples 3 --interval 500ms --deadline 100ms --live \
         --senders 2 --queries {} --query-rate 50 --slo",
        list.display()
    );
    let (text, ended) = trial(&line);
    assert_eq!(ended, Ok(()), "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["samples"], 3 * 3_008);
    let due = report["reads"]["due"].as_u64().unwrap();
    assert!(due >= 30, "{due}");
    assert_eq!(report["reads"]["failed"], 0);
    let questions = report["reads"]["questions"].as_array().unwrap();
    assert_eq!(questions.len(), 2);
    assert_eq!(questions[1]["query"], "rate(up[1m])");
    let goals = report["goals"].as_array().unwrap();
    assert!(goals.len() >= 3 && goals.iter().all(|goal| goal["met"] == true));
    let late = report["push_since_due_ms"]["p99.9"].as_f64().unwrap();
    assert!(late >= report["push_ms"]["p50"].as_f64().unwrap());
    let (text, ended) = plain_trial(&line);
    assert_eq!(ended, Ok(()), "{text}");
    for part in [
        "writes  9024 samples",
        "reads  ",
        "rate(up[1m])",
        "met     99.9 % of writes",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn load_test_asks_panels_of_dashboards_and_sends_its_headers_with_all() {
    let dir = tempfile::tempdir().unwrap();
    let board = "{\"templating\": {\"list\": [{\"name\": \"job\", \"type\": \"query\", \
                 \"query\": \"label_values(job)\"}]}, \"panels\": [{\"targets\": [\
                 {\"expr\": \"up{job=\\\"$job\\\"}\"}, {\"expr\": \"$gone\"}]}]}";
    std::fs::write(dir.path().join("board.json"), board).unwrap();
    std::fs::write(dir.path().join("list.txt"), "weight=2 down\n").unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let system = ExpositionServer::start("127.0.0.1:0", move |request, stream| {
        let path = request
            .path
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned();
        let tenant = request.header("x-scope-orgid").map(str::to_owned);
        notes
            .lock()
            .unwrap()
            .push((path, request.path.clone(), tenant));
        let body = if request.path.contains("/label/job/values") {
            "{\"status\":\"success\",\"data\":[\"a\"]}"
        } else {
            "{\"status\":\"success\",\"data\":{}}"
        };
        respond(stream, "200 OK", "application/json", body);
    })
    .unwrap();
    let line = format!(
        "--url http://{}/api/v1/write --series 376 --samples 4 --interval 500ms --deadline 100ms \
         --live --senders 1 --queries {} --query-rate 20 --header X-Scope-OrgID=t --report {}",
        system.address,
        dir.path().display(),
        dir.path().join("out").display(),
    );
    let (text, ended) = trial(&line);
    assert_eq!(ended, Ok(()), "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    let asked = report["reads"]["questions"].as_array().unwrap().iter();
    let mut asked: Vec<&str> = asked.map(|one| one["query"].as_str().unwrap()).collect();
    asked.sort_unstable();
    assert_eq!(asked, ["down", "up{job=\"a\"}"]);
    let left_out = &report["reads"]["left_out"][0];
    assert_eq!(left_out["query"], "$gone", "{report:#}");
    let seen = seen.lock().unwrap();
    for path in ["write", "query", "query_range", "label/job/values"] {
        let path = format!("/api/v1/{path}");
        assert!(
            seen.iter().any(|(known, ..)| *known == path),
            "{path}: {seen:?}"
        );
    }
    assert!(seen.iter().any(|(path, ..)| path == "/metrics"), "{seen:?}");
    let lacking = seen
        .iter()
        .find(|(.., tenant)| tenant.as_deref() != Some("t"));
    assert_eq!(lacking, None);
    let range = seen.iter().find(|(path, ..)| path == "/api/v1/query_range");
    assert!(range.unwrap().1.contains("&step=15.000"), "{range:?}");
}

#[test]
fn pair_of_systems_gets_the_same_writes_and_one_of_them_the_questions() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("questions");
    std::fs::write(&list, "up\n").unwrap();
    let (queried, unqueried) = (system(1, "200 OK"), system(1, "200 OK"));
    let line = format!(
        "--url {queried} --unqueried-url {unqueried} --series 1200 --targets 2 --samples 3 \
         --interval 500ms --deadline 100ms --live --senders 2 --queries {} --query-rate 20 --slo \
         --report {} --pid {}",
        list.display(),
        dir.path().join("out").display(),
        std::process::id(),
    );
    let (text, ended) = trial(&line);
    assert_eq!(ended, Ok(()), "{text}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join("out").join(name)).unwrap();
    let report: Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(
        (&report["samples"], &report["load"]["targets"]),
        (&3600.into(), &2.into())
    );
    assert_eq!(report["unqueried"]["samples"], 3600);
    assert_eq!(report["unqueried"]["failed"], 0);
    let goals = report["goals"].as_array().unwrap();
    assert_eq!(goals[3]["goal"], "99.9 % of writes within 10s, unqueried");
    assert!(report["series"]["queried"].as_array().unwrap().len() >= 2);
    assert!(
        report["costs"]["queried"]["written_bytes"].is_number(),
        "{report:#}"
    );
    assert!(
        report["costs"]["unqueried"]["written_bytes"].is_null(),
        "{report:#}"
    );
    let page = read("report.html");
    for part in ["all goals are met", "Writes, p99 (ms)", "unqueried", "<svg"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<script"), "{page}");
}

#[test]
fn load_test_that_misses_a_goal_says_which_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("questions");
    std::fs::write(&list, "up\n").unwrap();
    let url = system(20, "503 No");
    let line = format!(
        "--url {url} --series 376 --samples 5 --interval 100ms --deadline 10ms --live --senders 1 \
         --queries {} --query-rate 20 --slo --slo-write-within 5ms",
        list.display()
    );
    let (text, ended) = trial(&line);
    let e = ended.unwrap_err();
    assert!(
        e.starts_with("missed: 99.9 % of writes within 5ms: 0 %;"),
        "{e}"
    );
    assert!(e.contains("99.9 % of reads successful: 0 %"), "{e}");
    assert!(!e.contains("on average"), "{e}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["goals"][0]["met"], false);
    let failure = report["reads"]["first_failure"].as_str().unwrap();
    assert!(failure.starts_with("503"), "{failure}");
}
