//! Computes rows of float series with the best instructions that the processor supports.
//!
//! The compiler creates three versions of the same code: for AVX-512, for AVX2 with fused
//! multiply-add, and a portable one for all processors. All have results with the same bits. This
//! is the only place in the crate that selects a version, once per row; docs/adr/0094 contains the
//! measurements.

use crate::eval::annotations::Annotations;
use crate::eval::kernels::over_time;
use crate::eval::kernels::range_call::View;
use crate::eval::kernels::rate::RatePlan;
use crate::eval::kernels::samples::Samples;
use crate::eval::kernels::window::{Plans, Windows};
use crate::eval::rows::row::{ABSENT, RowBuffer};
use crate::functions::{Extrapolation, RangeFunction};
use crate::value::QueryError;
use multiversion::multiversion;
use multiversion::target::target_cfg_f;

/// The plans for the time columns of a batch.
#[derive(Debug, Default)]
pub(super) struct ColumnPlans {
    /// The windows of all steps, one plan for each time column.
    pub(super) windows: Plans<Windows>,
    rates: Plans<RatePlan>,
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
    pub(super) samples: Samples<'a>,
    /// True if the series is a counter that never decreases.
    pub(super) rising: bool,
    /// The index of its time column in the plans.
    pub(super) column: usize,
}

/// Counts of the computation of one row, for the sample limit and for annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
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
    view: &View<'_>,
    series: &FloatSeries<'_>,
    plans: &mut ColumnPlans,
    row: &mut RowBuffer,
    notes: &mut Annotations,
) -> Result<Filled, QueryError> {
    let is_fused = target_cfg_f!(target_feature = "fma");
    fill_plainly((view, is_fused), series, plans, row, notes)
}

/// Computes the row of a series. All versions are compiled from this code.
#[inline(always)]
fn fill_plainly(
    (view, is_fused): (&View<'_>, bool),
    series: &FloatSeries<'_>,
    plans: &mut ColumnPlans,
    row: &mut RowBuffer,
    notes: &mut Annotations,
) -> Result<Filled, QueryError> {
    let View {
        call, grid, reach, ..
    } = view;
    let samples = &series.samples;
    let mut overlaps = 0;
    let windows = if let RangeFunction::Extrapolated(how) = call.function {
        let (plan, is_new) = plans.rates.of(series.column);
        if is_new {
            plan.fill(samples.times, grid, reach, how);
        }
        overlaps = fill_extrapolated(how, plan, series, view, row);
        plan.windows()
    } else {
        let (plan, is_new) = plans.windows.of(series.column);
        if is_new {
            plan.fill(samples.times, grid, reach);
        }
        let out = &mut row.values;
        match plan.samples_min() > 0 && call.is_of_every_window() {
            true => row.is_full = true,
            false => out.fill(ABSENT),
        }
        let arguments = |step| call.arguments(grid, step);
        let function = (call.function, is_fused);
        over_time::fill(function, plan, samples, arguments, &call.cancel, out);
        plan
    };
    call.check(windows.iter().map(|(step, ..)| step), notes)?;
    Ok(Filled {
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
    view: &View<'_>,
    row: &mut RowBuffer,
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
    how.fill(plan, (samples, series.rising), view.grid, view.reach, out);
    row.is_full = is_full;
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Span;
    use crate::eval::kernels::counter_names::CounterNames;
    use crate::eval::kernels::range_call::RangeCall;
    use crate::eval::kernels::rate::rises;
    use crate::functions::{Evaluation, FUNCTIONS};
    use crate::grid::{Grid, Reach};
    use firn_model::cancel::Cancel;
    use firn_model::env::Rng;
    use firn_model::env::sim::SimRng;
    use firn_model::sample::TimeRange;

    /// Values of a counter or a gauge, integers or floats, with some special values.
    fn values(rng: &SimRng, count: usize) -> Vec<f64> {
        let (kind, mut sum) = (rng.below(4), 0.0);
        let value = |_| match rng.below(300) {
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
            span: Span::default(),
            counters: CounterNames::default(),
            uses_starts: false,
            overhang: None,
            cancel: Cancel::new(),
        }
    }

    #[test]
    fn rows_of_this_processor_have_the_bits_of_the_portable_form() {
        let functions: Vec<RangeFunction> = FUNCTIONS
            .iter()
            .filter_map(|function| match function.evaluation {
                Evaluation::Range(of) => Some(of),
                _ => None,
            })
            .collect();
        for seed in 0..300 {
            let rng = SimRng::new(seed);
            let mut time = 0;
            let times: Vec<i64> = std::iter::repeat_with(|| {
                time += if rng.one_in(20) {
                    900 + rng.below(3_000) as i64
                } else {
                    1_000
                };
                time
            })
            .take(rng.below(120) as usize)
            .collect();
            let values = values(&rng, times.len());
            let grid = Grid::between(0, 100_000, [1_000, 700, 3_000][seed as usize % 3]);
            let reach = Reach {
                range_ms: 1 + rng.below(40_000) as i64,
                offset_ms: 0,
                at: None,
            };
            for function in &functions {
                let call = call(*function, grid.count);
                let view = View {
                    call: &call,
                    grid: &grid,
                    reach: &reach,
                    name: &Vec::new,
                };
                let series = FloatSeries {
                    samples: Samples {
                        times: &times,
                        values: &values,
                        starts: &[],
                    },
                    rising: rises(&values),
                    column: 0,
                };
                let filled = |is_best: bool| {
                    let (mut plans, mut row) = (ColumnPlans::default(), RowBuffer::default());
                    let notes = &mut Annotations::default();
                    row.begin(grid.count);
                    let filled = match is_best {
                        true => fill(&view, &series, &mut plans, &mut row, notes),
                        false => fill_plainly((&view, false), &series, &mut plans, &mut row, notes),
                    };
                    let one_nan = |v: &f64| match v.is_nan() && v.to_bits() != ABSENT.to_bits() {
                        true => f64::NAN.to_bits(),
                        false => v.to_bits(),
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
                Evaluation::Range(of) => Some(of),
                _ => None,
            });
        for function in functions {
            for seed in 0..100 {
                let rng = SimRng::new(seed);
                let mut time = 40_000 + rng.below(40_000) as i64;
                let steps = std::iter::repeat_with(|| {
                    time += 900 + rng.below(200) as i64;
                    time
                });
                let times: Vec<i64> = steps.take(1 + rng.below(30) as usize).collect();
                let values = values(&rng, times.len());
                let grid = Grid::between(0, 200_000, [1_000, 700, 3_000][seed as usize % 3]);
                let reach = Reach {
                    range_ms: 1 + rng.below(20_000) as i64,
                    offset_ms: rng.below(20_000) as i64 - 10_000,
                    at: None,
                };
                let range = TimeRange::new(times[0], times[times.len() - 1]);
                let few = grid.steps_seeing(range, &reach);
                let row = |grid: Grid| {
                    let call = call(function, grid.count);
                    let (grid, reach, name) = (&grid, &reach, &Vec::new);
                    let view = View {
                        call: &call,
                        grid,
                        reach,
                        name,
                    };
                    let series = FloatSeries {
                        samples: Samples {
                            times: &times,
                            values: &values,
                            starts: &[],
                        },
                        rising: rises(&values),
                        column: 0,
                    };
                    let (mut plans, mut row) = (ColumnPlans::default(), RowBuffer::default());
                    row.begin(grid.count);
                    let notes = &mut Annotations::default();
                    let filled = fill(&view, &series, &mut plans, &mut row, notes);
                    let bits = row.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    (filled, bits)
                };
                let (all, mut part) = (row(grid), row(grid.part(&few)));
                let absent = |steps: usize| vec![ABSENT.to_bits(); steps];
                part.1.splice(0..0, absent(few.start));
                part.1.extend(absent(grid.count - few.end));
                assert_eq!(part, all, "seed {seed}, {function:?}");
            }
        }
    }
}
