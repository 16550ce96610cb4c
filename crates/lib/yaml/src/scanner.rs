//! Tokenizer for the grammar that Go's `yaml` inherits from libyaml, which differs from the
//! specification of YAML 1.1 in details.
//!
//! Block collections have no closing character, so the scanner compares columns and inserts tokens
//! that open and close them. A key without `?` is recognized only at its `:`, so the scanner
//! records the positions at which a key may begin (one per level of brackets) and inserts the key
//! token there afterwards. Such a key ends on the same line and within 1,024 characters, which
//! bounds the token queue.
//!
//! Invariant: every call consumes characters, or returns the end or an error. [`super::tree`]
//! checks the order of tokens, and [`scalars`] decodes the text of scalars.

mod properties;
mod scalars;
mod tokens;

use super::node::{YamlDialect, YamlError};
use std::collections::VecDeque;
use tokens::{YamlKeyCandidate, YamlScanPosition};
pub(super) use tokens::{YamlToken, YamlTokenKind};

/// Maximum number of characters from the beginning of a key to its `:`.
const KEY_CHARS_MAX: usize = 1024;

/// Maximum number of open brackets, and of open block collections, as in upstream.
const LEVELS_MAX: usize = 10_000;

/// Marker for the end of the text, which cannot contain this character.
const END: char = '\0';

/// Tokenizer of one text, with a queue of tokens that have been scanned but not taken.
pub(super) struct YamlScanner {
    chars: Vec<char>,
    mark: YamlScanPosition,
    tokens: VecDeque<YamlToken>,
    /// Number of tokens that have been taken from the queue.
    taken: usize,
    /// Number of tokens that are scanned beyond the first one.
    ahead: usize,
    /// Columns of the open block collections. The innermost one is in `indent`, which is -1 outside
    /// of all.
    indents: Vec<isize>,
    indent: isize,
    /// Whether a key may begin at the current position.
    key_allowed: bool,
    /// Key candidates, one per level of brackets and one for the block level.
    candidates: Vec<Option<YamlKeyCandidate>>,
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_break_or_end(c: char) -> bool {
    is_break(c) || c == END
}

fn is_space_or_end(c: char) -> bool {
    is_blank(c) || is_break_or_end(c)
}

/// Returns whether the name of an anchor, a tag handle or a directive may contain the character.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

impl YamlScanner {
    /// Creates a scanner of `text`, which must not contain control characters.
    pub(super) fn new(text: &str, dialect: YamlDialect) -> Self {
        let mark = YamlScanPosition {
            index: 0,
            line: 0,
            column: 0,
        };
        YamlScanner {
            chars: text.chars().collect(),
            mark,
            tokens: VecDeque::new(),
            taken: 0,
            ahead: match dialect {
                YamlDialect::V2 => 0,
                YamlDialect::V3 => 2,
            },
            indents: Vec::new(),
            indent: -1,
            key_allowed: true,
            candidates: vec![None],
        }
    }

    /// Returns the next token without taking it. Scans as far as necessary to be certain of it.
    pub(super) fn peek(&mut self) -> Result<&YamlToken, YamlError> {
        while self.tokens.len() <= self.ahead || self.is_first_open()? {
            self.fetch()?;
        }
        Ok(&self.tokens[0])
    }

    /// Takes the next token from the queue, scanning it first if necessary.
    pub(super) fn next(&mut self) -> Result<YamlToken, YamlError> {
        self.peek()?;
        self.taken += 1;
        Ok(self.tokens.pop_front().expect("peek fills the queue"))
    }

    /// Returns whether a key token may still be inserted before the first token of the queue.
    fn is_first_open(&mut self) -> Result<bool, YamlError> {
        let first = self.taken;
        let is_first = |c: &Option<YamlKeyCandidate>| c.is_some_and(|c| c.token == first);
        match self.candidates.iter().position(is_first) {
            Some(level) => self.is_candidate(level),
            None => Ok(false),
        }
    }

    /// Returns whether the candidate of a level can still become a key. Drops it otherwise.
    fn is_candidate(&mut self, level: usize) -> Result<bool, YamlError> {
        let Some(key) = self.candidates[level] else {
            return Ok(false);
        };
        let is_near = key.mark.index + KEY_CHARS_MAX >= self.mark.index;
        if key.mark.line == self.mark.line && is_near {
            return Ok(true);
        }
        self.drop_candidate(level)?;
        Ok(false)
    }

    fn drop_candidate(&mut self, level: usize) -> Result<(), YamlError> {
        match self.candidates[level].take() {
            Some(key) if key.is_required => {
                Err(self.error_in("could not find expected ':'", "a key", key.mark))
            }
            _ => Ok(()),
        }
    }

    fn drop_last_candidate(&mut self) -> Result<(), YamlError> {
        self.drop_candidate(self.flow_level())
    }

    /// Records the current position as a key candidate if a key may begin here.
    fn save_candidate(&mut self) -> Result<(), YamlError> {
        if !self.key_allowed {
            return Ok(());
        }
        self.drop_last_candidate()?;
        let level = self.flow_level();
        self.candidates[level] = Some(YamlKeyCandidate {
            token: self.taken + self.tokens.len(),
            is_required: level == 0 && self.indent == self.mark.column as isize,
            mark: self.mark,
        });
        Ok(())
    }

    /// Returns the number of open brackets around the current position.
    fn flow_level(&self) -> usize {
        self.candidates.len() - 1
    }

    /// Returns the character at an offset of `ahead` characters.
    fn char_at(&self, ahead: usize) -> char {
        let index = self.mark.index + ahead;
        self.chars.get(index).copied().unwrap_or(END)
    }

    fn current_char(&self) -> char {
        self.char_at(0)
    }

    fn skip(&mut self) {
        self.mark.index += 1;
        self.mark.column += 1;
    }

    fn skip_while(&mut self, is_one: impl Fn(char) -> bool) {
        while is_one(self.current_char()) {
            self.skip();
        }
    }

    /// Skips a line break, if there is one, and returns the character that represents it in
    /// scalars.
    fn skip_break(&mut self) -> Option<char> {
        let c = self.current_char();
        if !is_break(c) {
            return None;
        }
        let is_pair = c == '\r' && self.char_at(1) == '\n';
        self.mark.index += if is_pair { 2 } else { 1 };
        self.mark.line += 1;
        self.mark.column = 0;
        match c {
            '\u{2028}' | '\u{2029}' => Some(c),
            _ => Some('\n'),
        }
    }

    /// Skips the rest of a line, which may contain only blanks and a comment, and its line break.
    fn skip_rest_of_line(&mut self, what: &str, start: YamlScanPosition) -> Result<(), YamlError> {
        self.skip_while(is_blank);
        if self.current_char() == '#' {
            self.skip_while(|c| !is_break_or_end(c));
        }
        if !is_break_or_end(self.current_char()) {
            return Err(self.error_in("did not find expected comment or line break", what, start));
        }
        self.skip_break();
        Ok(())
    }

    fn error(&self, problem: &str) -> YamlError {
        YamlError {
            place: self.mark.to_position(),
            message: problem.to_owned(),
        }
    }

    /// Creates an error at the current position inside of `what`. The text contains the beginning
    /// of `what` if it is on another line.
    fn error_in(&self, problem: &str, what: &str, start: YamlScanPosition) -> YamlError {
        let message = if start.line == self.mark.line {
            problem.to_owned()
        } else {
            format!(
                "{problem}, in {what} that starts at {}",
                start.to_position()
            )
        };
        YamlError {
            place: self.mark.to_position(),
            message,
        }
    }

    fn push(&mut self, kind: YamlTokenKind, start: YamlScanPosition) {
        self.tokens.push_back(YamlToken {
            kind,
            place: start.to_position(),
            end: self.mark.to_position(),
        });
    }

    /// Skips `count` characters and adds them as a token.
    fn push_indicator(&mut self, kind: YamlTokenKind, count: usize) {
        let start = self.mark;
        for _ in 0..count {
            self.skip();
        }
        self.push(kind, start);
    }

    /// Inserts a token without characters at `index` of the queue.
    fn insert(&mut self, index: usize, kind: YamlTokenKind, mark: YamlScanPosition) {
        let place = mark.to_position();
        let end = place;
        let index = index.min(self.tokens.len());
        self.tokens.insert(index, YamlToken { kind, place, end });
    }

    /// Opens a block collection at `mark` if it is indented more than the current one. Its token is
    /// inserted at `index` of the queue.
    fn open_block(
        &mut self,
        mark: YamlScanPosition,
        index: usize,
        kind: YamlTokenKind,
    ) -> Result<(), YamlError> {
        let column = mark.column as isize;
        if self.flow_level() > 0 || self.indent >= column {
            return Ok(());
        }
        if self.indents.len() >= LEVELS_MAX {
            return Err(self.error(&format!("exceeded max depth of {LEVELS_MAX}")));
        }
        self.indents.push(self.indent);
        self.indent = column;
        self.insert(index, kind, mark);
        Ok(())
    }

    /// Closes the block collections that are indented more than `column`.
    fn close_blocks(&mut self, column: isize) {
        while self.flow_level() == 0 && self.indent > column {
            self.push(YamlTokenKind::BlockEnd, self.mark);
            self.indent = self.indents.pop().expect("one below each indent");
        }
    }

    /// Returns whether the current line begins with a document marker: three times `c`, followed by
    /// a space or the end.
    fn is_document_indicator(&self, c: char) -> bool {
        self.mark.column == 0
            && (0..3).all(|i| self.char_at(i) == c)
            && is_space_or_end(self.char_at(3))
    }

    fn skip_to_token(&mut self) {
        loop {
            // Tabs are not valid as indentation.
            let tabs = self.flow_level() > 0 || !self.key_allowed;
            self.skip_while(|c| c == ' ' || tabs && c == '\t');
            if self.current_char() == '#' {
                self.skip_while(|c| !is_break_or_end(c));
            }
            if self.skip_break().is_none() {
                return;
            }
            if self.flow_level() == 0 {
                self.key_allowed = true;
            }
        }
    }

    /// Scans the next token and adds it to the queue, together with the tokens that it implies.
    fn fetch(&mut self) -> Result<(), YamlError> {
        self.skip_to_token();
        self.close_blocks(self.mark.column as isize);
        let c = self.current_char();
        let is_alone = is_space_or_end(self.char_at(1));
        let is_flow = self.flow_level() > 0;
        match c {
            END => self.fetch_end(),
            '%' if self.mark.column == 0 => self.fetch_directive(),
            '-' if self.is_document_indicator('-') => {
                self.fetch_document(YamlTokenKind::DocumentStart)
            }
            '.' if self.is_document_indicator('.') => {
                self.fetch_document(YamlTokenKind::DocumentEnd)
            }
            '[' => self.fetch_open(YamlTokenKind::FlowSequenceStart),
            '{' => self.fetch_open(YamlTokenKind::FlowMappingStart),
            ']' => self.fetch_close(YamlTokenKind::FlowSequenceEnd),
            '}' => self.fetch_close(YamlTokenKind::FlowMappingEnd),
            ',' => self.fetch_flow_entry(),
            '-' if is_alone => self.fetch_block_entry(),
            '?' if is_flow || is_alone => self.fetch_key(),
            ':' if is_flow || is_alone => self.fetch_value(),
            '*' | '&' => self.fetch_anchor(),
            '!' => self.fetch_tag(),
            '|' | '>' if !is_flow => self.fetch_block_scalar(),
            '\'' | '"' => self.fetch_quoted(),
            '#' | '|' | '>' | '%' | '@' | '`' | '\t' => {
                Err(self.error("found character that cannot start any token"))
            }
            _ => self.fetch_plain(),
        }
    }

    fn fetch_end(&mut self) -> Result<(), YamlError> {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.end_blocks()?;
        self.push(YamlTokenKind::StreamEnd, self.mark);
        Ok(())
    }

    /// Closes all block collections at the end of a document.
    fn end_blocks(&mut self) -> Result<(), YamlError> {
        self.close_blocks(-1);
        self.drop_last_candidate()?;
        self.key_allowed = false;
        Ok(())
    }

    fn fetch_document(&mut self, kind: YamlTokenKind) -> Result<(), YamlError> {
        self.end_blocks()?;
        self.push_indicator(kind, 3);
        Ok(())
    }

    fn fetch_open(&mut self, kind: YamlTokenKind) -> Result<(), YamlError> {
        self.save_candidate()?;
        if self.flow_level() >= LEVELS_MAX {
            return Err(self.error(&format!("exceeded max depth of {LEVELS_MAX}")));
        }
        self.candidates.push(None);
        self.key_allowed = true;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn fetch_close(&mut self, kind: YamlTokenKind) -> Result<(), YamlError> {
        self.drop_last_candidate()?;
        if self.flow_level() > 0 {
            self.candidates.pop();
        }
        self.key_allowed = false;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), YamlError> {
        self.drop_last_candidate()?;
        self.key_allowed = true;
        self.push_indicator(YamlTokenKind::FlowEntry, 1);
        Ok(())
    }

    /// Checks that a block collection may begin or continue here, and opens it if it begins.
    fn enter_block(&mut self, kind: YamlTokenKind, what: &str) -> Result<(), YamlError> {
        if self.flow_level() > 0 {
            return Ok(());
        }
        if !self.key_allowed {
            return Err(self.error(&format!("{what} are not allowed in this context")));
        }
        self.open_block(self.mark, self.tokens.len(), kind)
    }

    fn fetch_block_entry(&mut self) -> Result<(), YamlError> {
        self.enter_block(YamlTokenKind::BlockSequenceStart, "block sequence entries")?;
        self.drop_last_candidate()?;
        self.key_allowed = true;
        self.push_indicator(YamlTokenKind::BlockEntry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), YamlError> {
        self.enter_block(YamlTokenKind::BlockMappingStart, "mapping keys")?;
        self.drop_last_candidate()?;
        self.key_allowed = self.flow_level() == 0;
        self.push_indicator(YamlTokenKind::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), YamlError> {
        let level = self.flow_level();
        match self
            .is_candidate(level)?
            .then(|| self.candidates[level].take())
            .flatten()
        {
            Some(key) => {
                let index = key.token.saturating_sub(self.taken);
                self.insert(index, YamlTokenKind::Key, key.mark);
                self.open_block(key.mark, index, YamlTokenKind::BlockMappingStart)?;
                self.key_allowed = false;
            }
            None => {
                self.enter_block(YamlTokenKind::BlockMappingStart, "mapping values")?;
                self.key_allowed = level == 0;
            }
        }
        self.push_indicator(YamlTokenKind::Value, 1);
        Ok(())
    }
}
