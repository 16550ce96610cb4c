//! Every MUST and MUST NOT of remote write 1.0 and 2.0, for receivers and senders, with the case or
//! the test that checks it.
//!
//! A name contains the version, the section and the requirement. If another test checks it, the
//! table names that test, and its existence is verified.

use crate::harness::http::Answer;
use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body, compress};
use crate::mirror::receiver::{Mood, Receiver, Taken};
use crate::now_ms;
use crate::remote_write_2::{BARE, HEADERS, Parts, Request, V2, WITH_A, sample};
use std::path::Path;

const V1: &str = "application/x-protobuf";
const V1_NAMED: &str = "application/x-protobuf;proto=prometheus.WriteRequest";
const NO_COUNTS: [&str; 3] = ["", "", ""];
const NOTHING: [&str; 3] = ["0", "0", "0"];
const ONE: [&str; 3] = ["1", "0", "0"];

/// A request, and the expected reaction of the receiver: status, counts, and whether the metric
/// `sound` is stored.
type Receives = (
    &'static str,
    (&'static str, &'static str),
    fn() -> Vec<u8>,
    (u16, [&'static str; 3], bool),
);

fn plain(labels: &[(&str, &str)]) -> Series {
    Series::new(labels, &[(now_ms(), 1.0)])
}

fn sound_1() -> Vec<u8> {
    body(&[plain(&[("__name__", "sound")])])
}

fn sound_2() -> Vec<u8> {
    Request::named("sound").series(&BARE, sample()).body()
}

/// Returns a request with a valid sample and an invalid one.
fn partly_1() -> Vec<u8> {
    let repeated = [("__name__", "bad"), ("a", "1"), ("a", "2")];
    body(&[plain(&[("__name__", "sound")]), plain(&repeated)])
}

fn partly_2() -> Vec<u8> {
    let sound = Request::named("sound").series(&BARE, sample());
    sound.series(&[1, 2, 3, 4, 3, 4], sample()).body()
}

fn refused_2() -> Vec<u8> {
    Request::named("sound")
        .series(&[], sample())
        .series(&BARE, Parts::default())
        .body()
}

fn later_2() -> Vec<u8> {
    let parts = sample().unknown();
    Request::named("sound").series(&BARE, parts).body()
}

fn framed() -> Vec<u8> {
    b"\xff\x06\x00\x00sNaPpY\x01\x05\x00\x00\x00\x00\x00\x00\x22".to_vec()
}

fn torn() -> Vec<u8> {
    compress(b"\x22\x05ab")
}

const SNAPPY: &str = "snappy";

const RECEIVER: &[Receives] = &[
    (
        "1.0 compatibility: receiver_of_any_request_of_1_x_reads_it",
        (V1, SNAPPY),
        sound_1,
        (204, NO_COUNTS, true),
    ),
    (
        "1.0 labels: receiver_of_an_invalid_sample_says_400",
        (V1, SNAPPY),
        partly_1,
        (400, NO_COUNTS, true),
    ),
    (
        "1.0 retries: receiver_that_wrote_all_says_2xx",
        (V1, SNAPPY),
        sound_1,
        (204, NO_COUNTS, true),
    ),
    (
        "1.0 retries: receiver_of_what_never_succeeds_says_4xx",
        (V1, SNAPPY),
        torn,
        (400, NO_COUNTS, false),
    ),
    (
        "2.0 protocol: receiver_supports_the_message_of_2_0",
        (V2, SNAPPY),
        sound_2,
        (204, ONE, true),
    ),
    (
        "2.0 protocol: receiver_of_framed_snappy_refuses_it",
        (V2, SNAPPY),
        framed,
        (400, NOTHING, false),
    ),
    (
        "2.0 content encoding: receiver_supports_snappy",
        (V2, SNAPPY),
        sound_2,
        (204, ONE, true),
    ),
    (
        "2.0 content encoding: receiver_reads_it_in_any_case_as_rfc_9110",
        (V2, "Snappy"),
        sound_2,
        (204, ONE, true),
    ),
    (
        "2.0 content type: receiver_reads_it_in_any_case_as_rfc_9110",
        (
            "Application/X-Protobuf; proto=io.prometheus.write.v2.Request",
            SNAPPY,
        ),
        sound_2,
        (204, ONE, true),
    ),
    (
        "2.0 content type: receiver_of_a_message_of_2_0_named_1_0_reads_it_as_1_0",
        (V1, SNAPPY),
        sound_2,
        (204, NO_COUNTS, false),
    ),
    (
        "2.0 content type: receiver_of_a_message_of_1_0_named_1_0_reads_it",
        (V1_NAMED, SNAPPY),
        sound_1,
        (204, NO_COUNTS, true),
    ),
    (
        "2.0 response: receiver_that_wrote_all_says_2xx",
        (V2, SNAPPY),
        sound_2,
        (204, ONE, true),
    ),
    (
        "2.0 response: receiver_that_did_not_write_all_says_no_2xx_and_why",
        (V2, SNAPPY),
        partly_2,
        (400, ONE, true),
    ),
    (
        "2.0 written headers: receiver_sends_each_count_with_success",
        (V2, SNAPPY),
        sound_2,
        (204, ONE, true),
    ),
    (
        "2.0 written headers: receiver_sends_each_count_with_failure",
        (V2, SNAPPY),
        refused_2,
        (400, NOTHING, false),
    ),
    (
        "2.0 partial write: receiver_of_a_partial_write_says_no_2xx",
        (V2, SNAPPY),
        partly_2,
        (400, ONE, true),
    ),
    (
        "2.0 unsupported content: receiver_of_an_unknown_message_says_415",
        (
            "application/x-protobuf;proto=io.prometheus.write.v3.Request",
            SNAPPY,
        ),
        sound_2,
        (415, NO_COUNTS, false),
    ),
    (
        "2.0 unsupported content: receiver_of_an_unknown_encoding_says_415",
        (V2, "zstd"),
        sound_2,
        (415, NO_COUNTS, false),
    ),
    (
        "2.0 invalid samples: receiver_of_invalid_samples_says_400",
        (V2, SNAPPY),
        refused_2,
        (400, NOTHING, false),
    ),
    (
        "2.0 invalid samples: receiver_of_what_never_succeeds_says_4xx",
        (V2, SNAPPY),
        torn,
        (400, NOTHING, false),
    ),
    (
        "2.0 compatibility: receiver_of_any_request_of_2_x_reads_it",
        (V2, SNAPPY),
        later_2,
        (204, ONE, true),
    ),
];

#[test]
fn receiver_does_what_the_texts_demand() {
    for row in RECEIVER {
        check_receiver(row);
    }
}

fn check_receiver((name, (content_type, encoding), body, (status, counts, stores)): &Receives) {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let http = server.http();
    let headers = [
        ("Content-Type", *content_type),
        ("Content-Encoding", *encoding),
    ];
    let answer: Answer = http.send("/api/v1/write", &headers, &body());
    let got = HEADERS.map(|name| answer.header(name));
    assert_eq!((answer.status, got), (*status, *counts), "{name}");
    // The answer explains which samples were not written.
    assert_eq!(answer.body.trim().is_empty(), *status == 204, "{name}");
    let found = http.query("sound", now_ms());
    let is_stored = found.as_array().is_some_and(|series| !series.is_empty());
    assert_eq!(is_stored, *stores, "{name}: {found}");
}

/// A sent series, of either version.
#[derive(Debug, Default)]
struct Seen {
    labels: Vec<(Vec<u8>, Vec<u8>)>,
    times: Vec<i64>,
    histograms: Vec<i64>,
    /// For each exemplar, whether it has a value and a time.
    exemplars: Vec<(bool, bool)>,
    has_refs_inside: bool,
}

/// A sent request.
#[derive(Debug)]
struct Sent {
    is_2: bool,
    line: String,
    headers: Vec<String>,
    is_framed: bool,
    symbols: Vec<Vec<u8>>,
    series: Vec<Seen>,
}

impl Sent {
    fn has(&self, header: &str) -> bool {
        self.headers.iter().any(|line| line == header)
    }
}

/// Returns the fields of a message: tag, and bytes or a number.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>, u64)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let (text, number) = match tag & 7 {
            0 => (Vec::new(), varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                (value.to_vec(), 0)
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                (value.to_vec(), 0)
            }
            other => panic!("wire type {other}"),
        };
        all.push((tag >> 3, text, number));
    }
    all
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().expect("a whole varint");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

fn number_of(message: &[u8], field: u64) -> Option<u64> {
    let mut all = fields(message).into_iter();
    all.find(|(number, ..)| *number == field).map(|(.., n)| n)
}

fn seen(taken: &Taken) -> Sent {
    let is_2 = taken
        .headers
        .iter()
        .any(|line| line.starts_with("content-type:") && line.contains("v2.Request"));
    let message = snap::raw::Decoder::new().decompress_vec(&taken.body);
    let all = fields(&message.expect("a block of snappy"));
    let symbols = all.iter().filter(|(number, ..)| is_2 && *number == 4);
    let symbols: Vec<Vec<u8>> = symbols.map(|(_, text, _)| text.clone()).collect();
    let of_series = [1, 5][usize::from(is_2)];
    let known = |number: &u64| *number == of_series || is_2 && *number == 4;
    assert!(all.iter().all(|(number, ..)| known(number)), "{all:?}");
    let series = all.iter().filter(|(number, ..)| *number == of_series);
    let series = series.map(|(_, bytes, _)| {
        if is_2 {
            series_2(bytes, &symbols)
        } else {
            series_1(bytes)
        }
    });
    Sent {
        is_2,
        line: taken.line.clone(),
        headers: taken.headers.clone(),
        is_framed: taken.body.starts_with(b"\xff\x06\x00\x00sNaPpY"),
        series: series.collect(),
        symbols,
    }
}

fn series_1(bytes: &[u8]) -> Seen {
    let mut seen = Seen {
        has_refs_inside: true,
        ..Seen::default()
    };
    for (number, text, _) in fields(bytes) {
        match number {
            1 => {
                let pair = fields(&text);
                seen.labels.push((pair[0].1.clone(), pair[1].1.clone()));
            }
            2 => seen.times.extend(number_of(&text, 2).map(|t| t as i64)),
            3 => seen.exemplars.push(exemplar(&text)),
            4 => seen
                .histograms
                .extend(number_of(&text, 15).map(|t| t as i64)),
            other => panic!("field {other}"),
        }
    }
    seen
}

fn exemplar(text: &[u8]) -> (bool, bool) {
    (number_of(text, 2).is_some(), number_of(text, 3).is_some())
}

fn series_2(bytes: &[u8], symbols: &[Vec<u8>]) -> Seen {
    let mut seen = Seen {
        has_refs_inside: true,
        ..Seen::default()
    };
    let refs = |mut packed: &[u8]| {
        let mut refs = Vec::new();
        while !packed.is_empty() {
            refs.push(varint(&mut packed) as usize);
        }
        refs
    };
    let mut all = Vec::new();
    for (number, text, _) in fields(bytes) {
        match number {
            1 => {
                let own = refs(&text);
                for pair in own.chunks(2) {
                    let symbol = |at: usize| symbols.get(at).cloned().unwrap_or_default();
                    seen.labels.push((symbol(pair[0]), symbol(pair[1])));
                }
                all.extend(own);
            }
            2 => seen.times.extend(number_of(&text, 2).map(|t| t as i64)),
            3 => seen
                .histograms
                .extend(number_of(&text, 15).map(|t| t as i64)),
            4 => {
                seen.exemplars.push(exemplar(&text));
                let own = fields(&text).into_iter().filter(|(n, ..)| *n == 1);
                all.extend(own.flat_map(|(_, packed, _)| refs(&packed)));
            }
            5 => all.extend((3..=4).filter_map(|n| number_of(&text, n).map(|at| at as usize))),
            other => panic!("field {other}"),
        }
    }
    seen.has_refs_inside = all.iter().all(|at| *at < symbols.len());
    seen
}

/// Requirement on every request of a sender, of both versions.
type Shape = (&'static str, fn(&Sent) -> bool);

const SHAPES: &[Shape] = &[
    (
        "1.0, 2.0 protocol: sender_posts_the_message_to_the_url",
        |sent| sent.line == "POST /api/v1/write HTTP/1.1",
    ),
    (
        "1.0, 2.0 protocol: sender_compresses_with_blocks_of_snappy_not_frames",
        |sent| !sent.is_framed,
    ),
    (
        "1.0, 2.0 protocol: sender_names_snappy_as_content_encoding",
        |sent| sent.has("content-encoding: snappy"),
    ),
    (
        "1.0, 2.0 protocol: sender_names_one_of_three_content_types",
        |sent| {
            sent.has(&format!(
                "content-type: {}",
                [V1, V2][usize::from(sent.is_2)]
            ))
        },
    ),
    (
        "1.0, 2.0 protocol: sender_names_the_version_of_the_message",
        |sent| {
            let version = ["0.1.0", "2.0.0"][usize::from(sent.is_2)];
            sent.has(&format!("x-prometheus-remote-write-version: {version}"))
        },
    ),
    ("1.0, 2.0 protocol: sender_names_itself", |sent| {
        sent.headers
            .iter()
            .any(|line| line.starts_with("user-agent: Firn/"))
    }),
    (
        "1.0, 2.0 labels: sender_sends_the_complete_set_sorted_once_and_not_empty",
        |sent| {
            sent.series.iter().all(|series| {
                let names: Vec<&Vec<u8>> = series.labels.iter().map(|(name, _)| name).collect();
                series
                    .labels
                    .iter()
                    .all(|(n, v)| !n.is_empty() && !v.is_empty())
                    && names.is_sorted_by(|a, b| a < b)
                    && names.iter().any(|name| **name == b"__name__")
                    && names.iter().any(|name| **name == b"region")
            })
        },
    ),
    (
        "1.0 labels: sender_sends_valid_names; 2.0 labels: sender_sends_utf_8",
        |sent| {
            let mut all = sent.series.iter().flat_map(|series| &series.labels);
            all.all(|(n, v)| std::str::from_utf8(n).is_ok() && std::str::from_utf8(v).is_ok())
        },
    ),
    (
        "1.0 ordering, 2.0 samples: sender_sends_a_series_in_order_of_time",
        |sent| {
            let in_order = |times: &[i64]| times.is_sorted_by(|a, b| a < b);
            let mut all = sent.series.iter();
            all.all(|series| in_order(&series.times) && in_order(&series.histograms))
        },
    ),
    (
        "1.0, 2.0 protocol: sender_counts_time_in_milliseconds_as_int64",
        |sent| {
            let mut all = sent
                .series
                .iter()
                .flat_map(|s| s.times.iter().chain(&s.histograms));
            all.all(|time| (now_ms() - time).abs() < 600_000)
        },
    ),
    (
        "2.0 message: sender_gives_labels_and_samples_or_histograms_never_both",
        |sent| {
            let is_one = |s: &Seen| s.times.is_empty() != s.histograms.is_empty();
            !sent.is_2
                || sent
                    .series
                    .iter()
                    .all(|s| !s.labels.is_empty() && is_one(s))
        },
    ),
    (
        "2.0 symbols: sender_gives_symbols_once_and_the_empty_one_first",
        |sent| {
            let mut all = sent.symbols.clone();
            all.sort();
            all.dedup();
            let is_once = all.len() == sent.symbols.len();
            !sent.is_2 || is_once && sent.symbols.first().is_some_and(Vec::is_empty)
        },
    ),
    (
        "2.0 symbols: sender_refers_to_symbols_that_there_are",
        |sent| sent.series.iter().all(|series| series.has_refs_inside),
    ),
    (
        "2.0 exemplars: sender_gives_each_a_value_and_a_time",
        |sent| {
            let mut all = sent.series.iter().flat_map(|series| &series.exemplars);
            all.all(|has| !sent.is_2 || *has == (true, true))
        },
    ),
];

/// Expected fate of a request after a response.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    /// The next request follows, and nothing is lost.
    Taken,
    /// The next request follows, and this one is dropped.
    Refused,
    /// The request is repeated until it is accepted.
    Again,
}

/// A response and the expected reaction of the sender: name, version, status, headers, outcome.
type Sends = (&'static str, bool, u16, &'static str, Outcome);

const WRITTEN: &str = "X-Prometheus-Remote-Write-Samples-Written: 2\r\n\
                       X-Prometheus-Remote-Write-Histograms-Written: 1\r\n\
                       X-Prometheus-Remote-Write-Exemplars-Written: 1\r\n";

const SENDER: &[Sends] = &[
    (
        "2.0 protocol: sender_supports_the_message_of_2_0",
        true,
        204,
        WRITTEN,
        Outcome::Taken,
    ),
    (
        "1.0 protocol: sender_of_a_response_with_a_body_ignores_it",
        false,
        200,
        "",
        Outcome::Taken,
    ),
    (
        "2.0 response: sender_of_a_response_with_a_body_ignores_it",
        true,
        200,
        WRITTEN,
        Outcome::Taken,
    ),
    (
        "1.0 retries: sender_after_2xx_sends_nothing_again",
        false,
        204,
        "",
        Outcome::Taken,
    ),
    (
        "1.0 compatibility: sender_told_of_2_0_goes_on_with_what_is_configured",
        false,
        204,
        "X-Prometheus-Remote-Write-Version: 2.0.0\r\n",
        Outcome::Taken,
    ),
    (
        "1.0 retries: sender_after_4xx_sends_nothing_again",
        false,
        401,
        "",
        Outcome::Refused,
    ),
    (
        "1.0 labels: sender_told_why_a_sample_is_invalid_does_not_interpret_it",
        false,
        400,
        "",
        Outcome::Refused,
    ),
    (
        "1.0 retries: sender_after_5xx_sends_again_with_backoff",
        false,
        500,
        "",
        Outcome::Again,
    ),
    (
        "2.0 invalid samples: sender_after_4xx_sends_nothing_again",
        true,
        422,
        "",
        Outcome::Refused,
    ),
    (
        "2.0 response: sender_told_what_was_not_written_does_not_interpret_it",
        true,
        400,
        WRITTEN,
        Outcome::Refused,
    ),
    (
        "2.0 retries: sender_after_5xx_sends_again_with_backoff",
        true,
        503,
        "",
        Outcome::Again,
    ),
    (
        "2.0 written headers: sender_of_1_0_without_counts_assumes_all",
        false,
        204,
        "X-Prometheus-Remote-Write-Samples-Written: 0\r\n",
        Outcome::Taken,
    ),
    (
        "2.0 written headers: sender_of_2_0_without_counts_assumes_none",
        true,
        204,
        "",
        Outcome::Refused,
    ),
    (
        "2.0 written headers: sender_of_1_0_told_counts_assumes_no_version",
        false,
        204,
        WRITTEN,
        Outcome::Taken,
    ),
];

#[test]
fn sender_does_what_the_texts_demand() {
    for row in SENDER {
        check_sender(row);
    }
}

/// Pushes samples, a histogram and an exemplar, in separate series.
fn push(server: &Server, metric: &str) {
    let now = now_ms();
    let request = Request::named(metric)
        .series(
            &BARE,
            Parts::default().sample(now - 1, 1.0).sample(now, 2.0),
        )
        .series(
            &WITH_A,
            Parts::default()
                .histogram(now, 4, 4)
                .exemplar(&[5, 6], now - 1, 0.5),
        );
    let answer = server.http().write_2(&request.body());
    assert_eq!(answer.status, 204, "{}", answer.body);
}

fn sender(dir: &Path, url: &str, is_2: bool) -> Server {
    let message = if is_2 {
        "  protobuf_message: io.prometheus.write.v2.Request\n"
    } else {
        ""
    };
    let config = format!(
        "global: {{external_labels: {{region: eu}}}}\n\
         scrape_configs: []\n\
         remote_write:\n\
         - url: '{url}'\n\
         \u{20} name: other\n\
         \u{20} send_native_histograms: true\n\
         \u{20} send_exemplars: true\n\
         \u{20} metadata_config: {{send: false}}\n\
         \u{20} queue_config: {{max_backoff: 50ms, batch_send_deadline: 50ms}}\n{message}"
    );
    let file = dir.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    let file = file.display().to_string();
    let flags = [
        "--config",
        file.as_str(),
        "--enable-feature=exemplar-storage",
    ];
    Server::start(&dir.join("data"), &flags)
}

fn check_sender((name, is_2, status, lines, outcome): &Sends) {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start();
    receiver.set(Mood::Says(*status, (*lines).to_owned()));
    let server = sender(dir.path(), &receiver.url(), *is_2);
    push(&server, "first");
    let least = [1, 4][usize::from(*outcome == Outcome::Again)];
    wait_for(name, || receiver.requests() >= least);
    let count = |metric: &str| {
        let metrics = server.http().get("/metrics").body;
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with(metric)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()
    };
    let failed = || count("prometheus_remote_storage_samples_failed_total{");
    let lost = || count("firn_sending_lost_bodies_total{reason=\"refused\"");
    if *outcome != Outcome::Again {
        let refused = u32::from(*outcome == Outcome::Refused);
        let done = || count("firn_sending_sent_bodies_total{") + lost() == 1;
        wait_for(name, done);
        assert_eq!((failed(), lost()), (2 * refused, refused), "{name}");
        let said = server.log().iter().any(|line| line.contains("no-no"));
        // The receiver's text is logged unchanged.
        assert_eq!(said, *status >= 400, "{name}");
    }
    let before = receiver.taken().len();
    receiver.set(Mood::Says(204, WRITTEN.to_owned()));
    push(&server, "second");
    let more = [1, 2][usize::from(*outcome == Outcome::Again)];
    wait_for(name, || receiver.taken().len() >= before + more);
    if *outcome != Outcome::Again {
        // No request was repeated.
        assert_eq!(receiver.requests(), 2, "{name}");
    }
    for taken in receiver.taken() {
        let sent = seen(&taken);
        assert_eq!(sent.is_2, *is_2, "{name}");
        for (shape, holds) in SHAPES {
            assert!(holds(&sent), "{shape} ({name}): {sent:?}");
        }
        let all = |of: fn(&Seen) -> usize| sent.series.iter().map(of).sum::<usize>();
        let got = [
            all(|s| s.times.len()),
            all(|s| s.histograms.len()),
            all(|s| s.exemplars.len()),
        ];
        assert_eq!(got, [2, 1, 1], "{name}");
    }
}

/// Requirements checked by other tests: requirement, file of the test, test.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "1.0, 2.0 protocol: sender_with_a_configured_reserved_header_does_not_start",
        "tests/blackbox/configs.rs",
        "config_that_tries_remotes_is_taken_or_refused_as_upstream",
    ),
    (
        "1.0 compatibility: receiver_reads_what_a_real_sender_of_1_x_sends",
        "tests/sender/main.rs",
        "sender_of_a_real_prometheus_finds_every_sample_in_firn",
    ),
    (
        "1.0 retries: receiver_that_cannot_write_now_says_5xx",
        "tests/blackbox/disk.rs",
        "disk_that_was_full_refuses_writes_meanwhile_and_goes_on_by_itself",
    ),
    (
        "1.0 ordering, out of scope (sharding): sender_in_parallel_keeps_the_order_of_a_series",
        "crates/edge/remote_write/src/outgoing/tests.rs",
        "requests_at_random_keep_each_series_in_order",
    ),
    (
        "1.0, 2.0 retries: sender_backs_off",
        "crates/edge/remote_write/src/queue/tests.rs",
        "target_that_fails_is_asked_again_after_growing_pauses",
    ),
    (
        "1.0, 2.0 stale markers: sender_marks_series_that_vanish",
        "crates/edge/scrape/src/tests.rs",
        "scrape_series_that_vanish_are_marked_stale_once",
    ),
    (
        "2.0 samples: sender_marks_results_of_rules_that_vanish",
        "crates/core/rules/src/machine/tests.rs",
        "group_of_a_calm_world_shows_alerts_that_fire_and_resolve",
    ),
    (
        "1.0, 2.0 stale markers: receiver_takes_this_nan_for_the_end",
        "tests/blackbox/remote_write_2.rs",
        "receiver_takes_what_the_text_allows",
    ),
    (
        "2.0 partial writes: receiver_told_twice_writes_once",
        "tests/blackbox/remote_write_2.rs",
        "receiver_counts_what_is_written_by_kind",
    ),
    (
        "2.0 message, symbols, labels: receiver_refuses_what_breaks_them",
        "tests/blackbox/remote_write_2.rs",
        "receiver_writes_what_is_sound_and_names_the_rest",
    ),
    (
        "2.0 samples: receiver_takes_a_start_of_zero_for_none",
        "tests/blackbox/remote_write_2.rs",
        "receiver_takes_what_the_text_allows",
    ),
    (
        "2.0 exemplars: sender_of_scraped_ones_gives_them_a_time",
        "crates/edge/remote_write/src/outgoing/tests.rs",
        "version_2_carries_start_times_exemplars_and_what_is_known",
    ),
];

#[test]
fn demands_that_other_tests_prove_name_tests_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    for (demand, file, test) in ELSEWHERE {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let head = format!("fn {test}(");
        assert!(text.contains(&head), "{demand}: no {test} in {file}");
    }
}
