//! The functions `min_over_time` and `max_over_time`.
//!
//! ```text
//! reach 1   v0 v1 v2 v3 ...          reach 2   max(v0 v1)  max(v1 v2) ...
//! reach 4   max(v0 .. v3) ...        a window of 4 to 8 samples: its first four and its last four
//! ```
//!
//! Comparisons that overlapping windows share are made only once. The extremes of two, four, eight,
//! ... samples are computed from each position on, until two such stretches cover all but the short
//! windows. If no value is NaN or negative zero, equal values have equal bits, so it is irrelevant
//! which of them is found. Columns with such values are processed window by window, as in
//! Prometheus.

use super::pace::CancelChecker;
use crate::eval::kernels::window::StepWindows;

/// The extreme that is computed for each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowExtreme {
    /// The smallest value, for `min_over_time`.
    Least,
    /// The largest value, for `max_over_time`.
    Greatest,
}

impl WindowExtreme {
    /// Returns the extreme of a non-empty window as Prometheus does: the first of equal values, and
    /// a number rather than NaN.
    pub(super) fn compute_window(self, values: &[f64]) -> f64 {
        let mut best = values[0];
        for value in values {
            let is_better = match self {
                WindowExtreme::Least => *value < best,
                WindowExtreme::Greatest => *value > best,
            };
            if is_better || best.is_nan() {
                best = *value;
            }
        }
        best
    }
}

/// Computes all windows that contain samples, and leaves all other steps unchanged.
#[inline(always)]
pub(super) fn fill(
    of: WindowExtreme,
    windows: &StepWindows,
    values: &[f64],
    pace: &mut CancelChecker<'_>,
    out: &mut [f64],
) {
    // Two stretches cover windows of up to twice their length.
    let longest = windows.samples_max() as usize;
    let reach = if are_ordered(values) {
        longest.div_ceil(2).next_power_of_two()
    } else {
        usize::MAX
    };
    let mut stretches = Vec::new();
    if reach <= longest {
        match compute_stretches(of, reach, values, pace) {
            Some(all) => stretches = all,
            None => return,
        }
    }
    for moving in windows.stretches() {
        let Some(behind) = moving.samples().checked_sub(reach) else {
            for (i, out) in out[moving.steps()].iter_mut().enumerate() {
                if pace.advance_and_check(moving.samples()) {
                    return;
                }
                *out = of.compute_window(&values[moving.start + i..moving.end + i]);
            }
            continue;
        };
        if pace.advance_and_check(moving.len) {
            return;
        }
        let firsts = &stretches[moving.behind_start(0)];
        let lasts = &stretches[moving.behind_start(behind)];
        choose(of, firsts, lasts, &mut out[moving.steps()]);
    }
}

/// Returns whether no value is NaN or negative zero. Values of which neither is smaller then have
/// the same bits.
#[inline(always)]
fn are_ordered(values: &[f64]) -> bool {
    let is_ordered = |value: &f64| !value.is_nan() & (value.to_bits() != 1 << 63);
    values
        .iter()
        .fold(true, |all, value| all & is_ordered(value))
}

/// Returns, for each position, the extreme of the `reach` samples from there on. `reach` must be a
/// power of two. `None` if the query is canceled.
#[inline(always)]
fn compute_stretches(
    of: WindowExtreme,
    reach: usize,
    values: &[f64],
    pace: &mut CancelChecker<'_>,
) -> Option<Vec<f64>> {
    let mut stretches = values.to_vec();
    let mut longer = Vec::with_capacity(values.len());
    let mut reached = 1;
    while reached < reach {
        if pace.advance_and_check(stretches.len()) {
            return None;
        }
        // Combine the stretch that begins at each position with the stretch that follows it.
        longer.resize(stretches.len() - reached, 0.0);
        choose(of, &stretches, &stretches[reached..], &mut longer);
        std::mem::swap(&mut stretches, &mut longer);
        reached *= 2;
    }
    Some(stretches)
}

/// Writes the extreme of each pair of values. The loop has no branches, so the compiler vectorizes
/// it.
#[inline(always)]
fn choose(of: WindowExtreme, firsts: &[f64], lasts: &[f64], out: &mut [f64]) {
    for (out, (a, b)) in out.iter_mut().zip(firsts.iter().zip(lasts)) {
        let is_second = match of {
            WindowExtreme::Least => b < a,
            WindowExtreme::Greatest => b > a,
        };
        *out = if is_second { *b } else { *a };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_of_a_window_is_the_earliest_of_equals_and_no_nan_beside_numbers() {
        for (values, least, greatest) in [
            (vec![2.0, 1.0, 3.0], 1.0, 3.0),
            (vec![f64::NAN, 1.0, f64::NAN], 1.0, 1.0),
            (vec![0.0, -0.0], 0.0, 0.0),
            (vec![-0.0, 0.0], -0.0, -0.0),
            (
                vec![f64::NEG_INFINITY, f64::INFINITY],
                f64::NEG_INFINITY,
                f64::INFINITY,
            ),
        ] {
            let found = [WindowExtreme::Least, WindowExtreme::Greatest]
                .map(|of| of.compute_window(&values).to_bits());
            assert_eq!(found, [least, greatest].map(f64::to_bits), "{values:?}");
        }
        assert!(WindowExtreme::Least.compute_window(&[f64::NAN]).is_nan());
    }

    #[test]
    fn values_are_ordered_without_nan_and_negative_zero() {
        assert!(are_ordered(&[]));
        assert!(are_ordered(&[0.0, -1.0, f64::INFINITY]));
        assert!(!are_ordered(&[1.0, f64::NAN]));
        assert!(!are_ordered(&[-0.0, 1.0]));
    }
}
