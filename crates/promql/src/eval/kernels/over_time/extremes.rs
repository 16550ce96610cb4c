//! `min_over_time` and `max_over_time`.
//!
//! ```text
//! reach 1   v0 v1 v2 v3 ...          reach 2   max(v0 v1)  max(v1 v2) ...
//! reach 4   max(v0 .. v3) ...        a window of 4 to 8 samples: its first four and its last four
//! ```
//!
//! What two neighbouring windows share is compared once: the greatest of the two, four, eight, ...
//! samples from each place on, until two such stretches cover any window but the short ones. Which
//! of two equal values is found makes no difference to the bits where no value is NaN or the
//! negative zero; columns that have one are gone through window by window, as upstream does.

use super::pace::Pace;
use crate::eval::kernels::window::Windows;

/// Which one is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

impl Of {
    /// Of one window, which is not empty, as upstream finds it: the earliest of equals, a number
    /// before a NaN.
    pub(super) fn window(self, values: &[f64]) -> f64 {
        let mut best = values[0];
        for value in values {
            let is_better = match self {
                Of::Least => *value < best,
                Of::Greatest => *value > best,
            };
            if is_better || best.is_nan() {
                best = *value;
            }
        }
        best
    }
}

/// Computes all windows that hold samples.
#[inline(always)]
pub(super) fn fill(
    of: Of,
    windows: &Windows,
    values: &[f64],
    pace: &mut Pace<'_>,
    out: &mut [f64],
) {
    // Two stretches cover windows of up to twice their length.
    let longest = windows.samples_max() as usize;
    let reach = match are_ordered(values) {
        true => longest.div_ceil(2).next_power_of_two(),
        false => usize::MAX,
    };
    let mut stretches = Vec::new();
    if reach <= longest {
        match of_stretches(of, reach, values, pace) {
            Some(all) => stretches = all,
            None => return,
        }
    }
    for moving in windows.stretches() {
        let Some(behind) = moving.samples().checked_sub(reach) else {
            for (i, out) in out[moving.steps()].iter_mut().enumerate() {
                if pace.is_stopped(moving.samples()) {
                    return;
                }
                *out = of.window(&values[moving.start + i..moving.end + i]);
            }
            continue;
        };
        if pace.is_stopped(moving.len) {
            return;
        }
        let firsts = &stretches[moving.behind_start(0)];
        let lasts = &stretches[moving.behind_start(behind)];
        choose(of, firsts, lasts, &mut out[moving.steps()]);
    }
}

/// Whether no value is NaN or the negative zero, so that values that are not less than each other
/// have the same bits.
#[inline(always)]
fn are_ordered(values: &[f64]) -> bool {
    let is_ordered = |value: &f64| !value.is_nan() & (value.to_bits() != 1 << 63);
    values
        .iter()
        .fold(true, |all, value| all & is_ordered(value))
}

/// For each place the extreme of the `reach` samples from there on, a power of two; `None` if it is
/// to stop.
#[inline(always)]
fn of_stretches(of: Of, reach: usize, values: &[f64], pace: &mut Pace<'_>) -> Option<Vec<f64>> {
    let mut stretches = values.to_vec();
    let mut longer = Vec::with_capacity(values.len());
    let mut reached = 1;
    while reached < reach {
        if pace.is_stopped(stretches.len()) {
            return None;
        }
        // Of each place that of the stretch that begins there and of the one behind that.
        longer.resize(stretches.len() - reached, 0.0);
        choose(of, &stretches, &stretches[reached..], &mut longer);
        std::mem::swap(&mut stretches, &mut longer);
        reached *= 2;
    }
    Some(stretches)
}

/// Writes the extreme of each pair.
#[inline(always)]
fn choose(of: Of, firsts: &[f64], lasts: &[f64], out: &mut [f64]) {
    for (out, (a, b)) in out.iter_mut().zip(firsts.iter().zip(lasts)) {
        let is_second = match of {
            Of::Least => b < a,
            Of::Greatest => b > a,
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
            let found = [Of::Least, Of::Greatest].map(|of| of.window(&values).to_bits());
            assert_eq!(found, [least, greatest].map(f64::to_bits), "{values:?}");
        }
        assert!(Of::Least.window(&[f64::NAN]).is_nan());
    }

    #[test]
    fn values_are_ordered_without_nan_and_negative_zero() {
        assert!(are_ordered(&[]));
        assert!(are_ordered(&[0.0, -1.0, f64::INFINITY]));
        assert!(!are_ordered(&[1.0, f64::NAN]));
        assert!(!are_ordered(&[-0.0, 1.0]));
    }
}
