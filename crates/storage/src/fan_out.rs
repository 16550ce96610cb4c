//! Work that the compute threads share, in parts.
//!
//! Invariant: results come in the order of the parts, whichever thread made them; of several
//! failures the first part's is returned.

use crate::ids::SeriesRef;
use crate::sync::{Mutex, into_inner, lock};
use firn_model::env::Compute;
use firn_model::error::Error;

/// Calls `task` with each number below `count`, on all compute threads, and returns its results in
/// order. Does a single task on the calling thread: to wake another takes longer.
pub(crate) fn map<T: Send>(
    compute: &dyn Compute,
    count: usize,
    task: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    if count <= 1 {
        return (0..count).map(task).collect();
    }
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    compute.for_each(count, &|number| {
        let result = task(number);
        *lock(&results[number]) = Some(result);
    });
    results.into_iter().filter_map(into_inner).collect()
}

/// Calls `task` with number and series of each part, on all compute threads, and returns its
/// results.
pub(crate) fn in_parts<T: Send>(
    compute: &dyn Compute,
    parts: &[&[SeriesRef]],
    task: impl Fn(usize, &[SeriesRef]) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let results = map(compute, parts.len(), |number| task(number, parts[number]));
    results.into_iter().collect()
}
