//! Folds the row of a series into the row of its group.
//!
//! If both rows certainly have a value at every step, the loops do not check for missing values and
//! the compiler vectorizes them.

use crate::eval::rows::row::is_absent;
use firn_model::kahan::KahanSum;

/// Adds a row to sums. `both` must be true only if row and sums have a value at every step.
pub(super) fn add_row(sums: &mut [f64], lost: &mut [f64], row: &[f64], both: bool) {
    if both {
        add_full_row(sums, lost, row)
    } else {
        add_row_with_gaps(sums, lost, row)
    }
}

/// Adds a row to sums if both have a value at every step.
fn add_full_row(sums: &mut [f64], lost: &mut [f64], row: &[f64]) {
    if row.iter().all(|value| value.to_bits() == 0) {
        // Adding zero rounds nothing and changes only negative zero. This is worth a special case,
        // because half of all rates are those of constant counters.
        return sums.iter_mut().for_each(|sum| *sum += 0.0);
    }
    for ((sum, lost), value) in sums.iter_mut().zip(lost).zip(row) {
        let next = KahanSum {
            sum: *sum,
            lost: *lost,
        }
        .plus(*value);
        (*sum, *lost) = (next.sum, next.lost);
    }
}

fn add_row_with_gaps(sums: &mut [f64], lost: &mut [f64], row: &[f64]) {
    for ((sum, lost), value) in sums.iter_mut().zip(lost).zip(row) {
        if is_absent(*value) {
            continue;
        }
        let next = if is_absent(*sum) {
            KahanSum {
                sum: *value,
                lost: 0.0,
            }
        } else {
            KahanSum {
                sum: *sum,
                lost: *lost,
            }
            .plus(*value)
        };
        (*sum, *lost) = (next.sum, next.lost);
    }
}

/// Adds one to the count of each step at which the row has a value.
pub(super) fn count_row(counts: &mut [f64], row: &[f64]) {
    for (count, value) in counts.iter_mut().zip(row) {
        *count += f64::from(u8::from(!is_absent(*value)));
    }
}

/// Folds values with a function that needs no state except the cell itself.
pub(super) fn fold_extreme(
    cells: &mut [f64],
    row: &[f64],
    next: impl Fn(f64, f64) -> f64,
    start: impl Fn(f64) -> f64,
) {
    for (cell, value) in cells.iter_mut().zip(row) {
        if !is_absent(*value) {
            *cell = if is_absent(*cell) {
                start(*value)
            } else {
                next(*cell, *value)
            };
        }
    }
}

/// Returns the smaller value, or a number rather than NaN. Of two zeros the negative one is
/// smaller, so that the result does not depend on the order.
pub(super) fn least(known: f64, value: f64) -> f64 {
    let is_lower = known > value || (known == value && value.is_sign_negative());
    if is_lower || known.is_nan() {
        value
    } else {
        known
    }
}

/// Returns the larger value, or a number rather than NaN. Of two zeros the positive one is larger.
pub(super) fn greatest(known: f64, value: f64) -> f64 {
    let is_higher = known < value || (known == value && value.is_sign_positive());
    if is_higher || known.is_nan() {
        value
    } else {
        known
    }
}

/// Updates variances by Welford's method, with the same operations as Prometheus.
pub(super) fn fold_variance(
    squares: &mut [f64],
    means: &mut [f64],
    counts: &mut [f64],
    row: &[f64],
) {
    let cells = squares.iter_mut().zip(means).zip(counts);
    for (((squares, mean), count), value) in cells.zip(row) {
        if is_absent(*value) {
            continue;
        }
        if is_absent(*squares) {
            *squares = if value.is_finite() { 0.0 } else { f64::NAN };
            *mean = *value;
            *count = 1.0;
            continue;
        }
        *count += 1.0;
        let delta = value - *mean;
        *mean += delta / *count;
        *squares += delta * (value - *mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::rows::row::ABSENT;
    use firn_model::env::sim::SimRng;

    const STEPS: usize = 12;

    /// Returns a random row: full, with values in one interval, or with gaps; many values are zero.
    fn row(rng: &SimRng) -> Vec<f64> {
        let start = if rng.one_in(2) {
            0
        } else {
            rng.next_below(STEPS as u64) as usize
        };
        let end = match start {
            0 => STEPS,
            _ => start + rng.next_below((STEPS - start) as u64 + 1) as usize,
        };
        let (has_gaps, is_zero) = (rng.one_in(4), rng.one_in(3));
        let value = |step: usize| match rng.next_below(8) {
            _ if !(start..end).contains(&step) => ABSENT,
            0 if has_gaps => ABSENT,
            _ if is_zero => 0.0,
            0 => -0.0,
            1 => f64::INFINITY,
            2 => 1e300,
            n => n as f64 / 7.0,
        };
        (0..STEPS).map(value).collect()
    }

    #[test]
    fn sum_of_full_rows_equals_sum_step_by_step() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let (mut sums, mut lost) = (vec![ABSENT; STEPS], vec![0.0; STEPS]);
            let (mut plain_sums, mut plain_lost) = (sums.clone(), lost.clone());
            let mut is_full = false;
            for _ in 0..6 {
                let row = row(&rng);
                let row_is_full = !row.iter().any(|value| is_absent(*value));
                add_row(&mut sums, &mut lost, &row, is_full && row_is_full);
                is_full |= row_is_full;
                add_row_with_gaps(&mut plain_sums, &mut plain_lost, &row);
                let one_nan = |v: &f64| {
                    if v.is_nan() && !is_absent(*v) {
                        f64::NAN.to_bits()
                    } else {
                        v.to_bits()
                    }
                };
                let bits = |cells: &[f64]| cells.iter().map(one_nan).collect::<Vec<u64>>();
                assert_eq!(bits(&sums), bits(&plain_sums), "seed {seed}");
                assert_eq!(bits(&lost), bits(&plain_lost), "seed {seed}");
            }
        }
    }
}
