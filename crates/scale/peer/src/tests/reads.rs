//! Reads from a peer, compared bit for bit with reads from its store.

use super::batches::{NOW, describe_columns, labels, random_batch};
use super::for_seeds;
use super::world::{Query, TIMEOUT, TestServer, TestService, client, open_store, scope};
use crate::{PeerFailure, ReadConsistency};
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelReason;
use firn_model::columns::SeriesBatch;
use firn_model::env::sim::SimRng;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{
    Append, AppendBounds, ExemplarRequest, MetadataRequest, Select, SelectRequest, Selection,
};
use firn_storage::store::Store;
use std::sync::Arc;

fn fill(store: &Store, batch: &Batch) {
    let mut batch = batch.clone();
    let limits = firn_wire::WireLimits::default();
    let mut source = firn_wire::remote_write::DecodedWriteRequest::of_keys(&mut batch, &limits);
    let bounds = AppendBounds::up_to(NOW + 3_600_000);
    let tenant = Query::default().tenant;
    let ticket = store.append_from(&tenant, &mut source, bounds);
    ticket.wait().expect("a valid batch");
}

/// Returns a store with random samples.
fn filled_store(seed: u64, series: u64) -> Arc<Store> {
    let (rng, store) = (SimRng::new(seed), open_store(seed));
    for step in 0..12 {
        fill(&store, &random_batch(&rng, series, NOW + step * 15_000));
        if rng.one_in(4) {
            store.tick();
        }
    }
    let mut metadata = MetadataBatch::default();
    metadata.push(MetricMetadata {
        name: "metric_1",
        kind: MetricType::Gauge,
        help: "Help.",
        unit: "",
    });
    store.set_metadata_source(Box::new(move || metadata.clone()));
    store
}

fn random_matchers(rng: &SimRng) -> Vec<Matcher> {
    let matcher =
        |name, op, value: &str| Matcher::new(name, op, value.as_bytes()).expect("a valid pattern");
    match rng.next_below(4) {
        0 => Vec::new(),
        1 => vec![matcher("__name__", MatchOp::Equal, "metric_1")],
        2 => vec![matcher("instance", MatchOp::Regex, "host-1.*|host-2:9100")],
        _ => vec![
            matcher("long", MatchOp::Equal, ""),
            matcher("__name__", MatchOp::NotRegex, "metric_[23]"),
        ],
    }
}

fn all_labels(selection: &dyn Selection) -> Vec<Labels> {
    (0..selection.len())
        .map(|series| selection.labels(series))
        .collect()
}

fn read(selection: &dyn Selection, stretch: usize) -> Result<Vec<Vec<String>>, Error> {
    let mut batch = SeriesBatch::default();
    let starts = (0..selection.len()).step_by(stretch);
    let read_one = |start: usize| {
        batch.clear();
        selection.read(start..selection.len().min(start + stretch), &mut batch)?;
        Ok(describe_columns(&batch))
    };
    starts.map(read_one).collect()
}

/// Fails unless both selections have the same series, columns and samples.
fn compare(local: &dyn Selection, remote: &dyn Selection, stretch: usize) {
    assert_eq!(remote.len(), local.len());
    assert_eq!(all_labels(remote), all_labels(local));
    let query = Query::default();
    for name in ["__name__", "instance", "long", "absent"] {
        let column = |selection: &dyn Selection| {
            let mut memory = query.budget.create_reservation();
            selection.label_column(name, &query.cancel, &mut memory)
        };
        assert_eq!(column(remote), column(local), "{name}");
    }
    assert_eq!(read(remote, stretch), read(local, stretch));
    assert_eq!(
        remote.loss_warnings().texts(),
        local.loss_warnings().texts()
    );
}

#[test]
fn selections_at_a_peer_equal_those_of_its_store() {
    for_seeds(6, |seed| {
        let (rng, store) = (SimRng::new(seed), filled_store(seed, 40));
        let server = TestServer::start(TestService::of_store(&store));
        let client = client(&server);
        for _ in 0..12 {
            let query = Query {
                matchers: random_matchers(&rng),
                range: [TimeRange::ALL, TimeRange::new(NOW, NOW + 30_000)]
                    [rng.next_below(2) as usize],
                ..Query::default()
            };
            let request = SelectRequest {
                newest_only: rng.one_in(3),
                ..query.request()
            };
            let remote = client.select(&scope(), request).expect("a selection");
            let counted = query.series.found();
            let local = store.select(request).expect("a selection");
            assert_eq!(query.series.found(), 2 * counted);
            compare(&*local, &*remote, 1 + rng.next_below(50) as usize);
            drop((local, remote));
            assert_eq!(query.budget.used_bytes(), 0);
            let remote = client
                .select_labels(&scope(), request)
                .expect("a selection");
            let local = store.select_labels(request).expect("a selection");
            assert_eq!(all_labels(&*remote), all_labels(&*local));
            drop((local, remote));
            assert_eq!(query.budget.used_bytes(), 0);
            let names = client.label_names(&scope(), request).expect("names");
            assert_eq!(Ok(names), store.label_names(request));
            for name in ["instance", "absent"] {
                let values = client
                    .label_values(name, &scope(), request)
                    .expect("values");
                assert_eq!(Ok(values), store.label_values(name, request));
            }
        }
    });
}

#[test]
fn exemplars_metadata_and_losses_of_a_peer_equal_those_of_its_store() {
    let store = filled_store(3, 40);
    let service = TestService::of_store(&store);
    let server = TestServer::start(service.clone());
    let (client, query, rng) = (client(&server), Query::default(), SimRng::new(3));
    for _ in 0..10 {
        let sets = [random_matchers(&rng), random_matchers(&rng)];
        let request = ExemplarRequest {
            tenant: &query.tenant,
            sets: &sets,
            range: TimeRange::new(NOW, NOW + 90_000),
            cancel: &query.cancel,
            budget: &query.budget,
        };
        let exemplars = client.exemplars(&scope(), request).expect("exemplars");
        let bits = |result: Vec<_>| format!("{result:?}");
        let local = store.exemplars(request).expect("exemplars");
        assert_eq!(bits(exemplars), bits(local));
    }
    for metric in [None, Some("metric_1"), Some("absent")] {
        let request = MetadataRequest {
            tenant: &query.tenant,
            metric,
            cancel: &query.cancel,
            budget: &query.budget,
        };
        let remote = client.metadata(request, TIMEOUT).expect("metadata");
        let local = store.metadata(request).expect("metadata");
        assert!(remote.iter().eq(local.iter()), "{metric:?}");
    }
    for of_labels in [false, true] {
        let losses = client.losses(&scope(), &query.tenant, TimeRange::ALL, of_labels);
        assert!(losses.expect("no losses").is_empty());
    }
    let reads = service.reads.lock().unwrap();
    let of_scope = (vec![0, 2], ReadConsistency::Strong);
    assert!(reads.len() >= 12 && reads.iter().all(|read| *read == of_scope));
}

#[test]
fn many_series_and_long_series_are_read_in_parts() {
    let store = open_store(1);
    let mut batch = Batch::default();
    for number in 0..3_000 {
        batch.push_series(labels(number).as_ref(), &[(NOW, number as f64)]);
    }
    // Random bits, so that the samples take more than one frame.
    let long: Vec<_> = (1..300_000u64)
        .map(|i| {
            (
                NOW + i as i64 * 7,
                f64::from_bits(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            )
        })
        .collect();
    let long_labels = Labels::from_pairs([("__name__", "long"), ("instance", "x")]);
    batch.push_series(long_labels.as_ref(), &long);
    fill(&store, &batch);
    let server = TestServer::start(TestService::of_store(&store));
    let (client, query) = (client(&server), Query::default());
    let local = store.select(query.request()).expect("a selection");
    let remote = client
        .select(&scope(), query.request())
        .expect("a selection");
    assert_eq!(remote.len(), 3_001);
    compare(&*local, &*remote, 4_000);
    let remote = client
        .select_labels(&scope(), query.request())
        .expect("a selection");
    assert_eq!(all_labels(&*remote), all_labels(&*local));
    // Threads read at the same time.
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (local, remote) = (&*local, &*remote);
            threads.spawn(move || {
                let mut batches = [SeriesBatch::default(), SeriesBatch::default()];
                for turn in 0..20 {
                    let start = (thread * 700 + turn * 31) % 2_900;
                    batches.iter_mut().for_each(SeriesBatch::clear);
                    let [one, other] = &mut batches;
                    local.read(start..start + 100, one).expect("samples");
                    remote.read(start..start + 100, other).expect("samples");
                    assert_eq!(describe_columns(other), describe_columns(one));
                    assert_eq!(remote.labels(start), local.labels(start));
                }
            });
        }
    });
}

#[test]
fn read_above_a_limit_fails_with_the_error_of_the_limit() {
    let store = filled_store(1, 40);
    let server = TestServer::start(TestService::of_store(&store));
    let client = client(&server);
    let fails = |query: &Query, kind: ErrorKind, part: &str| {
        let selected = client
            .select(&scope(), query.request())
            .map(|s| read(&*s, 100));
        let error = match selected {
            Ok(read) => read.expect_err(part),
            Err(PeerFailure::Failed(error)) => error,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(part), "{error}");
    };
    let query = Query {
        series: SeriesLimit::new(50),
        ..Query::default()
    };
    query.series.add_series(35).expect("below the limit");
    let found = store
        .select(Query::default().request())
        .expect("a selection")
        .len();
    let text = format!(
        "query selects too many series: {} series, limit 50 (max_fetched_series_per_query)",
        35 + found
    );
    fails(&query, ErrorKind::Limited, &text);
    let query = Query {
        budget: Budget::new("query", 300),
        ..Query::default()
    };
    fails(&query, ErrorKind::Limited, "memory limit reached");
    let query = Query::default();
    query.cancel.cancel(CancelReason::Canceled);
    fails(&query, ErrorKind::Canceled, "query was canceled");
    let other = Query {
        tenant: firn_model::tenant::TenantId::new("other").expect("a valid id"),
        ..Query::default()
    };
    let local = store
        .select(other.request())
        .map(|selection| selection.len());
    let remote = client
        .select(&scope(), other.request())
        .map(|selection| selection.len());
    assert_eq!(remote, local.map_err(PeerFailure::Failed));
}
