//! Regular expressions with the syntax and meaning of Go's `regexp` (RE2), anchored at both ends.
//!
//! ```text
//! text -- plain --> a set of values, where there is nothing but text and `|`
//!      \- parser --> Node tree -- strategy --> comparisons, where the tree is simple enough
//!                              \- compile ---> automata of `regex-automata`
//! ```
//!
//! A pattern is read by a parser of its own and never by that of the `regex` crate: the two
//! languages differ in what they refuse and, worse, in what some accepted text means. Patterns
//! match bytes; on text that is not UTF-8 only `.*` and `.+` match the broken parts.
//!
//! Invariant: for any text the work and memory of [`Regex::new`] are bounded by the limits below,
//! and matching is linear in the length of the value. Error texts are Go's.

mod class;
mod compile;
mod parser;
mod plain;
mod stepper;
mod strategy;
mod template;
#[cfg(test)]
mod tests;
mod tree;
mod unicode;

pub use stepper::{State, Stepper};

use crate::error::{Error, ErrorKind};
use crate::value_set::ValueSet;
use regex_automata::Input;
use regex_automata::meta;
use std::ops::Range;
use strategy::Strategy;
use tree::Node;

/// Bytes that the tree of a pattern may take, counted while it is read. Go allows 128 MiB for its
/// program. This holds an alternation of 70,000 pod names of 40 bytes, which is more than a request
/// may carry, and keeps reading any pattern below 100 MB and 25 ms.
const TREE_BYTES_MAX: usize = 16 << 20;

/// Bytes that an automaton may take: thirty times `.{1000}`, and enough for a hundred letters of
/// any script. Running into it takes 0.2 s, the most that a pattern may cost before it is refused.
const AUTOMATON_BYTES_MAX: usize = 32 << 20;

/// Bytes of a pattern that an error repeats.
const QUOTED_BYTES_MAX: usize = 1024;

/// An anchored pattern, in which `.` matches a newline (Prometheus compiles `^(?s:PATTERN)$`).
#[derive(Debug)]
pub struct Regex {
    strategy: Strategy,
}

impl Regex {
    /// Reads and compiles `pattern`; fails with [`ErrorKind::Invalid`] and Go's message.
    ///
    /// ```
    /// use firn_model::regex::Regex;
    /// assert!(Regex::new(b"api|web-[0-9]+").unwrap().is_match(b"web-7"));
    /// let e = Regex::new(b"(a").unwrap_err();
    /// assert_eq!(e.message, "error parsing regexp: missing closing ): `(a`");
    /// ```
    pub fn new(pattern: &[u8]) -> Result<Self, Error> {
        let text = text(pattern)?;
        if let Some(choices) = plain::choices(text) {
            let strategy = Strategy::Set(choices);
            return Ok(Self { strategy });
        }
        let strategy = Strategy::new(parse(text)?).map_err(|_| too_large(pattern))?;
        Ok(Self { strategy })
    }

    /// Whether all of `value` matches.
    pub fn is_match(&self, value: &[u8]) -> bool {
        self.strategy.is_match(value)
    }

    /// The values that match, if they are few enough to be listed.
    pub fn literal_set(&self) -> Option<&ValueSet> {
        self.strategy.literal_set()
    }

    /// What every matching value starts with; empty if that is not known.
    pub fn prefix(&self) -> &[u8] {
        self.strategy.prefix()
    }

    /// An automaton to lead through many sorted values; `None` if comparing each is cheaper, or if
    /// the automaton takes more than `bytes_max`. Building it takes some 50 us for a short pattern.
    pub fn stepper(&self, bytes_max: usize) -> Option<Stepper> {
        Stepper::new(self.strategy.tree()?, bytes_max)
    }

    /// Whether every value matches, the empty one included. `false` may also mean "not known".
    pub fn matches_everything(&self) -> bool {
        self.strategy.matches_everything()
    }

    /// Whether every value but the empty one matches. `false` may also mean "not known".
    pub fn matches_any_non_empty(&self) -> bool {
        self.strategy.matches_any_non_empty()
    }
}

/// An anchored pattern that says what its groups matched: for `label_replace` and relabelling.
#[derive(Debug)]
pub struct CaptureRegex {
    automaton: meta::Regex,
    names: Vec<(String, usize)>,
}

impl CaptureRegex {
    /// Reads and compiles `^(?s:PATTERN)$`; fails with [`ErrorKind::Invalid`] and Go's message,
    /// which shows the pattern with what stands around it.
    pub fn new(pattern: &[u8]) -> Result<Self, Error> {
        let wrapped = [b"^(?s:", pattern, b")$"].concat();
        let tree = parse(text(&wrapped)?)?;
        let automaton = compile::with_captures(&tree).map_err(|_| too_large(&wrapped))?;
        let mut names = Vec::new();
        tree.capture_names(&mut names);
        Ok(Self { automaton, names })
    }

    /// What the groups matched, or `None` if `value` as a whole does not match.
    pub fn captures<'v>(&self, value: &'v [u8]) -> Option<Captures<'_, 'v>> {
        let mut found = self.automaton.create_captures();
        self.automaton
            .search_captures(&Input::new(value), &mut found);
        found.is_match().then(|| Captures {
            value,
            groups: (0..found.group_len())
                .map(|i| found.get_group(i).map(|span| span.range()))
                .collect(),
            names: &self.names,
        })
    }
}

/// What the groups of a [`CaptureRegex`] matched in one value.
#[derive(Clone, Debug)]
pub struct Captures<'r, 'v> {
    value: &'v [u8],
    groups: Vec<Option<Range<usize>>>,
    names: &'r [(String, usize)],
}

impl<'v> Captures<'_, 'v> {
    /// What group `index` matched; 0 is the whole value. `None` if it took no part or is unknown.
    pub fn get(&self, index: usize) -> Option<&'v [u8]> {
        self.value.get(self.groups.get(index)?.clone()?)
    }

    /// What the group called `name` matched: of several, the first one that took part.
    pub fn get_named(&self, name: &str) -> Option<&'v [u8]> {
        self.names
            .iter()
            .filter(|(n, _)| n == name)
            .find_map(|(_, index)| self.get(*index))
    }

    /// Writes `template` with `$1`, `${1}`, `$name` and `${name}` replaced by what the groups
    /// matched and `$$` by a dollar, as Go's `Regexp.Expand`.
    pub fn expand(&self, template: &str, into: &mut Vec<u8>) {
        template::expand(self, template, into);
    }

    /// How many bytes [`Captures::expand`] writes: a short template may name a long group often.
    pub fn expanded_len(&self, template: &str) -> usize {
        template::expanded_len(self, template)
    }
}

fn text(pattern: &[u8]) -> Result<&str, Error> {
    let not_text = |_| invalid("invalid UTF-8", &String::from_utf8_lossy(pattern));
    std::str::from_utf8(pattern).map_err(not_text)
}

fn parse(pattern: &str) -> Result<Node, Error> {
    parser::parse(pattern).map_err(|e| invalid(e.code, e.expression))
}

fn too_large(pattern: &[u8]) -> Error {
    invalid(parser::TOO_LARGE, &String::from_utf8_lossy(pattern))
}

fn invalid(code: &str, expression: &str) -> Error {
    let quoted = match expression.len() > QUOTED_BYTES_MAX {
        true => &expression[..expression.floor_char_boundary(QUOTED_BYTES_MAX)],
        false => expression,
    };
    let mut message = format!("error parsing regexp: {code}: `{quoted}`");
    if quoted.len() < expression.len() {
        message.push_str(&format!(" ({} bytes)", expression.len()));
    }
    Error::new(ErrorKind::Invalid, message)
}
