//! The metrics of several stores, joined to those of one.
//!
//! Counters, histograms and gauges of amounts are added. Gauges of states and limits are joined by
//! the maximum ([`MAXIMA`]), and the oldest exemplar by the minimum.
//!
//! Invariant: all metrics with one name follow one another, in the order in which the first store
//! reports them.

use firn_model::metrics::{DurationHistogram, MetricSink, MetricValue};

/// Gauges whose joined value is the maximum: states, and values that all stores share.
const MAXIMA: [&str; 7] = [
    "firn_log_stalled",
    "firn_storage_block_work_last_duration_seconds",
    "firn_storage_block_work_running",
    "firn_storage_retention_limit_seconds",
    "firn_storage_wal_disk_full",
    "firn_storage_wal_poisoned",
    "firn_storage_wal_stalled",
];

/// A gauge whose joined value is the minimum, in which zero means that there is none.
const OLDEST_EXEMPLAR: &str = "firn_storage_exemplars_oldest_timestamp_seconds";

/// A metrics sink that joins metrics with equal names and labels.
#[derive(Default)]
pub(crate) struct MetricSums {
    families: Vec<MetricFamily>,
    /// Index of the last family; stores report their metrics in the same order.
    last: usize,
}

struct MetricFamily {
    name: String,
    help: String,
    metrics: Vec<JoinedMetric>,
}

struct JoinedMetric {
    labels: Vec<(String, String)>,
    value: JoinedMetricValue,
}

enum JoinedMetricValue {
    Counter(f64),
    Gauge(f64),
    Histogram(Box<DurationHistogram>),
}

/// A metrics sink that adds counters and histograms to sums, and omits gauges: the metrics of a
/// store that remain when it is gone.
pub(crate) struct CounterSink<'s>(pub(crate) &'s mut MetricSums);

impl MetricSink for CounterSink<'_> {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
        if !matches!(value, MetricValue::Gauge(_)) {
            self.0.metric(name, help, labels, value);
        }
    }
}

impl MetricSums {
    /// Returns whether no metric was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// Passes the joined metrics to `sink`.
    pub(crate) fn write(&self, sink: &mut dyn MetricSink) {
        for family in &self.families {
            for metric in &family.metrics {
                let labels = metric.labels.iter();
                let labels: Vec<(&str, &str)> = labels.map(|(n, v)| (&**n, &**v)).collect();
                let value = match &metric.value {
                    JoinedMetricValue::Counter(value) => MetricValue::Counter(*value),
                    JoinedMetricValue::Gauge(value) => MetricValue::Gauge(*value),
                    JoinedMetricValue::Histogram(histogram) => MetricValue::Histogram(histogram),
                };
                sink.metric(&family.name, &family.help, &labels, value);
            }
        }
    }

    /// Returns the index of the family `name`, which is added if it is new.
    fn find_family(&mut self, name: &str, help: &str) -> usize {
        let is_it = |family: &MetricFamily| family.name == name;
        let mut next = (self.last..self.families.len()).take(2);
        let near = next.find(|at| is_it(&self.families[*at]));
        let known = near.or_else(|| self.families.iter().position(is_it));
        known.unwrap_or_else(|| {
            self.families.push(MetricFamily {
                name: name.to_owned(),
                help: help.to_owned(),
                metrics: Vec::new(),
            });
            self.families.len() - 1
        })
    }
}

impl MetricSink for MetricSums {
    fn metric(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: MetricValue<'_>) {
        let family = self.find_family(name, help);
        let metrics = &mut self.families[family].metrics;
        let is_it = |metric: &&mut JoinedMetric| {
            let own = metric.labels.iter().map(|(n, v)| (&**n, &**v));
            own.eq(labels.iter().copied())
        };
        match metrics.iter_mut().find(is_it) {
            Some(known) => known.value.join(name, value),
            None => metrics.push(JoinedMetric {
                labels: labels
                    .iter()
                    .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                    .collect(),
                value: JoinedMetricValue::from_first(value),
            }),
        }
        self.last = family;
    }
}

impl JoinedMetricValue {
    fn from_first(value: MetricValue<'_>) -> Self {
        match value {
            MetricValue::Counter(value) => Self::Counter(value),
            MetricValue::Gauge(value) => Self::Gauge(value),
            MetricValue::Histogram(histogram) => {
                let sum = Box::<DurationHistogram>::default();
                sum.add_all(histogram);
                Self::Histogram(sum)
            }
        }
    }

    /// Joins the value of the next store. A metric has the same type in all stores.
    fn join(&mut self, name: &str, value: MetricValue<'_>) {
        match (self, value) {
            (Self::Counter(own), MetricValue::Counter(added)) => *own += added,
            (Self::Gauge(own), MetricValue::Gauge(added)) => *own = join_gauges(name, *own, added),
            (Self::Histogram(own), MetricValue::Histogram(added)) => own.add_all(added),
            _ => debug_assert!(false, "{name} has two types"),
        }
    }
}

fn join_gauges(name: &str, a: f64, b: f64) -> f64 {
    if MAXIMA.contains(&name) {
        a.max(b)
    } else if name == OLDEST_EXEMPLAR && a != 0.0 && b != 0.0 {
        a.min(b)
    } else {
        a + b
    }
}
