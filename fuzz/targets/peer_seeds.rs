//! The initial corpus of the target `peer_frame`: one input of each kind that it decodes.

use firn_model::batch::Batch;
use firn_model::columns::{LabelColumn, SeriesBatch};
use firn_model::env::sim::SimRng;
use firn_model::exemplar::{ExemplarResult, SeriesExemplarResult, TimedExemplar};
use firn_model::fingerprint::{HashKeys, SeriesHash};
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::labels::Labels;
use firn_model::matcher::MatchOp;
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_model::sample::TimeRange;
use firn_model::store::{AppendBounds, AppendOutcome, RejectedSamples, SampleRejection};
use firn_model::tenant::TenantId;
use firn_peer::frames::answers::{
    OpenedSelection, encode_column, encode_exemplars, encode_labels, encode_metadata,
    encode_opened, encode_strings,
};
use firn_peer::frames::append_parts::{encode_answers, join_parts};
use firn_peer::frames::columns::encode_columns;
use firn_peer::frames::outcome::encode_appended;
use firn_peer::frames::requests::{
    MatcherText, PartitionScope, PeerReadRequest, SeriesRequest, TenantScope, TimedReadRequest,
};
use firn_peer::{
    EncodedAppend, PeerAppended, PeerFailure, ReadConsistency, encode_append, encode_failure,
};
use firn_wire::remote_write::KEY_FORMAT;
use std::sync::Arc;

/// Returns an append, its outcome, a failure, a request, and each kind of answer.
pub fn all() -> Vec<Vec<u8>> {
    let opened = OpenedSelection {
        series_count: 2,
        losses: vec!["lost".to_owned()],
    };
    let column = LabelColumn {
        ids: vec![0, 1],
        values: vec![b"a".as_slice().into(), b"b".as_slice().into()],
    };
    let exemplars = [SeriesExemplarResult {
        series: labels(1),
        exemplars: vec![ExemplarResult {
            labels: labels(2),
            value: 1.5,
            time: 7,
        }],
    }];
    let mut metadata = MetadataBatch::default();
    metadata.push(MetricMetadata {
        name: "up",
        kind: MetricType::Gauge,
        help: "Help.",
        unit: "",
    });
    let failure = PeerFailure::NotLeader {
        partition: 3,
        leader: Some("a:1".to_owned()),
    };
    vec![
        append().frame().to_vec(),
        join_parts(&[append(), append()]).concat(),
        encoded(|into| encode_answers(&[Ok(appended()), Err(failure.clone())], into)),
        encoded(|into| encode_appended(&appended(), into)),
        encoded(|into| encode_failure(&failure, into)),
        request(),
        samples(),
        encoded(|into| encode_labels([labels(1), labels(2)].into_iter(), into)),
        encoded(|into| encode_opened(&opened, into)),
        encoded(|into| encode_column(&column, into)),
        encoded(|into| encode_strings(&["a", "b"], into)),
        encoded(|into| encode_exemplars(&exemplars, into)),
        encoded(|into| encode_metadata(&metadata, into)),
    ]
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn labels(number: u32) -> Labels {
    Labels::from_pairs([("__name__", "up"), ("instance", &number.to_string())])
}

fn histogram() -> Histogram {
    Histogram {
        reset_hint: ResetHint::NotReset,
        schema: 2,
        zero_threshold: 0.001,
        sum: 3.5,
        counts: HistogramCounts::Integer {
            count: 3,
            zero_count: 1,
            positive: vec![1, 0],
            negative: Vec::new(),
        },
        positive_spans: vec![BucketSpan {
            offset: -1,
            length: 2,
        }],
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    }
}

fn append() -> EncodedAppend {
    let mut batch = Batch::default();
    batch.push_series(labels(1).as_ref(), &[(15_000, 1.0), (30_000, 2.0)]);
    batch.push_exemplar(TimedExemplar {
        labels: labels(3).as_ref(),
        value: 1.0,
        time: 15_000,
        has_own_time: true,
    });
    batch.push_histogram(firn_model::batch::HistogramSample {
        time: 15_000,
        start_time: 0,
        histogram: histogram(),
    });
    batch.push_series(labels(2).as_ref(), &[(15_000, f64::NAN)]);
    let hash = SeriesHash {
        keys: Arc::new(HashKeys::new(&SimRng::new(1))),
        format: KEY_FORMAT,
    };
    let (tenant, bounds) = (TenantId::anonymous(), AppendBounds::up_to(60_000));
    let encoded = encode_append(3, &tenant, &mut &batch, &hash, bounds);
    encoded.expect("a valid batch")
}

fn appended() -> PeerAppended {
    PeerAppended {
        outcome: AppendOutcome {
            stored: 2,
            rejected: vec![RejectedSamples {
                rejection: SampleRejection::TooOld,
                count: 1,
                first_labels: labels(1),
                first_time: 15_000,
                first_series: 0,
                limit: Some(1_000),
            }],
            ..AppendOutcome::default()
        },
        newest: Some(15_000),
        invalid_series: Vec::new(),
    }
}

fn request() -> Vec<u8> {
    let series = SeriesRequest {
        scope: TenantScope {
            partitions: PartitionScope {
                partitions: vec![0, 3],
                consistency: ReadConsistency::Strong,
            },
            tenant: TenantId::anonymous(),
            range: TimeRange::new(0, 60_000),
        },
        matchers: vec![MatcherText {
            name: "__name__".to_owned(),
            op: MatchOp::Equal,
            value: b"up".to_vec(),
        }],
        is_newest_only: false,
        series_max: 100,
    };
    let request = TimedReadRequest {
        timeout_ms: 1_000,
        budget_bytes: 1 << 20,
        request: PeerReadRequest::Open {
            series,
            is_labels_only: false,
        },
    };
    request.encode()
}

fn samples() -> Vec<u8> {
    let mut batch = SeriesBatch::default();
    let times = [15_000, 30_000, 45_000];
    batch.push(&times, &[1.0, 2.0, 3.0], &[], []);
    let histograms = [(1, Arc::new(histogram()))];
    batch.push(&times, &[1.0, 0.0, 3.0], &[0, 0, 0], histograms);
    encoded(|into| encode_columns(&batch, 0..2, into))
}
