//! Sends requests through the pipeline into a store that accepts, rejects or fails, as each test
//! requires.

mod aggregation;
mod replicas;
mod usage;

use super::*;
use firn_model::env::sim::SimClock;
use firn_model::labels::Labels;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::shares::BudgetShares;
use firn_model::store::{AppendOutcome, RejectedSamples, SampleRejection, TicketResolver};
use firn_wire::otlp::OtlpEncoding;
use firn_wire::unpack::ContentEncoding;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Returns the same result for every batch and records the newest allowed timestamp.
struct Answering {
    answer: Result<AppendOutcome, Error>,
    time_max: Mutex<i64>,
}

impl Append for Answering {
    fn append(&self, _: &TenantId, batch: &Batch, bounds: AppendBounds) -> Ticket {
        *self.time_max.lock().unwrap() = bounds.time_max;
        let mut answer = self.answer.clone();
        if let Ok(appended) = &mut answer {
            let rejected: usize = appended.rejected.iter().map(|r| r.count).sum();
            appended.stored = batch.sample_count() - rejected;
        }
        Ticket::resolved(answer)
    }
}

/// Keeps the ticket of the newest batch unresolved.
#[derive(Default)]
struct Keeping(Mutex<Option<TicketResolver>>);

impl Append for Keeping {
    fn append(&self, _: &TenantId, _: &Batch, _: AppendBounds) -> Ticket {
        let (ticket, resolver) = Ticket::new();
        *self.0.lock().unwrap() = Some(resolver);
        ticket
    }
}

/// Returns the pipeline of a process with `mib` MiB of memory.
fn pipeline(answer: Result<AppendOutcome, Error>, mib: usize) -> Pipeline {
    let store = Answering {
        answer,
        time_max: Mutex::default(),
    };
    let clock = Arc::new(SimClock::default());
    clock.set_ms(1_000);
    let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(mib << 20));
    let memory = Budget::new("process", mib << 20);
    Pipeline::new(Arc::new(store), clock, limits, &memory)
}

/// Sends a request and waits as long as necessary at each step.
async fn write(pipeline: &Pipeline, body: &[u8]) -> Result<PendingWrite, Error> {
    let mut admission = pipeline.admit_body(body.len()).await?;
    pipeline.prepare_body(&mut admission, body).await?;
    pipeline.write_remote(
        &TenantId::anonymous(),
        PushOrigin::default(),
        body,
        admission,
        None,
    )
}

/// Returns a request with `series` series of one sample each, of which the first has no metric
/// name.
fn body(series: usize) -> Vec<u8> {
    let mut batch = Batch::default();
    for i in 0..series {
        let name = if i == 0 { "a" } else { "__name__" };
        let labels = Labels::from_pairs([(name, i.to_string())]);
        batch.push_series(labels.as_ref(), &[(5, 1.0)]);
    }
    remote_write::encode(&batch)
}

/// Sends an OTLP request with the compression `packing`.
async fn push_otlp(
    pipeline: &Pipeline,
    body: &[u8],
    packing: ContentEncoding,
) -> Result<WriteOutcome, Error> {
    let origin = OtlpOrigin {
        address: None,
        format: OtlpEncoding::Json,
        packing,
    };
    let mut admission = pipeline.admit_body(body.len()).await?;
    pipeline.prepare_otlp(&mut admission, origin, body).await?;
    let tenant = TenantId::anonymous();
    pipeline
        .write_otlp(&tenant, origin, body, admission, None)?
        .await
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A request with a gauge, and with a delta sum, which is rejected.
const OTLP: &str = r#"{"resourceMetrics":[{"resource":{"attributes":[
    {"key":"service.name","value":{"stringValue":"s"}},
    {"key":"host","value":{"stringValue":"h"}}]},"scopeMetrics":[{"metrics":[
    {"name":"g","description":"G.","gauge":{"dataPoints":[{"timeUnixNano":"1000000","asInt":1}]}},
    {"name":"d","sum":{"aggregationTemporality":1,"dataPoints":[{"asInt":1}]}}]}]}]}"#;

#[tokio::test]
async fn otlp_is_stored_but_for_what_cannot_stand_and_told_apart_from_nothing() {
    let pipeline = pipeline(Ok(AppendOutcome::default()), 64);
    let outcome = push_otlp(&pipeline, OTLP.as_bytes(), ContentEncoding::None).await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.stored_count, 1);
    assert!(!outcome.is_refused());
    let complaint = outcome.error_text().unwrap();
    let want = "invalid temporality and type combination for metric \"d\"; \
                1 of 2 samples dropped: 1 temporality";
    assert_eq!(complaint, want);
    let said = pipeline
        .metadata()
        .find_family(&TenantId::anonymous(), "g")
        .unwrap();
    assert_eq!((said.kind, &*said.help), ("gauge", "G."));
    let only_deltas = OTLP.replace(r#""gauge":{"#, r#""sum":{"aggregationTemporality":1,"#);
    let outcome = push_otlp(&pipeline, only_deltas.as_bytes(), ContentEncoding::None).await;
    assert!(outcome.unwrap().is_refused());
    let nothing = push_otlp(&pipeline, b"{}", ContentEncoding::None)
        .await
        .unwrap();
    assert!(!nothing.is_refused() && nothing.is_complete());
}

#[tokio::test]
async fn otlp_packed_is_unpacked_within_its_limits_whatever_its_end_says() {
    let pipeline = pipeline(Ok(AppendOutcome::default()), 64);
    let limit = pipeline.limits().wire.message_bytes_max;
    let whole = gzip(OTLP.as_bytes());
    let outcome = push_otlp(&pipeline, &whole, ContentEncoding::Gzip)
        .await
        .unwrap();
    assert_eq!(outcome.stored_count, 1);
    // Two members: the length at the end covers only the second one.
    let (head, tail) = OTLP.split_at(30);
    let members = [gzip(head.as_bytes()), gzip(tail.as_bytes())].concat();
    let outcome = push_otlp(&pipeline, &members, ContentEncoding::Gzip)
        .await
        .unwrap();
    assert_eq!(outcome.stored_count, 1);
    let bomb = gzip(&vec![b' '; limit + 1]);
    let hidden = [bomb.clone(), gzip(b"{}")].concat();
    for (body, kind) in [
        (bomb, ErrorKind::Limited),
        (hidden, ErrorKind::Limited),
        (Vec::new(), ErrorKind::Invalid),
        (whole[..40].to_vec(), ErrorKind::Limited),
        (b"no gzip\0\0\0\0".to_vec(), ErrorKind::Invalid),
    ] {
        let e = push_otlp(&pipeline, &body, ContentEncoding::Gzip)
            .await
            .unwrap_err();
        assert_eq!(e.kind, kind, "{} bytes: {e}", body.len());
    }
    assert_eq!(pipeline.metrics().in_flight.used_bytes(), 0);
}

fn counts(pipeline: &Pipeline) -> Vec<String> {
    struct Nonzero(Vec<String>);
    impl MetricSink for Nonzero {
        fn metric(&mut self, name: &str, _: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
            let name = name.trim_start_matches("firn_ingest_");
            let relevant = ["requests_total", "samples_total", "samples_dropped_total"];
            if let MetricValue::Counter(count @ 1.0..) = value
                && relevant.contains(&name)
            {
                let label = labels.first().map_or("", |(_, value)| value);
                self.0.push(format!("{name} {label} {count}"));
            }
        }
    }
    let mut sink = Nonzero(Vec::new());
    pipeline.metrics().collect(&mut sink);
    sink.0
}

#[tokio::test]
async fn remote_write_partly_stored_tells_the_first_offender_and_the_counts() {
    let rejected = |rejection, count| RejectedSamples {
        rejection,
        count,
        first_labels: Labels::from_pairs([("__name__", "m")]),
        first_time: 5,
        first_series: 0,
        limit: None,
    };
    let answer = AppendOutcome {
        stored: 0,
        rejected: vec![
            rejected(SampleRejection::OutOfOrder, 2),
            rejected(SampleRejection::TooFarInFuture, 1),
        ],
        ..AppendOutcome::default()
    };
    let pipeline = pipeline(Ok(answer), 1024);
    let pending = write(&pipeline, &body(10)).await.unwrap();
    let outcome = pending.wait().unwrap();
    assert_eq!((outcome.stored_count, outcome.dropped_count()), (6, 4));
    assert_eq!(
        outcome.error_text().unwrap(),
        "invalid metric name or labels, got {a=\"0\"}; 4 of 10 samples dropped: \
         1 metric_name, 2 out_of_order, 1 too_far_in_future"
    );
    assert_eq!(
        outcome.dropped[1].first,
        "out of order sample for series {__name__=\"m\"} at timestamp 5"
    );
    let wanted = [
        "requests_total partial 1",
        "samples_total  6",
        "samples_dropped_total out_of_order 2",
        "samples_dropped_total too_far_in_future 1",
        "samples_dropped_total metric_name 1",
    ];
    assert_eq!(counts(&pipeline), wanted);
}

#[tokio::test]
async fn remote_write_wholly_stored_resolves_as_a_future_too() {
    let pipeline = pipeline(Ok(AppendOutcome::default()), 1024);
    let request = remote_write::encode(&Batch::default());
    let mut pending = write(&pipeline, &request).await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(outcome) = Pin::new(&mut pending).poll(&mut context) else {
        panic!("the store answered at once");
    };
    assert_eq!(outcome.unwrap().error_text(), None);
    assert_eq!(counts(&pipeline), ["requests_total stored 1"]);
}

#[tokio::test]
async fn remote_write_of_several_samples_a_series_stores_them_all_once() {
    let pipeline = pipeline(Ok(AppendOutcome::default()), 1024);
    let labels = Labels::from_pairs([("__name__", "m")]);
    let mut batch = Batch::default();
    // Only the last sample has a timestamp in the usual range.
    batch.push_series(labels.as_ref(), &[(5, 1.0), (1_700_000_000_000, 2.0)]);
    batch.push_series(labels.as_ref(), &[(1_700_000_000_001, 3.0)]);
    let request = remote_write::encode(&batch);
    for requests in 1..=3 {
        let pending = write(&pipeline, &request).await;
        assert_eq!(pending.unwrap().wait().unwrap().stored_count, 3);
        let wanted = [
            format!("requests_total stored {requests}"),
            format!("samples_total  {}", 3 * requests),
        ];
        assert_eq!(counts(&pipeline), wanted);
    }
}

#[tokio::test]
async fn remote_write_store_unavailable_is_an_error_and_drops_nothing() {
    let failed = Error::new(ErrorKind::Unavailable, "log is poisoned");
    let pipeline = pipeline(Err(failed.clone()), 1024);
    let pending = write(&pipeline, &body(2)).await.unwrap();
    assert_eq!(pending.wait(), Err(failed));
    assert_eq!(counts(&pipeline), ["requests_total failed 1"]);
}

/// Returns a body that declares an uncompressed size of `bytes`.
fn declaring(bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let mut rest = bytes;
    while rest >= 0x80 {
        body.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    body.push(rest as u8);
    body
}

#[tokio::test]
async fn remote_write_malformed_or_too_large_is_told_apart() {
    let pipeline = pipeline(Ok(AppendOutcome::default()), 64);
    let e = write(&pipeline, b"\x05abc").await.unwrap_err();
    assert_eq!(
        (e.kind, &e.message[..]),
        (ErrorKind::Invalid, "snappy: corrupt input")
    );
    let e = write(&pipeline, &declaring(9 << 20)).await.unwrap_err();
    let limit = pipeline.limits().wire.message_bytes_max;
    let text = format!("message too large: 9437184 bytes decompressed, limit {limit}");
    assert_eq!((e.kind, e.message), (ErrorKind::Limited, text));
    assert_eq!(counts(&pipeline), ["requests_total invalid 2"]);
    assert_eq!(pipeline.metrics().in_flight.used_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn admit_bounds_one_body_and_all_bodies() {
    let pipeline = pipeline(Ok(AppendOutcome::default()), 512);
    let limit = pipeline.limits().wire.body_bytes_max;
    let e = pipeline.admit_body(33 << 20).await.unwrap_err();
    assert_eq!(e.kind, ErrorKind::Limited);
    let text = format!("body too large: 34603008 bytes, limit {limit}");
    assert_eq!(e.message, text);
    let mut first = pipeline.admit_body(0).await.unwrap();
    first.extend_to_body(limit).unwrap();
    assert_eq!(
        first.extend_to_body(limit + 1).unwrap_err().kind,
        ErrorKind::Limited
    );
    // The paused clock advances at once when all tasks wait.
    let e = pipeline.admit_body(2 << 20).await.unwrap_err();
    assert_eq!(e.kind, ErrorKind::Unavailable);
    let text = "large bodies in flight memory limit reached: ";
    assert!(e.message.starts_with(text), "{e}");
    assert_eq!(counts(&pipeline), ["requests_total turned_away 1"]);
    drop(first);
    assert!(pipeline.admit_body(limit).await.is_ok());
}

#[tokio::test]
async fn admit_waits_until_room_is_given_back() {
    let pipeline = Arc::new(pipeline(Ok(AppendOutcome::default()), 512));
    let limit = pipeline.limits().wire.body_bytes_max;
    let first = pipeline.admit_body(limit).await.unwrap();
    let waiting = tokio::spawn({
        let pipeline = pipeline.clone();
        async move { pipeline.admit_body(limit).await.map(drop) }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(first);
    assert_eq!(waiting.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn large_requests_of_any_number_leave_room_for_ordinary_ones() {
    for mib in [77, 154, 307, 1024, 16 << 10] {
        let pipeline = pipeline(Ok(AppendOutcome::default()), mib);
        let limits = pipeline.limits();
        let mut large = Vec::new();
        for _ in 0..1_000 {
            let Ok(mut admission) = pipeline.admit_body(limits.wire.body_bytes_max).await else {
                break;
            };
            let message = declaring(limits.wire.message_bytes_max);
            // Whether it succeeded or not, the body holds its reservation.
            let _ = pipeline.prepare_body(&mut admission, &message).await;
            large.push(admission);
        }
        assert!(!large.is_empty(), "{mib} MiB");
        let mut ordinary = Vec::new();
        for _ in 0..2 {
            // The size of a request of 2,000 samples from Prometheus.
            let mut admission = pipeline.admit_body(100 << 10).await.unwrap();
            let message = declaring(200 << 10);
            let prepared = pipeline.prepare_body(&mut admission, &message).await;
            assert_eq!(prepared, Ok(()), "{mib} MiB");
            ordinary.push(admission);
        }
        assert!(pipeline.metrics().in_flight.used_bytes() <= limits.in_flight_bytes_max);
    }
}

#[tokio::test]
async fn remote_write_holds_room_until_it_is_durable() {
    let pipeline = pipeline(Ok(AppendOutcome::default()), 512);
    let pending = write(&pipeline, &body(100)).await.unwrap();
    let in_flight = pipeline.metrics().in_flight.clone();
    assert!(in_flight.used_bytes() > 0);
    pending.wait().unwrap();
    assert_eq!(in_flight.used_bytes(), 0);
}

#[test]
fn append_accepts_ten_minutes_ahead_of_the_clock() {
    let store = Arc::new(Answering {
        answer: Ok(AppendOutcome::default()),
        time_max: Mutex::default(),
    });
    let clock = Arc::new(SimClock::default());
    clock.set_ms(1_000);
    let memory = Budget::new("process", 1 << 30);
    let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(1 << 30));
    let pipeline = Pipeline::new(store.clone(), clock, limits, &memory);
    let tenant = TenantId::anonymous();
    let ticket =
        pipeline.append_from_sender(&tenant, SampleSender::Job("j".into()), &Batch::default());
    assert_eq!(ticket.wait().unwrap(), AppendOutcome::default());
    assert_eq!(*store.time_max.lock().unwrap(), 601_000);
    for (asked, holds) in [(500, 500), (i64::MAX, 601_000)] {
        let bounds = AppendBounds::up_to(asked);
        let ticket = pipeline.append(&tenant, &Batch::default(), bounds);
        assert_eq!(ticket.wait().unwrap(), AppendOutcome::default());
        assert_eq!(*store.time_max.lock().unwrap(), holds);
    }
}

#[tokio::test]
async fn batch_appended_through_the_trait_is_counted_as_a_push_is() {
    let rejected = RejectedSamples {
        rejection: SampleRejection::OutOfOrder,
        count: 2,
        first_labels: Labels::from_pairs([("__name__", "m")]),
        first_time: 5,
        first_series: 0,
        limit: None,
    };
    let answer = AppendOutcome {
        stored: 0,
        rejected: vec![rejected],
        ..AppendOutcome::default()
    };
    let mut batch = Batch::default();
    for i in 0..10 {
        let labels = Labels::from_pairs([("__name__", i.to_string())]);
        batch.push_series(labels.as_ref(), &[(5, 1.0)]);
    }
    let pushed = pipeline(Ok(answer.clone()), 1024);
    let pending = write(&pushed, &remote_write::encode(&batch)).await.unwrap();
    assert_eq!(pending.wait().unwrap().stored_count, 8);
    let appended = pipeline(Ok(answer), 1024);
    let door: &dyn Append = &appended;
    let bounds = AppendBounds::up_to(i64::MAX);
    // The ticket is dropped, but the batch is counted nevertheless.
    drop(door.append(&TenantId::anonymous(), &batch, bounds));
    let samples = ["samples_total  8", "samples_dropped_total out_of_order 2"];
    assert_eq!(counts(&pushed)[1..], samples);
    assert_eq!(counts(&appended), samples);
    let durations = |pipeline: &Pipeline| {
        let counts = pipeline.metrics().write_duration.bucket_counts();
        counts.iter().sum::<u64>()
    };
    assert_eq!((durations(&pushed), durations(&appended)), (1, 1));
}

#[test]
fn batch_of_this_process_holds_room_until_it_is_durable() {
    let store = Arc::new(Keeping::default());
    let memory = Budget::new("process", 1 << 30);
    let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(1 << 30));
    let clock = Arc::new(SimClock::default());
    let pipeline = Pipeline::new(store.clone(), clock, limits, &memory);
    let in_flight = pipeline.metrics().in_flight.clone();
    let mut batch = Batch::default();
    let labels = Labels::from_pairs([("__name__", "m")]);
    batch.push_series(labels.as_ref(), &[(5, 1.0)]);
    let tenant = TenantId::anonymous();
    let bounds = AppendBounds::up_to(i64::MAX);
    let doors: [&dyn Fn(); 3] = [
        &|| drop(pipeline.append(&tenant, &batch, bounds)),
        &|| drop(pipeline.append_from_sender(&tenant, SampleSender::Job("j".into()), &batch)),
        &|| pipeline.append_optional(&tenant, &mut &batch),
    ];
    for door in doors {
        door();
        assert_eq!(in_flight.used_bytes(), batch.memory_bytes());
        let resolver = store.0.lock().unwrap().take().unwrap();
        resolver.resolve(Ok(AppendOutcome::default()));
        assert_eq!(in_flight.used_bytes(), 0);
    }
}

#[test]
fn optional_batch_counts_what_is_stored_and_not_what_is_refused() {
    let rejected = RejectedSamples {
        rejection: SampleRejection::OutOfOrder,
        count: 2,
        first_labels: Labels::from_pairs([("__name__", "m")]),
        first_time: 5,
        first_series: 0,
        limit: None,
    };
    let pipeline = pipeline(
        Ok(AppendOutcome {
            stored: 0,
            rejected: vec![rejected],
            ..AppendOutcome::default()
        }),
        1024,
    );
    let mut batch = Batch::default();
    for i in 0..10 {
        let labels = Labels::from_pairs([("__name__", i.to_string())]);
        batch.push_series(labels.as_ref(), &[(5, 1.0)]);
    }
    pipeline.append_optional(&TenantId::anonymous(), &mut &batch);
    assert_eq!(counts(&pipeline), ["samples_total  8"]);
}
