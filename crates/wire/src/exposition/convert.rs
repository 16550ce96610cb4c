//! Classic histograms of the text formats as native ones with custom buckets.
//!
//! ```text
//! h_bucket{le="1"} h_bucket{le="+Inf"} h_sum h_count | next      lines of the body
//! '------------------ collected ------------------'    |
//!                                                      h         emitted before the next event
//! ```
//!
//! Follows upstream's `model/textparse/nhcbparse.go`: the samples of one histogram, which stand
//! next to each other, are collected; what cannot be a histogram after all is dropped.

use super::custom::ClassicHistogram;
use super::error::ParseError;
use super::event::{Entry, Field, Metadata, Sample, Value};
use super::number::parse_any_notation;
use super::pairs::LabelPairs;
use super::source::Source;
use firn_model::exemplar::Exemplars;
use firn_model::histogram::Histogram;
use firn_model::labels::METRIC_NAME;
use firn_model::metadata::MetricType;
use firn_model::quote::quote;
use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// The label that holds a classic bucket's upper bound.
const BOUND_LABEL: &[u8] = b"le";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The event of the inner parser is handed on.
    Passing,
    /// Samples of a classic histogram are being collected.
    Collecting,
    /// A converted histogram is handed on; the event of the inner parser comes next.
    Telling,
}

/// Converts the classic histograms that another parser finds.
#[derive(Debug)]
pub(super) struct Converter<'t> {
    source: Source<'t>,
    keeps_classic: bool,
    state: State,
    /// What the source has found last; `None` at its end.
    entry: Option<Entry>,
    is_expected: bool,
    /// The time of the sample that the source has found last.
    time: Option<TimestampMs>,
    /// Labels of that sample, if it may belong to a histogram.
    labels: LabelPairs,
    /// Whether that sample's exemplars went to a histogram.
    gave_exemplars: bool,
    /// The family whose type was stated last.
    family: Vec<u8>,
    kind: MetricType,
    collected: Collected,
    told: Told,
}

/// A classic histogram that is being collected.
#[derive(Debug, Default)]
struct Collected {
    name: Vec<u8>,
    /// Names and values of its labels.
    identity: Vec<u8>,
    labels: LabelPairs,
    histogram: ClassicHistogram,
    exemplars: Exemplars,
    start: TimestampMs,
}

/// A converted histogram.
#[derive(Debug, Default)]
struct Told {
    key: Vec<u8>,
    labels: LabelPairs,
    histogram: Option<Histogram>,
    exemplars: Exemplars,
    start: TimestampMs,
}

impl<'t> Converter<'t> {
    pub fn new(source: Source<'t>, keeps_classic: bool) -> Self {
        Self {
            source,
            keeps_classic,
            state: State::Passing,
            entry: None,
            is_expected: false,
            time: None,
            labels: LabelPairs::default(),
            gave_exemplars: false,
            family: Vec::new(),
            kind: MetricType::Unknown,
            collected: Collected::default(),
            told: Told::default(),
        }
    }

    /// Goes to the next entry.
    pub fn advance(&mut self, expected: &[u8]) -> Result<Option<Entry>, ParseError> {
        loop {
            let is_classic = match self.state {
                State::Telling => {
                    self.state = State::Passing;
                    self.entry == Some(Entry::Sample) && self.collect()
                }
                _ => {
                    self.entry = self.read(expected)?;
                    let ends_here = self.entry != Some(Entry::Sample) || self.is_other_metric();
                    if ends_here && self.convert() {
                        self.is_expected = self.told.key == expected;
                        return Ok(Some(Entry::Sample));
                    }
                    self.entry == Some(Entry::Sample) && self.collect()
                }
            };
            if !is_classic || self.keeps_classic {
                self.is_expected =
                    self.entry == Some(Entry::Sample) && self.source.sample().key == expected;
                return Ok(self.entry);
            }
        }
    }

    /// Lets the source go on and takes what matters here of what it finds.
    fn read(&mut self, expected: &[u8]) -> Result<Option<Entry>, ParseError> {
        let is_histogram = self.kind == MetricType::Histogram;
        let entry = self
            .source
            .advance(if is_histogram { b"" } else { expected })?;
        match entry {
            Some(Entry::Sample) => {
                self.time = self.source.sample().time;
                self.gave_exemplars = false;
                if is_histogram {
                    self.source.labels(&mut self.labels)?;
                }
            }
            Some(Entry::Metadata) => {
                if let Metadata {
                    name,
                    field: Field::Type(kind),
                } = self.source.metadata()
                {
                    self.kind = kind;
                    self.family.clear();
                    self.family.extend_from_slice(name);
                }
            }
            Some(Entry::Comment) | None => {}
        }
        Ok(entry)
    }

    /// Whether the sample belongs to another histogram than the one collected, or to none.
    fn is_other_metric(&self) -> bool {
        if self.state != State::Collecting || self.kind != MetricType::Histogram {
            return true;
        }
        let (_, name) = split_suffix(metric_name(&self.labels));
        name != self.collected.name || identity(&self.labels) != self.collected.identity
    }

    /// Collects the sample if it is a part of a classic histogram.
    fn collect(&mut self) -> bool {
        if self.kind != MetricType::Histogram {
            return false;
        }
        let (part, name) = split_suffix(metric_name(&self.labels));
        if name != self.family {
            return false;
        }
        let Value::Float(value) = self.source.sample().value else {
            return false;
        };
        let bound = self.labels.iter().find(|(name, _)| *name == BOUND_LABEL);
        let bound = bound.and_then(|(_, value)| parse_any_notation(value));
        match (part, bound.filter(|bound| !bound.is_nan())) {
            (Part::Bucket, Some(bound)) => {
                self.begin();
                self.collected.histogram.set_bucket(bound, value);
            }
            (Part::Count, _) => {
                self.begin();
                self.collected.histogram.set_count(value);
            }
            (Part::Sum, _) => {
                self.begin();
                self.collected.histogram.set_sum(value);
            }
            _ => return false,
        }
        true
    }

    /// Begins a histogram unless one is being collected, and takes the sample's exemplars.
    fn begin(&mut self) {
        if self.state != State::Collecting {
            self.state = State::Collecting;
            let (_, name) = split_suffix(metric_name(&self.labels));
            let collected = &mut self.collected;
            collected.name = name.to_vec();
            collected.identity = identity(&self.labels);
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

    /// Converts what was collected, if that can be.
    fn convert(&mut self) -> bool {
        if self.state != State::Collecting {
            return false;
        }
        let collected = &mut self.collected;
        let converted = collected.histogram.convert();
        if let Ok(histogram) = &converted
            && histogram.validate().is_err()
        {
            // Upstream goes on collecting, too.
            return false;
        }
        let is_converted = converted.is_ok();
        self.state = match is_converted {
            true => State::Telling,
            false => State::Passing,
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

    /// Since when the current sample counts, or zero.
    pub fn start(&mut self) -> TimestampMs {
        match self.state {
            State::Passing if self.entry == Some(Entry::Sample) => self.source.start(),
            State::Passing => START_UNKNOWN,
            State::Collecting => self.collected.start,
            State::Telling => self.told.start,
        }
    }

    pub fn sample(&self) -> Sample<'_> {
        let found = match (self.state, &self.told.histogram) {
            (State::Telling, Some(histogram)) => Sample {
                key: &self.told.key,
                is_expected: false,
                // Upstream takes that of the sample after it, if there is one.
                time: self.time,
                start: None,
                value: Value::Histogram(histogram),
            },
            _ => self.source.sample(),
        };
        Sample {
            is_expected: self.is_expected,
            ..found
        }
    }

    pub fn metadata(&self) -> Metadata<'_> {
        self.source.metadata()
    }

    /// Writes the labels of the current sample.
    pub fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        if self.state != State::Telling {
            return self.source.labels(out);
        }
        out.clone_from(&self.told.labels);
        Ok(())
    }

    /// Adds the exemplars of the current sample.
    pub fn exemplars(&self, out: &mut Exemplars) {
        if self.state == State::Telling {
            out.extend(&self.told.exemplars);
        } else if !self.gave_exemplars {
            self.source.exemplars(out);
        }
    }
}

/// What a sample is of a classic histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Bucket,
    Sum,
    Count,
    None,
}

/// What a sample of this name is, and the name of its histogram.
fn split_suffix(name: &[u8]) -> (Part, &[u8]) {
    let parts: [(&[u8], Part); 3] = [
        (b"_bucket", Part::Bucket),
        (b"_sum", Part::Sum),
        (b"_count", Part::Count),
    ];
    for (suffix, part) in parts {
        if let Some(base) = name.strip_suffix(suffix) {
            return (part, base);
        }
    }
    (Part::None, name)
}

fn metric_name(labels: &LabelPairs) -> &[u8] {
    let name = labels
        .iter()
        .find(|(name, _)| *name == METRIC_NAME.as_bytes());
    name.map(|(_, value)| value).unwrap_or_default()
}

/// Names and values but for the metric's name and the bucket's bound.
fn identity(labels: &LabelPairs) -> Vec<u8> {
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

/// Writes a series as it would stand in a text.
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
        match is_plain {
            true => key.extend_from_slice(name),
            false => key.extend_from_slice(quote(name).as_bytes()),
        }
        key.push(b'=');
        key.extend_from_slice(quote(value).as_bytes());
    }
    if separator == b',' {
        key.push(b'}');
    }
}
