//! Pushes of two replicas, into a store that records or fails.

use super::*;
use firn_model::fingerprint::{Fingerprint, FingerprintSeed, HashKeys, HashKind, SeriesHash};
use firn_model::store::NewestSampleTimes;
use firn_model::tenant_limits::{IngestionRate, ReplicaSettings, TenantLimits};
use std::sync::atomic::{AtomicBool, Ordering};

/// Records the labels and times of stored series; appends fail while `fails` is true.
struct Recording {
    hash: SeriesHash,
    stored: Mutex<Vec<String>>,
    fails: AtomicBool,
    newest: Mutex<Option<NewestSampleTimes>>,
}

impl Append for Recording {
    fn append(&self, _: &TenantId, batch: &Batch, _: AppendBounds) -> Ticket {
        if self.fails.load(Ordering::Relaxed) {
            return Ticket::resolved(Err(Error::unavailable("the disk failed")));
        }
        for (number, series) in batch.iter_with_index() {
            let exemplars = batch.exemplars().iter_series(number).count();
            let exemplars = ["", " with an exemplar"][exemplars.min(1)];
            let line = format!("{} {:?}{exemplars}", series.labels, series.times);
            self.stored.lock().unwrap().push(line);
        }
        Ticket::resolved(Ok(AppendOutcome {
            stored: batch.sample_count(),
            ..AppendOutcome::default()
        }))
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        Some(self.hash.clone())
    }

    fn can_store_exemplars(&self) -> bool {
        true
    }

    fn newest_sample_times(
        &self,
        _: &TenantId,
        prints: &[Fingerprint],
    ) -> Vec<Option<NewestSampleTimes>> {
        vec![*self.newest.lock().unwrap(); prints.len()]
    }
}

/// A pipeline that accepts pairs of replicas, and its store.
struct Pair {
    pipeline: Pipeline,
    store: Arc<Recording>,
}

impl Pair {
    fn new(rate: Option<IngestionRate>) -> Self {
        let seed = FingerprintSeed([1, 2]);
        let store = Arc::new(Recording {
            hash: SeriesHash {
                keys: Arc::new(HashKeys::from_seed(HashKind::Nh, seed)),
                format: remote_write::KEY_FORMAT,
            },
            stored: Mutex::default(),
            fails: AtomicBool::new(false),
            newest: Mutex::default(),
        });
        let clock = Arc::new(SimClock::default());
        clock.set_ms(10_000_000);
        let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(1 << 30));
        let memory = Budget::new("process", 1 << 30);
        let pipeline = Pipeline::new(store.clone(), clock, limits, &memory);
        let mut overrides = TenantOverrides::default();
        let of_tenant = TenantLimits {
            rate,
            replicas: Some(ReplicaSettings {
                cluster_label: "cluster".into(),
                replica_label: "__replica__".into(),
                clusters_max: 2,
            }),
            ..TenantLimits::default()
        };
        overrides.insert(TenantId::anonymous(), of_tenant);
        pipeline.set_overrides(Arc::new(overrides));
        Self { pipeline, store }
    }

    /// Sends one sample of each of `pairs` at `time`, with its labels in the given order.
    async fn send(&self, pairs: &[(&str, &str)], time: TimestampMs) -> Result<WriteOutcome, Error> {
        let mut series = Vec::new();
        for (name, value) in pairs {
            remote_write::KEY_FORMAT.push_label(&mut series, name.as_bytes(), value.as_bytes());
        }
        let mut sample = vec![0x09];
        sample.extend_from_slice(&1.0f64.to_le_bytes());
        sample.push(0x10);
        firn_model::labels::push_uvarint(&mut sample, time as u64);
        for (key, bytes) in [(0x12, &sample), (0x1a, &sample)] {
            series.push(key);
            firn_model::labels::push_uvarint(&mut series, bytes.len() as u64);
            series.extend_from_slice(bytes);
        }
        // The exemplar has its value and time in the fields of a sample plus one.
        let exemplar = series.len() - sample.len();
        series[exemplar] = 0x11;
        series[exemplar + 9] = 0x18;
        let mut message = vec![0x0a];
        firn_model::labels::push_uvarint(&mut message, series.len() as u64);
        message.extend_from_slice(&series);
        // A block of snappy with one literal of at most 256 bytes.
        let mut body = Vec::new();
        firn_model::labels::push_uvarint(&mut body, message.len() as u64);
        body.extend([60 << 2, u8::try_from(message.len() - 1).unwrap()]);
        body.extend_from_slice(&message);
        write(&self.pipeline, &body).await?.await
    }

    async fn check(&self, pairs: &[(&str, &str)], time: TimestampMs, is_stored: bool) {
        let outcome = self.send(pairs, time).await.unwrap();
        assert_eq!(outcome.is_deduplicated(), !is_stored, "{outcome:?}");
        assert_eq!(outcome.written.samples, 1);
        assert_eq!(outcome.written.exemplars, 1);
    }

    fn take_stored(&self) -> Vec<String> {
        std::mem::take(&mut self.store.stored.lock().unwrap())
    }
}

fn labels_of(replica: &str) -> [(&str, &str); 4] {
    [
        ("__name__", "m"),
        ("__replica__", replica),
        ("cluster", "c"),
        ("job", "j"),
    ]
}

#[tokio::test]
async fn one_replica_is_stored_without_its_label_in_any_order_of_labels() {
    let pair = Pair::new(None);
    pair.check(&labels_of("a"), 10_000, true).await;
    pair.check(&labels_of("b"), 11_000, false).await;
    let mut reversed = labels_of("a");
    reversed.reverse();
    pair.check(&reversed, 25_000, true).await;
    let mut reversed = labels_of("b");
    reversed.reverse();
    pair.check(&reversed, 26_000, false).await;
    pair.check(&[("__name__", "m"), ("__replica__", "b")], 25_000, true)
        .await;
    assert_eq!(
        pair.take_stored(),
        [
            r#"{__name__="m", cluster="c", job="j"} [10000] with an exemplar"#,
            r#"{__name__="m", cluster="c", job="j"} [25000] with an exemplar"#,
            r#"{__name__="m", __replica__="b"} [25000] with an exemplar"#,
        ]
    );
}

#[tokio::test]
async fn request_that_failed_is_stored_when_it_is_repeated() {
    let rate = IngestionRate {
        per_second: 1.0,
        burst: Some(6),
    };
    let pair = Pair::new(Some(rate));
    pair.check(&labels_of("a"), 10_000, true).await;
    pair.store.fails.store(true, Ordering::Relaxed);
    assert!(pair.send(&labels_of("a"), 25_000).await.is_err());
    pair.store.fails.store(false, Ordering::Relaxed);
    pair.check(&labels_of("a"), 25_000, true).await;
    // A sample and an exemplar each: the burst is used up.
    let e = pair.send(&labels_of("a"), 40_000).await.unwrap_err();
    assert!(matches!(e.kind, ErrorKind::RateLimited { .. }), "{e}");
    // Deduplicated samples take nothing from the rate.
    pair.check(&labels_of("b"), 26_000, false).await;
    assert_eq!(pair.take_stored().len(), 2);
}

#[tokio::test]
async fn series_of_the_store_is_continued_after_a_restart() {
    let pair = Pair::new(None);
    *pair.store.newest.lock().unwrap() = Some(NewestSampleTimes {
        newest: 100_000,
        before: Some(85_000),
    });
    pair.check(&labels_of("b"), 102_000, false).await;
    pair.check(&labels_of("a"), 115_000, true).await;
    pair.check(&labels_of("b"), 117_000, false).await;
    // Too far in the future: the store rejects it, and the state does not change.
    pair.check(&labels_of("b"), 20_000_000, true).await;
    pair.check(&labels_of("a"), 130_000, true).await;
}

#[tokio::test]
async fn clusters_beyond_the_limit_are_refused_with_their_number() {
    let pair = Pair::new(None);
    let of = |cluster: &'static str| {
        [
            ("__name__", "m"),
            ("__replica__", "a"),
            ("cluster", cluster),
        ]
    };
    pair.check(&of("1"), 10_000, true).await;
    pair.check(&of("2"), 10_000, true).await;
    let e = pair.send(&of("3"), 10_000).await.unwrap_err();
    let message = "too many HA clusters: 3, limit 2 (ha_max_clusters)";
    assert_eq!((e.kind, e.message.as_str()), (ErrorKind::Invalid, message));
    // The cluster without samples for more than an hour of data time is removed.
    pair.check(&of("1"), 4_000_000, true).await;
    pair.check(&of("3"), 4_000_000, true).await;
}
