//! Work over many series, shared by the compute threads in parts.
//!
//! Invariant: results come in the order of the parts, whichever thread made them; of several
//! failures the first part's is returned.

use crate::ids::SeriesRef;
use crate::sync::Mutex;
use firn_model::env::Compute;
use firn_model::error::Error;
use std::sync::PoisonError;

/// Calls `task` with number and slots of each part, on all compute threads, and returns its
/// results. Does a single part on the calling thread: to wake another takes longer.
pub(crate) fn in_parts<T: Send>(
    compute: &dyn Compute,
    parts: &[&[SeriesRef]],
    task: impl Fn(usize, &[SeriesRef]) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    if parts.len() <= 1 {
        return parts.iter().map(|part| task(0, part)).collect();
    }
    let results: Vec<Mutex<Option<Result<T, Error>>>> =
        parts.iter().map(|_| Mutex::new(None)).collect();
    compute.for_each(parts.len(), &|number| {
        let result = task(number, parts[number]);
        let mut place = results[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(result);
    });
    let results = results.into_iter();
    results
        .filter_map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}
