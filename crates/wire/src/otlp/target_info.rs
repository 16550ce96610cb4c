//! The samples of `target_info` of one request, in a batch of their own.
//!
//! No sender sent these samples, so a store that refuses some of them refuses no data point.
//! Invariant: a series has no two samples of one time.

use crate::remote_write::KEY_FORMAT;
use firn_model::batch::Batch;
use firn_model::sample::TimestampMs;
use rustc_hash::FxHashSet;

/// Collects the samples.
pub(super) struct TargetInfo<'d> {
    batch: &'d mut Batch,
    keys: Vec<u8>,
    /// Samples that were added: a hash of the labels, and the time.
    known: FxHashSet<(u128, TimestampMs)>,
    /// Whether the series under way has a sample.
    has_sample: bool,
}

impl<'d> TargetInfo<'d> {
    /// Adds to `batch`, which is empty.
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

    /// Adds a sample to the series under way, whose labels have the hash `labels`. Returns false if
    /// the request has that sample already.
    pub(super) fn add_sample(&mut self, labels: u128, time: TimestampMs) -> bool {
        let is_new = self.known.insert((labels, time));
        if is_new {
            self.batch.push_float(time, 1.0);
            self.has_sample = true;
        }
        is_new
    }

    /// Ends the series under way, which has this key. One without samples is left out.
    pub(super) fn end_series(&mut self, key: &[u8]) {
        if std::mem::take(&mut self.has_sample) {
            let start = self.keys.len();
            self.keys.extend_from_slice(key);
            self.batch.end_unread_series(start..self.keys.len());
        }
    }

    /// Puts the keys into the batch.
    pub(super) fn finish(self) {
        self.batch.put_message(self.keys, KEY_FORMAT);
    }
}
