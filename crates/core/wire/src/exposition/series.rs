//! The labels of a series in the text formats: `name{label="value",...}` or
//! `{"name",label="value",...}`.

use super::error::{ParseError, quote_excerpt, unexpected, while_parsing};
use super::lex::ExpositionToken;
use super::lexer::ExpositionLexer;
use super::number::{format_openmetrics_float, parse_any_notation};
use super::pairs::LabelPairs;
use firn_model::labels::METRIC_NAME;
use firn_model::metadata::MetricType;
use std::borrow::Cow;
use std::ops::Range;

/// Labels for the type and unit of a metric, which the feature `type-and-unit-labels` adds.
const TYPE_LABEL: &str = "__type__";
const UNIT_LABEL: &str = "__unit__";

/// Byte ranges of the parts of a series in the body, reused from line to line.
#[derive(Clone, Debug, Default)]
pub(super) struct SeriesOffsets {
    /// The metric name, without quotes.
    pub name: Option<Range<usize>>,
    /// Names and values of the labels, without quotes.
    pub labels: Vec<(Range<usize>, Range<usize>)>,
}

impl SeriesOffsets {
    pub fn clear(&mut self) {
        self.name = None;
        self.labels.clear();
    }
}

/// The syntax that is allowed between a pair of braces, which differs between the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BraceStyle {
    /// Labels with optional commas between them, and the metric name.
    Loose,
    /// Labels with required commas between them, and the metric name.
    Strict,
    /// Labels of an exemplar, with required commas between them.
    Exemplar,
}

/// Reads labels from after an opening brace to the closing one. `line` is the offset of the line,
/// for errors.
pub(super) fn read_labels(
    lexer: &mut ExpositionLexer<'_>,
    line: usize,
    style: BraceStyle,
    into: &mut SeriesOffsets,
) -> Result<(), ParseError> {
    let mut token = lexer.next();
    loop {
        let Range { start, end } = lexer.scanner().span();
        let is_quoted = match token {
            ExpositionToken::BraceClose => return Ok(()),
            ExpositionToken::LabelName => false,
            ExpositionToken::QuotedString => true,
            _ => {
                return Err(unexpected(
                    lexer.scanner(),
                    line,
                    "expected label name",
                    token,
                ));
            }
        };
        let name = if is_quoted {
            start + 1..end - 1
        } else {
            start..end
        };
        token = lexer.next();
        if is_quoted && matches!(token, ExpositionToken::Comma | ExpositionToken::BraceClose) {
            if style == BraceStyle::Exemplar {
                return Err(unexpected(
                    lexer.scanner(),
                    line,
                    "expected label name",
                    token,
                ));
            }
            if into.name.is_some() {
                return Err(while_parsing(
                    lexer.scanner(),
                    line,
                    "metric name already set",
                ));
            }
            into.name = Some(name);
            if token == ExpositionToken::BraceClose {
                return Ok(());
            }
            token = lexer.next();
            continue;
        }
        if token != ExpositionToken::Equal {
            return Err(unexpected(lexer.scanner(), line, "expected equal", token));
        }
        into.labels.push((name, read_value(lexer, line)?));
        token = lexer.next();
        if token == ExpositionToken::Comma {
            token = lexer.next();
        } else if style != BraceStyle::Loose && token != ExpositionToken::BraceClose {
            let expected = "expected comma or brace close";
            return Err(unexpected(lexer.scanner(), line, expected, token));
        }
    }
}

/// Reads the value of a label and returns its byte range between the quotes. Fails if it is missing
/// or not UTF-8.
fn read_value(lexer: &mut ExpositionLexer<'_>, line: usize) -> Result<Range<usize>, ParseError> {
    let token = lexer.next();
    if token != ExpositionToken::LabelValue {
        return Err(unexpected(
            lexer.scanner(),
            line,
            "expected label value",
            token,
        ));
    }
    let value = lexer.scanner().span();
    if !lexer.scanner().is_utf8(value.clone()) {
        let value = quote_excerpt(lexer.scanner(), value);
        let message = format!("invalid UTF-8 label value: {value}");
        return Err(ParseError::new(message));
    }
    Ok(value.start + 1..value.end - 1)
}

/// The properties of a family that influence the labels of its series: type and unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct FamilyTypeAndUnit<'f> {
    /// Type in the latest `# TYPE` line.
    pub kind: MetricType,
    /// Unit in the latest `# UNIT` line.
    pub unit: &'f [u8],
    /// True if type and unit become labels.
    pub is_labelled: bool,
}

impl FamilyTypeAndUnit<'_> {
    /// Writes the metric name, and the type and unit labels if those are enabled.
    pub fn write_name(&self, name: &[u8], out: &mut LabelPairs) {
        if !self.is_labelled || !name.is_empty() {
            out.push(METRIC_NAME.as_bytes(), name);
        }
        if self.is_labelled && self.kind != MetricType::Unknown {
            out.push(TYPE_LABEL.as_bytes(), self.kind.name().as_bytes());
        }
        if self.is_labelled && !self.unit.is_empty() {
            out.push(UNIT_LABEL.as_bytes(), self.unit);
        }
    }

    /// Returns whether the family itself sets the label `label`, which replaces one in the series.
    pub fn has_own_label(&self, label: &[u8], name: &[u8]) -> bool {
        self.is_labelled
            && match std::str::from_utf8(label) {
                Ok(METRIC_NAME) => !name.is_empty(),
                Ok(TYPE_LABEL) => self.kind != MetricType::Unknown,
                Ok(UNIT_LABEL) => !self.unit.is_empty(),
                _ => false,
            }
    }
}

/// Replaces `out` with the labels at `offsets` in `text`, sorted by name.
pub(super) fn write_labels(
    text: &[u8],
    offsets: &SeriesOffsets,
    family: FamilyTypeAndUnit<'_>,
    out: &mut LabelPairs,
) {
    let part = |range: &Range<usize>| unescape(text.get(range.clone()).unwrap_or_default());
    out.clear();
    let name = offsets.name.as_ref().map(part).unwrap_or_default();
    family.write_name(&name, out);
    for (label, value) in &offsets.labels {
        let (label, value) = (part(label), part(value));
        if !family.has_own_label(&label, &name) {
            out.push(&label, &normalize_bound(family.kind, &label, value));
        }
    }
    out.sort();
}

/// Normalizes the value of `le` and `quantile` labels, so that different notations of a number give
/// the same series.
fn normalize_bound<'t>(kind: MetricType, label: &[u8], value: Cow<'t, [u8]>) -> Cow<'t, [u8]> {
    let is_bound = match kind {
        MetricType::Summary => label == b"quantile",
        MetricType::Histogram => label == b"le",
        _ => false,
    };
    if !is_bound {
        return value;
    }
    match parse_any_notation(&value) {
        Some(bound) => format_openmetrics_float(bound).into_bytes().into(),
        None => value,
    }
}

/// Replaces the escapes `\\`, `\n` and `\"`. Any other backslash is kept.
pub(super) fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    unescape_some(text, b"\\n\"")
}

/// Replaces the escapes `\\` and `\n` only, as in help texts.
pub(super) fn unescape_help(text: &[u8]) -> Cow<'_, [u8]> {
    unescape_some(text, b"\\n")
}

fn unescape_some<'t>(text: &'t [u8], known: &[u8]) -> Cow<'t, [u8]> {
    if !text.contains(&b'\\') {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [c, after @ ..] = rest {
        rest = after;
        match after {
            [next, after @ ..] if *c == b'\\' && known.contains(next) => {
                out.push(if *next == b'n' { b'\n' } else { *next });
                rest = after;
            }
            _ => out.push(*c),
        }
    }
    out.into()
}
