//! Batches that carry bytes, for tests in which any content will do: the bytes are in the label of
//! a series.

use firn_model::labels::Labels;
use firn_model::log::LogBatch;

const LABEL: &str = "p";

/// A batch that carries `bytes`, of which no two are equal for different bytes.
pub fn batch_of(bytes: &[u8]) -> LogBatch {
    let mut batch = LogBatch::default();
    // A label without a value is none.
    let value = [b"=", bytes].concat();
    let labels = Labels::from_pairs([(LABEL, value)]);
    batch.created.push(7, labels.as_ref());
    batch
}

/// The bytes that a batch carries.
pub fn bytes_of(batch: &LogBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    batch.created.for_each(|_, labels| {
        bytes.extend_from_slice(labels.get(LABEL).get(1..).unwrap_or(&[]));
    });
    bytes
}
