//! Derives the counter reset hint of a histogram from the previous one.
//!
//! A store that keeps samples in order can determine the hint better than the sender of a single
//! sample: it compares once, and readers do not have to. The rules are those by which Prometheus
//! appends to a chunk of histograms or cuts it (`tsdb/chunkenc/float_histogram.go`): only a
//! histogram in the same chunk as the previous one is certainly not a reset.

use super::{BucketSpan, Histogram, HistogramCounts, ResetHint, bucket_indexes, decode_deltas};

impl Histogram {
    /// Returns the hint of this histogram. `previous` is the previous sample of the series if that
    /// is a histogram. O(buckets).
    pub fn hint_after(&self, previous: Option<&Histogram>) -> ResetHint {
        if self.reset_hint == ResetHint::Gauge {
            return ResetHint::Gauge;
        }
        match previous {
            Some(previous) if self.can_continue(previous) => ResetHint::NotReset,
            _ => ResetHint::Unknown,
        }
    }

    /// Returns whether no count decreased and the layout is compatible with the same counter.
    fn can_continue(&self, previous: &Histogram) -> bool {
        let known_to_differ = self.reset_hint == ResetHint::Reset
            || previous.reset_hint == ResetHint::Gauge
            || previous.is_stale();
        if known_to_differ
            || self.schema != previous.schema
            || self.zero_threshold != previous.zero_threshold
            || self.custom_values != previous.custom_values
        {
            return false;
        }
        let sides = [
            (&self.positive_spans, &previous.positive_spans),
            (&self.negative_spans, &previous.negative_spans),
        ];
        match (&self.counts, &previous.counts) {
            (
                HistogramCounts::Float {
                    count,
                    zero_count,
                    positive,
                    negative,
                },
                HistogramCounts::Float {
                    count: count_before,
                    zero_count: zero_before,
                    positive: positive_before,
                    negative: negative_before,
                },
            ) => {
                let grows =
                    |spans: (&Vec<BucketSpan>, &Vec<BucketSpan>), now: &[f64], before: &[f64]| {
                        let now = buckets(spans.0, now.iter().copied());
                        has_no_decrease(now, buckets(spans.1, before.iter().copied()))
                    };
                count >= count_before
                    && zero_count >= zero_before
                    && grows(sides[0], positive, positive_before)
                    && grows(sides[1], negative, negative_before)
            }
            (
                HistogramCounts::Integer {
                    count,
                    zero_count,
                    positive,
                    negative,
                },
                HistogramCounts::Integer {
                    count: count_before,
                    zero_count: zero_before,
                    positive: positive_before,
                    negative: negative_before,
                },
            ) => {
                let grows =
                    |spans: (&Vec<BucketSpan>, &Vec<BucketSpan>), now: &[i64], before: &[i64]| {
                        let now = buckets(spans.0, decode_deltas(now));
                        has_no_decrease(now, buckets(spans.1, decode_deltas(before)))
                    };
                count >= count_before
                    && zero_count >= zero_before
                    && grows(sides[0], positive, positive_before)
                    && grows(sides[1], negative, negative_before)
            }
            _ => false,
        }
    }
}

/// Returns the index and the count of each bucket.
fn buckets<'a, T>(
    spans: &'a [BucketSpan],
    counts: impl Iterator<Item = T> + 'a,
) -> impl Iterator<Item = (i64, T)> + 'a {
    bucket_indexes(spans).zip(counts)
}

/// Returns whether every non-empty bucket still exists and no count decreased.
fn has_no_decrease<T: PartialOrd + Default>(
    now: impl Iterator<Item = (i64, T)>,
    before: impl Iterator<Item = (i64, T)>,
) -> bool {
    let mut now = now.peekable();
    let mut before = before;
    before.all(|(index, count)| {
        while now.next_if(|(i, _)| *i < index).is_some() {}
        match now.peek() {
            Some((i, now)) if *i == index => *now >= count,
            _ => count == T::default(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(count: f64, offset: i32, positive: &[f64]) -> Histogram {
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema: 0,
            zero_threshold: 0.0,
            sum: 1.0,
            counts: HistogramCounts::Float {
                count,
                zero_count: 0.0,
                positive: positive.to_vec(),
                negative: Vec::new(),
            },
            positive_spans: vec![BucketSpan {
                offset,
                length: positive.len() as u32,
            }],
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        }
    }

    fn integers(count: u64, deltas: &[i64]) -> Histogram {
        Histogram {
            counts: HistogramCounts::Integer {
                count,
                zero_count: 0,
                positive: deltas.to_vec(),
                negative: Vec::new(),
            },
            ..floats(0.0, 0, &vec![0.0; deltas.len()])
        }
    }

    fn check(previous: &Histogram, histogram: &Histogram, wanted: ResetHint) {
        assert_eq!(
            histogram.hint_after(Some(previous)),
            wanted,
            "{histogram:?} behind {previous:?}"
        );
    }

    #[test]
    fn histogram_behind_another_is_no_reset_if_nothing_fell() {
        let first = floats(3.0, 0, &[1.0, 2.0]);
        assert_eq!(first.hint_after(None), ResetHint::Unknown);
        check(&first, &first, ResetHint::NotReset);
        check(
            &first,
            &floats(4.0, -1, &[1.0, 1.0, 2.0]),
            ResetHint::NotReset,
        );
        check(&first, &floats(2.0, 0, &[1.0, 2.0]), ResetHint::Unknown);
        check(&first, &floats(9.0, 0, &[8.0, 1.0]), ResetHint::Unknown);
        check(&first, &floats(9.0, 1, &[9.0]), ResetHint::Unknown);
        check(
            &floats(3.0, 0, &[0.0, 3.0]),
            &floats(4.0, 1, &[4.0]),
            ResetHint::NotReset,
        );
        check(
            &integers(3, &[1, 1]),
            &integers(4, &[1, 2]),
            ResetHint::NotReset,
        );
        check(
            &integers(3, &[1, 1]),
            &integers(4, &[3, -2]),
            ResetHint::Unknown,
        );
        check(&integers(3, &[1, 1]), &first, ResetHint::Unknown);
        let finer = Histogram {
            schema: 1,
            ..first.clone()
        };
        check(&first, &finer, ResetHint::Unknown);
        let with_hint = |reset_hint| Histogram {
            reset_hint,
            ..first.clone()
        };
        check(&first, &with_hint(ResetHint::Reset), ResetHint::Unknown);
        check(&first, &with_hint(ResetHint::Gauge), ResetHint::Gauge);
        check(&with_hint(ResetHint::Gauge), &first, ResetHint::Unknown);
    }
}
