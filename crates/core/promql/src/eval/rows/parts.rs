//! Distributes work over the compute threads by series, with results in a fixed order.
//!
//! The size of a part does not depend on the number of threads, and parts are merged in order, so
//! results do not depend on the number of threads either. If several parts fail, the error of the
//! lowest part is returned.

use crate::value::PromqlError;
use firn_model::env::Compute;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of series in a part: enough to share time columns, and few enough that the
/// samples of a part remain in the L2 cache (512 series of 100 samples are 400 kB).
pub(crate) const SERIES_PER_PART: usize = 512;

/// Minimum number of values that a part computes, if there are enough: about 60 µs, twice the time
/// to wake up another thread.
const VALUES_PER_PART_MIN: usize = 4_096;

/// Desired number of parts. Several smaller parts are better than a few large ones, because threads
/// that started late or were delayed can still take some.
const PARTS_WANTED: usize = 8;

/// Returns the number of series in a part. It depends only on the numbers of series and steps.
pub(crate) fn series_per_part(series: usize, steps: usize) -> usize {
    let least = VALUES_PER_PART_MIN / steps.max(1);
    let wanted = series.div_ceil(PARTS_WANTED);
    wanted.max(least).clamp(1, SERIES_PER_PART)
}

/// Computes parts of `0..len` on the compute threads and merges their results in order. Returns the
/// error of the lowest failed part.
pub(crate) fn run_in_parts<T: Send>(
    compute: &dyn Compute,
    len: usize,
    part_len: usize,
    task: impl Fn(Range<usize>) -> Result<T, PromqlError> + Sync,
    merge: impl FnMut(T) -> Result<(), PromqlError> + Send,
) -> Result<(), PromqlError> {
    assert!(part_len > 0, "parts of {part_len} of {len}");
    let parts = len.div_ceil(part_len);
    let range = |part: usize| part * part_len..((part + 1) * part_len).min(len);
    if parts <= 1 {
        let mut merge = merge;
        return match parts {
            0 => Ok(()),
            _ => merge(task(range(0))?),
        };
    }
    let failed = AtomicUsize::new(usize::MAX);
    let merge = Mutex::new(merge);
    let queue = Mutex::new(PartResultQueue {
        next: 0,
        waiting: BTreeMap::new(),
        is_merging: false,
        failure: None,
    });
    compute.for_each(parts, &|part| {
        if failed.load(Ordering::Relaxed) < part {
            return;
        }
        let outcome = task(range(part));
        let failure = outcome
            .map_err(|e| (part, e))
            .and_then(|result| merge_in_order(part, result, &queue, &merge));
        if let Err((part, error)) = failure {
            failed.fetch_min(part, Ordering::Relaxed);
            lock(&queue).fail(part, error);
        }
    });
    let queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    let merged = queue.next;
    assert!(
        merged == parts || queue.failure.is_some(),
        "{merged} of {parts} parts merged"
    );
    queue.failure.map_or(Ok(()), |(_, error)| Err(error))
}

/// The results of parts that wait for the results before them.
struct PartResultQueue<T> {
    next: usize,
    waiting: BTreeMap<usize, T>,
    /// True while a thread merges. It also merges the results that become ready in the meantime, so
    /// no other thread waits.
    is_merging: bool,
    failure: Option<(usize, PromqlError)>,
}

impl<T> PartResultQueue<T> {
    /// Returns the next result for the thread that merges, with its index.
    fn pop(&mut self) -> Option<(usize, T)> {
        let merging = self.next;
        let result = self.waiting.remove(&merging);
        self.is_merging = result.is_some();
        self.next += usize::from(self.is_merging);
        Some((merging, result?))
    }

    fn fail(&mut self, part: usize, error: PromqlError) {
        if self.failure.as_ref().is_none_or(|(known, _)| part < *known) {
            self.failure = Some((part, error));
        }
    }
}

/// Adds the result of a part and merges all results that are ready, unless another thread does so.
/// An error contains the index of the part that was merged.
fn merge_in_order<T>(
    part: usize,
    result: T,
    queue: &Mutex<PartResultQueue<T>>,
    merge: &Mutex<impl FnMut(T) -> Result<(), PromqlError>>,
) -> Result<(), (usize, PromqlError)> {
    let mut known = lock(queue);
    let next = known.next;
    assert!(
        next <= part,
        "part {part} is complete, and merged to {next}"
    );
    known.waiting.insert(part, result);
    if known.is_merging {
        return Ok(());
    }
    while let Some((merging, ready)) = known.pop() {
        drop(known);
        lock(merge)(ready).map_err(|e| (merging, e))?;
        known = lock(queue);
    }
    Ok(())
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::InlineCompute;

    /// Runs the tasks in reverse order.
    struct Backwards;

    impl Compute for Backwards {
        fn spawn(&self, _work: firn_model::env::JobKind, job: firn_model::env::Job) {
            job();
        }

        fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
            (0..tasks).rev().for_each(task);
        }

        fn threads(&self) -> usize {
            1
        }
    }

    fn check(compute: &dyn Compute) {
        let mut starts = Vec::new();
        run_in_parts(
            compute,
            10,
            3,
            |r| Ok(r.start),
            |s| {
                starts.push(s);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(starts, [0, 3, 6, 9]);
        let fail = |r: Range<usize>| match r.start {
            3 | 9 => Err(PromqlError::Execution(format!("part at {}", r.start))),
            _ => Ok(()),
        };
        let outcome = run_in_parts(compute, 10, 3, fail, |()| Ok(()));
        assert_eq!(outcome, Err(PromqlError::Execution("part at 3".into())));
    }

    #[test]
    fn parts_in_any_order_are_merged_in_order_and_fail_as_the_first() {
        check(&InlineCompute);
        check(&Backwards);
    }
}
