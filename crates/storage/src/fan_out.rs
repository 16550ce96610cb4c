//! Work over many series, shared by the compute threads in parts.
//!
//! Invariant: results come in the order of the parts, whichever thread made them; of several
//! failures the first part's is returned.

use crate::sync::{Mutex, into_inner, lock};
use firn_model::env::Compute;
use firn_model::error::Error;

/// Calls `task` with number and slots of each part, on all compute threads, and returns its
/// results. Does a single part on the calling thread: to wake another takes longer.
pub(crate) fn in_parts<T: Send>(
    compute: &dyn Compute,
    parts: &[&[u32]],
    task: impl Fn(usize, &[u32]) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    if parts.len() <= 1 {
        return parts.iter().map(|part| task(0, part)).collect();
    }
    let results = map(compute, parts.len(), |number| task(number, parts[number]));
    results.into_iter().collect()
}

/// Calls `task` with each number below `count`, on all compute threads, and returns its results in
/// order.
pub(crate) fn map<T: Send>(
    compute: &dyn Compute,
    count: usize,
    task: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    compute.for_each(count, &|number| {
        let result = task(number);
        *lock(&results[number]) = Some(result);
    });
    results.into_iter().filter_map(into_inner).collect()
}
