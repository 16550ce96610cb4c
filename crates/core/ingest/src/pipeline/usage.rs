//! Measures batches for the usage of their tenants.
//!
//! Without a cost attribution, a batch costs one pass over the positions of its labels. With one,
//! the label is searched in the key of each series, which is not decoded.

use super::Pipeline;
use crate::refusals::SampleSender;
use crate::usage::{AttributionReport, BatchUsage, SampleUsage, TenantUsageReport};
use firn_model::batch::Batch;
use firn_model::metrics::{MetricSink, MetricValue};
use firn_model::store::Ticket;
use firn_model::tenant::TenantId;
use firn_wire::remote_write::{KEY_FORMAT, visit_labels};
use std::collections::HashMap;

impl Pipeline {
    /// Returns the usage of a tenant since the start.
    pub fn usage(&self, tenant: &TenantId) -> TenantUsageReport {
        let now = self.ledger.clock.monotonic();
        self.ledger.usage.report(tenant, now)
    }

    /// Returns the samples of a tenant since the start by the values of the configured label, or
    /// `None` without one. The caller adds the series.
    pub fn attribution(&self, tenant: &TenantId) -> Option<AttributionReport> {
        let limits = self.tenant_limits(tenant);
        let settings = limits.attribution.as_ref()?;
        Some(self.ledger.usage.report_attribution(tenant, settings))
    }

    /// Returns the tenants with a usage since the start.
    pub fn tenants_with_usage(&self) -> Vec<TenantId> {
        self.ledger.usage.tenants()
    }

    /// Writes the metrics of the usage of each tenant.
    pub fn collect_usage(&self, sink: &mut dyn MetricSink) {
        self.ledger.usage.collect(sink);
    }

    /// Writes the samples and bytes of each tenant with a cost attribution by value.
    pub fn collect_attribution(&self, sink: &mut dyn MetricSink) {
        let mut all = Vec::new();
        for tenant in self.tenants_with_usage() {
            if let Some(report) = self.attribution(&tenant) {
                all.push((tenant, report.label.clone(), report.into_rows()));
            }
        }
        for (name, help, value_of) in [
            (
                "firn_tenant_attributed_samples_total",
                "Samples in the writes of a tenant, by the values of its attribution label.",
                (|usage| usage.samples) as fn(&SampleUsage) -> u64,
            ),
            (
                "firn_tenant_attributed_bytes_total",
                "Bytes in the writes of a tenant, by the values of its attribution label.",
                |usage| usage.bytes,
            ),
        ] {
            for (tenant, label, rows) in &all {
                for (value, row) in rows {
                    let labels = [
                        ("label", label.as_str()),
                        ("tenant", tenant.as_str()),
                        ("value", value.as_str()),
                    ];
                    let count = MetricValue::Counter(value_of(&row.usage) as f64);
                    sink.metric(name, help, &labels, count);
                }
            }
        }
    }

    /// Returns the usage of a batch that is about to be stored.
    pub(super) fn measure_batch(
        &self,
        tenant: &TenantId,
        batch: &Batch,
        sender: Option<&SampleSender>,
    ) -> BatchUsage {
        let is_of_rules = matches!(sender, Some(SampleSender::Rules(_)));
        let limits = self.tenant_limits(tenant);
        let Some(settings) = &limits.attribution else {
            return BatchUsage {
                is_of_rules,
                bytes: batch.data_bytes() as u64,
                attributed: Vec::new(),
            };
        };
        let values = divide_by_label(batch, &settings.label);
        BatchUsage {
            is_of_rules,
            bytes: values.values().map(|usage| usage.bytes).sum(),
            attributed: self.ledger.usage.attribute(tenant, settings, &values),
        }
    }

    /// Returns the ticket of the store, which adds `usage` to the tenant when the batch is durable.
    pub(super) fn count_when_stored(
        &self,
        stored: Ticket,
        tenant: &TenantId,
        usage: BatchUsage,
    ) -> Ticket {
        let (ledger, tenant) = (self.ledger.clone(), tenant.clone());
        stored.with_observer(move |outcome| {
            if let Ok(appended) = outcome {
                let now = ledger.clock.monotonic();
                let stored = appended.stored as u64;
                ledger.usage.add(&tenant, &usage, stored, now);
            }
        })
    }
}

/// Returns the samples and bytes of a batch by the values of a label. The value of series without
/// the label is empty.
fn divide_by_label<'b>(batch: &'b Batch, label: &str) -> HashMap<&'b [u8], SampleUsage> {
    let mut values: HashMap<&[u8], SampleUsage> = HashMap::new();
    // Series of one sender often have the same value.
    let mut latest: (&[u8], SampleUsage) = (&[], SampleUsage::default());
    for (index, series) in batch.iter_with_index() {
        let index = index as usize;
        let value = match batch.key(index) {
            Some(key) if batch.has_key_format(KEY_FORMAT) => find_in_key(key, label),
            _ => series.labels.get(label),
        };
        let usage = SampleUsage {
            samples: (series.times.len() + series.histograms.len()) as u64,
            bytes: batch.series_data_bytes(index) as u64,
        };
        if value != latest.0 {
            values.entry(latest.0).or_default().add(latest.1);
            latest = (value, SampleUsage::default());
        }
        latest.1.add(usage);
    }
    values.entry(latest.0).or_default().add(latest.1);
    values.retain(|_, usage| *usage != SampleUsage::default());
    values
}

/// Returns the value of a label in the key of a series, empty without one.
fn find_in_key<'k>(key: &'k [u8], label: &str) -> &'k [u8] {
    let mut found: &[u8] = &[];
    // The store rejects a series whose key has other contents.
    let _ = visit_labels(key, |_, name, value| {
        if name == label.as_bytes() {
            found = value;
        }
    });
    found
}
