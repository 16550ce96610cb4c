//! Tests remote write 2.0: requests equal to those of version 1.0, and malformed ones.

use super::encode::encode_message;
use super::*;
use crate::protobuf::{put_bytes, put_double, put_integer, put_varint};
use crate::remote_write::tests::{V1, bits, mutate, random_batch};
use crate::remote_write::{RemoteWriteDecoder, RemoteWriteOptions, RemoteWriteVersion, encode};
use crate::snappy;
use firn_model::batch::{BatchSource, SeriesSamples};
use firn_model::env::sim::SimRng;
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::Labels;
use firn_model::metadata::MetricMetadata;

const V2: RemoteWriteOptions = RemoteWriteOptions {
    version: RemoteWriteVersion::V2,
    ..V1
};

/// Encodes a request from its symbols and its series.
fn body(symbols: &[&[u8]], all_series: &[Vec<u8>]) -> Vec<u8> {
    let mut message = Vec::new();
    for symbol in symbols {
        put_bytes(&mut message, field::REQUEST_SYMBOL, symbol);
    }
    for series in all_series {
        put_bytes(&mut message, field::REQUEST_SERIES, series);
    }
    snappy::compress(&message)
}

fn packed(refs: &[u32]) -> Vec<u8> {
    let mut packed = Vec::new();
    refs.iter()
        .for_each(|number| put_varint(&mut packed, (*number).into()));
    packed
}

/// Encodes a series from these references and further fields.
fn series(refs: &[u32], parts: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut series = Vec::new();
    put_bytes(&mut series, field::SERIES_LABEL_REFS, &packed(refs));
    for (number, part) in parts {
        put_bytes(&mut series, *number, part);
    }
    series
}

fn sample(time: i64, value: f64, start: i64) -> (u32, Vec<u8>) {
    let mut part = Vec::new();
    put_double(&mut part, 1, value);
    put_integer(&mut part, 2, time as u64);
    put_integer(&mut part, 3, start as u64);
    (field::SERIES_SAMPLE, part)
}

fn metadata(kind: u64, help: u32, unit: u32) -> (u32, Vec<u8>) {
    let mut part = Vec::new();
    put_integer(&mut part, field::METADATA_TYPE, kind);
    put_integer(&mut part, field::METADATA_HELP, help.into());
    put_integer(&mut part, field::METADATA_UNIT, unit.into());
    (field::SERIES_METADATA, part)
}

fn exemplar(refs: &[u32], value: f64, time: i64) -> (u32, Vec<u8>) {
    let mut part = Vec::new();
    put_bytes(&mut part, field::EXEMPLAR_LABEL_REFS, &packed(refs));
    put_double(&mut part, 2, value);
    put_integer(&mut part, 3, time as u64);
    (field::SERIES_EXEMPLAR, part)
}

/// Decodes a request and formats its series, rejections and metadata as text.
fn decoded(reader: RemoteWriteOptions, body: &[u8]) -> String {
    let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
    let decoded = match decoder.decode(reader, body) {
        Ok(decoded) => decoded,
        Err(e) => return format!("error: {e}"),
    };
    let mut lines = Vec::new();
    for (i, s) in decoded.batch.iter().enumerate() {
        let mut line = s.labels.to_string();
        for (k, (time, value)) in s.times.iter().zip(s.values).enumerate() {
            line += &format!(" {value}@{time}");
            if let Some(start) = s.start_times.get(k).filter(|start| **start != 0) {
                line += &format!("<{start}");
            }
        }
        for e in decoded.batch.exemplars().iter_series(i as u64) {
            line += &format!(" # {} {}@{}", e.labels, e.value, e.time);
        }
        lines.push(line);
    }
    let all = [
        ("", &decoded.refused),
        ("exemplar ", &decoded.refused_exemplars),
    ];
    for (what, refused) in all
        .iter()
        .flat_map(|(what, all)| all.iter().map(move |r| (what, r)))
    {
        let (refusal, samples) = (refused.refusal, refused.sample_count);
        lines.push(format!("{what}{refusal:?} x{samples}: {}", refused.first));
    }
    for said in decoded.metadata.iter() {
        let kind = said.kind.name();
        lines.push(format!(
            "{}: {kind} {:?} {:?}",
            said.name, said.help, said.unit
        ));
    }
    lines.join("\n")
}

const SYMBOLS: &[&[u8]] = &[
    b"",
    b"__name__",
    b"m",
    b"job",
    b"x",
    b"Help.",
    b"seconds",
    b"trace_id",
    b"\xff",
    b"__type__",
];

fn check(all_series: &[Vec<u8>], wanted: &str) {
    assert_eq!(decoded(V2, &body(SYMBOLS, all_series)), wanted);
}

#[test]
fn decode_resolves_references() {
    let parts = [sample(7, 1.5, 0), sample(9, 2.5, 3), metadata(1, 5, 6)];
    check(
        &[
            series(&[1, 2, 3, 4], &parts),
            series(&[1, 2], &[sample(7, 0.0, 0), metadata(1, 5, 6)]),
        ],
        "{__name__=\"m\", job=\"x\"} 1.5@7 2.5@9<3\n{__name__=\"m\"} 0@7\nm: counter \"Help.\" \"seconds\"",
    );
    // In any order, and with an empty value.
    check(
        &[series(&[3, 4, 1, 2, 7, 0], &[sample(7, 1.0, 0)])],
        r#"{__name__="m", job="x"} 1@7"#,
    );
    let with = [
        sample(7, 1.0, 0),
        exemplar(&[7, 4], 0.5, 6),
        exemplar(&[], 0.25, 0),
    ];
    check(
        &[series(&[1, 2], &with)],
        r#"{__name__="m"} 1@7 # {trace_id="x"} 0.5@6 # {} 0.25@0"#,
    );
}

#[test]
fn decode_refuses_what_cannot_stand_and_takes_the_rest() {
    let one = || vec![sample(7, 1.0, 0)];
    let good = series(&[1, 2], &one());
    let cases: [(Vec<u8>, &str); 11] = [
        (
            series(&[1, 2, 3], &one()),
            "LabelRefs x1: parsing labels for series [1 2 3]: invalid labelRefs length 3",
        ),
        (
            series(&[1, 2, 3, 99], &one()),
            "LabelRefs x1: parsing labels for series [1 2 3 99]: labelRefs 3 (name) = 99 (value) outside of symbols table (size 10)",
        ),
        (
            series(&[], &one()),
            "MetricName x1: invalid metric name or labels, got {}",
        ),
        (
            series(&[3, 4], &one()),
            "MetricName x1: invalid metric name or labels, got {job=\"x\"}",
        ),
        (
            series(&[1, 2, 3, 4, 3, 4], &one()),
            "DuplicateLabel x1: invalid labels for series, labels {__name__=\"m\", job=\"x\", job=\"x\"}, duplicated label job",
        ),
        (
            series(&[0, 4, 1, 2], &one()),
            "LabelName x1: invalid metric name or labels, got {=\"x\", __name__=\"m\"}",
        ),
        (
            series(&[1, 2, 3, 8], &one()),
            "LabelValue x1: invalid metric name or labels, got {__name__=\"m\", job=\"\u{fffd}\"}",
        ),
        (
            series(&[1, 2], &[]),
            "NoSamples x0: TimeSeries must contain at least one sample or histogram for series {__name__=\"m\"}",
        ),
        (
            series(&[1, 2], &[exemplar(&[], 1.0, 2), metadata(1, 5, 6)]),
            "NoSamples x0: TimeSeries must contain at least one sample or histogram for series {__name__=\"m\"}",
        ),
        (
            series(&[1, 2], &[sample(7, 1.0, 0), metadata(1, 5, 10)]),
            "MetadataRefs x1: parsing metadata for series [1 2]: metadata unit_ref 10 outside of symbols table (size 10)",
        ),
        (
            series(&[1, 2], &[sample(7, 1.0, 0), metadata(1, 10, 0)]),
            "MetadataRefs x1: parsing metadata for series [1 2]: metadata help_ref 10 outside of symbols table (size 10)",
        ),
    ];
    for (bad, wanted) in cases {
        let wanted = format!("{{__name__=\"m\"}} 1@7\n{wanted}");
        check(&[bad, good.clone()], &wanted);
    }
    let odd = [
        sample(7, 1.0, 0),
        exemplar(&[7], 1.0, 2),
        exemplar(&[7, 4], 1.0, 2),
    ];
    check(
        &[series(&[1, 2], &odd)],
        "{__name__=\"m\"} 1@7 # {trace_id=\"x\"} 1@2\nexemplar LabelRefs x1: parsing exemplar for series {__name__=\"m\"}: invalid labelRefs length 1",
    );
}

#[test]
fn decode_without_symbols_refuses_by_metadata() {
    assert_eq!(
        decoded(V2, &body(&[], &[series(&[], &[sample(7, 1.0, 0)])])),
        "MetadataRefs x1: parsing metadata for series []: metadata unit_ref 0 outside of symbols table (size 0)"
    );
    assert_eq!(decoded(V2, &body(&[], &[])), "");
}

#[test]
fn decode_reads_references_that_are_not_packed_and_symbols_that_follow() {
    let mut loose = Vec::new();
    for number in [1, 2, 3, 4] {
        // The default value zero would be omitted; these numbers are not zero.
        put_integer(&mut loose, field::SERIES_LABEL_REFS, number);
    }
    let (number, part) = sample(7, 1.0, 0);
    put_bytes(&mut loose, number, &part);
    let mut message = Vec::new();
    put_bytes(&mut message, field::REQUEST_SERIES, &loose);
    for symbol in SYMBOLS {
        put_bytes(&mut message, field::REQUEST_SYMBOL, symbol);
    }
    assert_eq!(
        decoded(V2, &snappy::compress(&message)),
        r#"{__name__="m", job="x"} 1@7"#
    );
}

#[test]
fn decode_makes_labels_of_type_and_unit_where_asked() {
    let reader = RemoteWriteOptions {
        labels_types: true,
        ..V2
    };
    let with = |refs: &[u32], said| series(refs, &[sample(7, 1.0, 0), said]);
    let body = body(
        SYMBOLS,
        &[
            with(&[1, 2, 9, 4], metadata(2, 5, 6)),
            with(&[1, 2, 9, 4], metadata(0, 5, 0)),
            with(&[1, 2, 3, 4], metadata(3, 0, 0)),
        ],
    );
    assert_eq!(
        decoded(reader, &body),
        "{__name__=\"m\", __type__=\"gauge\", __unit__=\"seconds\"} 1@7\n\
         {__name__=\"m\", __type__=\"x\"} 1@7\n\
         {__name__=\"m\", __type__=\"histogram\", job=\"x\"} 1@7\n\
         m: gauge \"Help.\" \"seconds\"\n\
         m: unknown \"Help.\" \"\"\n\
         m: histogram \"\" \"\""
    );
}

#[test]
fn decode_of_a_message_of_the_other_version_is_empty() {
    let mut batch = Batch::default();
    let labels = Labels::from_pairs([("__name__", "m")]);
    batch.push_series(labels.as_ref(), &[(7, 1.0)]);
    assert_eq!(decoded(V2, &encode(&batch)), "");
    let interned = encode_interned(&batch, &MetadataBatch::default());
    assert_eq!(decoded(V1, &interned), "");
}

#[test]
fn decode_malformed_message_is_an_error() {
    let cases: [(&[u8], &str); 5] = [
        (b"\x22", "error: protobuf: unexpected end of message"),
        (b"\x22\x05a", "error: protobuf: unexpected end of message"),
        (
            b"\x28\x01",
            "error: protobuf: wrong wire type for a known field",
        ),
        (
            b"\x22\x00\x2a\x02\x10\x01",
            "error: protobuf: wrong wire type for a known field",
        ),
        (
            b"\x22\x00\x2a\x03\x0a\x01\xff",
            "error: protobuf: unexpected end of message",
        ),
    ];
    for (message, wanted) in cases {
        assert_eq!(
            decoded(V2, &snappy::compress(message)),
            wanted,
            "{message:?}"
        );
    }
}

/// Returns a batch that also has long labels, start timestamps and exemplars.
fn any_batch(random: &SimRng) -> Batch {
    let mut batch = random_batch(random);
    for i in 0..random.next_below(4) {
        let long = "v".repeat(random.next_below(400) as usize + 1);
        let labels =
            Labels::from_pairs([("__name__", "long"), ("i", &i.to_string()), ("l", &long)]);
        batch.label_bytes().extend_from_slice(labels.as_bytes());
        batch.push_float_with_start(9 + i as i64, 1.0, random.next_below(2) as i64);
        if random.next_below(2) == 0 {
            batch.push_exemplar(TimedExemplar {
                labels: labels.as_ref(),
                value: i as f64,
                time: 5,
                has_own_time: true,
            });
        }
        batch.end_series();
    }
    batch
}

fn starts(batch: &Batch) -> Vec<Vec<i64>> {
    let one = |s: SeriesSamples<'_>| match s.start_times {
        [] => vec![0; s.times.len()],
        starts => starts.to_vec(),
    };
    let has_any = |s: &SeriesSamples<'_>| !(s.times.is_empty() && s.histograms.is_empty());
    batch.iter().filter(has_any).map(one).collect()
}

#[test]
fn decode_of_encode_is_identity_and_has_the_keys_of_version_1() {
    let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
    for seed in 1..=300 {
        let batch = any_batch(&SimRng::new(seed));
        let body = encode_interned(&batch, &MetadataBatch::default());
        let one = encode(&batch);
        let mut plain = RemoteWriteDecoder::new(WireLimits::default());
        let plain = plain.decode_within(V1, &one, None).unwrap();
        let mut interned = decoder.decode_within(V2, &body, None).unwrap();
        let keys = |batch: &Batch| -> Vec<Vec<u8>> {
            let keys = (0..batch.series_count()).filter_map(|i| batch.key(i));
            keys.map(<[u8]>::to_vec).collect()
        };
        assert_eq!(keys(interned.batch), keys(plain.batch), "seed {seed}");
        let all: Vec<u32> = (0..interned.batch.series_count() as u32).collect();
        interned.read_labels(&all).unwrap();
        assert_eq!(bits(interned.batch), bits(&batch), "seed {seed}");
        assert_eq!(starts(interned.batch), starts(&batch), "seed {seed}");
        let of_long = batch.exemplars().len();
        assert_eq!(interned.batch.exemplars().len(), of_long, "seed {seed}");
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
        let mut said = MetadataBatch::default();
        said.push(MetricMetadata {
            name: "long",
            help: "A sentence.",
            ..MetricMetadata::default()
        });
        let mut message = encode_message(&any_batch(&random), &said);
        for _ in 0..random.next_below(8) {
            mutate(&random, &mut message);
        }
        let reader = RemoteWriteOptions {
            labels_types: random.next_below(4) == 0,
            ..V2
        };
        if let Ok(decoded) = decoder.decode(reader, &snappy::compress(&message)) {
            for series in decoded.batch.iter() {
                let canonical = firn_model::labels::is_canonical(series.labels.as_bytes());
                assert!(canonical, "seed {seed}");
            }
        }
        let memory = decoder.memory_bytes();
        assert!(memory < 12 << 16, "seed {seed}: {memory} bytes");
    }
}

#[test]
fn decode_of_references_that_repeat_a_long_symbol_is_stopped_by_the_caps() {
    let long = vec![b'v'; 16 << 10];
    let name = [b"n".repeat(8)];
    let one = series(&[1, 2, 3, 4], &[sample(7, 1.0, 0)]);
    let all_series = vec![one; 4_000];
    let body = body(&[b"", b"__name__", b"m", &name[0], &long], &all_series);
    assert!(body.len() < 1 << 17, "{}", body.len());
    assert_eq!(
        decoded(V2, &body),
        "error: too many samples in one request: more than 134217728 bytes in memory"
    );
}
