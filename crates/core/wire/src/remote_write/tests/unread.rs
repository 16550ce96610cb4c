//! Compares requests whose labels are decoded on demand with a simple decoder that decodes
//! everything at once.

use super::*;
use crate::protobuf::{ProtobufCursor, expect_wire_type};
use firn_model::batch::BatchSource;

/// The result of the simple decoder.
#[derive(Default)]
struct Plain {
    batch: Batch,
    refused: WriteRejections,
    exemplars: usize,
}

/// Decodes every series with the reference implementation of labels, and every part with its own
/// cursor.
fn plain_decode(message: &[u8], limits: &WireLimits) -> Result<Plain, WireError> {
    let mut plain = Plain::default();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        if number != field::REQUEST_SERIES {
            cursor.skip(wire_type)?;
            continue;
        }
        expect_wire_type(wire_type, WireType::Bytes)?;
        let series = cursor.read_bytes()?;
        let at = message.len() - cursor.rest().len() - series.len();
        plain_series(series, at, limits, &mut plain)?;
    }
    Ok(plain)
}

fn plain_series(
    series: &[u8],
    at: usize,
    limits: &WireLimits,
    plain: &mut Plain,
) -> Result<(), WireError> {
    let mut lost: Vec<Error> = Vec::new();
    let mut samples = 0;
    let mut cursor = ProtobufCursor::new(series);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::SERIES_LABEL..=field::SERIES_HISTOGRAM => {
                expect_wire_type(wire_type, WireType::Bytes)?
            }
            _ => {
                cursor.skip(wire_type)?;
                continue;
            }
        }
        let part = cursor.read_bytes()?;
        match number {
            field::SERIES_SAMPLE => {
                plain_sample(part, &mut plain.batch)?;
                samples += 1;
            }
            field::SERIES_EXEMPLAR => plain.exemplars += 1,
            field::SERIES_HISTOGRAM => {
                histogram::memory_bytes(part)?;
                let sample = histogram::decode(part)?;
                match sample.histogram.validate() {
                    Ok(()) => {
                        plain.batch.push_histogram(sample);
                        samples += 1;
                    }
                    Err(e) => lost.push(e),
                }
            }
            _ => {}
        }
    }
    let arena = plain.batch.label_bytes();
    let start = arena.len();
    match labels::decode_labels(series, limits, arena)? {
        Ok(()) => {
            let labels = firn_model::labels::LabelsRef::from_canonical(&arena[start..]);
            if let Some(why) = lost.first() {
                plain
                    .refused
                    .add(at, WriteRejectionReason::Histogram, lost.len(), || {
                        format!("{why} for series {labels}")
                    });
            }
            match samples {
                0 => plain.batch.drop_series(),
                _ => plain.batch.end_series(),
            }
        }
        Err(offence) => {
            let all = samples + lost.len();
            plain
                .refused
                .add(at, offence.refusal, all, || offence.message);
            plain.batch.drop_series();
        }
    }
    Ok(())
}

fn plain_sample(part: &[u8], batch: &mut Batch) -> Result<(), WireError> {
    let (mut time, mut value) = (0, 0.0);
    let mut cursor = ProtobufCursor::new(part);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::SAMPLE_VALUE => {
                expect_wire_type(wire_type, WireType::Fixed64)?;
                value = cursor.read_double()?;
            }
            field::SAMPLE_TIME => {
                expect_wire_type(wire_type, WireType::Varint)?;
                time = cursor.read_varint()? as i64;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    batch.push_float(time, value);
    Ok(())
}

/// Returns a label, sometimes with its fields swapped or duplicated, or with an overlong length.
fn random_label(random: &SimRng) -> Vec<u8> {
    let names: [&[u8]; 8] = [
        b"__name__",
        b"a",
        b"b",
        b"job",
        b"instance",
        b"zone",
        b"\xff",
        b"a_name_of_more_than_twenty",
    ];
    let name = one_of(random, &names);
    let long = "v".repeat(random.next_below(200) as usize);
    let values: [&[u8]; 6] = [b"x", b"GET", b"\xc3\xa9", b"", b"\xc3", long.as_bytes()];
    let value = match name {
        b"__name__" => &b"metric"[..],
        _ => one_of(random, &values),
    };
    let mut message = Vec::new();
    match random.next_below(16) {
        0 => {
            put_bytes(&mut message, field::LABEL_VALUE, value);
            put_bytes(&mut message, field::LABEL_NAME, name);
        }
        1 => {
            put_bytes(&mut message, field::LABEL_NAME, b"other");
            message.extend_from_slice(&label(name, value));
        }
        2 => {
            put_key(&mut message, field::LABEL_NAME, WireType::Bytes);
            message.extend_from_slice(&[name.len() as u8 | 0x80, 0]);
            message.extend_from_slice(name);
            put_bytes(&mut message, field::LABEL_VALUE, value);
        }
        _ => message = label(name, value),
    }
    message
}

/// Returns a series, of a form that senders use or could use.
fn random_series(random: &SimRng) -> Vec<u8> {
    let mut labels: Vec<Vec<u8>> = vec![label(b"__name__", b"metric")];
    for _ in 0..random.next_below(6) {
        labels.push(random_label(random));
    }
    if random.next_below(3) > 0 {
        labels.sort();
        labels.dedup_by(|b, a| a.get(1..4) == b.get(1..4));
    }
    let mut message = Vec::new();
    let times = [0, 7, -1, 1_700_000_000_000, 1 << 35, (1 << 35) - 1, 1 << 42];
    let values = [0.0, -0.0, 1.5, f64::NAN];
    let late = random.next_below(12) as usize;
    for (i, label) in labels.iter().enumerate() {
        if i == late {
            let sample = sample(one_of(random, &times), one_of(random, &values));
            put_bytes(&mut message, field::SERIES_SAMPLE, &sample);
        }
        put_bytes(&mut message, field::SERIES_LABEL, label);
    }
    let parts = one_of(random, &[1, 1, 1, 0, 2, 3]);
    for _ in 0..parts {
        match random.next_below(8) {
            0 => put_bytes(&mut message, field::SERIES_EXEMPLAR, b"any"),
            1 => {
                let sample = HistogramSample {
                    time: 9,
                    start_time: START_UNKNOWN,
                    histogram: random_histogram(random),
                };
                let mut batch = Batch::default();
                batch.push_histogram(sample);
                batch.end_series();
                let encoded = encode::encode_message(&batch);
                let mut cursor = ProtobufCursor::new(&encoded);
                cursor.read_field().unwrap();
                message.extend_from_slice(cursor.read_bytes().unwrap());
            }
            // An inconsistent histogram: one bucket without a span.
            2 => put_bytes(&mut message, field::SERIES_HISTOGRAM, b"\x62\x01\x02"),
            _ => {
                let sample = sample(one_of(random, &times), one_of(random, &values));
                put_bytes(&mut message, field::SERIES_SAMPLE, &sample);
            }
        }
    }
    message
}

fn random_message(random: &SimRng) -> Vec<u8> {
    let mut message = Vec::new();
    for _ in 0..random.next_below(8) {
        put_bytes(&mut message, field::REQUEST_SERIES, &random_series(random));
    }
    if random.next_below(4) == 0 {
        mutate(random, &mut message);
    }
    message
}

/// The result of a request: its samples as text, their number, exemplars, rejections, and the
/// number of undecoded series.
type Whole = (String, usize, usize, WriteRejections, usize);

fn read_in_any_order(
    mut decoded: DecodedWriteRequest<'_>,
    random: &SimRng,
) -> Result<Whole, Error> {
    let count = decoded.batch.series_count() as u32;
    let keys = (0..count as usize).map(|i| decoded.batch.key(i).map(<[u8]>::to_vec));
    let keys: Vec<Option<Vec<u8>>> = keys.collect();
    let unread = keys.iter().flatten().count();
    // Twice, because decoded series remain decoded.
    let mut order: Vec<u32> = (0..count).chain(0..count).collect();
    for i in 0..order.len() {
        let other = random.next_below(order.len() as u64) as usize;
        order.swap(i, other);
    }
    for series in order {
        decoded.read_labels(&[series])?;
    }
    for (i, key) in keys.iter().enumerate() {
        let mut of_labels = Vec::new();
        KEY_FORMAT.push_key(&mut of_labels, decoded.batch.series(i).labels);
        let differs = key.as_ref().is_some_and(|key| *key != of_labels);
        assert_eq!(decoded.batch.key_may_differ(i), differs, "{of_labels:?}");
    }
    let text = bits(decoded.batch);
    let samples = decoded.batch.sample_count();
    let exemplars = decoded.exemplar_count;
    Ok((text, samples, exemplars, decoded.finish()?, unread))
}

#[test]
fn decode_of_random_requests_equals_reading_everything_at_once() {
    let limits = WireLimits {
        label_count_max: 5,
        label_name_bytes_max: 20,
        label_value_bytes_max: 150,
        ..WireLimits::default()
    };
    let mut decoder = RemoteWriteDecoder::new(limits);
    let (mut refused, mut unread) = (0, 0);
    for seed in 1..=5_000 {
        let random = SimRng::new(seed);
        let message = random_message(&random);
        let expected = plain_decode(&message, &limits);
        let body = snappy::compress(&message);
        let outcome = decoder
            .decode_within(V1, &body, None)
            .map_err(Error::from)
            .and_then(|decoded| read_in_any_order(decoded, &random));
        match (outcome, expected) {
            (Ok((text, samples, exemplars, refusals, left)), Ok(plain)) => {
                unread += left;
                assert_eq!(text, bits(&plain.batch), "seed {seed}");
                assert_eq!(samples, plain.batch.sample_count(), "seed {seed}");
                assert_eq!(exemplars, plain.exemplars, "seed {seed}");
                assert_eq!(refusals, plain.refused, "seed {seed}");
                refused += refusals.iter().count();
            }
            (outcome, expected) => assert_eq!(outcome.is_err(), expected.is_err(), "seed {seed}"),
        }
    }
    assert!(refused > 500 && unread > 5_000, "{refused} {unread}");
}

#[test]
fn decode_leaves_the_labels_of_plain_series_as_they_came() {
    let labels = firn_model::labels::Labels::from_pairs([("__name__", "m"), ("a", "1")]);
    let mut batch = Batch::default();
    for (time, value) in [
        (1_700_000_000_000, 1.0),
        (1_700_000_000_000, 0.0),
        (-1, 2.0),
    ] {
        batch.push_series(labels.as_ref(), &[(time, value)]);
    }
    let mut key = Vec::new();
    KEY_FORMAT.push_key(&mut key, labels.as_ref());
    let body = encode(&batch);
    let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
    let decoded = decoder.decode_within(V1, &body, None).unwrap();
    for (i, series) in batch.iter().enumerate() {
        assert_eq!(decoded.batch.key(i), Some(&key[..]));
        assert_eq!(decoded.batch.series(i).times, series.times);
        assert_eq!(decoded.batch.series(i).values, series.values);
    }
}
