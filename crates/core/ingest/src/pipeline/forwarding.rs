//! Queues stored batches for forwarding to remote-write receivers.

use super::Pipeline;
use crate::sending::{self, KeptRequest, ReceiverQueue};
use firn_model::batch::BatchSource;
use firn_model::sample::TimestampMs;
use firn_model::store::Ticket;
use firn_model::tenant::TenantId;
use std::sync::Arc;

impl Pipeline {
    /// Forwards all batches that are stored from now on to `to`. A second call is ignored.
    pub fn set_receiver_queue(&self, to: Arc<dyn ReceiverQueue>) {
        // Ignores a second call: a pipeline is wired once.
        let _ = self.sending.set(to);
    }

    /// Returns whether the samples of `tenant` are forwarded: only those of the anonymous tenant
    /// are, because receivers have no tenants.
    pub(super) fn is_forwarded(&self, tenant: &TenantId) -> bool {
        let is_on = self.sending.get().is_some_and(|to| to.is_on());
        is_on && *tenant == TenantId::anonymous()
    }

    /// Queues `body`, or requests with the same samples as `source` up to `time_max`, if there is a
    /// receiver.
    pub(super) fn queue_for_receivers(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        body: Option<KeptRequest>,
        time_max: TimestampMs,
    ) -> Option<Ticket> {
        if !self.is_forwarded(tenant) {
            return None;
        }
        let to = self.sending.get()?;
        if let Some(request) = body
            && request.contents.newest <= time_max
        {
            return Some(to.keep_request(request));
        }
        match sending::encode_requests(source, to.request_samples_max(), time_max) {
            Ok(requests) => {
                let tickets = requests.into_iter().map(|request| to.keep_request(request));
                tickets.reduce(|all, next| next.join_with(all, 0))
            }
            Err(e) => Some(Ticket::resolved(Err(e))),
        }
    }
}
