//! A lane with its group and its changes; converts samples to the sample type of their results.

use crate::entries::SourceEntry;
use crate::lane::{AggregationLane, SampleVerdict, SourceSample};
use crate::native::stale_histogram;
use crate::ops::LaneOps;
use crate::output::OutputSampleType;
use firn_model::batch::HistogramSample;
use firn_model::sample::{START_UNKNOWN, is_stale, stale_nan};

/// A lane with its group, and its changes that are not in the journal yet. Lanes of removed groups
/// leave a free position.
#[derive(Debug)]
pub(super) struct LaneSlot {
    pub(super) group: String,
    /// Number of the lane in its group.
    pub(super) number: usize,
    pub(super) lane: AggregationLane,
    pub(super) ops: LaneOps,
    /// During a replay: true if changes before its next snapshot are missing.
    pub(super) is_lost: bool,
    /// Verdicts that were not added to the metrics yet.
    pub(super) verdicts: [u64; SampleVerdict::COUNT],
}

impl LaneSlot {
    /// Returns lane `number` of the group.
    pub(super) fn new(group: &str, number: usize, lane: AggregationLane) -> Self {
        Self {
            group: group.to_owned(),
            number,
            lane,
            ops: LaneOps::default(),
            is_lost: false,
            verdicts: [0; SampleVerdict::COUNT],
        }
    }

    /// Adds a sample of the source `at`, converted to the sample type of its result.
    #[inline]
    pub(super) fn add_sample(&mut self, at: u32, sample: SourceSampleRef<'_>) -> SampleVerdict {
        match sample {
            SourceSampleRef::Float(sample) if is_stale(sample.value) => {
                self.end_source(at, &sample)
            }
            SourceSampleRef::Float(sample) => self.lane.add_sample(at, &sample, &mut self.ops),
            SourceSampleRef::Histogram(sample) => self.add_histogram(at, sample),
        }
    }

    /// Ends the source `at`. The marker is a float, whatever the type of the samples.
    fn end_source(&mut self, at: u32, sample: &SourceSample) -> SampleVerdict {
        if !matches!(
            self.lane.output_type_of_source(at),
            Some(OutputSampleType::Native(_))
        ) {
            return self.lane.add_sample(at, sample, &mut self.ops);
        }
        let end = HistogramSample {
            time: sample.time,
            start_time: START_UNKNOWN,
            histogram: stale_histogram(),
        };
        self.lane.add_histogram(at, &end, &mut self.ops)
    }

    /// Adds a histogram of the source `at`, converted to the sample type of its result.
    fn add_histogram(&mut self, at: u32, sample: &HistogramSample) -> SampleVerdict {
        let is_stale = sample.histogram.is_stale();
        if !is_stale && sample.histogram.validate().is_err() {
            // The store rejects the sample and reports the reason.
            return SampleVerdict::Mixed;
        }
        let presence = SourceSample {
            time: sample.time,
            start: START_UNKNOWN,
            value: if is_stale { stale_nan() } else { 0.0 },
        };
        match self.lane.output_type_of_source(at) {
            Some(OutputSampleType::Native(_)) => self.lane.add_histogram(at, sample, &mut self.ops),
            Some(OutputSampleType::Any) => self.lane.add_sample(at, &presence, &mut self.ops),
            Some(OutputSampleType::Float) if is_stale => {
                self.lane.add_sample(at, &presence, &mut self.ops)
            }
            Some(OutputSampleType::Float) => SampleVerdict::Mixed,
            None => SampleVerdict::Repeated,
        }
    }

    /// Creates a source at the number `at` with the properties of `entry`.
    pub(super) fn create_source(&mut self, at: u32, entry: SourceEntry) {
        self.ops.push_create(at, entry.print, entry.output);
        self.lane.create_source(at, entry.print, entry.output);
        if let Some(created) = self.lane.entries.get_mut(at) {
            created.generation = entry.generation;
            created.set_flag(SourceEntry::DROPS, entry.has_flag(SourceEntry::DROPS));
        }
    }
}

/// A sample of a batch, of either type, as its source is fed with it.
#[derive(Clone, Copy, Debug)]
pub(super) enum SourceSampleRef<'a> {
    Float(SourceSample),
    Histogram(&'a HistogramSample),
}

impl SourceSampleRef<'_> {
    pub(super) fn is_stale(self) -> bool {
        match self {
            Self::Float(sample) => is_stale(sample.value),
            Self::Histogram(sample) => sample.histogram.is_stale(),
        }
    }
}
