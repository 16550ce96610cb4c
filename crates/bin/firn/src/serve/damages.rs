//! Number of damages found by the store, read from its metrics so that both report the same number.

use firn_model::metrics::{Collect, MetricSink, MetricValue};

/// Name of the counter of damages that the store exports.
const METRIC: &str = "firn_storage_damages_total";

/// Metrics sink that sums one counter over all its label values and ignores other metrics.
#[derive(Default)]
struct CounterSum(f64);

impl MetricSink for CounterSum {
    fn metric(&mut self, name: &str, _: &str, _: &[(&str, &str)], value: MetricValue<'_>) {
        if let (METRIC, MetricValue::Counter(count)) = (name, value) {
            self.0 += count;
        }
    }
}

/// Returns the number of damaged regions that `store` found since it was opened.
pub fn count(store: &dyn Collect) -> u64 {
    let mut sum = CounterSum::default();
    store.collect(&mut sum);
    sum.0 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Damaged;

    impl Collect for Damaged {
        fn collect(&self, sink: &mut dyn MetricSink) {
            sink.metric(
                "firn_storage_wal_segments",
                "x",
                &[],
                MetricValue::Gauge(7.0),
            );
            sink.metric(METRIC, "x", &[("kind", "log")], MetricValue::Counter(3.0));
            sink.metric(METRIC, "x", &[("kind", "pages")], MetricValue::Counter(1.0));
        }
    }

    #[test]
    fn count_reads_the_stores_counter_alone() {
        assert_eq!(count(&Damaged), 4);
    }
}
