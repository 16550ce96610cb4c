//! Loads repeat byte for byte, survive the way through files, and report what the receiver did.

use super::*;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};

fn options(line: &str) -> Options {
    Options::parse(line.split_whitespace().map(OsString::from)).unwrap()
}

fn made(line: &str) -> (Summary, Vec<(usize, Request)>) {
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
        let kept: Vec<_> = prepared::Reader::open(dir.path(), sender)
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

/// Answers the requests of one connection with the statuses, then closes it.
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
    let mut out = Vec::new();
    let e = run(line.split_whitespace().map(OsString::from), &mut out).unwrap_err();
    receiver.join().unwrap();
    assert_eq!(
        e.to_string(),
        "1 of 3 requests failed, the first one with: 429 Too Many Requests: too much"
    );
    let report: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(report["requests"], 3);
    assert_eq!(report["failed"], 1);
    assert_eq!(report["samples"], 4_512 - 2_000);
    assert!(report["push_ms"]["max"].as_f64().unwrap() > 0.0);
}
