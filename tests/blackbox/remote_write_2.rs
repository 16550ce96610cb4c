//! Remote write 2.0 from outside: one case for each requirement of the specification on receivers.
//! `must` contains the sentence.

use crate::harness::http::{Answer, Http};
use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body, compress, push_field, push_uvarint};
use crate::now_ms;

pub const HEADERS: [&str; 3] = [
    "x-prometheus-remote-write-samples-written",
    "x-prometheus-remote-write-histograms-written",
    "x-prometheus-remote-write-exemplars-written",
];

pub const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// Builder of a request, which may be invalid.
#[derive(Default)]
pub struct Request {
    symbols: Vec<Vec<u8>>,
    series: Vec<u8>,
}

/// The encoded fields of a series.
#[derive(Default, Clone)]
pub struct Parts(Vec<u8>);

fn number(out: &mut Vec<u8>, tag: u8, value: u64) {
    out.push(tag);
    push_uvarint(out, value);
}

impl Parts {
    pub fn sample(self, time: i64, value: f64) -> Self {
        self.sample_with_start(time, value, 0)
    }

    fn sample_with_start(mut self, time: i64, value: f64, start: i64) -> Self {
        let mut sample = vec![0x09];
        sample.extend_from_slice(&value.to_le_bytes());
        number(&mut sample, 0x10, time as u64);
        number(&mut sample, 0x18, start as u64);
        push_field(&mut self.0, 0x12, &sample);
        self
    }

    /// Adds an integer histogram with `count` observations, in one bucket.
    pub fn histogram(mut self, time: i64, count: u64, in_bucket: i64) -> Self {
        let mut histogram = Vec::new();
        number(&mut histogram, 0x08, count);
        histogram.push(0x19);
        histogram.extend_from_slice(&3.0f64.to_le_bytes());
        // One span with one bucket, and its delta.
        push_field(&mut histogram, 0x5a, &[0x08, 2, 0x10, 1]);
        push_field(&mut histogram, 0x62, &[2 * in_bucket as u8]);
        number(&mut histogram, 0x78, time as u64);
        push_field(&mut self.0, 0x1a, &histogram);
        self
    }

    /// Adds a float histogram with custom bounds 1 and 2, and a start time.
    fn custom(mut self, time: i64, counts: [f64; 3]) -> Self {
        let mut histogram = vec![0x11];
        histogram.extend_from_slice(&counts.iter().sum::<f64>().to_le_bytes());
        // Schema -53, zigzag-encoded.
        number(&mut histogram, 0x20, 105);
        push_field(&mut histogram, 0x5a, &[0x10, 3]);
        let packed = |values: &[f64]| -> Vec<u8> {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        };
        push_field(&mut histogram, 0x6a, &packed(&counts));
        number(&mut histogram, 0x78, time as u64);
        histogram.extend_from_slice(&[0x82, 0x01]);
        let bounds = packed(&[1.0, 2.0]);
        push_uvarint(&mut histogram, bounds.len() as u64);
        histogram.extend_from_slice(&bounds);
        push_field(&mut self.0, 0x1a, &histogram);
        self
    }

    pub fn exemplar(mut self, refs: &[u64], time: i64, value: f64) -> Self {
        let mut exemplar = Vec::new();
        push_field(&mut exemplar, 0x0a, &packed(refs));
        exemplar.push(0x11);
        exemplar.extend_from_slice(&value.to_le_bytes());
        number(&mut exemplar, 0x18, time as u64);
        push_field(&mut self.0, 0x22, &exemplar);
        self
    }

    pub fn metadata(mut self, kind: u64, help: u64, unit: u64) -> Self {
        let mut metadata = Vec::new();
        number(&mut metadata, 0x08, kind);
        number(&mut metadata, 0x18, help);
        number(&mut metadata, 0x20, unit);
        push_field(&mut self.0, 0x2a, &metadata);
        self
    }

    /// Adds a field that no version has.
    pub fn unknown(mut self) -> Self {
        push_field(&mut self.0, 0x7a, b"of the future");
        self
    }
}

fn packed(refs: &[u64]) -> Vec<u8> {
    let mut packed = Vec::new();
    refs.iter().for_each(|one| push_uvarint(&mut packed, *one));
    packed
}

impl Request {
    pub fn of(symbols: &[&[u8]]) -> Self {
        Self {
            symbols: symbols.iter().map(|symbol| symbol.to_vec()).collect(),
            series: Vec::new(),
        }
    }

    /// Creates a request with symbols for the name `metric`, the label `a="1"`, and `trace_id`,
    /// `x`.
    pub fn named(metric: &str) -> Self {
        let rest: [&[u8]; 6] = [b"a", b"1", b"trace_id", b"x", b"Help.", b"seconds"];
        let mut symbols: Vec<&[u8]> = vec![b"", b"__name__", metric.as_bytes()];
        symbols.extend(rest);
        Self::of(&symbols)
    }

    pub fn series(mut self, refs: &[u64], parts: Parts) -> Self {
        let mut series = Vec::new();
        push_field(&mut series, 0x0a, &packed(refs));
        series.extend_from_slice(&parts.0);
        push_field(&mut self.series, 0x2a, &series);
        self
    }

    fn message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for symbol in &self.symbols {
            push_field(&mut out, 0x22, symbol);
        }
        out.extend_from_slice(&self.series);
        out
    }

    pub fn body(&self) -> Vec<u8> {
        compress(&self.message())
    }
}

pub fn sample() -> Parts {
    Parts::default().sample(now_ms(), 1.0)
}

/// Label references of the metric name only, and of the name with label `a`.
pub const BARE: [u64; 2] = [1, 2];
pub const WITH_A: [u64; 4] = [1, 2, 3, 4];

fn written(answer: &Answer) -> [&str; 3] {
    HEADERS.map(|name| answer.header(name))
}

/// Checks the status of an answer, the three counts, and a part of its text.
#[track_caller]
fn check(must: &str, answer: &Answer, status: u16, counts: [&str; 3], text: &str) {
    let got = (answer.status, written(answer));
    assert_eq!(got, (status, counts), "{must}: {}", answer.body);
    assert!(answer.body.contains(text), "{must}: {}", answer.body);
    let is_empty = answer.body.is_empty();
    assert_eq!(is_empty, status == 204, "{must}: {}", answer.body);
}

fn series_of(http: &Http, metric: &str) -> usize {
    let found = http.query(metric, now_ms());
    found.as_array().map_or(0, Vec::len)
}

#[test]
fn receiver_tells_versions_and_encodings_apart_by_the_headers() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let request = Request::named("negotiated").series(&BARE, sample()).body();
    let send = |content_type: &str, encoding: &str, body: &[u8]| {
        let headers = [
            ("Content-Type", content_type),
            ("Content-Encoding", encoding),
        ];
        http.send("/api/v1/write", &headers, body)
    };
    let none = ["", "", ""];
    let must = "use the content type to identify the message";
    let v1 = "application/x-protobuf";
    let answer = send(v1, "snappy", &request);
    check(must, &answer, 204, none, "");
    assert_eq!(series_of(&http, "negotiated"), 0, "{must}");
    let must = "support io.prometheus.write.v2.Request, compressed with snappy";
    let answer = send(V2, "snappy", &request);
    check(must, &answer, 204, ["1", "0", "0"], "");
    wait_for(must, || series_of(&http, "negotiated") == 1);
    let must = "the first version is still read, and is told no counts";
    let plain = body(&[Series::new(&[("__name__", "plain")], &[(now_ms(), 1.0)])]);
    for content_type in [v1, "application/x-protobuf;proto=prometheus.WriteRequest"] {
        check(must, &send(content_type, "snappy", &plain), 204, none, "");
    }
    let must = "415 for a content type or an encoding that is not supported";
    for content_type in [
        "application/json",
        "text/plain",
        "application/x-protobuf;proto=io.prometheus.write.v3.Request",
        "application/x-protobuf;proto",
    ] {
        check(
            must,
            &send(content_type, "snappy", &request),
            415,
            none,
            "\n",
        );
    }
    for encoding in ["gzip", "zstd", "identity"] {
        check(
            must,
            &send(V2, encoding, &request),
            415,
            none,
            "only snappy",
        );
    }
    let must = "the framed format of snappy is not used";
    let framed = b"\xff\x06\x00\x00sNaPpY\x01\x05\x00\x00\x00\x00\x00\x00\x22";
    check(
        must,
        &send(V2, "snappy", framed),
        400,
        ["0", "0", "0"],
        "snappy",
    );
    let must = "a message that cannot be read is a 4xx, and nothing of it is written";
    let torn = compress(b"\x22\x05ab");
    check(
        must,
        &send(V2, "snappy", &torn),
        400,
        ["0", "0", "0"],
        "protobuf",
    );
}

#[test]
fn receiver_counts_what_is_written_by_kind() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--enable-feature=exemplar-storage"]);
    let http = server.http();
    let now = now_ms();
    let request = Request::named("counted")
        .series(
            &BARE,
            Parts::default()
                .sample(now - 1, 1.0)
                .sample_with_start(now, 2.0, now - 60_000)
                .exemplar(&[5, 6], now - 2, 0.5)
                .exemplar(&[], now - 1, 0.25)
                .metadata(1, 7, 8),
        )
        .series(
            &WITH_A,
            Parts::default()
                .histogram(now, 4, 4)
                .custom(now + 1, [1.0, 0.0, 2.0])
                .exemplar(&[5, 6], now, 1.5)
                .unknown(),
        );
    let must = "the precise number of written samples, histograms and exemplars";
    let answer = http.write_2(&request.body());
    check(must, &answer, 204, ["2", "2", "3"], "");
    let must = "a request that is sent again is written once, and told the same but for an exemplar \
                behind which there is another, as upstream";
    let answer = http.write_2(&request.body());
    check(
        must,
        &answer,
        400,
        ["2", "2", "2"],
        "out of order exemplar for series",
    );
    let custom = http.query("histogram_count(counted{a=\"1\"})", now + 1);
    assert_eq!(custom[0]["value"][1], "3", "{custom}");
    let bounds = http.query("counted{a=\"1\"}", now + 1);
    let buckets = &bounds[0]["histogram"][1]["buckets"];
    assert_eq!(buckets[0][2], "1", "{bounds}");
    let exemplars = http.get(&format!(
        "/api/v1/query_exemplars?query=counted&start=0&end={}",
        now / 1000 + 1
    ));
    let found = exemplars.json();
    let series = found["data"].as_array().unwrap();
    let count = |i: usize| series[i]["exemplars"].as_array().unwrap().len();
    assert_eq!((count(0), count(1)), (2, 1), "{found}");
}

#[test]
fn receiver_without_exemplar_storage_accepts_exemplars() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let parts = sample().exemplar(&[5, 6], now_ms(), 1.0);
    let answer = server
        .http()
        .write_2(&Request::named("m").series(&BARE, parts).body());
    check("exemplars are accepted", &answer, 204, ["1", "0", "1"], "");
}

#[test]
fn receiver_writes_what_is_sound_and_names_the_rest() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--enable-feature=exemplar-storage"];
    let server = Server::start(data.path(), &flags);
    let http = server.http();
    let now = now_ms();
    let old = now - 3 * 3_600_000;
    let one = ["1", "0", "0"];
    let cases: [(&str, &[u64], Parts, &str); 17] = [
        (
            "labels_refs must be provided",
            &[],
            sample(),
            "invalid metric name or labels, got {}",
        ),
        (
            "references come in pairs",
            &[1, 2, 3],
            sample(),
            "invalid labelRefs length 3",
        ),
        (
            "references point into the symbols",
            &[1, 2, 3, 90],
            sample(),
            "labelRefs 3 (name) = 90 (value) outside of symbols table (size 10)",
        ),
        (
            "references of metadata point into the symbols",
            &BARE,
            sample().metadata(1, 90, 0),
            "metadata help_ref 90 outside of symbols table (size 10)",
        ),
        (
            "at least one sample or histogram",
            &BARE,
            Parts::default(),
            "TimeSeries must contain at least one sample or histogram for series {__name__=\"bad\"}",
        ),
        (
            "an exemplar alone is no sample",
            &BARE,
            Parts::default().exemplar(&[5, 6], now, 1.0),
            "TimeSeries must contain at least one sample",
        ),
        (
            "label names do not repeat",
            &[1, 2, 3, 4, 3, 4],
            sample(),
            "invalid labels for series, labels {__name__=\"bad\", a=\"1\", a=\"1\"}, duplicated label a",
        ),
        (
            "label names are not empty",
            &[0, 4, 1, 2],
            sample(),
            "invalid metric name or labels",
        ),
        (
            "a metric has a name",
            &[3, 4],
            sample(),
            "invalid metric name or labels, got {a=\"1\"}",
        ),
        (
            "a metric's name is not empty",
            &[1, 0],
            sample(),
            "invalid metric name or labels",
        ),
        (
            "a sample too far behind is invalid",
            &BARE,
            Parts::default().sample(old, 1.0),
            "too old sample for series {__name__=\"bad\"}",
        ),
        (
            "a sample too far ahead is invalid",
            &BARE,
            Parts::default().sample(now + 3_600_000, 1.0),
            "timestamp is too far in the future for series {__name__=\"bad\"}",
        ),
        (
            "a histogram that contradicts itself is invalid",
            &BARE,
            Parts::default().histogram(now, 5, 4),
            "4 observations found in buckets, but the Count field is 5",
        ),
        (
            "a histogram too far behind is invalid",
            &BARE,
            Parts::default().histogram(old, 4, 4),
            "too old sample for series",
        ),
        (
            "an exemplar too far ahead is invalid",
            &[1, 2, 3, 6],
            sample().exemplar(&[5, 6], now + 3_600_000, 1.0),
            "timestamp of exemplar is too far in the future",
        ),
        (
            "references of exemplars come in pairs",
            &[1, 2, 3, 5],
            sample().exemplar(&[5], now, 1.0),
            "invalid labelRefs length 1; 1 of 1 exemplars dropped: 1 label_refs",
        ),
        (
            "references of exemplars point into the symbols",
            &[1, 2, 3, 2],
            sample().exemplar(&[5, 90], now, 1.0),
            "labelRefs 5 (name) = 90 (value) outside",
        ),
    ];
    for (i, (must, refs, parts, text)) in cases.into_iter().enumerate() {
        let mut request = Request::named("bad").series(refs, parts);
        let good = request.symbols.len() as u64;
        request.symbols.push(format!("good_{i}").into_bytes());
        let request = request.series(&[1, good], sample());
        let counts = if must.contains("exemplar") && !must.contains("alone") {
            ["2", "0", "0"]
        } else {
            one
        };
        check(must, &http.write_2(&request.body()), 400, counts, text);
        let is_there = || series_of(&http, &format!("good_{i}")) == 1;
        wait_for(must, is_there);
    }
    assert_eq!(series_of(&http, "bad{a=\"\"}"), 0);
}

#[test]
fn receiver_takes_what_the_text_allows() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let one = ["1", "0", "0"];
    let utf8 = Request::of(&[
        b"",
        b"__name__",
        "größe".as_bytes(),
        "ä.b".as_bytes(),
        "ö".as_bytes(),
    ]);
    let check_one = |must: &str, request: Request| {
        check(must, &http.write_2(&request.body()), 204, one, "");
    };
    check_one(
        "names and values are any UTF-8",
        utf8.series(&[1, 2, 3, 4], sample()),
    );
    assert_eq!(series_of(&http, "{\"größe\",\"ä.b\"=\"ö\"}"), 1);
    check_one(
        "labels are sorted by the sender, and found in any order",
        Request::named("sorted").series(&[3, 4, 1, 2], sample()),
    );
    assert_eq!(series_of(&http, "sorted{a=\"1\"}"), 1);
    check_one(
        "an empty value is no label, as upstream",
        Request::named("without").series(&[1, 2, 3, 0], sample()),
    );
    assert_eq!(series_of(&http, "without{a=\"\"}"), 1);
    check_one(
        "a start timestamp of zero is none",
        Request::named("unset").series(&BARE, Parts::default().sample_with_start(now_ms(), 1.0, 0)),
    );
    check_one(
        "fields of later versions are passed over",
        Request::named("later").series(&BARE, sample().unknown()),
    );
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    check_one("a series", Request::named("ended").series(&BARE, sample()));
    assert_eq!(series_of(&http, "ended"), 1);
    let end = Parts::default().sample(now_ms() + 1, stale);
    check_one(
        "stale markers are this NaN",
        Request::named("ended").series(&BARE, end),
    );
    let found = http.query("ended", now_ms() + 1_000);
    assert_eq!(found.as_array().map(Vec::len), Some(0), "{found}");
    let must = "an empty request is written";
    check(
        must,
        &http.write_2(&Request::of(&[b""]).body()),
        204,
        ["0", "0", "0"],
        "",
    );
}

#[test]
fn sender_is_told_that_nothing_is_written_while_the_server_starts_or_is_asked_wrong() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let headers = [
        ("Content-Type", V2),
        ("Content-Encoding", "snappy"),
        ("Origin", "http://evil.example"),
    ];
    let request = Request::named("m").series(&BARE, sample()).body();
    let answer = server.http().send("/api/v1/write", &headers, &request);
    check(
        "counts on any answer",
        &answer,
        403,
        ["0", "0", "0"],
        "origin",
    );
}

#[test]
fn starts_become_zeros_where_the_feature_is_on() {
    let data = tempfile::tempdir().unwrap();
    let on = ["--enable-feature=created-timestamp-zero-ingestion"];
    let server = Server::start(data.path(), &on);
    let (http, now) = (server.http(), now_ms() / 1000 * 1000);
    let must = "a zero that is not in order is no error, and zeros are not counted";
    for (time, value) in [(now - 20_000, 3.0), (now - 10_000, 4.0)] {
        let parts = Parts::default().sample_with_start(time, value, now - 30_000);
        let answer = http.write_2(&Request::named("begun").series(&BARE, parts).body());
        check(must, &answer, 204, ["1", "0", "0"], "");
    }
    let found = http.query("begun[1h]", now);
    let at = |before: i64, value: &str| serde_json::json!([(now - before) / 1000, value]);
    let want = [at(30_000, "0"), at(20_000, "3"), at(10_000, "4")];
    assert_eq!(found[0]["values"], serde_json::json!(want), "{found}");
}
