//! The outcome of a batch, joined from those of its parts.
//!
//! Invariants: the joined ticket resolves once, when all parts have resolved or with the first
//! error. Samples and exemplars that were rejected for one reason are one entry, with the first of
//! them in the whole batch, and the entries have the order in which one store returns them.

use super::split::PartitionGroups;
use crate::ids::PartitionId;
use firn_model::error::Error;
use firn_model::store::{
    AppendOutcome, ExemplarRejection, RejectedExemplars, RejectedSamples, Ticket, TicketResolver,
};
use firn_model::sync::lock;
use std::sync::{Arc, Mutex};

/// The outcomes of the parts of one batch. Created before the first part is appended.
pub(super) struct JoinedOutcome {
    groups: PartitionGroups,
    state: Mutex<JoinedOutcomeState>,
}

struct JoinedOutcomeState {
    /// `None` once the joined ticket was resolved.
    resolver: Option<TicketResolver>,
    /// Number of parts without an outcome.
    open: usize,
    outcome: AppendOutcome,
}

impl JoinedOutcome {
    /// Returns the outcome of a batch that has `parts` parts, and its ticket.
    pub(super) fn new(groups: PartitionGroups, parts: usize) -> (Arc<Self>, Ticket) {
        let (ticket, resolver) = Ticket::new();
        let state = JoinedOutcomeState {
            resolver: Some(resolver),
            open: parts,
            outcome: AppendOutcome::default(),
        };
        let joined = Self {
            groups,
            state: Mutex::new(state),
        };
        (Arc::new(joined), ticket)
    }

    /// Returns the series of the batch by partition.
    pub(super) fn groups(&self) -> &PartitionGroups {
        &self.groups
    }

    /// Adds the outcome of the part of `partition` when its ticket resolves.
    pub(super) fn add_ticket(self: &Arc<Self>, partition: PartitionId, ticket: Ticket) {
        let joined = self.clone();
        drop(ticket.with_observer(move |outcome| joined.add_outcome(partition, outcome)));
    }

    fn add_outcome(&self, partition: PartitionId, outcome: &Result<AppendOutcome, Error>) {
        let mut state = lock(&self.state);
        let whole = match outcome {
            Ok(part) => {
                state.add_part(part, self.groups.series_of(partition));
                state.open -= 1;
                if state.open > 0 {
                    return;
                }
                Ok(order_entries(std::mem::take(&mut state.outcome)))
            }
            Err(e) => Err(e.clone()),
        };
        let resolver = state.resolver.take();
        drop(state);
        if let Some(resolver) = resolver {
            resolver.resolve(whole);
        }
    }
}

impl JoinedOutcomeState {
    /// Adds the outcome of a part, whose series have these indexes in the batch.
    fn add_part(&mut self, part: &AppendOutcome, series: &[u32]) {
        let whole = &mut self.outcome;
        whole.stored += part.stored;
        whole.stored_histograms += part.stored_histograms;
        let number = |index: usize| series.get(index).map_or(index, |number| *number as usize);
        let rejected = part.rejected.iter();
        whole.rejected.extend(rejected.map(|entry| RejectedSamples {
            first_series: number(entry.first_series),
            ..entry.clone()
        }));
        let refused = part.refused_exemplars.iter();
        let refused = refused.map(|entry| RejectedExemplars {
            first_series: number(entry.first_series),
            ..entry.clone()
        });
        whole.refused_exemplars.extend(refused);
    }
}

/// Joins the entries with the same reason. Entries of one series are from one part and in order.
fn order_entries(mut outcome: AppendOutcome) -> AppendOutcome {
    outcome.rejected.sort_by_key(|entry| entry.first_series);
    let mut rejected: Vec<RejectedSamples> = Vec::new();
    for entry in outcome.rejected {
        let known = rejected.iter_mut();
        match known.into_iter().find(|r| r.rejection == entry.rejection) {
            Some(known) => known.count += entry.count,
            None => rejected.push(entry),
        }
    }
    let position = |entry: &RejectedExemplars| (is_checked_last(entry.refusal), entry.first_series);
    outcome.refused_exemplars.sort_by_key(position);
    let mut refused: Vec<RejectedExemplars> = Vec::new();
    for entry in outcome.refused_exemplars {
        let known = refused.iter_mut();
        match known.into_iter().find(|r| r.refusal == entry.refusal) {
            Some(known) => known.count += entry.count,
            None => refused.push(entry),
        }
    }
    AppendOutcome {
        rejected,
        refused_exemplars: refused,
        ..outcome
    }
}

/// Returns whether a store checks exemplars for this reason after it has checked all exemplars of
/// the batch for the other reasons.
fn is_checked_last(refusal: ExemplarRejection) -> bool {
    match refusal {
        ExemplarRejection::NoSeries | ExemplarRejection::TooFarInFuture => false,
        ExemplarRejection::TooLong | ExemplarRejection::OutOfOrder => true,
    }
}
