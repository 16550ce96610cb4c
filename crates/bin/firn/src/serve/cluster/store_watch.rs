//! Watches the bucket of a running node: whether the store honors the condition of creations, and
//! whether the object that identifies the cluster is still there.
//!
//! Invariant: a bucket that does not answer changes nothing. A store that ignores the condition
//! gets no write any more.

use super::status::ClusterStatusSource;
use firn_bucket::{Bucket, BucketError, BucketMetrics, CheckOptions, StoreVerdict, canary};
use firn_cluster::node::{ClusterNode, JoinError, read_format, restore_format};
use firn_model::env::Env;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};
use tracing::{error, info, warn};

/// Interval of the test whether the store honors the condition of creations.
const CANARY_INTERVAL: Duration = Duration::from_secs(3600);

/// Interval of the look for `cluster/format`.
const FORMAT_INTERVAL: Duration = Duration::from_secs(10);

/// The fault after the creation of `cluster/format`.
const RESTORED: &str = "another program deleted cluster/format, and this node created it again";

/// The bucket of a running node.
#[derive(Clone)]
pub(super) struct StoreWatch {
    pub(super) bucket: Arc<dyn Bucket>,
    pub(super) metrics: Arc<BucketMetrics>,
    pub(super) status: Arc<ClusterStatusSource>,
    pub(super) node: Arc<ClusterNode>,
    pub(super) env: Env,
}

impl StoreWatch {
    /// Tests the store now and at intervals, until the returned set is dropped.
    pub(super) fn start(self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().run_canaries());
        tasks.spawn(self.watch_format());
        tasks
    }

    async fn run_canaries(self) {
        let mut interval = tokio::time::interval(CANARY_INTERVAL);
        loop {
            interval.tick().await;
            let (bucket, env) = (self.bucket.clone(), self.env.clone());
            let test = move || {
                let options = CheckOptions::new(env.rng.next_u64());
                canary(&*bucket, &env.clock, &options)
            };
            let Ok(report) = spawn_blocking(test).await else {
                continue;
            };
            match report.verdict {
                StoreVerdict::Accepted => {}
                StoreVerdict::Unfinished(e) => warn!(error = %e, "cannot test the bucket"),
                StoreVerdict::Refused(reason) => {
                    error!(
                        reason,
                        "the store cannot carry the log: writes are rejected"
                    );
                    self.metrics.set_refused();
                    let reason = format!("the store cannot carry the log: {reason}");
                    self.node.stop_writes(&reason);
                    return;
                }
            }
        }
    }

    async fn watch_format(self) {
        let mut interval = tokio::time::interval(FORMAT_INTERVAL);
        let mut last = None;
        loop {
            interval.tick().await;
            let watch = self.clone();
            let Ok(Ok(found)) = spawn_blocking(move || watch.find_fault()).await else {
                continue;
            };
            // The deletion is shown for as long as this process runs.
            let restored = last.clone().filter(|fault| *fault == RESTORED);
            let fault = found.or(restored);
            if fault != last {
                match &fault {
                    Some(fault) => error!(fault, "another program changed the bucket"),
                    None => info!("the bucket has no fault any more"),
                }
                self.status.set_fault(fault.clone());
                last = fault;
            }
        }
    }

    /// Returns the fault of `cluster/format`, after its creation if it does not exist.
    fn find_fault(&self) -> Result<Option<String>, BucketError> {
        let own = self.node.format();
        match read_format(&*self.bucket) {
            Ok(Some(found)) if found == *own => Ok(None),
            Ok(Some(found)) => Ok(Some(format!(
                "cluster/format is that of another cluster, {}",
                found.cluster
            ))),
            Ok(None) => Ok(restore_format(&*self.bucket, own)?.then(|| RESTORED.to_owned())),
            Err(JoinError::Bucket(error)) => Err(error),
            Err(error) => Ok(Some(error.to_string())),
        }
    }
}
