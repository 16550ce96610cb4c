//! Native histograms: by how much a source grew, and what results add up to.
//!
//! Counts of integer histograms add up exactly; the sum of observations is a compensated one.
//! Invariant: what is added to an [`Observations`] has buckets of its kind, exponential or custom;
//! callers ask [`Observations::takes`] first.

use super::code::{Malformed, Reader, push_bytes, push_float, push_signed};
use super::failpoints::{self, Flaw};
use firn_model::batch::HistogramSample;
use firn_model::histogram::float::{Accumulator, FloatHistogram, Of};
use firn_model::histogram::{
    Counts, EXPONENTIAL_SCHEMA_MAX, EXPONENTIAL_SCHEMA_MIN, Histogram, ResetHint,
};
use firn_model::kahan::Kahan;
use firn_model::labels::push_uvarint;
use firn_model::sample::{START_UNKNOWN, stale_nan};
use firn_wire::remote_write::{decode_histogram, encode_histogram};

/// Observations of many histograms, added up.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observations {
    /// Buckets and counts; its sum is not kept.
    buckets: FloatHistogram,
    sum: Kahan,
}

impl Observations {
    /// No observation yet, in buckets like those of `histogram`.
    pub(super) fn none_like(histogram: &Histogram) -> Self {
        Self {
            buckets: FloatHistogram::empty_like(&FloatHistogram::from(histogram)),
            sum: Kahan::default(),
        }
    }

    /// Whether `histogram` can be added.
    pub(super) fn takes(&self, histogram: &Histogram) -> bool {
        self.buckets.is_custom() == histogram.has_custom_buckets()
    }

    /// Adds others; what has buckets of the other kind is left out.
    pub(super) fn add(&mut self, other: &Self) {
        if self.buckets.add(&other.buckets).is_ok() {
            self.sum = self.sum.merge(other.sum);
        }
    }

    /// As a sample shows them.
    pub(super) fn value(&self) -> Histogram {
        let mut histogram = self.buckets.clone();
        histogram.compact();
        histogram.hint = ResetHint::Unknown;
        histogram.sum = self.sum.total();
        histogram.into()
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.buckets.heap_bytes()
    }

    /// Appends them.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        push_histogram(out, 0, &self.buckets.clone().into());
        push_float(out, self.sum.sum);
        push_float(out, self.sum.lost);
    }

    /// Reads what [`Observations::encode`] wrote.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let buckets = FloatHistogram::from(&read_histogram(reader)?.histogram);
        let sum = Kahan::new(reader.float()?, reader.float()?);
        Ok(Self { buckets, sum })
    }
}

/// The total of a counter that is made of histograms, and what waits for the end of its interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NativeTotal {
    /// None before the first source.
    total: Option<Observations>,
    /// Increments of intervals that were not written, by end.
    pub(super) pending: Vec<(i64, Observations)>,
}

impl NativeTotal {
    /// Whether `histogram` adds up with what is there.
    pub(super) fn takes(&self, histogram: &Histogram) -> bool {
        let total = self.total.as_ref();
        total.is_none_or(|total| total.takes(histogram))
    }

    /// Counts an increment in the interval that ends at `end`. `like` is the histogram that it
    /// came with.
    pub(super) fn count(&mut self, end: i64, like: &Histogram, increment: Option<FloatHistogram>) {
        self.total
            .get_or_insert_with(|| Observations::none_like(like));
        let Some(mut buckets) = increment.filter(|grown| grown.count != 0.0 || grown.sum != 0.0)
        else {
            return;
        };
        // What is no number would stay in the total for ever.
        let sum = match buckets.sum.is_finite() {
            true => Kahan::new(buckets.sum, 0.0),
            false => Kahan::default(),
        };
        buckets.sum = 0.0;
        let grown = Observations { buckets, sum };
        let mut known = self.pending.iter_mut().rev();
        match known.find(|(known, _)| *known == end) {
            Some((_, pending)) => pending.add(&grown),
            None => self.pending.push((end, grown)),
        }
    }

    /// Moves what waits for ends up to `end` into the total; whether there was something.
    pub(super) fn settle(&mut self, end: i64) -> bool {
        let before = self.pending.len();
        let total = &mut self.total;
        self.pending.retain(|(until, grown)| {
            if *until <= end
                && let Some(total) = total
            {
                total.add(grown);
            }
            *until > end
        });
        self.pending.len() < before
    }

    /// What a sample of the result holds.
    pub(super) fn value(&self) -> Option<Histogram> {
        self.total.as_ref().map(Observations::value)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let pending = self.pending.iter().map(|(_, grown)| grown);
        let all = self.total.iter().chain(pending);
        size_of::<Self>() + all.map(Observations::memory_bytes).sum::<usize>()
    }

    /// Appends the state.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        push_uvarint(out, u64::from(self.total.is_some()));
        if let Some(total) = &self.total {
            total.encode(out);
        }
        let pending: &[(i64, Observations)] = match failpoints::has(Flaw::ForgetsPending) {
            true => &[],
            false => &self.pending,
        };
        push_uvarint(out, pending.len() as u64);
        for (end, grown) in pending {
            push_signed(out, *end);
            grown.encode(out);
        }
    }

    /// Reads what [`NativeTotal::encode`] wrote.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let total = match reader.unsigned()? {
            0 => None,
            _ => Some(Observations::decode(reader)?),
        };
        let mut pending = Vec::new();
        for _ in 0..reader.unsigned()? {
            pending.push((reader.signed()?, Observations::decode(reader)?));
        }
        Ok(Self { total, pending })
    }
}

/// By how much a source grew with a sample that is newer than `newest`, which is what is remembered
/// of it. As [`super::lane`]'s counters: a reset counts from zero, and so does a first sample whose
/// start lies behind `remembered_since`.
pub(super) fn growth(
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
    // Buckets of another kind are a reset, so that the difference exists.
    grown.subtract(&before).ok().map(|_| grown)
}

/// What is made of the histograms of many gauges at one instant.
#[derive(Clone, Debug)]
pub(super) struct NativeFold {
    of: Option<Of>,
    accumulator: Option<Accumulator>,
    /// The newest, for `last`.
    newest: Option<(i64, Histogram)>,
    /// Exponential and custom buckets met: there is no result, as in a query.
    is_mixed: bool,
}

impl NativeFold {
    /// A sum or a mean; without one the newest histogram.
    pub(super) fn new(of: Option<Of>) -> Self {
        Self {
            of,
            accumulator: None,
            newest: None,
            is_mixed: false,
        }
    }

    /// Takes a histogram of `time`.
    pub(super) fn add(&mut self, time: i64, histogram: &Histogram) {
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
            None => self.accumulator = Some(Accumulator::of(of, histogram)),
        }
    }

    /// The result; none without a histogram.
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

/// A histogram that is a staleness marker.
pub(super) fn stale_histogram() -> Histogram {
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 0,
        zero_threshold: 0.0,
        sum: stale_nan(),
        counts: Counts::Integer {
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

/// Appends a histogram of `time` behind its length, as remote write has it.
pub(super) fn push_histogram(out: &mut Vec<u8>, time: i64, histogram: &Histogram) {
    let mut message = Vec::new();
    encode_histogram(&mut message, time, histogram);
    push_bytes(out, &message);
}

/// Reads what [`push_histogram`] wrote; its start is not known.
pub(super) fn read_histogram(reader: &mut Reader<'_>) -> Result<HistogramSample, Malformed> {
    let sample = decode_histogram(reader.bytes()?).map_err(|_| Malformed("histogram"))?;
    let exponential = EXPONENTIAL_SCHEMA_MIN..=EXPONENTIAL_SCHEMA_MAX;
    let is_known = |histogram: &Histogram| {
        histogram.has_custom_buckets() || exponential.contains(&histogram.schema)
    };
    match is_known(&sample.histogram) {
        true => Ok(sample),
        false => Err(Malformed("schema of a histogram")),
    }
}
