//! COMMITs, BARRIERs and checkpoints of a log: the interface of the owner of its blocks.
//!
//! COMMITs and BARRIERs take the way of records, so that their positions are in one order. The
//! owner appends one COMMIT at a time, writes the checkpoint of the list after it, and reports it
//! as stored. Invariant: the log is trimmed only after that report.

use super::block_ledger::RestoredState;
use super::bucket_log::BucketLog;
use super::state::{BucketLogPhase, UnencodedFrame};
use crate::checkpoint::Checkpoint;
use crate::commit::{BlockChange, BlockState};
use crate::ids::PartitionId;
use crate::log::LogEvent;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::{DurableCallbacks, LogPosition};
use firn_model::sync::lock;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

impl BucketLog {
    /// Returns the content of the checkpoint from which this takeover begins, or the default
    /// without a checkpoint. Waits for it. Returns it once; the owner calls this before it reads
    /// the log.
    ///
    /// # Errors
    ///
    /// The takeover has ended.
    pub fn restored_state(&self) -> Result<RestoredState, Error> {
        let mut state = lock(&self.0.state);
        loop {
            if let Some(restored) = state.ledger.take_restored() {
                state.is_read = true;
                return Ok(restored);
            }
            let reason = match &state.phase {
                BucketLogPhase::Ended(reason) => reason.clone(),
                BucketLogPhase::TakingOver if !state.is_read => {
                    state = self.wait(state);
                    continue;
                }
                _ => "the state was restored before".to_owned(),
            };
            return Err(Error::new(ErrorKind::Unavailable, reason));
        }
    }

    /// Returns whether COMMITs follow the checkpoint from which this takeover began. The answer is
    /// final once the records are read.
    pub fn is_checkpoint_behind(&self) -> bool {
        lock(&self.0.state).ledger.is_behind()
    }

    /// Returns the block list after the last COMMIT in the log.
    pub fn block_list(&self) -> Arc<BlockState> {
        lock(&self.0.state).ledger.list().clone()
    }

    /// Appends a COMMIT of `change` and waits until it is durable. Blocks contain all records
    /// before `covered`, and all files of the added blocks are stored. Runs the timers of the log
    /// while it waits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`]: the change does not fit the block list, or another COMMIT is under
    /// way. [`ErrorKind::Unavailable`]: the COMMIT is not in the log and never will be, or this
    /// process does not write the log any more.
    pub fn commit(&self, change: BlockChange, covered: LogPosition) -> Result<LogPosition, Error> {
        self.append_and_wait(UnencodedFrame::Commit { change, covered })
    }

    /// Appends a BARRIER and waits until it is durable. This process led the partition when the
    /// BARRIER was stored, so its block list was complete then.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`]: this process does not lead, or may not.
    pub fn append_barrier(&self) -> Result<LogPosition, Error> {
        self.append_and_wait(UnencodedFrame::Barrier)
    }

    fn append_and_wait(&self, frame: UnencodedFrame) -> Result<LogPosition, Error> {
        let (sender, receiver) = sync_channel(1);
        let done = DurableCallbacks::new(move |outcome| drop(sender.send(outcome)));
        self.enqueue(frame, done);
        loop {
            match receiver.recv_timeout(self.0.options.poll_interval) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(pass_time) = self.0.options.simulated_wait() {
                        pass_time();
                    }
                    self.run_timers();
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let text = "the log dropped a commit";
                    return Err(Error::new(ErrorKind::Internal, text));
                }
            }
        }
    }

    /// Returns the checkpoint of the block list without its catalogue, unless it is stored.
    pub fn due_checkpoint(&self) -> Option<Checkpoint> {
        let core = &self.0.options.core;
        let state = lock(&self.0.state);
        let (position, epoch) = state.ledger.due()?;
        Some(Checkpoint {
            cluster: core.cluster,
            partition: core.partition,
            epoch,
            position,
            state: BlockState::clone(state.ledger.list()),
            catalogue: Vec::new(),
        })
    }

    /// Returns the position of the newest checkpoint that is certain to be stored.
    pub fn checkpoint_position(&self) -> LogPosition {
        lock(&self.0.state).ledger.checkpointed()
    }

    /// Reports that `checkpoint` is stored. The log before its begin of replays is deleted.
    pub fn report_checkpoint(&self, checkpoint: &Checkpoint) {
        let mut state = lock(&self.0.state);
        let position = checkpoint.position;
        state.ledger.set_checkpointed(position);
        let first = state.first.max(checkpoint.state.replay_from.position);
        state.first = first;
        let trimmed = state.kept.remove_before(first);
        self.0.metrics.kept_bytes.add(-(trimmed as i64));
        drop(state);
        self.0.step(LogEvent::CheckpointStored { position });
    }

    /// Returns the partition whose log this is.
    pub fn partition(&self) -> PartitionId {
        self.0.options.core.partition
    }
}
