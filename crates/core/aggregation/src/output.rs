//! One result series: the total of a counter, or the latest value of a gauge.
//!
//! ```text
//! created -> written at each end while a source lives -> staleness marker -> forgotten
//! ```
//!
//! Increments wait in the interval of their sample, or in the next one that is not written yet, so
//! that the total is exact whatever the order of arrival.

use super::code::{
    AggregationJournalError, AggregationJournalReader, push_bytes, push_float, push_signed,
};
use super::failpoints::{self, AggregationFlaw};
use super::native::HistogramCounterTotal;
use super::spec::AggregatedMetricKind;
use firn_model::kahan::KahanSum;
use firn_model::labels::{Labels, LabelsRef, is_canonical, push_uvarint};

/// A period in which a counter has a source: results are written from the first timestamp to before
/// the second, which is `i64::MAX` while the period continues.
type Span = (i64, i64);

/// The sample type of a result's sources, which the first source determines.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OutputSampleType {
    /// Floats, as most sources have.
    Float,
    /// Native histograms, with the total if the result is a counter.
    Native(Box<HistogramCounterTotal>),
    /// Floats or histograms, of which only the presence counts.
    Any,
}

impl OutputSampleType {
    /// Returns whether floats are accepted as samples of the sources.
    pub(super) fn accepts_floats(&self) -> bool {
        !matches!(self, Self::Native(_))
    }

    /// Returns whether histograms are accepted as samples of the sources.
    pub(super) fn accepts_histograms(&self) -> bool {
        !matches!(self, Self::Float)
    }

    /// Returns the code of the form, which the journal combines with that of the kind.
    fn journal_code(&self) -> u8 {
        match self {
            Self::Float => 0,
            Self::Native(_) => 1,
            Self::Any => 2,
        }
    }
}

/// The state of one result series, which exists as long as it has sources, pending increments, or a
/// written result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AggregationOutput {
    /// Identity of its rule, which survives a reload.
    pub(super) rule: u64,
    /// Index of its rule in the configured group.
    pub(super) index: usize,
    /// Counter or gauge, which decides about pending increments.
    pub(super) kind: AggregatedMetricKind,
    /// Sample type of its sources.
    pub(super) form: OutputSampleType,
    /// Labels of the result, including the metric name.
    pub(super) labels: Labels,
    /// Timestamp at which the total was zero, written as the start timestamp.
    pub(super) start: i64,
    /// Sum of the increments in written intervals.
    pub(super) total: KahanSum,
    /// Increments of intervals that are not written yet, by the end of the interval.
    pub(super) pending: Vec<(i64, KahanSum)>,
    /// Periods in which a counter has a source, as far as they are not written.
    pub(super) spans: Vec<Span>,
    /// Timestamp of the newest sample, for a counter.
    pub(super) newest: i64,
    /// Number of its sources, in this lane.
    pub(super) entries: u32,
    /// True if the latest written sample is not a staleness marker.
    pub(super) is_written: bool,
}

impl AggregationOutput {
    /// Returns an output whose first interval ends at `end`.
    pub(super) fn new(
        rule: u64,
        kind: AggregatedMetricKind,
        form: OutputSampleType,
        labels: Labels,
        end: i64,
        interval_ms: i64,
    ) -> Self {
        Self {
            rule,
            index: 0,
            kind,
            form,
            labels,
            start: end.saturating_sub(interval_ms),
            total: KahanSum::default(),
            pending: Vec::new(),
            spans: Vec::new(),
            newest: i64::MIN,
            entries: 0,
            is_written: false,
        }
    }

    /// Counts an increment of a sample at `time` in the interval that ends at `end`.
    #[inline]
    pub(super) fn add_increment(&mut self, time: i64, end: i64, increment: f64, lookback_ms: i64) {
        let silent_from = self.newest.saturating_add(lookback_ms);
        match self.spans.last_mut() {
            Some((from, i64::MAX)) if time < silent_from => {
                // A late sample of another source can extend the period backwards.
                if end < *from {
                    *from = end;
                }
            }
            Some((_, until)) => {
                *until = silent_from.min(*until);
                self.spans.push((end, i64::MAX));
            }
            None => self.spans.push((end, i64::MAX)),
        }
        self.newest = self.newest.max(time);
        if increment == 0.0 {
            return;
        }
        let mut known = self.pending.iter_mut().rev();
        match known.find(|(known, _)| *known == end) {
            Some((_, sum)) => *sum = sum.plus(increment),
            None => self.pending.push((end, KahanSum::new(increment, 0.0))),
        }
    }

    /// Records that a source ended at `time`; the end of the last source ends the period.
    pub(super) fn end_source(&mut self, time: i64) {
        if self.entries == 0
            && let Some((_, until @ i64::MAX)) = self.spans.last_mut()
        {
            *until = time;
        }
    }

    /// Returns whether a counter has a source at `end`. Removes periods that have ended by then.
    pub(super) fn has_source_at(&mut self, end: i64, lookback_ms: i64) -> bool {
        let silent_from = self.newest.saturating_add(lookback_ms);
        self.spans
            .retain(|(_, until)| silent_from.min(*until) > end);
        self.spans.iter().any(|(from, _)| *from <= end)
    }

    /// Moves the increments of intervals up to `end` into the total; returns whether there were
    /// any.
    pub(super) fn settle_increments(&mut self, end: i64) -> bool {
        let before = self.pending.len();
        let total = &mut self.total;
        self.pending.retain(|(until, sum)| {
            if *until <= end {
                *total = total.merge(*sum);
            }
            *until > end
        });
        let has_grown = self.pending.len() < before;
        match &mut self.form {
            OutputSampleType::Native(total) => total.settle_increments(end) || has_grown,
            OutputSampleType::Float | OutputSampleType::Any => has_grown,
        }
    }

    /// Returns whether increments wait for the end of their interval.
    fn has_pending(&self) -> bool {
        let is_native =
            matches!(&self.form, OutputSampleType::Native(total) if !total.pending.is_empty());
        is_native || !self.pending.is_empty()
    }

    /// Returns whether the output will never be written again and can be removed.
    pub(super) fn is_removable(&self) -> bool {
        let has_more = self.has_pending() || !self.spans.is_empty();
        self.entries == 0 && !self.is_written && !has_more
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let native = match &self.form {
            OutputSampleType::Native(total) => total.memory_bytes(),
            OutputSampleType::Float | OutputSampleType::Any => 0,
        };
        size_of::<Self>()
            + native
            + self.labels.as_bytes().len()
            + self.pending.capacity() * size_of::<(i64, KahanSum)>()
            + self.spans.capacity() * size_of::<Span>()
    }

    /// Appends the encoded state.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.rule.to_le_bytes());
        out.push(self.journal_code());
        push_bytes(out, self.labels.as_bytes());
        push_signed(out, self.start);
        push_signed(out, self.newest);
        out.push(u8::from(self.is_written));
        push_sum(out, self.total);
        push_uvarint(out, self.spans.len() as u64);
        for (from, until) in &self.spans {
            push_signed(out, *from);
            push_signed(out, *until);
        }
        let pending: &[(i64, KahanSum)] = if failpoints::has(AggregationFlaw::ForgetsPending) {
            &[]
        } else {
            &self.pending
        };
        push_uvarint(out, pending.len() as u64);
        for (end, sum) in pending {
            push_signed(out, *end);
            push_sum(out, *sum);
        }
        if let OutputSampleType::Native(total) = &self.form {
            total.encode(out);
        }
    }

    /// Returns the journal code for kind and form.
    pub(super) fn journal_code(&self) -> u8 {
        self.kind as u8 | self.form.journal_code() << 1
    }

    /// Reads the state that [`AggregationOutput::encode`] wrote. Fails if it is malformed.
    pub(super) fn decode(
        reader: &mut AggregationJournalReader<'_>,
    ) -> Result<Self, AggregationJournalError> {
        let rule = u64::from_le_bytes(reader.read_array()?);
        let (kind, mut form) = read_kind(reader)?;
        let labels = read_labels(reader)?;
        let (start, newest) = (reader.read_signed()?, reader.read_signed()?);
        let is_written = reader.read_byte()? != 0;
        let total = read_sum(reader)?;
        let mut spans = Vec::new();
        for _ in 0..reader.read_unsigned()? {
            spans.push((reader.read_signed()?, reader.read_signed()?));
        }
        let mut pending = Vec::new();
        for _ in 0..reader.read_unsigned()? {
            pending.push((reader.read_signed()?, read_sum(reader)?));
        }
        if let OutputSampleType::Native(total) = &mut form {
            **total = HistogramCounterTotal::decode(reader)?;
        }
        Ok(Self {
            rule,
            index: 0,
            kind,
            form,
            labels,
            start,
            total,
            pending,
            spans,
            newest,
            entries: 0,
            is_written,
        })
    }
}

/// Reads the kind of a result and the sample type of its sources from an
/// [`AggregationOutput::journal_code`]; a total starts empty.
pub(super) fn read_kind(
    reader: &mut AggregationJournalReader<'_>,
) -> Result<(AggregatedMetricKind, OutputSampleType), AggregationJournalError> {
    let code = reader.read_byte()?;
    let kind = match code & 1 {
        0 => AggregatedMetricKind::Counter,
        _ => AggregatedMetricKind::Gauge,
    };
    match code >> 1 {
        0 => Ok((kind, OutputSampleType::Float)),
        1 => Ok((kind, OutputSampleType::Native(Box::default()))),
        2 => Ok((kind, OutputSampleType::Any)),
        _ => Err(AggregationJournalError("kind of an output")),
    }
}

/// Reads labels, which must be in canonical form. Fails if they are not.
pub(super) fn read_labels(
    reader: &mut AggregationJournalReader<'_>,
) -> Result<Labels, AggregationJournalError> {
    let bytes = reader.read_bytes()?;
    if is_canonical(bytes) {
        Ok(LabelsRef::from_canonical(bytes).to_owned())
    } else {
        Err(AggregationJournalError("labels"))
    }
}

fn push_sum(out: &mut Vec<u8>, sum: KahanSum) {
    push_float(out, sum.sum);
    push_float(out, sum.lost);
}

fn read_sum(
    reader: &mut AggregationJournalReader<'_>,
) -> Result<KahanSum, AggregationJournalError> {
    Ok(KahanSum::new(reader.read_float()?, reader.read_float()?))
}
