//! Parses atoms: classes, escapes, anchors, and all constructs that start with `(?`.

use super::{Parsed, RegexParser, fail};
use crate::class::{CharClass, CharClassBuilder};
use crate::tree::RegexNode;
use crate::unicode;
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, Look};

const INVALID_RANGE: &str = "invalid character class range";
const INVALID_ESCAPE: &str = "invalid escape sequence";
const INVALID_GROUP: &str = "invalid or unsupported Perl syntax";
const INVALID_NAME: &str = "invalid named capture";

/// A named set of characters, small or shared.
enum NamedCharSet {
    /// A small set of ranges, which the class copies.
    Set(ClassUnicode),
    /// A table of ranges that all patterns share, which the class refers to.
    Table(unicode::Table),
}

/// A reference to a named set in a pattern, such as `\d` or `[:^alpha:]`.
struct NamedSetReference {
    set: NamedCharSet,
    /// True if the reference means the complement of the set.
    is_negated: bool,
}

impl NamedSetReference {
    /// Adds the set or its complement to a class.
    fn add_to(self, members: &mut CharClassBuilder) {
        match self.set {
            NamedCharSet::Set(set) => members.add_set(set, self.is_negated),
            NamedCharSet::Table(table) => members.add_table(table, self.is_negated),
        }
    }
}

impl<'p> RegexParser<'p> {
    /// Parses an atom that starts with the special character `next`.
    pub(super) fn parse_atom(&mut self, next: char) -> Parsed<'p, ()> {
        let node = match next {
            '[' => return self.parse_bracketed(),
            '\\' => return self.parse_escaped(),
            '.' if self.flags.dot_matches_newline => RegexNode::AnyChar,
            '.' => {
                let mut class = ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]);
                class.negate();
                RegexNode::class(CharClass::from_ranges(class))
            }
            '^' if self.flags.multi_line => RegexNode::Look(Look::StartLF),
            '^' => RegexNode::Look(Look::Start),
            _ if self.flags.multi_line => RegexNode::Look(Look::EndLF),
            _ => RegexNode::Look(Look::End),
        };
        self.at += 1;
        self.push(node)
    }

    /// Parses an escape outside of a class: an assertion, a set, or a character.
    fn parse_escaped(&mut self) -> Parsed<'p, ()> {
        let look = match self.rest().as_bytes().get(1) {
            Some(b'A') => Some(Look::Start),
            Some(b'z') => Some(Look::End),
            Some(b'b') => Some(Look::WordAscii),
            Some(b'B') => Some(Look::WordAsciiNegate),
            Some(b'C') => return fail(INVALID_ESCAPE, &self.rest()[..2]),
            Some(b'Q') => return self.parse_quoted(),
            _ => None,
        };
        if let Some(look) = look {
            self.at += 2;
            return self.push(RegexNode::Look(look));
        }
        if let Some(set) = self.parse_named_set()? {
            let mut members = CharClassBuilder::new(self.flags.fold_case);
            set.add_to(&mut members);
            return self.push_class(members, false);
        }
        let code_point = self.parse_escape()?;
        self.push_char(code_point)
    }

    /// Parses `\Q...\E`: all characters between are literal, and the end may be missing.
    fn parse_quoted(&mut self) -> Parsed<'p, ()> {
        self.at += 2;
        let rest = self.rest();
        let (text, bytes) = match rest.find(r"\E") {
            Some(end) => (&rest[..end], end + 2),
            None => (rest, rest.len()),
        };
        for c in text.chars() {
            self.push_char(c as u32)?;
        }
        self.at += bytes;
        Ok(())
    }

    /// Parses `\p{name}`, `\pN` or a Perl class such as `\d`. Returns `None` if the pattern
    /// continues differently.
    fn parse_named_set(&mut self) -> Parsed<'p, Option<NamedSetReference>> {
        let rest = self.rest();
        let letter = match rest.as_bytes() {
            [b'\\', letter, ..] => *letter,
            _ => return Ok(None),
        };
        if let Some(set) = unicode::perl_set(letter.to_ascii_lowercase()) {
            self.at += 2;
            return Ok(Some(NamedSetReference {
                set: NamedCharSet::Set(set),
                is_negated: letter.is_ascii_uppercase(),
            }));
        }
        if !letter.eq_ignore_ascii_case(&b'p') {
            return Ok(None);
        }
        let (text, name) = match rest[2..].chars().next() {
            Some('{') => match rest.find('}') {
                Some(end) => (&rest[..=end], &rest[3..end]),
                None => return fail(INVALID_RANGE, rest),
            },
            Some(c) => (&rest[..2 + c.len_utf8()], &rest[2..2 + c.len_utf8()]),
            None => return fail(INVALID_RANGE, rest),
        };
        let (name, inverted) = match name.strip_prefix('^') {
            Some(name) => (name, true),
            None => (name, false),
        };
        match unicode::find_set(name, self.flags.fold_case) {
            Some(table) => {
                self.at += text.len();
                Ok(Some(NamedSetReference {
                    set: NamedCharSet::Table(table),
                    is_negated: (letter == b'P') != inverted,
                }))
            }
            None => fail(INVALID_RANGE, text),
        }
    }

    /// Parses an escaped character, such as `\n` or `\x41`. Returns its code point.
    fn parse_escape(&mut self) -> Parsed<'p, u32> {
        let start = self.at;
        self.at += 1;
        let Some(c) = self.next() else {
            return fail("trailing backslash at end of expression", "");
        };
        let value = match c {
            '0' => Some(self.parse_octal(0)),
            '1'..='7' if self.peek().is_some_and(|c| c.is_digit(8)) => {
                Some(self.parse_octal(c as u32 - '0' as u32))
            }
            'x' => self.parse_hexadecimal(),
            'a' => Some(0x07),
            'f' => Some(0x0c),
            'n' => Some(0x0a),
            'r' => Some(0x0d),
            't' => Some(0x09),
            'v' => Some(0x0b),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(c as u32),
            _ => None,
        };
        match value {
            Some(value) => Ok(value),
            None => fail(INVALID_ESCAPE, &self.pattern[start..self.at]),
        }
    }

    /// Parses up to two more octal digits after `value`.
    fn parse_octal(&mut self, mut value: u32) -> u32 {
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            value = value * 8 + digit;
            self.at += 1;
        }
        value
    }

    /// Parses the digits after `\x`: two digits, or any number of them in braces.
    fn parse_hexadecimal(&mut self) -> Option<u32> {
        let first = self.next()?;
        if first != '{' {
            let second = self.next();
            return Some(first.to_digit(16)? * 16 + second?.to_digit(16)?);
        }
        let mut value = 0;
        let mut digits = 0;
        loop {
            match self.next()? {
                '}' => return Some(value).filter(|_| digits > 0),
                c => value = value * 16 + c.to_digit(16)?,
            }
            digits += 1;
            if value > char::MAX as u32 {
                return None;
            }
        }
    }

    /// Parses a class such as `[a-z]` or `[^[:space:]]`.
    fn parse_bracketed(&mut self) -> Parsed<'p, ()> {
        let whole = self.rest();
        self.at += 1;
        let negated = self.rest().starts_with('^');
        self.at += usize::from(negated);
        let mut members = CharClassBuilder::new(self.flags.fold_case);
        let mut is_first = true;
        while is_first || !self.rest().starts_with(']') {
            is_first = false;
            if let Some(set) = self.parse_class_set()? {
                set.add_to(&mut members);
                continue;
            }
            let start = self.at;
            let first = self.parse_class_char(whole)?;
            let mut last = first;
            let rest = self.rest().as_bytes();
            if rest.first() == Some(&b'-') && rest.get(1).is_some_and(|b| *b != b']') {
                self.at += 1;
                last = self.parse_class_char(whole)?;
            }
            if last < first {
                return fail(INVALID_RANGE, &self.pattern[start..self.at]);
            }
            members.add_range(first, last);
        }
        self.at += 1;
        self.push_class(members, negated)
    }

    /// Parses a set inside of a class: `[:name:]`, or one that is also valid outside of classes.
    fn parse_class_set(&mut self) -> Parsed<'p, Option<NamedSetReference>> {
        let rest = self.rest();
        // Search for the end only if there is one, so that a class of a million `[:` is parsed in
        // linear time.
        let has_end = self.named_class_end.is_some_and(|end| self.at + 2 <= end);
        let inside = rest.strip_prefix("[:").filter(|_| has_end);
        let Some((name, _)) = inside.and_then(|r| r.split_once(":]")) else {
            return self.parse_named_set();
        };
        let text = &rest[..name.len() + 4];
        let (name, is_negated) = match name.strip_prefix('^') {
            Some(name) => (name, true),
            None => (name, false),
        };
        match unicode::posix_set(name).map(NamedCharSet::Set) {
            Some(set) => {
                self.at += text.len();
                Ok(Some(NamedSetReference { set, is_negated }))
            }
            None => fail(INVALID_RANGE, text),
        }
    }

    fn parse_class_char(&mut self, whole: &'p str) -> Parsed<'p, u32> {
        match self.peek() {
            None => fail("missing closing ]", whole),
            Some('\\') => self.parse_escape(),
            Some(c) => {
                self.at += c.len_utf8();
                Ok(c as u32)
            }
        }
    }

    /// Parses a construct that starts with `(?`: a named group, flags, or a group without a number.
    pub(super) fn parse_group_with_flags(&mut self) -> Parsed<'p, ()> {
        let rest = self.rest();
        let name_at = match rest.as_bytes() {
            [_, _, b'P', b'<', _, ..] => Some(4),
            [_, _, b'<', _, ..] => Some(3),
            _ => None,
        };
        match name_at {
            Some(name_at) => self.parse_named_group(rest, name_at),
            None => self.parse_flags_or_group(),
        }
    }

    fn parse_named_group(&mut self, rest: &'p str, name_at: usize) -> Parsed<'p, ()> {
        let Some(end) = rest.find('>') else {
            return fail(INVALID_NAME, rest);
        };
        let name = rest.get(name_at..end).unwrap_or("");
        let is_word = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
        if name.is_empty() || !name.bytes().all(is_word) {
            return fail(INVALID_NAME, &rest[..=end]);
        }
        self.at += end + 1;
        self.open_numbered(Some(name.to_owned()))
    }

    fn parse_flags_or_group(&mut self) -> Parsed<'p, ()> {
        let start = self.at;
        self.at += 2;
        let mut flags = self.flags;
        let mut on = true;
        let mut has_flag = false;
        while let Some(c) = self.next() {
            match c {
                'i' => flags.fold_case = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_matches_newline = on,
                'U' => flags.swap_greed = on,
                '-' if on => {
                    on = false;
                    has_flag = false;
                    continue;
                }
                ':' | ')' if on || has_flag => {
                    let outside = std::mem::replace(&mut self.flags, flags);
                    return match c {
                        ':' => self.open(None, outside),
                        _ => Ok(()),
                    };
                }
                _ => break,
            }
            has_flag = true;
        }
        fail(INVALID_GROUP, &self.pattern[start..self.at])
    }
}
