//! The order of series in a block, and the detection of series that are buckets of one histogram.

use crate::encoding::push_prefixed;
use crate::page::HistogramFamilyHash;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use std::cmp::Ordering;

/// The label that distinguishes the buckets of a classic histogram.
const BUCKET_LABEL: &str = "le";

/// Compares series by metric name, with nameless series first, then by the complete label set.
pub fn compare_block_order(a: LabelsRef<'_>, b: LabelsRef<'_>) -> Ordering {
    a.get(METRIC_NAME)
        .cmp(b.get(METRIC_NAME))
        .then_with(|| a.cmp(&b))
}

/// Returns a hash of the labels without `le`, which is equal for all buckets of one histogram, or
/// `None` for a series without `le`. The hash only guides compression and is never stored. `memory`
/// is a scratch buffer.
pub(crate) fn hash_family(
    labels: LabelsRef<'_>,
    memory: &mut Vec<u8>,
) -> Option<HistogramFamilyHash> {
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
    Some(HistogramFamilyHash(xxhash_rust::xxh64::xxh64(memory, 0)))
}
