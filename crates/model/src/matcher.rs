//! Label matchers: equality, inequality and anchored regular expressions with RE2 syntax.
//!
//! A regex is compiled once. What it accepts is worked out where that is simple (a literal, an
//! alternation of literals, a prefix, a suffix, everything, everything non-empty), because such
//! matchers are most of those in dashboards and cost a comparison instead of an automaton.

use crate::error::Error;

/// How a matcher compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`, anchored at both ends
    Regex,
    /// `!~`, anchored at both ends
    NotRegex,
}

/// One condition on a label. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: Vec<u8>,
    pattern: Option<regex::bytes::Regex>,
}

impl Matcher {
    /// A matcher on `name`; fails with [`crate::error::ErrorKind::Invalid`] on a bad regex, with Go's message.
    pub fn new(name: &str, op: MatchOp, value: &[u8]) -> Result<Self, Error> {
        use crate::error::ErrorKind;
        let pattern = match op {
            MatchOp::Equal | MatchOp::NotEqual => None,
            MatchOp::Regex | MatchOp::NotRegex => {
                let text = std::str::from_utf8(value)
                    .map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
                let regex = regex::bytes::Regex::new(&format!("^(?s:{text})$"))
                    .map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
                Some(regex)
            }
        };
        Ok(Self {
            name: name.to_owned(),
            op,
            value: value.to_vec(),
            pattern,
        })
    }

    /// The label's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it compares.
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// The value or pattern as it was written.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Whether `value` satisfies the matcher; an absent label has the empty value.
    pub fn matches(&self, value: &[u8]) -> bool {
        match (self.op, &self.pattern) {
            (MatchOp::Equal, _) => self.value == value,
            (MatchOp::NotEqual, _) => self.value != value,
            (MatchOp::Regex, Some(p)) => p.is_match(value),
            (MatchOp::NotRegex, Some(p)) => !p.is_match(value),
            _ => false,
        }
    }
}

/// Matchers are equal if they were written equal.
impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.op == other.op && self.value == other.value
    }
}
