//! Tests of window functions: single windows with given results, and all windows of random columns
//! compared with the computation of each window alone.

use super::*;
use crate::grid::{SelectorWindow, StepGrid};
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;

fn check(function: RangeFunction, values: &[f64], scalars: [f64; 2], want: f64) {
    let times: Vec<i64> = (0..values.len() as i64).map(|i| i * 1000).collect();
    let window = SampleSlices {
        times: &times,
        values,
        starts: &[],
    };
    let arguments = StepArguments {
        time: 10_000,
        scalars,
    };
    let got = compute_over_samples(function, &window, arguments, &mut Vec::new());
    assert!(
        got == want || got.to_bits() == want.to_bits(),
        "{function:?} {got}"
    );
}

#[test]
fn range_functions_of_a_window_have_the_expected_value() {
    use RangeFunction as F;
    let counter = F::LastChange { counter: true };
    check(counter, &[1.0, 5.0], [0.0; 2], 4.0);
    check(counter, &[5.0, 1.0], [0.0; 2], 1.0);
    check(
        F::LastChange { counter: false },
        &[5.0, 1.0],
        [0.0; 2],
        -4.0,
    );
    check(counter, &[5.0], [0.0; 2], ABSENT);
    check(F::Slope, &[0.0, 2.0, 4.0], [0.0; 2], 2.0);
    check(F::Slope, &[3.0, 3.0], [0.0; 2], 0.0);
    check(F::Prediction, &[0.0, 1.0, 2.0], [5.0, 0.0], 15.0);
    check(F::Smoothing, &[1.0, 2.0, 3.0], [0.5, 0.5], 3.0);
    check(F::Quantile, &[3.0, 1.0, 2.0], [0.5, 0.0], 2.0);
    check(F::MedianDeviation, &[1.0, 2.0, 9.0], [0.0; 2], 1.0);
    check(F::MinTime, &[1.0, 0.0, 0.0], [0.0; 2], 2.0);
    check(F::MaxTime, &[f64::NAN, 1.0, 0.0], [0.0; 2], 1.0);
}

/// Returns the result of one window, computed as in Prometheus.
fn plain(function: RangeFunction, window: &SampleSlices<'_>) -> f64 {
    use RangeFunction as F;
    match BatchedWindowFunction::for_function(function) {
        Some(BatchedWindowFunction::Sums(of)) => return of.compute_window(window.values),
        Some(BatchedWindowFunction::Extremes(of)) => return of.compute_window(window.values),
        None => {}
    }
    match function {
        F::Count => window.values.len() as f64,
        F::First => window.values[0],
        F::Last => window.values[window.values.len() - 1],
        _ => count_events(function, window),
    }
}

/// Returns random values of a column: integers, decimals, full precision, or values that are
/// difficult to sum.
fn column(rng: &SimRng, count: usize) -> Vec<f64> {
    let odd = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        -0.0,
        0.0,
        1e300,
        (1u64 << 53) as f64,
    ];
    let (kind, odds) = (rng.next_below(6), rng.next_below(3));
    let value = |_| match kind {
        _ if odds == 0 && rng.one_in(20) => odd[rng.next_below(odd.len() as u64) as usize],
        0 => rng.next_below(1000) as f64,
        1 => rng.next_u64() as i64 as f64,
        2 => rng.next_below(100_000) as f64 / 100.0,
        3 => rng.next_below(3) as f64,
        4 => -((rng.next_u64() >> 12) as f64),
        _ => f64::from_bits(rng.next_u64() >> 2),
    };
    (0..count).map(value).collect()
}

/// Returns the bits of the values, with all NaN equal.
fn bits(values: &[f64]) -> Vec<u64> {
    let one_nan = |v: &f64| if v.is_nan() { f64::NAN } else { *v };
    values.iter().map(|v| one_nan(v).to_bits()).collect()
}

#[test]
fn windows_computed_together_equal_each_by_itself_bit_for_bit() {
    use RangeFunction as F;
    let functions = [
        F::Sum,
        F::Mean,
        F::Variance,
        F::Deviation,
        F::Min,
        F::Max,
        F::Count,
        F::First,
        F::Last,
        F::Resets,
        F::Changes,
    ];
    for seed in 0..500 {
        let rng = SimRng::new(seed);
        let mut time = 0;
        let gaps = [1, 1 + rng.next_below(40)][rng.next_below(2) as usize];
        let times: Vec<i64> = std::iter::repeat_with(|| {
            time += 1000
                * (1 + if rng.one_in(gaps) {
                    rng.next_below(gaps) as i64
                } else {
                    0
                });
            time
        })
        .take(rng.next_below(200) as usize)
        .collect();
        let values = column(&rng, times.len());
        let samples = SampleSlices {
            times: &times,
            values: &values,
            starts: &[],
        };
        let step_ms = [1000, 700, 3000, 15_000][rng.next_below(4) as usize];
        let grid = StepGrid::from_bounds(-1000, 200_000, step_ms);
        let reach = SelectorWindow {
            range_ms: 1 + rng.next_below(90_000) as i64,
            offset_ms: 0,
            at: rng.one_in(20).then_some(70_000),
        };
        let mut windows = StepWindows::default();
        windows.fill(&times, &grid, &reach);
        let cancel = CancelToken::new();
        for function in functions {
            let (mut got, mut want) = (vec![ABSENT; grid.count], vec![ABSENT; grid.count]);
            let arguments = |_| StepArguments::default();
            fill(
                function, false, &windows, &samples, arguments, &cancel, &mut got,
            );
            for (step, start, end) in windows.iter() {
                want[step] = plain(function, &samples.slice(start, end));
            }
            assert_eq!(bits(&got), bits(&want), "seed {seed}, {function:?}");
        }
    }
}
