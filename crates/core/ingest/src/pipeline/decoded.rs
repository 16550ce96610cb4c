//! The parts of a decoded push that the pipeline needs until its samples are stored: sizes for the
//! metrics, and the decisions about samples of replicas.

use crate::ha::HaChanges;
use crate::outcome::DeduplicatedSamples;
use firn_model::store::Ticket;
use std::time::Duration;

/// Sizes of a decoded push, for the metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodedSizes {
    /// Time that decoding took.
    pub(super) took: Duration,
    pub(super) message_bytes: usize,
    pub(super) exemplars_ignored: usize,
    pub(super) metadata_ignored: usize,
}

/// The result of deduplicating a batch that has series of replicas.
pub(super) struct ReplicaSelection {
    /// Changes that must be committed when the batch is stored.
    pub(super) changes: HaChanges,
    /// The samples that are not in the batch any more.
    pub(super) deduplicated: DeduplicatedSamples,
    /// True if the batch is empty after the deduplication.
    pub(super) is_empty: bool,
}

/// Commits the changes by a deduplication if the samples are stored, and reverts them otherwise.
pub(super) fn commit_when_stored(
    ticket: Ticket,
    selection: Option<ReplicaSelection>,
) -> (Ticket, DeduplicatedSamples) {
    let Some(selection) = selection else {
        return (ticket, DeduplicatedSamples::default());
    };
    let changes = selection.changes;
    let ticket = ticket.with_observer(move |outcome| {
        if outcome.is_ok() {
            changes.commit();
        }
    });
    (ticket, selection.deduplicated)
}
