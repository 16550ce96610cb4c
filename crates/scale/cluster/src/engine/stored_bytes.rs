//! The sizes of the stored records by position, from which the size of a part of the log follows.

use firn_model::log::LogPosition;
use std::collections::VecDeque;

/// Bytes of records that are counted together, so that few counts are kept.
const TOGETHER: u64 = if cfg!(test) { 64 } else { 64 << 10 };

/// The sizes of consecutive records.
#[derive(Debug, Default)]
pub(super) struct StoredBytes(VecDeque<StoredRun>);

#[derive(Debug)]
struct StoredRun {
    /// The position of its last record.
    end: LogPosition,
    bytes: u64,
}

impl StoredBytes {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the record at `position`, behind all others.
    pub(super) fn add(&mut self, position: LogPosition, bytes: u64) {
        match self.0.back_mut() {
            Some(last) if last.bytes < TOGETHER => {
                (last.end, last.bytes) = (position, last.bytes + bytes);
            }
            _ => self.0.push_back(StoredRun {
                end: position,
                bytes,
            }),
        }
    }

    /// Removes the records before `to`, except a few that are counted with later ones. Returns
    /// their size.
    pub(super) fn remove_before(&mut self, to: LogPosition) -> u64 {
        let mut removed = 0;
        while let Some(first) = self.0.pop_front_if(|first| first.end < to) {
            removed += first.bytes;
        }
        removed
    }
}
