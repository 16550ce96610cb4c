//! Reads several ranges of an object at once.

use super::ClientCore;
use crate::bucket::{ByteRange, ReadResult};
use crate::error::{BucketError, BucketFailure};
use crate::key::ObjectKey;
use bytes::Bytes;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Maximum number of ranges of one operation, all of which are requested at the same time.
const RANGES_MAX: usize = 64;

/// Reads all ranges of an object, or fails with the first error. `None` if the object is missing.
pub(super) async fn read(
    core: Arc<ClientCore>,
    key: ObjectKey,
    ranges: Vec<ByteRange>,
) -> ReadResult<Vec<Bytes>> {
    let fail = |failure, reason: &str| {
        let text = format!("read ranges of {key}: {reason}");
        Err(BucketError::new(failure, text))
    };
    if ranges.is_empty() || ranges.len() > RANGES_MAX {
        let reason = format!("{} ranges, limit {RANGES_MAX}", ranges.len());
        return fail(BucketFailure::Limited, &reason);
    }
    let sizes = ranges.iter().map(|range| range.bytes());
    let bytes = sizes.fold(0, u64::saturating_add);
    let mut room = core.budget.reservation();
    if let Err(error) = room.reserve(bytes).await {
        return fail(error.failure, &error.message);
    }
    let mut running = JoinSet::new();
    for (index, range) in ranges.iter().copied().enumerate() {
        let (core, key) = (core.clone(), key.clone());
        running.spawn(async move { (index, core.read_range(&key, range).await) });
    }
    let mut found = vec![Bytes::new(); ranges.len()];
    // Leaving the loop cancels the other reads.
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((index, Ok(Some(bytes)))) => found[index] = bytes,
            Ok((_, Ok(None))) => return Ok(None),
            Ok((_, Err(error))) => return Err(error),
            Err(error) => return fail(BucketFailure::Stopped, &error.to_string()),
        }
    }
    Ok(Some(found))
}
