//! Regular expressions with the syntax and meaning of Go's `regexp` (RE2), anchored at both ends.
//!
//! ```text
//! text -- plain --> a set of values, where there is nothing but text and `|`
//!      \- parser --> Node tree -- strategy --> comparisons, where the tree is simple enough
//!                              \- engine, when the first value comes
//!                                    |- compile --> automata of `regex-automata` over bytes
//!                                    `- program --> walker or pike, over characters: large trees
//! ```
//!
//! A pattern is read by a parser of its own and never by that of the `regex` crate: the two
//! languages differ in what they refuse and, worse, in what some accepted text means. Patterns
//! match bytes; on text that is not UTF-8 only `.*` and `.+` match the broken parts.
//!
//! What Go takes is taken, whatever it costs, and what it costs is counted: a pattern is read in
//! [`reading_bytes`], and its automaton reserves in the budget that the pattern is bound to.
//!
//! Invariant: matching is linear in the length of the value. Error texts are Go's.

mod class;
mod compile;
mod engine;
mod parser;
mod pike;
mod plain;
mod program;
mod search;
mod stepper;
mod strategy;
mod template;
#[cfg(test)]
mod tests;
mod tree;
mod unicode;
mod walker;

pub use search::SearchRegex;
pub use stepper::{State, Stepper};

use crate::budget::{Budget, Reservation};
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind};
use crate::sync::lock;
use crate::value_set::ValueSet;
use engine::Bounds;
use pike::Pike;
use program::Program;
use regex_automata::Input;
use regex_automata::meta;
use std::ops::Range;
use std::sync::Mutex;
use strategy::Strategy;
use tree::Node;

/// Bytes of a pattern that an error repeats.
const QUOTED_BYTES_MAX: usize = 1024;

/// What reading `pattern` may take, the pattern that comes of it included: more where characters
/// stand for more than themselves.
pub fn reading_bytes(pattern: &[u8]) -> usize {
    /// A node, its place in a list that may have room for twice as many, and its heap block; or a
    /// value of a set, and its place in two lists while it is sorted.
    const NODE_BYTES: usize = 256;
    /// A range of a class, in two forms.
    const RANGE_BYTES: usize = 32;
    /// A literal character, in a tree and in a set.
    const CHAR_BYTES: usize = 4;
    let nodes = match pattern.windows(2).any(|pair| pair == b"(?") {
        true => pattern.len(),
        false => pattern.iter().filter(|b| plain::is_special(**b)).count(),
    };
    let char_bytes = match pattern.contains(&b'[') {
        true => RANGE_BYTES,
        false => CHAR_BYTES,
    };
    (nodes + 1) * NODE_BYTES + pattern.len() * char_bytes
}

/// An anchored pattern, in which `.` matches a newline (Prometheus compiles `^(?s:PATTERN)$`).
#[derive(Debug)]
pub struct Regex {
    strategy: Strategy,
}

impl Regex {
    /// Reads `pattern`; fails with [`ErrorKind::Invalid`] and Go's message. Takes up to
    /// [`reading_bytes`]. An automaton is not made before the first value comes.
    ///
    /// ```
    /// use firn_model::regex::Regex;
    /// assert!(Regex::new(b"api|web-[0-9]+").unwrap().is_match(b"web-7"));
    /// let e = Regex::new(b"(a").unwrap_err();
    /// assert_eq!(e.message, "error parsing regexp: missing closing ): `(a`");
    /// ```
    pub fn new(pattern: &[u8]) -> Result<Self, Error> {
        let text = text(pattern)?;
        let strategy = match plain::choices(text) {
            Some(choices) => Strategy::Set(choices),
            None => Strategy::new(parse(text)?),
        };
        Ok(Self { strategy })
    }

    /// Sets where an automaton reserves its memory and what stops it. The first call decides.
    pub fn bind(&self, budget: &Budget, cancel: &Cancel) {
        if let Some(automaton) = self.strategy.automaton() {
            automaton.bind(&Bounds {
                budget: budget.clone(),
                cancel: cancel.clone(),
            });
        }
    }

    /// Makes the automaton of a pattern that needs one, if there is none yet. Fails with
    /// [`ErrorKind::Limited`] if there is no memory for it, or with the reason if it was stopped
    /// since. A caller that matches many values must call this before and after them.
    pub fn ready(&self) -> Result<(), Error> {
        match self.strategy.automaton() {
            Some(automaton) => automaton.ready().map(drop),
            None => Ok(()),
        }
    }

    /// Whether all of `value` matches; see [`Regex::ready`].
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
        self.strategy.automaton()?.stepper(bytes_max)
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
    engine: CaptureEngine,
    names: Vec<(String, usize)>,
}

#[derive(Debug)]
enum CaptureEngine {
    Automaton {
        automaton: Box<meta::Regex>,
        _memory: Reservation,
    },
    Pike(Box<Mutex<Pike>>),
}

impl CaptureRegex {
    /// Reads and compiles `^(?s:PATTERN)$`; fails with [`ErrorKind::Invalid`] and Go's message,
    /// which shows the pattern with what stands around it.
    pub fn new(pattern: &[u8]) -> Result<Self, Error> {
        let Bounds { budget, cancel } = Bounds::none();
        Self::within(pattern, &budget, &cancel)
    }

    /// A pattern of a query. Like [`Self::new`], but fails with [`ErrorKind::Limited`] if `budget`
    /// has no room for it. While `cancel` is set nothing may match.
    pub fn within(pattern: &[u8], budget: &Budget, cancel: &Cancel) -> Result<Self, Error> {
        let wrapped = [b"^(?s:", pattern, b")$"].concat();
        let _reading = budget.reserve(reading_bytes(&wrapped))?;
        let tree = parse(text(&wrapped)?)?;
        let mut names = Vec::new();
        tree.capture_names(&mut names);
        let len = program::len(&tree);
        if let Some(bytes) = engine::automaton_bytes_max(&tree, len)
            && let Ok(mut memory) = budget.reserve(bytes)
            && let Ok(automaton) = compile::with_captures(&tree)
        {
            memory.shrink_to(automaton.memory_usage() + 2 * engine::REMEMBERED_BYTES_MAX);
            let engine = CaptureEngine::Automaton {
                automaton: Box::new(automaton),
                _memory: memory,
            };
            return Ok(Self { engine, names });
        }
        let groups = tree.groups_count();
        let memory = budget.reserve(pike::bytes(len, groups))?;
        let program = Program::new(&tree, true);
        let pike = Pike::new(program, groups, memory, cancel.clone());
        let engine = CaptureEngine::Pike(Box::new(Mutex::new(pike)));
        Ok(Self { engine, names })
    }

    /// What the groups matched, or `None` if `value` as a whole does not match.
    pub fn captures<'v>(&self, value: &'v [u8]) -> Option<Captures<'_, 'v>> {
        let groups = match &self.engine {
            CaptureEngine::Automaton { automaton, .. } => {
                let mut found = automaton.create_captures();
                automaton.search_captures(&Input::new(value), &mut found);
                let group = |at| found.get_group(at).map(|span| span.range());
                found
                    .is_match()
                    .then(|| (0..found.group_len()).map(group).collect())?
            }
            CaptureEngine::Pike(pike) => {
                let groups = lock(pike).captures(value)?;
                let range = |(start, end)| start..end;
                groups.into_iter().map(|group| group.map(range)).collect()
            }
        };
        Some(Captures {
            value,
            groups,
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
