//! One result series: the total of a counter, or the latest value of a gauge.
//!
//! ```text
//! created -> written at each end while a source lives -> staleness marker -> forgotten
//! ```
//!
//! Increments wait in the interval of their sample, or in the next one that is not written yet, so
//! that the total is exact whatever the order of arrival.

use super::code::{Malformed, Reader, push_bytes, push_float, push_signed};
use super::failpoints::{self, Flaw};
use super::native::NativeTotal;
use super::spec::Kind;
use firn_model::kahan::Kahan;
use firn_model::labels::{Labels, LabelsRef, is_canonical, push_uvarint};

/// A period in which a counter has a source: results are written from the first timestamp to before
/// the second, which is `i64::MAX` while the period continues.
type Span = (i64, i64);

/// The sample type of a result's sources, which the first source determines.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// Floats, as most sources have.
    Float,
    /// Native histograms, with the total if the result is a counter.
    Native(Box<NativeTotal>),
    /// Floats or histograms, of which only the presence counts.
    Any,
}

impl Form {
    /// Returns whether floats are accepted as samples of the sources.
    pub(super) fn takes_floats(&self) -> bool {
        !matches!(self, Self::Native(_))
    }

    /// Returns whether histograms are accepted as samples of the sources.
    pub(super) fn takes_histograms(&self) -> bool {
        !matches!(self, Self::Float)
    }

    /// Returns the code of the form, which the journal combines with that of the kind.
    fn code(&self) -> u8 {
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
pub(super) struct Output {
    /// Identity of its rule, which survives a reload.
    pub(super) rule: u64,
    /// Index of its rule in the configured group.
    pub(super) index: usize,
    /// Counter or gauge, which decides about pending increments.
    pub(super) kind: Kind,
    /// Sample type of its sources.
    pub(super) form: Form,
    /// Labels of the result, including the metric name.
    pub(super) labels: Labels,
    /// Timestamp at which the total was zero, written as the start timestamp.
    pub(super) start: i64,
    /// Sum of the increments in written intervals.
    pub(super) total: Kahan,
    /// Increments of intervals that are not written yet, by the end of the interval.
    pub(super) pending: Vec<(i64, Kahan)>,
    /// Periods in which a counter has a source, as far as they are not written.
    pub(super) spans: Vec<Span>,
    /// Timestamp of the newest sample, for a counter.
    pub(super) newest: i64,
    /// Number of its sources, in this lane.
    pub(super) entries: u32,
    /// True if the latest written sample is not a staleness marker.
    pub(super) is_written: bool,
}

impl Output {
    /// Returns an output whose first interval ends at `end`.
    pub(super) fn new(
        rule: u64,
        (kind, form): (Kind, Form),
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
            total: Kahan::default(),
            pending: Vec::new(),
            spans: Vec::new(),
            newest: i64::MIN,
            entries: 0,
            is_written: false,
        }
    }

    /// Counts an increment of a sample at `time` in the interval that ends at `end`.
    #[inline]
    pub(super) fn count(&mut self, time: i64, end: i64, increment: f64, lookback_ms: i64) {
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
            None => self.pending.push((end, Kahan::new(increment, 0.0))),
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
    pub(super) fn has_source(&mut self, end: i64, lookback_ms: i64) -> bool {
        let silent_from = self.newest.saturating_add(lookback_ms);
        self.spans
            .retain(|(_, until)| silent_from.min(*until) > end);
        self.spans.iter().any(|(from, _)| *from <= end)
    }

    /// Moves the increments of intervals up to `end` into the total; returns whether there were
    /// any.
    pub(super) fn settle(&mut self, end: i64) -> bool {
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
            Form::Native(total) => total.settle(end) || has_grown,
            Form::Float | Form::Any => has_grown,
        }
    }

    /// Returns whether increments wait for the end of their interval.
    fn has_pending(&self) -> bool {
        let is_native = matches!(&self.form, Form::Native(total) if !total.pending.is_empty());
        is_native || !self.pending.is_empty()
    }

    /// Returns whether the output will never be written again and can be removed.
    pub(super) fn is_over(&self) -> bool {
        let has_more = self.has_pending() || !self.spans.is_empty();
        self.entries == 0 && !self.is_written && !has_more
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let native = match &self.form {
            Form::Native(total) => total.memory_bytes(),
            Form::Float | Form::Any => 0,
        };
        size_of::<Self>()
            + native
            + self.labels.as_bytes().len()
            + self.pending.capacity() * size_of::<(i64, Kahan)>()
            + self.spans.capacity() * size_of::<Span>()
    }

    /// Appends the encoded state.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.rule.to_le_bytes());
        out.push(self.code());
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
        let pending: &[(i64, Kahan)] = match failpoints::has(Flaw::ForgetsPending) {
            true => &[],
            false => &self.pending,
        };
        push_uvarint(out, pending.len() as u64);
        for (end, sum) in pending {
            push_signed(out, *end);
            push_sum(out, *sum);
        }
        if let Form::Native(total) = &self.form {
            total.encode(out);
        }
    }

    /// Returns the journal code for kind and form.
    pub(super) fn code(&self) -> u8 {
        self.kind as u8 | self.form.code() << 1
    }

    /// Reads the state that [`Output::encode`] wrote. Fails if it is malformed.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let rule = u64::from_le_bytes(reader.array()?);
        let (kind, mut form) = read_kind(reader)?;
        let labels = read_labels(reader)?;
        let (start, newest) = (reader.signed()?, reader.signed()?);
        let is_written = reader.byte()? != 0;
        let total = read_sum(reader)?;
        let mut spans = Vec::new();
        for _ in 0..reader.unsigned()? {
            spans.push((reader.signed()?, reader.signed()?));
        }
        let mut pending = Vec::new();
        for _ in 0..reader.unsigned()? {
            pending.push((reader.signed()?, read_sum(reader)?));
        }
        if let Form::Native(total) = &mut form {
            **total = NativeTotal::decode(reader)?;
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

/// Reads the kind of a result and the sample type of its sources from an [`Output::code`]; a total
/// starts empty.
pub(super) fn read_kind(reader: &mut Reader<'_>) -> Result<(Kind, Form), Malformed> {
    let code = reader.byte()?;
    let kind = match code & 1 {
        0 => Kind::Counter,
        _ => Kind::Gauge,
    };
    match code >> 1 {
        0 => Ok((kind, Form::Float)),
        1 => Ok((kind, Form::Native(Box::default()))),
        2 => Ok((kind, Form::Any)),
        _ => Err(Malformed("kind of an output")),
    }
}

/// Reads labels, which must be in canonical form. Fails if they are not.
pub(super) fn read_labels(reader: &mut Reader<'_>) -> Result<Labels, Malformed> {
    let bytes = reader.bytes()?;
    match is_canonical(bytes) {
        true => Ok(LabelsRef::from_canonical(bytes).to_owned()),
        false => Err(Malformed("labels")),
    }
}

fn push_sum(out: &mut Vec<u8>, sum: Kahan) {
    push_float(out, sum.sum);
    push_float(out, sum.lost);
}

fn read_sum(reader: &mut Reader<'_>) -> Result<Kahan, Malformed> {
    Ok(Kahan::new(reader.float()?, reader.float()?))
}
