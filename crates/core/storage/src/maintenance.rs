//! Maintenance: the background work of a store, which keeps log, head and disk usage small while
//! samples arrive.
//!
//! ```text
//! tick: retry the log -> mark -> seal due groups -> flush late samples -> cut a block
//!       -> drop old blocks and pages -> trim the log -> enforce the size limit -> manifest
//!       -> sweep
//! ```
//!
//! Each tick does a share of the pending work on the background thread. Only one tick runs at a
//! time; compaction runs beside it on a thread of its own. This file contains only the order of the
//! work and its schedule: [`workers`] lists the workers that do it, each with the parts of the
//! store that it uses. Progress that outlives a tick is in [`state`], which the tick locks.

pub(crate) mod catalogue;
mod compaction;
pub(crate) mod coverage;
pub(crate) mod cut;
pub(crate) mod cut_marks;
mod deletion;
mod disk_space;
mod flush;
pub(crate) mod late_coverage;
mod manifest;
mod retention;
pub(crate) mod seal;
mod snapshot;
pub(crate) mod state;
mod sweep;
mod trim;
mod workers;

use crate::parts::StoreParts;
use crate::parts::options::{LogTrimming, SealingThread, StoreSyncMode};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use crate::sync::{Mutex, lock};
use compaction::progress::CompactionState;
use firn_model::env::JobKind;
use firn_model::error::Error;
use firn_model::store::DeleteRequest;
use state::MaintenanceState;
use std::sync::{Arc, Weak};
use workers::MaintenanceWorkers;

/// The background work of a store. Created by the store, which calls
/// [`Maintenance::schedule_tick`]; appends call [`Maintenance::run_after_append`].
pub(crate) struct Maintenance {
    parts: Arc<StoreParts>,
    /// Locked by the current tick.
    pub(crate) state: Mutex<MaintenanceState>,
    is_scheduled: AtomicBool,
    /// True after the store was abandoned or handed off: no more work begins.
    is_stopped: AtomicBool,
    /// The newest sample time at the start of the last tick.
    began_at: AtomicI64,
    compaction: CompactionState,
    me: Weak<Maintenance>,
}

/// Number of references to the maintenance of a store without background work: those of the store
/// and of its appender.
const OWNERS: usize = 2;

/// Guard of the current tick. When it is dropped, also by a panic, the next tick may be scheduled.
struct TickGuard(Arc<Maintenance>);

impl Drop for TickGuard {
    fn drop(&mut self) {
        self.0.is_scheduled.store(false, Ordering::Release);
    }
}

/// Guard of the current share of the compaction. When it is dropped, also by a panic, the next
/// share may be scheduled.
struct CompactionGuard(Arc<Maintenance>);

impl Drop for CompactionGuard {
    fn drop(&mut self) {
        let compaction = &self.0.compaction;
        compaction.is_scheduled.store(false, Ordering::Release);
    }
}

impl Maintenance {
    /// Returns the maintenance of `parts`. `state` is the state that replay restored.
    pub(crate) fn new(parts: Arc<StoreParts>, state: MaintenanceState) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            parts,
            state: Mutex::new(state),
            is_scheduled: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            began_at: AtomicI64::new(i64::MIN),
            compaction: CompactionState::default(),
            me: me.clone(),
        })
    }

    /// Returns the workers, which borrow the parts of the store.
    pub(crate) fn workers(&self) -> MaintenanceWorkers<'_> {
        MaintenanceWorkers::new(&self.parts)
    }

    /// Schedules a tick on the background thread. Has no effect if one is scheduled or running.
    pub(crate) fn schedule_tick(&self) {
        let Some(me) = self.me.upgrade() else { return };
        // One tick at a time: a call during a tick has no effect, and the next tick does more.
        if self.is_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let scheduled = TickGuard(me);
        let job = move || scheduled.0.run_tick();
        let compute = &self.parts.env.compute;
        compute.spawn(JobKind::Background, Box::new(job));
    }

    /// Returns whether a job of this store is queued or running.
    pub(crate) fn has_jobs(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > OWNERS
    }

    /// Schedules a share of the compaction on its thread, unless one is running.
    fn schedule_compaction_share(&self) {
        let Some(me) = self.me.upgrade() else { return };
        if self.compaction.is_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let scheduled = CompactionGuard(me);
        let job = move || {
            let compactor = scheduled.0.workers().compactor;
            compactor.run_share(&mut lock(&scheduled.0.compaction.under_way));
        };
        let compute = &self.parts.env.compute;
        compute.spawn(JobKind::Compaction, Box::new(job));
    }

    /// Performs or schedules the work that is due after an append, by data time.
    pub(crate) fn run_after_append(&self) {
        if self.parts.options.sealing == SealingThread::WithWrites {
            self.seal_now();
        }
        let newest = self.parts.head.newest.load(Ordering::Relaxed);
        let since = newest.saturating_sub(self.began_at.load(Ordering::Relaxed));
        if since >= self.parts.options.tick_ms {
            self.schedule_tick();
        }
    }

    /// Seals all due groups on the calling thread, for [`SealingThread::WithWrites`].
    fn seal_now(&self) {
        let Some(newest) = self.parts.head.newest() else {
            return;
        };
        let mut state = lock(&self.state);
        if !state.coverage.list_due_groups(newest).is_empty() {
            let workers = self.workers();
            workers.sealer.record_mark(&mut state);
            workers.sealer.seal_due_groups(&mut state);
            workers.trimmer.trim_log(&mut state);
        }
    }

    /// Runs one tick: all maintenance that is due now.
    pub(super) fn run_tick(&self) {
        let mut state = lock(&self.state);
        if self.is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let newest = self.parts.head.newest.load(Ordering::Relaxed);
        self.began_at.store(newest, Ordering::Relaxed);
        let workers = self.workers();
        workers.sweeper.free_garbage(&mut state);
        self.parts.log.tick();
        if self.parts.options.sync == StoreSyncMode::Interval
            && let Err(e) = self.parts.log.sync()
        {
            tracing::error!(error = %e, "failed to sync the log");
        }
        workers.sealer.record_mark(&mut state);
        workers.sealer.seal_due_groups(&mut state);
        workers.flusher.flush_if_due(&mut state);
        workers.cutter.run_share(&mut state);
        workers.remover.drop_old_blocks();
        workers.remover.drop_old_pages(&mut state);
        workers.trimmer.trim_log(&mut state);
        workers.deleter.forget_trimmed();
        self.parts.blocks.run_home_maintenance();
        workers.remover.enforce_size_limit(&mut state);
        workers.manifest.update(&mut state);
        workers.sweeper.sweep_share(&mut state);
        self.parts.record_head_usage();
        drop(state);
        self.schedule_compaction_share();
    }

    /// Raises the floor to its possible value before the restart, so that a sample that was late
    /// then is still late.
    pub(crate) fn restore_floor(&self) {
        self.workers().cutter.restore_floor();
    }

    /// Creates the snapshot `name`, without the log if `skips_head`. It is durable on return.
    pub(crate) fn take_snapshot(&self, name: &str, skips_head: bool) -> Result<(), Error> {
        let writer = self.workers().snapshots;
        writer.write(&self.state, name, skips_head)
    }

    /// Deletes the samples of a request that are visible now.
    pub(crate) fn delete_series(&self, request: DeleteRequest<'_>) -> Result<(), Error> {
        // Waits for the end of the current tick.
        let mut state = lock(&self.state);
        self.workers().deleter.delete(&mut state, request)
    }

    /// Rewrites the blocks that contain deleted samples. Waits for the current share of a merge.
    pub(crate) fn clean_tombstones(&self) -> Result<(), Error> {
        let mut under_way = lock(&self.compaction.under_way);
        let compactor = self.workers().compactor;
        Ok(compactor.clean_tombstones(&mut under_way)?)
    }

    /// Shuts down cleanly. Afterwards the log accepts no records and every sample that was appended
    /// in order is in a page. The log is removed, unless it contains late samples that are in no
    /// block.
    ///
    /// The log of a store whose folder is scratch keeps its records: such a store is handed off.
    pub(crate) fn close(&self) -> Result<(), Error> {
        if self.parts.trimming != LogTrimming::Sealed {
            return self.hand_off();
        }
        // Waits for the end of the current tick.
        let mut state = lock(&self.state);
        self.parts.log.close()?;
        let last = self.parts.log.positions().last;
        let workers = self.workers();
        if last
            > state
                .trimmed_position()
                .min(state.coverage.covered_position())
        {
            workers.sealer.seal_all(&mut state, last)?;
            workers.flusher.flush(&mut state)?;
            workers.trimmer.record_trimmed(&mut state, last)?;
        }
        state.segments.finish()?;
        workers.trimmer.trim_closed_log(&mut state, last)
    }

    /// Stops the background work and the log at once, without writing anything more to it.
    pub(crate) fn abandon(&self) {
        self.parts.log.abandon();
        self.stop();
    }

    /// Stops the background work, and closes the log after all its records are durable.
    pub(crate) fn hand_off(&self) -> Result<(), Error> {
        self.stop();
        self.parts.log.close()
    }

    /// Prevents further ticks, and waits for the end of the current one.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        drop(lock(&self.state));
    }
}
