//! Number of damages found by the store, read from its metrics so that both report the same number.

use firn_model::metrics::{Collect, Sink, Value};

/// Name of the counter of damages that the store exports.
const METRIC: &str = "firn_storage_damages_total";

/// Metrics sink that sums one counter over all its label values and ignores other metrics.
#[derive(Default)]
struct Sum(f64);

impl Sink for Sum {
    fn metric(&mut self, name: &str, _: &str, _: &[(&str, &str)], value: Value<'_>) {
        if let (METRIC, Value::Counter(count)) = (name, value) {
            self.0 += count;
        }
    }
}

/// Returns the number of damaged regions that `store` found since it was opened.
pub fn count(store: &dyn Collect) -> u64 {
    let mut sum = Sum::default();
    store.collect(&mut sum);
    sum.0 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Damaged;

    impl Collect for Damaged {
        fn collect(&self, sink: &mut dyn Sink) {
            sink.metric("firn_storage_wal_segments", "x", &[], Value::Gauge(7.0));
            sink.metric(METRIC, "x", &[("kind", "log")], Value::Counter(3.0));
            sink.metric(METRIC, "x", &[("kind", "pages")], Value::Counter(1.0));
        }
    }

    #[test]
    fn count_reads_the_stores_counter_alone() {
        assert_eq!(count(&Damaged), 4);
    }
}
