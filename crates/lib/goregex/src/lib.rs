//! Regular expressions with the syntax and semantics of Go's `regexp` (RE2), in bounded memory.
//!
//! [`Regex`] matches whole values, [`CaptureRegex`] also returns the matches of groups, and
//! [`SearchRegex`] finds and replaces matches anywhere in a text.
//!
//! ```
//! use firn_goregex::{CaptureRegex, Regex};
//!
//! let regex = Regex::new(b"api|web-[0-9]+")?;
//! assert!(regex.is_match(b"web-7") && !regex.is_match(b"a web-7"));
//! let listed = Regex::new(b"api|web")?;
//! assert_eq!(listed.literal_set().map(|values| values.len()), Some(2));
//!
//! let regex = CaptureRegex::new(b"(?P<host>[^:]+):.*")?;
//! let mut host = Vec::new();
//! regex.captures(b"db-1:9100").expect("a match").expand("${host}", &mut host);
//! assert_eq!(host, b"db-1");
//! # Ok::<(), firn_goregex::RegexError>(())
//! ```
//!
//! ```text
//! text -- plain --> a set of values, if the pattern contains nothing but text and `|`
//!      \- parser --> Node tree -- strategy --> comparisons, if the tree is simple enough
//!                              \- engine, when the first value is matched
//!                                    |- compile --> automata of `regex-automata` over bytes
//!                                    `- program --> walker or pike, over characters: large trees
//! ```
//!
//! Patterns are parsed by a parser of their own and never by that of the `regex` crate: the two
//! languages differ in the patterns that they reject and, more importantly, in the meaning of some
//! accepted ones. Patterns match bytes. In a value that is not valid UTF-8, only `.*` and `.+`
//! match the invalid parts.
//!
//! All patterns that Go accepts are accepted, regardless of their cost, and the cost is accounted
//! for: parsing a pattern takes at most [`parse_memory_bytes`], and its automaton reserves memory
//! in the [`RegexLimits`] that the pattern is bound to.
//!
//! Invariant: matching takes time linear in the length of the value. Error texts are those of Go.
//!
//! The crate has no general search API: it does not iterate over the matches in a text, and
//! [`Regex`] and [`CaptureRegex`] are always anchored at both ends.

mod class;
mod compile;
mod engine;
mod limits;
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
mod value_set;
mod walker;

pub use limits::{RegexError, RegexErrorKind, RegexLimits, UnlimitedRegex};
pub use search::SearchRegex;
pub use stepper::{RegexStepper, RegexStepperState};
pub use value_set::ValueSet;

use limits::{RegexMemory, lock};
use pike::PikeMatcher;
use program::RegexProgram;
use regex_automata::Input;
use regex_automata::meta;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use strategy::RegexStrategy;
use tree::RegexNode;

/// Maximum number of bytes of a pattern that an error message repeats.
const QUOTED_BYTES_MAX: usize = 1024;

/// Returns the maximum memory for parsing `pattern` in bytes, including the resulting pattern. It
/// is larger if the pattern contains groups with flags or character classes.
pub fn parse_memory_bytes(pattern: &[u8]) -> usize {
    /// A node, its entry in a list with capacity for twice as many, and its heap block; or a value
    /// of a set, and its entries in two lists while it is sorted.
    const NODE_BYTES: usize = 256;
    /// A range of a character class, in the tree and in the compiled form.
    const RANGE_BYTES: usize = 32;
    /// A literal character, in a tree and in a set.
    const CHAR_BYTES: usize = 4;
    let nodes = if pattern.windows(2).any(|pair| pair == b"(?") {
        pattern.len()
    } else {
        pattern.iter().filter(|b| plain::is_special(**b)).count()
    };
    let char_bytes = if pattern.contains(&b'[') {
        RANGE_BYTES
    } else {
        CHAR_BYTES
    };
    (nodes + 1) * NODE_BYTES + pattern.len() * char_bytes
}

/// An anchored pattern in which `.` matches a newline. Prometheus compiles it as `^(?s:PATTERN)$`.
#[derive(Debug)]
pub struct Regex {
    strategy: RegexStrategy,
}

impl Regex {
    /// Parses `pattern`, which takes up to [`parse_memory_bytes`]. Fails with
    /// [`RegexErrorKind::Syntax`] and the message of Go. An automaton is created only when the
    /// first value is matched.
    ///
    /// ```
    /// use firn_goregex::Regex;
    /// assert!(Regex::new(b"api|web-[0-9]+").unwrap().is_match(b"web-7"));
    /// let e = Regex::new(b"(a").unwrap_err();
    /// assert_eq!(e.message, "error parsing regexp: missing closing ): `(a`");
    /// ```
    pub fn new(pattern: &[u8]) -> Result<Self, RegexError> {
        let text = text(pattern)?;
        let strategy = match plain::parse_choices(text) {
            Some(choices) => RegexStrategy::Set(choices),
            None => RegexStrategy::new(parse(text)?),
        };
        Ok(Self { strategy })
    }

    /// Sets the limits in which an automaton reserves its memory and by which it is stopped. Only
    /// the first call has an effect.
    pub fn bind(&self, limits: Arc<dyn RegexLimits>) {
        if let Some(automaton) = self.strategy.automaton() {
            automaton.bind(limits);
        }
    }

    /// Creates the automaton of a pattern if it needs one and has none. Fails with
    /// [`RegexErrorKind::Memory`] if there is not enough memory, or with the reason if the
    /// automaton was stopped in the meantime. Callers that match many values must call this
    /// before and after.
    pub fn prepare(&self) -> Result<(), RegexError> {
        match self.strategy.automaton() {
            Some(automaton) => automaton.build_engine().map(drop),
            None => Ok(()),
        }
    }

    /// Returns whether the whole `value` matches. See [`Regex::prepare`] for failures.
    pub fn is_match(&self, value: &[u8]) -> bool {
        self.strategy.is_match(value)
    }

    /// Returns the matching values, if they are few enough to be listed.
    pub fn literal_set(&self) -> Option<&ValueSet> {
        self.strategy.literal_set()
    }

    /// Returns the common prefix of all matching values. Empty if it cannot be determined.
    pub fn prefix(&self) -> &[u8] {
        self.strategy.prefix()
    }

    /// Returns an automaton for many sorted values. `None` if comparing each value is cheaper, or
    /// if the automaton needs more than `bytes_max`. Building it takes about 50 µs for a short
    /// pattern.
    pub fn stepper(&self, bytes_max: usize) -> Option<RegexStepper> {
        self.strategy.automaton()?.stepper(bytes_max)
    }

    /// Returns true if every value certainly matches, including the empty one. False may also mean
    /// that this cannot be determined.
    pub fn matches_everything(&self) -> bool {
        self.strategy.matches_everything()
    }

    /// Returns true if exactly the non-empty values certainly match. False may also mean that this
    /// cannot be determined.
    pub fn matches_any_non_empty(&self) -> bool {
        self.strategy.matches_any_non_empty()
    }
}

/// An anchored pattern that also returns the matches of its groups, for `label_replace` and
/// relabelling.
#[derive(Debug)]
pub struct CaptureRegex {
    engine: CaptureEngine,
    names: Vec<(String, usize)>,
}

#[derive(Debug)]
enum CaptureEngine {
    Automaton {
        automaton: Box<meta::Regex>,
        _memory: RegexMemory,
    },
    Pike(Box<Mutex<PikeMatcher>>),
}

impl CaptureRegex {
    /// Parses and compiles `^(?s:PATTERN)$`. Fails with [`RegexErrorKind::Syntax`] and the message
    /// of Go, which contains the pattern with this wrapping.
    pub fn new(pattern: &[u8]) -> Result<Self, RegexError> {
        Self::new_with_limits(pattern, &(Arc::new(UnlimitedRegex) as Arc<dyn RegexLimits>))
    }

    /// Parses and compiles the pattern of a query like [`Self::new`]. Fails with
    /// [`RegexErrorKind::Memory`] if `limits` are exceeded. While their check fails, the pattern
    /// may match nothing.
    pub fn new_with_limits(
        pattern: &[u8],
        limits: &Arc<dyn RegexLimits>,
    ) -> Result<Self, RegexError> {
        let wrapped = [b"^(?s:", pattern, b")$"].concat();
        let _reading = RegexMemory::reserve(limits, parse_memory_bytes(&wrapped))?;
        let tree = parse(text(&wrapped)?)?;
        let mut names = Vec::new();
        tree.append_capture_names(&mut names);
        let len = program::len(&tree);
        if let Some(bytes) = engine::automaton_bytes_max(&tree, len)
            && let Ok(mut memory) = RegexMemory::reserve(limits, bytes)
            && let Ok(automaton) = compile::compile_with_captures(&tree)
        {
            memory.shrink_to(automaton.memory_usage() + 2 * engine::REMEMBERED_BYTES_MAX);
            let engine = CaptureEngine::Automaton {
                automaton: Box::new(automaton),
                _memory: memory,
            };
            return Ok(Self { engine, names });
        }
        let groups = tree.groups_count();
        let memory = RegexMemory::reserve(limits, pike::memory_bytes(len, groups))?;
        let program = RegexProgram::new(&tree, true);
        let pike = PikeMatcher::new(program, groups, memory, limits.clone());
        let engine = CaptureEngine::Pike(Box::new(Mutex::new(pike)));
        Ok(Self { engine, names })
    }

    /// Returns the matches of all groups, or `None` if the whole `value` does not match.
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

/// The matches of the groups of a [`CaptureRegex`] in one value.
#[derive(Clone, Debug)]
pub struct Captures<'r, 'v> {
    value: &'v [u8],
    groups: Vec<Option<Range<usize>>>,
    names: &'r [(String, usize)],
}

impl<'v> Captures<'_, 'v> {
    /// Returns the match of group `index`; 0 is the whole value. `None` if the group did not
    /// participate or does not exist.
    pub fn get(&self, index: usize) -> Option<&'v [u8]> {
        self.value.get(self.groups.get(index)?.clone()?)
    }

    /// Returns the match of the group called `name`. If there are several, that of the first one
    /// that participated.
    pub fn get_named(&self, name: &str) -> Option<&'v [u8]> {
        self.names
            .iter()
            .filter(|(n, _)| n == name)
            .find_map(|(_, index)| self.get(*index))
    }

    /// Appends `template` to `into`. As in Go's `Regexp.Expand`, `$1`, `${1}`, `$name` and
    /// `${name}` are replaced by the matches of groups, and `$$` by a dollar sign.
    pub fn expand(&self, template: &str, into: &mut Vec<u8>) {
        template::expand(self, template, into);
    }

    /// Returns the number of bytes that [`Captures::expand`] appends. A short template may refer to
    /// a long group many times.
    pub fn expanded_len(&self, template: &str) -> usize {
        template::expanded_len(self, template)
    }
}

fn text(pattern: &[u8]) -> Result<&str, RegexError> {
    let not_text = |_| invalid("invalid UTF-8", &String::from_utf8_lossy(pattern));
    std::str::from_utf8(pattern).map_err(not_text)
}

fn parse(pattern: &str) -> Result<RegexNode, RegexError> {
    parser::parse(pattern).map_err(|e| invalid(e.code, e.expression))
}

fn invalid(code: &str, expression: &str) -> RegexError {
    let quoted = if expression.len() > QUOTED_BYTES_MAX {
        &expression[..expression.floor_char_boundary(QUOTED_BYTES_MAX)]
    } else {
        expression
    };
    let mut message = format!("error parsing regexp: {code}: `{quoted}`");
    if quoted.len() < expression.len() {
        message.push_str(&format!(" ({} bytes)", expression.len()));
    }
    RegexError::new(RegexErrorKind::Syntax, message)
}
