//! The steps of a result as columns of floats, and the join of the steps of two results.
//!
//! Invariant: a matrix that is converted to columns and back has the same bits.

use firn_model::labels::Labels;
use firn_model::sample::{TimestampMs, is_stale, stale_nan};
use firn_promql::EvalTime;
use firn_promql::value::MatrixSeries;
use std::cmp::Ordering;

/// The steps of a range query with at least two steps. All times are in range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuerySteps {
    pub(super) first: TimestampMs,
    pub(super) step_ms: i64,
    pub(super) count: usize,
    /// The end of the query, at or after the last step.
    pub(super) end: TimestampMs,
}

impl QuerySteps {
    /// Returns the steps of a query, unless it has a single step or its times are extreme.
    pub(super) fn from_bounds(start: TimestampMs, end: TimestampMs, step_ms: i64) -> Option<Self> {
        const EXTREME: TimestampMs = TimestampMs::MAX / 4;
        let are_usual = (-EXTREME..EXTREME).contains(&start) && (start..EXTREME).contains(&end);
        if !are_usual || !(1..EXTREME).contains(&step_ms) || end - start < step_ms {
            return None;
        }
        let count = usize::try_from((end - start) / step_ms).ok()? + 1;
        Some(Self {
            first: start,
            step_ms,
            count,
            end,
        })
    }

    fn time_of(&self, step: usize) -> TimestampMs {
        self.first + self.step_ms * step as i64
    }

    /// Returns the time of the last step.
    pub(super) fn last(&self) -> TimestampMs {
        self.time_of(self.count - 1)
    }

    /// Returns the steps after the first `skipped` ones; at least one must remain.
    pub(super) fn without_first(&self, skipped: usize) -> Self {
        assert!(skipped < self.count, "{skipped} of {} steps", self.count);
        Self {
            first: self.time_of(skipped),
            count: self.count - skipped,
            ..*self
        }
    }

    /// Returns the range of a query with these steps.
    pub(super) fn time(&self, end: TimestampMs) -> EvalTime {
        EvalTime::range(self.first, end, self.step_ms)
    }
}

/// The steps of a result without histograms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CachedSteps {
    steps: QuerySteps,
    /// Sorted by labels, without duplicates. Each has a value.
    series: Vec<CachedSeries>,
}

/// The values of a series at consecutive steps; staleness markers where it has none.
#[derive(Clone, Debug)]
struct CachedSeries {
    labels: Labels,
    /// The step of the first value.
    start: usize,
    /// The first and the last value are present.
    values: Vec<f64>,
}

impl PartialEq for CachedSeries {
    fn eq(&self, other: &Self) -> bool {
        let bits = |series: &Self| {
            series
                .values
                .iter()
                .map(|v| v.to_bits())
                .collect::<Vec<_>>()
        };
        (&self.labels, self.start) == (&other.labels, other.start) && bits(self) == bits(other)
    }
}

impl CachedSeries {
    fn new(labels: Labels) -> Self {
        Self {
            labels,
            start: 0,
            values: Vec::new(),
        }
    }

    /// Appends values that begin at `step`, which is after all steps of the series.
    fn push(&mut self, step: usize, values: &[f64]) {
        if self.values.is_empty() {
            self.start = step;
        }
        self.values.resize(step - self.start, stale_nan());
        self.values.extend_from_slice(values);
    }

    /// Appends the values at the steps of `steps`, which are `shift` steps later in this series.
    /// Omits those that are absent at both ends.
    fn push_part(&mut self, other: &Self, steps: std::ops::Range<usize>, shift: i64) {
        let end = other.start + other.values.len();
        let (from, to) = (steps.start.max(other.start), steps.end.min(end));
        if from >= to {
            return;
        }
        let values = &other.values[from - other.start..to - other.start];
        let Some(first) = values.iter().position(|value| !is_stale(*value)) else {
            return;
        };
        let last = values.iter().rposition(|value| !is_stale(*value));
        let values = &values[first..=last.unwrap_or(first)];
        let step = (from + first) as i64 + shift;
        self.push(usize::try_from(step).unwrap_or(0), values);
    }

    fn bytes(&self) -> usize {
        // The bytes of the label set are counted in full, although other results may share them.
        size_of::<Self>() + self.labels.as_bytes().len() + size_of_val(&self.values[..])
    }
}

impl CachedSteps {
    /// Returns the memory of the steps of a result in bytes.
    pub(super) fn bytes_of(matrix: &[MatrixSeries], steps: &QuerySteps) -> usize {
        let bytes = |one: &MatrixSeries| {
            let span = match (one.floats.first(), one.floats.last()) {
                (Some((first, _)), Some((last, _))) => (last - first) / steps.step_ms + 1,
                _ => 0,
            };
            let labels = size_of::<CachedSeries>() + one.labels.as_bytes().len();
            labels + usize::try_from(span).unwrap_or(0) * size_of::<f64>()
        };
        size_of::<Self>() + matrix.iter().map(bytes).sum::<usize>()
    }

    /// Converts a result. Returns `None` if it has histograms or two series with the same labels.
    pub(super) fn from_matrix(matrix: &[MatrixSeries], steps: QuerySteps) -> Option<Self> {
        let mut series: Vec<CachedSeries> = Vec::with_capacity(matrix.len());
        for one in matrix {
            let is_after = series
                .last()
                .is_none_or(|before| before.labels < one.labels);
            if !one.histograms.is_empty() || !is_after {
                return None;
            }
            let step_of = |time: TimestampMs| ((time - steps.first) / steps.step_ms) as usize;
            let (Some((first, _)), Some((last, _))) = (one.floats.first(), one.floats.last())
            else {
                continue;
            };
            let (start, end) = (step_of(*first), step_of(*last));
            let mut values = vec![stale_nan(); end - start + 1];
            for (time, value) in &one.floats {
                if is_stale(*value) {
                    return None;
                }
                values[step_of(*time) - start] = *value;
            }
            series.push(CachedSeries {
                labels: one.labels.clone(),
                start,
                values,
            });
        }
        Some(Self { steps, series })
    }

    /// Returns the time of the last step.
    pub(super) fn last(&self) -> TimestampMs {
        self.steps.last()
    }

    /// Returns the memory of the steps in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.series.iter().map(CachedSeries::bytes).sum::<usize>()
    }

    /// Returns the number of first steps of a query of the same phase that this result contains and
    /// that are before `affected`. Excludes the last step of the query, and also the one before it
    /// if the remaining query would otherwise end at its start, like an instant query. Returns
    /// `None` if there is no such step.
    pub(super) fn reusable(&self, query: &QuerySteps, affected: TimestampMs) -> Option<usize> {
        let own = &self.steps;
        let end = affected.min(own.last().saturating_add(1));
        if query.first < own.first || query.first >= end {
            return None;
        }
        let before_end = (end - 1 - query.first) / own.step_ms + 1;
        let rest_min = if query.last() == query.end { 2 } else { 1 };
        let reused = usize::try_from(before_end).ok()?;
        let reused = reused.min(query.count.saturating_sub(rest_min));
        (reused > 0).then_some(reused)
    }

    /// Returns the steps before those of `later`, and those of `later`. Steps more than `count`
    /// before the end are dropped, unless this result has more. `later` must begin at or after a
    /// step of this result or directly behind it.
    pub(super) fn join(&self, later: &Self, count: usize) -> Self {
        let (own, new) = (&self.steps, &later.steps);
        let before = ((new.first - own.first) / own.step_ms) as usize;
        assert!(before <= own.count, "a gap after {} steps", own.count);
        let kept = count.max(own.count).saturating_sub(new.count).min(before);
        let dropped = before - kept;
        let mut series = Vec::with_capacity(self.series.len().max(later.series.len()));
        let (mut left, mut right) = (
            self.series.iter().peekable(),
            later.series.iter().peekable(),
        );
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.labels.cmp(&b.labels),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            let Some(labels) = a.or(b).map(|one| one.labels.clone()) else {
                break;
            };
            let mut joined = CachedSeries::new(labels);
            if let Some(a) = a {
                joined.push_part(a, dropped..before, -(dropped as i64));
            }
            if let Some(b) = b {
                joined.push_part(b, 0..new.count, kept as i64);
            }
            if !joined.values.is_empty() {
                series.push(joined);
            }
        }
        Self {
            steps: QuerySteps {
                first: own.time_of(dropped),
                count: kept + new.count,
                ..*new
            },
            series,
        }
    }

    /// Returns the position of the steps of a query. This result must contain all of them.
    fn range_of(&self, query: &QuerySteps) -> std::ops::Range<usize> {
        let start = ((query.first - self.steps.first) / self.steps.step_ms) as usize;
        let end = start + query.count;
        let count = self.steps.count;
        assert!(end <= count, "steps {start}..{end} of {count}");
        start..end
    }

    /// Returns the points of each series at the steps of a query.
    pub(super) fn matrix(&self, query: &QuerySteps) -> Vec<MatrixSeries> {
        let range = self.range_of(query);
        let mut matrix = Vec::with_capacity(self.series.len());
        for one in &self.series {
            let mut part = CachedSeries::new(one.labels.clone());
            part.push_part(one, range.clone(), -(range.start as i64));
            let present = part.values.iter().filter(|value| !is_stale(**value));
            let mut floats = Vec::with_capacity(present.count());
            for (at, value) in part.values.iter().enumerate() {
                if !is_stale(*value) {
                    floats.push((query.time_of(part.start + at), *value));
                }
            }
            if !floats.is_empty() {
                matrix.push(MatrixSeries {
                    labels: part.labels,
                    floats,
                    histograms: Vec::new(),
                });
            }
        }
        matrix
    }

    /// Returns the maximum memory of [`CachedSteps::matrix`] in bytes.
    pub(super) fn matrix_bytes(&self, query: &QuerySteps) -> usize {
        let point = size_of::<(TimestampMs, f64)>();
        let bytes = |one: &CachedSeries| {
            let points = one.values.len().min(query.count);
            size_of::<MatrixSeries>() + one.labels.as_bytes().len() + points * point
        };
        self.series.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    const STEP_MS: i64 = 10;

    fn steps(first: i64, count: i64) -> QuerySteps {
        let first = first * STEP_MS;
        QuerySteps::from_bounds(first, first + (count - 1) * STEP_MS + 3, STEP_MS).unwrap()
    }

    /// Returns the points of a few series at the steps of a query; many are absent.
    fn matrix(rng_seed: u64, query: &QuerySteps) -> Vec<MatrixSeries> {
        let series = (0..6u64).map(|number| {
            let is_present = |step: i64| {
                let rng = SimRng::new(rng_seed ^ (number * 1_000 + (step / 7) as u64));
                rng.one_in(2) && !SimRng::new(rng_seed + step as u64 + number).one_in(4)
            };
            let times = (0..query.count).map(|step| query.time_of(step));
            let points = times.filter(|time| is_present(time / STEP_MS));
            MatrixSeries {
                labels: Labels::from_pairs([("n", number.to_string())]),
                floats: points.map(|time| (time, time as f64 / 3.0)).collect(),
                histograms: Vec::new(),
            }
        });
        series.filter(|one| !one.floats.is_empty()).collect()
    }

    #[test]
    fn joined_steps_of_two_ranges_are_those_of_the_whole_range() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let below = |bound: u64| rng.next_below(bound) as i64;
            let old = steps(below(50), 2 + below(60));
            let query = steps(old.first / STEP_MS + below(20), 2 + below(80));
            let known = CachedSteps::from_matrix(&matrix(seed, &old), old).unwrap();
            let affected = old.first + below(900);
            let Some(reused) = known.reusable(&query, affected) else {
                continue;
            };
            assert!(query.time_of(reused - 1) < affected, "seed {seed}");
            let rest = query.without_first(reused);
            assert!(rest.first < query.end, "seed {seed}");
            let fresh = CachedSteps::from_matrix(&matrix(seed, &rest), rest).unwrap();
            let joined = known.join(&fresh, query.count);
            assert_eq!(joined.matrix(&query), matrix(seed, &query), "seed {seed}");
            let whole = CachedSteps::from_matrix(&matrix(seed, &joined.steps), joined.steps);
            assert_eq!(Some(&joined), whole.as_ref(), "seed {seed}");
            assert!(
                joined.steps.count <= query.count.max(old.count),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn query_that_would_end_at_its_start_evaluates_two_steps() {
        let known = CachedSteps::from_matrix(&[], steps(0, 100)).unwrap();
        let exact = QuerySteps::from_bounds(0, 90, STEP_MS).unwrap();
        assert_eq!(known.reusable(&exact, i64::MAX), Some(8));
        assert_eq!(known.reusable(&steps(0, 10), i64::MAX), Some(9));
        assert_eq!(known.reusable(&steps(0, 10), 41), Some(5));
        assert_eq!(known.reusable(&steps(0, 10), 40), Some(4));
        assert_eq!(known.reusable(&steps(0, 10), 0), None);
        assert_eq!(known.reusable(&steps(0, 10), i64::MIN), None);
        assert_eq!(known.reusable(&steps(-1, 10), i64::MAX), None);
        assert_eq!(known.reusable(&steps(100, 10), i64::MAX), None);
    }

    #[test]
    fn results_with_equal_series_or_markers_are_not_converted() {
        let query = steps(0, 5);
        let one = |value| MatrixSeries {
            labels: Labels::from_pairs([("a", "b")]),
            floats: vec![(0, value)],
            histograms: Vec::new(),
        };
        let convert = |matrix: &[MatrixSeries]| CachedSteps::from_matrix(matrix, query).is_some();
        assert!(convert(&[one(f64::NAN)]));
        assert!(!convert(&[one(1.0), one(1.0)]));
        assert!(!convert(&[one(stale_nan())]));
    }
}
