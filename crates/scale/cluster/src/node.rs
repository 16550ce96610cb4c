//! A node of a cluster: joins the bucket, takes over partitions, and opens a store for each.
//!
//! ```text
//! join_cluster: cluster/format exists -> check it against the config
//!               absent -> check_store -> create it
//! ClusterNode::open: for each partition  BucketLog::take_over -> Store::open_with_log
//! StrongSelect: lease of each log -> stores      LogTimer: ticks of all logs
//! ```
//!
//! Invariants: no log is written in a bucket whose store has not passed [`firn_bucket::check_store`];
//! a node with other settings than those in `cluster/format` writes nothing; the folder of a node is
//! scratch, so that its loss costs nothing.
//!
//! This module leaves to its owner: retries of a bucket that does not answer, the hourly
//! [`firn_bucket::canary`], and the end of the process after a fault ([`ClusterNode::fault`]).

mod join;
mod log_timer;
mod strong_select;
#[cfg(test)]
mod tests;

pub use join::{JoinError, JoinOptions, join_cluster};
pub use strong_select::StrongSelect;

use crate::cluster_format::ClusterFormat;
use crate::engine::{BucketLog, BucketLogMetrics, BucketLogOptions, EngineClock};
use crate::ids::PartitionId;
use crate::log::LogCoreOptions;
use firn_bucket::Bucket;
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::fingerprint::HashKeys;
use firn_storage::store::{Store, StoreOptions};
use log_timer::LogTimer;
use std::sync::Arc;
use std::time::Duration;

/// Memory in bytes of records that wait for the bucket, of all partitions together.
const QUEUE_BYTES_MAX: usize = 128 << 20;

/// Minimum of a partition: twice the largest record of a push.
const PARTITION_QUEUE_BYTES_MIN: usize = 8 << 20;

/// Size in bytes from which a segment is created without waiting for the flush interval.
const SEGMENT_BYTES: usize = 256 << 10;

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
        let count = format.partitions.get();
        let logs: Vec<BucketLog> = (0..count)
            .map(|number| {
                let options = log_options(format, options, PartitionId(number));
                let metrics = Arc::new(BucketLogMetrics::default());
                BucketLog::take_over(bucket.clone(), env.clone(), options, metrics)
            })
            .collect();
        let timer = LogTimer::start(&logs, options.flush_interval).map_err(|e| {
            let text = format!("start the timer of the logs: {e}");
            Error::new(firn_model::error::ErrorKind::Internal, text)
        })?;
        let mut stores = Vec::with_capacity(logs.len());
        for (number, log) in (0..count).zip(&logs) {
            let keys = HashKeys::from_seed(format.hash, format.seed);
            let options = store_options(PartitionId(number));
            let log = Box::new(log.clone());
            stores.push(Store::open_with_log(env.clone(), options, log, keys)?);
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
