//! The parser of the OpenMetrics text format, versions 0.0.1 and 1.0.0, which it treats alike.
//!
//! ```text
//! name{label="value",...} value [time] [# {label="value",...} value [time]]
//! {"name",label="value",...} ...
//! # HELP name text      # TYPE name type      # UNIT name unit      # EOF
//! ```
//!
//! Follows upstream's `model/textparse/openmetricsparse.go` in the accepted syntax and the error
//! texts. Start times are separate samples with the suffix `_created`; [`start`] finds them.

mod line;
mod start;

use super::error::ParseError;
use super::event::{
    ExpositionEntryKind, ExpositionMetadata, ExpositionPosition, ExpositionSample, ExpositionValue,
    FamilyMetadataField,
};
use super::pairs::LabelPairs;
use super::series::{FamilyTypeAndUnit, unescape, write_labels};
use firn_model::exemplar::SampleExemplars;
use firn_model::labels::LabelsBuilder;
use firn_model::metadata::MetricType;
use line::OpenMetricsLine;
use start::{CREATED, CreatedTimestampCache};

/// Parses an OpenMetrics text line by line, with the start times of its `_created` samples if
/// requested.
#[derive(Clone, Debug)]
pub(super) struct OpenMetricsParser<'t> {
    line: OpenMetricsLine<'t>,
    is_expected: bool,
    is_labelled: bool,
    /// True if `_created` samples are left out because their values become start times.
    skips_created: bool,
    starts: CreatedTimestampCache<'t>,
}

impl<'t> OpenMetricsParser<'t> {
    pub fn new(text: &'t [u8], is_labelled: bool, skips_created: bool) -> Self {
        Self {
            line: OpenMetricsLine::new(text),
            is_expected: false,
            is_labelled,
            skips_created,
            starts: CreatedTimestampCache::new(text),
        }
    }

    pub fn position(&self) -> ExpositionPosition {
        self.line.position()
    }

    pub fn resume(&mut self, kind: MetricType) {
        self.line.kind = kind;
    }

    /// Moves to the next entry; returns `None` at the end. A sample of the series `expected` is not
    /// parsed beyond its key.
    pub fn advance(&mut self, expected: &[u8]) -> Result<Option<ExpositionEntryKind>, ParseError> {
        // The fast path does not parse the name, which decides whether a sample is left out.
        if !self.skips_created && self.line.read_expected(expected)? {
            self.is_expected = true;
            return Ok(Some(ExpositionEntryKind::Sample));
        }
        loop {
            let entry = self.line.read()?;
            if entry != Some(ExpositionEntryKind::Sample) {
                return Ok(entry);
            }
            if !(self.skips_created && self.is_created()) {
                self.is_expected = self.line.key() == expected;
                return Ok(entry);
            }
        }
    }

    fn is_created(&self) -> bool {
        self.has_start() && self.line.name().ends_with(CREATED)
    }

    /// Returns whether samples of the current type can have a start time.
    fn has_start(&self) -> bool {
        matches!(
            self.line.kind,
            MetricType::Counter | MetricType::Histogram | MetricType::Summary
        )
    }

    /// Returns the start time of the current sample, or zero. From the first call on, `_created`
    /// samples are left out.
    pub fn start(&mut self) -> i64 {
        if !self.has_start() {
            self.starts.clear_known();
            return 0;
        }
        self.skips_created = true;
        self.starts.find(&self.line)
    }

    pub fn sample(&self) -> ExpositionSample<'t> {
        ExpositionSample {
            key: self.line.key(),
            is_expected: self.is_expected,
            time: self.line.time,
            start: None,
            value: ExpositionValue::Float(self.line.value),
        }
    }

    pub fn metadata(&self) -> ExpositionMetadata<'_> {
        let (name, text) = self.line.metadata();
        ExpositionMetadata {
            name,
            field: match self.line.meta_field {
                line::MetadataKeyword::Type => FamilyMetadataField::Type(self.line.kind),
                line::MetadataKeyword::Help => FamilyMetadataField::Help(unescape(text)),
                line::MetadataKeyword::Unit => FamilyMetadataField::Unit(text),
            },
        }
    }

    /// Replaces `out` with the labels of the current sample. Parses them again if the series was
    /// skipped as the expected one.
    pub fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        let family = FamilyTypeAndUnit {
            kind: self.line.kind,
            unit: self.line.unit(),
            is_labelled: self.is_labelled,
        };
        if self.line.offsets.name.is_some() {
            write_labels(self.line.text(), &self.line.offsets, family, out);
            return Ok(());
        }
        // The series was skipped because its key was the expected one.
        let mut again = OpenMetricsLine::new(self.line.key());
        again.read_series()?;
        write_labels(again.text(), &again.offsets, family, out);
        Ok(())
    }

    /// Appends the exemplar of the current sample, if it has one.
    pub fn exemplars(&self, out: &mut SampleExemplars) {
        let Some(exemplar) = &self.line.exemplar else {
            return;
        };
        let text = self.line.text();
        let mut labels = LabelsBuilder::default();
        for (name, value) in &self.line.exemplar_offsets.labels {
            let Ok(name) = std::str::from_utf8(&text[name.clone()]) else {
                return;
            };
            labels.set(name, &text[value.clone()]);
        }
        out.push(labels.build().as_ref(), exemplar.value, exemplar.time);
    }
}
