//! The opening of a partition: its log, the home of its blocks, and its store.
//!
//! ```text
//! take over -> open the store (replay) -> no COMMIT behind the checkpoint: done
//!     ^                 |
//!     |                 v  a process ended between a COMMIT and its checkpoint
//!     +-- abandon <- write the checkpoint
//! ```
//!
//! A store needs the final block list before it replays: it skips the samples that blocks own, and
//! reads no block that was removed. COMMITs behind the checkpoint are found only during the replay,
//! so a store that was opened without them answers no request: it completes the catalogue of the
//! missing checkpoint, and the partition is taken over again from there. Invariant: a partition is
//! led only from the checkpoint of its last COMMIT.

use crate::engine::BucketLog;
use crate::home::BucketHome;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::DurableLog;
use std::sync::Arc;

/// The steps of the opening of a partition, which depend on the store.
pub(crate) trait PartitionSteps {
    /// An open store.
    type Opened;

    /// Begins a takeover of the log.
    fn take_over(&self) -> BucketLog;

    /// Creates the home of the blocks for a takeover.
    fn create_home(&self, log: &BucketLog) -> Arc<BucketHome>;

    /// Opens a store and replays the log.
    fn open_store(&self, log: &BucketLog, home: Arc<BucketHome>) -> Result<Self::Opened, Error>;

    /// Stops a store whose log is taken over again, and frees its folder.
    fn abandon(&self, store: Self::Opened);

    /// Waits before a failed request is repeated.
    fn pause(&self);
}

/// The number of attempts to open a store while the bucket does not answer.
const OPENS_MAX: u32 = 10;

/// Opens a partition whose takeover has begun, and returns its log with its store. Takes over again
/// if the bucket does not answer for the blocks, since a store reads its log once.
pub(crate) fn open_partition<S: PartitionSteps>(
    steps: &S,
    first: BucketLog,
) -> Result<(BucketLog, S::Opened), Error> {
    let mut log = first;
    let mut failures = 0;
    loop {
        let home = steps.create_home(&log);
        let store = match steps.open_store(&log, home.clone()) {
            Ok(store) => store,
            Err(error) => {
                failures += 1;
                let is_transient = error.kind == ErrorKind::Unavailable;
                if !is_transient || log.ended().is_some() || failures == OPENS_MAX {
                    return Err(error);
                }
                tracing::warn!(partition = %log.partition(), %error, "the store is opened again");
                log.abandon();
                steps.pause();
                log = steps.take_over();
                continue;
            }
        };
        if !home.needs_checkpoint() {
            return Ok((log, store));
        }
        let partition = log.partition();
        tracing::info!(%partition, "a checkpoint is missing: writing it and taking over again");
        let written = write_checkpoint(steps, &log, &home);
        steps.abandon(store);
        log.abandon();
        written?;
        log = steps.take_over();
    }
}

fn write_checkpoint<S: PartitionSteps>(
    steps: &S,
    log: &BucketLog,
    home: &BucketHome,
) -> Result<(), Error> {
    loop {
        let error = match home.write_checkpoint() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let is_transient = matches!(
            error.kind,
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Limited
        );
        if !is_transient || log.ended().is_some() {
            return Err(error);
        }
        tracing::warn!(%error, "the missing checkpoint is not stored yet");
        steps.pause();
    }
}
