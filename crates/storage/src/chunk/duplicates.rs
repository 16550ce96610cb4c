//! Which of two samples of one series at one time stays.
//!
//! The store asks in the order of [`crate::read`]: what was taken in order comes before what was
//! late, and of late samples the one that arrived first. Invariant: asking one after the other,
//! each time with the one that stayed so far, gives the same whatever was left out between that
//! would not have stayed.

use super::columns::Sample;

/// Which of two samples at one time a query is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Duplicates {
    /// The one that arrived first: nothing that was seen changes.
    #[default]
    KeepFirst,
    /// The one that arrived last: a sample can be corrected.
    KeepLast,
    /// The greatest float. A histogram goes before a float, and of two histograms the last one
    /// stays; what is not a number goes behind every number.
    Max,
}

impl Duplicates {
    /// Whether `later` stays and not `first`, which has the same time.
    pub(crate) fn replaces(self, first: &Sample, later: &Sample) -> bool {
        match (self, first, later) {
            (Self::KeepFirst, ..) => false,
            (Self::KeepLast, ..) | (Self::Max, _, Sample::Histogram(_)) => true,
            (Self::Max, Sample::Histogram(_), Sample::Float(_)) => false,
            (Self::Max, Sample::Float(first), Sample::Float(later)) => {
                later > first || first.is_nan() && !later.is_nan()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::histogram::{Counts, Histogram, ResetHint};
    use firn_model::sample::stale_nan;
    use std::sync::Arc;

    #[test]
    fn duplicates_replaces_says_which_of_two_stays() {
        use Duplicates::{KeepFirst, KeepLast, Max};
        let histogram = || {
            Sample::Histogram(Arc::new(Histogram {
                reset_hint: ResetHint::Unknown,
                schema: 0,
                zero_threshold: 0.0,
                sum: 3.0,
                counts: Counts::Float {
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
            || Sample::Float(1.0),
            || Sample::Float(2.0),
            || Sample::Float(stale_nan()),
        );
        let cases: [(Duplicates, Sample, Sample, bool); 11] = [
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
