//! Usage of tenants since the start: stored samples with their rates, received bytes, and their
//! division by the values of a label (cost attribution).
//!
//! ```text
//! batch -> bytes, samples by value -> store -> outcome: added to the tenant and to the values
//! ```
//!
//! Invariant: memory is bounded by the number of tenants that have stored samples or a cost
//! attribution, and for each of them by its limit of values of at most [`VALUE_BYTES_MAX`] bytes.

mod attribution;
mod rate;

pub use attribution::{AttributionReport, AttributionRow};

use attribution::{AttributedCounter, AttributionTable};
use firn_model::metrics::{MetricSink, MetricValue};
use firn_model::sync::{lock, read, write};
use firn_model::tenant::TenantId;
use firn_model::tenant_limits::CostAttribution;
use rate::SampleRate;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// Maximum length of a value that is counted separately, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 10;

/// A number of samples and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleUsage {
    /// Number of samples.
    pub samples: u64,
    /// Size of the samples with their labels in bytes. See
    /// [`firn_model::batch::Batch::series_data_bytes`].
    pub bytes: u64,
}

impl SampleUsage {
    /// Adds the samples of `other`.
    pub(crate) fn add(&mut self, other: SampleUsage) {
        self.samples += other.samples;
        self.bytes += other.bytes;
    }
}

/// The usage of a batch, which is added to its tenant when the batch is stored.
#[derive(Debug, Default)]
pub(crate) struct BatchUsage {
    /// True for the samples of rules, whose rate is reported separately.
    pub(crate) is_of_rules: bool,
    /// Size of the batch in bytes.
    pub(crate) bytes: u64,
    /// The usage of each attributed value in the batch.
    pub(crate) attributed: Vec<(Arc<AttributedCounter>, SampleUsage)>,
}

/// The usage of one tenant, as the API returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantUsageReport {
    /// Stored samples, and the bytes of the writes that contained them.
    pub stored: SampleUsage,
    /// Samples per second of all sources except rules, averaged over about a minute.
    pub api_rate: f64,
    /// Samples per second of rules, averaged in the same way.
    pub rule_rate: f64,
}

#[derive(Debug, Default)]
struct UsageTotals {
    stored: SampleUsage,
    api: SampleRate,
    rules: SampleRate,
}

#[derive(Debug, Default)]
struct TenantUsage {
    totals: Mutex<UsageTotals>,
    attribution: Mutex<Option<Arc<AttributionTable>>>,
}

/// The usage of all tenants. Shared by all batches in flight.
#[derive(Debug, Default)]
pub(crate) struct UsageStatistics(RwLock<BTreeMap<TenantId, Arc<TenantUsage>>>);

impl UsageStatistics {
    fn find(&self, tenant: &TenantId) -> Option<Arc<TenantUsage>> {
        read(&self.0).get(tenant).cloned()
    }

    fn find_or_insert(&self, tenant: &TenantId) -> Arc<TenantUsage> {
        let known = self.find(tenant);
        known.unwrap_or_else(|| write(&self.0).entry(tenant.clone()).or_default().clone())
    }

    /// Returns the counters of the values in a batch of `tenant`. The counts of another label are
    /// removed.
    pub(crate) fn attribute(
        &self,
        tenant: &TenantId,
        settings: &CostAttribution,
        values: &HashMap<&[u8], SampleUsage>,
    ) -> Vec<(Arc<AttributedCounter>, SampleUsage)> {
        let usage = self.find_or_insert(tenant);
        let mut current = lock(&usage.attribution);
        let table = current.take().filter(|table| table.label == settings.label);
        let table = table.unwrap_or_else(|| Arc::new(AttributionTable::new(&settings.label)));
        *current = Some(table.clone());
        drop(current);
        table.find_counters(values, settings.values_max)
    }

    /// Adds a batch with `stored` samples, which became durable at the monotonic time `now`.
    pub(crate) fn add(&self, tenant: &TenantId, batch: &BatchUsage, stored: u64, now: Duration) {
        for (counter, usage) in &batch.attributed {
            counter.add(*usage);
        }
        if stored == 0 {
            return;
        }
        let usage = self.find_or_insert(tenant);
        let mut totals = lock(&usage.totals);
        totals.stored.add(SampleUsage {
            samples: stored,
            bytes: batch.bytes,
        });
        let rate = if batch.is_of_rules {
            &mut totals.rules
        } else {
            &mut totals.api
        };
        rate.add(stored, now);
    }

    /// Returns the usage of a tenant at the monotonic time `now`.
    pub(crate) fn report(&self, tenant: &TenantId, now: Duration) -> TenantUsageReport {
        let Some(usage) = self.find(tenant) else {
            return TenantUsageReport::default();
        };
        let mut totals = lock(&usage.totals);
        TenantUsageReport {
            stored: totals.stored,
            api_rate: totals.api.per_second(now),
            rule_rate: totals.rules.per_second(now),
        }
    }

    /// Returns the usage of a tenant by value.
    pub(crate) fn report_attribution(
        &self,
        tenant: &TenantId,
        settings: &CostAttribution,
    ) -> AttributionReport {
        let usage = self.find(tenant);
        let table = usage.and_then(|usage| lock(&usage.attribution).clone());
        let mut report = AttributionReport::new(settings);
        if let Some(table) = table.filter(|table| table.label == settings.label) {
            table.add_to(&mut report);
        }
        report
    }

    /// Returns the tenants that have stored samples or a cost attribution.
    pub(crate) fn tenants(&self) -> Vec<TenantId> {
        read(&self.0).keys().cloned().collect()
    }

    /// Writes the usage of each tenant.
    pub(crate) fn collect(&self, sink: &mut dyn MetricSink) {
        let tenants = read(&self.0).clone();
        let stored = |usage: &TenantUsage| lock(&usage.totals).stored;
        let totals = tenants.iter().map(|(id, usage)| (id, stored(usage)));
        let totals: Vec<(&TenantId, SampleUsage)> = totals.collect();
        for (name, help, value) in [
            (
                "firn_tenant_samples_total",
                "Stored samples of a tenant.",
                (|usage| usage.samples) as fn(&SampleUsage) -> u64,
            ),
            (
                "firn_tenant_bytes_total",
                "Bytes of the labels and samples in the writes of a tenant, before compression.",
                |usage| usage.bytes,
            ),
        ] {
            for (tenant, usage) in &totals {
                let labels = [("tenant", tenant.as_str())];
                let value = MetricValue::Counter(value(usage) as f64);
                sink.metric(name, help, &labels, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
