//! The aggregations `topk`, `bottomk`, `limitk` and `limit_ratio`, which select elements of a group
//! at each step.
//!
//! The selection among equal values, and the order of an instant result, depend on the binary heap
//! of Prometheus. The heap in this module therefore moves elements in exactly the same way.

mod ties;

use crate::ast::{AggregateOp, PositionRange};
use crate::eval::account::{QueryAccount, grow};
use crate::eval::annotations::Annotation;
use crate::eval::operators::grouping::SeriesGroups;
use crate::eval::operators::quantiles::ParamExtremes;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::order::sort_indexes;
use crate::eval::rows::parts::run_in_parts;
use crate::eval::rows::row::{StepRowBuffer, is_absent};
use crate::eval::run::EvalContext;
use crate::go_format::format_g;
use crate::grid::StepGrid;
use crate::plan::PlanAggregate;
use crate::value::PromqlError;
use firn_model::labels::Labels;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of steps in a part: their values of one series share a cache line.
const STEPS_PER_PART: usize = 8;

/// Memory to sort an element of a heap, in bytes: its index and a copy.
const ORDERED_BYTES: usize = size_of::<usize>() + size_of::<TopkElement>();

/// Maximum number of elements for which Go uses an insertion sort. For more elements, equal values
/// have no specified order.
const INSERTION_SORT_MAX: usize = 12;

/// Evaluates the aggregation. `params` contains the parameter of each step.
pub(crate) fn evaluate_topk(
    run: &mut EvalContext<'_>,
    node: &PlanAggregate,
    params: Vec<f64>,
    input: Arc<SeriesFrame>,
    span: PositionRange,
    grid: StepGrid,
) -> Result<SeriesFrame, PromqlError> {
    assert_eq!(params.len(), grid.count, "parameters, and steps");
    assert_eq!(
        input.steps(),
        grid.count,
        "steps of the input, and of the grid"
    );
    let groups = SeriesGroups::from_frame(&input, &node.grouping, run)?;
    let (compute, account) = (run.ctx.compute, run.account);
    if !check_param(run, node, &ParamExtremes::from_params(&params))? {
        return Ok(SeriesFrame::new(grid.count));
    }
    let by_value = matches!(node.op, AggregateOp::TopK | AggregateOp::BottomK);
    if by_value && input.has_histograms() {
        let name = node.op.as_str();
        run.notes
            .add(Annotation::ignored_in_aggregation(span, name));
    }
    let offsets = match node.op {
        AggregateOp::LimitRatio => sample_offsets(&input, account)?,
        _ => Vec::new(),
    };
    let choice = TopkInputs {
        op: node.op,
        input: &input,
        groups: &groups,
        offsets: &offsets,
        detects_ties: run.options.detects_range_dependence,
        has_ties: AtomicBool::new(!by_value),
    };
    let mut chosen: Vec<Vec<u32>> = Vec::with_capacity(grid.count);
    let mut memory = account.reserve(0)?;
    let task = |steps: Range<usize>| choice.select_steps(steps, &params, account);
    let merge = |part: Vec<Vec<u32>>| {
        let bytes = part.iter().map(|of_step| size_of_val(&of_step[..])).sum();
        grow(&mut memory, bytes)?;
        chosen.extend(part);
        Ok(())
    };
    run_in_parts(compute, grid.count, STEPS_PER_PART, task, merge)?;
    if choice.has_ties.load(Ordering::Relaxed) {
        // The selection among equal values depends on the order of the series.
        run.notes.mark_range_dependent();
    }
    assert_eq!(
        chosen.len(),
        grid.count,
        "steps with chosen series, and steps"
    );
    let _copied = account.reserve(input.bytes())?;
    let mut out = match &chosen[..] {
        [only] => input.select(only.iter().map(|series| *series as usize), account)?,
        _ => select_values(&input, &chosen, account)?,
    };
    out.take_memory_of(input, account)?;
    Ok(out)
}

/// Checks the parameter: adds annotations or returns an error. Returns `false` if no element can be
/// selected.
fn check_param(
    run: &mut EvalContext<'_>,
    node: &PlanAggregate,
    extremes: &ParamExtremes,
) -> Result<bool, PromqlError> {
    let refuse = |text: String| Err(PromqlError::Execution(text));
    let bound = i64::MAX as f64;
    let ParamExtremes { min, max, any_nan } = *extremes;
    if node.op == AggregateOp::LimitRatio {
        if min == 0.0 && max == 0.0 {
            return Ok(false);
        }
        if any_nan {
            return refuse("Ratio value is NaN".into());
        }
        let span = node.param.as_ref().map_or(node.input.span, |p| p.span);
        if max > 1.0 {
            run.notes.add(Annotation::invalid_ratio(span, max, 1.0));
        }
        if min < -1.0 {
            run.notes.add(Annotation::invalid_ratio(span, min, -1.0));
        }
        return Ok(true);
    }
    if max < 1.0 {
        return Ok(false);
    }
    if any_nan {
        return refuse("Parameter value is NaN".into());
    }
    if min <= -bound {
        return refuse(format!(
            "Scalar value {} underflows int64",
            format_g(min, None)
        ));
    }
    if max >= bound {
        return refuse(format!(
            "Scalar value {} overflows int64",
            format_g(max, None)
        ));
    }
    Ok(true)
}

/// Returns the selected values of a range query. All other steps are empty.
fn select_values(
    input: &SeriesFrame,
    chosen: &[Vec<u32>],
    account: &QueryAccount<'_>,
) -> Result<SeriesFrame, PromqlError> {
    let places: usize = chosen.iter().map(Vec::len).sum();
    // Lists that have grown may have capacity for twice as many.
    let bytes = input.len() * size_of::<Vec<u32>>() + 2 * places * size_of::<u32>();
    let _steps = account.reserve(bytes)?;
    let mut steps_of: Vec<Vec<u32>> = vec![Vec::new(); input.len()];
    for (step, series) in chosen.iter().enumerate() {
        account.check()?;
        for one in series {
            steps_of[*one as usize].push(step as u32);
        }
    }
    let mut out = input.new_like(input.steps());
    let mut row = StepRowBuffer::default();
    for (series, steps) in steps_of.iter().enumerate() {
        account.check()?;
        row.reset(input.steps());
        let all = input.row(series);
        for step in steps {
            row.values[*step as usize] = all.values[*step as usize];
            if let Some(histogram) = all.histogram(*step as usize) {
                row.histograms.push((*step, histogram.clone()));
            }
        }
        out.push_with_labels_of(input, series, row.row());
    }
    Ok(out)
}

fn sample_offsets(
    input: &SeriesFrame,
    account: &QueryAccount<'_>,
) -> Result<Vec<f64>, PromqlError> {
    let offset = |series: usize| {
        account.check()?;
        Ok(sample_offset(&input.labels(series)))
    };
    (0..input.len()).map(offset).collect()
}

/// Returns a number between zero and one that depends on the labels: the hash of their encoding in
/// Prometheus.
fn sample_offset(labels: &Labels) -> f64 {
    let mut form = Vec::new();
    let mut push = |bytes: &[u8]| {
        match bytes.len() {
            short @ 0..255 => form.push(short as u8),
            long => {
                form.push(255);
                form.extend_from_slice(&(long as u32).to_le_bytes()[..3]);
            }
        }
        form.extend_from_slice(bytes);
    };
    for (name, value) in labels.iter() {
        push(name.as_bytes());
        push(value);
    }
    xxhash_rust::xxh64::xxh64(&form, 0) as f64 / u64::MAX as f64
}

/// The inputs of the selection, shared by all threads.
struct TopkInputs<'a> {
    op: AggregateOp,
    input: &'a SeriesFrame,
    groups: &'a SeriesGroups,
    offsets: &'a [f64],
    /// True if `has_ties` is needed.
    detects_ties: bool,
    /// True if the selection may depend on the order of the series.
    has_ties: AtomicBool,
}

impl TopkInputs<'_> {
    /// Returns the selected series of each step, group by group.
    fn select_steps(
        &self,
        steps: Range<usize>,
        params: &[f64],
        account: &QueryAccount<'_>,
    ) -> Result<Vec<Vec<u32>>, PromqlError> {
        let heaps_bytes = self.groups.len() * (size_of::<TopkHeap>() + size_of::<f64>());
        // Lists that have grown may have capacity for twice as many.
        let kept_bytes = |step| {
            2 * size_of::<TopkElement>() * self.heap_elements_max(self.heap_size(params[step]))
        };
        let bytes = steps.clone().map(|step| heaps_bytes + kept_bytes(step));
        let _heaps = account.reserve(bytes.sum())?;
        if matches!(self.op, AggregateOp::TopK | AggregateOp::BottomK) {
            return self.select_best(steps, params, account);
        }
        let empty = || TopkHeap::with_capacity(self.op == AggregateOp::BottomK, 0);
        let mut heaps: Vec<Vec<TopkHeap>> = steps
            .clone()
            .map(|_| (0..self.groups.len()).map(|_| empty()).collect())
            .collect();
        for series in 0..self.input.len() {
            account.check()?;
            let row = self.input.row(series);
            let group = self.groups.of_series[series] as usize;
            for (heaps, step) in heaps.iter_mut().zip(steps.clone()) {
                let value = row.values[step];
                let is_histogram = is_absent(value);
                if is_histogram && row.histogram(step).is_none() {
                    continue;
                }
                let element = TopkElement {
                    value: if is_histogram { 0.0 } else { value },
                    series: series as u32,
                };
                self.offer_element(&mut heaps[group], element, params[step]);
            }
        }
        let finish = |heaps: Vec<TopkHeap>| {
            let elements = heaps.into_iter().flat_map(|heap| heap.elements);
            elements.map(|element| element.series).collect()
        };
        Ok(heaps.into_iter().map(finish).collect())
    }

    /// Returns the maximum number of elements in the heap of one group.
    fn heap_size(&self, param: f64) -> usize {
        match self.op {
            AggregateOp::LimitRatio => self.input.len(),
            _ => (param as i64).min(self.input.len() as i64).max(0) as usize,
        }
    }

    /// Returns the maximum number of elements in the heaps of all groups, if each contains up to
    /// `of_group`.
    fn heap_elements_max(&self, of_group: usize) -> usize {
        of_group
            .saturating_mul(self.groups.len())
            .min(self.input.len())
    }

    /// Returns the series with the largest or smallest values of each step, group by group. The
    /// limit that a value must exceed is stored next to each heap, so most values do not access a
    /// heap.
    fn select_best(
        &self,
        steps: Range<usize>,
        params: &[f64],
        account: &QueryAccount<'_>,
    ) -> Result<Vec<Vec<u32>>, PromqlError> {
        let (count, greatest_first) = (steps.len(), self.op == AggregateOp::BottomK);
        let places = self.groups.len() * count;
        let size = params[steps.clone()].iter().map(|k| self.heap_size(*k));
        // The heaps of many groups may remain small.
        let room = size
            .max()
            .filter(|size| *size == self.heap_elements_max(*size));
        let heap = |_| TopkHeap::with_capacity(greatest_first, room.unwrap_or(0));
        let mut heaps: Vec<TopkHeap> = (0..places).map(heap).collect();
        // A limit of NaN accepts every value.
        let mut bars = vec![f64::NAN; places];
        let params = &params[steps.clone()];
        for series in 0..self.input.len() {
            account.check()?;
            let values = &self.input.row(series).values[steps.clone()];
            let start = self.groups.of_series[series] as usize * count;
            for (at, value) in values.iter().enumerate() {
                let bar = &mut bars[start + at];
                let falls_short = if greatest_first {
                    *value >= *bar
                } else {
                    *value <= *bar
                };
                if falls_short || is_absent(*value) {
                    continue;
                }
                let size = self.heap_size(params[at]);
                if size > 0 {
                    let series = series as u32;
                    let value = *value;
                    let heap = &mut heaps[start + at];
                    heap.offer(TopkElement { value, series }, size);
                    *bar = heap.entry_threshold(size);
                }
            }
        }
        if self.detects_ties && self.find_tie(steps, &heaps, params, account)? {
            self.has_ties.store(true, Ordering::Relaxed);
        }
        let mut chosen = vec![Vec::new(); count];
        for (place, heap) in heaps.into_iter().enumerate() {
            let order = heap.into_order(account)?;
            chosen[place % count].extend(order.iter().map(|element| element.series));
        }
        Ok(chosen)
    }

    fn offer_element(&self, heap: &mut TopkHeap, element: TopkElement, param: f64) {
        match self.op {
            AggregateOp::LimitRatio => {
                let ratio = param.clamp(-1.0, 1.0);
                let offset = self.offsets[element.series as usize];
                let taken = if ratio >= 0.0 {
                    offset < ratio
                } else {
                    offset >= 1.0 + ratio
                };
                if taken && param != 0.0 {
                    heap.push(element);
                }
            }
            _ => {
                if heap.elements.len() < self.heap_size(param) {
                    heap.push(element);
                }
            }
        }
    }
}

/// An element of a heap: a value and the index of its series.
#[derive(Clone, Copy, Debug)]
struct TopkElement {
    value: f64,
    series: u32,
}

/// A binary heap whose first element is the first to be replaced. NaN is before all other values.
#[derive(Debug)]
struct TopkHeap {
    elements: Vec<TopkElement>,
    /// True if the largest element is replaced first (`bottomk`).
    greatest_first: bool,
}

impl TopkHeap {
    fn with_capacity(greatest_first: bool, elements: usize) -> Self {
        Self {
            elements: Vec::with_capacity(elements),
            greatest_first,
        }
    }

    fn is_less(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.elements[a].value, self.elements[b].value);
        a.is_nan() || if self.greatest_first { a > b } else { a < b }
    }

    fn push(&mut self, element: TopkElement) {
        self.elements.push(element);
        let mut at = self.elements.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.is_less(at, parent) {
                break;
            }
            self.elements.swap(at, parent);
            at = parent;
        }
    }

    /// Adds an element if there is room, or replaces the first element if the new one is better.
    fn offer(&mut self, element: TopkElement, size: usize) {
        if self.elements.len() < size {
            return self.push(element);
        }
        let worst = self.elements[0].value;
        let better = if self.greatest_first {
            worst > element.value
        } else {
            worst < element.value
        };
        if better || (worst.is_nan() && !element.value.is_nan()) {
            self.elements[0] = element;
            self.sift_down();
        }
    }

    /// Returns the limit that a value must exceed to be added, or NaN if all values must be
    /// offered.
    fn entry_threshold(&self, size: usize) -> f64 {
        match self.elements.first() {
            Some(worst) if self.elements.len() == size => worst.value,
            _ => f64::NAN,
        }
    }

    /// Moves the first element down to its position in the heap.
    fn sift_down(&mut self) {
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= self.elements.len() {
                return;
            }
            if child + 1 < self.elements.len() && self.is_less(child + 1, child) {
                child += 1;
            }
            if !self.is_less(child, at) {
                return;
            }
            self.elements.swap(at, child);
            at = child;
        }
    }

    /// Returns the elements in order, the best first and NaN last.
    fn into_order(mut self, account: &QueryAccount<'_>) -> Result<Vec<TopkElement>, PromqlError> {
        if self.elements.len() <= INSERTION_SORT_MAX {
            for end in 1..self.elements.len() {
                for at in (1..=end).rev() {
                    if !self.is_less(at - 1, at) {
                        break;
                    }
                    self.elements.swap(at - 1, at);
                }
            }
            return Ok(self.elements);
        }
        let _order = account.reserve(self.elements.len() * ORDERED_BYTES)?;
        let mut order: Vec<usize> = (0..self.elements.len()).collect();
        sort_indexes(&mut order, account, |a, b| {
            let (x, y) = (self.elements[a].value, self.elements[b].value);
            let by_value = if self.greatest_first {
                x.total_cmp(&y)
            } else {
                y.total_cmp(&x)
            };
            x.is_nan().cmp(&y.is_nan()).then(by_value)
        })?;
        Ok(order.into_iter().map(|at| self.elements[at]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::OPTIONS;
    use firn_model::budget::Budget;
    use firn_model::cancel::CancelToken;

    fn check(greatest_first: bool, size: usize, values: &[f64], want: &[u32]) {
        let mut heap = TopkHeap::with_capacity(greatest_first, 0);
        for (series, value) in values.iter().enumerate() {
            let element = TopkElement {
                value: *value,
                series: series as u32,
            };
            heap.offer(element, size);
        }
        let (budget, cancel) = (Budget::new("query", 1 << 20), CancelToken::new());
        let account = QueryAccount::new(&budget, &cancel, &OPTIONS);
        let order = heap.into_order(&account).unwrap();
        let series: Vec<u32> = order.iter().map(|e| e.series).collect();
        assert_eq!(series, want, "{values:?}");
    }

    #[test]
    fn heap_keeps_the_best_and_puts_them_in_order() {
        check(false, 2, &[1.0, 5.0, 3.0, 4.0], &[1, 3]);
        check(true, 2, &[1.0, 5.0, 3.0, 4.0], &[0, 2]);
        check(false, 2, &[f64::NAN, 1.0, f64::NAN, 2.0], &[3, 1]);
        check(false, 3, &[f64::NAN, 1.0], &[1, 0]);
        check(false, 1, &[2.0, 2.0, 2.0], &[0]);
        let many: Vec<f64> = (0..20).map(f64::from).collect();
        let want: Vec<u32> = (0..20).rev().collect();
        check(false, 20, &many, &want);
    }
}
