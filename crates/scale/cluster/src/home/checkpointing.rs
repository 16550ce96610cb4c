//! Checkpoints: the block list after the last COMMIT, with the catalogue of the store.

use super::BucketHome;
use crate::object_name::{ObjectName, state_prefix};
use bytes::Bytes;
use firn_bucket::{BlockingBucket, BucketError, Creation, KeyPrefix, ObjectKey};
use firn_model::error::{Error, ErrorKind};
use firn_model::sync::lock;
use std::time::Duration;

/// The number of checkpoints that are kept. Takeovers use the newest one.
const KEPT: usize = 3;

/// Maximum number of checkpoints in a list. More would mean that the deletion of old ones fails.
const LISTED_MAX: usize = 1_000_000;

/// The pause before the first repeat of a checkpoint, which doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause. Each attempt encodes the whole catalogue.
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// The time of the next attempt to write a checkpoint.
#[derive(Debug, Default)]
pub(super) struct CheckpointRetry {
    failures: u32,
    due: Duration,
}

impl BucketHome {
    /// Writes the checkpoint of the last COMMIT, if it is not stored. The log before its begin of
    /// replays is trimmed afterwards, and old checkpoints are deleted.
    ///
    /// # Errors
    ///
    /// The bucket does not answer, or the store has not set a source of catalogues.
    pub fn write_checkpoint(&self) -> Result<(), Error> {
        let Some(mut checkpoint) = self.log.due_checkpoint() else {
            return Ok(());
        };
        let source = self.source.get().ok_or_else(|| {
            let text = "a checkpoint needs the catalogue of an open store";
            Error::new(ErrorKind::Internal, text)
        })?;
        checkpoint.catalogue = source()?;
        let name = ObjectName::State(self.log.partition(), checkpoint.position);
        let key = ObjectKey::new(&name.to_string())?;
        self.store_checkpoint(&key, checkpoint.encode().into())?;
        self.log.report_checkpoint(&checkpoint);
        if let Err(error) = self.delete_old_checkpoints() {
            tracing::warn!(%error, "old checkpoints stay until the next one");
        }
        Ok(())
    }

    /// Stores a checkpoint. One that exists at its key is equivalent: it has the same list, and a
    /// catalogue of the same log.
    fn store_checkpoint(&self, key: &ObjectKey, bytes: Bytes) -> Result<(), BucketError> {
        let bucket = BlockingBucket(&*self.bucket);
        match bucket.put_new(key, bytes) {
            Creation::Stored | Creation::Exists => Ok(()),
            Creation::Refused(error) => Err(error),
            Creation::Ambiguous(error) => bucket.head(key)?.map(drop).ok_or(error),
        }
    }

    /// Deletes all checkpoints but the newest ones of this moment. A process that does this late
    /// deletes none that is newer.
    fn delete_old_checkpoints(&self) -> Result<(), BucketError> {
        let bucket = BlockingBucket(&*self.bucket);
        let prefix = KeyPrefix::new(&state_prefix(self.log.partition()))?;
        let mut listed = bucket.list_all(&prefix, LISTED_MAX)?;
        listed.retain(|object| {
            let name = object.key.as_str().parse();
            matches!(name, Ok(ObjectName::State(..)))
        });
        listed.truncate(listed.len().saturating_sub(KEPT));
        listed
            .iter()
            .try_for_each(|object| bucket.delete(&object.key))
    }

    /// Writes the checkpoint if it is due, and the pause after a failure is over or
    /// `skips_pause`.
    pub(super) fn repeat_checkpoint(&self, skips_pause: bool) {
        let now = self.log.now();
        if !skips_pause && now < lock(&self.retry).due {
            return;
        }
        let written = self.write_checkpoint();
        let mut retry = lock(&self.retry);
        let Err(error) = written else {
            *retry = CheckpointRetry::default();
            return;
        };
        let pause = PAUSE_MIN * (1 << retry.failures.min(6));
        retry.failures = retry.failures.saturating_add(1);
        retry.due = now + pause.min(PAUSE_MAX);
        if retry.failures == 1 {
            let partition = self.log.partition();
            tracing::warn!(%partition, %error, "a checkpoint failed and is repeated");
        }
    }
}
