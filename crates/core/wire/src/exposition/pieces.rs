//! Parses a text of any length that arrives in parts, in pieces that end at a line.
//!
//! ```text
//! text() <- received bytes          read -> samples with line numbers, one piece at a time
//! ```
//!
//! The declared metric type carries over from one piece to the next. A newline between quotes does
//! not end a line: if a piece ends at one, its rest waits for more text.
//!
//! Invariant: samples, errors and line numbers do not depend on how the text is cut, except for the
//! excerpt of a line in an error. Memory is limited to one piece or the longest line.

use super::error::ParseError;
use super::event::ExpositionEvent;
use super::format::ExpositionFormat;
use super::{ExpositionParser, ExpositionPosition};
use firn_model::error::{Error, ErrorKind};
use firn_model::metadata::MetricType;

/// The last line of an OpenMetrics text, which is also appended to each piece for the parser.
const END: &[u8] = b"# EOF\n";

/// Limits of the text that is buffered; a piece is never larger than the longest line allows. They
/// bound the memory of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceLimits {
    /// Size of a piece in bytes, unless one line is longer.
    pub piece_bytes: usize,
    /// Largest length of a line in bytes.
    pub line_bytes_max: usize,
}

/// A parser of long texts with a buffer for the parts in which they arrive; see the module. Used by
/// imports and by tools that read long files.
#[derive(Debug)]
pub struct ExpositionPieceParser {
    format: ExpositionFormat,
    limits: PieceLimits,
    /// Bytes that were received but not yet parsed.
    text: Vec<u8>,
    /// A piece is cut only from more bytes than this: the first `wanted` bytes contain no complete
    /// line.
    wanted: usize,
    is_ended: bool,
    is_done: bool,
    /// Type in the latest `# TYPE` line.
    kind: MetricType,
    /// Number of lines in the parsed pieces.
    lines: u64,
    /// The series of the previous sample, as written.
    key: Vec<u8>,
}

impl ExpositionPieceParser {
    /// Returns an empty buffer at the beginning of a text in one of the two text formats.
    pub fn new(format: ExpositionFormat, limits: PieceLimits) -> Self {
        Self {
            format,
            limits,
            text: Vec::new(),
            wanted: limits.piece_bytes,
            is_ended: false,
            is_done: false,
            kind: MetricType::Unknown,
            lines: 0,
            key: Vec::new(),
        }
    }

    /// Returns the buffer of unparsed bytes, to which the caller appends text up to
    /// [`ExpositionPieceParser::wanted_bytes`].
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Returns the number of buffered bytes that suffices to cut a piece.
    pub fn wanted_bytes(&self) -> usize {
        self.wanted + 1
    }

    /// Marks the text as complete: the caller appends nothing more, and the rest can be parsed.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Returns whether the whole text was parsed. No more calls of [`ExpositionPieceParser::read`]
    /// are necessary then.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the number of lines in the parsed pieces, for progress and error texts.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Returns whether the buffered rest of the text ends like an OpenMetrics text, with `# EOF`.
    pub fn has_openmetrics_end(&self) -> bool {
        let end = self.text.trim_ascii_end();
        let line = end.rsplit(|byte| *byte == b'\n').next();
        self.is_ended && line == Some(END.trim_ascii_end())
    }

    /// Parses the next piece if enough text is buffered, and calls `take` at each event with the
    /// parser and the line number. A sample is flagged as expected if the previous sample belongs
    /// to the same series. Returns false if more text is needed or the whole text was parsed.
    /// Errors of the parser or of `take` contain the line number; after one, nothing more can be
    /// read.
    pub fn read(
        &mut self,
        take: &mut dyn FnMut(&ExpositionParser<'_>, u64) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let Some(mut piece) = self.take_piece()? else {
            return Ok(false);
        };
        let end = piece.len();
        if !self.is_done && self.format == ExpositionFormat::OpenMetrics {
            piece.extend_from_slice(END);
        }
        let read = self.read_piece(&piece, end, take)?;
        if read < end {
            // The line may continue after a newline in quotes.
            piece.truncate(end);
            self.set_wanted_bytes(self.wanted.max(end - read).saturating_mul(2));
            piece.append(&mut self.text);
            self.text = piece.split_off(read);
            if self.text.len() > self.limits.line_bytes_max {
                return Err(self.line_too_long());
            }
        } else {
            self.wanted = self.limits.piece_bytes;
        }
        Ok(true)
    }

    /// Sets the minimum size of the next piece, at most the longest line.
    fn set_wanted_bytes(&mut self, bytes: usize) {
        self.wanted = bytes.min(self.limits.line_bytes_max);
    }

    /// Removes the next piece from the buffer and returns it. Returns `None` if more text is
    /// needed; fails if a line is too long.
    fn take_piece(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if self.is_done {
            return Ok(None);
        }
        if self.is_ended && self.text.len() <= self.wanted {
            self.is_done = true;
            return Ok(Some(std::mem::take(&mut self.text)));
        }
        if self.text.len() <= self.wanted {
            return Ok(None);
        }
        // Keeps at least one byte for the next piece, because the last piece decides how the text
        // ends.
        let whole = &self.text[..self.text.len() - 1];
        match whole.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => {
                let rest = self.text.split_off(at + 1);
                Ok(Some(std::mem::replace(&mut self.text, rest)))
            }
            None if self.text.len() > self.limits.line_bytes_max => Err(self.line_too_long()),
            None => {
                self.set_wanted_bytes(self.text.len().saturating_mul(2));
                self.take_piece()
            }
        }
    }

    /// Parses the samples of `text`, whose first `end` bytes were received. Returns the number of
    /// parsed bytes: all, or those before a line that may continue.
    fn read_piece(
        &mut self,
        text: &[u8],
        end: usize,
        take: &mut dyn FnMut(&ExpositionParser<'_>, u64) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let mut parser = ExpositionParser::new_resumed(self.format, text, self.kind);
        let mut counted = 0;
        loop {
            let advanced = parser.advance_expecting(&self.key);
            let place = parser.position();
            let line = place.line.min(end);
            self.lines += newlines(&text[counted..line]);
            counted = line;
            match advanced {
                Ok(true) => {}
                Ok(false) => {
                    self.end_piece(text, place, end)?;
                    self.lines += newlines(&text[counted..end]);
                    return Ok(end);
                }
                Err(_) if !self.is_done && place.is_at_end => {
                    self.key.clear();
                    return Ok(line);
                }
                Err(e) => return Err(self.with_line_number(e.into())),
            }
            self.kind = place.kind;
            match parser.event() {
                // The type decides how bucket bounds are written, so that equal keys may now mean
                // other labels.
                ExpositionEvent::Metadata(_) => {
                    self.key.clear();
                    take(&parser, self.lines + 1).map_err(|e| self.with_line_number(e))?;
                }
                ExpositionEvent::Sample(sample) => {
                    take(&parser, self.lines + 1).map_err(|e| self.with_line_number(e))?;
                    if !sample.is_expected {
                        self.key.clear();
                        self.key.extend_from_slice(sample.key);
                    }
                }
            }
        }
    }

    /// Fails if the parser stopped at a NUL byte before the end of the piece.
    fn end_piece(&self, text: &[u8], place: ExpositionPosition, end: usize) -> Result<(), Error> {
        if self.format == ExpositionFormat::Text && text[..end].get(place.line) == Some(&0) {
            Err(self.with_line_number(ParseError::new("a line begins with a NUL byte").into()))
        } else {
            Ok(())
        }
    }

    /// Adds the current line number to the error. The kind of the error does not change.
    fn with_line_number(&self, error: Error) -> Error {
        let message = format!("line {}: {}", self.lines + 1, error.message);
        Error::new(error.kind, message)
    }

    fn line_too_long(&self) -> Error {
        let limit = self.limits.line_bytes_max;
        let message = format!("a line is longer than {limit} bytes");
        self.with_line_number(Error::new(ErrorKind::Limited, message))
    }
}

fn newlines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{ExpositionValue, LabelPairs};

    /// Returns the samples as `line name{labels} value time` of a text that arrives `step` bytes at
    /// a time and is parsed in pieces of `piece` bytes.
    fn read(
        format: ExpositionFormat,
        text: &[u8],
        step: usize,
        piece: usize,
    ) -> Result<Vec<String>, Error> {
        let limits = PieceLimits {
            piece_bytes: piece,
            line_bytes_max: 400,
        };
        let mut pieces = ExpositionPieceParser::new(format, limits);
        let mut samples: Vec<String> = Vec::new();
        let mut pairs = LabelPairs::default();
        let mut last = String::new();
        let mut take = |parser: &ExpositionParser<'_>, line: u64| {
            let ExpositionEvent::Sample(sample) = parser.event() else {
                return Ok(());
            };
            parser.labels(&mut pairs)?;
            let labels: Vec<String> = pairs
                .iter()
                .map(|(name, value)| format!("{}={}", name.escape_ascii(), value.escape_ascii()))
                .collect();
            let labels = labels.join(",");
            assert!(!sample.is_expected || last == labels, "{last} for {labels}");
            let ExpositionValue::Float(value) = sample.value else {
                panic!("texts have no histograms");
            };
            samples.push(format!("{line} {labels} {value} {:?}", sample.time));
            last = labels;
            Ok(())
        };
        let mut rest = text;
        loop {
            while pieces.read(&mut take)? {}
            if pieces.is_done() {
                assert_eq!(pieces.lines(), newlines(text));
                return Ok(samples);
            }
            let wanted = pieces.wanted_bytes().saturating_sub(pieces.text().len());
            let (part, behind) = rest.split_at(step.min(wanted).min(rest.len()));
            rest = behind;
            pieces.text().extend_from_slice(part);
            if rest.is_empty() {
                pieces.end();
            }
        }
    }

    #[track_caller]
    fn check(format: ExpositionFormat, text: &[u8]) {
        let whole = read(format, text, usize::MAX, 1 << 20);
        for piece in [1, 2, 3, 10, 33, 64, 150] {
            for step in [1, 7, 1000] {
                let cut = read(format, text, step, piece);
                let texts = |read: &Result<Vec<String>, Error>| match read {
                    Ok(samples) => samples.join("\n"),
                    // The excerpt of the line may be shorter.
                    Err(e) => e.message.chars().take(40).collect(),
                };
                assert_eq!(
                    texts(&cut),
                    texts(&whole),
                    "pieces of {piece}, {step} at a time"
                );
            }
        }
    }

    const HISTOGRAM: &str = "# HELP h it's \"quoted\n# TYPE h histogram\nh_bucket{le=\"1\"} 1 1\n\
                             h_bucket{le=\"1\"} 2 2\nh_bucket{le=\"+Inf\"} 3 2\n";

    #[test]
    fn text_in_any_pieces_gives_the_same_samples() {
        check(ExpositionFormat::Text, b"");
        check(
            ExpositionFormat::Text,
            b"\n\n# comment\na 1\na 2 5\nb{x=\"y\"} 3",
        );
        check(ExpositionFormat::Text, HISTOGRAM.as_bytes());
        check(
            ExpositionFormat::Text,
            b"a{x=\"1\n2\n\n3\"} 1\nb 2\n# TYPE c counter\nc{y=\"}\n\"} 2 7\n",
        );
        let open = format!("{HISTOGRAM}# TYPE c counter\nc_total 5 1.5 # {{a=\"b\"}} 3\n# EOF\n");
        check(ExpositionFormat::OpenMetrics, open.as_bytes());
        check(
            ExpositionFormat::OpenMetrics,
            b"{\"a\nb\",c=\"d\"} 1 2\n# EOF",
        );
        let samples = read(ExpositionFormat::Text, HISTOGRAM.as_bytes(), 9, 30).unwrap();
        assert_eq!(
            samples,
            [
                "3 __name__=h_bucket,le=1.0 1 Some(1)",
                "4 __name__=h_bucket,le=1.0 2 Some(2)",
                "5 __name__=h_bucket,le=+Inf 3 Some(2)",
            ]
        );
    }

    #[test]
    fn text_with_an_error_fails_in_its_line_however_it_is_cut() {
        let cases: [(ExpositionFormat, &[u8], &str); 9] = [
            (
                ExpositionFormat::Text,
                b"a 1\nb c\n",
                "line 2: strconv.ParseFloat: parsing",
            ),
            (
                ExpositionFormat::Text,
                b"a 1\n\nb{x=} 1\n",
                "line 3: expected label value, got",
            ),
            (
                ExpositionFormat::Text,
                b"a{x=\"1\n\"} 1\nb c\n",
                "line 3: strconv.ParseFloat: parsing",
            ),
            (
                ExpositionFormat::Text,
                b"a 1\nb{x=\"y} 1\n",
                "line 2: expected label value, got",
            ),
            (
                ExpositionFormat::Text,
                b"a 1\n\0b 1\n",
                "line 2: a line begins with a NUL byte",
            ),
            (
                ExpositionFormat::OpenMetrics,
                b"a 1 1\n",
                "line 2: data does not end with # EOF",
            ),
            (
                ExpositionFormat::OpenMetrics,
                b"a 1\n# EOF\nb 1\n",
                "line 2: unexpected data after # EOF",
            ),
            (
                ExpositionFormat::OpenMetrics,
                b"a 1\n# EOF\n# EOF\n",
                "line 2: unexpected data after # EOF",
            ),
            (
                ExpositionFormat::OpenMetrics,
                b"a 1 1\nb x 1\n# EOF\n",
                "line 2: strconv.ParseFloat: parsing",
            ),
        ];
        for (format, text, wanted) in cases {
            let e = read(format, text, usize::MAX, 1 << 20).unwrap_err();
            assert!(e.message.starts_with(wanted), "{}", e.message);
            check(format, text);
        }
    }

    #[test]
    fn line_beyond_its_limit_is_refused() {
        let long = format!("a 1\nb{{x=\"{}\"}} 1\n", "y".repeat(1000));
        let quoted = format!("a 1\nb{{x=\"{}\"}} 1\n", "y\n".repeat(500));
        for text in [&long, &quoted] {
            for (step, piece) in [(1, 1), (50, 64)] {
                let e = read(ExpositionFormat::Text, text.as_bytes(), step, piece).unwrap_err();
                assert_eq!(e.message, "line 2: a line is longer than 400 bytes");
                assert_eq!(e.kind, ErrorKind::Limited);
            }
        }
    }
}
