//! Appends to the store of a tenant, which the first one creates.

use super::TenantStores;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::fingerprint::{Fingerprint, SeriesHash};
use firn_model::sample::TimestampMs;
use firn_model::store::{Append, AppendBounds, AppendOutcome, NewestSampleTimes, Ticket};
use firn_model::tenant::TenantId;
use std::ops::RangeInclusive;

// A method that is not forwarded would silently have the default of the trait.
#[deny(clippy::missing_trait_methods)]
impl Append for TenantStores {
    fn append(&self, tenant: &TenantId, mut batch: &Batch, bounds: AppendBounds) -> Ticket {
        self.append_from(tenant, &mut batch, bounds)
    }

    /// A batch without series creates no store.
    fn append_from(
        &self,
        tenant: &TenantId,
        source: &mut dyn BatchSource,
        bounds: AppendBounds,
    ) -> Ticket {
        if self.is_own(tenant) {
            return self.own.append_from(tenant, source, bounds);
        }
        if source.batch().series_count() == 0 {
            return Ticket::resolved(Ok(AppendOutcome::default()));
        }
        match self.create_store(tenant) {
            Ok(store) => store.append_from(tenant, source, bounds),
            Err(e) => Ticket::resolved(Err(e)),
        }
    }

    /// Accepts appends to an unknown tenant and to a closed store.
    fn check_append(&self, tenant: &TenantId) -> Result<(), Error> {
        if self.is_own(tenant) {
            return self.own.check_append(tenant);
        }
        match self.slot(tenant).and_then(|slot| slot.open_store()) {
            Some(store) => store.check_append(tenant),
            None => Ok(()),
        }
    }

    fn begin_log_unit(&self, tenant: &TenantId) -> Result<(), Error> {
        if self.is_own(tenant) {
            return self.own.begin_log_unit(tenant);
        }
        self.create_store(tenant)?.begin_log_unit(tenant)
    }

    fn series_hash(&self) -> Option<SeriesHash> {
        self.own.series_hash()
    }

    /// Only the tenant `anonymous` has journals, and so batches that are followed.
    fn write_held_record(&self) {
        self.own.write_held_record();
    }

    /// Returns true, because an append may have to open the store of its tenant.
    fn may_wait(&self) -> bool {
        true
    }

    fn first_sample_times(
        &self,
        tenant: &TenantId,
        bounds: AppendBounds,
    ) -> RangeInclusive<TimestampMs> {
        if self.is_own(tenant) {
            return self.own.first_sample_times(tenant, bounds);
        }
        match self.find_store(tenant) {
            Ok(Some(store)) => store.first_sample_times(tenant, bounds),
            Ok(None) | Err(_) => TimestampMs::MIN..=bounds.time_max,
        }
    }

    /// Returns `None` for a closed store.
    fn newest_time(&self, tenant: &TenantId) -> Option<TimestampMs> {
        if self.is_own(tenant) {
            return self.own.newest_time(tenant);
        }
        self.slot(tenant)?.open_store()?.newest_time(tenant)
    }

    fn newest_sample_times(
        &self,
        tenant: &TenantId,
        prints: &[Fingerprint],
    ) -> Vec<Option<NewestSampleTimes>> {
        if self.is_own(tenant) {
            return self.own.newest_sample_times(tenant, prints);
        }
        match self.find_store(tenant) {
            Ok(Some(store)) => store.newest_sample_times(tenant, prints),
            Ok(None) | Err(_) => vec![None; prints.len()],
        }
    }

    fn can_store_exemplars(&self) -> bool {
        self.own.can_store_exemplars()
    }
}
