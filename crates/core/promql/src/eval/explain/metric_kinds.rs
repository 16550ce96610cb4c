//! Determines whether a metric is a counter: from its metadata, or from its name if there is none.

use firn_model::metadata::MetricType;

/// The kind of the values of a metric, and the source from which it is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// The metadata contains a counter, or the family of a histogram or summary.
    Counter,
    /// There is no metadata, and the name has an ending of counters.
    CounterByName,
    /// The metadata contains a gauge or another type without counters.
    Gauge,
    /// The metadata contains a histogram with exactly this name, so the histogram is native.
    NativeHistogram,
    /// There is no metadata, and the name has no ending of counters.
    Unknown,
}

/// Endings of the names of counters.
const COUNTER_ENDINGS: [&str; 4] = ["_total", "_count", "_sum", "_bucket"];

impl MetricKind {
    /// Returns the kind of the metric `name`. `type_of` returns the type of a metric family.
    pub(super) fn from_name(name: &str, type_of: impl Fn(&str) -> Option<MetricType>) -> Self {
        use MetricType as T;
        let known = |name: &str| type_of(name).filter(|kind| *kind != T::Unknown);
        match known(name) {
            Some(T::Counter) => return MetricKind::Counter,
            Some(T::Histogram) => return MetricKind::NativeHistogram,
            Some(T::Gauge | T::GaugeHistogram | T::Summary | T::Info | T::Stateset) => {
                return MetricKind::Gauge;
            }
            Some(T::Unknown) | None => {}
        }
        let ending = COUNTER_ENDINGS
            .into_iter()
            .find(|ending| name.ends_with(ending));
        let Some(ending) = ending else {
            return MetricKind::Unknown;
        };
        let family = &name[..name.len() - ending.len()];
        match (known(family), ending) {
            (Some(T::Counter), "_total")
            | (Some(T::Histogram), "_bucket")
            | (Some(T::Histogram | T::Summary), "_count" | "_sum") => MetricKind::Counter,
            (Some(T::GaugeHistogram), _) => MetricKind::Gauge,
            _ => MetricKind::CounterByName,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_a_metric_is_that_of_its_family_or_of_its_name() {
        use MetricKind as K;
        use MetricType as T;
        let families = [
            ("jobs_total", T::Gauge),
            ("restarts", T::Counter),
            ("latency", T::Histogram),
            ("duration", T::Summary),
            ("queue", T::GaugeHistogram),
            ("odd", T::Unknown),
        ];
        let type_of = |name: &str| {
            let known = families.iter().find(|(family, _)| *family == name);
            known.map(|(_, kind)| *kind)
        };
        for (name, kind) in [
            ("jobs_total", K::Gauge),
            ("restarts", K::Counter),
            ("restarts_total", K::Counter),
            ("latency", K::NativeHistogram),
            ("latency_bucket", K::Counter),
            ("latency_sum", K::Counter),
            ("duration", K::Gauge),
            ("duration_count", K::Counter),
            ("queue_bucket", K::Gauge),
            ("odd", K::Unknown),
            ("requests_total", K::CounterByName),
            ("memory_bytes", K::Unknown),
            ("", K::Unknown),
        ] {
            assert_eq!(MetricKind::from_name(name, type_of), kind, "{name}");
        }
    }
}
