//! Distributes work over the compute threads.
//!
//! Invariant: results are in the order of the parts, whichever thread computed them; if several
//! parts fail, the error of the first one is returned.

use crate::ids::SeriesRef;
use crate::sync::{Mutex, into_inner, lock};
use firn_model::env::Compute;
use firn_model::error::Error;

/// Calls `task` with each number below `count` on all compute threads, and returns the results in
/// order. Runs a single task on the calling thread, because waking another one takes longer.
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

/// Calls `task` with number and series of each part on all compute threads. Returns the results in
/// order, or the error of the first part that failed.
pub(crate) fn map_parts<T: Send>(
    compute: &dyn Compute,
    parts: &[&[SeriesRef]],
    task: impl Fn(usize, &[SeriesRef]) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let results = map(compute, parts.len(), |number| task(number, parts[number]));
    results.into_iter().collect()
}
