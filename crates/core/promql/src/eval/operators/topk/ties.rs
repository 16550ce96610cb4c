//! Detects selections of `topk` and `bottomk` that depend on the order of the series.

use super::{TopkHeap, TopkInputs};
use crate::eval::account::QueryAccount;
use crate::eval::rows::row::is_absent;
use crate::value::PromqlError;
use std::ops::Range;

impl TopkInputs<'_> {
    /// Returns whether a value outside a heap equals the worst element of the heap. Another order
    /// of the series may then select that value instead.
    pub(super) fn find_tie(
        &self,
        steps: Range<usize>,
        heaps: &[TopkHeap],
        params: &[f64],
        account: &QueryAccount<'_>,
    ) -> Result<bool, PromqlError> {
        let count = steps.len();
        let _places = account.reserve(heaps.len() * size_of::<i64>())?;
        let is_equal = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
        let mut missing = vec![0i64; heaps.len()];
        for series in 0..self.input.len() {
            account.check()?;
            let values = &self.input.row(series).values[steps.clone()];
            let start = self.groups.of_series[series] as usize * count;
            for (at, value) in values.iter().enumerate().filter(|(_, v)| !is_absent(**v)) {
                let worst = heaps[start + at].elements.first();
                missing[start + at] += i64::from(worst.is_some_and(|w| is_equal(w.value, *value)));
            }
        }
        let has_tie = |(place, heap): (usize, &TopkHeap)| {
            let Some(worst) = heap.elements.first() else {
                return false;
            };
            let equal = heap
                .elements
                .iter()
                .filter(|e| is_equal(e.value, worst.value));
            let is_full = heap.elements.len() >= self.heap_size(params[place % count]);
            is_full && missing[place] > equal.count() as i64
        };
        Ok(heaps.iter().enumerate().any(has_tie))
    }
}
