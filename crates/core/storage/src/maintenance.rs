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
//! time; compaction runs beside it on a thread of its own.

mod compaction;
pub(crate) mod coverage;
pub(crate) mod cut;
mod flush;
pub(crate) mod late;
pub(crate) mod late_coverage;
mod retention;
pub(crate) mod seal;
mod snapshot;
pub(crate) mod state;
mod sweep;
mod trim;

use crate::parts::StoreParts;
use crate::parts::options::{LogTrimming, SealingThread, StoreSyncMode};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use crate::sync::{Mutex, lock};
use compaction::progress::CompactionState;
use firn_model::env::JobKind;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::LogPosition;
use state::MaintenanceState;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause before failed work is retried: neither free space nor disk errors change from tick to
/// tick.
const PAUSE: Duration = Duration::from_secs(60);

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

impl std::ops::Deref for Maintenance {
    type Target = StoreParts;

    fn deref(&self) -> &StoreParts {
        &self.parts
    }
}

/// Guard of the current tick. When it is dropped, also by a panic, the next tick may be scheduled.
struct TickGuard(Arc<Maintenance>);

impl Drop for TickGuard {
    fn drop(&mut self) {
        self.0.is_scheduled.store(false, Ordering::Release);
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

    /// Schedules a tick on the background thread. Has no effect if one is scheduled or running.
    pub(crate) fn schedule_tick(&self) {
        let Some(me) = self.me.upgrade() else { return };
        // One tick at a time: a call during a tick has no effect, and the next tick does more.
        if self.is_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let scheduled = TickGuard(me);
        let job = move || scheduled.0.run_tick();
        self.env.compute.spawn(JobKind::Background, Box::new(job));
    }

    /// Performs or schedules the work that is due after an append, by data time.
    pub(crate) fn run_after_append(&self) {
        if self.options.sealing == SealingThread::WithWrites {
            self.seal_now();
        }
        let newest = self.head.newest.load(Ordering::Relaxed);
        let since = newest.saturating_sub(self.began_at.load(Ordering::Relaxed));
        if since >= self.options.tick_ms {
            self.schedule_tick();
        }
    }

    /// Seals all due groups on the calling thread, for [`SealingThread::WithWrites`].
    fn seal_now(&self) {
        let Some(newest) = self.head.newest() else {
            return;
        };
        let mut state = lock(&self.state);
        if !state.coverage.list_due_groups(newest).is_empty() {
            self.record_coverage_mark(&mut state);
            self.seal_due_groups(&mut state);
            self.trim_log(&mut state);
        }
    }

    /// Runs one tick: all maintenance that is due now.
    pub(super) fn run_tick(&self) {
        let mut state = lock(&self.state);
        if self.is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let newest = self.head.newest.load(Ordering::Relaxed);
        self.began_at.store(newest, Ordering::Relaxed);
        let garbage = std::mem::take(&mut state.garbage);
        state.garbage = garbage
            .into_iter()
            .filter_map(|g| self.head.index.free_garbage(g))
            .collect();
        self.log.tick();
        if self.options.sync == StoreSyncMode::Interval
            && let Err(e) = self.log.sync()
        {
            tracing::error!(error = %e, "failed to sync the log");
        }
        self.record_coverage_mark(&mut state);
        self.seal_due_groups(&mut state);
        self.flush_late_if_due(&mut state);
        self.run_cut_share(&mut state);
        self.drop_old_blocks();
        self.drop_old_pages(&mut state);
        self.trim_log(&mut state);
        self.enforce_size_limit(&mut state);
        self.update_manifest(&mut state);
        self.sweep_share(&mut state);
        drop(state);
        self.schedule_compaction_share();
    }

    /// Shuts down cleanly. Afterwards the log accepts no records and every sample that was appended
    /// in order is in a page. The log is removed, unless it contains late samples that are in no
    /// block.
    ///
    /// The log of a store whose folder is scratch keeps its records: such a store is handed off.
    pub(crate) fn close(&self) -> Result<(), Error> {
        if self.trimming == LogTrimming::Never {
            return self.hand_off();
        }
        // Waits for the end of the current tick.
        let mut state = lock(&self.state);
        self.log.close()?;
        let last = self.log.positions().last;
        if last
            > state
                .trimmed_position()
                .min(state.coverage.covered_position())
        {
            self.seal_all(&mut state, last)?;
            self.flush_late(&mut state)?;
            self.write_exemplars(&mut state)?;
            let trimmed = last.min(self.other_trim_position(&state));
            self.write_catalogue(&mut state, trimmed)?;
        }
        state.segments.finish()?;
        if state.trimmed_position() < last {
            self.write_manifest(&mut state)?;
            return self.log.trim(state.trimmed_position().next());
        }
        self.write_last_manifest(&mut state)?;
        self.log.remove_all()
    }

    /// Stops the background work and the log at once, without writing anything more to it.
    pub(crate) fn abandon(&self) {
        self.log.abandon();
        self.stop();
    }

    /// Stops the background work, and closes the log after all its records are durable.
    pub(crate) fn hand_off(&self) -> Result<(), Error> {
        self.stop();
        self.log.close()
    }

    /// Prevents further ticks, and waits for the end of the current one.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        drop(lock(&self.state));
    }

    /// Seals all samples of the closed log up to its last record.
    fn seal_all(&self, state: &mut MaintenanceState, last: LogPosition) -> Result<(), Error> {
        // Only samples that every reader may see can be sealed.
        self.head.watermark.wait_for_readers();
        self.record_coverage_mark(state);
        let all = state
            .coverage
            .list_all_groups(self.head.newest.load(Ordering::Acquire));
        loop {
            let before = self.metrics.sealed_samples.get();
            self.seal_groups(state, &all, 0)?;
            if state.coverage.covered_position() >= last {
                return Ok(());
            }
            // A column that is too long for one page is sealed in several passes.
            if self.metrics.sealed_samples.get() == before {
                let message = "some samples are not in any page; the log is kept";
                return Err(Error::new(ErrorKind::Internal, message.to_owned()));
            }
        }
    }
}
