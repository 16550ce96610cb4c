//! Limits and settings of single tenants in the path of a push.

use super::Pipeline;
use super::decoded::{DecodedSizes, ReplicaSelection};
use super::room::WriteAdmission;
use firn_model::error::Error;
use firn_model::metrics::MetricSink;
use firn_model::sample::TimestampMs;
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::{TenantLimits, TenantOverrides};
use firn_wire::remote_write::DecodedWriteRequest;
use std::sync::{Arc, PoisonError};

impl Pipeline {
    /// Applies `overrides` to further requests.
    pub fn set_overrides(&self, overrides: Arc<TenantOverrides>) {
        *self
            .overrides
            .write()
            .unwrap_or_else(PoisonError::into_inner) = overrides;
    }

    /// Returns the limits of a tenant.
    pub fn tenant_limits(&self, tenant: &TenantId) -> Arc<TenantLimits> {
        let overrides = self.overrides.read();
        let overrides = overrides.unwrap_or_else(PoisonError::into_inner);
        overrides.limits_of(tenant).clone()
    }

    /// Returns the maximum size of a body of `tenant` in bytes.
    pub fn body_bytes_max(&self, tenant: &TenantId) -> usize {
        let of_tenant = self.tenant_limits(tenant).body_bytes_max;
        let body_bytes_max = self.limits.wire.body_bytes_max;
        of_tenant.map_or(body_bytes_max, |max| max.min(body_bytes_max))
    }

    /// Returns the memory of the series of replicas in bytes.
    pub fn replicas_bytes(&self) -> usize {
        self.replicas.memory_bytes()
    }

    /// Writes the metrics of pairs of replicas.
    pub fn collect_replicas(&self, sink: &mut dyn MetricSink) {
        self.replicas.collect(sink);
    }

    /// Returns the maximum number of labels of a pushed series.
    pub(super) fn labels_max(&self, limits: &TenantLimits) -> usize {
        let of_pipeline = self.limits.wire.label_count_max;
        limits.labels_max.unwrap_or(of_pipeline)
    }

    /// Rejects series with too many labels, removes the samples of other replicas, and counts the
    /// others against the rate of the tenant. Fails without effect if the rate is exceeded.
    pub(super) fn admit_samples(
        &self,
        tenant: &TenantId,
        limits: &TenantLimits,
        decoded: &mut DecodedWriteRequest<'_>,
        admission: &mut WriteAdmission,
        time_max: TimestampMs,
    ) -> Result<Option<ReplicaSelection>, Error> {
        if let Some(labels_max) = limits.labels_max {
            decoded.reject_many_labels(labels_max)?;
        }
        let selection = self.select_replicas(tenant, limits, decoded, admission, time_max)?;
        if let Some(rate) = limits.rate {
            let batch = &*decoded.batch;
            let samples = batch.sample_count() + batch.exemplars().len();
            let now = self.ledger.clock.monotonic();
            self.rates.take(tenant, rate, samples, now)?;
        }
        Ok(selection)
    }

    /// Counts a decoded push.
    pub(super) fn count_decoded(&self, sizes: DecodedSizes) {
        let metrics = &self.ledger.metrics;
        metrics.decode_duration.observe(sizes.took);
        metrics.message_bytes.add(sizes.message_bytes as u64);
        metrics
            .exemplars_ignored
            .add(sizes.exemplars_ignored as u64);
        metrics.metadata_ignored.add(sizes.metadata_ignored as u64);
    }
}
