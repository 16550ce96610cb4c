//! A configured group of rules, and the ends of its intervals.

use crate::lane::AggregationLane;
use crate::metrics::AggregationGroupCounts;
use crate::spec::AggregationGroupSpec;
use firn_model::sample::TimestampMs;
use std::sync::Arc;

/// A configured group, with the position of its lanes and its counters.
#[derive(Debug)]
pub(super) struct AggregationGroup {
    pub(super) spec: AggregationGroupSpec,
    /// Identities of its rules, in the order of the rules.
    pub(super) identities: Vec<u64>,
    /// Index of its first lane; the others follow it.
    pub(super) base: usize,
    pub(super) counts: Arc<AggregationGroupCounts>,
}

/// Returns the end of the newest interval that ended at least `for_ms` before `time`.
pub(super) fn newest_interval_end(
    spec: &AggregationGroupSpec,
    time: TimestampMs,
    for_ms: i64,
) -> TimestampMs {
    let over = time.saturating_sub(for_ms.max(0));
    let interval_ms = spec.interval_ms.max(1);
    over.saturating_sub(over.rem_euclid(interval_ms))
}

/// Returns a group without rules that has the parameters of `lane`.
pub(super) fn removed_group_spec(lane: &AggregationLane) -> AggregationGroupSpec {
    AggregationGroupSpec {
        name: String::new(),
        interval_ms: lane.params.interval_ms,
        delay_ms: 0,
        lookback_ms: lane.params.lookback_ms,
        rules: Arc::default(),
    }
}
