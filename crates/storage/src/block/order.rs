//! The order of series in a block, and which of them are buckets of one histogram.

use crate::encoding::push_prefixed;
use crate::page::Family;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use std::cmp::Ordering;

/// The label that tells the buckets of a histogram apart.
const BUCKET_LABEL: &str = "le";

/// By metric name, a series without one first, then by the whole label set.
pub fn block_order(a: LabelsRef<'_>, b: LabelsRef<'_>) -> Ordering {
    a.get(METRIC_NAME)
        .cmp(b.get(METRIC_NAME))
        .then_with(|| a.cmp(&b))
}

/// A hash of the labels without `le`, if there is one: buckets of one histogram have the same.
/// Nothing is stored of it. `memory` is what it works in.
pub(crate) fn family(labels: LabelsRef<'_>, memory: &mut Vec<u8>) -> Option<Family> {
    if labels.get(BUCKET_LABEL).is_empty() {
        return None;
    }
    memory.clear();
    for (name, value) in labels
        .pairs()
        .filter(|(name, _)| *name != BUCKET_LABEL.as_bytes())
    {
        push_prefixed(memory, name);
        push_prefixed(memory, value);
    }
    Some(Family(xxhash_rust::xxh64::xxh64(memory, 0)))
}
