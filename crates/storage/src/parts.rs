//! Work over many series, shared by the compute threads in parts.
//!
//! Invariant: results come in the order of the parts, whoever made them; of several failures the
//! first part's is reported.

use crate::sync::Mutex;
use firn_model::env::Compute;
use firn_model::error::Error;
use std::sync::PoisonError;

/// What `task` makes of each part, which it is given with its number. A single part is done by the
/// thread that asks: to wake another takes longer.
pub(crate) fn in_parts<T: Send>(
    compute: &dyn Compute,
    parts: &[&[u32]],
    task: impl Fn(usize, &[u32]) -> Result<T, Error> + Sync,
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
