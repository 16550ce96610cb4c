//! An agent: what comes in is sent on, and nothing is stored.
//!
//! The rest of the server is the same, over a store that stays empty: its log, head and blocks cost
//! nothing that is not written to. What waits for receivers is in the queue of [`super::sending`],
//! which an acknowledgement waits for as ever.

use firn_model::batch::Batch;
use firn_model::store::{Append, AppendBounds, Appended, Ticket};
use firn_model::tenant::TenantId;

/// Takes every batch, and keeps none.
pub struct Unstored;

impl Append for Unstored {
    fn append(&self, _: &TenantId, batch: &Batch, _: AppendBounds) -> Ticket {
        let histograms = batch.iter().map(|series| series.histograms.len());
        Ticket::ready(Ok(Appended {
            stored: batch.sample_count(),
            stored_histograms: histograms.sum(),
            ..Appended::default()
        }))
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn takes_exemplars(&self) -> bool {
        true
    }
}
