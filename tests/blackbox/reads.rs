//! Requests of other servers and of operators' tools: remote read, federation, notifications.

use crate::harness::server::{DEADLINE, Server, wait_for};
use crate::harness::write::{Series, body, compress, push_uvarint};
use crate::now_ms;
use crate::raw::{Ask, Reply};
use firn_prometheus_tsdb::{TsdbChunkEncoding, TsdbChunkSamples, TsdbSampleValue};
use firn_wire::snappy;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Encodes a length-delimited protobuf field.
pub fn bytes(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    push_uvarint(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

/// Encodes an integer field.
pub fn integer(number: u8, value: i64) -> Vec<u8> {
    let mut out = vec![number << 3];
    push_uvarint(&mut out, value as u64);
    out
}

/// Returns a remote read of the series with these labels. `accepted` are the numbers of the
/// accepted response types.
fn read_of(labels: &[(&str, &str)], (start, end): (i64, i64), accepted: &[u8]) -> Ask {
    let mut query = [integer(1, start), integer(2, end)].concat();
    for (name, value) in labels {
        let matcher = [bytes(2, name.as_bytes()), bytes(3, value.as_bytes())].concat();
        query.extend(bytes(3, &matcher));
    }
    let message = [bytes(1, &query), bytes(2, accepted)].concat();
    Ask {
        method: "POST".into(),
        path: "/api/v1/read".into(),
        headers: vec!["Content-Encoding: snappy".into()],
        body: compress(&message),
    }
}

/// Returns the payloads of the fields with this number.
fn fields(mut message: &[u8], wanted: u64) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let varint = |rest: &mut &[u8]| {
        let mut value = 0u64;
        for shift in (0..).step_by(7) {
            let byte = rest[0];
            *rest = &rest[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    };
    while !message.is_empty() {
        let key = varint(&mut message);
        let payload = match key & 7 {
            0 => varint(&mut message).to_le_bytes().to_vec(),
            1 => message.split_off(..8).unwrap().to_vec(),
            2 => {
                let length = varint(&mut message) as usize;
                message.split_off(..length).unwrap().to_vec()
            }
            other => panic!("wire type {other}"),
        };
        if key >> 3 == wanted {
            found.push(payload);
        }
    }
    found
}

fn labels_of(series: &[u8]) -> String {
    let text = |label: &Vec<u8>| {
        let part = |number| String::from_utf8(fields(label, number)[0].clone()).unwrap();
        format!("{}={}", part(1), part(2))
    };
    let all: Vec<_> = fields(series, 1).iter().map(text).collect();
    all.join(",")
}

/// Returns the frames of a stream after verifying their checksums.
fn frames(body: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte < 0x80).unwrap();
        let length = rest[..=end].iter().rev();
        let length = length.fold(0, |n, byte| n << 7 | usize::from(byte & 0x7f));
        let frame = &rest[end + 5..end + 5 + length];
        let checksum = crc32c(frame).to_be_bytes();
        assert_eq!(rest[end + 1..end + 5], checksum);
        frames.push(frame.to_vec());
        rest = &rest[end + 5 + length..];
    }
    frames
}

/// Computes CRC-32C bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

/// Returns the body of an answer, with chunked encoding removed.
fn whole(reply: &Reply) -> Vec<u8> {
    let head = reply.head.to_lowercase();
    if !head.contains("transfer-encoding: chunked") {
        return reply.body.clone();
    }
    let (mut rest, mut out) = (&reply.body[..], Vec::new());
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let length = std::str::from_utf8(&rest[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return out;
        }
        out.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
}

struct Stored {
    server: Server,
    start: i64,
    _folder: tempfile::TempDir,
}

/// Starts a server with external labels and 300 samples of three series.
fn stored(flags: &[&str]) -> Stored {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("firn.yml");
    let labels = "global: {external_labels: {region: eu, zone: z}}\n";
    std::fs::write(&config, labels).unwrap();
    let mut all = vec!["--config", config.to_str().unwrap()];
    all.extend(flags);
    let server = Server::start(&folder.path().join("data"), &all);
    let start = now_ms() - 300_000;
    let samples: Vec<_> = (0..300).map(|i| (start + 1_000 * i, i as f64)).collect();
    let one = |job: &str| Series::new(&[("__name__", "m"), ("job", job)], &samples);
    let own = Series::new(
        &[("__name__", "m"), ("job", "c"), ("zone", "own")],
        &samples,
    );
    let answer = server.http().write(&body(&[one("b"), own, one("a")]));
    assert_eq!(answer.status, 204, "{}", answer.body);
    Stored {
        server,
        start,
        _folder: folder,
    }
}

const FOUND: [&str; 3] = [
    "__name__=m,job=a,region=eu,zone=z",
    "__name__=m,job=b,region=eu,zone=z",
    "__name__=m,job=c,region=eu,zone=own",
];

/// Returns the series of the first query of an answer in one message.
fn series_of(reply: &Reply) -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    snappy::decompress(&whole(reply), 1 << 20, &mut message).unwrap();
    let results = fields(&message, 1);
    assert_eq!(results.len(), 1);
    fields(&results[0], 1)
}

fn names(series: &[Vec<u8>]) -> Vec<String> {
    series.iter().map(|series| labels_of(series)).collect()
}

#[test]
fn remote_read_gives_samples_or_chunks_of_the_same_series() {
    let stored = stored(&["--storage.remote.read-max-bytes-in-frame", "200"]);
    let range = (stored.start + 10_000, stored.start + 289_000);
    let send = |ask: Ask| ask.send(&stored.server.address);
    let reply = send(read_of(&[("__name__", "m")], range, &[]));
    assert_eq!(reply.status, 200);
    let head = reply.head.to_lowercase();
    assert!(
        head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    let series = series_of(&reply);
    assert_eq!(names(&series), FOUND);
    assert!(series.iter().all(|s| fields(s, 2).len() == 280));
    let reply = send(read_of(&[("__name__", "m")], range, &[1, 0]));
    let head = reply.head.to_lowercase();
    assert!(
        head.contains("application/x-streamed-protobuf; proto="),
        "{head}"
    );
    let mut read = Vec::new();
    for frame in frames(&whole(&reply)) {
        let series = &fields(&frame, 1)[0];
        for chunk in fields(series, 2) {
            let data = fields(&chunk, 4).remove(0);
            for sample in TsdbChunkSamples::new(TsdbChunkEncoding::Xor, data).unwrap() {
                let sample = sample.unwrap();
                let TsdbSampleValue::Float(value) = sample.value else {
                    panic!("{sample:?}")
                };
                read.push((labels_of(series), sample.time, value));
            }
        }
    }
    let start = stored.start;
    let want = FOUND.iter().flat_map(|name| {
        let samples = 10..290;
        samples.map(move |i| ((*name).to_owned(), start + 1_000 * i, i as f64))
    });
    assert!(read.iter().cloned().eq(want), "{} samples", read.len());
    // Matchers on external labels match, and the labels are added to the series.
    let labels = [("__name__", "m"), ("region", "eu"), ("zone", "z")];
    let reply = send(read_of(&labels, range, &[]));
    assert_eq!(names(&series_of(&reply)), FOUND[..2]);
}

#[test]
fn remote_read_that_is_wrong_or_too_much_is_told_why() {
    let stored = stored(&["--storage.remote.read-sample-limit", "100"]);
    let range = (stored.start, stored.start + 300_000);
    let everything = read_of(&[("__name__", "m")], range, &[]);
    let unknown = read_of(&[("__name__", "m")], range, &[9]);
    let broken = Ask {
        body: b"\xff\xff\xff".to_vec(),
        ..unknown.clone()
    };
    let no_type = "server does not support any of the requested response types: [9]";
    for (ask, text) in [
        (everything, "exceeded sample limit (100)"),
        (unknown, no_type),
        (broken, "snappy: corrupt input"),
    ] {
        let reply = ask.send(&stored.server.address);
        let told = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, 400, "{told}");
        assert!(told.contains(text), "{told}");
    }
}

#[test]
fn federation_gives_the_newest_samples_of_what_is_selected() {
    let stored = stored(&[]);
    let newest = stored.start + 299_000;
    let get = |path: &str| Ask::get(path).send(&stored.server.address);
    let reply = get("/federate?match[]=m&match[]=%7Bjob=%22a%22%7D");
    let want = format!(
        "# TYPE m untyped\n\
         m{{job=\"a\",instance=\"\",region=\"eu\",zone=\"z\"}} 299 {newest}\n\
         m{{job=\"b\",instance=\"\",region=\"eu\",zone=\"z\"}} 299 {newest}\n\
         m{{job=\"c\",zone=\"own\",instance=\"\",region=\"eu\"}} 299 {newest}\n"
    );
    assert_eq!(String::from_utf8_lossy(&reply.body), want);
    let head = reply.head.to_lowercase();
    let media_type = "content-type: text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    assert!(head.contains(media_type), "{head}");
    for (path, status) in [("/federate", 200), ("/federate?match[]=(", 400)] {
        assert_eq!(get(path).status, status, "{path}");
    }
}

#[test]
fn notification_of_a_config_that_was_refused_is_listed_and_told_live() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("firn.yml");
    std::fs::write(&config, "global: {}\n").unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--web.enable-lifecycle",
        "--web.max-notifications-subscribers",
        "1",
    ];
    let server = Server::start(&folder.path().join("data"), &flags);
    let http = server.http();
    let listed = || {
        let data = http.get("/api/v1/notifications").json()["data"].clone();
        data.as_array().unwrap().clone()
    };
    assert!(listed().is_empty());
    let mut live = TcpStream::connect(&server.address).unwrap();
    live.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = b"GET /api/v1/notifications/live HTTP/1.1\r\nHost: x\r\n\r\n";
    live.write_all(request).unwrap();
    let mut events = BufReader::new(live).lines();
    let mut next = |text: &str| {
        let mut lines = events.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains(text)).unwrap()
    };
    next("text/event-stream");
    let second = Ask::get("/api/v1/notifications/live").send(&server.address);
    assert_eq!(second.status, 204);
    std::fs::write(&config, "global: {nonsense: 1}\n").unwrap();
    assert_eq!(http.post("/-/reload", &[]).status, 500);
    assert!(next("data: ").contains("\"active\":true"));
    let all = listed();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0]["text"], "Configuration reload has failed.");
    std::fs::write(&config, "global: {}\n").unwrap();
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    assert!(next("data: ").contains("\"active\":false"));
    assert!(listed().is_empty());
    drop(events);
    let mut last = None;
    wait_for("the place to be free", || {
        let mut ask = TcpStream::connect(&server.address).unwrap();
        ask.write_all(request).unwrap();
        let mut line = String::new();
        let mut response = BufReader::new(ask);
        response.read_line(&mut line).unwrap();
        last = Some(response);
        line.contains(" 200 ")
    });
    server.signal(Signal::TERM);
    let mut rest = String::new();
    last.unwrap().read_to_string(&mut rest).unwrap();
    assert!(rest.contains("shutting down"), "{rest}");
    assert!(rest.ends_with("\r\n0\r\n\r\n"), "cut off: {rest}");
}

#[test]
fn server_says_what_it_can_and_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--enable-feature", "promql-experimental-functions"];
    let server = Server::start(folder.path(), &flags);
    let http = server.http();
    let features = http.get("/api/v1/features").json()["data"].clone();
    for (category, name, want) in [
        ("promql_functions", "rate", true),
        ("promql_functions", "mad_over_time", true),
        ("promql_operators", "limitk", true),
        ("promql", "fill", false),
        ("api", "admin", false),
        ("templating_functions", "humanize", true),
        ("service_discovery_providers", "http", true),
        ("service_discovery_providers", "static", true),
        ("service_discovery_providers", "azure", true),
        ("service_discovery_providers", "serverset", true),
    ] {
        assert_eq!(features[category][name], want, "{category} {name}");
    }
    let pattern = "/api/v1/status/self_metrics?metric_name_pattern=firn_server_connections.*";
    let metrics = http.get(pattern).json()["data"].clone();
    let metrics = metrics.as_array().unwrap();
    let names: Vec<_> = metrics.iter().map(|metric| &metric["name"]).collect();
    let want = ["firn_server_connections", "firn_server_connections_total"];
    assert_eq!(names, want);
    assert_eq!(metrics[0]["type"], "GAUGE");
    assert!(metrics[0]["metric"][0]["gauge"]["value"].as_f64() >= Some(1.0));
    let wrong = http.get("/api/v1/status/self_metrics?metric_name_pattern=(");
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    let stats = http.get("/api/v1/query?query=vector(1)&stats=all").json();
    let timings = &stats["data"]["stats"]["timings"];
    assert!(timings["execTotalTime"].as_f64() > Some(0.0), "{stats}");
    assert!(timings["execTotalTime"].as_f64() >= timings["innerEvalTime"].as_f64());
}
