//! Aggregates native histograms: the increase of a source, and the sums of results.
//!
//! Counts of integer histograms add up exactly; the sum of observations uses Kahan summation.
//! Invariant: all histograms in an [`ObservationSum`] have the same kind of buckets, exponential or
//! custom; callers must check [`ObservationSum::takes`] first.

use super::code::{
    AggregationJournalError, AggregationJournalReader, push_bytes, push_float, push_signed,
};
use super::failpoints::{self, AggregationFlaw};
use firn_model::batch::HistogramSample;
use firn_model::histogram::float::{FloatHistogram, HistogramAccumulator, HistogramAggregate};
use firn_model::histogram::{
    EXPONENTIAL_SCHEMA_MAX, EXPONENTIAL_SCHEMA_MIN, Histogram, HistogramCounts, ResetHint,
};
use firn_model::kahan::KahanSum;
use firn_model::labels::push_uvarint;
use firn_model::sample::{START_UNKNOWN, stale_nan};
use firn_wire::remote_write::{decode_histogram, encode_histogram};

/// The sum of many histograms with the same kind of buckets, in the coarsest of their schemas.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObservationSum {
    /// Buckets and counts; its field `sum` is not used.
    buckets: FloatHistogram,
    sum: KahanSum,
}

impl ObservationSum {
    /// Returns an empty sum with the kind of buckets of `histogram`.
    pub(super) fn empty_like(histogram: &Histogram) -> Self {
        Self {
            buckets: FloatHistogram::empty_like(&FloatHistogram::from(histogram)),
            sum: KahanSum::default(),
        }
    }

    /// Returns whether `histogram` has the same kind of buckets.
    pub(super) fn has_same_buckets(&self, histogram: &Histogram) -> bool {
        self.buckets.is_custom() == histogram.has_custom_buckets()
    }

    /// Adds another sum; ignores one with the other kind of buckets.
    pub(super) fn add_sum(&mut self, other: &Self) {
        if self.buckets.add(&other.buckets).is_ok() {
            self.sum = self.sum.merge(other.sum);
        }
    }

    /// Returns the sum as the histogram of a sample.
    pub(super) fn to_histogram(&self) -> Histogram {
        let mut histogram = self.buckets.clone();
        histogram.compact();
        histogram.hint = ResetHint::Unknown;
        histogram.sum = self.sum.total();
        histogram.into()
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.buckets.heap_bytes()
    }

    /// Appends the encoded sum.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        push_histogram(out, 0, &self.buckets.clone().into());
        push_float(out, self.sum.sum);
        push_float(out, self.sum.lost);
    }

    /// Reads a sum that [`ObservationSum::encode`] wrote. Fails if it is malformed.
    pub(super) fn decode(
        reader: &mut AggregationJournalReader<'_>,
    ) -> Result<Self, AggregationJournalError> {
        let buckets = FloatHistogram::from(&read_histogram(reader)?.histogram);
        let sum = KahanSum::new(reader.read_float()?, reader.read_float()?);
        Ok(Self { buckets, sum })
    }
}

/// The total of a counter of histograms, with increments that wait for the end of their interval.
/// Part of an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HistogramCounterTotal {
    /// The total; `None` before the first source.
    total: Option<ObservationSum>,
    /// Increments of intervals that are not written yet, by the end of the interval.
    pub(super) pending: Vec<(i64, ObservationSum)>,
}

impl HistogramCounterTotal {
    /// Returns whether `histogram` is compatible with the total.
    pub(super) fn is_compatible(&self, histogram: &Histogram) -> bool {
        let total = self.total.as_ref();
        total.is_none_or(|total| total.has_same_buckets(histogram))
    }

    /// Adds an increment to the interval that ends at `end`. `like` is the histogram that caused
    /// it.
    pub(super) fn add_increment(
        &mut self,
        end: i64,
        like: &Histogram,
        increment: Option<FloatHistogram>,
    ) {
        self.total
            .get_or_insert_with(|| ObservationSum::empty_like(like));
        let Some(mut buckets) = increment.filter(|grown| grown.count != 0.0 || grown.sum != 0.0)
        else {
            return;
        };
        // A total with NaN or infinity would never recover.
        let sum = if buckets.sum.is_finite() {
            KahanSum::new(buckets.sum, 0.0)
        } else {
            KahanSum::default()
        };
        buckets.sum = 0.0;
        let grown = ObservationSum { buckets, sum };
        let mut known = self.pending.iter_mut().rev();
        match known.find(|(known, _)| *known == end) {
            Some((_, pending)) => pending.add_sum(&grown),
            None => self.pending.push((end, grown)),
        }
    }

    /// Moves the increments of intervals up to `end` into the total; returns whether there were
    /// any.
    pub(super) fn settle_increments(&mut self, end: i64) -> bool {
        let before = self.pending.len();
        let total = &mut self.total;
        self.pending.retain(|(until, grown)| {
            if *until <= end
                && let Some(total) = total
            {
                total.add_sum(grown);
            }
            *until > end
        });
        self.pending.len() < before
    }

    /// Returns the total as the histogram of a sample. Returns `None` before the first source.
    pub(super) fn to_histogram(&self) -> Option<Histogram> {
        self.total.as_ref().map(ObservationSum::to_histogram)
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let pending = self.pending.iter().map(|(_, grown)| grown);
        let all = self.total.iter().chain(pending);
        size_of::<Self>() + all.map(ObservationSum::memory_bytes).sum::<usize>()
    }

    /// Appends the encoded state.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        push_uvarint(out, u64::from(self.total.is_some()));
        if let Some(total) = &self.total {
            total.encode(out);
        }
        let pending: &[(i64, ObservationSum)] = if failpoints::has(AggregationFlaw::ForgetsPending)
        {
            &[]
        } else {
            &self.pending
        };
        push_uvarint(out, pending.len() as u64);
        for (end, grown) in pending {
            push_signed(out, *end);
            grown.encode(out);
        }
    }

    /// Reads the state that [`HistogramCounterTotal::encode`] wrote. Fails if it is malformed.
    pub(super) fn decode(
        reader: &mut AggregationJournalReader<'_>,
    ) -> Result<Self, AggregationJournalError> {
        let total = match reader.read_unsigned()? {
            0 => None,
            _ => Some(ObservationSum::decode(reader)?),
        };
        let mut pending = Vec::new();
        for _ in 0..reader.read_unsigned()? {
            pending.push((reader.read_signed()?, ObservationSum::decode(reader)?));
        }
        Ok(Self { total, pending })
    }
}

/// Returns the increase of a source with a sample that is newer than `newest`, its previous one.
/// Like the float counters of [`super::lane`]: after a reset the counter restarted at zero, and so
/// it did before a first sample whose start timestamp is after `remembered_since`.
pub(super) fn compute_increase(
    newest: Option<(i64, &Histogram)>,
    sample: &HistogramSample,
    remembered_since: i64,
) -> Option<FloatHistogram> {
    let now = FloatHistogram::from(&sample.histogram);
    let start = sample.start_time;
    let has_start = start != START_UNKNOWN && start <= sample.time;
    let Some((time, newest)) = newest else {
        return (has_start && start > remembered_since).then_some(now);
    };
    let before = FloatHistogram::from(newest);
    if has_start && start >= time || now.is_reset_after(&before) {
        return Some(now);
    }
    let mut grown = now;
    // Other kinds of buckets count as a reset, so that the difference exists.
    grown.subtract(&before).ok().map(|_| grown)
}

/// The aggregation of the histograms of many gauges at one instant: a sum, a mean, or the newest
/// one.
#[derive(Clone, Debug)]
pub(super) struct HistogramFold {
    of: Option<HistogramAggregate>,
    accumulator: Option<HistogramAccumulator>,
    /// Newest histogram, for the operator `last`.
    newest: Option<(i64, Histogram)>,
    /// True if exponential and custom buckets were mixed: there is no result, as in a query.
    is_mixed: bool,
}

impl HistogramFold {
    /// Returns an empty sum or mean; with `None`, the newest histogram becomes the result.
    pub(super) fn new(of: Option<HistogramAggregate>) -> Self {
        Self {
            of,
            accumulator: None,
            newest: None,
            is_mixed: false,
        }
    }

    /// Adds a histogram with its timestamp.
    pub(super) fn add_histogram(&mut self, time: i64, histogram: &Histogram) {
        let Some(of) = self.of else {
            if self
                .newest
                .as_ref()
                .is_none_or(|(newest, _)| time > *newest)
            {
                self.newest = Some((time, histogram.clone()));
            }
            return;
        };
        let histogram = FloatHistogram::from(histogram);
        match &mut self.accumulator {
            Some(accumulator) => self.is_mixed |= accumulator.add(&histogram).is_err(),
            None => self.accumulator = Some(HistogramAccumulator::new(of, histogram)),
        }
    }

    /// Returns the result; `None` without histograms or with mixed buckets.
    pub(super) fn result(self) -> Option<Histogram> {
        if self.is_mixed {
            return None;
        }
        if let Some((_, newest)) = self.newest {
            return Some(newest);
        }
        let mut result = self.accumulator?.finish();
        result.compact();
        Some(result.into())
    }
}

/// Returns a histogram that is a staleness marker.
pub(super) fn stale_histogram() -> Histogram {
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 0,
        zero_threshold: 0.0,
        sum: stale_nan(),
        counts: HistogramCounts::Integer {
            count: 0,
            zero_count: 0,
            positive: Vec::new(),
            negative: Vec::new(),
        },
        positive_spans: Vec::new(),
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    }
}

/// Appends a histogram with its timestamp in the encoding of remote write, preceded by its length.
pub(super) fn push_histogram(out: &mut Vec<u8>, time: i64, histogram: &Histogram) {
    let mut message = Vec::new();
    encode_histogram(&mut message, time, histogram);
    push_bytes(out, &message);
}

/// Reads a histogram that [`push_histogram`] wrote, without a start timestamp. Fails if its schema
/// is unknown.
pub(super) fn read_histogram(
    reader: &mut AggregationJournalReader<'_>,
) -> Result<HistogramSample, AggregationJournalError> {
    let sample =
        decode_histogram(reader.read_bytes()?).map_err(|_| AggregationJournalError("histogram"))?;
    let exponential = EXPONENTIAL_SCHEMA_MIN..=EXPONENTIAL_SCHEMA_MAX;
    let is_known = |histogram: &Histogram| {
        histogram.has_custom_buckets() || exponential.contains(&histogram.schema)
    };
    if is_known(&sample.histogram) {
        Ok(sample)
    } else {
        Err(AggregationJournalError("schema of a histogram"))
    }
}
