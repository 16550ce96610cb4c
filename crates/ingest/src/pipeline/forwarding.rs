//! The way of batches to other receivers: what the store takes is kept beside it.

use super::Pipeline;
use crate::sending::{self, KeptRequest, SendOn};
use firn_model::batch::Source;
use firn_model::sample::TimestampMs;
use firn_model::store::Ticket;
use firn_model::tenant::TenantId;
use std::sync::Arc;

impl Pipeline {
    /// Keeps what the store takes for `to` as well, from here on.
    pub fn send_on(&self, to: Arc<dyn SendOn>) {
        // A pipeline is wired once.
        let _ = self.sending.set(to);
    }

    /// Whether what `tenant` brings is sent on: receivers know no tenants.
    pub(super) fn sends_on(&self, tenant: &TenantId) -> bool {
        let is_on = self.sending.get().is_some_and(|to| to.is_on());
        is_on && *tenant == TenantId::anonymous()
    }

    /// Keeps `body`, or requests that hold the same as `source` up to `time_max`, where there is
    /// someone to send them to.
    pub(super) fn keep_to_send(
        &self,
        tenant: &TenantId,
        source: &mut dyn Source,
        body: Option<KeptRequest>,
        time_max: TimestampMs,
    ) -> Option<Ticket> {
        if !self.sends_on(tenant) {
            return None;
        }
        let to = self.sending.get()?;
        if let Some(request) = body
            && request.contents.newest <= time_max
        {
            return Some(to.keep(request));
        }
        match sending::requests_of(source, to.request_samples_max(), time_max) {
            Ok(requests) => {
                let tickets = requests.into_iter().map(|request| to.keep(request));
                tickets.reduce(|all, next| next.joined(all, 0))
            }
            Err(e) => Some(Ticket::ready(Err(e))),
        }
    }
}
