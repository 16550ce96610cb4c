//! Deletions of trimmed segments: few at a time, beside the creates of the log.
//!
//! A deletion that fails is repeated with those of the next trim. After the end of a leadership the
//! rest stays: the next leader trims from the first segment on.

use super::flow::BucketLogShared;
use super::state::{BucketLogState, EngineEffect};
use crate::ids::SegmentSequence;
use firn_bucket::BucketError;
use firn_model::sync::lock;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of deletions at a time, so that they do not delay appends.
const RUNNING_MAX: usize = 4;

/// The segments to delete.
#[derive(Debug, Default)]
pub(super) struct SegmentDeletions {
    waiting: VecDeque<SegmentSequence>,
    running: usize,
    failed: Vec<SegmentSequence>,
}

impl SegmentDeletions {
    /// Adds the segments of a trim, and those that an earlier one failed to delete.
    pub(super) fn add(&mut self, sequences: Vec<SegmentSequence>) {
        self.waiting.extend(std::mem::take(&mut self.failed));
        self.waiting.extend(sequences);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    fn begin_next(&mut self) -> Option<SegmentSequence> {
        let next = self.waiting.pop_front_if(|_| self.running < RUNNING_MAX)?;
        self.running += 1;
        Some(next)
    }

    /// Records the end of a deletion. Returns whether it is the first failure of a trim.
    fn finish(&mut self, sequence: SegmentSequence, is_deleted: bool) -> bool {
        self.running -= 1;
        if is_deleted {
            return false;
        }
        self.failed.push(sequence);
        self.failed.len() == 1
    }
}

impl BucketLogState {
    /// Begins as many deletions as may run.
    pub(super) fn begin_deletions(&mut self) {
        while let Some(sequence) = self.deletions.begin_next() {
            self.outbox.push_back(EngineEffect::Delete(sequence));
        }
    }
}

impl BucketLogShared {
    /// Deletes a segment.
    pub(super) fn delete(self: &Arc<Self>, sequence: SegmentSequence) {
        let shared = self.clone();
        let done = move |deleted: Result<(), BucketError>| {
            let mut state = lock(&shared.state);
            if state.deletions.finish(sequence, deleted.is_ok())
                && let Err(error) = deleted
            {
                tracing::warn!(%sequence, %error, "a trimmed segment stays until the next trim");
            }
            if !state.is_over() {
                state.begin_deletions();
            }
            shared.drain(state);
        };
        self.bucket.delete(&self.key(sequence), Box::new(done));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_are_few_at_a_time_and_failed_ones_are_repeated_by_the_next_trim() {
        let mut deletions = SegmentDeletions::default();
        deletions.add((1..=6).map(SegmentSequence).collect());
        let begin_all = |deletions: &mut SegmentDeletions| {
            std::iter::from_fn(|| deletions.begin_next().map(|s| s.0)).collect::<Vec<_>>()
        };
        assert_eq!(begin_all(&mut deletions), [1, 2, 3, 4]);
        assert!(deletions.finish(SegmentSequence(2), false));
        assert!(!deletions.finish(SegmentSequence(3), false));
        assert!(!deletions.finish(SegmentSequence(1), true));
        assert_eq!(begin_all(&mut deletions), [5, 6]);
        deletions.add(vec![SegmentSequence(7)]);
        assert_eq!(begin_all(&mut deletions), [2]);
    }
}
