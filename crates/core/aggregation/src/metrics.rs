//! Metrics of aggregation, one set for each group.

use super::lane::SampleVerdict;
use firn_model::metrics::{Counter, MetricSink, MetricValue};
use std::sync::Arc;

/// The counters of one group, which survive a reload of the configuration.
#[derive(Debug, Default)]
pub(super) struct AggregationGroupCounts {
    pub(super) samples: Counter,
    pub(super) repeated: Counter,
    pub(super) late: Counter,
    pub(super) ended: Counter,
    pub(super) mixed: Counter,
    pub(super) results: Counter,
    pub(super) refused_sources: Counter,
    pub(super) histogram_sources: Counter,
}

impl AggregationGroupCounts {
    /// Adds the number of samples with each verdict.
    pub(super) fn add_verdicts(&self, verdicts: [u64; SampleVerdict::COUNT]) {
        let counters = [
            (SampleVerdict::Counted, &self.samples),
            (SampleVerdict::Repeated, &self.repeated),
            (SampleVerdict::Late, &self.late),
            (SampleVerdict::Ended, &self.ended),
            (SampleVerdict::Mixed, &self.mixed),
        ];
        for (verdict, counter) in counters {
            let count = verdicts[verdict as usize];
            if count > 0 {
                counter.add(count);
            }
        }
    }
}

/// The size of a group's state, computed when metrics are collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AggregationGroupSizes {
    pub(super) sources: usize,
    pub(super) outputs: usize,
    pub(super) bytes: usize,
}

/// A group with its name, counters and size.
pub(super) type GroupMetrics = (String, Arc<AggregationGroupCounts>, AggregationGroupSizes);

/// Writes the metrics of all groups to `sink`.
pub(super) fn collect(sink: &mut dyn MetricSink, groups: &[GroupMetrics]) {
    collect_counts(sink, groups);
    collect_sizes(sink, groups);
}

fn collect_counts(sink: &mut dyn MetricSink, groups: &[GroupMetrics]) {
    type Count = fn(&AggregationGroupCounts) -> &Counter;
    let counts: [(&str, &str, Count); 8] = [
        (
            "firn_aggregation_samples_total",
            "Source samples included in results.",
            |counts| &counts.samples,
        ),
        (
            "firn_aggregation_repeated_samples_total",
            "Source samples ignored because they were duplicates or older than the newest sample \
             of their series.",
            |counts| &counts.repeated,
        ),
        (
            "firn_aggregation_late_samples_total",
            "Gauge samples that arrived after the result of their interval was written.",
            |counts| &counts.late,
        ),
        (
            "firn_aggregation_ended_sources_total",
            "Counters ended by a staleness marker.",
            |counts| &counts.ended,
        ),
        (
            "firn_aggregation_mixed_samples_total",
            "Samples that cannot be combined with their result, for example floats among \
             histograms. They are stored unaggregated.",
            |counts| &counts.mixed,
        ),
        (
            "firn_aggregation_results_total",
            "Samples of results, including staleness markers.",
            |counts| &counts.results,
        ),
        (
            "firn_aggregation_refused_sources_total",
            "Series that are not aggregated because the limit on sources is reached.",
            |counts| &counts.refused_sources,
        ),
        (
            "firn_aggregation_histogram_sources_total",
            "Series of native histograms that their rule cannot aggregate. They are stored \
             unaggregated.",
            |counts| &counts.histogram_sources,
        ),
    ];
    for (name, help, count) in counts {
        for (group, counts, _) in groups {
            let value = MetricValue::Counter(count(counts).get() as f64);
            sink.metric(name, help, &[("group", group)], value);
        }
    }
}

fn collect_sizes(sink: &mut dyn MetricSink, groups: &[GroupMetrics]) {
    type Size = fn(&AggregationGroupSizes) -> usize;
    let sizes: [(&str, &str, Size); 3] = [
        (
            "firn_aggregation_sources",
            "Aggregated source series, counted once per rule.",
            |sizes| sizes.sources,
        ),
        ("firn_aggregation_outputs", "Series of results.", |sizes| {
            sizes.outputs
        }),
        (
            "firn_aggregation_state_bytes",
            "Approximate memory of the aggregation state.",
            |sizes| sizes.bytes,
        ),
    ];
    for (name, help, size) in sizes {
        for (group, _, of_group) in groups {
            let value = MetricValue::Gauge(size(of_group) as f64);
            sink.metric(name, help, &[("group", group)], value);
        }
    }
}
