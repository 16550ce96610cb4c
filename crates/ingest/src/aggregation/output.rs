//! One series of results: the total of a counter, or what a gauge was last.
//!
//! ```text
//! created -> written at each end while a source lives -> staleness marker -> forgotten
//! ```
//!
//! Increments wait in the interval of their sample, or in the next one that is not written, so that
//! the total is exact whenever they come.

use super::code::{Malformed, Reader, push_bytes, push_float, push_signed};
use super::failpoints::{self, Flaw};
use super::native::NativeTotal;
use super::spec::Kind;
use firn_model::kahan::Kahan;
use firn_model::labels::{Labels, LabelsRef, is_canonical, push_uvarint};

/// When a counter has a source: results are written of ends from the first number to before the
/// second, which is the greatest there is while the span goes on.
type Span = (i64, i64);

/// What samples a result is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// Floats.
    Float,
    /// Native histograms, of which a counter has a total.
    Native(Box<NativeTotal>),
    /// Floats or histograms: what matters is that they are there.
    Any,
}

impl Form {
    /// Whether floats count in it.
    pub(super) fn takes_floats(&self) -> bool {
        !matches!(self, Self::Native(_))
    }

    /// Whether histograms count in it.
    pub(super) fn takes_histograms(&self) -> bool {
        !matches!(self, Self::Float)
    }

    /// Its code, beside that of the kind.
    fn code(&self) -> u8 {
        match self {
            Self::Float => 0,
            Self::Native(_) => 1,
            Self::Any => 2,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Output {
    /// The identity of its rule.
    pub(super) rule: u64,
    /// The number of its rule in the group, as configured.
    pub(super) index: usize,
    /// What it is.
    pub(super) kind: Kind,
    /// What it is made of.
    pub(super) form: Form,
    /// Its labels, the name included.
    pub(super) labels: Labels,
    /// When the total was zero.
    pub(super) start: i64,
    /// All increments of the intervals that were written.
    pub(super) total: Kahan,
    /// Increments of intervals that were not, by end.
    pub(super) pending: Vec<(i64, Kahan)>,
    /// When a counter has a source, as far as that is not written.
    pub(super) spans: Vec<Span>,
    /// The time of the newest sample of a counter.
    pub(super) newest: i64,
    /// Sources that count in it.
    pub(super) entries: u32,
    /// Whether the newest sample that was written of it is no staleness marker.
    pub(super) is_written: bool,
}

impl Output {
    /// One that begins with the interval that ends at `end`.
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

    /// Counts an increment of a sample of `time` in the interval that ends at `end`.
    #[inline]
    pub(super) fn count(&mut self, time: i64, end: i64, increment: f64, lookback_ms: i64) {
        let silent_from = self.newest.saturating_add(lookback_ms);
        match self.spans.last_mut() {
            Some((from, i64::MAX)) if time < silent_from => {
                // Another source may come late.
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

    /// Notes that a source ended at `time`; the last one ends the span.
    pub(super) fn end_source(&mut self, time: i64) {
        if self.entries == 0
            && let Some((_, until @ i64::MAX)) = self.spans.last_mut()
        {
            *until = time;
        }
    }

    /// Whether a counter has a source at `end`. Spans that are over then are forgotten.
    pub(super) fn has_source(&mut self, end: i64, lookback_ms: i64) -> bool {
        let silent_from = self.newest.saturating_add(lookback_ms);
        self.spans
            .retain(|(_, until)| silent_from.min(*until) > end);
        self.spans.iter().any(|(from, _)| *from <= end)
    }

    /// Moves what waits for ends up to `end` into the total; whether there was something.
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

    /// Whether increments wait for the end of their interval.
    fn has_pending(&self) -> bool {
        let is_native = matches!(&self.form, Form::Native(total) if !total.pending.is_empty());
        is_native || !self.pending.is_empty()
    }

    /// Whether nothing is left to say of it.
    pub(super) fn is_over(&self) -> bool {
        let has_more = self.has_pending() || !self.spans.is_empty();
        self.entries == 0 && !self.is_written && !has_more
    }

    /// Bytes of memory.
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

    /// Appends its state.
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

    /// What stands for kind and form.
    pub(super) fn code(&self) -> u8 {
        self.kind as u8 | self.form.code() << 1
    }

    /// Reads what [`Output::encode`] wrote.
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

/// What a result is and what it is made of, by [`Output::code`]; without a total.
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

/// Labels in canonical form.
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
