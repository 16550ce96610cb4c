//! Computes rows of float series with the best instructions that the processor supports.
//!
//! The compiler creates three versions of the same code: for AVX-512, for AVX2 with fused
//! multiply-add, and a portable one for all processors. All have results with the same bits. This
//! is the only place in the crate that selects a version, once per row; docs/adr/0094 contains the
//! measurements.

use crate::eval::annotations::QueryAnnotations;
use crate::eval::kernels::over_time;
use crate::eval::kernels::range_call::RangeCallView;
use crate::eval::kernels::rate::RatePlan;
use crate::eval::kernels::samples::SampleSlices;
use crate::eval::kernels::window::{StepWindows, WindowPlans};
use crate::eval::rows::row::{ABSENT, StepRowBuffer};
use crate::functions::{Extrapolation, RangeFunction};
use crate::value::PromqlError;
use multiversion::multiversion;
use multiversion::target::target_cfg_f;

/// The plans for the time columns of a batch.
#[derive(Debug, Default)]
pub(super) struct ColumnPlans {
    /// The windows of all steps, one plan for each time column.
    pub(super) windows: WindowPlans<StepWindows>,
    rates: WindowPlans<RatePlan>,
}

impl ColumnPlans {
    /// Discards all plans, because the next batch has different columns.
    pub(super) fn reset(&mut self) {
        self.windows.reset();
        self.rates.reset();
    }
}

/// A series that contains only floats in the range of the query.
pub(super) struct FloatSeries<'a> {
    /// The samples of the series, without staleness markers.
    pub(super) samples: SampleSlices<'a>,
    /// True if the series is a counter that never decreases.
    pub(super) rising: bool,
    /// The index of its time column in the plans.
    pub(super) column: usize,
}

/// Counts of the computation of one row, for the sample limit and for annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowFillCounts {
    /// Number of samples in all windows of the row together.
    pub(super) read: u64,
    /// Number of samples in the largest window of the row.
    pub(super) window_max: u64,
    /// Number of windows in which a start timestamp overlaps with a sample.
    pub(super) overlaps: usize,
}

/// Computes the row of a series and writes all steps of it.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+fma", "x86_64+avx2+fma"))]
pub(super) fn fill(
    view: &RangeCallView<'_>,
    series: &FloatSeries<'_>,
    plans: &mut ColumnPlans,
    row: &mut StepRowBuffer,
    notes: &mut QueryAnnotations,
) -> Result<RowFillCounts, PromqlError> {
    let is_fused = target_cfg_f!(target_feature = "fma");
    fill_plainly(view, is_fused, series, plans, row, notes)
}

/// Computes the row of a series. All versions are compiled from this code.
#[inline(always)]
fn fill_plainly(
    view: &RangeCallView<'_>,
    is_fused: bool,
    series: &FloatSeries<'_>,
    plans: &mut ColumnPlans,
    row: &mut StepRowBuffer,
    notes: &mut QueryAnnotations,
) -> Result<RowFillCounts, PromqlError> {
    let RangeCallView {
        call, grid, reach, ..
    } = view;
    let samples = &series.samples;
    let mut overlaps = 0;
    let windows = if let RangeFunction::Extrapolated(how) = call.function {
        let (plan, is_new) = plans.rates.plan_for_column(series.column);
        if is_new {
            plan.fill(samples.times, grid, reach, how);
        }
        overlaps = fill_extrapolated(how, plan, series, view, row);
        plan.windows()
    } else {
        let (plan, is_new) = plans.windows.plan_for_column(series.column);
        if is_new {
            plan.fill(samples.times, grid, reach);
        }
        let out = &mut row.values;
        if plan.samples_min() > 0 && call.has_result_in_every_window() {
            row.is_full = true
        } else {
            out.fill(ABSENT)
        }
        let arguments = |step| call.arguments(grid, step);
        let (function, cancel) = (call.function, &call.cancel);
        over_time::fill(function, is_fused, plan, samples, arguments, cancel, out);
        plan
    };
    call.check(windows.iter().map(|(step, ..)| step), notes)?;
    Ok(RowFillCounts {
        read: windows.samples(),
        window_max: windows.samples_max(),
        overlaps,
    })
}

/// Computes a row of rates. Returns the number of windows in which a start timestamp overlaps with
/// a sample.
#[inline(always)]
fn fill_extrapolated(
    how: Extrapolation,
    plan: &RatePlan,
    series: &FloatSeries<'_>,
    view: &RangeCallView<'_>,
    row: &mut StepRowBuffer,
) -> usize {
    let samples = &series.samples;
    let has_starts = how.counter && !samples.starts.is_empty();
    let is_full = plan.is_full() && !has_starts;
    if !is_full {
        row.values.fill(ABSENT);
    }
    let out = &mut row.values;
    if has_starts {
        return how
            .fill_with_starts(plan, samples, view.grid, view.reach, out)
            .len();
    }
    how.fill(plan, samples, series.rising, view.grid, view.reach, out);
    row.is_full = is_full;
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::PositionRange;
    use crate::eval::kernels::counter_names::CounterNames;
    use crate::eval::kernels::range_call::RangeCall;
    use crate::eval::kernels::rate::is_non_decreasing;
    use crate::functions::{FUNCTIONS, FunctionEvaluation};
    use crate::grid::{SelectorWindow, StepGrid};
    use firn_model::cancel::CancelToken;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;
    use firn_model::sample::TimeRange;

    /// Values of a counter or a gauge, integers or floats, with some special values.
    fn values(rng: &SimRng, count: usize) -> Vec<f64> {
        let (kind, mut sum) = (rng.next_below(4), 0.0);
        let value = |_| match rng.next_below(300) {
            0 => f64::NAN,
            1 => -0.0,
            2 => f64::INFINITY,
            3 => f64::from_bits(rng.next_u64() >> 2),
            n => match kind {
                0 => n as f64 / 7.0 - 20.0,
                1 => n as f64,
                2 => {
                    sum += n as f64;
                    sum
                }
                _ => {
                    sum += n as f64 / 7.0;
                    sum
                }
            },
        };
        (0..count).map(value).collect()
    }

    fn call(function: RangeFunction, steps: usize) -> RangeCall {
        RangeCall {
            function,
            window: None,
            keeps_name: false,
            scalars: vec![vec![0.5; steps]; 2],
            span: PositionRange::default(),
            counters: CounterNames::default(),
            uses_starts: false,
            overhang: None,
            cancel: CancelToken::new(),
        }
    }

    #[test]
    fn rows_of_this_processor_have_the_bits_of_the_portable_form() {
        let functions: Vec<RangeFunction> = FUNCTIONS
            .iter()
            .filter_map(|function| match function.evaluation {
                FunctionEvaluation::Range(of) => Some(of),
                _ => None,
            })
            .collect();
        for seed in 0..300 {
            let rng = SimRng::new(seed);
            let mut time = 0;
            let times: Vec<i64> = std::iter::repeat_with(|| {
                time += if rng.one_in(20) {
                    900 + rng.next_below(3_000) as i64
                } else {
                    1_000
                };
                time
            })
            .take(rng.next_below(120) as usize)
            .collect();
            let values = values(&rng, times.len());
            let grid = StepGrid::from_bounds(0, 100_000, [1_000, 700, 3_000][seed as usize % 3]);
            let reach = SelectorWindow {
                range_ms: 1 + rng.next_below(40_000) as i64,
                offset_ms: 0,
                at: None,
            };
            for function in &functions {
                let call = call(*function, grid.count);
                let view = RangeCallView {
                    call: &call,
                    grid: &grid,
                    reach: &reach,
                    name: &Vec::new,
                };
                let series = FloatSeries {
                    samples: SampleSlices {
                        times: &times,
                        values: &values,
                        starts: &[],
                    },
                    rising: is_non_decreasing(&values),
                    column: 0,
                };
                let filled = |is_best: bool| {
                    let (mut plans, mut row) = (ColumnPlans::default(), StepRowBuffer::default());
                    let notes = &mut QueryAnnotations::default();
                    row.reset_unfilled(grid.count);
                    let filled = if is_best {
                        fill(&view, &series, &mut plans, &mut row, notes)
                    } else {
                        fill_plainly(&view, false, &series, &mut plans, &mut row, notes)
                    };
                    let one_nan = |v: &f64| {
                        if v.is_nan() && v.to_bits() != ABSENT.to_bits() {
                            f64::NAN.to_bits()
                        } else {
                            v.to_bits()
                        }
                    };
                    let bits: Vec<u64> = row.values.iter().map(one_nan).collect();
                    (filled, bits)
                };
                assert_eq!(filled(true), filled(false), "seed {seed}, {function:?}");
            }
        }
    }

    #[test]
    fn rows_of_the_steps_that_see_a_series_have_the_bits_of_all_steps() {
        let functions = FUNCTIONS
            .iter()
            .filter_map(|function| match function.evaluation {
                FunctionEvaluation::Range(of) => Some(of),
                _ => None,
            });
        for function in functions {
            for seed in 0..100 {
                let rng = SimRng::new(seed);
                let mut time = 40_000 + rng.next_below(40_000) as i64;
                let steps = std::iter::repeat_with(|| {
                    time += 900 + rng.next_below(200) as i64;
                    time
                });
                let times: Vec<i64> = steps.take(1 + rng.next_below(30) as usize).collect();
                let values = values(&rng, times.len());
                let grid =
                    StepGrid::from_bounds(0, 200_000, [1_000, 700, 3_000][seed as usize % 3]);
                let reach = SelectorWindow {
                    range_ms: 1 + rng.next_below(20_000) as i64,
                    offset_ms: rng.next_below(20_000) as i64 - 10_000,
                    at: None,
                };
                let range = TimeRange::new(times[0], times[times.len() - 1]);
                let few = grid.steps_covering(range, &reach);
                let row = |grid: StepGrid| {
                    let call = call(function, grid.count);
                    let (grid, reach, name) = (&grid, &reach, &Vec::new);
                    let view = RangeCallView {
                        call: &call,
                        grid,
                        reach,
                        name,
                    };
                    let series = FloatSeries {
                        samples: SampleSlices {
                            times: &times,
                            values: &values,
                            starts: &[],
                        },
                        rising: is_non_decreasing(&values),
                        column: 0,
                    };
                    let (mut plans, mut row) = (ColumnPlans::default(), StepRowBuffer::default());
                    row.reset_unfilled(grid.count);
                    let notes = &mut QueryAnnotations::default();
                    let filled = fill(&view, &series, &mut plans, &mut row, notes);
                    let bits = row.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    (filled, bits)
                };
                let (all, mut part) = (row(grid), row(grid.slice(&few)));
                let absent = |steps: usize| vec![ABSENT.to_bits(); steps];
                part.1.splice(0..0, absent(few.start));
                part.1.extend(absent(grid.count - few.end));
                assert_eq!(part, all, "seed {seed}, {function:?}");
            }
        }
    }
}
