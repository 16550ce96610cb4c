//! Tests remote write 1.0: requests of real senders, unusual ones, and malformed ones.

mod unread;

use super::*;
use crate::protobuf::{WireType, put_bytes, put_double, put_integer, put_key, put_varint};
use firn_model::batch::HistogramSample;
use firn_model::env::sim::SimRng;
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};
use firn_model::metadata::{MetricMetadata, MetricType};
use firn_model::sample::{START_UNKNOWN, stale_nan};

/// Options for version 1.0 without exemplars.
pub(super) const V1: RemoteWriteOptions = RemoteWriteOptions {
    version: RemoteWriteVersion::V1,
    keeps_exemplars: false,
    labels_types: false,
};

/// Name and value of an encoded label, which need not be UTF-8.
type RawLabel<'a> = (&'a [u8], &'a [u8]);

pub(super) fn one_of<T: Copy>(random: &SimRng, choices: &[T]) -> T {
    choices[random.next_below(choices.len() as u64) as usize]
}

fn label(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, field::LABEL_NAME, name);
    put_bytes(&mut message, field::LABEL_VALUE, value);
    message
}

fn sample(time: i64, value: f64) -> Vec<u8> {
    let mut message = Vec::new();
    put_double(&mut message, field::SAMPLE_VALUE, value);
    put_integer(&mut message, field::SAMPLE_TIME, time as u64);
    message
}

fn series(labels: &[RawLabel<'_>]) -> Vec<u8> {
    let mut message = Vec::new();
    for (name, value) in labels {
        put_bytes(&mut message, field::SERIES_LABEL, &label(name, value));
    }
    put_bytes(&mut message, field::SERIES_SAMPLE, &sample(7, 1.5));
    message
}

fn body(all_series: &[Vec<u8>]) -> Vec<u8> {
    let mut message = Vec::new();
    for series in all_series {
        put_bytes(&mut message, field::REQUEST_SERIES, series);
    }
    snappy::compress(&message)
}

/// Decodes a request and formats its series and rejections as text.
fn decoded(body: &[u8], limits: WireLimits) -> String {
    let mut decoder = RemoteWriteDecoder::new(limits);
    let decoded = match decoder.decode(V1, body) {
        Ok(decoded) => decoded,
        Err(e) => return format!("error: {e}"),
    };
    let mut lines = Vec::new();
    for s in decoded.batch.iter() {
        let samples: Vec<String> = s
            .times
            .iter()
            .zip(s.values)
            .map(|(t, v)| format!("{v}@{t}"))
            .collect();
        lines.push(format!("{} {}", s.labels, samples.join(" ")));
    }
    for refused in decoded.refused.iter() {
        let (refusal, samples) = (refused.refusal, refused.sample_count);
        lines.push(format!("{refusal:?} x{samples}: {}", refused.first));
    }
    lines.join("\n")
}

fn check(labels: &[(&str, &str)], wanted: &str) {
    let labels: Vec<RawLabel<'_>> = labels
        .iter()
        .map(|(n, v)| (n.as_bytes(), v.as_bytes()))
        .collect();
    let body = body(&[series(&labels)]);
    assert_eq!(decoded(&body, WireLimits::default()), wanted);
}

#[test]
fn decode_labels_in_any_state_is_canonical_or_refused() {
    check(
        &[("__name__", "m"), ("a", "1")],
        r#"{__name__="m", a="1"} 1.5@7"#,
    );
    check(
        &[("a", "1"), ("__name__", "m")],
        r#"{__name__="m", a="1"} 1.5@7"#,
    );
    check(&[("__name__", "m"), ("a", "")], r#"{__name__="m"} 1.5@7"#);
    check(
        &[("__name__", "é"), ("ä", "ö")],
        r#"{__name__="é", "ä"="ö"} 1.5@7"#,
    );
    check(
        &[("__name__", "m"), ("a", "1"), ("a", "2")],
        r#"DuplicateLabel x1: invalid labels for series, labels {__name__="m", a="1", a="2"}, duplicated label a"#,
    );
    check(
        &[("__name__", "m"), ("a", "1"), ("b", "2"), ("a", "")],
        r#"DuplicateLabel x1: invalid labels for series, labels {__name__="m", a="1", a="", b="2"}, duplicated label a"#,
    );
    check(
        &[("a", "1")],
        r#"MetricName x1: invalid metric name or labels, got {a="1"}"#,
    );
    check(
        &[("__name__", ""), ("a", "1")],
        r#"MetricName x1: invalid metric name or labels, got {__name__="", a="1"}"#,
    );
    check(
        &[("__name__", "m"), ("", "1")],
        r#"LabelName x1: invalid metric name or labels, got {="1", __name__="m"}"#,
    );
    check(&[], "MetricName x1: invalid metric name or labels, got {}");
}

#[test]
fn decode_invalid_utf8_is_refused_by_where_it_stands() {
    let name: RawLabel<'_> = (b"__name__", b"m");
    let cases: [(&[RawLabel<'_>], &str); 4] = [
        (&[(b"__name__", b"m\xff")], "MetricName"),
        (&[name, (b"a\xff", b"1")], "LabelName"),
        (&[name, (b"a", b"\xc3")], "LabelValue"),
        (&[name, (b"a", &[0xff; 200])], "LabelValue"),
    ];
    for (labels, wanted) in cases {
        let text = decoded(&body(&[series(labels)]), WireLimits::default());
        assert!(text.starts_with(wanted), "{text}");
    }
}

#[test]
fn decode_long_labels_stay_whole() {
    let value = "x".repeat(300);
    let name = "n".repeat(200);
    let wanted = format!(r#"{{__name__="m", b="{value}", {name}="é"}} 1.5@7"#);
    check(&[("__name__", "m"), ("b", &value), (&name, "é")], &wanted);
    let wanted = format!(r#"{{__name__="m", b="{value}", c="d"}} 1.5@7"#);
    check(&[("__name__", "m"), ("b", &value), ("c", "d")], &wanted);
}

#[test]
fn decode_over_a_label_limit_refuses_that_series_alone() {
    let limits = WireLimits {
        label_count_max: 2,
        label_name_bytes_max: 8,
        label_value_bytes_max: 3,
        ..WireLimits::default()
    };
    let m: RawLabel<'_> = (b"__name__", b"m");
    let request = body(&[
        series(&[m, (b"a", b"1"), (b"b", b"1")]),
        series(&[m, (b"abcdefghi", b"1")]),
        series(&[m, (b"a", b"1234")]),
        series(&[m, (b"a", b"1")]),
        series(&[m, (b"a", b"5678")]),
    ]);
    let wanted = "{__name__=\"m\", a=\"1\"} 1.5@7
TooManyLabels x1: too many labels: 3, limit 2 (max_label_names_per_series) for series {__name__=\"m\", a=\"1\"}
LabelNameTooLong x1: label name too long: 9 bytes, limit 8 for series {__name__=\"m\", abcdefghi=\"1\"}
LabelValueTooLong x2: label value too long: 4 bytes, limit 3 for series {__name__=\"m\", a=\"1234\"}";
    assert_eq!(decoded(&request, limits), wanted);
}

#[test]
fn decode_over_a_request_limit_fails_before_memory_is_spent() {
    let m: RawLabel<'_> = (b"__name__", b"m");
    let two = body(&[series(&[m]), series(&[m])]);
    let with = |change: fn(&mut WireLimits)| {
        let mut limits = WireLimits::default();
        change(&mut limits);
        decoded(&two, limits)
    };
    assert_eq!(
        with(|l| l.series_count_max = 1),
        "error: too many series in one request: limit 1"
    );
    assert_eq!(
        with(|l| l.batch_bytes_max = 40),
        "error: too many samples in one request: more than 40 bytes in memory"
    );
    assert_eq!(
        with(|l| l.message_bytes_max = 10),
        "error: message too large: 60 bytes decompressed, limit 10"
    );
    let mut gigabytes = Vec::new();
    put_varint(&mut gigabytes, u64::from(u32::MAX));
    gigabytes.extend_from_slice(b"\x00a");
    assert_eq!(
        decoded(&gigabytes, WireLimits::default()),
        "error: message too large: 4294967295 bytes decompressed, limit 33554432"
    );
    let empty_histograms = [0x22, 0x00].repeat(1 << 16);
    let limits = WireLimits {
        batch_bytes_max: 1 << 20,
        ..WireLimits::default()
    };
    assert_eq!(
        decoded(&body(&[empty_histograms]), limits),
        "error: too many samples in one request: more than 1048576 bytes in memory"
    );
}

#[test]
fn decode_fields_in_any_order_and_unknown_ones_is_understood() {
    let mut s = Vec::new();
    put_integer(&mut s, 99, 1);
    let mut backwards = Vec::new();
    put_integer(&mut backwards, field::SAMPLE_TIME, 5);
    put_key(&mut backwards, 50, WireType::GroupStart);
    put_bytes(&mut backwards, 1, b"inside");
    put_key(&mut backwards, 50, WireType::GroupEnd);
    put_double(&mut backwards, field::SAMPLE_VALUE, 2.0);
    put_bytes(&mut s, field::SERIES_SAMPLE, &backwards);
    put_bytes(&mut s, field::SERIES_EXEMPLAR, b"whatever");
    let mut value_first = Vec::new();
    put_bytes(&mut value_first, field::LABEL_VALUE, b"other");
    put_bytes(&mut value_first, field::LABEL_VALUE, b"m");
    put_bytes(&mut value_first, field::LABEL_NAME, b"__name__");
    put_bytes(&mut s, field::SERIES_LABEL, &value_first);
    put_bytes(&mut s, field::SERIES_SAMPLE, &sample(-3, -0.0));
    put_key(&mut s, 77, WireType::Fixed32);
    s.extend_from_slice(&[1, 2, 3, 4]);
    let mut message = Vec::new();
    let mut metadata = Vec::new();
    put_integer(&mut metadata, field::METADATA_TYPE, 2);
    put_bytes(&mut metadata, field::METADATA_NAME, b"m");
    put_bytes(&mut metadata, field::METADATA_HELP, b"Help.");
    put_bytes(&mut metadata, field::METADATA_UNIT, b"bytes");
    put_bytes(&mut message, field::REQUEST_METADATA, &metadata);
    put_bytes(&mut message, field::REQUEST_METADATA, b"");
    put_bytes(&mut message, field::REQUEST_SERIES, &s);
    put_bytes(&mut message, 2, b"reserved");
    let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
    let body = snappy::compress(&message);
    let decoded = decoder.decode(V1, &body).unwrap();
    assert_eq!(decoded.exemplar_count, 1);
    let said: Vec<_> = decoded.metadata.iter().collect();
    assert_eq!(
        said,
        [MetricMetadata {
            name: "m",
            kind: MetricType::Gauge,
            help: "Help.",
            unit: "bytes"
        }]
    );
    let series = decoded.batch.series(0);
    assert_eq!(series.times, [5, -3]);
    assert_eq!(series.values[1].to_bits(), (-0.0f64).to_bits());
    assert_eq!(series.labels.to_string(), r#"{__name__="m"}"#);
}

#[test]
fn decode_series_without_samples_is_left_out() {
    let mut s = Vec::new();
    put_bytes(&mut s, field::SERIES_LABEL, &label(b"__name__", b"m"));
    assert_eq!(decoded(&body(&[s]), WireLimits::default()), "");
    assert_eq!(decoded(&body(&[]), WireLimits::default()), "");
}

#[test]
fn decode_malformed_body_is_an_error() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "error: snappy: corrupt input"),
        (b"\x05abc", "error: snappy: corrupt input"),
        (b"\xff\xff\xff\xff\xff\xff", "error: snappy: corrupt input"),
        (
            &snappy::compress(b"\x0a"),
            "error: protobuf: unexpected end of message",
        ),
        (
            &snappy::compress(b"\x0a\x05a"),
            "error: protobuf: unexpected end of message",
        ),
        (
            &snappy::compress(b"\x08\x01"),
            "error: protobuf: wrong wire type for a known field",
        ),
        (
            &snappy::compress(b"\x02\x00"),
            "error: protobuf: illegal field number",
        ),
        (
            &snappy::compress(b"\x2e\x00"),
            "error: protobuf: illegal wire type",
        ),
        (
            &snappy::compress(&[0xff; 12]),
            "error: protobuf: integer overflow",
        ),
    ];
    for (bytes, wanted) in cases {
        assert_eq!(decoded(bytes, WireLimits::default()), wanted, "{bytes:?}");
    }
}

pub(super) fn random_histogram(random: &SimRng) -> Histogram {
    let is_custom = random.next_below(3) == 0;
    let lengths = |random: &SimRng| -> Vec<BucketSpan> {
        (0..random.next_below(4))
            .map(|_| BucketSpan {
                offset: random.next_below(4) as i32,
                length: random.next_below(5) as u32,
            })
            .collect()
    };
    let positive_spans = lengths(random);
    let negative_spans = if is_custom {
        Vec::new()
    } else {
        lengths(random)
    };
    let total = |spans: &[BucketSpan]| spans.iter().map(|s| s.length as usize).sum::<usize>();
    let covered: i64 = positive_spans
        .iter()
        .map(|s| i64::from(s.offset) + i64::from(s.length))
        .sum();
    let (p, n) = (total(&positive_spans), total(&negative_spans));
    let zero = if is_custom { 0 } else { random.next_below(9) };
    let counts = if random.next_below(2) == 0 {
        let positive: Vec<i64> = (0..p).map(|_| random.next_below(300) as i64).collect();
        let negative: Vec<i64> = (0..n).map(|_| random.next_below(300) as i64).collect();
        let sum_of = |deltas: &[i64]| {
            let absolute = deltas.iter().scan(0, |a, d| {
                *a += d;
                Some(*a)
            });
            absolute.sum::<i64>() as u64
        };
        HistogramCounts::Integer {
            count: zero + sum_of(&positive) + sum_of(&negative),
            zero_count: zero,
            positive,
            negative,
        }
    } else {
        HistogramCounts::Float {
            count: random.next_below(1000) as f64 / 3.0,
            zero_count: zero as f64,
            positive: (0..p)
                .map(|_| random.next_below(300) as f64 / 7.0)
                .collect(),
            negative: (0..n)
                .map(|_| random.next_below(300) as f64 / 7.0)
                .collect(),
        }
    };
    Histogram {
        reset_hint: one_of(
            random,
            &[
                ResetHint::Unknown,
                ResetHint::Reset,
                ResetHint::NotReset,
                ResetHint::Gauge,
            ],
        ),
        schema: if is_custom {
            CUSTOM_BUCKETS_SCHEMA
        } else {
            random.next_below(13) as i32 - 4
        },
        zero_threshold: if is_custom { 0.0 } else { 1e-9 },
        sum: random.next_below(1000) as f64 / 11.0,
        counts,
        positive_spans,
        negative_spans,
        custom_values: if is_custom {
            (0..covered).map(|i| i as f64 / 2.0).collect()
        } else {
            Vec::new()
        },
    }
}

pub(super) fn random_batch(random: &SimRng) -> Batch {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        f64::INFINITY,
        stale_nan(),
        f64::MIN_POSITIVE,
    ];
    let times = [0, 1, -1, i64::MAX, i64::MIN, 1_700_000_000_000];
    let mut batch = Batch::default();
    for i in 0..random.next_below(20) {
        let mut pairs = vec![("__name__".to_owned(), format!("m{i}"))];
        for l in 0..random.next_below(12) {
            let value = one_of(random, &["v", "é", "a longer value", "\0"]);
            let long = 1 + random.next_below(3) * 90;
            pairs.push((format!("l{l}"), value.repeat(long as usize)));
        }
        let labels = firn_model::labels::Labels::from_pairs(pairs);
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        for _ in 0..random.next_below(3) {
            batch.push_float(one_of(random, &times), one_of(random, &values));
        }
        for _ in 0..random.next_below(3) {
            batch.push_histogram(HistogramSample {
                time: one_of(random, &times),
                start_time: START_UNKNOWN,
                histogram: random_histogram(random),
            });
        }
        match batch.sample_count() {
            0 => batch.drop_series(),
            _ => batch.end_series(),
        }
    }
    batch
}

/// Formats a batch as text that differs if any bit does.
pub(super) fn bits(batch: &Batch) -> String {
    let mut text = String::new();
    for s in batch.iter() {
        let values: Vec<u64> = s.values.iter().map(|v| v.to_bits()).collect();
        let histograms = format!("{:?}", s.histograms);
        if !(values.is_empty() && s.histograms.is_empty()) {
            text += &format!("{} {:?} {values:?} {histograms}\n", s.labels, s.times);
        }
    }
    text
}

#[test]
fn decode_of_encode_is_identity() {
    for seed in 1..=300 {
        let batch = random_batch(&SimRng::new(seed));
        let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
        let body = encode(&batch);
        let decoded = decoder.decode(V1, &body).unwrap();
        assert!(
            decoded.refused.is_empty(),
            "seed {seed}: {:?}",
            decoded.refused
        );
        assert_eq!(bits(decoded.batch), bits(&batch), "seed {seed}");
    }
}

#[test]
fn decode_of_mutated_bytes_never_panics_and_keeps_the_caps() {
    let limits = WireLimits {
        message_bytes_max: 1 << 16,
        batch_bytes_max: 1 << 16,
        series_count_max: 100,
        ..WireLimits::default()
    };
    let mut decoder = RemoteWriteDecoder::new(limits);
    for seed in 1..=3_000 {
        let random = SimRng::new(seed);
        let batch = random_batch(&random);
        let mut message = encode::encode_message(&batch);
        for _ in 0..random.next_below(8) {
            mutate(&random, &mut message);
        }
        let mut body = snappy::compress(&message);
        if random.next_below(4) == 0 {
            mutate(&random, &mut body);
        }
        if let Ok(decoded) = decoder.decode(V1, &body) {
            for series in decoded.batch.iter() {
                let canonical = firn_model::labels::is_canonical(series.labels.as_bytes());
                assert!(canonical, "seed {seed}");
                let valid = series
                    .histograms
                    .iter()
                    .all(|h| h.histogram.validate().is_ok());
                assert!(valid, "seed {seed}");
            }
        }
        // Growth by doubling may use twice the reserved size in each of the columns.
        let memory = decoder.memory_bytes();
        assert!(memory < 8 << 16, "seed {seed}: {memory} bytes");
    }
}

pub(super) fn mutate(random: &SimRng, bytes: &mut Vec<u8>) {
    let at = random.next_below(bytes.len() as u64 + 1) as usize;
    match random.next_below(5) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, random.next_below(256) as u8),
        2 if at < bytes.len() => drop(bytes.remove(at)),
        3 => {
            let piece = bytes[at / 2..at].to_vec();
            bytes.splice(at..at, piece);
        }
        _ if at < bytes.len() => bytes[at] ^= 1 << random.next_below(8),
        _ => {}
    }
}

fn exemplar(labels: &[RawLabel<'_>], value: f64, time: i64) -> Vec<u8> {
    let mut message = Vec::new();
    for (name, value) in labels {
        put_bytes(&mut message, field::EXEMPLAR_LABEL, &label(name, value));
    }
    put_double(&mut message, field::EXEMPLAR_VALUE, value);
    put_integer(&mut message, field::EXEMPLAR_TIME, time as u64);
    message
}

#[test]
fn decode_exemplars_that_are_kept_go_with_their_series() {
    let name: RawLabel<'_> = (b"__name__", b"m");
    let mut first = series(&[name]);
    let id: RawLabel<'_> = (b"trace_id", b"1");
    for part in [
        exemplar(&[id, (b"empty", b"")], 0.5, 9),
        exemplar(&[(b"z", b"\xff"), id], 1.0, 0),
        exemplar(&[(b"\xff", b"x")], 2.0, 10),
    ] {
        put_bytes(&mut first, field::SERIES_EXEMPLAR, &part);
    }
    let of = |labels: &[RawLabel<'_>], exemplar: &[u8]| {
        let mut message = Vec::new();
        for (name, value) in labels {
            put_bytes(&mut message, field::SERIES_LABEL, &label(name, value));
        }
        put_bytes(&mut message, field::SERIES_EXEMPLAR, exemplar);
        message
    };
    let alone = of(&[name, (b"a", b"1")], &exemplar(&[id], -0.0, -5));
    let nameless = of(&[(b"a", b"1")], &exemplar(&[id], 3.0, 11));
    let body = body(&[first, nameless, alone]);
    let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
    for keeps in [false, true, false] {
        let reader = RemoteWriteOptions {
            keeps_exemplars: keeps,
            ..V1
        };
        let decoded = decoder.decode(reader, &body).unwrap();
        let exemplars = decoded.batch.exemplars();
        if !keeps {
            assert_eq!((decoded.exemplar_count, exemplars.len()), (5, 0));
            assert_eq!(decoded.batch.series_count(), 1);
            continue;
        }
        let found: Vec<String> = exemplars
            .iter()
            .map(|(series, e)| {
                let own = if e.has_own_time { "" } else { "?" };
                let series = decoded.batch.series(series as usize).labels;
                format!("{series} {} {}@{}{own}", e.labels, e.value, e.time)
            })
            .collect();
        assert_eq!(
            found,
            [
                r#"{__name__="m"} {trace_id="1"} 0.5@9"#,
                "{__name__=\"m\"} {trace_id=\"1\", z=\"\\xff\"} 1@0?",
                r#"{} {trace_id="1"} 3@11"#,
                r#"{__name__="m", a="1"} {trace_id="1"} -0@-5"#,
            ]
        );
        let refused: Vec<_> = decoded.refused.iter().map(|r| r.sample_count).collect();
        assert_eq!(refused, [0]);
    }
    let torn = of(&[name], b"whatever");
    let reader = RemoteWriteOptions {
        keeps_exemplars: true,
        ..V1
    };
    assert!(decoder.decode(reader, &self::body(&[torn])).is_err());
}
