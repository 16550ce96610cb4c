//! What became of the samples of a write.

use firn_model::store::{Appended, Rejected, Rejection};
use firn_wire::remote_write::{Refusal, Refused};
use std::fmt::Write;

/// Why samples were dropped: the closed set that metrics count under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// The series' labels or histogram cannot stand.
    Refused(Refusal),
    /// The store did not take the sample.
    Rejected(Rejection),
}

impl DropReason {
    /// Every reason, in the order in which metrics list them.
    pub const ALL: [DropReason; 14] = [
        DropReason::Rejected(Rejection::OutOfOrder),
        DropReason::Rejected(Rejection::DuplicateTimestamp),
        DropReason::Rejected(Rejection::OutOfBounds),
        DropReason::Rejected(Rejection::TooOld),
        DropReason::Rejected(Rejection::TooFarInFuture),
        DropReason::Rejected(Rejection::SeriesLimit),
        DropReason::Refused(Refusal::MetricName),
        DropReason::Refused(Refusal::LabelName),
        DropReason::Refused(Refusal::LabelValue),
        DropReason::Refused(Refusal::DuplicateLabel),
        DropReason::Refused(Refusal::TooManyLabels),
        DropReason::Refused(Refusal::LabelNameTooLong),
        DropReason::Refused(Refusal::LabelValueTooLong),
        DropReason::Refused(Refusal::Histogram),
    ];

    /// Whether the time of the sample is what is wrong, and lies ahead.
    pub(crate) fn is_of_future(self) -> bool {
        self == DropReason::Rejected(Rejection::TooFarInFuture)
    }

    /// The value of the `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            DropReason::Rejected(Rejection::OutOfOrder) => "out_of_order",
            DropReason::Rejected(Rejection::DuplicateTimestamp) => "duplicate_timestamp",
            DropReason::Rejected(Rejection::OutOfBounds) => "out_of_bounds",
            DropReason::Rejected(Rejection::TooOld) => "too_old",
            DropReason::Rejected(Rejection::TooFarInFuture) => "too_far_in_future",
            DropReason::Rejected(Rejection::SeriesLimit) => "series_limit",
            DropReason::Refused(Refusal::MetricName) => "metric_name",
            DropReason::Refused(Refusal::LabelName) => "label_name",
            DropReason::Refused(Refusal::LabelValue) => "label_value",
            DropReason::Refused(Refusal::DuplicateLabel) => "duplicate_label",
            DropReason::Refused(Refusal::TooManyLabels) => "label_count",
            DropReason::Refused(Refusal::LabelNameTooLong) => "label_name_length",
            DropReason::Refused(Refusal::LabelValueTooLong) => "label_value_length",
            DropReason::Refused(Refusal::Histogram) => "histogram",
        }
    }
}

/// Samples dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Why.
    pub reason: DropReason,
    /// How many samples; a refused series may have had none.
    pub sample_count: usize,
    /// What is wrong with the first one, as Prometheus words it.
    pub first: String,
}

impl From<&Refused> for Dropped {
    fn from(refused: &Refused) -> Self {
        Self {
            reason: DropReason::Refused(refused.refusal),
            sample_count: refused.sample_count,
            first: refused.first.clone(),
        }
    }
}

impl From<&Rejected> for Dropped {
    fn from(rejected: &Rejected) -> Self {
        let what = match rejected.rejection {
            Rejection::OutOfOrder => "out of order sample",
            Rejection::DuplicateTimestamp => "duplicate sample for timestamp",
            Rejection::OutOfBounds => "out of bounds",
            Rejection::TooOld => "too old sample",
            Rejection::TooFarInFuture => "out of bounds: timestamp is too far in the future",
            Rejection::SeriesLimit => "series limit reached",
        };
        Self {
            reason: DropReason::Rejected(rejected.rejection),
            sample_count: rejected.count,
            first: format!(
                "{what} for series {} at timestamp {}",
                rejected.first_labels, rejected.first_time
            ),
        }
    }
}

/// What became of a write whose stored samples are durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Samples that the store holds, silently accepted duplicates included.
    pub stored_count: usize,
    /// What was dropped, one entry a reason; refused series before rejected samples.
    pub dropped: Vec<Dropped>,
}

impl WriteOutcome {
    /// What became of a write of which `dropped` did not come to the store, and the rest did.
    pub(crate) fn new(mut dropped: Vec<Dropped>, appended: &Appended) -> Self {
        dropped.extend(appended.rejected.iter().map(Dropped::from));
        Self {
            stored_count: appended.stored,
            dropped,
        }
    }

    /// Samples dropped for any reason.
    pub fn dropped_count(&self) -> usize {
        self.dropped.iter().map(|d| d.sample_count).sum()
    }

    /// What to tell the sender if anything was dropped: the first offender and the counts.
    pub fn complaint(&self) -> Option<String> {
        let first = self.dropped.first()?;
        let all = self.stored_count + self.dropped_count();
        let mut text = format!(
            "{}; {} of {all} samples dropped",
            first.first,
            self.dropped_count()
        );
        for (i, dropped) in self.dropped.iter().enumerate() {
            let lead = if i == 0 { ": " } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{lead}{} {}",
                dropped.sample_count,
                dropped.reason.as_str()
            );
        }
        Some(text)
    }
}
