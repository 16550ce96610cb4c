//! The parser of the Prometheus text format, versions 0.0.4 and 1.0.0, which it treats alike.
//!
//! ```text
//! name{label="value",...} value [time]        {"name",label="value",...} value [time]
//! # HELP name text      # TYPE name type      # anything else
//! ```
//!
//! Follows upstream's `model/textparse/promparse.go`: it accepts the same texts and rejects the
//! others with the same errors. Upstream's oddities are kept: a name includes the blanks before it,
//! and labels need no comma between them.

use super::error::{ParseError, unexpected, while_parsing};
use super::event::{
    ExpositionEntryKind, ExpositionMetadata, ExpositionPosition, ExpositionSample, ExpositionValue,
    FamilyMetadataField,
};
use super::lex::{BLANK, ExpositionToken, is_in_class};
use super::lexer::{ExpositionLexer, ExpositionSyntax};
use super::number::{parse_milliseconds, parse_value};
use super::pairs::LabelPairs;
use super::series::{
    BraceStyle, FamilyTypeAndUnit, SeriesOffsets, read_labels, unescape_help, write_labels,
};
use firn_model::metadata::MetricType;
use firn_model::quote::quote;
use firn_model::sample::{NORMAL_NAN_BITS, TimestampMs};
use std::ops::Range;

/// Parses a text line by line and keeps the byte ranges of the current line.
#[derive(Clone, Debug)]
pub(super) struct TextParser<'t> {
    lexer: ExpositionLexer<'t>,
    /// Offset of the first byte of the current line.
    line: usize,
    key: Range<usize>,
    is_expected: bool,
    offsets: SeriesOffsets,
    /// Type in the latest `# TYPE` line of any family.
    kind: MetricType,
    is_labelled: bool,
    value: f64,
    time: Option<TimestampMs>,
    meta: MetadataLine,
}

/// Byte ranges of the current metadata line: the name of the family and its text.
#[derive(Clone, Debug, Default)]
struct MetadataLine {
    name: Range<usize>,
    text: Range<usize>,
    is_type: bool,
}

impl<'t> TextParser<'t> {
    pub fn new(text: &'t [u8], is_labelled: bool) -> Self {
        Self {
            lexer: ExpositionLexer::new(text, ExpositionSyntax::Prometheus),
            line: 0,
            key: 0..0,
            is_expected: false,
            offsets: SeriesOffsets::default(),
            kind: MetricType::Unknown,
            is_labelled,
            value: 0.0,
            time: None,
            meta: MetadataLine::default(),
        }
    }

    pub fn position(&self) -> ExpositionPosition {
        ExpositionPosition {
            line: self.line,
            is_at_end: self.lexer.scanner().is_at_end(),
            kind: self.kind,
        }
    }

    pub fn resume(&mut self, kind: MetricType) {
        self.kind = kind;
    }

    /// Moves to the next entry; returns `None` at the end of the text. Fails at the first syntax
    /// error.
    pub fn advance(&mut self, expected: &[u8]) -> Result<Option<ExpositionEntryKind>, ParseError> {
        self.line = self.lexer.scanner().at;
        if self.skip_expected(expected) {
            let token = self.lexer.next();
            if token != ExpositionToken::BraceOpen {
                return self.read_suffix(token).map(Some);
            }
            // The series has labels or empty braces, but the expected one has none.
            self.lexer.rewind_to_line(self.line);
        }
        let entry = self.read_entry()?;
        if entry == Some(ExpositionEntryKind::Sample) {
            self.is_expected = self.key_bytes() == expected;
        }
        Ok(entry)
    }

    /// Skips the series if it begins with the expected one; returns false otherwise. The bytes of
    /// the series need no check: they were parsed before, and the byte after them ends the series
    /// here too.
    #[inline]
    fn skip_expected(&mut self, expected: &[u8]) -> bool {
        let rest = self
            .lexer
            .scanner()
            .text()
            .get(self.line..)
            .unwrap_or_default();
        let Some(after) = rest.strip_prefix(expected) else {
            return false;
        };
        let ends = match expected.last() {
            Some(b'}') => true,
            Some(_) => after.first().is_some_and(|c| is_in_class(*c, BLANK)),
            None => false,
        };
        if ends {
            self.key = self.line..self.line + expected.len();
            self.is_expected = true;
            self.offsets.clear();
            self.lexer.skip_series(expected);
        }
        ends
    }

    fn read_entry(&mut self) -> Result<Option<ExpositionEntryKind>, ParseError> {
        loop {
            self.line = self.lexer.scanner().at;
            self.offsets.clear();
            match self.lexer.next() {
                ExpositionToken::Eof => return Ok(None),
                ExpositionToken::Linebreak => {}
                token @ (ExpositionToken::Help | ExpositionToken::Type) => {
                    self.read_meta(token)?;
                    return Ok(Some(ExpositionEntryKind::Metadata));
                }
                ExpositionToken::Comment => {
                    self.expect_linebreak("linebreak expected after comment")?;
                    return Ok(Some(ExpositionEntryKind::Comment));
                }
                ExpositionToken::BraceOpen => {
                    let suffix = self.read_braces()?;
                    return self.read_suffix(suffix).map(Some);
                }
                ExpositionToken::MetricName => {
                    let suffix = self.read_name()?;
                    return self.read_suffix(suffix).map(Some);
                }
                token => {
                    let expected = "expected a valid start token";
                    return Err(unexpected(self.lexer.scanner(), self.line, expected, token));
                }
            }
        }
    }

    /// Reads the labels after a name, if there are any, and returns the token after them. Fails if
    /// a label is malformed.
    fn read_name(&mut self) -> Result<ExpositionToken, ParseError> {
        self.key = self.line..self.lexer.scanner().at;
        self.offsets.name = Some(self.key.clone());
        match self.lexer.next() {
            ExpositionToken::BraceOpen => self.read_braces(),
            token => Ok(token),
        }
    }

    /// Reads the labels in braces and returns the token after them; fails without a metric name.
    fn read_braces(&mut self) -> Result<ExpositionToken, ParseError> {
        read_labels(
            &mut self.lexer,
            self.line,
            BraceStyle::Loose,
            &mut self.offsets,
        )?;
        self.key = self.line..self.lexer.scanner().at;
        let token = self.lexer.next();
        if self.offsets.name.is_none() {
            return Err(while_parsing(
                self.lexer.scanner(),
                self.line,
                "metric name not set",
            ));
        }
        Ok(token)
    }

    /// Reads the value and the optional timestamp after a series, up to the end of the line. Fails
    /// if one of them is malformed.
    #[inline]
    fn read_suffix(&mut self, token: ExpositionToken) -> Result<ExpositionEntryKind, ParseError> {
        if token != ExpositionToken::Value {
            let expected = "expected value after metric";
            return Err(unexpected(self.lexer.scanner(), self.line, expected, token));
        }
        let text = self.lexer.scanner().text();
        let value = parse_value(&text[self.lexer.scanner().span()])
            .map_err(|e| while_parsing(self.lexer.scanner(), self.line, &e))?;
        self.value = if value.is_nan() {
            f64::from_bits(NORMAL_NAN_BITS)
        } else {
            value
        };
        self.time = None;
        match self.lexer.next() {
            ExpositionToken::Linebreak => {}
            ExpositionToken::Timestamp => {
                let time = parse_milliseconds(&text[self.lexer.scanner().span()])
                    .map_err(|e| while_parsing(self.lexer.scanner(), self.line, &e))?;
                self.time = Some(time);
                self.expect_linebreak("expected next entry after timestamp")?;
            }
            token => {
                let expected = "expected timestamp or new record";
                return Err(unexpected(self.lexer.scanner(), self.line, expected, token));
            }
        }
        Ok(ExpositionEntryKind::Sample)
    }

    fn expect_linebreak(&mut self, expected: &str) -> Result<(), ParseError> {
        match self.lexer.next() {
            ExpositionToken::Linebreak => Ok(()),
            token => Err(unexpected(self.lexer.scanner(), self.line, expected, token)),
        }
    }

    fn read_meta(&mut self, keyword: ExpositionToken) -> Result<(), ParseError> {
        let token = self.lexer.next();
        if token != ExpositionToken::MetricName {
            let expected = format!("expected metric name after {}", keyword.name());
            return Err(unexpected(
                self.lexer.scanner(),
                self.line,
                &expected,
                token,
            ));
        }
        let text = self.lexer.scanner().text();
        let Range { mut start, mut end } = self.lexer.scanner().span();
        if text[start] == b'"' {
            (start, end) = (start + 1, end - 1);
        }
        let token = self.lexer.next();
        if token != ExpositionToken::Text {
            let message = format!("expected text in {}, got {}", keyword.name(), token.name());
            return Err(ParseError::new(message));
        }
        let Range {
            start: from,
            end: to,
        } = self.lexer.scanner().span();
        self.meta = MetadataLine {
            name: start..end,
            // Skips the blank after the name.
            text: (from + 1).min(to)..to,
            is_type: keyword == ExpositionToken::Type,
        };
        let words = &text[self.meta.text.clone()];
        if self.meta.is_type {
            self.kind = kind(words)?;
        } else if std::str::from_utf8(words).is_err() {
            let words = quote(words);
            let message = format!("help text {words} is not a valid utf8 string");
            return Err(ParseError::new(message));
        }
        self.expect_linebreak("linebreak expected after metadata")
    }

    fn key_bytes(&self) -> &'t [u8] {
        &self.lexer.scanner().text()[self.key.clone()]
    }

    pub fn sample(&self) -> ExpositionSample<'t> {
        ExpositionSample {
            key: self.key_bytes(),
            is_expected: self.is_expected,
            time: self.time,
            start: None,
            value: ExpositionValue::Float(self.value),
        }
    }

    pub fn metadata(&self) -> ExpositionMetadata<'_> {
        let text = self.lexer.scanner().text();
        let words = &text[self.meta.text.clone()];
        ExpositionMetadata {
            name: &text[self.meta.name.clone()],
            field: if self.meta.is_type {
                FamilyMetadataField::Type(self.kind)
            } else {
                FamilyMetadataField::Help(unescape_help(words))
            },
        }
    }

    /// Replaces `out` with the labels of the current sample. Parses them again if the series was
    /// skipped as the expected one.
    pub fn labels(&self, out: &mut LabelPairs) -> Result<(), ParseError> {
        let family = FamilyTypeAndUnit {
            kind: self.kind,
            unit: b"",
            is_labelled: self.is_labelled,
        };
        if self.offsets.name.is_some() {
            write_labels(self.lexer.scanner().text(), &self.offsets, family, out);
            return Ok(());
        }
        // The series was skipped because its key was the expected one.
        let mut again = TextParser::new(self.key_bytes(), self.is_labelled);
        if again.lexer.next() == ExpositionToken::BraceOpen {
            again.read_braces()?;
        } else {
            again.read_name()?;
        }
        write_labels(again.lexer.scanner().text(), &again.offsets, family, out);
        Ok(())
    }
}

fn kind(word: &[u8]) -> Result<MetricType, ParseError> {
    match word {
        b"counter" => Ok(MetricType::Counter),
        b"gauge" => Ok(MetricType::Gauge),
        b"histogram" => Ok(MetricType::Histogram),
        b"summary" => Ok(MetricType::Summary),
        b"untyped" => Ok(MetricType::Unknown),
        _ => {
            let word = quote(word);
            Err(ParseError::new(format!("invalid metric type {word}")))
        }
    }
}
