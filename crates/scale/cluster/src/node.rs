//! A node of a cluster: joins the bucket, takes over partitions, and opens a store for each.
//!
//! ```text
//! join_cluster: cluster/format exists -> check it against the config
//!               absent -> check_store -> create it
//! ClusterNode::open: for each partition  BucketLog::take_over, BucketHome -> Store
//! StrongSelect: lease of each log -> stores      LogTimer: ticks of all logs
//! ```
//!
//! Invariants: no log is written in a bucket whose store has not passed
//! [`firn_bucket::check_store`]; a node with other settings than those in `cluster/format` writes
//! nothing; the folder of a node is scratch, so that its loss costs nothing.
//!
//! This module leaves to its owner: retries of a bucket that does not answer, the hourly
//! [`firn_bucket::canary`], and the end of the process after a fault ([`ClusterNode::fault`]).

mod join;
mod log_timer;
pub(crate) mod partition;
mod strong_select;
#[cfg(test)]
mod tests;

pub use join::{JoinError, JoinOptions, join_cluster, read_format};
pub use strong_select::StrongSelect;

use crate::cluster_format::ClusterFormat;
use crate::engine::{BucketLog, BucketLogMetrics, BucketLogOptions, EngineClock};
use crate::home::{BucketHome, HomeOptions};
use crate::ids::PartitionId;
use crate::log::LogCoreOptions;
use firn_bucket::Bucket;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::HashKeys;
use firn_storage::store::{Store, StoreOptions};
use log_timer::LogTimer;
use partition::{PartitionSteps, open_partition};
use std::sync::Arc;
use std::time::Duration;

/// Memory in bytes of records that wait for the bucket, of all partitions together.
const QUEUE_BYTES_MAX: usize = 128 << 20;

/// Minimum of a partition: twice the largest record of a push.
const PARTITION_QUEUE_BYTES_MIN: usize = 8 << 20;

/// Size in bytes from which a segment is created without waiting for the flush interval.
const SEGMENT_BYTES: usize = 256 << 10;

/// The pause before a failed write of a missing checkpoint is repeated.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(1);

/// Settings of a node that each node may choose for itself.
#[derive(Clone)]
pub struct NodeOptions {
    /// Time for which a record may wait for others before its segment is created.
    pub flush_interval: Duration,
    /// Duration of a read lease: without a request to the bucket, strong reads are answered for
    /// this long after a confirmation.
    pub read_lease: Duration,
    /// A clock that counts suspends of the machine.
    pub clock: EngineClock,
}

/// The partitions that this process leads. Created by [`ClusterNode::open`].
pub struct ClusterNode {
    logs: Vec<BucketLog>,
    stores: Vec<Arc<Store>>,
    _timer: LogTimer,
}

impl ClusterNode {
    /// Takes over all partitions and opens their stores, one after the other. Blocks until all
    /// records are replayed, for as long as the bucket does not answer. `store_options` returns the
    /// options of the store of a partition, whose folder is scratch.
    ///
    /// # Errors
    ///
    /// Another process took over a partition, the log contains an object of a newer version, or a
    /// scratch folder contains other data.
    pub fn open(
        bucket: &Arc<dyn Bucket>,
        env: &Env,
        format: &ClusterFormat,
        options: &NodeOptions,
        store_options: impl Fn(PartitionId) -> StoreOptions,
    ) -> Result<Self, Error> {
        let timer = LogTimer::start(options.flush_interval).map_err(|e| {
            let text = format!("start the timer of the logs: {e}");
            Error::new(ErrorKind::Internal, text)
        })?;
        let steps = |number| StoreSteps {
            bucket,
            env,
            format,
            options,
            store_options: &store_options,
            partition: PartitionId(number),
            timer: &timer,
        };
        let partitions: Vec<_> = (0..format.partitions.get()).map(steps).collect();
        // All takeovers begin at once; replays are one after the other.
        let begun: Vec<BucketLog> = partitions.iter().map(PartitionSteps::take_over).collect();
        let (mut logs, mut stores) = (Vec::new(), Vec::new());
        for (partition, log) in partitions.iter().zip(begun) {
            let (log, store) = open_partition(partition, log)?;
            logs.push(log);
            stores.push(store);
        }
        Ok(Self {
            logs,
            stores,
            _timer: timer,
        })
    }

    /// Returns the stores by partition.
    pub fn stores(&self) -> &[Arc<Store>] {
        &self.stores
    }

    /// Returns the logs by partition.
    pub fn logs(&self) -> &[BucketLog] {
        &self.logs
    }

    /// Returns why this process has to end: it does not write one of its logs any more, because
    /// another process does or because the log contains an object that it cannot read.
    pub fn fault(&self) -> Option<String> {
        (0..).zip(&self.logs).find_map(|(number, log)| {
            let reason = log.fault()?;
            Some(format!("partition {number}: {reason}"))
        })
    }

    /// Rejects all writes from now on, with this reason, and answers no strong read any more. For a
    /// bucket that does not honor the condition of creations.
    pub fn stop_writes(&self, reason: &str) {
        for log in &self.logs {
            log.stop_writes(reason);
        }
    }
}

/// The steps of the opening of a partition with a real store.
struct StoreSteps<'a, O> {
    bucket: &'a Arc<dyn Bucket>,
    env: &'a Env,
    format: &'a ClusterFormat,
    options: &'a NodeOptions,
    store_options: &'a O,
    partition: PartitionId,
    timer: &'a LogTimer,
}

impl<O: Fn(PartitionId) -> StoreOptions> PartitionSteps for StoreSteps<'_, O> {
    type Opened = Arc<Store>;

    fn take_over(&self) -> BucketLog {
        let options = log_options(self.format, self.options, self.partition);
        let metrics = Arc::new(BucketLogMetrics::default());
        let log = BucketLog::take_over(self.bucket.clone(), self.env.clone(), options, metrics);
        self.timer.add(&log);
        log
    }

    fn create_home(&self, log: &BucketLog) -> Arc<BucketHome> {
        let options = HomeOptions::default();
        let home = BucketHome::new(self.bucket.clone(), self.env.clone(), log.clone(), options);
        Arc::new(home)
    }

    fn open_store(&self, log: &BucketLog, home: Arc<BucketHome>) -> Result<Arc<Store>, Error> {
        let keys = HashKeys::from_seed(self.format.hash, self.format.seed);
        let options = (self.store_options)(self.partition);
        let log = Box::new(log.clone());
        Store::open_with_home(self.env.clone(), options, log, home, keys)
    }

    fn abandon(&self, store: Arc<Store>) {
        store.abandon();
    }

    fn pause(&self) {
        std::thread::sleep(CHECKPOINT_PAUSE);
    }
}

fn log_options(
    format: &ClusterFormat,
    options: &NodeOptions,
    partition: PartitionId,
) -> BucketLogOptions {
    let share = QUEUE_BYTES_MAX / format.partitions.get() as usize;
    let queue_bytes_max = share.max(PARTITION_QUEUE_BYTES_MIN);
    let core = LogCoreOptions {
        cluster: format.cluster,
        partition,
        window: format.window.get(),
        lease: options.read_lease,
        flush_interval: options.flush_interval,
        segment_bytes: SEGMENT_BYTES,
        // The engine bounds the queue before records are encoded.
        queue_bytes: usize::MAX,
        #[cfg(any(test, feature = "flaws"))]
        flaw: None,
    };
    BucketLogOptions {
        queue_bytes_max,
        ..BucketLogOptions::new(core, options.clock.clone())
    }
}
