//! The rule for two samples of one series at the same time.
//!
//! Reads apply the rule in the order of [`crate::read`]: samples appended in order come before late
//! ones, and late ones are in order of arrival. Invariant: applying the rule step by step, each
//! time with the sample kept so far, gives the same result if samples that would not be kept are
//! left out.

use super::columns::ChunkSample;

/// The rule that selects the sample that a query returns if several have the same time. Set by the
/// configuration of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DuplicatePolicy {
    /// Keep the sample that arrived first. A result that was returned once never changes.
    #[default]
    KeepFirst,
    /// Keep the sample that arrived last, so that samples can be corrected.
    KeepLast,
    /// Keep the greatest float. A histogram takes precedence over a float, and the last of several
    /// histograms is kept; any number takes precedence over NaN.
    Max,
}

impl DuplicatePolicy {
    /// Returns whether `later` replaces `first`, which has the same time.
    pub(crate) fn replaces(self, first: &ChunkSample, later: &ChunkSample) -> bool {
        match (self, first, later) {
            (Self::KeepFirst, ..) => false,
            (Self::KeepLast, ..) | (Self::Max, _, ChunkSample::Histogram(_)) => true,
            (Self::Max, ChunkSample::Histogram(_), ChunkSample::Float(_)) => false,
            (Self::Max, ChunkSample::Float(first), ChunkSample::Float(later)) => {
                later > first || first.is_nan() && !later.is_nan()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::{Histogram, HistogramCounts, ResetHint};
    use firn_model::sample::stale_nan;
    use std::sync::Arc;

    #[test]
    fn duplicates_replaces_says_which_of_two_stays() {
        use DuplicatePolicy::{KeepFirst, KeepLast, Max};
        let histogram = || {
            ChunkSample::Histogram(Arc::new(Histogram {
                reset_hint: ResetHint::Unknown,
                schema: 0,
                zero_threshold: 0.0,
                sum: 3.0,
                counts: HistogramCounts::Float {
                    count: 2.0,
                    zero_count: 2.0,
                    positive: Vec::new(),
                    negative: Vec::new(),
                },
                positive_spans: Vec::new(),
                negative_spans: Vec::new(),
                custom_values: Vec::new(),
            }))
        };
        let (one, two, stale) = (
            || ChunkSample::Float(1.0),
            || ChunkSample::Float(2.0),
            || ChunkSample::Float(stale_nan()),
        );
        let cases: [(DuplicatePolicy, ChunkSample, ChunkSample, bool); 11] = [
            (KeepFirst, one(), two(), false),
            (KeepLast, two(), one(), true),
            (KeepLast, histogram(), one(), true),
            (Max, one(), two(), true),
            (Max, two(), one(), false),
            (Max, one(), one(), false),
            (Max, one(), stale(), false),
            (Max, stale(), one(), true),
            (Max, two(), histogram(), true),
            (Max, histogram(), two(), false),
            (Max, histogram(), histogram(), true),
        ];
        for (policy, first, later, expected) in cases {
            let found = policy.replaces(&first, &later);
            assert_eq!(found, expected, "{policy:?} {first:?} {later:?}");
        }
    }
}
