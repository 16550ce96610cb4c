//! The samples of one series of a batch.

use crate::histogram::Histogram;
use crate::labels::LabelsRef;
use crate::sample::TimestampMs;
use std::ops::Range;

/// The state of the labels of a series, as stored in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelDecodeState {
    Canonical,
    Unread,
    Read(LabelDecodeOutcome),
}

/// The result of decoding the labels of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelDecodeOutcome {
    /// The labels are valid, and their canonical form is in the arena. The key may differ from the
    /// one that the key format creates from the labels.
    Stands,
    /// The labels are valid, and the key equals the one that the key format creates from them.
    StandsByKey,
    /// The labels are invalid, so the series is rejected.
    Refused,
}

/// A native histogram sample, together with its timestamps.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSample {
    /// The timestamp of the sample in milliseconds.
    pub time: TimestampMs,
    /// The start timestamp of the counter, or [`crate::sample::START_UNKNOWN`].
    pub start_time: TimestampMs,
    /// The value of the sample: a histogram with integer or float counts.
    pub histogram: Histogram,
}

/// The position of a series' labels, in the arena or in the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelSpan {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) form: LabelDecodeState,
}

impl LabelSpan {
    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The end of a series' samples in the columns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleColumnEnds {
    pub(super) floats: u32,
    pub(super) histograms: u32,
}

/// A view of one series in a batch, which borrows from the columns.
#[derive(Clone, Copy, Debug)]
pub struct SeriesSamples<'a> {
    /// The label set. Empty while it is undecoded; see [`super::Batch::key`].
    pub labels: LabelsRef<'a>,
    /// The timestamps of the float samples in order of arrival.
    pub times: &'a [TimestampMs],
    /// The values of the float samples; one for each timestamp.
    pub values: &'a [f64],
    /// The start timestamps of the float samples: one for each timestamp, or none at all.
    pub start_times: &'a [TimestampMs],
    /// The histogram samples of the series in order of arrival.
    pub histograms: &'a [HistogramSample],
}
