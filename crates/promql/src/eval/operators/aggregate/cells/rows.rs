//! Folding the row of a series into the row of its group.
//!
//! Where both rows are known to have values the loops test no value for absence, and the
//! compiler vectorises.

use crate::eval::rows::row::{is_absent, is_zero};
use crate::math::kahan::Kahan;
use multiversion::multiversion;
use std::ops::Range;

/// The steps from the first value of a row to the last, if none of the `floats` values is missing
/// between them.
pub(super) fn dense_stretch(row: &[f64], floats: usize) -> Range<usize> {
    if floats == row.len() {
        return 0..floats;
    }
    let start = row.iter().position(|v| !is_absent(*v)).unwrap_or(0);
    let end = row
        .iter()
        .rposition(|v| !is_absent(*v))
        .map_or(0, |i| i + 1);
    if end - start == floats {
        start..end
    } else {
        0..0
    }
}

/// Steps that have a value if those of both stretches do: all of them if they meet, else those of
/// the longer one.
pub(super) fn joined(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    if a.is_empty() || b.is_empty() || a.start > b.end || b.start > a.end {
        return if a.len() >= b.len() { a } else { b };
    }
    a.start.min(b.start)..a.end.max(b.end)
}

/// Steps that are in both stretches.
pub(super) fn overlap(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// Adds sums with what they lost to others, where both have a value at every step.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn merge_sums(sums: &mut [f64], lost: &mut [f64], more: &[f64], more_lost: &[f64]) {
    merge_sums_plainly(sums, lost, more, more_lost);
}

#[inline(always)]
fn merge_sums_plainly(sums: &mut [f64], lost: &mut [f64], more: &[f64], more_lost: &[f64]) {
    let more = more.iter().zip(more_lost);
    for ((sum, lost), (more, more_lost)) in sums.iter_mut().zip(lost).zip(more) {
        let known = Kahan {
            sum: *sum,
            lost: *lost,
        };
        let merged = known.merge(Kahan {
            sum: *more,
            lost: *more_lost,
        });
        (*sum, *lost) = (merged.sum, merged.lost);
    }
}

/// Adds a row to sums. At the steps `full` both have a value.
pub(super) fn sum(sums: &mut [f64], lost: &mut [f64], row: &[f64], full: Range<usize>) {
    if full.is_empty() {
        return sum_with_gaps(sums, lost, row);
    }
    let Range { start, end } = full;
    sum_with_gaps(&mut sums[..start], &mut lost[..start], &row[..start]);
    sum_full(
        &mut sums[start..end],
        &mut lost[start..end],
        &row[start..end],
    );
    sum_with_gaps(&mut sums[end..], &mut lost[end..], &row[end..]);
}

/// Adds a row to sums where both have a value at every step.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn sum_full(sums: &mut [f64], lost: &mut [f64], row: &[f64]) {
    sum_full_plainly(sums, lost, row);
}

#[inline(always)]
fn sum_full_plainly(sums: &mut [f64], lost: &mut [f64], row: &[f64]) {
    if is_zero(row) {
        // Nothing is rounded, and only a negative zero changes: half of all rates are those of
        // counters that stand still.
        return sums.iter_mut().for_each(|sum| *sum += 0.0);
    }
    for ((sum, lost), value) in sums.iter_mut().zip(lost).zip(row) {
        let next = Kahan {
            sum: *sum,
            lost: *lost,
        }
        .add(*value);
        (*sum, *lost) = (next.sum, next.lost);
    }
}

fn sum_with_gaps(sums: &mut [f64], lost: &mut [f64], row: &[f64]) {
    for ((sum, lost), value) in sums.iter_mut().zip(lost).zip(row) {
        if is_absent(*value) {
            continue;
        }
        let next = match is_absent(*sum) {
            true => Kahan {
                sum: *value,
                lost: 0.0,
            },
            false => Kahan {
                sum: *sum,
                lost: *lost,
            }
            .add(*value),
        };
        (*sum, *lost) = (next.sum, next.lost);
    }
}

/// Counts the values.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn count(counts: &mut [f64], row: &[f64]) {
    count_plainly(counts, row);
}

#[inline(always)]
fn count_plainly(counts: &mut [f64], row: &[f64]) {
    for (count, value) in counts.iter_mut().zip(row) {
        *count += f64::from(u8::from(!is_absent(*value)));
    }
}

/// Whether a value is infinite.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn any_infinite(values: &[f64]) -> bool {
    any_infinite_plainly(values)
}

#[inline(always)]
fn any_infinite_plainly(values: &[f64]) -> bool {
    values.iter().fold(false, |any, v| any | v.is_infinite())
}

/// Folds values that need nothing beside the cell itself.
pub(super) fn extreme(
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

/// The lesser; a number before a NaN.
pub(super) fn least(known: f64, value: f64) -> f64 {
    if known > value || known.is_nan() {
        value
    } else {
        known
    }
}

/// The greater; a number before a NaN.
pub(super) fn greatest(known: f64, value: f64) -> f64 {
    if known < value || known.is_nan() {
        value
    } else {
        known
    }
}

/// Welford's way, as upstream.
pub(super) fn variance(squares: &mut [f64], means: &mut [f64], counts: &mut [f64], row: &[f64]) {
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
    use crate::eval::rows::row::{ABSENT, is_zero_plainly};
    use firn_model::env::sim::SimRng;

    const STEPS: usize = 12;

    /// A row with values in one stretch or with gaps, many of them zeros.
    fn row(rng: &SimRng) -> Vec<f64> {
        let start = rng.below(STEPS as u64) as usize;
        let end = start + rng.below((STEPS - start) as u64 + 1) as usize;
        let (has_gaps, is_zero) = (rng.one_in(4), rng.one_in(3));
        let value = |step: usize| match rng.below(8) {
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
    fn sum_of_known_stretches_equals_sum_step_by_step() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let (mut sums, mut lost) = (vec![ABSENT; STEPS], vec![0.0; STEPS]);
            let (mut plain_sums, mut plain_lost) = (sums.clone(), lost.clone());
            let mut full = 0..0;
            for _ in 0..6 {
                let row = row(&rng);
                let floats = row.iter().filter(|v| !is_absent(**v)).count();
                let dense = dense_stretch(&row, floats);
                let both = overlap(&dense, &full);
                sum(&mut sums, &mut lost, &row, both);
                full = joined(full, dense);
                sum_with_gaps(&mut plain_sums, &mut plain_lost, &row);
                assert!(full.clone().all(|step| !is_absent(sums[step])), "{seed}");
                let one_nan = |v: &f64| match v.is_nan() && !is_absent(*v) {
                    true => f64::NAN.to_bits(),
                    false => v.to_bits(),
                };
                let bits = |cells: &[f64]| cells.iter().map(one_nan).collect::<Vec<u64>>();
                assert_eq!(bits(&sums), bits(&plain_sums), "seed {seed}");
                assert_eq!(bits(&lost), bits(&plain_lost), "seed {seed}");
            }
        }
    }

    #[test]
    fn loops_of_this_processor_give_the_bits_of_the_portable_ones() {
        for seed in 0..500 {
            let rng = SimRng::new(seed);
            let value = |_| match rng.below(if seed % 5 == 0 { 1 } else { 9 }) {
                0 => 0.0,
                1 => -0.0,
                2 => f64::INFINITY,
                3 => 1e300,
                n => n as f64 / 7.0,
            };
            let len = rng.below(40) as usize;
            let [cells, row, lost, more_lost] =
                [(); 4].map(|()| (0..len).map(value).collect::<Vec<f64>>());
            let one_nan = |v: &f64| if v.is_nan() { f64::NAN } else { *v };
            let bits = |(sums, lost): (Vec<f64>, Vec<f64>)| {
                let all = sums.iter().chain(&lost);
                all.map(|v| one_nan(v).to_bits()).collect::<Vec<u64>>()
            };
            let with = |f: &dyn Fn(&mut [f64], &mut [f64])| {
                let (mut sums, mut lost) = (cells.clone(), lost.clone());
                f(&mut sums, &mut lost);
                bits((sums, lost))
            };
            assert_eq!(is_zero(&row), is_zero_plainly(&row), "seed {seed}");
            let infinite = [any_infinite(&row), any_infinite_plainly(&row)];
            assert_eq!(infinite[0], infinite[1], "seed {seed}");
            let summed = with(&|sums, lost| sum_full(sums, lost, &row));
            let plain = with(&|sums, lost| sum_full_plainly(sums, lost, &row));
            assert_eq!(summed, plain, "seed {seed}");
            let counted = with(&|counts, _| count(counts, &row));
            assert_eq!(
                counted,
                with(&|counts, _| count_plainly(counts, &row)),
                "seed {seed}"
            );
            let merged = with(&|sums, lost| merge_sums(sums, lost, &row, &more_lost));
            let plain = with(&|sums, lost| merge_sums_plainly(sums, lost, &row, &more_lost));
            assert_eq!(merged, plain, "seed {seed}");
        }
    }
}
