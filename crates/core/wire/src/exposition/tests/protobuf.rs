//! Tests the protobuf format with a separate encoder.

use super::*;
use crate::protobuf::{
    WireType, put_bytes, put_double, put_integer, put_key, put_varint, to_zigzag,
};

const NATIVE: ParserSwitches = ParserSwitches {
    type_and_unit_labels: false,
    start_times: false,
    native_histograms: true,
    convert_classic_histograms: false,
    always_classic_histograms: false,
};

/// A message under construction.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn integer(mut self, number: u32, value: u64) -> Self {
        put_integer(&mut self.0, number, value);
        self
    }

    fn double(mut self, number: u32, value: f64) -> Self {
        put_double(&mut self.0, number, value);
        self
    }

    fn text(mut self, number: u32, text: &str) -> Self {
        put_bytes(&mut self.0, number, text.as_bytes());
        self
    }

    fn message(mut self, number: u32, message: Message) -> Self {
        put_bytes(&mut self.0, number, &message.0);
        self
    }

    /// Appends packed signed integers.
    fn deltas(mut self, number: u32, deltas: &[i64]) -> Self {
        let mut packed = Vec::new();
        for delta in deltas {
            put_varint(&mut packed, to_zigzag(*delta));
        }
        put_bytes(&mut self.0, number, &packed);
        self
    }

    fn span(self, number: u32, offset: i64, length: u64) -> Self {
        let span = message().integer(1, to_zigzag(offset)).integer(2, length);
        self.message(number, span)
    }

    fn label(self, name: &str, value: &str) -> Self {
        self.message(1, message().text(1, name).text(2, value))
    }
}

fn message() -> Message {
    Message::default()
}

fn time(seconds: u64, nanos: u64) -> Message {
    message().integer(1, seconds).integer(2, nanos)
}

fn exemplar(trace: &str, value: f64) -> Message {
    message().label("t", trace).double(2, value)
}

fn bucket(bound: f64, count: u64) -> Message {
    message().integer(1, count).double(2, bound)
}

/// Returns a family of one type, preceded by its length.
fn family(name: &str, kind: u64, metrics: &[Message]) -> Vec<u8> {
    let mut family = message().text(1, name).text(2, "help").integer(3, kind);
    for metric in metrics {
        family = family.message(4, metric.clone());
    }
    let mut body = Vec::new();
    put_varint(&mut body, family.0.len() as u64);
    body.extend_from_slice(&family.0);
    body
}

fn check(body: &[u8], switches: ParserSwitches, wanted: &str) {
    let found = read(ExpositionFormat::Protobuf, body, switches);
    // Help and type always precede the samples.
    let found: Vec<&str> = found
        .lines()
        .filter(|line| !line.starts_with("help"))
        .collect();
    assert_eq!(found.join("\n"), wanted);
}

#[test]
fn protobuf_simple_metrics_read_as_upstream() {
    let counter = message()
        .double(1, 3.0)
        .message(2, exemplar("1", 0.5).message(3, time(7, 5_000_000)))
        .message(3, time(1, 999_999));
    let metric = message().label("b", "2").label("a", "").message(3, counter);
    let body = family("c_total", 0, &[metric.clone(), message()]);
    let wanted = "type c_total counter\n\
        {__name__=\"c_total\", a=\"\", b=\"2\"} 3 # {t=\"1\"} 0.5 @7005\n\
        {__name__=\"c_total\"} 0";
    check(&body, NATIVE, wanted);
    let with_starts = ParserSwitches {
        start_times: true,
        ..NATIVE
    };
    let wanted = wanted.replace(" 3 #", " 3 since 1000 #");
    check(&body, with_starts, &wanted);
    let gauge = message()
        .message(2, message().double(1, -1.5))
        .integer(6, 12);
    let mut body = family("g", 1, &[gauge]);
    body.extend(family("empty", 77, &[]));
    body.extend(family(
        "é.u",
        3,
        &[message().message(5, message().double(1, 2.0))],
    ));
    let wanted = "type g gauge\n{__name__=\"g\"} -1.5 @12\ntype é.u unknown\n{__name__=\"é.u\"} 2";
    check(&body, NATIVE, wanted);
    check(b"", NATIVE, "");
}

#[test]
fn protobuf_summary_reads_as_several_series() {
    let quantile = |q: f64, value: f64| message().double(1, q).double(2, value);
    let summary = message()
        .integer(1, 4)
        .double(2, 9.5)
        .message(3, quantile(0.5, 1.0))
        .message(3, quantile(1.0, 7.0));
    let body = family("s", 2, &[message().message(4, summary), message()]);
    let wanted = r#"type s summary
{__name__="s_count"} 4
{__name__="s_sum"} 9.5
{__name__="s", quantile="0.5"} 1
{__name__="s", quantile="1.0"} 7
{__name__="s_count"} 0
{__name__="s_sum"} 0"#;
    check(&body, NATIVE, wanted);
}

fn classic() -> Message {
    message()
        .integer(1, 5)
        .double(2, 8.0)
        .message(3, bucket(1.0, 2).message(3, exemplar("1", 0.5)))
        .message(
            3,
            bucket(2.5, 4).message(3, exemplar("2", 2.0).message(3, time(3, 0))),
        )
}

#[test]
fn protobuf_classic_histogram_reads_as_series_or_with_custom_buckets() {
    let body = family("h", 4, &[message().label("a", "b").message(7, classic())]);
    let series = r#"{__name__="h_count", a="b"} 5
{__name__="h_sum", a="b"} 8
{__name__="h_bucket", a="b", le="1.0"} 2 # {t="1"} 0.5
{__name__="h_bucket", a="b", le="2.5"} 4 # {t="2"} 2 @3000
{__name__="h_bucket", a="b", le="+Inf"} 5"#;
    check(&body, NATIVE, &format!("type h histogram\n{series}"));
    let converting = ParserSwitches {
        convert_classic_histograms: true,
        ..NATIVE
    };
    let custom = r#"{__name__="h", a="b"} integer schema -53 sum 8 count 5, 0 in 0, [2, 0, -1], [] (0:3) () [1.0, 2.5] # {t="2"} 2 @3000"#;
    check(&body, converting, &format!("type h histogram\n{custom}"));
    let both = ParserSwitches {
        always_classic_histograms: true,
        ..converting
    };
    check(
        &body,
        both,
        &format!("type h histogram\n{series}\n{custom}"),
    );
    let shrinking = classic().message(3, bucket(3.0, 1));
    let body = family("h", 5, &[message().message(7, shrinking)]);
    check(
        &body,
        converting,
        "type h gaugehistogram\nerror: count is not cumulative: 1 < 4",
    );
    let floats = message()
        .double(4, 1.5)
        .message(3, message().double(4, 0.5).double(2, 1.0));
    let body = family("h", 5, &[message().message(7, floats)]);
    check(
        &body,
        converting,
        "type h gaugehistogram\n{__name__=\"h\"} gauge float schema -53 sum 0 count 1.5, 0 in 0, \
         [0.5, 1.0], [] (0:2) () [1.0]",
    );
}

fn native() -> Message {
    classic()
        .integer(5, to_zigzag(3))
        .double(6, 0.001)
        .integer(7, 1)
        .span(9, 0, 1)
        .deltas(10, &[1])
        .span(12, -2, 2)
        .span(12, 3, 2)
        .deltas(13, &[2, -2, 1, 0])
}

#[test]
fn protobuf_native_histogram_reads_as_one_sample() {
    let histogram = native()
        .message(16, exemplar("3", 1.0))
        .message(16, exemplar("4", 1.0).message(3, time(9, 0)));
    let body = family("h", 4, &[message().message(7, histogram.clone())]);
    let sample = "{__name__=\"h\"} integer schema 3 sum 8 count 5, 1 in 0.001, [2, -1, 0], [1] \
        (-2:1 4:2) (0:1) []";
    let wanted = format!("type h histogram\n{sample} # {{t=\"4\"}} 1 @9000");
    check(&body, NATIVE, &wanted);
    let both = ParserSwitches {
        always_classic_histograms: true,
        ..NATIVE
    };
    let found = read(ExpositionFormat::Protobuf, &body, both);
    assert_eq!(found.matches("h_").count(), 5, "{found}");
    assert!(found.contains(sample), "{found}");
    let found = read(ExpositionFormat::Protobuf, &body, ParserSwitches::default());
    assert_eq!(
        (found.matches("h_").count(), found.contains("schema")),
        (5, false)
    );
    // A histogram without exemplars of its own yields those of its buckets, for each metric.
    let body = family(
        "h",
        4,
        &[
            message().message(7, native()),
            message().message(7, native()),
        ],
    );
    let found = read(ExpositionFormat::Protobuf, &body, NATIVE);
    assert_eq!(found.matches(" # {t=\"2\"} 2 @3000").count(), 2, "{found}");
}

#[test]
fn protobuf_float_and_gauge_histograms_keep_their_kind() {
    let mut float = message()
        .double(4, 2.5)
        .integer(5, to_zigzag(-4))
        .span(12, 1, 1);
    put_key(&mut float.0, 14, WireType::Fixed64);
    float.0.extend_from_slice(&2.5f64.to_le_bytes());
    let body = family("h", 5, &[message().message(7, float)]);
    let wanted = "type h gaugehistogram\n{__name__=\"h\"} gauge float schema -4 sum 0 count 2.5, \
        0 in 0, [2.5], [] (1:1) () []";
    check(&body, NATIVE, wanted);
    // A span without buckets marks a histogram without observations as native.
    let body = family("h", 4, &[message().message(7, message().span(12, 0, 0))]);
    let wanted = "type h histogram\n{__name__=\"h\"} integer schema 0 sum 0 count 0, 0 in 0, [], \
        [] () () []";
    check(&body, NATIVE, wanted);
}

#[test]
fn protobuf_refusal_has_upstreams_words() {
    let metric = message();
    let with =
        |field: u32, message: Message| family("h", 4, &[self::message().message(field, message)]);
    let mut cut = family("a", 1, std::slice::from_ref(&metric));
    cut.pop();
    let cases: [(Vec<u8>, &str); 11] = [
        (
            cut,
            "clientpb: insufficient length of buffer, expected at least 14 bytes, got 13 bytes",
        ),
        (vec![0xff; 6], "clientpb: invalid varint encountered"),
        (vec![1, 0x0a], "unexpected EOF"),
        (vec![2, 0x08, 0], "proto: wrong wireType = 0 for field Name"),
        (
            family("", 1, std::slice::from_ref(&metric)),
            "invalid metric name: ",
        ),
        (
            family("a", 9, &[metric]),
            "unknown metric type for metric \"a\": 9",
        ),
        (with(1, message().text(1, "")), "invalid label name: "),
        (
            with(7, message().span(12, 0, 2).deltas(13, &[1])),
            "histogram \"h\": positive side: spans require 2 buckets, have 1",
        ),
        (
            with(7, message().span(9, 0, u64::from(u32::MAX))),
            "histogram \"h\": negative side: spans require 4294967295 buckets, have 0",
        ),
        (
            with(7, message().text(5, "x")),
            "proto: wrong wireType = 2 for field Schema",
        ),
        (
            with(6, message()),
            "proto: wrong wireType = 2 for field TimestampMs",
        ),
    ];
    for (body, wanted) in cases {
        let found = read(ExpositionFormat::Protobuf, &body, NATIVE);
        let found = found.lines().find(|line| line.starts_with("error"));
        assert_eq!(found, Some(&*format!("error: {wanted}")));
    }
}

#[test]
fn protobuf_keys_differ_as_their_labels_do() {
    let body = [
        family(
            "h",
            4,
            &[
                message().message(7, classic()),
                message().label("a", "b").message(7, classic()),
            ],
        ),
        family("h", 2, &[message().message(4, message().integer(1, 1))]),
    ]
    .concat();
    let keys = keys_of(ExpositionFormat::Protobuf, &body);
    let (shown, hits) = read_expecting(ExpositionFormat::Protobuf, &body, &keys);
    assert_eq!((keys.len(), hits), (12, 12));
    // The counts of the histogram and of the summary are the same series under two keys.
    let mut unique = keys.clone();
    unique.sort();
    unique.dedup();
    assert_eq!((unique.len(), shown.len()), (12, 12));
}

#[test]
fn protobuf_mutated_never_panics() {
    let sound = [
        family(
            "h",
            4,
            &[
                message().label("a", "b").message(7, native()),
                message().message(7, classic()),
            ],
        ),
        family("s", 2, &[message().message(4, message().integer(1, 1))]),
        family(
            "c",
            0,
            &[message().message(3, message().message(2, exemplar("1", 1.0)))],
        ),
    ]
    .concat();
    let seeds = std::env::var("FIRN_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok());
    for seed in 1..=seeds.unwrap_or(5_000) {
        let random = SimRng::new(seed);
        let mut body = sound.clone();
        for _ in 0..1 + random.next_below(4) {
            let at = random.next_below(body.len() as u64 + 1) as usize;
            match random.next_below(4) {
                0 => body.truncate(at),
                1 if at < body.len() => body[at] ^= 1 << random.next_below(8),
                2 if at < body.len() => drop(body.remove(at)),
                _ => body.insert(at, random.next_below(256) as u8),
            }
        }
        for switches in 0..8 {
            let switches = ParserSwitches {
                native_histograms: switches & 1 != 0,
                convert_classic_histograms: switches & 2 != 0,
                always_classic_histograms: switches & 4 != 0,
                start_times: true,
                type_and_unit_labels: true,
            };
            read(ExpositionFormat::Protobuf, &body, switches);
        }
    }
}
