//! A node of a cluster: joins the bucket, takes over partitions, and opens a store for each.
//!
//! ```text
//! join_cluster: cluster/format exists -> check it against the config
//!               absent -> check_store -> create it
//! begin_takeover -> FENCE, replay begins -> open_next: BucketLog, BucketHome -> Store -> led
//!     led -> hand_off: HANDOFF          led -> drop_ended: another node took over
//! StrongSelect: lease of each log -> stores      LogTimer: ticks of all logs
//! ```
//!
//! Invariants: no log is written in a bucket whose store has not passed
//! [`firn_bucket::check_store`]; a node with other settings than those in `cluster/format` writes
//! nothing; a partition has at most one open store in a process; the folder of a node is scratch,
//! so that its loss costs nothing.
//!
//! This module leaves to its owner: the choice of the partitions to take over, retries of a bucket
//! that does not answer, the hourly [`firn_bucket::canary`], and the end of the process after a
//! fault ([`ClusterNode::fault`]).

mod join;
mod log_timer;
mod metrics;
pub(crate) mod partition;
mod slots;
mod strong_select;
#[cfg(test)]
mod tests;

pub use join::{JoinError, JoinOptions, join_cluster, read_format, restore_format};
pub use metrics::TakeoverMetrics;
pub use strong_select::StrongSelect;

use crate::cluster_format::ClusterFormat;
use crate::engine::{BucketLog, BucketLogMetrics, BucketLogOptions, EngineClock};
use crate::home::{BucketHome, HomeOptions};
use crate::ids::PartitionId;
use crate::log::LogCoreOptions;
use crate::members::PartitionReport;
use crate::partitions::store_set::StoreSet;
use firn_bucket::Bucket;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::HashKeys;
use firn_model::sync::lock;
use firn_storage::store::{Store, StoreOptions};
use log_timer::LogTimer;
use partition::{PartitionSteps, open_partition};
use slots::{PartitionSlots, SlotPhase};
use std::io;
use std::sync::{Arc, Mutex};
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
    /// The parts of a node that a simulation replaces.
    #[cfg(test)]
    pub(crate) simulation: Option<tests::NodeSimulation>,
}

/// The options of the store of a partition, whose folder is scratch.
type PartitionStoreOptions = Box<dyn Fn(PartitionId) -> StoreOptions + Send + Sync>;

/// The partitions that this process leads, or is about to.
pub struct ClusterNode {
    bucket: Arc<dyn Bucket>,
    env: Env,
    format: ClusterFormat,
    options: NodeOptions,
    store_options: PartitionStoreOptions,
    slots: Mutex<PartitionSlots>,
    open: Arc<StoreSet>,
    timer: LogTimer,
    takeovers: Arc<TakeoverMetrics>,
}

impl ClusterNode {
    /// Creates a node that leads no partition. `store_options` returns the options of the store of
    /// a partition.
    ///
    /// # Errors
    ///
    /// The system does not start a thread.
    pub fn new(
        bucket: Arc<dyn Bucket>,
        env: Env,
        format: ClusterFormat,
        options: NodeOptions,
        store_options: impl Fn(PartitionId) -> StoreOptions + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let timer = start_timer(&options).map_err(|e| {
            let text = format!("start the timer of the logs: {e}");
            Error::new(ErrorKind::Internal, text)
        })?;
        let partitions = format.partitions.get() as usize;
        Ok(Self {
            bucket,
            env,
            format,
            options,
            store_options: Box::new(store_options),
            slots: Mutex::new(PartitionSlots::new(partitions)),
            open: Arc::new(StoreSet::new(partitions)),
            timer,
            takeovers: Arc::default(),
        })
    }

    /// Takes over all partitions and opens their stores, one after the other. Blocks until all
    /// records are replayed, for as long as the bucket does not answer.
    ///
    /// # Errors
    ///
    /// Another process took over a partition, the log contains an object of a newer version, or a
    /// scratch folder contains other data.
    pub fn lead_all(&self) -> Result<(), Error> {
        // All takeovers begin at once; replays are one after the other.
        for number in 0..self.format.partitions.get() {
            self.begin_takeover(PartitionId(number));
        }
        while let Some((_, opened)) = self.open_next() {
            opened?;
        }
        Ok(())
    }

    /// Creates a FENCE in the log of `partition` and begins to read it, and returns at once. Does
    /// nothing if this node claims the partition already, or if writes were stopped.
    /// [`ClusterNode::open_next`] opens the store.
    pub fn begin_takeover(&self, partition: PartitionId) {
        let mut slots = lock(&self.slots);
        if slots.may_take_over(partition) {
            let log = self.begin_log(partition);
            slots.begin(partition, log, self.now());
        }
    }

    fn begin_log(&self, partition: PartitionId) -> BucketLog {
        let options = log_options(&self.format, &self.options, partition);
        let metrics = Arc::new(BucketLogMetrics::default());
        let (bucket, env) = (self.bucket.clone(), self.env.clone());
        let log = BucketLog::take_over(bucket, env, options, metrics);
        self.timer.add(&log);
        log
    }

    /// Opens the store of the partition whose takeover began first and is not open, and leads the
    /// partition. Blocks during the replay, for as long as the bucket does not answer. Returns
    /// `None` if no takeover is under way. One thread calls this at a time.
    pub fn open_next(&self) -> Option<(PartitionId, Result<(), Error>)> {
        let (partition, log, since) = lock(&self.slots).next_to_open()?;
        let begin = self.now();
        let steps = StoreSteps {
            node: self,
            partition,
        };
        let opened = open_partition(&steps, log);
        let mut slots = lock(&self.slots);
        Some(match opened {
            Ok((log, store)) => {
                self.open.insert(partition, store);
                slots.lead(partition, log);
                self.takeovers.wait.observe(begin.saturating_sub(since));
                self.takeovers
                    .replay
                    .observe(self.now().saturating_sub(begin));
                (partition, Ok(()))
            }
            Err(error) => {
                slots.release(partition, Some(error.message.clone()));
                (partition, Err(error))
            }
        })
    }

    /// Stops writing `partition`, so that another node can take over without waiting. Blocks until
    /// all accepted records are durable. Does nothing unless this node leads the partition.
    ///
    /// # Errors
    ///
    /// The bucket did not store the last records in time. They may be in the log or not; the
    /// partition is given up nevertheless.
    pub fn hand_off(&self, partition: PartitionId) -> Result<(), Error> {
        if !lock(&self.slots).begin_hand_off(partition) {
            return Ok(());
        }
        let store = self.open.remove(partition);
        let handed_off = store.as_ref().map_or(Ok(()), |store| store.hand_off());
        if let (Some(store), Err(_)) = (&store, &handed_off) {
            store.abandon();
        }
        lock(&self.slots).release(partition, None);
        handed_off
    }

    /// Drops the stores of partitions whose log has ended, because another node took over. Returns
    /// these partitions with the reasons.
    pub fn drop_ended(&self) -> Vec<(PartitionId, String)> {
        let ended = lock(&self.slots).take_ended();
        for (partition, reason) in &ended {
            tracing::warn!(%partition, reason, "this node does not lead the partition any more");
            if let Some(store) = self.open.remove(*partition) {
                store.abandon();
            }
        }
        ended
    }

    /// Returns the claims of this node, for its report to other nodes.
    pub fn claims(&self) -> Vec<PartitionReport> {
        lock(&self.slots).claims(&self.open)
    }

    /// Returns the reason for which the last claim of each partition ended, where there is one.
    pub fn last_faults(&self) -> Vec<(PartitionId, String)> {
        lock(&self.slots).faults()
    }

    /// Returns the durations of takeovers.
    pub fn takeover_metrics(&self) -> Arc<TakeoverMetrics> {
        self.takeovers.clone()
    }

    fn now(&self) -> Duration {
        (self.options.clock)()
    }

    /// Returns the settings of the cluster.
    pub fn format(&self) -> &ClusterFormat {
        &self.format
    }

    /// Returns the stores of the partitions that this node leads.
    pub fn open_stores(&self) -> &Arc<StoreSet> {
        &self.open
    }

    /// Returns the log and the store of `partition` if this node leads it.
    pub fn find_led(&self, partition: PartitionId) -> Option<(BucketLog, Arc<Store>)> {
        let log = lock(&self.slots).led_log(partition)?;
        Some((log, self.open.find(partition)?))
    }

    /// Returns the logs of the partitions that this node leads or takes over, by partition.
    pub fn logs(&self) -> Vec<BucketLog> {
        lock(&self.slots).logs()
    }

    /// Returns why this process has to end if it is the only one: it does not write one of its logs
    /// any more, because another process does or because the log contains an object that it cannot
    /// read.
    pub fn fault(&self) -> Option<String> {
        self.logs().iter().find_map(|log| {
            let reason = log.fault()?;
            Some(format!("partition {}: {reason}", log.partition()))
        })
    }

    /// Rejects all writes from now on, with this reason, answers no strong read any more, and takes
    /// over no partition. For a bucket that does not honor the condition of creations.
    pub fn stop_writes(&self, reason: &str) {
        let logs = lock(&self.slots).stop();
        for log in logs {
            log.stop_writes(reason);
        }
    }

    /// Hands off all partitions at once, ends takeovers under way, and begins no new one. Blocks
    /// until all accepted records are durable.
    ///
    /// # Errors
    ///
    /// The first error of [`ClusterNode::hand_off`]; all partitions are given up nevertheless.
    pub fn close(&self) -> Result<(), Error> {
        let logs = lock(&self.slots).stop();
        let claims = self.claims();
        for log in &logs {
            let is_led = lock(&self.slots).phase(log.partition()) == SlotPhase::Leading;
            if !is_led {
                log.stop_writes("the node stops");
            }
        }
        // Each hand-off waits for the bucket, so all run at the same time.
        std::thread::scope(|scope| {
            let hand_off = |partition| scope.spawn(move || self.hand_off(partition));
            let begun: Vec<_> = claims
                .iter()
                .map(|claim| hand_off(claim.partition))
                .collect();
            let ended = begun.into_iter().map(|thread| match thread.join() {
                Ok(handed_off) => handed_off,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // Collected first: each thread must be joined.
            let ended: Vec<Result<(), Error>> = ended.collect();
            ended.into_iter().collect()
        })
    }
}

/// The steps of the opening of a partition with a real store.
struct StoreSteps<'a> {
    node: &'a ClusterNode,
    partition: PartitionId,
}

impl PartitionSteps for StoreSteps<'_> {
    type Opened = Arc<Store>;

    fn take_over(&self) -> BucketLog {
        let log = self.node.begin_log(self.partition);
        lock(&self.node.slots).replace_log(self.partition, &log);
        log
    }

    fn create_home(&self, log: &BucketLog) -> Arc<BucketHome> {
        let env = self.node.env.clone();
        #[cfg(test)]
        if let Some(simulation) = &self.node.options.simulation {
            return Arc::new(simulation.create_home(env, log));
        }
        let bucket = self.node.bucket.clone();
        let home = BucketHome::new(bucket, env, log.clone(), HomeOptions::default());
        Arc::new(home)
    }

    fn open_store(&self, log: &BucketLog, home: Arc<BucketHome>) -> Result<Arc<Store>, Error> {
        let format = &self.node.format;
        let keys = HashKeys::from_seed(format.hash, format.seed);
        let options = (self.node.store_options)(self.partition);
        let log = Box::new(log.clone());
        Store::open_with_home(self.node.env.clone(), options, log, home, keys)
    }

    fn abandon(&self, store: Arc<Store>) {
        store.abandon();
    }

    fn pause(&self) {
        #[cfg(test)]
        if let Some(simulation) = &self.node.options.simulation {
            return simulation.pause();
        }
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
    let log_options = BucketLogOptions {
        queue_bytes_max,
        ..BucketLogOptions::new(core, options.clock.clone())
    };
    #[cfg(test)]
    if let Some(simulation) = &options.simulation {
        return simulation.adapt(log_options);
    }
    log_options
}

fn start_timer(options: &NodeOptions) -> io::Result<LogTimer> {
    #[cfg(test)]
    if options.simulation.is_some() {
        return Ok(LogTimer::without_thread());
    }
    LogTimer::start(options.flush_interval)
}
