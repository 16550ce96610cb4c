//! Requests to read, and answers of both forms, written and read by hand.

use super::*;
use crate::protobuf::{ProtobufCursor, put_bytes, put_integer};
use crate::snappy;
use firn_model::budget::{Budget, Reservation};
use firn_model::columns::SeriesBatch;
use firn_model::error::ErrorKind;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_prometheus_tsdb::{TsdbChunkEncoding, TsdbChunkSamples, TsdbSampleValue};

/// A message with these fields.
fn message(fields: &[(u32, Result<u64, Vec<u8>>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, value) in fields {
        match value {
            Ok(integer) => put_integer(&mut out, *number, *integer),
            Err(bytes) => put_bytes(&mut out, *number, bytes),
        }
    }
    out
}

fn matcher(kind: u64, name: &str, value: &str) -> Vec<u8> {
    message(&[(1, Ok(kind)), (2, Err(name.into())), (3, Err(value.into()))])
}

#[test]
fn request_is_read_with_its_hints_and_the_forms_that_it_takes() {
    let hints = message(&[(2, Err(b"series".to_vec())), (3, Ok(12)), (4, Ok(18))]);
    let query = message(&[
        (1, Ok(10)),
        (2, Ok(20)),
        (3, Err(matcher(0, "__name__", "up"))),
        (3, Err(matcher(3, "job", "a|b"))),
        (4, Err(hints)),
        (9, Ok(1)),
    ]);
    let plain = message(&[(1, Ok(10)), (2, Ok(20))]);
    let body = message(&[(1, Err(query)), (1, Err(plain)), (2, Err(vec![7, 1, 0]))]);
    let request = decode(&snappy::compress(&body)).unwrap();
    assert_eq!(
        request.response_type(),
        Ok(ReadResponseType::StreamedXorChunks)
    );
    let [query, plain] = &request.queries[..] else {
        panic!("{request:?}")
    };
    assert_eq!(query.range, TimeRange::new(12, 18));
    assert!(query.is_about_series);
    let texts: Vec<_> = query.matchers.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["__name__=\"up\"", "job!~\"a|b\""]);
    assert_eq!(plain.range, TimeRange::new(10, 20));
    assert!(!plain.is_about_series && plain.matchers.is_empty());
}

#[test]
fn request_names_the_form_of_its_answer() {
    let of = |accepted: &[u8]| {
        let body = message(&[(2, Err(accepted.to_vec()))]);
        let request = decode(&snappy::compress(&body)).unwrap();
        request.response_type().map_err(|e| e.message)
    };
    assert_eq!(of(&[]), Ok(ReadResponseType::Samples));
    assert_eq!(of(&[0, 1]), Ok(ReadResponseType::Samples));
    assert_eq!(of(&[1, 0]), Ok(ReadResponseType::StreamedXorChunks));
    let none = "server does not support any of the requested response types: [5 6]; supported: \
                map[SAMPLES:{} STREAMED_XOR_CHUNKS:{}]";
    assert_eq!(of(&[5, 6]), Err(none.to_owned()));
}

#[test]
fn request_that_is_malformed_or_too_much_is_refused() {
    let query = |fields: &[(u32, Result<u64, Vec<u8>>)]| {
        snappy::compress(&message(&[(1, Err(message(fields)))]))
    };
    let many = vec![(1, Err(Vec::new())); 1001];
    let cases = [
        (b"\xff\xff".to_vec(), ErrorKind::Invalid),
        (snappy::compress(b"\x0a\x05"), ErrorKind::Invalid),
        (query(&[(1, Err(Vec::new()))]), ErrorKind::Invalid),
        (query(&[(3, Err(matcher(4, "a", "b")))]), ErrorKind::Invalid),
        (query(&[(3, Err(matcher(2, "a", "(")))]), ErrorKind::Invalid),
        (snappy::compress(&message(&many)), ErrorKind::Limited),
        (snappy::compress(&vec![0; 33 << 20]), ErrorKind::Limited),
    ];
    for (body, want) in cases {
        assert_eq!(decode(&body).unwrap_err().kind, want);
    }
}

fn series() -> (Labels, Labels, SeriesBatch) {
    let labels = Labels::from_pairs([("__name__", "m"), ("b", "c"), ("region", "own")]);
    let external = Labels::from_pairs([("a", "x"), ("region", "eu"), ("z", "y")]);
    let times: Vec<i64> = (0..300).map(|i| 1_000 * i).collect();
    let values: Vec<f64> = (0..300).map(f64::from).collect();
    let mut batch = SeriesBatch::default();
    batch.push(&times, &values, &[], []);
    (labels, external, batch)
}

/// The bytes of the fields of this number.
fn fields(message: &[u8], wanted: u32) -> Vec<&[u8]> {
    let mut cursor = ProtobufCursor::new(message);
    let mut found = Vec::new();
    while let Some((number, wire_type)) = cursor.read_field().unwrap() {
        if number == wanted {
            found.push(cursor.read_bytes().unwrap())
        } else {
            cursor.skip(wire_type).unwrap()
        }
    }
    found
}

fn label_texts(series: &[u8]) -> Vec<String> {
    let text = |label: &[u8]| {
        let part = |number| String::from_utf8(fields(label, number)[0].to_vec()).unwrap();
        format!("{}={}", part(1), part(2))
    };
    fields(series, 1).into_iter().map(text).collect()
}

const LABELS: [&str; 5] = ["__name__=m", "a=x", "b=c", "region=own", "z=y"];

#[test]
fn message_of_samples_has_a_result_for_each_query() {
    let (labels, external, batch) = series();
    let mut answer = SamplesResponseBuilder::default();
    answer.push(labels.as_ref(), &external, Some(batch.series(0)));
    answer.end_query();
    answer.push(labels.as_ref(), &external, None);
    answer.end_query();
    answer.end_query();
    let mut message = Vec::new();
    snappy::decompress(&answer.finish(), 1 << 20, &mut message).unwrap();
    let results = fields(&message, 1);
    assert_eq!(results.len(), 3);
    let counts: Vec<_> = results
        .iter()
        .map(|result| {
            fields(result, 1)
                .iter()
                .map(|s| fields(s, 2).len())
                .collect()
        })
        .collect::<Vec<Vec<_>>>();
    assert_eq!(counts, [vec![300], vec![0], vec![]]);
    assert_eq!(label_texts(fields(results[0], 1)[0]), LABELS);
}

#[test]
fn frames_have_a_length_a_checksum_and_chunks_of_one_series() {
    let (labels, external, batch) = series();
    let mut out = Vec::new();
    // Room for one chunk a frame.
    let mut frames = ChunkedResponseBuilder::new(100, external);
    frames
        .push(&mut out, 3, labels.as_ref(), batch.series(0))
        .unwrap();
    let mut rest = ProtobufCursor::new(&out);
    let (mut values, mut count) = (Vec::new(), 0);
    while !rest.rest().is_empty() {
        let length = rest.read_varint().unwrap() as usize;
        let (checksum, behind) = rest.rest().split_at(4);
        let (frame, behind) = behind.split_at(length);
        assert_eq!(checksum, crc32c::crc32c(frame).to_be_bytes());
        rest = ProtobufCursor::new(behind);
        count += 1;
        assert_eq!(frame[frame.len() - 2..], [0x10, 3]);
        let series = fields(frame, 1)[0];
        assert_eq!(label_texts(series), LABELS);
        for chunk in fields(series, 2) {
            let data = fields(chunk, 4)[0];
            let samples = TsdbChunkSamples::new(TsdbChunkEncoding::Xor, data).unwrap();
            for sample in samples {
                let sample = sample.unwrap();
                let TsdbSampleValue::Float(value) = sample.value else {
                    panic!("{sample:?}")
                };
                values.push((sample.time, value));
            }
        }
    }
    assert_eq!(count, 3);
    let want: Vec<_> = (0..300).map(|i| (1_000 * i, i as f64)).collect();
    assert_eq!(values, want);
}

#[test]
fn question_is_read_as_it_was_asked() {
    let matchers = [
        Matcher::new("__name__", MatchOp::Equal, b"up").unwrap(),
        Matcher::new("job", MatchOp::NotRegex, b"a|b").unwrap(),
        Matcher::new("x", MatchOp::Regex, b".+").unwrap(),
        Matcher::new("y", MatchOp::NotEqual, b"").unwrap(),
    ];
    for (range, is_about_series) in [
        (TimeRange::new(-5, 20), false),
        (TimeRange::new(10, 20), true),
    ] {
        let question = OutgoingReadRequest {
            range,
            matchers: &matchers,
            is_about_series,
        };
        let request = decode(&question.encode()).unwrap();
        assert_eq!(
            request.response_type(),
            Ok(ReadResponseType::StreamedXorChunks)
        );
        let [query] = &request.queries[..] else {
            panic!("{request:?}")
        };
        assert_eq!(
            (query.range, query.is_about_series),
            (range, is_about_series)
        );
        let asked: Vec<_> = matchers.iter().map(ToString::to_string).collect();
        let read: Vec<_> = query.matchers.iter().map(ToString::to_string).collect();
        assert_eq!(read, asked);
    }
}

#[test]
fn frame_of_a_series_without_samples_gives_its_labels() {
    let (labels, external, _) = series();
    let mut out = Vec::new();
    ChunkedResponseBuilder::new(100, external).push_labels(&mut out, 0, labels.as_ref());
    let read = read_frames(&out, 16, TimeRange::ALL, 1 << 20).unwrap();
    let [series] = &read[..] else {
        panic!("{read:?}")
    };
    let all = LABELS.map(|pair| pair.split_once('=').unwrap());
    assert_eq!(series.labels, Labels::from_pairs(all));
    assert!(series.samples.is_empty());
}

fn memory() -> Reservation {
    Budget::new("test", 1 << 20).create_reservation()
}

/// The series of an answer in frames that comes in pieces of `piece` bytes.
fn read_frames(
    body: &[u8],
    piece: usize,
    range: TimeRange,
    frame_bytes_max: u64,
) -> Result<Vec<RemoteReadSeries>, String> {
    let mut memory = memory();
    let mut reader = ChunkFrameReader::new(range, frame_bytes_max);
    for piece in body.chunks(piece) {
        reader.push(piece, &mut memory).map_err(|e| e.message)?;
    }
    reader.finish().map_err(|e| e.message)
}

/// Returns a response in each form, and the labels of its series.
fn answers() -> (Vec<u8>, Vec<u8>, Labels) {
    let (labels, external, batch) = series();
    let mut message = SamplesResponseBuilder::default();
    message.push(labels.as_ref(), &external, Some(batch.series(0)));
    message.end_query();
    let mut frames = Vec::new();
    let mut writer = ChunkedResponseBuilder::new(100, external);
    let pushed = writer.push(&mut frames, 0, labels.as_ref(), batch.series(0));
    pushed.unwrap();
    let all = LABELS.map(|pair| pair.split_once('=').unwrap());
    (message.finish(), frames, Labels::from_pairs(all))
}

#[test]
fn answer_of_either_form_gives_the_samples_in_the_range() {
    let (message, frames, labels) = answers();
    let range = TimeRange::new(10_000, 250_500);
    let sampled = decode_samples(&message, range, &mut memory()).unwrap();
    let [series] = &sampled[..] else {
        panic!("{sampled:?}")
    };
    assert_eq!(series.labels, labels);
    let read = series
        .samples
        .iter()
        .map(|sample| (sample.time, sample.value));
    assert!(read.eq((10..=250).map(|i| (1_000 * i, i as f64))));
    for piece in [1, 7, 4096] {
        assert_eq!(
            read_frames(&frames, piece, range, 1 << 20).unwrap(),
            sampled
        );
    }
}

#[test]
fn answer_that_is_malformed_or_too_much_is_refused() {
    let (message, frames, _) = answers();
    let all = TimeRange::ALL;
    let told = |body: &[u8], max| read_frames(body, 64, all, max).unwrap_err();
    assert_eq!(told(&frames[..frames.len() - 1], 1 << 20), "unexpected EOF");
    let text = "chunkedReader: message size exceeded the limit 50 bytes; got: ";
    assert!(told(&frames, 50).starts_with(text));
    for at in 0..frames.len() {
        let mut broken = frames.clone();
        broken[at] ^= 0x10;
        assert!(
            read_frames(&broken, 4096, all, 1 << 20).is_err(),
            "byte {at}"
        );
    }
    let sampled = |body: &[u8], limit| {
        let mut memory = Budget::new("test", limit).create_reservation();
        let read = decode_samples(body, all, &mut memory);
        read.map(|series| series.len())
            .map_err(|e| (e.kind, e.message))
    };
    assert_eq!(sampled(&message, 1 << 20), Ok(1));
    assert_eq!(sampled(&message, 6_000).unwrap_err().0, ErrorKind::Limited);
    let none = "responses: want 1, got 0".to_owned();
    assert_eq!(
        sampled(&snappy::compress(b""), 1 << 20),
        Err((ErrorKind::Invalid, none))
    );
    let label = |name: &str| message_of_label(name);
    let twice = [label("a"), label("a")].concat();
    let result = self::message(&[(1, Err(twice))]);
    let body = snappy::compress(&self::message(&[(1, Err(result))]));
    let duplicate = "duplicate label with name: a".to_owned();
    assert_eq!(
        sampled(&body, 1 << 20),
        Err((ErrorKind::Invalid, duplicate))
    );
}

fn message_of_label(name: &str) -> Vec<u8> {
    let label = message(&[(1, Err(name.into())), (2, Err(b"x".to_vec()))]);
    message(&[(1, Err(label))])
}
