//! How much damage the store met, read from its own metrics so that both say the same.

use firn_model::metrics::{Collect, Sink, Value};

/// The counter that the store keeps.
const METRIC: &str = "firn_storage_damages_total";

/// Sums one counter over its kinds.
#[derive(Default)]
struct Sum(f64);

impl Sink for Sum {
    fn metric(&mut self, name: &str, _: &str, _: &[(&str, &str)], value: Value<'_>) {
        if let (METRIC, Value::Counter(count)) = (name, value) {
            self.0 += count;
        }
    }
}

/// Stretches of damage that `store` met since it was opened.
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
