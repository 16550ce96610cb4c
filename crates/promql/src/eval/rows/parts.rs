//! Splitting work by series over the compute threads, with results in a fixed order.
//!
//! The size of a part does not depend on the number of threads, and parts are merged in order, so
//! neither do results. Of several failures the one of the lowest part is reported.

use crate::value::QueryError;
use firn_model::env::Compute;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Series in a part: enough to share time columns, few enough that a part's samples stay in the
/// second-level cache (512 series of 100 samples are 400 kB).
pub(crate) const SERIES_PER_PART: usize = 512;

/// Values that a part computes at least, where there are so many: some 60 us, twice what another
/// thread takes to wake up.
const VALUES_PER_PART_MIN: usize = 4_096;

/// Parts that are better than fewer, larger ones: threads that began late or were held up find
/// something to do.
const PARTS_WANTED: usize = 8;

/// Series in a part where so many are evaluated at so many steps. It depends on nothing else.
pub(crate) fn series_per_part(series: usize, steps: usize) -> usize {
    let least = VALUES_PER_PART_MIN / steps.max(1);
    let wanted = series.div_ceil(PARTS_WANTED);
    wanted.max(least).clamp(1, SERIES_PER_PART)
}

/// Computes parts of `0..len` on the compute threads and merges their results in order.
pub(crate) fn in_parts<T: Send>(
    compute: &dyn Compute,
    len: usize,
    part_len: usize,
    task: impl Fn(Range<usize>) -> Result<T, QueryError> + Sync,
    merge: impl FnMut(T) -> Result<(), QueryError> + Send,
) -> Result<(), QueryError> {
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
    let queue = Mutex::new(Queue {
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
    queue.failure.map_or(Ok(()), |(_, error)| Err(error))
}

/// Results whose predecessors are not merged yet.
struct Queue<T> {
    next: usize,
    waiting: BTreeMap<usize, T>,
    /// Whether a thread merges: it takes what becomes ready meanwhile, so that no other waits.
    is_merging: bool,
    failure: Option<(usize, QueryError)>,
}

impl<T> Queue<T> {
    /// The result that is next, for the thread that merges.
    fn pop(&mut self) -> Option<(usize, T)> {
        let merging = self.next;
        let result = self.waiting.remove(&merging);
        self.is_merging = result.is_some();
        self.next += usize::from(self.is_merging);
        Some((merging, result?))
    }

    fn fail(&mut self, part: usize, error: QueryError) {
        if self.failure.as_ref().is_none_or(|(known, _)| part < *known) {
            self.failure = Some((part, error));
        }
    }
}

/// Takes the result of a part in and merges what has become ready, unless another thread does. A
/// failure names the part that was merged.
fn merge_in_order<T>(
    part: usize,
    result: T,
    queue: &Mutex<Queue<T>>,
    merge: &Mutex<impl FnMut(T) -> Result<(), QueryError>>,
) -> Result<(), (usize, QueryError)> {
    let mut known = lock(queue);
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
    use firn_model::env::sim::Inline;

    /// Calls the tasks backwards.
    struct Backwards;

    impl Compute for Backwards {
        fn spawn(&self, _work: firn_model::env::Work, job: firn_model::env::Job) {
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
        in_parts(
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
            3 | 9 => Err(QueryError::Execution(format!("part at {}", r.start))),
            _ => Ok(()),
        };
        let outcome = in_parts(compute, 10, 3, fail, |()| Ok(()));
        assert_eq!(outcome, Err(QueryError::Execution("part at 3".into())));
    }

    #[test]
    fn parts_in_any_order_are_merged_in_order_and_fail_as_the_first() {
        check(&Inline);
        check(&Backwards);
    }
}
