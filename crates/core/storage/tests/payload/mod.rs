//! Batches with arbitrary content for tests that do not depend on it: the bytes are stored in a
//! label value.

use firn_model::labels::Labels;
use firn_model::log::LogBatch;

const LABEL: &str = "p";

/// Returns a batch that contains `bytes`. Different bytes give different batches.
pub fn batch_of(bytes: &[u8]) -> LogBatch {
    let mut batch = LogBatch::default();
    // A label with an empty value counts as absent.
    let value = [b"=", bytes].concat();
    let labels = Labels::from_pairs([(LABEL, value)]);
    batch.created.push(7, labels.as_ref());
    batch
}

/// Returns the bytes that a batch contains.
pub fn bytes_of(batch: &LogBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    batch.created.for_each(|_, labels| {
        bytes.extend_from_slice(labels.get(LABEL).get(1..).unwrap_or(&[]));
    });
    bytes
}
