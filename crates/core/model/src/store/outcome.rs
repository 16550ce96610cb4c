//! The outcome of an append: the number of stored samples, and the rejected samples and exemplars.

use crate::labels::Labels;
use crate::sample::TimestampMs;

/// The reasons why a sample of a valid request is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampleRejection {
    /// The series already has a newer sample, and this sample may not be stored late.
    OutOfOrder,
    /// The series has a different value with this timestamp.
    DuplicateTimestamp,
    /// The sample is older than the limit of the store, which accepts no late samples.
    OutOfBounds,
    /// The sample cannot be appended in order and is older than the limit for late samples.
    TooOld,
    /// The timestamp of the sample is too far in the future.
    TooFarInFuture,
    /// The series is new, and the memory for series is full.
    SeriesLimit,
    /// The series is new, and the tenant has reached its limit of series in memory.
    ActiveSeriesLimit,
    /// The series is new, and the tenant has reached its limit of new series in a window.
    NewSeriesLimit,
    /// The series is new, and its job has reached its limit of new series in a window.
    JobSeriesLimit,
}

/// The samples that were rejected for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedSamples {
    /// The reason of the rejection, which is the same for all these samples.
    pub rejection: SampleRejection,
    /// Number of samples that were rejected for this reason.
    pub count: usize,
    /// The labels of the first rejected sample, for the log and error texts.
    pub first_labels: Labels,
    /// The timestamp of the first rejected sample in milliseconds.
    pub first_time: TimestampMs,
    /// The index of the series of the first rejected sample in the batch that the store received.
    pub first_series: usize,
    /// The limit that was reached, if the reason is a limit with a number.
    pub limit: Option<u64>,
}

/// The reasons why an exemplar is not stored although its samples may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExemplarRejection {
    /// The series already has a newer exemplar. Exemplars of a series are stored in order.
    OutOfOrder,
    /// The labels of the exemplar have too many characters.
    TooLong,
    /// The timestamp of the exemplar is too far in the future.
    TooFarInFuture,
    /// The series does not exist, or all its samples were rejected.
    NoSeries,
}

/// The exemplars that were rejected for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedExemplars {
    /// The reason of the rejection, which is the same for all these exemplars.
    pub refusal: ExemplarRejection,
    /// Number of exemplars that were rejected for this reason.
    pub count: usize,
    /// The labels of the series of the first rejected exemplar.
    pub first_labels: Labels,
    /// The index of that series in the batch that the store received.
    pub first_series: usize,
}

/// The result of an append whose samples are durable and visible.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppendOutcome {
    /// Number of stored samples, including duplicates that were silently accepted.
    pub stored: usize,
    /// Number of stored samples that are native histograms.
    pub stored_histograms: usize,
    /// The rejected exemplars, one entry for each reason that occurred.
    pub refused_exemplars: Vec<RejectedExemplars>,
    /// The rejected samples, one entry per reason, in order of the first occurrence.
    pub rejected: Vec<RejectedSamples>,
}
