//! Scans scalars: block (`|` and `>`), quoted and plain ones, and joins their lines.
//!
//! In quoted and plain scalars, a single line break becomes a space, and each further one a line
//! break. Indentation matters only for plain scalars. The Unicode line separators LS and PS are
//! preserved.

use super::{
    END, YamlError, YamlScanPosition, YamlScanner, YamlTokenKind, is_blank, is_break,
    is_break_or_end, is_space_or_end,
};

/// Treatment of the line breaks at the end of a block scalar.
#[derive(Clone, Copy, PartialEq)]
enum Chomping {
    Clip,
    Strip,
    Keep,
}

/// White space and line breaks between two parts of a scalar.
#[derive(Default)]
struct YamlScalarGap {
    blanks: String,
    first_break: Option<char>,
    more_breaks: String,
}

impl YamlScalarGap {
    /// Adds a line break. `is_more` is true if the gap is already in a new line.
    fn push_break(&mut self, c: char, is_more: bool) {
        if is_more {
            self.more_breaks.push(c);
        } else {
            self.first_break = Some(c);
        }
    }

    /// Appends the characters that represent the gap to `text`, and clears the gap.
    fn append_to(&mut self, text: &mut String) {
        let gap = std::mem::take(self);
        match gap.first_break {
            None => text.push_str(&gap.blanks),
            Some('\n') if gap.more_breaks.is_empty() => text.push(' '),
            Some('\n') => text.push_str(&gap.more_breaks),
            Some(kept) => {
                text.push(kept);
                text.push_str(&gap.more_breaks);
            }
        }
    }
}

impl YamlScanner {
    pub(super) fn fetch_block_scalar(&mut self) -> Result<(), YamlError> {
        self.drop_last_candidate()?;
        self.key_allowed = true;
        let start = self.mark;
        let is_literal = self.current_char() == '|';
        self.skip();
        let (chomping, increment) = self.scan_block_header(start)?;
        self.skip_rest_of_line("a block scalar", start)?;
        let indent = increment.map(|n| self.indent.max(0) as usize + n);
        let text = self.scan_block_text(start, indent, chomping, is_literal)?;
        let is_plain = false;
        self.push(YamlTokenKind::Scalar { text, is_plain }, start);
        Ok(())
    }

    /// Scans the indicators after `|` or `>`, in either order: chomping and indentation.
    fn scan_block_header(
        &mut self,
        start: YamlScanPosition,
    ) -> Result<(Chomping, Option<usize>), YamlError> {
        let (mut chomping, mut increment) = (None, None);
        for _ in 0..2 {
            match self.current_char() {
                '+' if chomping.is_none() => chomping = Some(Chomping::Keep),
                '-' if chomping.is_none() => chomping = Some(Chomping::Strip),
                '0' if increment.is_none() => {
                    let problem = "found an indentation indicator equal to 0";
                    return Err(self.error_in(problem, "a block scalar", start));
                }
                c if c.is_ascii_digit() && increment.is_none() => {
                    increment = c.to_digit(10).map(|digit| digit as usize);
                }
                _ => break,
            }
            self.skip();
        }
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    fn scan_block_text(
        &mut self,
        start: YamlScanPosition,
        indent: Option<usize>,
        chomping: Chomping,
        is_literal: bool,
    ) -> Result<String, YamlError> {
        let mut text = String::new();
        let mut breaks = String::new();
        let mut last_break = None;
        let mut was_indented = false;
        let indent = self.skip_block_breaks(start, indent, &mut breaks)?;
        while self.mark.column == indent && self.current_char() != END {
            let is_indented = is_blank(self.current_char());
            let folds = !is_literal && !was_indented && !is_indented && last_break == Some('\n');
            if !folds {
                text.extend(last_break);
            } else if breaks.is_empty() {
                text.push(' ');
            }
            text.push_str(&breaks);
            breaks.clear();
            was_indented = is_indented;
            while !is_break_or_end(self.current_char()) {
                text.push(self.current_char());
                self.skip();
            }
            last_break = self.skip_break();
            self.skip_block_breaks(start, Some(indent), &mut breaks)?;
        }
        if chomping != Chomping::Strip {
            text.extend(last_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&breaks);
        }
        Ok(text)
    }

    /// Skips indentation and empty lines. Returns the indentation, which the first line with text
    /// determines if `indent` is `None`.
    fn skip_block_breaks(
        &mut self,
        start: YamlScanPosition,
        indent: Option<usize>,
        breaks: &mut String,
    ) -> Result<usize, YamlError> {
        let mut widest = 0;
        loop {
            let is_inside = |column| indent.is_none_or(|indent| column < indent);
            while is_inside(self.mark.column) && self.current_char() == ' ' {
                self.skip();
            }
            widest = widest.max(self.mark.column);
            if is_inside(self.mark.column) && self.current_char() == '\t' {
                let problem = "found a tab character where an indentation space is expected";
                return Err(self.error_in(problem, "a block scalar", start));
            }
            match self.skip_break() {
                Some(c) => breaks.push(c),
                None => break,
            }
        }
        let least = (self.indent + 1).max(1) as usize;
        Ok(indent.unwrap_or_else(|| widest.max(least)))
    }

    pub(super) fn fetch_quoted(&mut self) -> Result<(), YamlError> {
        self.save_candidate()?;
        self.key_allowed = false;
        let start = self.mark;
        let quote = self.current_char();
        self.skip();
        let mut text = String::new();
        loop {
            if self.is_document_indicator('-') || self.is_document_indicator('.') {
                let problem = "found unexpected document indicator";
                return Err(self.error_in(problem, "a quoted scalar", start));
            }
            if self.current_char() == END {
                let problem = "found unexpected end of stream";
                return Err(self.error_in(problem, "a quoted scalar", start));
            }
            let is_broken = self.scan_quoted_piece(quote, start, &mut text)?;
            if self.current_char() == quote {
                break;
            }
            self.scan_quoted_gap(is_broken).append_to(&mut text);
        }
        self.skip();
        let is_plain = false;
        self.push(YamlTokenKind::Scalar { text, is_plain }, start);
        Ok(())
    }

    /// Scans up to white space or the closing quote. Returns whether an escaped line break ended
    /// the part.
    fn scan_quoted_piece(
        &mut self,
        quote: char,
        start: YamlScanPosition,
        text: &mut String,
    ) -> Result<bool, YamlError> {
        while !is_space_or_end(self.current_char()) {
            match (self.current_char(), self.char_at(1)) {
                ('\'', '\'') if quote == '\'' => {
                    text.push('\'');
                    self.skip();
                    self.skip();
                }
                (c, _) if c == quote => return Ok(false),
                ('\\', next) if quote == '"' && is_break(next) => {
                    self.skip();
                    self.skip_break();
                    return Ok(true);
                }
                ('\\', _) if quote == '"' => text.push(self.scan_escape(start)?),
                (c, _) => {
                    text.push(c);
                    self.skip();
                }
            }
        }
        Ok(false)
    }

    /// Scans the white space between two parts. After an escaped line break, only further breaks
    /// are preserved.
    fn scan_quoted_gap(&mut self, is_broken: bool) -> YamlScalarGap {
        let mut gap = YamlScalarGap::default();
        let mut is_new_line = is_broken;
        loop {
            let c = self.current_char();
            if is_blank(c) {
                if !is_new_line {
                    gap.blanks.push(c);
                }
                self.skip();
            } else if let Some(c) = self.skip_break() {
                gap.push_break(c, is_new_line);
                is_new_line = true;
            } else {
                break;
            }
        }
        if is_broken {
            gap.blanks = std::mem::take(&mut gap.more_breaks);
        }
        gap
    }

    fn scan_escape(&mut self, start: YamlScanPosition) -> Result<char, YamlError> {
        let (c, digits) = match self.char_at(1) {
            '0' => ('\0', 0),
            'a' => ('\u{7}', 0),
            'b' => ('\u{8}', 0),
            't' | '\t' => ('\t', 0),
            'n' => ('\n', 0),
            'v' => ('\u{b}', 0),
            'f' => ('\u{c}', 0),
            'r' => ('\r', 0),
            'e' => ('\u{1b}', 0),
            c @ (' ' | '"' | '\'' | '\\') => (c, 0),
            'N' => ('\u{85}', 0),
            '_' => ('\u{a0}', 0),
            'L' => ('\u{2028}', 0),
            'P' => ('\u{2029}', 0),
            'x' => (END, 2),
            'u' => (END, 4),
            'U' => (END, 8),
            _ => {
                let problem = "found unknown escape character";
                return Err(self.error_in(problem, "a quoted scalar", start));
            }
        };
        self.skip();
        self.skip();
        match digits {
            0 => Ok(c),
            _ => self.scan_numbered_character(digits, start),
        }
    }

    fn scan_numbered_character(
        &mut self,
        digits: usize,
        start: YamlScanPosition,
    ) -> Result<char, YamlError> {
        let mut code = 0;
        for ahead in 0..digits {
            let Some(digit) = self.char_at(ahead).to_digit(16) else {
                let problem = "did not find expected hexdecimal number";
                return Err(self.error_in(problem, "a quoted scalar", start));
            };
            code = code << 4 | digit;
        }
        let Some(c) = char::from_u32(code) else {
            let problem = "found invalid Unicode character escape code";
            return Err(self.error_in(problem, "a quoted scalar", start));
        };
        for _ in 0..digits {
            self.skip();
        }
        Ok(c)
    }

    pub(super) fn fetch_plain(&mut self) -> Result<(), YamlError> {
        self.save_candidate()?;
        self.key_allowed = false;
        let start = self.mark;
        let mut end = start;
        let mut text = String::new();
        let mut gap = YamlScalarGap::default();
        let mut is_new_line = false;
        while !self.is_document_indicator('-')
            && !self.is_document_indicator('.')
            && self.current_char() != '#'
        {
            while !is_space_or_end(self.current_char()) && !self.is_plain_end() {
                gap.append_to(&mut text);
                is_new_line = false;
                text.push(self.current_char());
                self.skip();
                end = self.mark;
            }
            if !is_blank(self.current_char()) && !is_break(self.current_char()) {
                break;
            }
            is_new_line |= self.scan_plain_gap(start, is_new_line, &mut gap)?;
            if self.flow_level() == 0 && (self.mark.column as isize) <= self.indent {
                break;
            }
        }
        if is_new_line {
            self.key_allowed = true;
        }
        let is_plain = true;
        self.push(YamlTokenKind::Scalar { text, is_plain }, start);
        let token = self.tokens.back_mut().expect("the scalar");
        token.end = end.to_position();
        Ok(())
    }

    /// Returns whether the current character ends a plain scalar, depending on the context.
    fn is_plain_end(&self) -> bool {
        match self.current_char() {
            ':' => is_space_or_end(self.char_at(1)),
            ',' | '?' | '[' | ']' | '{' | '}' => self.flow_level() > 0,
            _ => false,
        }
    }

    /// Scans the white space after a part. Returns whether it contains a line break.
    fn scan_plain_gap(
        &mut self,
        start: YamlScanPosition,
        was_new_line: bool,
        gap: &mut YamlScalarGap,
    ) -> Result<bool, YamlError> {
        let mut is_new_line = was_new_line;
        loop {
            let c = self.current_char();
            if is_blank(c) {
                if is_new_line && c == '\t' && (self.mark.column as isize) <= self.indent {
                    let problem = "found a tab character that violates indentation";
                    return Err(self.error_in(problem, "a plain scalar", start));
                }
                if !is_new_line {
                    gap.blanks.push(c);
                }
                self.skip();
            } else if let Some(c) = self.skip_break() {
                gap.push_break(c, is_new_line);
                is_new_line = true;
            } else {
                return Ok(is_new_line);
            }
        }
    }
}
