//! Collects the `target_info` samples of one request in a separate batch.
//!
//! The sender did not send these samples, so that a store which rejects some of them rejects no
//! data point. Invariant: no series has two samples with the same timestamp.

use crate::remote_write::KEY_FORMAT;
use firn_model::batch::Batch;
use firn_model::sample::TimestampMs;
use rustc_hash::FxHashSet;

/// Collects the `target_info` samples of one request and ends their series, without duplicates. The
/// resources of a request can share a series.
pub(super) struct TargetInfoBuilder<'d> {
    batch: &'d mut Batch,
    keys: Vec<u8>,
    /// Hash of the labels and timestamp of each sample that was added.
    known: FxHashSet<(u128, TimestampMs)>,
    /// True if the current series has a sample.
    has_sample: bool,
}

impl<'d> TargetInfoBuilder<'d> {
    /// Returns a collector that writes into `batch`, which must be empty.
    pub(super) fn new(batch: &'d mut Batch) -> Self {
        let mut keys = batch.take_message();
        keys.clear();
        Self {
            batch,
            keys,
            known: FxHashSet::default(),
            has_sample: false,
        }
    }

    /// Adds a sample to the current series, whose labels have the hash `labels`. Returns false if
    /// the request already contains that sample.
    pub(super) fn add_sample(&mut self, labels: u128, time: TimestampMs) -> bool {
        let is_new = self.known.insert((labels, time));
        if is_new {
            self.batch.push_float(time, 1.0);
            self.has_sample = true;
        }
        is_new
    }

    /// Ends the current series, which has this key. A series without samples is left out.
    pub(super) fn end_series(&mut self, key: &[u8]) {
        if std::mem::take(&mut self.has_sample) {
            let start = self.keys.len();
            self.keys.extend_from_slice(key);
            self.batch.end_unread_series(start..self.keys.len());
        }
    }

    /// Moves the keys into the batch, which is complete afterwards.
    pub(super) fn finish(self) {
        self.batch.put_message(self.keys, KEY_FORMAT);
    }
}
