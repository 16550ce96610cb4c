//! Converts classic histograms of the text formats to native histograms with custom buckets.
//!
//! ```text
//! h_bucket{le="1"} h_bucket{le="+Inf"} h_sum h_count | next      lines of the body
//! '------------------ collected ------------------'    |
//!                                                      h         emitted before the next event
//! ```
//!
//! Follows upstream's `model/textparse/nhcbparse.go`: adjacent samples of one histogram are
//! collected and emitted as one native histogram. A collected group that is not a valid histogram
//! is dropped.

use super::custom::ClassicHistogram;
use super::error::ParseError;
use super::event::{
    ExpositionEntryKind, ExpositionMetadata, ExpositionSample, ExpositionValue, FamilyMetadataField,
};
use super::number::parse_any_notation;
use super::pairs::LabelPairs;
use super::source::FormatParser;
use firn_model::exemplar::SampleExemplars;
use firn_model::histogram::Histogram;
use firn_model::labels::METRIC_NAME;
use firn_model::metadata::MetricType;
use firn_model::quote::quote;
use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// The label that holds the upper bound of a classic bucket.
const BOUND_LABEL: &[u8] = b"le";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistogramConverterState {
    /// The converter forwards the event of the inner parser.
    Passing,
    /// The converter collects samples of a classic histogram.
    Collecting,
    /// The converter emits a converted histogram; the pending event of the inner parser follows.
    Telling,
}

/// Wraps the parser of a text format and converts the classic histograms in its events, which it
/// may also keep.
#[derive(Debug)]
pub(super) struct HistogramConverter<'t> {
    source: FormatParser<'t>,
    keeps_classic: bool,
    state: HistogramConverterState,
    /// The latest entry of the source; `None` at its end.
    entry: Option<ExpositionEntryKind>,
    is_expected: bool,
    /// Timestamp of the latest sample of the source.
    time: Option<TimestampMs>,
    /// Labels of that sample, read only if it may belong to a histogram.
    labels: LabelPairs,
    /// True if the exemplars of that sample were moved to a collected histogram.
    gave_exemplars: bool,
    /// Name of the family in the latest `# TYPE` line.
    family: Vec<u8>,
    kind: MetricType,
    collected: CollectedHistogram,
    told: ConvertedHistogram,
}

/// A classic histogram whose samples are being collected, until a sample of another series arrives.
/// Its identity is the label set without `le`.
#[derive(Debug, Default)]
struct CollectedHistogram {
    name: Vec<u8>,
    /// Names and values of its labels without the metric name and `le`.
    identity: Vec<u8>,
    labels: LabelPairs,
    histogram: ClassicHistogram,
    exemplars: SampleExemplars,
    start: TimestampMs,
}

/// A converted histogram that is ready to be emitted as one sample, with its key and labels. It
/// remains valid until the next histogram is converted.
#[derive(Debug, Default)]
struct ConvertedHistogram {
    key: Vec<u8>,
    labels: LabelPairs,
    histogram: Option<Histogram>,
    exemplars: SampleExemplars,
    start: TimestampMs,
}

impl<'t> HistogramConverter<'t> {
    pub fn new(source: FormatParser<'t>, keeps_classic: bool) -> Self {
        Self {
            source,
            keeps_classic,
            state: HistogramConverterState::Passing,
            entry: None,
            is_expected: false,
            time: None,
            labels: LabelPairs::default(),
            gave_exemplars: false,
            family: Vec::new(),
            kind: MetricType::Unknown,
            collected: CollectedHistogram::default(),
            told: ConvertedHistogram::default(),
        }
    }

    /// Moves to the next entry, which may be a converted histogram; `None` at the end of the body.
    pub fn advance(&mut self, expected: &[u8]) -> Result<Option<ExpositionEntryKind>, ParseError> {
        loop {
            let is_classic = match self.state {
                HistogramConverterState::Telling => {
                    self.state = HistogramConverterState::Passing;
                    self.entry == Some(ExpositionEntryKind::Sample) && self.collect()
                }
                _ => {
                    self.entry = self.read(expected)?;
                    let ends_here =
                        self.entry != Some(ExpositionEntryKind::Sample) || self.is_other_metric();
                    if ends_here && self.convert() {
                        self.is_expected = self.told.key == expected;
                        return Ok(Some(ExpositionEntryKind::Sample));
                    }
                    self.entry == Some(ExpositionEntryKind::Sample) && self.collect()
                }
            };
            if !is_classic || self.keeps_classic {
                self.is_expected = self.entry == Some(ExpositionEntryKind::Sample)
                    && self.source.sample().key == expected;
                return Ok(self.entry);
            }
        }
    }

    /// Advances the source and copies the fields of its entry that the conversion needs. Fails if
    /// the source does.
    fn read(&mut self, expected: &[u8]) -> Result<Option<ExpositionEntryKind>, ParseError> {
        let is_histogram = self.kind == MetricType::Histogram;
        let entry = self
            .source
            .advance(if is_histogram { b"" } else { expected })?;
        match entry {
            Some(ExpositionEntryKind::Sample) => {
                self.time = self.source.sample().time;
                self.gave_exemplars = false;
                if is_histogram {
                    self.source.labels(&mut self.labels)?;
                }
            }
            Some(ExpositionEntryKind::Metadata) => {
                if let ExpositionMetadata {
                    name,
                    field: FamilyMetadataField::Type(kind),
                } = self.source.metadata()
                {
                    self.kind = kind;
                    self.family.clear();
                    self.family.extend_from_slice(name);
                }
            }
            Some(ExpositionEntryKind::Comment) | None => {}
        }
        Ok(entry)
    }

    /// Returns whether the current sample belongs to another histogram than the collected one, or
    /// to none.
    fn is_other_metric(&self) -> bool {
        if self.state != HistogramConverterState::Collecting || self.kind != MetricType::Histogram {
            return true;
        }
        let (_, name) = split_suffix(metric_name(&self.labels));
        name != self.collected.name || encode_identity(&self.labels) != self.collected.identity
    }

    /// Adds the current sample to the collected histogram; returns false if it is not part of a
    /// classic histogram.
    fn collect(&mut self) -> bool {
        if self.kind != MetricType::Histogram {
            return false;
        }
        let (part, name) = split_suffix(metric_name(&self.labels));
        if name != self.family {
            return false;
        }
        let ExpositionValue::Float(value) = self.source.sample().value else {
            return false;
        };
        let bound = self.labels.iter().find(|(name, _)| *name == BOUND_LABEL);
        let bound = bound.and_then(|(_, value)| parse_any_notation(value));
        match (part, bound.filter(|bound| !bound.is_nan())) {
            (ClassicSampleRole::Bucket, Some(bound)) => {
                self.begin();
                self.collected.histogram.set_bucket(bound, value);
            }
            (ClassicSampleRole::Count, _) => {
                self.begin();
                self.collected.histogram.set_count(value);
            }
            (ClassicSampleRole::Sum, _) => {
                self.begin();
                self.collected.histogram.set_sum(value);
            }
            _ => return false,
        }
        true
    }

    /// Starts a histogram with the labels of the current sample unless one is being collected
    /// already, and takes the exemplars of the sample.
    fn begin(&mut self) {
        if self.state != HistogramConverterState::Collecting {
            self.state = HistogramConverterState::Collecting;
            let (_, name) = split_suffix(metric_name(&self.labels));
            let collected = &mut self.collected;
            collected.name = name.to_vec();
            collected.identity = encode_identity(&self.labels);
            collected.start = self.source.start();
            collected.labels.clear();
            for (label, value) in self.labels.iter() {
                if label == METRIC_NAME.as_bytes() {
                    collected.labels.push(label, name);
                } else if label != BOUND_LABEL && !value.is_empty() {
                    collected.labels.push(label, value);
                }
            }
        }
        self.source.exemplars(&mut self.collected.exemplars);
        self.gave_exemplars = true;
    }

    /// Converts the collected histogram; returns false if nothing was collected or the result is
    /// invalid.
    fn convert(&mut self) -> bool {
        if self.state != HistogramConverterState::Collecting {
            return false;
        }
        let collected = &mut self.collected;
        let converted = collected.histogram.convert();
        if let Ok(histogram) = &converted
            && histogram.validate().is_err()
        {
            // Upstream keeps collecting into the invalid histogram too.
            return false;
        }
        let is_converted = converted.is_ok();
        self.state = if is_converted {
            HistogramConverterState::Telling
        } else {
            HistogramConverterState::Passing
        };
        if let Ok(histogram) = converted {
            self.told.histogram = Some(histogram);
            std::mem::swap(&mut self.told.labels, &mut collected.labels);
            std::mem::swap(&mut self.told.exemplars, &mut collected.exemplars);
            write_key(&self.told.labels, &mut self.told.key);
            self.told.start = collected.start;
        }
        collected.exemplars.clear();
        collected.histogram.clear();
        is_converted
    }

    /// Returns the start time of the current sample, or zero if it is unknown.
    pub fn start(&mut self) -> TimestampMs {
        match self.state {
            HistogramConverterState::Passing if self.entry == Some(ExpositionEntryKind::Sample) => {
                self.source.start()
            }
            HistogramConverterState::Passing => START_UNKNOWN,
            HistogramConverterState::Collecting => self.collected.start,
            HistogramConverterState::Telling => self.told.start,
        }
    }

    pub fn sample(&self) -> ExpositionSample<'_> {
        let found = match (self.state, &self.told.histogram) {
            (HistogramConverterState::Telling, Some(histogram)) => ExpositionSample {
                key: &self.told.key,
                is_expected: false,
                // Upstream uses the timestamp of the sample after the histogram, if there is one.
                time: self.time,
                start: None,
                value: ExpositionValue::Histogram(histogram),
            },
            _ => self.source.sample(),
        };
        ExpositionSample {
            is_expected: self.is_expected,
            ..found
        }
    }

    pub fn metadata(&self) -> ExpositionMetadata<'_> {
        self.source.metadata()
    }

    /// Replaces `out` with the labels of the current sample. Those of a converted histogram have no
    /// `le`.
    pub fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        if self.state != HistogramConverterState::Telling {
            return self.source.labels(out);
        }
        out.clone_from(&self.told.labels);
        Ok(())
    }

    /// Appends the exemplars of the current sample to `out`.
    pub fn exemplars(&self, out: &mut SampleExemplars) {
        if self.state == HistogramConverterState::Telling {
            out.extend(&self.told.exemplars);
        } else if !self.gave_exemplars {
            self.source.exemplars(out);
        }
    }
}

/// The role of a sample within a classic histogram, derived from the suffix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClassicSampleRole {
    Bucket,
    Sum,
    Count,
    None,
}

/// Returns the role of a sample with this name, and the name without the suffix of that role.
fn split_suffix(name: &[u8]) -> (ClassicSampleRole, &[u8]) {
    let parts: [(&[u8], ClassicSampleRole); 3] = [
        (b"_bucket", ClassicSampleRole::Bucket),
        (b"_sum", ClassicSampleRole::Sum),
        (b"_count", ClassicSampleRole::Count),
    ];
    for (suffix, part) in parts {
        if let Some(base) = name.strip_suffix(suffix) {
            return (part, base);
        }
    }
    (ClassicSampleRole::None, name)
}

fn metric_name(labels: &LabelPairs) -> &[u8] {
    let name = labels
        .iter()
        .find(|(name, _)| *name == METRIC_NAME.as_bytes());
    name.map(|(_, value)| value).unwrap_or_default()
}

/// Encodes label names and values, without the metric name and `le`, as a key that identifies one
/// histogram of a family.
fn encode_identity(labels: &LabelPairs) -> Vec<u8> {
    let mut identity = Vec::new();
    for (name, value) in labels.iter() {
        if name != METRIC_NAME.as_bytes() && name != BOUND_LABEL {
            for part in [name, value] {
                identity.extend_from_slice(&part.len().to_le_bytes());
                identity.extend_from_slice(part);
            }
        }
    }
    identity
}

/// Writes the series to `key` in the syntax of the text format.
fn write_key(labels: &LabelPairs, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(metric_name(labels));
    let mut separator = b'{';
    for (name, value) in labels
        .iter()
        .filter(|(name, _)| *name != METRIC_NAME.as_bytes())
    {
        key.push(separator);
        separator = b',';
        let is_plain = !name.first().is_none_or(u8::is_ascii_digit)
            && name.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_');
        if is_plain {
            key.extend_from_slice(name)
        } else {
            key.extend_from_slice(quote(name).as_bytes())
        }
        key.push(b'=');
        key.extend_from_slice(quote(value).as_bytes());
    }
    if separator == b',' {
        key.push(b'}');
    }
}
