//! Appends through a peer, compared with appends to a store.

use super::batches::{KeyForm, NOW, end_series, labels, random_batch};
use super::for_seeds;
use super::world::{
    TIMEOUT, TestServer, TestService, client, client_runtime, client_with, open_store, options,
};
use crate::frames::append_parts::join_parts;
use crate::{AppendPart, EncodedAppend, PartAnswer, PeerClient, PeerFailure, encode_append};
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::env::sim::SimRng;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::store::{Append, AppendBounds, SampleRejection};
use firn_model::tenant::TenantId;
use firn_storage::store::Store;
use firn_wire::WireLimits;
use firn_wire::remote_write::{DecodedWriteRequest, KEY_FORMAT};
use std::sync::Arc;

fn encode(store: &Store, batch: &mut Batch, partition: u32) -> EncodedAppend {
    let limits = WireLimits::default();
    let hash = store.series_hash().expect("stores hash keys");
    let mut source = DecodedWriteRequest::of_keys(batch, &limits);
    let bounds = AppendBounds::up_to(NOW + 3_600_000);
    let tenant = TenantId::anonymous();
    encode_append(partition, &tenant, &mut source, &hash, bounds).expect("a valid batch")
}

/// Appends one part.
fn append(client: &PeerClient, part: &EncodedAppend) -> PartAnswer {
    let answers = append_all(client, std::slice::from_ref(part))?;
    answers.into_iter().next().expect("an answer to the part")
}

fn append_all(
    client: &PeerClient,
    parts: &[EncodedAppend],
) -> Result<Vec<PartAnswer>, PeerFailure> {
    client_runtime().block_on(client.append(parts, TIMEOUT))
}

/// Returns a batch with one sample of each series.
fn batch_of(numbers: std::ops::Range<u64>, value: f64) -> Batch {
    let mut batch = Batch::default();
    for number in numbers {
        batch.push_series(labels(number).as_ref(), &[(NOW, value)]);
    }
    batch
}

#[test]
fn appends_to_a_peer_have_the_outcomes_of_a_store() {
    for_seeds(6, |seed| {
        let rng = SimRng::new(seed);
        let (local, remote) = (open_store(seed), open_store(seed));
        let server = TestServer::start(TestService::of_store(&remote));
        let client = client(&server);
        for step in 0..20 {
            let now = NOW + step * 15_000;
            let mut batch = random_batch(&rng, 30, now);
            let encoded = encode(&remote, &mut batch.clone(), 1);
            let (limits, tenant) = (WireLimits::default(), TenantId::anonymous());
            let mut source = DecodedWriteRequest::of_keys(&mut batch, &limits);
            let bounds = AppendBounds::up_to(NOW + 3_600_000);
            let expected = local.append_from(&tenant, &mut source, bounds).wait();
            let appended = append(&client, &encoded).expect("a valid frame");
            assert_eq!(Ok(&appended.outcome), expected.as_ref(), "step {step}");
            assert_eq!(appended.newest, local.newest_time(&tenant));
            // A repetition stores nothing twice.
            let again = append(&client, &encoded).expect("a valid frame");
            let expected = local.append_from(&tenant, &mut source, bounds).wait();
            assert_eq!(Ok(again.outcome), expected, "repetition of step {step}");
        }
        assert_eq!(server.budget.used_bytes(), 0);
    });
}

#[test]
fn rejected_samples_have_the_numbers_of_the_sender() {
    let store = open_store(1);
    let server = TestServer::start(TestService::of_store(&store));
    let client = client(&server);
    append(&client, &encode(&store, &mut batch_of(0..3, 1.0), 0)).expect("new series");
    let mut batch = Batch::default();
    let mut message = Vec::new();
    let unnamed = Labels::from_pairs([("a", "b")]);
    batch.push_float(NOW, 1.0);
    end_series(&mut batch, &mut message, &unnamed, KeyForm::Reversed);
    batch.push_float(NOW, 9.0);
    end_series(&mut batch, &mut message, &labels(2), KeyForm::Canonical);
    batch.put_message(message, KEY_FORMAT);
    let limits = WireLimits::default();
    let mut source = DecodedWriteRequest::of_keys(&mut batch, &limits);
    firn_model::batch::BatchSource::read_labels(&mut source, &[0]).expect("rejected labels");
    let appended = append(&client, &encode(&store, &mut batch, 0)).expect("a valid frame");
    let rejected = &appended.outcome.rejected[0];
    assert_eq!(rejected.rejection, SampleRejection::DuplicateTimestamp);
    assert_eq!(
        (rejected.first_series, &rejected.first_labels),
        (1, &labels(2))
    );
}

#[test]
fn series_with_invalid_labels_is_rejected_and_others_are_stored() {
    let store = open_store(1);
    let server = TestServer::start(TestService::of_store(&store));
    let client = client(&server);
    let mut batch = Batch::default();
    let mut message = Vec::new();
    for labels in [Labels::from_pairs([("a", "b")]), labels(1)] {
        batch.push_float(NOW, 1.0);
        end_series(&mut batch, &mut message, &labels, KeyForm::Canonical);
    }
    batch.put_message(message, KEY_FORMAT);
    // A source that decodes no labels, so that the peer rejects them.
    let hash = store.series_hash().expect("stores hash keys");
    let (tenant, bounds) = (TenantId::anonymous(), AppendBounds::up_to(NOW));
    let encoded = encode_append(0, &tenant, &mut &batch, &hash, bounds).expect("a valid batch");
    let appended = append(&client, &encoded).expect("a valid frame");
    assert_eq!(appended.outcome.stored, 1);
    let invalid = &appended.invalid_series[0];
    assert_eq!((invalid.series_count, invalid.sample_count), (1, 1));
    assert!(invalid.first.contains("invalid metric name"), "{invalid:?}");
    // A source that decodes labels rejects them before they are sent.
    let limits = WireLimits::default();
    let mut source = DecodedWriteRequest::of_keys(&mut batch, &limits);
    let encoded = encode_append(0, &tenant, &mut source, &hash, bounds).expect("a valid batch");
    let refused = source.finish().expect("a valid message");
    assert_eq!(
        refused
            .iter()
            .map(|refused| refused.series_count)
            .sum::<usize>(),
        1
    );
    let appended = append(&client, &encoded).expect("a valid frame");
    assert_eq!(
        (appended.outcome.stored, appended.invalid_series.len()),
        (1, 0)
    );
}

#[test]
fn failure_of_the_service_reaches_the_sender_in_full() {
    let store = open_store(1);
    let service = TestService::of_store(&store);
    let server = TestServer::start(service.clone());
    let client = client(&server);
    let encoded = encode(&store, &mut batch_of(0..1, 1.0), 3);
    for failure in [
        PeerFailure::NotLeader {
            partition: 3,
            leader: Some("10.0.0.1:9190".into()),
        },
        PeerFailure::Unavailable("the node is draining".into()),
        PeerFailure::Failed(Error::new(ErrorKind::Limited, "too many series")),
    ] {
        *service.failure.lock().unwrap() = Some(failure.clone());
        assert_eq!(append(&client, &encoded), Err(failure));
    }
    *service.failure.lock().unwrap() = None;
    assert!(append(&client, &encoded).is_ok());
    let other = encode(&store, &mut batch_of(0..1, 1.0), 4);
    let failure = append(&client, &other).unwrap_err();
    let text = "unknown partition 4, the cluster has 4".to_owned();
    assert_eq!(failure, PeerFailure::Rejected(text));
}

#[test]
fn part_of_a_request_fails_alone() {
    let store = open_store(1);
    let server = TestServer::start(TestService::of_store(&store));
    let client = client(&server);
    assert_eq!(append_all(&client, &[]), Ok(Vec::new()));
    let part = |numbers, value, partition| encode(&store, &mut batch_of(numbers, value), partition);
    let parts = [part(0..2, 1.0, 0), part(2..5, 1.0, 9), part(5..9, 1.0, 3)];
    let check = |stored: [Option<usize>; 3]| {
        let answers = append_all(&client, &parts).expect("a valid request");
        let outcomes = answers
            .iter()
            .map(|answer| Some(answer.as_ref().ok()?.outcome.stored));
        assert_eq!(outcomes.collect::<Vec<_>>(), stored);
        let text = "unknown partition 9, the cluster has 4".to_owned();
        assert_eq!(answers[1], Err(PeerFailure::Rejected(text)));
    };
    check([Some(2), None, Some(4)]);
    // A repetition stores nothing twice.
    check([Some(2), None, Some(4)]);
    assert_eq!(server.budget.used_bytes(), 0);
}

#[test]
fn key_that_is_not_canonical_is_appended_to_the_series_of_its_labels() {
    let store = open_store(1);
    let server = TestServer::start(TestService::of_store(&store));
    let client = client(&server);
    append(&client, &encode(&store, &mut batch_of(0..3, 1.0), 0)).expect("new series");
    // A sender without a check of its keys.
    let mut batch = Batch::default();
    let mut message = Vec::new();
    batch.push_float(NOW + 1, 9.0);
    end_series(&mut batch, &mut message, &labels(2), KeyForm::Reversed);
    batch.put_message(message, KEY_FORMAT);
    let hash = store.series_hash().expect("stores hash keys");
    let key = batch.key(0).expect("an undecoded key");
    let part = AppendPart {
        partition: 0,
        batch: &batch,
        series: &[0],
        prints: &[hash.keys.fingerprint(key)],
    };
    let bounds = AppendBounds::up_to(NOW + 3_600_000);
    let part = part.encode(&TenantId::anonymous(), &hash, bounds);
    let appended = append(&client, &part.expect("a valid part")).expect("a valid frame");
    assert_eq!(appended.outcome.stored, 1);
    // The series has the sample, so that another value at its time is a duplicate.
    let mut batch = Batch::default();
    batch.push_series(labels(2).as_ref(), &[(NOW + 1, 7.0)]);
    let appended = append(&client, &encode(&store, &mut batch, 0)).expect("a valid frame");
    let rejected = &appended.outcome.rejected[0];
    assert_eq!(rejected.rejection, SampleRejection::DuplicateTimestamp);
}

#[test]
fn frame_above_a_limit_is_an_error_with_size_and_limit() {
    let store = open_store(1);
    let mut small = options();
    small.frame_bytes_max = 10_000;
    let service: Arc<TestService> = TestService::of_store(&store);
    let server = TestServer::start_at("127.0.0.1:0", &small, service.clone());
    let encoded = encode(&store, &mut batch_of(0..500, 1.0), 0);
    let request = join_parts(std::slice::from_ref(&encoded));
    let bytes: usize = request.iter().map(|buffer| buffer.len()).sum();
    for client in [client_with(&server, &small), client(&server)] {
        match append(&client, &encoded) {
            Err(PeerFailure::Failed(error)) => {
                assert_eq!(error.kind, ErrorKind::Limited);
                let text = format!("is too large: {bytes} bytes, limit 10000");
                assert!(error.message.contains(&text), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    let budget = Budget::new("peers", 20_000);
    let server = TestServer::start_within(budget, "127.0.0.1:0", &options(), service);
    match append(&client(&server), &encoded) {
        Err(PeerFailure::Unavailable(text)) => {
            assert!(text.contains("peers memory limit reached"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.budget.used_bytes(), 0);
}
