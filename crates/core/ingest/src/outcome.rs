//! The outcome of a write: stored and dropped samples, and the texts for the sender.

use firn_model::exemplar::LABEL_CHARS_MAX;
use firn_model::labels::Labels;
use firn_model::store::{
    AppendOutcome, ExemplarRejection, RejectedExemplars, RejectedSamples, SampleRejection,
};
use firn_wire::WireError;
use firn_wire::remote_write::{DecodedWriteRequest, RejectedSeries, WriteRejectionReason};
use std::fmt::Write;

/// The reason why samples were dropped: the closed set of values for the metric label `reason`.
/// Every dropped sample has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// The labels or the histogram of the series are invalid.
    Refused(WriteRejectionReason),
    /// The store did not accept the sample.
    Rejected(SampleRejection),
}

impl DropReason {
    /// All reasons, in the order of the metrics.
    pub const ALL: [DropReason; 25] = [
        DropReason::Rejected(SampleRejection::OutOfOrder),
        DropReason::Rejected(SampleRejection::DuplicateTimestamp),
        DropReason::Rejected(SampleRejection::OutOfBounds),
        DropReason::Rejected(SampleRejection::TooOld),
        DropReason::Rejected(SampleRejection::TooFarInFuture),
        DropReason::Rejected(SampleRejection::SeriesLimit),
        DropReason::Rejected(SampleRejection::ActiveSeriesLimit),
        DropReason::Rejected(SampleRejection::NewSeriesLimit),
        DropReason::Rejected(SampleRejection::JobSeriesLimit),
        DropReason::Refused(WriteRejectionReason::MetricName),
        DropReason::Refused(WriteRejectionReason::LabelName),
        DropReason::Refused(WriteRejectionReason::LabelValue),
        DropReason::Refused(WriteRejectionReason::DuplicateLabel),
        DropReason::Refused(WriteRejectionReason::TooManyLabels),
        DropReason::Refused(WriteRejectionReason::LabelNameTooLong),
        DropReason::Refused(WriteRejectionReason::LabelValueTooLong),
        DropReason::Refused(WriteRejectionReason::Histogram),
        DropReason::Refused(WriteRejectionReason::LabelRefs),
        DropReason::Refused(WriteRejectionReason::MetadataRefs),
        DropReason::Refused(WriteRejectionReason::NoSamples),
        DropReason::Refused(WriteRejectionReason::MetricType),
        DropReason::Refused(WriteRejectionReason::Temporality),
        DropReason::Refused(WriteRejectionReason::DeltaOutOfOrder),
        DropReason::Refused(WriteRejectionReason::DeltaOlderStart),
        DropReason::Refused(WriteRejectionReason::DeltaLimit),
    ];

    /// Returns whether the sample was dropped because its timestamp is too far in the future.
    pub(crate) fn is_too_far_in_future(self) -> bool {
        self == DropReason::Rejected(SampleRejection::TooFarInFuture)
    }

    /// Returns the value of the metric label `reason`, which also appears in error texts.
    pub fn as_str(self) -> &'static str {
        match self {
            DropReason::Rejected(SampleRejection::OutOfOrder) => "out_of_order",
            DropReason::Rejected(SampleRejection::DuplicateTimestamp) => "duplicate_timestamp",
            DropReason::Rejected(SampleRejection::OutOfBounds) => "out_of_bounds",
            DropReason::Rejected(SampleRejection::TooOld) => "too_old",
            DropReason::Rejected(SampleRejection::TooFarInFuture) => "too_far_in_future",
            DropReason::Rejected(SampleRejection::SeriesLimit) => "series_limit",
            DropReason::Rejected(SampleRejection::ActiveSeriesLimit) => "active_series_limit",
            DropReason::Rejected(SampleRejection::NewSeriesLimit) => "new_series_limit",
            DropReason::Rejected(SampleRejection::JobSeriesLimit) => "job_series_limit",
            DropReason::Refused(WriteRejectionReason::MetricName) => "metric_name",
            DropReason::Refused(WriteRejectionReason::LabelName) => "label_name",
            DropReason::Refused(WriteRejectionReason::LabelValue) => "label_value",
            DropReason::Refused(WriteRejectionReason::DuplicateLabel) => "duplicate_label",
            DropReason::Refused(WriteRejectionReason::TooManyLabels) => "label_count",
            DropReason::Refused(WriteRejectionReason::LabelNameTooLong) => "label_name_length",
            DropReason::Refused(WriteRejectionReason::LabelValueTooLong) => "label_value_length",
            DropReason::Refused(WriteRejectionReason::Histogram) => "histogram",
            DropReason::Refused(WriteRejectionReason::LabelRefs) => "label_refs",
            DropReason::Refused(WriteRejectionReason::MetadataRefs) => "metadata_refs",
            DropReason::Refused(WriteRejectionReason::NoSamples) => "no_samples",
            DropReason::Refused(WriteRejectionReason::MetricType) => "metric_type",
            DropReason::Refused(WriteRejectionReason::Temporality) => "temporality",
            DropReason::Refused(WriteRejectionReason::DeltaOutOfOrder) => "delta_out_of_order",
            DropReason::Refused(WriteRejectionReason::DeltaOlderStart) => "delta_older_start",
            DropReason::Refused(WriteRejectionReason::DeltaLimit) => "delta_limit",
        }
    }
}

/// Samples dropped for one reason in one write, with the first of them as an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedSamples {
    /// Reason for dropping them, as in the metrics.
    pub reason: DropReason,
    /// Number of samples; a rejected series may have had none.
    pub sample_count: usize,
    /// Label `job` of the first one; empty if it has none or its labels were not decoded.
    pub job: String,
    /// Error text of the first one, in the wording of Prometheus.
    pub first: String,
    /// Labels of the series of the first one; empty if they were not decoded.
    pub first_labels: Labels,
}

impl From<&RejectedSeries> for DroppedSamples {
    fn from(refused: &RejectedSeries) -> Self {
        Self {
            reason: DropReason::Refused(refused.refusal),
            sample_count: refused.sample_count,
            job: String::new(),
            first: refused.first.clone(),
            first_labels: Labels::empty(),
        }
    }
}

impl From<&RejectedSamples> for DroppedSamples {
    fn from(rejected: &RejectedSamples) -> Self {
        let what = match rejected.rejection {
            SampleRejection::OutOfOrder => "out of order sample",
            SampleRejection::DuplicateTimestamp => "duplicate sample for timestamp",
            SampleRejection::OutOfBounds => "out of bounds",
            SampleRejection::TooOld => "too old sample",
            SampleRejection::TooFarInFuture => "out of bounds: timestamp is too far in the future",
            SampleRejection::SeriesLimit => "series limit reached",
            SampleRejection::ActiveSeriesLimit => "too many active series",
            SampleRejection::NewSeriesLimit => "too many new series",
            SampleRejection::JobSeriesLimit => "too many new series of the job",
        };
        let limit = rejected.limit.map_or(String::new(), |limit| {
            let name = match rejected.rejection {
                SampleRejection::ActiveSeriesLimit => " (max_global_series_per_user)",
                SampleRejection::NewSeriesLimit => " (new_series_limit)",
                SampleRejection::JobSeriesLimit => " (new_series_per_job_limit)",
                _ => "",
            };
            format!(": limit {limit}{name}")
        });
        Self {
            reason: DropReason::Rejected(rejected.rejection),
            sample_count: rejected.count,
            job: String::from_utf8_lossy(rejected.first_labels.get("job")).into_owned(),
            first: format!(
                "{what}{limit} for series {} at timestamp {}",
                rejected.first_labels, rejected.first_time
            ),
            first_labels: rejected.first_labels.clone(),
        }
    }
}

/// Exemplars dropped for one reason in one write, with the first of them as an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedExemplars {
    /// Reason, in one word, as in the metrics.
    pub reason: &'static str,
    /// Number of dropped exemplars.
    pub count: usize,
    /// Error text of the first one, in the wording of Prometheus where it has one.
    pub first: String,
}

impl From<&RejectedSeries> for DroppedExemplars {
    fn from(refused: &RejectedSeries) -> Self {
        Self {
            reason: DropReason::Refused(refused.refusal).as_str(),
            count: refused.sample_count,
            first: refused.first.clone(),
        }
    }
}

impl From<&RejectedExemplars> for DroppedExemplars {
    fn from(refused: &RejectedExemplars) -> Self {
        let (reason, what) = match refused.refusal {
            ExemplarRejection::OutOfOrder => ("out_of_order", "out of order exemplar".to_owned()),
            ExemplarRejection::TooLong => (
                "too_long",
                format!(
                    "label length for exemplar exceeds maximum of {LABEL_CHARS_MAX} UTF-8 \
                     characters"
                ),
            ),
            ExemplarRejection::TooFarInFuture => (
                "too_far_in_future",
                "out of bounds: timestamp of exemplar is too far in the future".to_owned(),
            ),
            ExemplarRejection::NoSeries => ("no_series", "exemplar without a sample".to_owned()),
        };
        Self {
            reason,
            count: refused.count,
            first: format!("{what} for series {}", refused.first_labels),
        }
    }
}

/// Counts of the samples that the deduplication of replicas dropped and added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeduplicatedSamples {
    /// Number of float samples.
    pub(crate) floats: usize,
    /// Number of native histograms.
    pub(crate) histograms: usize,
    /// Number of stored samples from other requests.
    pub(crate) filled: usize,
}

/// The stored parts of a request, as remote write 2.0 reports them in the headers of its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenCounts {
    /// Number of stored float samples, including deduplicated ones.
    pub samples: usize,
    /// Number of stored native histograms, including deduplicated ones.
    pub histograms: usize,
    /// Number of exemplars, including duplicates and those that the store does not keep.
    pub exemplars: usize,
}

/// The result of decoding a write, before the store has received it. It becomes part of the
/// outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecodeOutcome {
    /// Samples that were not passed to the store.
    pub(crate) dropped: Vec<DroppedSamples>,
    /// Number of exemplars that were passed to the store.
    pub(crate) exemplars: usize,
    /// Exemplars that were not passed to the store. Empty if the protocol reports samples only.
    pub(crate) dropped_exemplars: Vec<DroppedExemplars>,
    /// True if the protocol reports dropped exemplars to the sender.
    pub(crate) tells_exemplars: bool,
    /// Samples that the deduplication of replicas dropped and added.
    pub(crate) deduplicated: DeduplicatedSamples,
}

impl DecodeOutcome {
    /// Returns the outcome of a request with `exemplars` valid exemplars, after all its labels were
    /// decoded. Fails if the message as a whole is malformed.
    pub(crate) fn from_decoded(
        decoded: DecodedWriteRequest<'_>,
        exemplars: usize,
    ) -> Result<Self, WireError> {
        let dropped_exemplars = decoded.refused_exemplars.iter();
        Ok(Self {
            exemplars: exemplars - decoded.lost_exemplars,
            dropped_exemplars: dropped_exemplars.map(DroppedExemplars::from).collect(),
            dropped: decoded.finish()?.iter().map(DroppedSamples::from).collect(),
            ..Self::default()
        })
    }
}

/// The outcome of a write whose stored samples are durable, from which the server builds its
/// response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Number of stored samples, including silently accepted duplicates.
    pub stored_count: usize,
    /// Dropped samples, one entry for each reason; rejected series precede samples that the store
    /// rejected.
    pub dropped: Vec<DroppedSamples>,
    /// Dropped exemplars, one entry for each reason, if the protocol reports them.
    pub dropped_exemplars: Vec<DroppedExemplars>,
    /// Counts for the response of remote write 2.0.
    pub written: WrittenCounts,
    /// Number of samples that were not stored because those of another replica are.
    pub deduplicated_count: usize,
}

impl WriteOutcome {
    /// Returns the outcome of a write: `dropped` was not passed to the store, and `appended` is the
    /// result of the rest.
    pub fn new(dropped: Vec<DroppedSamples>, appended: &AppendOutcome) -> Self {
        let decoding = DecodeOutcome {
            dropped,
            ..DecodeOutcome::default()
        };
        Self::from_push(decoding, appended)
    }

    /// Returns the outcome of a push from the results of decoding and of the store.
    pub(crate) fn from_push(decoding: DecodeOutcome, appended: &AppendOutcome) -> Self {
        let DecodeOutcome {
            mut dropped,
            mut dropped_exemplars,
            deduplicated,
            ..
        } = decoding;
        dropped.extend(appended.rejected.iter().map(DroppedSamples::from));
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
            deduplicated_count: deduplicated.floats + deduplicated.histograms,
            written: WrittenCounts {
                samples: (appended.stored + deduplicated.floats)
                    .saturating_sub(appended.stored_histograms + deduplicated.filled),
                histograms: appended.stored_histograms + deduplicated.histograms,
                exemplars: decoding.exemplars.saturating_sub(refused.sum()),
            },
        }
    }

    /// Returns whether nothing was stored although something was dropped, which is an error for the
    /// sender.
    pub fn is_refused(&self) -> bool {
        self.stored_count == 0 && !self.dropped.is_empty()
    }

    /// Returns whether nothing was stored and nothing was dropped, because samples of another
    /// replica are stored.
    pub fn is_deduplicated(&self) -> bool {
        self.deduplicated_count > 0 && self.stored_count == 0 && self.is_complete()
    }

    /// Returns whether everything was stored, samples as well as reported exemplars. Otherwise
    /// [`WriteOutcome::error_text`] returns an error text.
    pub fn is_complete(&self) -> bool {
        self.dropped.is_empty() && self.dropped_exemplars.is_empty()
    }

    /// Returns the number of samples dropped for any reason. Exemplars are not included.
    pub fn dropped_count(&self) -> usize {
        self.dropped.iter().map(|d| d.sample_count).sum()
    }

    /// Returns the error text for the sender if anything was dropped: the first error and the
    /// counts.
    pub fn error_text(&self) -> Option<String> {
        match (self.samples_error_text(), self.exemplars_error_text()) {
            (Some(samples), Some(exemplars)) => Some(format!("{samples}; {exemplars}")),
            (samples, exemplars) => samples.or(exemplars),
        }
    }

    fn exemplars_error_text(&self) -> Option<String> {
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

    fn samples_error_text(&self) -> Option<String> {
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
