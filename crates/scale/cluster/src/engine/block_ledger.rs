//! The block list that a log defines: a checkpoint, and the COMMITs behind it.
//!
//! ```text
//! checkpoint read -> begin_replay -> replayed COMMITs -> own COMMITs, once they are stored
//!                        |                  |                       |
//!                    restored state      the list, and the position of its last COMMIT
//! ```
//!
//! Invariants: the list is the sum of all COMMITs up to that position, and a COMMIT that does not
//! fit the list never enters the log, where it would end each later takeover. The checkpoint of the
//! list is due while it is at a later position than the newest stored one.

use crate::checkpoint::Checkpoint;
use crate::commit::{BlockChange, BlockState, CommitMismatch, CommitRecord, ReplayFrom};
use crate::ids::Epoch;
use crate::log::DeliveredFrame;
use firn_model::error::{Error, ErrorKind};
use firn_model::log::LogPosition;
use std::sync::Arc;

/// The content of the checkpoint from which a takeover began: the state of a store before it reads
/// the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoredState {
    /// The block list, and the begin of the replay.
    pub list: BlockState,
    /// The catalogue of the series before the begin of the replay; empty without a checkpoint.
    pub catalogue: Vec<u8>,
}

/// A COMMIT that is in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedCommit {
    pub(super) position: LogPosition,
    pub(super) version: u64,
    pub(super) replay_from: ReplayFrom,
}

/// The block list of a log, with the COMMITs that are on their way.
#[derive(Debug, Default)]
pub(super) struct BlockLedger {
    /// The newest checkpoint, as the takeover has read it last.
    found: Option<Checkpoint>,
    /// The restored state, until the owner takes it.
    restored: Option<RestoredState>,
    list: Arc<BlockState>,
    /// The position of the last COMMIT of the list, and its epoch.
    last: (LogPosition, Epoch),
    /// The position of the newest stored checkpoint.
    checkpointed: LogPosition,
    /// True if COMMITs of the replay follow the checkpoint.
    is_behind: bool,
    /// The epoch of this leadership.
    pub(super) epoch: Epoch,
    /// The COMMIT of this leadership that is not stored yet.
    queued: Option<(LogPosition, BlockChange)>,
}

impl BlockLedger {
    /// Sets the newest checkpoint, or `None` if there is none.
    pub(super) fn set_found(&mut self, found: Option<Checkpoint>) {
        self.found = found;
    }

    /// Begins with the checkpoint at `position` (none if zero). Returns false if that is not the
    /// one that was read.
    #[must_use]
    pub(super) fn begin_replay(&mut self, position: LogPosition) -> bool {
        let mut restored = RestoredState::default();
        let mut epoch = Epoch(0);
        match self.found.take() {
            Some(found) if found.position == position => {
                epoch = found.epoch;
                restored.list = found.state;
                restored.catalogue = found.catalogue;
            }
            None if position == LogPosition(0) => {}
            _ => return false,
        }
        *self = Self {
            list: Arc::new(restored.list.clone()),
            restored: Some(restored),
            last: (position, epoch),
            checkpointed: position,
            ..Self::default()
        };
        true
    }

    /// Returns the restored state once, after the replay has begun.
    pub(super) fn take_restored(&mut self) -> Option<RestoredState> {
        self.restored.take()
    }

    /// Applies a COMMIT of the replay.
    pub(super) fn apply_replayed(&mut self, frame: &DeliveredFrame) -> Result<(), String> {
        let position = frame.position;
        if position <= self.checkpointed {
            return Ok(());
        }
        let commit = CommitRecord::decode(frame.payload());
        let commit = commit.map_err(|e| describe(position, &e))?;
        self.is_behind = true;
        self.apply(position, frame.epoch, &commit)
    }

    fn apply(
        &mut self,
        position: LogPosition,
        epoch: Epoch,
        commit: &CommitRecord,
    ) -> Result<(), String> {
        let applied = Arc::make_mut(&mut self.list).apply(commit);
        applied.map_err(|e| describe(position, &e))?;
        self.last = (position, epoch);
        Ok(())
    }

    /// Registers a COMMIT at `position`, which is about to enter the log.
    pub(super) fn queue(
        &mut self,
        position: LogPosition,
        change: &BlockChange,
    ) -> Result<(), Error> {
        if self.queued.is_some() {
            let text = "another commit of the partition is under way";
            return Err(Error::new(ErrorKind::Internal, text));
        }
        self.check(change).map_err(|e| {
            let text = format!("change of the block list: {e}");
            Error::new(ErrorKind::Internal, text)
        })?;
        self.queued = Some((position, change.clone()));
        Ok(())
    }

    fn check(&self, change: &BlockChange) -> Result<(), CommitMismatch> {
        let mut list = BlockState::clone(&self.list);
        list.apply(&CommitRecord {
            version: list.version.saturating_add(1),
            replay_from: list.replay_from,
            change: change.clone(),
        })
    }

    /// Drops the COMMIT at `position`, which is not in the log.
    pub(super) fn drop_queued(&mut self, position: LogPosition) {
        self.queued.take_if(|queued| queued.0 == position);
    }

    /// Applies a COMMIT of this leadership, which is stored.
    pub(super) fn apply_own(&mut self, logged: LoggedCommit) -> Result<(), String> {
        let position = logged.position;
        let queued = self.queued.take_if(|queued| queued.0 == position);
        let Some((_, change)) = queued else {
            return Err(format!(
                "commit at position {}, which no process appended",
                position.0
            ));
        };
        let commit = CommitRecord {
            version: logged.version,
            replay_from: logged.replay_from,
            change,
        };
        self.apply(position, self.epoch, &commit)
    }

    /// Returns the block list.
    pub(super) fn list(&self) -> &Arc<BlockState> {
        &self.list
    }

    /// Returns whether COMMITs of the replay follow the checkpoint.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns the position of the newest stored checkpoint.
    pub(super) fn checkpointed(&self) -> LogPosition {
        self.checkpointed
    }

    /// Returns the position and the epoch of the last COMMIT, if its checkpoint is due.
    pub(super) fn due(&self) -> Option<(LogPosition, Epoch)> {
        Some(self.last).filter(|last| last.0 > self.checkpointed)
    }

    /// The checkpoint of the COMMIT at `position` is stored.
    pub(super) fn set_checkpointed(&mut self, position: LogPosition) {
        self.checkpointed = self.checkpointed.max(position);
    }
}

fn describe(position: LogPosition, error: &dyn std::error::Error) -> String {
    format!("commit at position {}: {error}", position.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ClusterId, PartitionId};

    fn checkpoint(position: u64) -> Checkpoint {
        Checkpoint {
            cluster: ClusterId(1),
            partition: PartitionId(2),
            epoch: Epoch(3),
            position: LogPosition(position),
            state: BlockState {
                version: position,
                ..BlockState::default()
            },
            catalogue: vec![position as u8],
        }
    }

    #[test]
    fn replay_that_begins_again_restores_the_newer_checkpoint() {
        let mut ledger = BlockLedger::default();
        ledger.set_found(Some(checkpoint(5)));
        assert!(ledger.begin_replay(LogPosition(5)));
        ledger.set_found(Some(checkpoint(9)));
        assert!(ledger.begin_replay(LogPosition(9)));
        let restored = ledger.take_restored().unwrap();
        assert_eq!((restored.list.version, restored.catalogue), (9, vec![9]));
        assert_eq!(ledger.take_restored(), None);
        assert!(!ledger.begin_replay(LogPosition(5)), "it was not read");
        ledger.set_found(None);
        assert!(ledger.begin_replay(LogPosition(0)));
        assert_eq!(ledger.take_restored(), Some(RestoredState::default()));
    }

    #[test]
    fn own_commit_counts_once_it_is_stored_and_makes_a_checkpoint_due() {
        let mut ledger = BlockLedger::default();
        let change = BlockChange {
            cut: 7,
            ..BlockChange::default()
        };
        let at = LogPosition(4);
        ledger.queue(at, &change).unwrap();
        let error = ledger.queue(at.next(), &change).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
        assert_eq!((ledger.list().version, ledger.due()), (0, None));
        ledger.epoch = Epoch(2);
        let logged = LoggedCommit {
            position: at,
            version: 1,
            replay_from: ReplayFrom::BEGIN,
        };
        ledger.apply_own(logged).unwrap();
        assert_eq!((ledger.list().version, ledger.list().cut), (1, 7));
        assert_eq!(ledger.due(), Some((at, Epoch(2))));
        ledger.set_checkpointed(at);
        assert_eq!(ledger.due(), None);
        ledger.queue(at.next(), &change).unwrap();
        ledger.drop_queued(at.next());
        assert!(ledger.apply_own(logged).is_err());
    }
}
