//! Statistics of recently rejected samples by reason, sender and job, for the API, from all write
//! paths.
//!
//! Invariant: memory is bounded. If there are more than [`KINDS_MAX`] kinds, the most recent ones
//! are kept; a kind consists of two counts, two times, and one example of at most 1 KiB with labels
//! of at most 1 KiB.

use crate::outcome::{DropReason, DroppedSamples};
use crate::refusals::{SampleSender, truncate_example};
use firn_model::labels::Labels;
use firn_model::sample::TimestampMs;
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Largest number of kinds: half a MiB with the longest examples.
const KINDS_MAX: usize = 512;

/// The rejected samples of one sender and job for one reason, as the API returns them. It is
/// updated by every write that loses such samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscardEntry {
    /// Reason for the rejection, as in the metrics.
    pub reason: DropReason,
    /// Sender of the samples, as in the log.
    pub sender: SampleSender,
    /// Label `job` of the first sample in each write; empty if it is unknown.
    pub job: String,
    /// Number of samples since the entry was created.
    pub samples: u64,
    /// Number of requests, scrapes and evaluations with such samples.
    pub writes: u64,
    /// Timestamp of the first write in milliseconds.
    pub first: TimestampMs,
    /// Timestamp of the latest write in milliseconds.
    pub last: TimestampMs,
    /// Error text of the latest write that had one.
    pub example: String,
    /// Labels of the series in `example`; empty if they were not decoded or exceed 1 KiB.
    pub labels: Labels,
}

/// Largest size of the labels of an example in bytes.
const LABELS_BYTES_MAX: usize = 1 << 10;

type Key = (DropReason, SampleSender, String);

/// The statistics, shared by all writers and read by the API.
#[derive(Debug, Default)]
pub(crate) struct DiscardStatistics(Mutex<BTreeMap<Key, DiscardEntry>>);

impl DiscardStatistics {
    /// Adds the rejected samples of a write at the wall-clock time `now`.
    #[cold]
    pub(crate) fn record_dropped(
        &self,
        sender: &SampleSender,
        dropped: &[DroppedSamples],
        now: TimestampMs,
    ) {
        let mut kinds = lock(&self.0);
        for dropped in dropped {
            let job = truncate_example(&dropped.job);
            let key = (dropped.reason, sender.clone(), job.clone());
            let kind = kinds.entry(key).or_insert_with(|| DiscardEntry {
                reason: dropped.reason,
                sender: sender.clone(),
                job,
                samples: 0,
                writes: 0,
                first: now,
                last: now,
                example: String::new(),
                labels: Labels::empty(),
            });
            kind.samples += dropped.sample_count as u64;
            kind.writes += 1;
            kind.last = now;
            kind.example = truncate_example(&dropped.first);
            let labels = Some(&dropped.first_labels);
            let labels = labels.filter(|labels| labels.as_bytes().len() <= LABELS_BYTES_MAX);
            kind.labels = labels.cloned().unwrap_or_default();
            if kinds.len() > KINDS_MAX {
                let oldest = kinds.iter().min_by_key(|(_, kind)| kind.last);
                let oldest = oldest.map(|(key, _)| key.clone());
                oldest.and_then(|key| kinds.remove(&key));
            }
        }
    }

    /// Returns all entries, most recent first.
    pub(crate) fn list_entries(&self) -> Vec<DiscardEntry> {
        let mut all: Vec<DiscardEntry> = lock(&self.0).values().cloned().collect();
        all.sort_by_key(|kind| std::cmp::Reverse(kind.last));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::store::SampleRejection;

    fn dropped(reason: SampleRejection, job: &str, first: &str) -> DroppedSamples {
        DroppedSamples {
            reason: DropReason::Rejected(reason),
            sample_count: 2,
            job: job.into(),
            first: first.into(),
            first_labels: Labels::empty(),
        }
    }

    #[test]
    fn discards_are_added_up_by_kind_and_listed_newest_first() {
        let discards = DiscardStatistics::default();
        let sender = SampleSender::Job("a".into());
        discards.record_dropped(&sender, &[dropped(SampleRejection::TooOld, "a", "x")], 1);
        discards.record_dropped(
            &sender,
            &[dropped(SampleRejection::OutOfOrder, "a", "y")],
            2,
        );
        discards.record_dropped(&sender, &[dropped(SampleRejection::TooOld, "a", "z")], 3);
        let list = discards.list_entries();
        let shown: Vec<_> = list
            .iter()
            .map(|d| (d.reason.as_str(), d.samples, d.writes, d.first, d.last))
            .collect();
        assert_eq!(
            shown,
            [("too_old", 4, 2, 1, 3), ("out_of_order", 2, 1, 2, 2)]
        );
        assert_eq!(list[0].example, "z");
    }

    #[test]
    fn discards_of_many_kinds_keep_the_last() {
        let discards = DiscardStatistics::default();
        for i in 0..KINDS_MAX + 10 {
            let job = i.to_string();
            let dropped = dropped(SampleRejection::TooOld, &job, &"é".repeat(10_000));
            discards.record_dropped(&SampleSender::Aggregation, &[dropped], i as i64);
        }
        let list = discards.list_entries();
        assert_eq!(list.len(), KINDS_MAX);
        assert_eq!(list[0].job, (KINDS_MAX + 9).to_string());
        assert_eq!(list.last().unwrap().job, "10");
        assert!(list[0].example.len() <= 1 << 11);
    }
}
