//! The parser of the protobuf format: a sequence of `MetricFamily` messages, each preceded by its
//! length.
//!
//! A family yields the same events as in the text formats: help, unit and type, then its metrics
//! sample by sample, where summaries and classic histograms are several series. Follows upstream's
//! `model/textparse/protobufparse.go`, except where that loses data: an untyped metric without a
//! value is zero instead of the value of the previous metric, exemplars of all native histograms of
//! a family are emitted, and so is a classic histogram after a native one.

mod exemplar;
mod message;
mod native;

use super::custom::ClassicHistogram;
use super::error::ParseError;
use super::event::{
    ExpositionEntryKind, ExpositionMetadata, ExpositionSample, ExpositionValue, FamilyMetadataField,
};
use super::number::format_openmetrics_float;
use super::pairs::LabelPairs;
use super::series;
use crate::protobuf::put_varint;
use exemplar::push_exemplar;
use firn_model::exemplar::SampleExemplars;
use firn_model::histogram::Histogram;
use firn_model::metadata::MetricType;
use firn_model::quote::quote;
use firn_model::sample::TimestampMs;
use message::{FamilyMessage, MetricMessage, read_label};

/// A byte that never occurs in UTF-8, which separates the parts of a key.
const SEPARATOR: u8 = 0xff;

/// Largest number of bytes in the length before a family.
const LENGTH_BYTES_MAX: usize = 5;

/// The representations in which histograms are emitted, selected by the settings of the job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HistogramEmission {
    /// Emit native histograms as such; otherwise only their classic buckets.
    pub native: bool,
    /// Convert classic histograms to native ones with custom buckets.
    pub converted: bool,
    /// Emit classic histograms even if they are also native or converted.
    pub classic: bool,
}

/// The event that was emitted last, from which the next one follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProtobufParserState {
    /// Nothing yet, or all events of a family.
    Family,
    Help,
    Unit,
    Type,
    /// A sample with a float value: the given part of the metric.
    Series(MetricSamplePart),
    /// A sample with a native or converted histogram.
    Histogram,
}

/// The sample of a metric that is emitted: summaries and classic histograms have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricSamplePart {
    /// The only sample of its metric, without a suffix.
    Whole,
    Count,
    Sum,
    /// A quantile or a bucket, by index; one index after the last bucket is the bucket of infinity.
    Item(usize),
}

/// Parses a delimited protobuf body family by family, and keeps only the current metric decoded.
#[derive(Clone, Debug)]
pub(super) struct ProtobufParser<'t> {
    rest: &'t [u8],
    family: FamilyMessage<'t>,
    kind: MetricType,
    /// Index of the next metric in the family.
    next_metric: usize,
    metric: MetricMessage<'t>,
    state: ProtobufParserState,
    key: Vec<u8>,
    is_expected: bool,
    histogram: Option<Histogram>,
    classic: ClassicHistogram,
    histograms: HistogramEmission,
    is_labelled: bool,
}

impl<'t> ProtobufParser<'t> {
    pub fn new(body: &'t [u8], is_labelled: bool, histograms: HistogramEmission) -> Self {
        Self {
            rest: body,
            family: FamilyMessage::default(),
            kind: MetricType::Unknown,
            next_metric: 0,
            metric: MetricMessage::default(),
            state: ProtobufParserState::Family,
            key: Vec::new(),
            is_expected: false,
            histogram: None,
            classic: ClassicHistogram::default(),
            histograms,
            is_labelled,
        }
    }

    /// Moves to the next entry; returns `None` at the end of the body. Fails if a message is
    /// malformed.
    pub fn advance(&mut self, expected: &[u8]) -> Result<Option<ExpositionEntryKind>, ParseError> {
        self.state = match self.state {
            ProtobufParserState::Family => {
                if self.read_family()? {
                    ProtobufParserState::Help
                } else {
                    return Ok(None);
                }
            }
            ProtobufParserState::Help if !self.family.unit.is_empty() => ProtobufParserState::Unit,
            ProtobufParserState::Help | ProtobufParserState::Unit => ProtobufParserState::Type,
            ProtobufParserState::Type => self.first_sample_state()?,
            ProtobufParserState::Series(part) => match self.part_after(part) {
                Some(part) => ProtobufParserState::Series(part),
                None if self.is_converted() => self.custom_histogram()?,
                None => self.next_metric()?,
            },
            ProtobufParserState::Histogram if self.has_classic_too() => {
                ProtobufParserState::Series(MetricSamplePart::Count)
            }
            ProtobufParserState::Histogram => self.next_metric()?,
        };
        match self.state {
            ProtobufParserState::Family => self.advance(expected),
            ProtobufParserState::Help | ProtobufParserState::Unit | ProtobufParserState::Type => {
                Ok(Some(ExpositionEntryKind::Metadata))
            }
            ProtobufParserState::Series(_) | ProtobufParserState::Histogram => {
                self.write_key();
                self.is_expected = self.key == expected;
                Ok(Some(ExpositionEntryKind::Sample))
            }
        }
    }

    /// Reads the next family that has a metric, and its first metric; returns false at the end.
    /// Fails if a message or its type is invalid.
    fn read_family(&mut self) -> Result<bool, ParseError> {
        loop {
            if self.rest.is_empty() {
                return Ok(false);
            }
            let message = self.take_message()?;
            self.family.read(message)?;
            self.next_metric = 0;
            if self.read_metric()? {
                self.check_family()?;
                return Ok(true);
            }
        }
    }

    /// Reads a length and returns that many bytes; fails if the body is shorter.
    fn take_message(&mut self) -> Result<&'t [u8], ParseError> {
        let body = self.rest;
        let mut length = 0u64;
        for (i, byte) in body.iter().take(LENGTH_BYTES_MAX).enumerate() {
            length |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                let end = i as u64 + 1 + length;
                let taken = usize::try_from(end)
                    .ok()
                    .and_then(|end| body.split_at_checked(end));
                let Some((message, rest)) = taken else {
                    return Err(ParseError::new(format!(
                        "clientpb: insufficient length of buffer, expected at least {end} bytes, \
                         got {} bytes",
                        body.len()
                    )));
                };
                self.rest = rest;
                return Ok(message.get(i + 1..).unwrap_or_default());
            }
        }
        Err(ParseError::new("clientpb: invalid varint encountered"))
    }

    fn check_family(&mut self) -> Result<(), ParseError> {
        let FamilyMessage {
            name, help, kind, ..
        } = &self.family;
        if name.is_empty() || std::str::from_utf8(name).is_err() {
            let name = String::from_utf8_lossy(name);
            return Err(ParseError::new(format!("invalid metric name: {name}")));
        }
        if std::str::from_utf8(help).is_err() {
            let help = String::from_utf8_lossy(help);
            let name = quote(name);
            let message = format!("invalid help for metric {name}: {help}");
            return Err(ParseError::new(message));
        }
        self.kind = match kind {
            0 => MetricType::Counter,
            1 => MetricType::Gauge,
            2 => MetricType::Summary,
            3 => MetricType::Unknown,
            4 => MetricType::Histogram,
            5 => MetricType::GaugeHistogram,
            _ => {
                let name = quote(name);
                let message = format!("unknown metric type for metric {name}: {kind}");
                return Err(ParseError::new(message));
            }
        };
        Ok(())
    }

    /// Reads the next metric of the family; returns false if there is none. Fails if its message is
    /// malformed.
    fn read_metric(&mut self) -> Result<bool, ParseError> {
        let Some(message) = self.family.metrics.get(self.next_metric) else {
            return Ok(false);
        };
        self.next_metric += 1;
        self.metric.read(message)?;
        Ok(true)
    }

    fn next_metric(&mut self) -> Result<ProtobufParserState, ParseError> {
        if self.read_metric()? {
            self.first_sample_state()
        } else {
            Ok(ProtobufParserState::Family)
        }
    }

    /// Returns the state for the first sample of the metric that was just read. Fails if it is an
    /// invalid histogram.
    fn first_sample_state(&mut self) -> Result<ProtobufParserState, ParseError> {
        if self.is_native() {
            return self.native_histogram();
        }
        match self.kind {
            MetricType::Summary => Ok(ProtobufParserState::Series(MetricSamplePart::Count)),
            _ if !self.is_histogram() => Ok(ProtobufParserState::Series(MetricSamplePart::Whole)),
            _ if self.is_converted() && !self.histograms.classic => self.custom_histogram(),
            _ => Ok(ProtobufParserState::Series(MetricSamplePart::Count)),
        }
    }

    fn is_histogram(&self) -> bool {
        matches!(
            self.kind,
            MetricType::Histogram | MetricType::GaugeHistogram
        )
    }

    /// Returns whether the metric is emitted as a native histogram. Otherwise its classic buckets
    /// are emitted.
    fn is_native(&self) -> bool {
        self.is_histogram() && self.histograms.native && self.metric.histogram.is_native()
    }

    /// Returns whether the metric is emitted as a native histogram with custom buckets.
    fn is_converted(&self) -> bool {
        self.is_histogram() && self.histograms.converted && !self.is_native()
    }

    /// Returns whether the native histogram that was just emitted is emitted in classic form too.
    fn has_classic_too(&self) -> bool {
        self.histograms.classic && self.is_native() && !self.metric.histogram.buckets.is_empty()
    }

    fn native_histogram(&mut self) -> Result<ProtobufParserState, ParseError> {
        let is_gauge = self.kind == MetricType::GaugeHistogram;
        let native = self.metric.histogram.to_native(is_gauge).map_err(|e| {
            let name = quote(self.family.name);
            ParseError::new(format!("histogram {name}: {e}"))
        })?;
        self.histogram = Some(native);
        Ok(ProtobufParserState::Histogram)
    }

    fn custom_histogram(&mut self) -> Result<ProtobufParserState, ParseError> {
        let is_gauge = self.kind == MetricType::GaugeHistogram;
        let histogram = &self.metric.histogram;
        self.histogram = Some(histogram.to_custom(&mut self.classic, is_gauge)?);
        Ok(ProtobufParserState::Histogram)
    }

    /// Returns the next float sample of the metric after `part`. Returns `None` after the last one.
    fn part_after(&self, part: MetricSamplePart) -> Option<MetricSamplePart> {
        let next = match part {
            MetricSamplePart::Whole => return None,
            MetricSamplePart::Count => return Some(MetricSamplePart::Sum),
            MetricSamplePart::Sum => 0,
            MetricSamplePart::Item(index) => index + 1,
        };
        if self.kind == MetricType::Summary {
            let has_next = next < self.metric.summary.quantiles.len();
            return has_next.then_some(MetricSamplePart::Item(next));
        }
        // The bucket of infinity is the last one, whether the target sent it or not.
        let is_done = next
            .checked_sub(1)
            .is_some_and(|last| self.bound(last) == f64::INFINITY);
        (!is_done).then_some(MetricSamplePart::Item(next))
    }

    /// Returns the upper bound of a bucket, or the quantile. The bucket of infinity need not be in
    /// the message.
    fn bound(&self, index: usize) -> f64 {
        let metric = &self.metric;
        let bound = match self.kind {
            MetricType::Summary => metric.summary.quantiles.get(index).map(|q| q.0),
            _ => metric.histogram.buckets.get(index).map(|b| b.bound),
        };
        bound.unwrap_or(f64::INFINITY)
    }

    fn value(&self, part: MetricSamplePart) -> f64 {
        let MetricMessage {
            summary, histogram, ..
        } = &self.metric;
        match (self.kind, part) {
            (MetricType::Counter, _) => self.metric.counter.value,
            (MetricType::Gauge, _) => self.metric.gauge,
            (MetricType::Summary, MetricSamplePart::Count) => summary.count as f64,
            (MetricType::Summary, MetricSamplePart::Sum) => summary.sum,
            (MetricType::Summary, MetricSamplePart::Item(i)) => {
                summary.quantiles.get(i).map_or(0.0, |q| q.1)
            }
            (MetricType::Histogram | MetricType::GaugeHistogram, part) => match part {
                MetricSamplePart::Sum => histogram.sum,
                MetricSamplePart::Item(i) => histogram
                    .buckets
                    .get(i)
                    .map_or(histogram.total_count(), |bucket| bucket.cumulative_count()),
                _ => histogram.total_count(),
            },
            _ => self.metric.untyped,
        }
    }

    /// Returns the part that distinguishes the sample from others with the same labels.
    fn part(&self) -> MetricSamplePart {
        match self.state {
            ProtobufParserState::Series(part) => part,
            _ => MetricSamplePart::Whole,
        }
    }

    /// Writes the inputs of the labels into the key, in the order of the body: labels are decoded
    /// only if the key is new.
    fn write_key(&mut self) {
        let (tag, bound) = match self.part() {
            MetricSamplePart::Whole => (0, 0.0),
            MetricSamplePart::Count => (1, 0.0),
            MetricSamplePart::Sum => (2, 0.0),
            MetricSamplePart::Item(index) => (3, self.bound(index)),
        };
        self.key.clear();
        self.key.extend_from_slice(self.family.name);
        self.key
            .extend_from_slice(&[SEPARATOR, self.kind as u8, tag]);
        if tag == 3 {
            self.key.extend_from_slice(&bound.to_bits().to_le_bytes());
        }
        for label in &self.metric.labels {
            put_varint(&mut self.key, label.len() as u64);
            self.key.extend_from_slice(label);
        }
    }

    pub fn sample(&self) -> ExpositionSample<'_> {
        ExpositionSample {
            key: &self.key,
            is_expected: self.is_expected,
            time: Some(self.metric.time).filter(|time| *time != 0),
            start: None,
            value: match (&self.histogram, self.state) {
                (Some(histogram), ProtobufParserState::Histogram) => {
                    ExpositionValue::Histogram(histogram)
                }
                _ => ExpositionValue::Float(self.value(self.part())),
            },
        }
    }

    pub fn metadata(&self) -> ExpositionMetadata<'_> {
        ExpositionMetadata {
            name: self.family.name,
            field: match self.state {
                ProtobufParserState::Help => FamilyMetadataField::Help(self.family.help.into()),
                ProtobufParserState::Unit => FamilyMetadataField::Unit(self.family.unit),
                _ => FamilyMetadataField::Type(self.kind),
            },
        }
    }

    /// Returns the start time of the current sample in milliseconds, or zero.
    pub fn start(&self) -> TimestampMs {
        match self.kind {
            MetricType::Counter => self.metric.counter.start,
            MetricType::Summary => self.metric.summary.start,
            MetricType::Histogram | MetricType::GaugeHistogram => self.metric.histogram.start,
            _ => 0,
        }
    }

    /// Replaces `out` with the labels of the current sample.
    pub fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        let family = series::FamilyTypeAndUnit {
            kind: self.kind,
            unit: self.family.unit,
            is_labelled: self.is_labelled,
        };
        let bucket: (&str, &str) = match self.kind {
            MetricType::Summary => ("", "quantile"),
            _ => ("_bucket", "le"),
        };
        let part = self.part();
        let suffix = match part {
            MetricSamplePart::Whole => "",
            MetricSamplePart::Count => "_count",
            MetricSamplePart::Sum => "_sum",
            MetricSamplePart::Item(_) => bucket.0,
        };
        let name = [self.family.name, suffix.as_bytes()].concat();
        out.clear();
        family.write_name(&name, out);
        for message in &self.metric.labels {
            let (label, value) = read_label(message)?;
            let is_invalid = |text: &[u8]| std::str::from_utf8(text).is_err();
            if let Some(label) = label.filter(|label| label.is_empty() || is_invalid(label)) {
                let label = String::from_utf8_lossy(label);
                return Err(ParseError::new(format!("invalid label name: {label}")));
            }
            if is_invalid(value) {
                let value = String::from_utf8_lossy(value);
                return Err(ParseError::new(format!("invalid label value: {value}")));
            }
            let label = label.unwrap_or_default();
            if !family.has_own_label(label, &name) {
                out.push(label, value);
            }
        }
        if let MetricSamplePart::Item(index) = part {
            let bound = format_openmetrics_float(self.bound(index));
            out.push(bucket.1.as_bytes(), bound.as_bytes());
        }
        out.sort();
        Ok(())
    }

    /// Appends the exemplars of the current sample. Those of native histograms must have a
    /// timestamp.
    pub fn exemplars(&self, out: &mut SampleExemplars) {
        let metric = &self.metric;
        match (self.kind, self.state) {
            (MetricType::Counter, _) => push_exemplar(metric.counter.exemplar, false, out),
            (MetricType::Histogram | MetricType::GaugeHistogram, state) => match state {
                ProtobufParserState::Series(MetricSamplePart::Item(index)) => {
                    let bucket = metric.histogram.buckets.get(index);
                    push_exemplar(bucket.and_then(|bucket| bucket.exemplar), false, out);
                }
                ProtobufParserState::Histogram if metric.histogram.exemplars.is_empty() => {
                    for bucket in &metric.histogram.buckets {
                        push_exemplar(bucket.exemplar, true, out);
                    }
                }
                ProtobufParserState::Histogram => {
                    for exemplar in &metric.histogram.exemplars {
                        push_exemplar(Some(exemplar), true, out);
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
}
