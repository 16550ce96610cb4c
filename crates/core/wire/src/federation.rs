//! Writes the response of `/federate`: one sample of each series, in the format that the client
//! negotiates.
//!
//! ```text
//! Accept --negotiate--> Format --Families: series by series, sorted by name--> bytes
//! ```
//!
//! The bytes equal those of Prometheus (`web/federate.go` and the encoders of its client library).
//! Formats are text and delimited protocol buffers; only the latter contain native histograms.
//!
//! Invariant: consecutive samples with the same name and kind form one family.

mod accept;
mod name;
mod protobuf;
mod text;

pub use accept::{FederationFormat, NameEscaping};

use firn_model::histogram::{Histogram, ResetHint};
use firn_model::labels::{Labels, LabelsRef};
use firn_model::sample::TimestampMs;
use name::escape_name;
use protobuf::FederatedProtobufFamily;

/// The label whose value is the metric name.
const NAME: &str = "__name__";

/// The value of a federated sample: the latest one of its series, borrowed from the query result.
#[derive(Clone, Copy, Debug)]
pub enum FederatedValue<'a> {
    /// A float.
    Float(f64),
    /// A native histogram, with exponential or custom buckets.
    Histogram(&'a Histogram),
}

/// The kind of a family, which selects its `# TYPE` line. Gauge histograms form separate families.
/// Consecutive samples of another kind start a new family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FederatedFamilyKind {
    Untyped,
    Histogram,
    GaugeHistogram,
}

impl FederatedFamilyKind {
    fn from_value(value: FederatedValue<'_>) -> Self {
        match value {
            FederatedValue::Float(_) => FederatedFamilyKind::Untyped,
            FederatedValue::Histogram(h) if h.reset_hint == ResetHint::Gauge => {
                FederatedFamilyKind::GaugeHistogram
            }
            FederatedValue::Histogram(_) => FederatedFamilyKind::Histogram,
        }
    }
}

/// A sample with its labels in the form in which they are written: escaped, with external labels,
/// and without the name.
struct FederatedSample<'a> {
    /// All labels except for the metric name.
    labels: &'a [(String, Vec<u8>)],
    value: FederatedValue<'a>,
    time: TimestampMs,
}

/// Groups the samples of a federation response into families and writes them in one format. Samples
/// must arrive grouped by name; the response can be sent in parts while it grows.
#[derive(Debug)]
pub struct FederationWriter {
    format: FederationFormat,
    external: Vec<(String, Vec<u8>)>,
    /// Name and kind of the unfinished family.
    open: Option<(Vec<u8>, FederatedFamilyKind)>,
    /// The unfinished family in the protobuf format, which is written as a whole.
    family: FederatedProtobufFamily,
    labels: Vec<(String, Vec<u8>)>,
}

impl FederationWriter {
    /// Returns a writer for this format. Each series gets the `external` labels that it does not
    /// have itself. Series without `instance` get an empty one, so that the scraping server does
    /// not add its own.
    pub fn new(format: FederationFormat, external: &Labels) -> Self {
        let pairs = external.iter();
        let mut all: Vec<_> = pairs.map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
        if external.get("instance").is_empty() {
            all.push(("instance".to_owned(), Vec::new()));
            all.sort();
        }
        Self {
            format,
            external: all,
            open: None,
            family: FederatedProtobufFamily::default(),
            labels: Vec::new(),
        }
    }

    /// Returns whether the format can represent such a value; in text, that excludes exponential
    /// histograms.
    fn can_represent(&self, value: FederatedValue<'_>) -> bool {
        match value {
            FederatedValue::Float(_) => true,
            FederatedValue::Histogram(h) => self.format.is_protobuf() || h.has_custom_buckets(),
        }
    }

    /// Appends a sample to `out`. Leaves out series without a name, and in the text format native
    /// histograms with exponential buckets.
    pub fn push(
        &mut self,
        out: &mut Vec<u8>,
        labels: LabelsRef<'_>,
        time: TimestampMs,
        value: FederatedValue<'_>,
    ) {
        let name = labels.iter().find(|(name, _)| *name == NAME);
        let Some((_, name)) = name.filter(|_| self.can_represent(value)) else {
            return;
        };
        let kind = FederatedFamilyKind::from_value(value);
        let is_open = |(open, of): &(Vec<u8>, FederatedFamilyKind)| open == name && *of == kind;
        if !self.open.as_ref().is_some_and(is_open) {
            self.begin(out, name, kind);
        }
        self.set_labels(labels);
        let written = FederatedSample {
            labels: &self.labels,
            value,
            time,
        };
        let name = String::from_utf8_lossy(name);
        let name = escape_name(&name, self.format.escaping());
        if self.format.is_protobuf() {
            self.family.push(&written)
        } else {
            text::push(out, &name, &written)
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>, name: &[u8], kind: FederatedFamilyKind) {
        self.finish(out);
        self.open = Some((name.to_vec(), kind));
        let name = String::from_utf8_lossy(name);
        let name = escape_name(&name, self.format.escaping());
        if self.format.is_protobuf() {
            self.family.begin(&name, kind)
        } else {
            text::begin(out, &name, kind)
        }
    }

    fn set_labels(&mut self, labels: LabelsRef<'_>) {
        let escaping = self.format.escaping();
        self.labels.clear();
        for (name, value) in labels.iter().filter(|(name, _)| *name != NAME) {
            let name = escape_name(name, escaping).into_owned();
            self.labels.push((name, value.to_vec()));
        }
        for (name, value) in &self.external {
            let is_there = labels.iter().any(|(known, _)| known == name);
            if !is_there {
                let name = escape_name(name, escaping).into_owned();
                self.labels.push((name, value.clone()));
            }
        }
    }

    /// Finishes the current family, so that all its bytes are in `out`.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() && self.format.is_protobuf() {
            self.family.finish(out);
        }
    }
}

#[cfg(test)]
mod tests;
