//! Frames of random values: round trips, cut bytes, and bytes that differ.

use super::batches::{
    KeyForm, NOW, describe_batch, describe_columns, end_series, labels, random_batch,
    random_histogram, random_value,
};
use super::for_seeds;
use crate::failure::PeerFailure;
use crate::frames::answers::{
    OpenedSelection, decode_column, decode_exemplars, decode_labels, decode_metadata,
    decode_opened, decode_strings, decode_texts, encode_column, encode_exemplars, encode_labels,
    encode_metadata, encode_opened, encode_strings,
};
use crate::frames::append::{decode_append, encode_append};
use crate::frames::append_parts::{decode_answers, encode_answers, join_parts, split_parts};
use crate::frames::columns::{decode_columns, encode_columns};
use crate::frames::outcome::{PeerAppended, PeerSeriesRejection, decode_appended, encode_appended};
use crate::frames::requests::{
    MatcherText, PartitionScope, PeerReadRequest, SeriesRequest, TenantScope, TimedReadRequest,
};
use crate::service::ReadConsistency;
use firn_model::batch::{Batch, BatchSource};
use firn_model::budget::Budget;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::env::sim::SimRng;
use firn_model::error::ErrorKind;
use firn_model::exemplar::{ExemplarResult, SeriesExemplarResult};
use firn_model::fingerprint::{HashKeys, SeriesHash};
use firn_model::labels::Labels;
use firn_model::log::JournalRecord;
use firn_model::matcher::MatchOp;
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_model::sample::TimeRange;
use firn_model::series_key::CanonicalKeys;
use firn_model::store::{
    AppendBounds, AppendOutcome, ExemplarRejection, LateSamplePolicy, RejectedExemplars,
    RejectedSamples, SampleRejection,
};
use firn_model::tenant::TenantId;
use firn_wire::WireLimits;
use firn_wire::remote_write::{DecodedWriteRequest, KEY_FORMAT};
use std::sync::Arc;

fn hash(rng: &SimRng) -> SeriesHash {
    SeriesHash {
        keys: Arc::new(HashKeys::new(rng)),
        format: KEY_FORMAT,
    }
}

/// Checks that each prefix of a frame is rejected, and that no changed byte causes a panic.
fn check_bytes(rng: &SimRng, bytes: &[u8], decodes: impl Fn(&[u8]) -> bool) {
    assert!(decodes(bytes));
    for end in 0..bytes.len() {
        assert!(!decodes(&bytes[..end]), "{end} of {} bytes", bytes.len());
    }
    let longer = [bytes, &[0]].concat();
    assert!(!decodes(&longer), "a byte behind the frame");
    for _ in 0..200 {
        let mut changed = bytes.to_vec();
        if let Some(byte) = changed.get_mut(rng.next_below(bytes.len() as u64) as usize) {
            *byte ^= 1 << rng.next_below(8);
        }
        decodes(&changed);
    }
}

fn read_all_labels(batch: &mut Batch) {
    let limits = WireLimits::default();
    let all: Vec<u32> = (0..batch.series_count() as u32).collect();
    let mut source = DecodedWriteRequest::of_keys(batch, &limits);
    source.read_labels(&all).expect("keys of valid series");
}

#[test]
fn append_frame_of_a_random_batch_is_decoded_to_all_its_bits() {
    for_seeds(200, |seed| {
        let rng = SimRng::new(seed);
        let (hash, limits) = (hash(&rng), WireLimits::default());
        let mut batch = random_batch(&rng, 20, NOW);
        let bounds = AppendBounds {
            late: LateSamplePolicy::OfAnyAge,
            in_order_min: -7,
            newest: [None, Some(NOW)][rng.next_below(2) as usize],
            ..AppendBounds::up_to(NOW + 1)
        };
        let tenant = TenantId::anonymous();
        let encoded = {
            let mut source = DecodedWriteRequest::of_keys(&mut batch, &limits);
            encode_append(3, &tenant, &mut source, &hash, bounds).expect("a valid batch")
        };
        let mut decoded = Batch::default();
        let frame = decode_append(encoded.frame(), &mut decoded).expect("an encoded frame");
        assert_eq!((frame.partition, &frame.tenant), (3, &tenant));
        assert_eq!(format!("{:?}", frame.bounds), format!("{bounds:?}"));
        assert!(frame.has_hash_keys(&hash.keys));
        assert!(!frame.has_hash_keys(&HashKeys::new(&rng)));
        for index in 0..decoded.series_count() {
            let key = decoded.key(index).expect("an undecoded key");
            assert_eq!(frame.prints[index], hash.keys.fingerprint(key));
        }
        read_all_labels(&mut decoded);
        read_all_labels(&mut batch);
        assert_eq!(describe_batch(&decoded), describe_batch(&batch));
        if seed < 10 {
            check_bytes(&rng, encoded.frame(), |bytes| {
                decode_append(bytes, &mut Batch::default()).is_ok()
            });
        }
    });
}

#[test]
fn append_frame_leaves_out_rejected_series_and_keeps_their_numbers() {
    let (hash, limits) = (hash(&SimRng::new(1)), WireLimits::default());
    let mut batch = Batch::default();
    let mut message = Vec::new();
    let without_name = firn_model::labels::Labels::from_pairs([("a", "b")]);
    for (number, form) in [(0, KeyForm::Canonical), (2, KeyForm::Decoded)] {
        batch.push_float(NOW, 1.0);
        end_series(&mut batch, &mut message, &labels(number), form);
        batch.push_float(NOW, 2.0);
        end_series(&mut batch, &mut message, &without_name, KeyForm::Canonical);
    }
    batch.put_message(message, KEY_FORMAT);
    let mut source = DecodedWriteRequest::of_keys(&mut batch, &limits);
    source
        .read_labels(&[1, 3])
        .expect("labels that are rejected");
    let bounds = AppendBounds::up_to(NOW);
    let encoded = encode_append(0, &TenantId::anonymous(), &mut source, &hash, bounds);
    let encoded = encoded.expect("a valid batch");
    for (series, expected) in [(0, Some(0)), (1, Some(2)), (2, None)] {
        let rejected = RejectedExemplars {
            refusal: ExemplarRejection::TooLong,
            count: 1,
            first_labels: Labels::default(),
            first_series: series,
        };
        let mut outcome = AppendOutcome {
            refused_exemplars: vec![rejected],
            ..AppendOutcome::default()
        };
        let restored = encoded.restore_numbers(&mut outcome).ok();
        let number = restored.map(|()| outcome.refused_exemplars[0].first_series);
        assert_eq!(number, expected);
    }
    let mut decoded = Batch::default();
    decode_append(encoded.frame(), &mut decoded).expect("an encoded frame");
    read_all_labels(&mut decoded);
    read_all_labels(&mut batch);
    assert_eq!(describe_batch(&decoded), describe_batch(&batch));
}

#[test]
fn request_is_split_into_its_parts_and_cut_bytes_are_rejected() {
    let rng = SimRng::new(3);
    let hash = hash(&rng);
    let part = |partition: u32| {
        let mut batch = Batch::default();
        for number in 0..partition {
            batch.push_series(labels(u64::from(number)).as_ref(), &[(NOW, 1.0)]);
        }
        let bounds = AppendBounds::up_to(NOW);
        let tenant = TenantId::anonymous();
        encode_append(partition, &tenant, &mut &batch, &hash, bounds).expect("a valid batch")
    };
    for count in [0, 1, 3] {
        let parts: Vec<_> = (0..count).map(part).collect();
        let request = join_parts(&parts).concat();
        let frames: Vec<_> = parts.iter().map(|part| &**part.frame()).collect();
        assert_eq!(split_parts(&request), Ok(frames));
        check_bytes(&rng, &request, |bytes| split_parts(bytes).is_ok());
    }
    // A count whose lengths would take a multiple of the memory of the request.
    assert!(split_parts(&[100; 101]).is_err());
}

#[test]
fn answers_to_parts_are_decoded_and_another_number_is_rejected() {
    let outcome = AppendOutcome {
        stored: 7,
        ..AppendOutcome::default()
    };
    let stored = PeerAppended {
        outcome,
        ..PeerAppended::default()
    };
    let answers = vec![
        Ok(stored),
        Err(PeerFailure::NotLeader {
            partition: 3,
            leader: None,
        }),
    ];
    let mut bytes = Vec::new();
    encode_answers(&answers, &mut bytes);
    assert_eq!(decode_answers(&bytes, 2), Ok(answers));
    for count in [0, 1, 3] {
        assert!(decode_answers(&bytes, count).is_err());
    }
    check_bytes(&SimRng::new(4), &bytes, |bytes| {
        decode_answers(bytes, 2).is_ok()
    });
}

#[test]
fn append_frame_of_a_batch_for_the_own_store_is_an_error() {
    let check = |change: &dyn Fn(&mut Batch), hash: &SeriesHash, part: &str| {
        let mut batch = Batch::default();
        batch.push_series(labels(1).as_ref(), &[(NOW, 1.0)]);
        change(&mut batch);
        let bounds = AppendBounds::up_to(NOW);
        let encoded = encode_append(0, &TenantId::anonymous(), &mut &batch, hash, bounds);
        let error = encoded.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(part), "{error}");
    };
    let wire = hash(&SimRng::new(1));
    let journal = |batch: &mut Batch| {
        let mut journal = JournalRecord::default();
        journal.bytes.push(1);
        batch.set_journal(journal);
    };
    check(&journal, &wire, "journal");
    check(&|batch| batch.set_followed(true), &wire, "followed");
    let canonical = SeriesHash {
        format: &CanonicalKeys,
        ..wire
    };
    check(&|_| {}, &canonical, "keys of remote write");
}

#[test]
fn samples_are_decoded_to_all_their_bits() {
    for_seeds(200, |seed| {
        let rng = SimRng::new(seed);
        let mut batch = SeriesBatch::default();
        for _ in 0..rng.next_below(12) {
            let start = [NOW, NOW + 7, i64::MIN][rng.next_below(3) as usize];
            let count = rng.next_below(6) as i64;
            let times: Vec<i64> = (0..count).map(|i| start + 15_000 * i).collect();
            let values: Vec<f64> = times.iter().map(|_| random_value(&rng)).collect();
            let starts = if rng.one_in(3) {
                times.clone()
            } else {
                Vec::new()
            };
            let indexes = (0..count as u32).filter(|_| rng.one_in(4));
            let histograms = indexes.map(|index| (index, Arc::new(random_histogram(&rng))));
            batch.push(&times, &values, &starts, histograms.collect::<Vec<_>>());
        }
        let mut bytes = Vec::new();
        encode_columns(&batch, 0..batch.len(), &mut bytes);
        let mut decoded = SeriesBatch::default();
        assert_eq!(decode_columns(&bytes, &mut decoded), Ok(batch.len()));
        assert_eq!(describe_columns(&decoded), describe_columns(&batch));
        if batch.len() > 1 {
            let (mut tail, mut expected) = (Vec::new(), SeriesBatch::default());
            encode_columns(&batch, 1..batch.len(), &mut tail);
            decode_columns(&tail, &mut expected).expect("a part of the batch");
            assert_eq!(expected.len(), batch.len() - 1);
            assert_eq!(expected.series(0).times, batch.series(1).times);
        }
        if seed < 10 {
            check_bytes(&rng, &bytes, |bytes| {
                decode_columns(bytes, &mut SeriesBatch::default()).is_ok()
            });
        }
    });
}

#[test]
fn outcome_is_decoded_with_all_reasons() {
    let sample = |rejection| RejectedSamples {
        rejection,
        count: 300,
        first_labels: labels(1),
        first_time: -7,
        first_series: 12,
        limit: None,
    };
    let exemplar = |refusal| RejectedExemplars {
        refusal,
        count: 2,
        first_labels: labels(2),
        first_series: 1,
    };
    use ExemplarRejection as E;
    use SampleRejection as S;
    let reasons = [
        S::OutOfOrder,
        S::DuplicateTimestamp,
        S::OutOfBounds,
        S::TooOld,
        S::TooFarInFuture,
        S::SeriesLimit,
        S::ActiveSeriesLimit,
        S::NewSeriesLimit,
        S::JobSeriesLimit,
    ];
    let exemplar_reasons = [E::OutOfOrder, E::TooLong, E::TooFarInFuture, E::NoSeries];
    let appended = PeerAppended {
        outcome: AppendOutcome {
            stored: 1_000,
            stored_histograms: 3,
            rejected: reasons.map(sample).to_vec(),
            refused_exemplars: exemplar_reasons.map(exemplar).to_vec(),
        },
        newest: Some(NOW),
        invalid_series: vec![PeerSeriesRejection {
            series_count: 1,
            sample_count: 2,
            first: "invalid".into(),
        }],
    };
    let mut bytes = Vec::new();
    encode_appended(&appended, &mut bytes);
    assert_eq!(decode_appended(&bytes), Ok(appended));
    check_bytes(&SimRng::new(1), &bytes, |bytes| {
        decode_appended(bytes).is_ok()
    });
}

#[test]
fn read_requests_are_decoded() {
    let scope = TenantScope {
        partitions: PartitionScope {
            partitions: vec![0, 300],
            consistency: ReadConsistency::Strong,
        },
        tenant: TenantId::anonymous(),
        range: TimeRange::new(-5, i64::MAX),
    };
    let ops = [
        MatchOp::Equal,
        MatchOp::NotEqual,
        MatchOp::Regex,
        MatchOp::NotRegex,
    ];
    let matcher = |op| MatcherText {
        name: "job".into(),
        op,
        value: b"a\xff".to_vec(),
    };
    let series = SeriesRequest {
        scope: scope.clone(),
        matchers: ops.map(matcher).to_vec(),
        is_newest_only: true,
        series_max: u64::MAX,
    };
    let requests = [
        PeerReadRequest::Open {
            series: series.clone(),
            is_labels_only: true,
        },
        PeerReadRequest::Column("job".into()),
        PeerReadRequest::Labels(0..1_024),
        PeerReadRequest::Read(7..9),
        PeerReadRequest::LabelNames(series.clone()),
        PeerReadRequest::LabelValues {
            name: "job".into(),
            series: series.clone(),
        },
        PeerReadRequest::Exemplars {
            scope: scope.clone(),
            sets: vec![series.matchers, Vec::new()],
        },
        PeerReadRequest::Metadata {
            tenant: TenantId::anonymous(),
            metric: Some("up".into()),
        },
        PeerReadRequest::Losses {
            scope,
            is_of_labels: true,
        },
    ];
    for request in requests {
        let timed = TimedReadRequest {
            timeout_ms: 1_000,
            budget_bytes: 1 << 40,
            request,
        };
        let bytes = timed.encode();
        assert_eq!(TimedReadRequest::decode(&bytes), Ok(timed));
        let decodes = |bytes: &[u8]| TimedReadRequest::decode(bytes).is_ok();
        check_bytes(&SimRng::new(1), &bytes, decodes);
    }
    assert!(TimedReadRequest::decode(&[99, 0, 0]).is_err());
}

#[test]
fn labels_are_decoded_within_their_memory() {
    let rng = SimRng::new(1);
    let sets: Vec<_> = (0..50).map(labels).collect();
    let mut bytes = Vec::new();
    encode_labels(sets.iter().cloned(), &mut bytes);
    let budget = Budget::new("labels", 1 << 20);
    let mut memory = budget.create_reservation();
    let chunk = decode_labels(&bytes, &mut memory).expect("an encoded message");
    let decoded: Vec<_> = (0..chunk.len()).filter_map(|i| chunk.labels(i)).collect();
    assert_eq!(decoded, sets);
    assert!(chunk.labels(50).is_none() && memory.bytes() > 50 * 30);
    check_bytes(&rng, &bytes, |bytes| {
        decode_labels(bytes, &mut budget.create_reservation()).is_ok()
    });
    let small = Budget::new("labels", 1 << 10);
    let error = decode_labels(&bytes, &mut small.create_reservation()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limited);
}

#[test]
fn other_answers_are_decoded() {
    let rng = SimRng::new(1);
    let mut bytes = Vec::new();
    let opened = OpenedSelection {
        series_count: 70_000,
        losses: vec!["lost".into(), String::new()],
    };
    encode_opened(&opened, &mut bytes);
    assert_eq!(decode_opened(&bytes), Ok(opened));
    check_bytes(&rng, &bytes, |bytes| decode_opened(bytes).is_ok());

    let column = LabelColumn {
        ids: vec![0, 1, 1, 0],
        values: vec![b"".as_slice().into(), b"\xff".as_slice().into()],
    };
    bytes.clear();
    encode_column(&column, &mut bytes);
    let budget = Budget::new("column", 1 << 20);
    let decode = |bytes: &[u8]| decode_column(bytes, &mut budget.create_reservation());
    assert_eq!(decode(&bytes), Ok(column));
    check_bytes(&rng, &bytes, |bytes| decode(bytes).is_ok());
    assert!(decode(&[0, 1, 0]).is_err(), "an id without a value");

    bytes.clear();
    encode_strings(&["a", "bc", ""], &mut bytes);
    let texts = ["a", "bc", ""].map(str::to_owned);
    assert_eq!(decode_texts(&bytes), Ok(texts.to_vec()));
    let strings = texts.map(String::into_bytes);
    assert_eq!(decode_strings(&bytes), Ok(strings.to_vec()));
    check_bytes(&rng, &bytes, |bytes| decode_strings(bytes).is_ok());

    let exemplars = [SeriesExemplarResult {
        series: labels(1),
        exemplars: vec![ExemplarResult {
            labels: labels(2),
            value: -0.0,
            time: NOW,
        }],
    }];
    bytes.clear();
    encode_exemplars(&exemplars, &mut bytes);
    assert_eq!(decode_exemplars(&bytes), Ok(exemplars.to_vec()));
    check_bytes(&rng, &bytes, |bytes| decode_exemplars(bytes).is_ok());

    let mut metadata = MetadataBatch::default();
    metadata.push(MetricMetadata {
        name: "up",
        kind: MetricType::Stateset,
        help: "Whether it is up.",
        unit: "",
    });
    bytes.clear();
    encode_metadata(&metadata, &mut bytes);
    let decoded = decode_metadata(&bytes).expect("an encoded message");
    assert!(decoded.iter().eq(metadata.iter()));
    check_bytes(&rng, &bytes, |bytes| decode_metadata(bytes).is_ok());
}
