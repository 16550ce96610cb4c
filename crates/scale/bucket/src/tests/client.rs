//! The client over a scripted store, on a paused clock: time, budget, second attempts, stops.

use super::*;
use crate::backend::StoreBackend;
use crate::byte_budget::ByteReservation;
use async_trait::async_trait;
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

const MS: Duration = Duration::from_millis(1);

/// A store whose attempts take the scripted times; 1 ms afterwards.
#[derive(Default)]
struct Script {
    delays_ms: Mutex<VecDeque<u32>>,
    results: Mutex<VecDeque<Creation>>,
    attempts: AtomicUsize,
    running: AtomicUsize,
    running_max: AtomicUsize,
}

#[derive(Clone, Default)]
struct ScriptedBackend(Arc<Script>);

impl ScriptedBackend {
    async fn attempt(&self) {
        let script = &self.0;
        script.attempts.fetch_add(1, Ordering::SeqCst);
        let running = script.running.fetch_add(1, Ordering::SeqCst) + 1;
        script.running_max.fetch_max(running, Ordering::SeqCst);
        let delay = script.delays_ms.lock().unwrap().pop_front().unwrap_or(1);
        sleep(delay * MS).await;
        script.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl StoreBackend for ScriptedBackend {
    async fn put_new(&self, key: &ObjectKey, _: Bytes) -> Creation {
        assert_ne!(key.as_str(), "panic");
        self.attempt().await;
        self.0
            .results
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Creation::Stored)
    }

    async fn get(&self, _: &ObjectKey, room: &mut ByteReservation) -> ReadResult<Bytes> {
        room.reserve(1000).await?;
        self.attempt().await;
        Ok(Some(vec![0; 1000].into()))
    }

    async fn get_range(&self, key: &ObjectKey, range: ByteRange) -> ReadResult<Bytes> {
        // Later ranges end first.
        self.0.attempts.fetch_add(1, Ordering::SeqCst);
        sleep(MS * (1000 - range.start() as u32)).await;
        match key.as_str() {
            "missing" => Ok(None),
            _ => Ok(Some(format!("{}", range.start()).into())),
        }
    }

    async fn head(&self, _: &ObjectKey) -> ReadResult<ObjectHead> {
        self.attempt().await;
        Ok(None)
    }

    async fn list(&self, _: &ListRequest) -> Result<ListPage, BucketError> {
        self.attempt().await;
        Ok(ListPage::default())
    }

    async fn delete(&self, _: &ObjectKey) -> Result<(), BucketError> {
        self.attempt().await;
        Ok(())
    }
}

struct Fixture {
    script: Arc<Script>,
    bucket: ObjectStoreBucket,
    metrics: Arc<BucketMetrics>,
}

fn fixture(limits: BucketLimits) -> Fixture {
    let backend = ScriptedBackend::default();
    let script = backend.0.clone();
    let metrics = Arc::new(BucketMetrics::default());
    let handle = Handle::current();
    let bucket = ObjectStoreBucket::new(Box::new(backend), limits, &handle, metrics.clone());
    Fixture {
        script,
        bucket,
        metrics,
    }
}

impl Fixture {
    fn create(&self, name: &str, bytes: usize) -> oneshot::Receiver<Creation> {
        let (sender, receiver) = oneshot::channel();
        let done = move |result| drop(sender.send(result));
        self.bucket
            .put_new(&key(name), vec![0; bytes].into(), Box::new(done));
        receiver
    }

    fn script(&self, delays_ms: &[u32]) {
        self.script.delays_ms.lock().unwrap().extend(delays_ms);
    }

    fn attempts(&self) -> usize {
        self.script.attempts.swap(0, Ordering::SeqCst)
    }

    /// The metrics other than zero, by name and labels.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let mut found = Collected::default();
        self.metrics.collect(&mut found);
        found.0.retain(|_, value| *value != 0.0);
        found.0
    }
}

#[derive(Default)]
struct Collected(BTreeMap<String, f64>);

impl MetricSink for Collected {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
        assert!(help.ends_with('.'), "{help}");
        let labels: Vec<String> = labels
            .iter()
            .map(|(_, value)| (*value).to_owned())
            .collect();
        let value = match value {
            MetricValue::Counter(value) | MetricValue::Gauge(value) => value,
            MetricValue::Histogram(histogram) => {
                histogram.bucket_counts().iter().sum::<u64>() as f64
            }
        };
        let name = format!(
            "{} {}",
            name.strip_prefix("firn_bucket_").unwrap(),
            labels.join(" ")
        );
        let before = self.0.insert(name, value);
        assert!(before.is_none());
    }
}

fn limits() -> BucketLimits {
    BucketLimits {
        create_timeout: 100 * MS,
        bytes_in_flight_max: 64 << 10,
        object_bytes_max: 64 << 10,
        ..BucketLimits::default()
    }
}

#[tokio::test(start_paused = true)]
async fn creation_without_an_answer_is_ambiguous_after_its_time() {
    let fixture = fixture(limits());
    fixture.script(&[5000]);
    let start = Instant::now();
    let created = fixture.create("a", 1).await.unwrap();
    assert_eq!(start.elapsed(), 100 * MS);
    assert_eq!(kind(&created), ("ambiguous", Some(BucketFailure::Timeout)));
    let text = "create a: no complete response within 100ms";
    assert_eq!(created.error().unwrap().message, text);
    assert_eq!(fixture.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn bytes_in_flight_are_limited_and_a_creation_that_waits_too_long_is_refused() {
    let fixture = fixture(limits());
    fixture.script(&[40, 40, 40, 40]);
    let half = 32 << 10;
    let start = Instant::now();
    for receiver in ["a", "b", "c", "d"].map(|name| fixture.create(name, half)) {
        assert_eq!(receiver.await.unwrap(), Creation::Stored);
    }
    assert_eq!(start.elapsed(), 80 * MS, "two at a time");
    assert_eq!(fixture.script.running_max.load(Ordering::SeqCst), 2);
    // Reads hold all bytes for longer than a creation may take.
    fixture.script(&[500; 64]);
    for _ in 0..64 {
        let done = |read: ReadResult<Bytes>| assert!(read.is_ok());
        fixture.bucket.get(&key("a"), Box::new(done));
    }
    let created = fixture.create("e", 1).await.unwrap();
    assert_eq!(kind(&created), ("refused", Some(BucketFailure::Timeout)));
    let text = "create e: no bytes in flight were free for 100ms";
    assert_eq!(created.error().unwrap().message, text);
    sleep(500 * MS).await;
    let metrics = fixture.metrics();
    assert!(!metrics.contains_key("bytes_in_flight "), "{metrics:?}");
    assert!(!metrics.contains_key("requests_in_flight "), "{metrics:?}");
}

#[tokio::test(start_paused = true)]
async fn operation_over_the_limit_is_refused_immediately() {
    let fixture = fixture(BucketLimits {
        operations_max: 2,
        ..limits()
    });
    let running = [fixture.create("a", 1), fixture.create("b", 1)];
    assert_eq!(fixture.metrics()["requests_in_flight "], 2.0);
    let refused = fixture.create("c", 1).try_recv().unwrap();
    assert_eq!(kind(&refused), ("refused", Some(BucketFailure::Limited)));
    for receiver in running {
        assert_eq!(receiver.await.unwrap(), Creation::Stored);
    }
    assert_eq!(fixture.create("d", 1).await.unwrap(), Creation::Stored);
}

#[tokio::test(start_paused = true)]
async fn slow_creation_has_a_second_attempt_within_five_percent() {
    let fixture = fixture(limits());
    for _ in 0..200 {
        fixture.create("a", 1).await.unwrap();
    }
    assert_eq!(fixture.attempts(), 200);
    // The first attempt hangs, the second one answers.
    fixture.script(&[5000, 3]);
    let start = Instant::now();
    assert_eq!(fixture.create("b", 1).await.unwrap(), Creation::Stored);
    assert_eq!((start.elapsed(), fixture.attempts()), (4 * MS, 2));
    let failed = || Creation::Ambiguous(BucketError::new(BucketFailure::Server, "x"));
    let refused = || Creation::Refused(BucketError::new(BucketFailure::Denied, "y"));
    for (results, expected) in [
        ([refused(), failed()], "ambiguous"),
        ([failed(), refused()], "ambiguous"),
        ([refused(), refused()], "refused"),
        ([failed(), Creation::Exists], "exists"),
    ] {
        fixture.script(&[10, 5]);
        fixture.script.results.lock().unwrap().extend(results);
        let created = fixture.create("c", 1).await.unwrap();
        assert_eq!((kind(&created).0, fixture.attempts()), (expected, 2));
    }
    for _ in 0..100 {
        fixture.script(&[50]);
        fixture.create("d", 1).await.unwrap();
    }
    let hedges = fixture.metrics()["hedges_total put_new"];
    // The p99 itself becomes 50 ms, so that they stop before five percent.
    assert!((6.0..=15.0).contains(&hedges), "{hedges} of 305");
    assert_eq!(fixture.attempts(), 100 + hedges as usize - 5);
}

#[tokio::test(start_paused = true)]
async fn second_attempts_can_be_switched_off() {
    let fixture = fixture(BucketLimits {
        is_hedged: false,
        ..limits()
    });
    for _ in 0..200 {
        fixture.create("a", 1).await.unwrap();
    }
    fixture.script(&[50]);
    fixture.create("b", 1).await.unwrap();
    assert_eq!(fixture.attempts(), 201);
}

#[tokio::test(start_paused = true)]
async fn ranges_are_read_at_once_and_returned_in_order() {
    let fixture = fixture(limits());
    let read = async |name: &str, starts: &[u64]| {
        let (sender, receiver) = oneshot::channel();
        let ranges: Vec<_> = starts
            .iter()
            .map(|start| ByteRange::new(*start, 10))
            .collect();
        let done = move |result| drop(sender.send(result));
        fixture
            .bucket
            .get_ranges(&key(name), &ranges, Box::new(done));
        receiver.await.unwrap()
    };
    let start = Instant::now();
    let found = read("a", &[1, 900, 500]).await.unwrap().unwrap();
    assert_eq!(found, ["1", "900", "500"].map(Bytes::from));
    assert_eq!(start.elapsed(), 999 * MS);
    assert_eq!(read("missing", &[1, 2]).await, Ok(None));
    for starts in [&[][..], &[1; 65]] {
        let error = read("a", starts).await.unwrap_err();
        assert_eq!(error.failure, BucketFailure::Limited, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_count_operations_bytes_and_durations() {
    let fixture = fixture(limits());
    fixture.create("a", 10).await.unwrap();
    fixture
        .script
        .results
        .lock()
        .unwrap()
        .push_back(Creation::Exists);
    fixture.create("a", 10).await.unwrap();
    let (sender, receiver) = oneshot::channel();
    fixture
        .bucket
        .get(&key("a"), Box::new(move |result| drop(sender.send(result))));
    receiver.await.unwrap().unwrap();
    let (sender, receiver) = oneshot::channel();
    fixture
        .bucket
        .head(&key("a"), Box::new(move |result| drop(sender.send(result))));
    receiver.await.unwrap().unwrap();
    let expected = [
        ("bytes_total get", 1000.0),
        ("bytes_total put_new", 10.0),
        ("request_duration_seconds get", 1.0),
        ("request_duration_seconds head", 1.0),
        ("request_duration_seconds put_new", 2.0),
        ("requests_total get ok", 1.0),
        ("requests_total head missing", 1.0),
        ("requests_total put_new exists", 1.0),
        ("requests_total put_new stored", 1.0),
    ];
    let expected: BTreeMap<String, f64> = expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    assert_eq!(fixture.metrics(), expected);
}

#[tokio::test(start_paused = true)]
async fn panic_in_an_attempt_calls_back() {
    let fixture = fixture(limits());
    let created = fixture.create("panic", 1).await.unwrap();
    assert_eq!(kind(&created), ("ambiguous", Some(BucketFailure::Stopped)));
}

#[test]
fn stop_of_the_runtime_calls_back() {
    let runtime = runtime();
    let fixture = {
        let _inside = runtime.enter();
        fixture(limits())
    };
    fixture.script(&[60_000]);
    let mut running = fixture.create("a", 1);
    while fixture.script.attempts.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    drop(runtime);
    let created = running.try_recv().unwrap();
    assert_eq!(kind(&created), ("ambiguous", Some(BucketFailure::Stopped)));
    let created = fixture.create("b", 1).try_recv().unwrap();
    assert_eq!(kind(&created), ("refused", Some(BucketFailure::Stopped)));
}
