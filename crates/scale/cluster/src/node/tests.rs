//! Nodes on a simulated bucket: joins, restored samples, takeovers and outages.

mod deletions;
mod simulation;

pub(crate) use simulation::NodeSimulation;

use super::*;
use crate::object_name::ObjectName;
use firn_bucket::ObjectKey;
use firn_bucket::sim::{SimBucket, SimFault, SimFaults, SimOutage, SimStore};
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::sim::{self, SimEnv};
use firn_model::error::ErrorKind;
use firn_model::labels::Labels;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Append, AppendBounds, Select, SelectRequest, Ticket};
use firn_model::tenant::TenantId;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

const MINUTE: i64 = 60_000;

const PARTITIONS: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// A bucket with an inline store, and a clock that the test moves.
struct World {
    store: SimStore,
    clock_ms: Arc<AtomicU64>,
    /// Milliseconds by which each look at the clock moves it, for a thread that waits for a COMMIT.
    pace_ms: u64,
}

impl World {
    fn new() -> Self {
        let store = SimStore::new(1);
        store.complete_inline();
        let clock_ms = Arc::new(AtomicU64::new(1_000));
        Self {
            store,
            clock_ms,
            pace_ms: 0,
        }
    }

    fn bucket(&self) -> Arc<dyn Bucket> {
        Arc::new(self.store.client(SimFaults::none()))
    }

    fn join(
        &self,
        bucket: &SimBucket,
        partitions: u32,
        version: &str,
    ) -> Result<ClusterFormat, JoinError> {
        let options = JoinOptions {
            partitions: NonZeroU32::new(partitions).unwrap(),
            version,
        };
        join_cluster(bucket, &sim::sim_env(7).env, options)
    }

    /// Starts a node with an empty disk, which leads all partitions.
    fn start(&self, seed: u64) -> ClusterNode {
        let node = self.create(seed);
        node.lead_all().unwrap();
        // A new leader waits for the lease of its predecessor.
        self.advance(&node, 300);
        node
    }

    /// Creates a node with an empty disk, which leads nothing.
    fn create(&self, seed: u64) -> ClusterNode {
        let sim: SimEnv = sim::sim_env(seed);
        let bucket = self.bucket();
        let options = JoinOptions {
            partitions: PARTITIONS,
            version: "0.1.0",
        };
        let format = join_cluster(&*bucket, &sim.env, options).unwrap();
        let (clock, pace) = (self.clock_ms.clone(), self.pace_ms);
        let options = NodeOptions {
            flush_interval: Duration::from_millis(50),
            read_lease: Duration::from_millis(200),
            clock: Arc::new(move || {
                Duration::from_millis(clock.fetch_add(pace, Ordering::Relaxed))
            }),
            simulation: None,
        };
        // Samples are in blocks an hour after their time.
        let folder = |partition: PartitionId| StoreOptions {
            window_ms: 5 * MINUTE,
            cut_ms: 20 * MINUTE,
            lateness_max_ms: 10 * MINUTE,
            page_segment_bytes: 4 << 10,
            ..StoreOptions::new(format!("/data/{partition}"))
        };
        ClusterNode::new(bucket, sim.env, format, options, folder).unwrap()
    }

    fn advance(&self, node: &ClusterNode, ms: u64) {
        for _ in 0..ms / 10 {
            self.clock_ms.fetch_add(10, Ordering::Relaxed);
            node.logs().iter().for_each(BucketLog::run_timers);
        }
    }

    fn append(&self, node: &ClusterNode, partition: usize, time: i64) -> Result<(), ErrorKind> {
        let mut batch = Batch::default();
        let name = format!("m{partition}");
        let labels = Labels::from_pairs([("__name__", name.as_str())]);
        batch.push_series(labels.as_ref(), &[(time, time as f64)]);
        let tenant = TenantId::anonymous();
        let bounds = AppendBounds::up_to(i64::MAX);
        let ticket: Ticket = stores(node)[partition].append(&tenant, &batch, bounds);
        self.advance(node, 200);
        ticket.wait().map(drop).map_err(|e| e.kind)
    }
}

/// Returns the stores of all partitions.
fn stores(node: &ClusterNode) -> Vec<Arc<Store>> {
    let open = node.open_stores().stores();
    open.iter().map(|open| open.store.clone()).collect()
}

/// Returns the times of all samples of a partition.
fn times(select: &dyn Select) -> Result<Vec<i64>, ErrorKind> {
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: &[],
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    let selection = select.select(request).map_err(|e| e.kind)?;
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch).unwrap();
    let series = (0..selection.len()).map(|i| batch.series(i).times.to_vec());
    Ok(series.flatten().collect())
}

fn strong(node: &ClusterNode, partition: usize) -> StrongSelect {
    let inner: Arc<dyn Select> = stores(node)[partition].clone();
    StrongSelect::new(node.logs(), inner, Duration::ZERO)
}

#[test]
fn node_whose_disk_is_lost_restores_every_acknowledged_sample() {
    let world = World::new();
    for life in 0..4_i64 {
        let node = world.start(life as u64);
        for partition in 0..3 {
            let expected: Vec<i64> = (0..life).collect();
            assert_eq!(times(&*stores(&node)[partition]), Ok(expected));
            assert_eq!(world.append(&node, partition, life), Ok(()));
        }
    }
}

#[test]
fn log_is_trimmed_and_a_node_with_an_empty_disk_has_the_samples_of_blocks_and_log() {
    let world = World {
        pace_ms: 1,
        ..World::new()
    };
    let mut expected = Vec::new();
    for life in 0..4_i64 {
        let node = world.start(life as u64);
        assert_eq!(
            times(&*stores(&node)[0]),
            Ok(expected.clone()),
            "life {life}"
        );
        for minute in life * 200..(life + 1) * 200 {
            assert_eq!(world.append(&node, 0, minute * MINUTE), Ok(()));
            expected.push(minute * MINUTE);
            (0..4).for_each(|_| stores(&node)[0].tick());
        }
        assert_eq!(
            times(&strong(&node, 0)),
            Ok(expected.clone()),
            "life {life}"
        );
    }
    let keys = world.store.keys();
    let count = |prefix: &str| {
        keys.iter()
            .filter(|k| k.as_str().starts_with(prefix))
            .count()
    };
    assert!(count("blk/") > 20, "{} files of blocks", count("blk/"));
    assert_eq!(count("state/0/"), 3, "checkpoints");
    // 800 records in as many segments; a replay needs those of the last hour.
    assert!(count("log/0/") < 300, "{} segments", count("log/0/"));
    let format = read_format(&*world.bucket()).unwrap().unwrap();
    let report = crate::audit::audit(&*world.bucket(), &format).unwrap();
    assert!(report.is_sound(), "{report}");
}

#[test]
fn second_node_takes_over_and_the_first_has_a_fault_and_answers_no_strong_read() {
    let world = World::new();
    let first = world.start(1);
    assert_eq!(world.append(&first, 0, 1), Ok(()));
    assert_eq!(first.fault(), None);
    let second = world.start(2);
    assert_eq!(times(&strong(&second, 0)), Ok(vec![1]));
    assert_eq!(world.append(&first, 0, 2), Err(ErrorKind::Unavailable));
    let fault = first.fault().unwrap();
    assert!(fault.starts_with("partition 0: "), "{fault}");
    assert_eq!(times(&strong(&first, 0)), Err(ErrorKind::Unavailable));
    assert_eq!(times(&*stores(&first)[0]), Ok(vec![1]), "an eventual read");
    assert_eq!(world.append(&second, 0, 3), Ok(()));
    assert_eq!(times(&strong(&second, 0)), Ok(vec![1, 3]));
}

#[test]
fn strong_read_needs_the_bucket_only_after_the_lease() {
    let world = World::new();
    let node = world.start(1);
    for partition in 0..3 {
        assert_eq!(world.append(&node, partition, 1), Ok(()));
    }
    assert_eq!(times(&strong(&node, 0)), Ok(vec![1]));
    world.store.set_outage(Some(SimOutage::Refusing));
    assert_eq!(times(&strong(&node, 0)), Ok(vec![1]), "leased");
    world.advance(&node, 300);
    assert_eq!(times(&strong(&node, 0)), Err(ErrorKind::Unavailable));
    assert_eq!(times(&*stores(&node)[0]), Ok(vec![1]), "an eventual read");
    world.store.set_outage(None);
    world.advance(&node, 5_000);
    assert_eq!(times(&strong(&node, 0)), Ok(vec![1]));
    assert_eq!(world.append(&node, 1, 2), Ok(()));
}

#[test]
fn stopped_writes_are_no_fault_and_are_rejected_with_the_reason() {
    let world = World::new();
    let node = world.start(1);
    assert_eq!(world.append(&node, 0, 1), Ok(()));
    node.stop_writes("the store ignores conditions");
    assert_eq!(world.append(&node, 0, 2), Err(ErrorKind::Unavailable));
    assert_eq!(node.fault(), None);
    let health = format!("{:?}", stores(&node)[0].health());
    assert!(health.contains("the store ignores conditions"), "{health}");
}

#[test]
fn cluster_is_created_once_and_nodes_with_other_settings_are_rejected() {
    let world = World::new();
    let bucket = world.store.client(SimFaults::none());
    let format = world.join(&bucket, 3, "0.1.0").unwrap();
    assert_eq!(world.join(&bucket, 3, "0.1.1").unwrap(), format);
    let check = |partitions: u32, version: &str, expected: &str| {
        let error = world.join(&bucket, partitions, version).unwrap_err();
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(
        4,
        "0.1.0",
        "partitions: 4, but the cluster in the bucket has 3",
    );
    check(3, "0.0.9", "requires Firn 0.1.0 or newer, this is 0.0.9");
    world.store.set_outage(Some(SimOutage::Refusing));
    assert!(world.join(&bucket, 3, "0.1.0").unwrap_err().is_transient());
}

#[test]
fn store_that_ignores_the_condition_gets_no_cluster() {
    let world = World::new();
    let bucket = world
        .store
        .client(SimFaults::always(SimFault::ConditionStripped));
    let error = world.join(&bucket, 3, "0.1.0").unwrap_err();
    assert!(matches!(error, JoinError::Store(_)), "{error}");
    let key = ObjectKey::new(&ObjectName::Format.to_string()).unwrap();
    assert_eq!(world.store.object(&key), None);
}
