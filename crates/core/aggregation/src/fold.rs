//! Aggregates the values of many gauges at one instant.
//!
//! Values and the treatment of NaN equal those of the corresponding PromQL aggregation
//! (`promql/engine.go`). All values are in memory, so that quantiles are exact.

use super::spec::AggregationOp;
use firn_model::kahan::KahanSum;

/// The aggregation of one output at one instant, to which the values of its sources are added one
/// at a time.
#[derive(Clone, Debug)]
pub(super) struct FloatFold {
    op: AggregationOp,
    count: u64,
    sum: KahanSum,
    /// The minimum, maximum, newest value or running mean, depending on the operator.
    value: f64,
    /// Sum of squared differences from the mean.
    squares: f64,
    time: i64,
    /// All values, for a quantile.
    values: Vec<f64>,
}

impl FloatFold {
    /// Returns an aggregation without values.
    pub(super) fn new(op: AggregationOp) -> Self {
        Self {
            op,
            count: 0,
            sum: KahanSum::default(),
            value: 0.0,
            squares: 0.0,
            time: i64::MIN,
            values: Vec::new(),
        }
    }

    /// Adds the value of one source with its timestamp, which only the operator `last` uses.
    pub(super) fn add_value(&mut self, time: i64, value: f64) {
        let is_first = self.count == 0;
        self.count += 1;
        match self.op {
            AggregationOp::Count | AggregationOp::Group => {}
            AggregationOp::Sum | AggregationOp::Avg => self.sum = self.sum.plus(value),
            AggregationOp::Min if is_first || value < self.value || self.value.is_nan() => {
                self.value = value
            }
            AggregationOp::Max if is_first || value > self.value || self.value.is_nan() => {
                self.value = value
            }
            AggregationOp::Min | AggregationOp::Max => {}
            AggregationOp::Last => {
                let is_greater = || time == self.time && value.total_cmp(&self.value).is_gt();
                if is_first || time > self.time || is_greater() {
                    (self.time, self.value) = (time, value);
                }
            }
            AggregationOp::Stddev | AggregationOp::Stdvar => {
                let distance = value - self.value;
                self.value += distance / self.count as f64;
                self.squares += distance * (value - self.value);
            }
            AggregationOp::Quantile(_) => self.values.push(value),
        }
    }

    /// Returns the result; `None` without a value.
    pub(super) fn result(mut self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let count = self.count as f64;
        Some(match self.op {
            AggregationOp::Count => count,
            AggregationOp::Group => 1.0,
            AggregationOp::Sum => self.sum.total(),
            AggregationOp::Avg => self.sum.total() / count,
            AggregationOp::Min | AggregationOp::Max | AggregationOp::Last => self.value,
            AggregationOp::Stdvar => self.squares / count,
            AggregationOp::Stddev => (self.squares / count).sqrt(),
            AggregationOp::Quantile(share) => compute_quantile(share, &mut self.values),
        })
    }
}

/// Returns the quantile `share` of the values, with linear interpolation between neighbours.
fn compute_quantile(share: f64, values: &mut [f64]) -> f64 {
    if share.is_nan() {
        return f64::NAN;
    }
    if share < 0.0 {
        return f64::NEG_INFINITY;
    }
    if share > 1.0 {
        return f64::INFINITY;
    }
    // NaN sorts before every number, as in upstream.
    values.sort_by(|a, b| {
        let by_number = || a.total_cmp(b);
        b.is_nan().cmp(&a.is_nan()).then_with(by_number)
    });
    let last = values.len() - 1;
    let rank = share * last as f64;
    let below = (rank.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let weight = rank - rank.floor();
    values[below] * (1.0 - weight) + values[above] * weight
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: AggregationOp, values: &[(i64, f64)], expected: f64) {
        let mut fold = FloatFold::new(op);
        for (time, value) in values {
            fold.add_value(*time, *value);
        }
        let found = fold.result().unwrap();
        let is_equal = found == expected || found.is_nan() && expected.is_nan();
        assert!(is_equal, "{op:?} {values:?}: {found}, not {expected}");
    }

    #[test]
    fn fold_gives_what_the_batch_rule_gives() {
        let values = [(5, 4.0), (9, 1.0), (7, 3.0), (9, 0.5)];
        for (op, expected) in [
            (AggregationOp::Sum, 8.5),
            (AggregationOp::Min, 0.5),
            (AggregationOp::Max, 4.0),
            (AggregationOp::Avg, 2.125),
            (AggregationOp::Count, 4.0),
            (AggregationOp::Group, 1.0),
            (AggregationOp::Last, 1.0),
            (AggregationOp::Stdvar, 2.046_875),
            (AggregationOp::Stddev, 2.046_875f64.sqrt()),
            (AggregationOp::Quantile(0.0), 0.5),
            (AggregationOp::Quantile(0.5), 2.0),
            (AggregationOp::Quantile(0.9), 3.7),
            (AggregationOp::Quantile(1.0), 4.0),
            (AggregationOp::Quantile(-1.0), f64::NEG_INFINITY),
            (AggregationOp::Quantile(2.0), f64::INFINITY),
            (AggregationOp::Quantile(f64::NAN), f64::NAN),
        ] {
            check(op, &values, expected);
        }
        assert_eq!(FloatFold::new(AggregationOp::Sum).result(), None);
    }

    #[test]
    fn fold_of_nan_is_what_upstream_makes_of_it() {
        let values = [(1, f64::NAN), (1, 2.0), (1, 1.0)];
        check(AggregationOp::Max, &values, 2.0);
        check(AggregationOp::Min, &values, 1.0);
        check(AggregationOp::Sum, &values, f64::NAN);
        check(AggregationOp::Quantile(0.0), &values, f64::NAN);
        check(AggregationOp::Quantile(1.0), &values, 2.0);
        check(AggregationOp::Max, &[(1, f64::NAN)], f64::NAN);
        check(
            AggregationOp::Sum,
            &[(1, f64::INFINITY), (1, 1.0)],
            f64::INFINITY,
        );
        check(
            AggregationOp::Sum,
            &[(1, f64::INFINITY), (1, f64::NEG_INFINITY)],
            f64::NAN,
        );
    }
}
