//! The usage of a tenant by the values of a label.
//!
//! The first values up to the limit are counted separately, all others together. Series without the
//! label are counted under a name of their own. Both names are those of Mimir.

use super::{SampleUsage, VALUE_BYTES_MAX};
use firn_model::metrics::Counter;
use firn_model::sync::lock;
use firn_model::tenant_limits::CostAttribution;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// The value of series without the label.
const MISSING: &str = "__missing__";

/// The value of all series whose value is over the limit.
const OVERFLOW: &str = "__overflow__";

/// The samples of one value, shared by the batches in flight.
#[derive(Debug, Default)]
pub(crate) struct AttributedCounter {
    samples: Counter,
    bytes: Counter,
}

impl AttributedCounter {
    pub(super) fn add(&self, usage: SampleUsage) {
        self.samples.add(usage.samples);
        self.bytes.add(usage.bytes);
    }

    fn usage(&self) -> SampleUsage {
        SampleUsage {
            samples: self.samples.get(),
            bytes: self.bytes.get(),
        }
    }
}

/// The counters of one label. Replaced when the config names another label.
#[derive(Debug)]
pub(super) struct AttributionTable {
    pub(super) label: String,
    missing: Arc<AttributedCounter>,
    overflow: Arc<AttributedCounter>,
    values: Mutex<BTreeMap<Box<[u8]>, Arc<AttributedCounter>>>,
}

impl AttributionTable {
    pub(super) fn new(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            missing: Arc::default(),
            overflow: Arc::default(),
            values: Mutex::default(),
        }
    }

    /// Returns the counter of each value. A new value gets one of its own if there are less than
    /// `values_max`.
    pub(super) fn find_counters(
        &self,
        batch: &HashMap<&[u8], SampleUsage>,
        values_max: usize,
    ) -> Vec<(Arc<AttributedCounter>, SampleUsage)> {
        let mut values = lock(&self.values);
        let mut counter_of = |value: &[u8]| {
            if value.is_empty() {
                return self.missing.clone();
            }
            if let Some(known) = values.get(value) {
                return known.clone();
            }
            if values.len() >= values_max || value.len() > VALUE_BYTES_MAX {
                return self.overflow.clone();
            }
            values.entry(value.into()).or_default().clone()
        };
        let pairs = batch.iter();
        pairs
            .map(|(value, usage)| (counter_of(value), *usage))
            .collect()
    }

    /// Adds the samples of all values to `report`.
    pub(super) fn add_to(&self, report: &mut AttributionReport) {
        for (value, counter) in lock(&self.values).iter() {
            let value = String::from_utf8_lossy(value).into_owned();
            report.values.entry(value).or_default().add(counter.usage());
        }
        report.missing.add(self.missing.usage());
        report.overflow.add(self.overflow.usage());
    }
}

/// The series and samples of one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributionRow {
    /// Number of series in memory.
    pub series: u64,
    /// Samples and bytes in successful writes.
    pub usage: SampleUsage,
}

impl AttributionRow {
    fn add(&mut self, usage: SampleUsage) {
        self.usage.add(usage);
    }
}

/// The usage of a tenant by value. Created with the samples; the caller adds the series.
#[derive(Clone, Debug)]
pub struct AttributionReport {
    /// Name of the label.
    pub label: String,
    values_max: usize,
    values: BTreeMap<String, AttributionRow>,
    missing: AttributionRow,
    overflow: AttributionRow,
}

impl AttributionReport {
    pub(super) fn new(settings: &CostAttribution) -> Self {
        Self {
            label: settings.label.clone(),
            values_max: settings.values_max,
            values: BTreeMap::new(),
            missing: AttributionRow::default(),
            overflow: AttributionRow::default(),
        }
    }

    /// Adds series with `value`, which is empty for series without the label. Values without
    /// samples since the start take the places that are left, in the order of the calls.
    pub fn add_series(&mut self, value: &[u8], series: u64) {
        let row = if value.is_empty() {
            &mut self.missing
        } else {
            let is_full = self.values.len() >= self.values_max || value.len() > VALUE_BYTES_MAX;
            let value = String::from_utf8_lossy(value);
            if is_full && !self.values.contains_key(&*value) {
                &mut self.overflow
            } else {
                self.values.entry(value.into_owned()).or_default()
            }
        };
        row.series += series;
    }

    /// Returns the values with series or samples, sorted, followed by the two names for other
    /// series.
    pub fn into_rows(self) -> Vec<(String, AttributionRow)> {
        let others = [(MISSING, self.missing), (OVERFLOW, self.overflow)];
        let others = others.map(|(name, row)| (name.to_owned(), row));
        let all = self.values.into_iter().chain(others);
        all.filter(|(_, row)| *row != AttributionRow::default())
            .collect()
    }
}
