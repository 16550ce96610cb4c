//! Parses one line of the OpenMetrics text format at a time.

use super::super::error::{ParseError, unexpected, while_parsing};
use super::super::event::{ExpositionEntryKind, ExpositionPosition};
use super::super::lex::ExpositionToken;
use super::super::lexer::{ExpositionLexer, ExpositionSyntax};
use super::super::number::{parse_value, truncate_to_integer};
use super::super::series::{BraceStyle, SeriesOffsets, read_labels};
use firn_model::metadata::MetricType;
use firn_model::quote::quote;
use firn_model::sample::{NORMAL_NAN_BITS, TimestampMs};
use std::ops::Range;

/// Error text for a body without `# EOF`.
const END_MISSING: &str = "data does not end with # EOF";

/// The field of a metadata line: the keyword between the hash and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataKeyword {
    Type,
    Help,
    Unit,
}

/// Value and timestamp of an exemplar; its labels are in [`OpenMetricsLine::exemplar_offsets`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ExemplarNumbers {
    pub value: f64,
    pub time: Option<TimestampMs>,
}

/// The current line, and the parts of earlier metadata lines that still apply to it.
#[derive(Clone, Debug)]
pub(super) struct OpenMetricsLine<'t> {
    lexer: ExpositionLexer<'t>,
    /// Offset of the first byte of the line.
    start: usize,
    key: Range<usize>,
    /// Byte ranges of the parts of the series; without a name if the series was skipped.
    pub offsets: SeriesOffsets,
    pub value: f64,
    pub time: Option<TimestampMs>,
    pub exemplar: Option<ExemplarNumbers>,
    pub exemplar_offsets: SeriesOffsets,
    /// True if exemplars are skipped without being parsed.
    passes_exemplars: bool,
    /// Type in the latest `# TYPE` line of any family.
    pub kind: MetricType,
    unit: Range<usize>,
    pub meta_field: MetadataKeyword,
    meta_name: Range<usize>,
    meta_text: Range<usize>,
}

impl<'t> OpenMetricsLine<'t> {
    pub fn new(text: &'t [u8]) -> Self {
        Self {
            lexer: ExpositionLexer::new(text, ExpositionSyntax::OpenMetrics),
            start: 0,
            key: 0..0,
            offsets: SeriesOffsets::default(),
            value: 0.0,
            time: None,
            exemplar: None,
            exemplar_offsets: SeriesOffsets::default(),
            passes_exemplars: false,
            kind: MetricType::Unknown,
            unit: 0..0,
            meta_field: MetadataKeyword::Help,
            meta_name: 0..0,
            meta_text: 0..0,
        }
    }

    /// Moves to the position of `other`, in order to read ahead of it without parsing exemplars.
    pub fn move_to(&mut self, other: &OpenMetricsLine<'t>) {
        self.lexer = other.lexer.clone();
        self.passes_exemplars = true;
    }

    pub fn text(&self) -> &'t [u8] {
        self.lexer.scanner().text()
    }

    /// Returns the position in the text.
    pub fn position(&self) -> ExpositionPosition {
        ExpositionPosition {
            line: self.start,
            is_at_end: self.lexer.scanner().is_at_end(),
            kind: self.kind,
        }
    }

    /// Returns the offset of the first byte of the line. Reading ahead compares it with other
    /// positions.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Returns the bytes of the series as written. They are the key of the sample in events.
    pub fn key(&self) -> &'t [u8] {
        &self.text()[self.key.clone()]
    }

    /// Returns the metric name as written, without quotes. It is empty for a series that was
    /// skipped.
    pub fn name(&self) -> &'t [u8] {
        let name = self.offsets.name.clone().unwrap_or_default();
        &self.text()[name]
    }

    /// Returns the unit in the latest `# UNIT` line of any family.
    pub fn unit(&self) -> &'t [u8] {
        &self.text()[self.unit.clone()]
    }

    /// Returns the name of the family and the text of the metadata line.
    pub fn metadata(&self) -> (&'t [u8], &'t [u8]) {
        let text = self.text();
        (&text[self.meta_name.clone()], &text[self.meta_text.clone()])
    }

    /// Reads a line if it begins with the series `expected`; returns false otherwise. The bytes of
    /// the series need no check: they were parsed before, and the byte after them ends the series
    /// here too.
    #[inline]
    pub fn read_expected(&mut self, expected: &[u8]) -> Result<bool, ParseError> {
        if !self.lexer.is_at_line() {
            return Ok(false);
        }
        let Some(after) = self.lexer.scanner().rest().strip_prefix(expected) else {
            return Ok(false);
        };
        let ends = match expected.last() {
            Some(b'}') => true,
            Some(_) => after.first() == Some(&b' '),
            None => false,
        };
        if ends {
            self.begin();
            self.key = self.start..self.start + expected.len();
            self.lexer.skip_series(expected);
            let suffix = self.lexer.next();
            self.read_suffix(suffix)?;
        }
        Ok(ends)
    }

    fn begin(&mut self) {
        self.start = self.lexer.scanner().at;
        self.offsets.clear();
        self.exemplar = None;
    }

    /// Reads a line of any kind; returns `None` at `# EOF`. Fails if the line is malformed or the
    /// text ends without it.
    pub fn read(&mut self) -> Result<Option<ExpositionEntryKind>, ParseError> {
        self.begin();
        match self.lexer.next() {
            ExpositionToken::EofWord => match self.lexer.next() {
                ExpositionToken::Eof => Ok(None),
                _ => Err(ParseError::new("unexpected data after # EOF")),
            },
            ExpositionToken::Eof => Err(ParseError::new(END_MISSING)),
            token @ (ExpositionToken::Help | ExpositionToken::Type | ExpositionToken::Unit) => {
                self.read_meta(token)?;
                Ok(Some(ExpositionEntryKind::Metadata))
            }
            token => {
                self.read_series_from(token)?;
                let suffix = self.lexer.next();
                if self.offsets.name.is_none() {
                    return Err(self.while_parsing("metric name not set"));
                }
                self.read_suffix(suffix)?;
                Ok(Some(ExpositionEntryKind::Sample))
            }
        }
    }

    /// Reads only the series at the start of a line, to recover its labels. Cannot fail for a
    /// series that was parsed before.
    pub fn read_series(&mut self) -> Result<(), ParseError> {
        self.begin();
        let token = self.lexer.next();
        self.read_series_from(token)
    }

    fn read_series_from(&mut self, token: ExpositionToken) -> Result<(), ParseError> {
        let has_braces = match token {
            ExpositionToken::BraceOpen => true,
            ExpositionToken::MetricName => {
                let scanner = self.lexer.scanner();
                self.offsets.name = Some(self.start..scanner.at);
                scanner.current_byte() == b'{'
            }
            _ => return Err(self.unexpected("expected a valid start token", token)),
        };
        if has_braces {
            if token == ExpositionToken::MetricName {
                self.lexer.next();
            }
            read_labels(
                &mut self.lexer,
                self.start,
                BraceStyle::Strict,
                &mut self.offsets,
            )?;
        }
        self.key = self.start..self.lexer.scanner().at;
        Ok(())
    }

    /// Reads the value and the optional parts after it; `token` is the first token after the
    /// series. Fails if one of them is malformed.
    fn read_suffix(&mut self, token: ExpositionToken) -> Result<(), ParseError> {
        self.value = self.read_value(token, "expected value after metric")?;
        self.time = None;
        match self.lexer.next() {
            ExpositionToken::Eof => Err(ParseError::new(END_MISSING)),
            ExpositionToken::Comment => self.read_exemplar(),
            ExpositionToken::Timestamp => {
                self.time = Some(self.read_time("timestamp")?);
                match self.lexer.next() {
                    ExpositionToken::Linebreak => Ok(()),
                    ExpositionToken::Comment => self.read_exemplar(),
                    token => Err(self.unexpected("expected next entry after timestamp", token)),
                }
            }
            // A syntax error here is reported at the start of the next line.
            _ => Ok(()),
        }
    }

    fn read_value(&mut self, token: ExpositionToken, expected: &str) -> Result<f64, ParseError> {
        if token != ExpositionToken::Value {
            return Err(self.unexpected(expected, token));
        }
        let value = self.read_number()?;
        Ok(if value.is_nan() {
            f64::from_bits(NORMAL_NAN_BITS)
        } else {
            value
        })
    }

    /// Parses the number in the current token, which begins with a space.
    fn read_number(&self) -> Result<f64, ParseError> {
        let Range { start, end } = self.lexer.scanner().span();
        parse_value(&self.text()[start + 1..end]).map_err(|e| self.while_parsing(&e))
    }

    /// Parses the current token, a timestamp in seconds, and converts it to milliseconds.
    fn read_time(&self, what: &str) -> Result<TimestampMs, ParseError> {
        let seconds = self.read_number()?;
        if seconds.is_finite() {
            return Ok(truncate_to_integer(seconds * 1000.0));
        }
        let seconds = match seconds {
            f64::INFINITY => "+Inf",
            f64::NEG_INFINITY => "-Inf",
            _ => "NaN",
        };
        Err(ParseError::new(format!("invalid {what} {seconds}")))
    }

    fn read_exemplar(&mut self) -> Result<(), ParseError> {
        if self.passes_exemplars {
            return self.skip_exemplar();
        }
        self.exemplar_offsets.clear();
        read_labels(
            &mut self.lexer,
            self.start,
            BraceStyle::Exemplar,
            &mut self.exemplar_offsets,
        )?;
        let token = self.lexer.next();
        let value = self.read_value(token, "expected value after exemplar labels")?;
        let mut time = None;
        match self.lexer.next() {
            ExpositionToken::Eof => return Err(ParseError::new(END_MISSING)),
            ExpositionToken::Linebreak => {}
            ExpositionToken::Timestamp => {
                time = Some(self.read_time("exemplar timestamp")?);
                let token = self.lexer.next();
                if token != ExpositionToken::Linebreak {
                    let expected = "expected next entry after exemplar timestamp";
                    return Err(self.unexpected(expected, token));
                }
            }
            token => return Err(self.unexpected("expected timestamp or comment", token)),
        }
        self.exemplar = Some(ExemplarNumbers { value, time });
        Ok(())
    }

    fn skip_exemplar(&mut self) -> Result<(), ParseError> {
        loop {
            match self.lexer.next() {
                ExpositionToken::Linebreak => return Ok(()),
                // Upstream loops for ever at an invalid token.
                ExpositionToken::Eof | ExpositionToken::Invalid => {
                    return Err(ParseError::new(END_MISSING));
                }
                _ => {}
            }
        }
    }

    fn read_meta(&mut self, keyword: ExpositionToken) -> Result<(), ParseError> {
        let token = self.lexer.next();
        if token != ExpositionToken::MetricName {
            let expected = format!("expected metric name after {}", keyword.name());
            return Err(self.unexpected(&expected, token));
        }
        let text = self.text();
        let Range { start, end } = self.lexer.scanner().span();
        self.meta_name = match text[start] {
            b'"' => start + 1..end - 1,
            _ => start..end,
        };
        if self.lexer.next() != ExpositionToken::Text {
            let message = format!("expected text in {}", keyword.name());
            return Err(ParseError::new(message));
        }
        // The text between the space and the newline.
        let Range { start, end } = self.lexer.scanner().span();
        self.meta_text = start + 1..end - 1;
        let (name, words) = self.metadata();
        match keyword {
            ExpositionToken::Type => {
                self.kind = kind(words)?;
                self.meta_field = MetadataKeyword::Type;
            }
            ExpositionToken::Help if std::str::from_utf8(words).is_err() => {
                let words = quote(words);
                let message = format!("help text {words} is not a valid utf8 string");
                return Err(ParseError::new(message));
            }
            ExpositionToken::Help => self.meta_field = MetadataKeyword::Help,
            _ => {
                self.unit = self.meta_text.clone();
                let before = name.strip_suffix(words);
                if !words.is_empty() && !before.is_some_and(|before| before.ends_with(b"_")) {
                    let (words, name) = (quote(words), quote(name));
                    let message = format!("unit {words} not a suffix of metric {name}");
                    return Err(ParseError::new(message));
                }
                self.meta_field = MetadataKeyword::Unit;
            }
        }
        Ok(())
    }

    fn unexpected(&self, expected: &str, token: ExpositionToken) -> ParseError {
        unexpected(self.lexer.scanner(), self.start, expected, token)
    }

    fn while_parsing(&self, what: &str) -> ParseError {
        while_parsing(self.lexer.scanner(), self.start, what)
    }
}

fn kind(word: &[u8]) -> Result<MetricType, ParseError> {
    match word {
        b"counter" => Ok(MetricType::Counter),
        b"gauge" => Ok(MetricType::Gauge),
        b"histogram" => Ok(MetricType::Histogram),
        b"gaugehistogram" => Ok(MetricType::GaugeHistogram),
        b"summary" => Ok(MetricType::Summary),
        b"info" => Ok(MetricType::Info),
        b"stateset" => Ok(MetricType::Stateset),
        b"unknown" => Ok(MetricType::Unknown),
        _ => {
            let word = quote(word);
            Err(ParseError::new(format!("invalid metric type {word}")))
        }
    }
}
