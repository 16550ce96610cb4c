//! What became of the samples of a write.

use firn_model::exemplar::LABEL_CHARS_MAX;
use firn_model::store::{Appended, ExemplarRefusal, RefusedExemplars, Rejected, Rejection};
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
    pub const ALL: [DropReason; 22] = [
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
        DropReason::Refused(Refusal::LabelRefs),
        DropReason::Refused(Refusal::MetadataRefs),
        DropReason::Refused(Refusal::NoSamples),
        DropReason::Refused(Refusal::MetricType),
        DropReason::Refused(Refusal::Temporality),
        DropReason::Refused(Refusal::DeltaOutOfOrder),
        DropReason::Refused(Refusal::DeltaOlderStart),
        DropReason::Refused(Refusal::DeltaLimit),
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
            DropReason::Refused(Refusal::LabelRefs) => "label_refs",
            DropReason::Refused(Refusal::MetadataRefs) => "metadata_refs",
            DropReason::Refused(Refusal::NoSamples) => "no_samples",
            DropReason::Refused(Refusal::MetricType) => "metric_type",
            DropReason::Refused(Refusal::Temporality) => "temporality",
            DropReason::Refused(Refusal::DeltaOutOfOrder) => "delta_out_of_order",
            DropReason::Refused(Refusal::DeltaOlderStart) => "delta_older_start",
            DropReason::Refused(Refusal::DeltaLimit) => "delta_limit",
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
    /// The `job` of the first one, empty where it has none or its labels were not read.
    pub job: String,
    /// What is wrong with the first one, as Prometheus words it.
    pub first: String,
}

impl From<&Refused> for Dropped {
    fn from(refused: &Refused) -> Self {
        Self {
            reason: DropReason::Refused(refused.refusal),
            sample_count: refused.sample_count,
            job: String::new(),
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
            job: String::from_utf8_lossy(rejected.first_labels.get("job")).into_owned(),
            first: format!(
                "{what} for series {} at timestamp {}",
                rejected.first_labels, rejected.first_time
            ),
        }
    }
}

/// Exemplars dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedExemplars {
    /// Why, in a word.
    pub reason: &'static str,
    /// How many.
    pub count: usize,
    /// What is wrong with the first one, as Prometheus words it where it does.
    pub first: String,
}

impl From<&Refused> for DroppedExemplars {
    fn from(refused: &Refused) -> Self {
        Self {
            reason: DropReason::Refused(refused.refusal).as_str(),
            count: refused.sample_count,
            first: refused.first.clone(),
        }
    }
}

impl From<&RefusedExemplars> for DroppedExemplars {
    fn from(refused: &RefusedExemplars) -> Self {
        let (reason, what) = match refused.refusal {
            ExemplarRefusal::OutOfOrder => ("out_of_order", "out of order exemplar".to_owned()),
            ExemplarRefusal::TooLong => (
                "too_long",
                format!(
                    "label length for exemplar exceeds maximum of {LABEL_CHARS_MAX} UTF-8 \
                     characters"
                ),
            ),
            ExemplarRefusal::TooFarInFuture => (
                "too_far_in_future",
                "out of bounds: timestamp of exemplar is too far in the future".to_owned(),
            ),
            ExemplarRefusal::NoSeries => ("no_series", "exemplar without a sample".to_owned()),
        };
        Self {
            reason,
            count: refused.count,
            first: format!("{what} for series {}", refused.first_labels),
        }
    }
}

/// What a write brought that the store has, in the terms of remote write 2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Float samples.
    pub samples: usize,
    /// Native histograms.
    pub histograms: usize,
    /// Exemplars, those included that say nothing new or that this store does not keep.
    pub exemplars: usize,
}

/// What a decoder said of a write before the store got it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoding {
    /// Samples that did not come to the store.
    pub(crate) dropped: Vec<Dropped>,
    /// Exemplars that did.
    pub(crate) exemplars: usize,
    /// Exemplars that did not. None where the sender is told of samples alone.
    pub(crate) dropped_exemplars: Vec<DroppedExemplars>,
    /// Whether the sender is told of exemplars.
    pub(crate) tells_exemplars: bool,
}

/// What became of a write whose stored samples are durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Samples that the store holds, silently accepted duplicates included.
    pub stored_count: usize,
    /// What was dropped, one entry a reason; refused series before rejected samples.
    pub dropped: Vec<Dropped>,
    /// Exemplars that were dropped, one entry a reason, where the sender is told of them.
    pub dropped_exemplars: Vec<DroppedExemplars>,
    /// What a sender of remote write 2.0 is told.
    pub written: Written,
}

impl WriteOutcome {
    /// What became of a write of which `dropped` did not come to the store, and the rest did.
    pub(crate) fn new(dropped: Vec<Dropped>, appended: &Appended) -> Self {
        let decoding = Decoding {
            dropped,
            ..Decoding::default()
        };
        Self::of_push(decoding, appended)
    }

    /// What became of a push.
    pub(crate) fn of_push(decoding: Decoding, appended: &Appended) -> Self {
        let Decoding {
            mut dropped,
            mut dropped_exemplars,
            ..
        } = decoding;
        dropped.extend(appended.rejected.iter().map(Dropped::from));
        if decoding.tells_exemplars {
            let refused = appended.refused_exemplars.iter();
            dropped_exemplars.extend(refused.map(DroppedExemplars::from));
        }
        let refused = appended
            .refused_exemplars
            .iter()
            .map(|refused| refused.count);
        Self {
            stored_count: appended.stored,
            dropped,
            dropped_exemplars,
            written: Written {
                samples: appended.stored.saturating_sub(appended.stored_histograms),
                histograms: appended.stored_histograms,
                exemplars: decoding.exemplars.saturating_sub(refused.sum()),
            },
        }
    }

    /// Whether the store holds nothing that was sent, although something was.
    pub fn is_refused(&self) -> bool {
        self.stored_count == 0 && !self.dropped.is_empty()
    }

    /// Whether all that was sent is stored.
    pub fn is_whole(&self) -> bool {
        self.dropped.is_empty() && self.dropped_exemplars.is_empty()
    }

    /// Samples dropped for any reason.
    pub fn dropped_count(&self) -> usize {
        self.dropped.iter().map(|d| d.sample_count).sum()
    }

    /// What to tell the sender if anything was dropped: the first offender and the counts.
    pub fn complaint(&self) -> Option<String> {
        match (self.complaint_of_samples(), self.complaint_of_exemplars()) {
            (Some(samples), Some(exemplars)) => Some(format!("{samples}; {exemplars}")),
            (samples, exemplars) => samples.or(exemplars),
        }
    }

    fn complaint_of_exemplars(&self) -> Option<String> {
        let first = self.dropped_exemplars.first()?;
        let counts = self.dropped_exemplars.iter();
        let dropped: usize = counts.clone().map(|dropped| dropped.count).sum();
        let counts: Vec<String> = counts
            .map(|dropped| format!("{} {}", dropped.count, dropped.reason))
            .collect();
        Some(format!(
            "{}; {dropped} of {} exemplars dropped: {}",
            first.first,
            dropped + self.written.exemplars,
            counts.join(", ")
        ))
    }

    fn complaint_of_samples(&self) -> Option<String> {
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
