//! Label matchers: equality, inequality and anchored regular expressions with RE2 syntax.
//!
//! For simple matchers the accepted values are available as a set, a prefix, all values, or all
//! non-empty values, so that an index can look values up instead of testing all of them.
//! [`crate::regex`] derives this from patterns.

use crate::budget::Budget;
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::regex::{Regex, ValueSet, regex_limits};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The operator of a matcher, as in a PromQL selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// The operator `=`: the label has exactly this value.
    Equal,
    /// The operator `!=`: the label has a different value. An absent label has the empty value.
    NotEqual,
    /// The operator `=~`: the whole value matches a regular expression.
    Regex,
    /// The operator `!~`: the value does not match a regular expression.
    NotRegex,
}

impl MatchOp {
    /// Returns whether the operator is `!=` or `!~`, so that the condition is negated.
    pub fn is_negative(self) -> bool {
        matches!(self, MatchOp::NotEqual | MatchOp::NotRegex)
    }

    /// Returns the operator as it is written in a selector.
    pub fn as_str(self) -> &'static str {
        match self {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        }
    }
}

/// The values that a matcher compares with, without considering a negation.
enum MatcherOperand {
    /// A single value, stored as a set so that it can be listed.
    Value(ValueSet),
    /// A regular expression, which is anchored at both ends.
    Pattern(Regex),
}

struct MatcherCondition {
    name: Box<str>,
    op: MatchOp,
    value: Arc<[u8]>,
    accepts: MatcherOperand,
}

/// A matcher of one label, with its parsed pattern. Cloning is cheap.
#[derive(Clone)]
pub struct Matcher(Arc<MatcherCondition>);

impl Matcher {
    /// Creates a matcher of the label `name`. Fails with [`crate::error::ErrorKind::Invalid`] and
    /// the message of Go if the regular expression is invalid.
    ///
    /// ```
    /// use firn_model::matcher::{MatchOp, Matcher};
    /// let m = Matcher::new("job", MatchOp::Regex, b"api|web").unwrap();
    /// assert!(m.matches(b"web") && !m.matches(b"web2"));
    /// assert_eq!(m.literal_set().unwrap().len(), 2);
    /// ```
    pub fn new(name: &str, op: MatchOp, value: &[u8]) -> Result<Self, Error> {
        let accepts = match op {
            MatchOp::Equal | MatchOp::NotEqual => {
                MatcherOperand::Value([value.to_vec()].into_iter().collect())
            }
            MatchOp::Regex | MatchOp::NotRegex => MatcherOperand::Pattern(Regex::new(value)?),
        };
        Ok(Self(Arc::new(MatcherCondition {
            name: name.into(),
            op,
            value: value.into(),
            accepts,
        })))
    }

    /// Returns the name of the label that is matched.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the operator of the matcher.
    pub fn op(&self) -> MatchOp {
        self.0.op
    }

    /// Returns the value or the pattern as it was written.
    pub fn value(&self) -> &[u8] {
        &self.0.value
    }

    /// Returns the value or the pattern with shared ownership.
    pub fn shared_value(&self) -> &Arc<[u8]> {
        &self.0.value
    }

    /// Returns whether `value` satisfies the matcher. An absent label has the empty value. Callers
    /// that check many values must call [`Matcher::prepare`] before and after.
    pub fn matches(&self, value: &[u8]) -> bool {
        let accepted = match &self.0.accepts {
            MatcherOperand::Value(_) => *self.0.value == *value,
            MatcherOperand::Pattern(regex) => regex.is_match(value),
        };
        accepted != self.0.op.is_negative()
    }

    /// Sets the budget in which the automaton of a pattern reserves its memory, and the flag that
    /// cancels it.
    pub fn bind(&self, budget: &Budget, cancel: &CancelToken) {
        if let Some(regex) = self.pattern() {
            regex.bind(regex_limits(budget, cancel));
        }
    }

    /// Creates the automaton of a pattern if it needs one; see [`Regex::prepare`].
    pub fn prepare(&self) -> Result<(), Error> {
        Ok(self.pattern().map_or(Ok(()), Regex::prepare)?)
    }

    /// Returns whether a series without the label satisfies the matcher.
    pub fn matches_empty(&self) -> bool {
        self.matches(b"")
    }

    /// Returns the values that satisfy the matcher, if it is positive and they can be listed.
    pub fn literal_set(&self) -> Option<&ValueSet> {
        self.literal_operand().filter(|_| !self.0.op.is_negative())
    }

    /// Returns the values that do not satisfy the matcher, if it is negative and they can be
    /// listed.
    pub fn excluded_set(&self) -> Option<&ValueSet> {
        self.literal_operand().filter(|_| self.0.op.is_negative())
    }

    fn literal_operand(&self) -> Option<&ValueSet> {
        match &self.0.accepts {
            MatcherOperand::Value(value) => Some(value),
            MatcherOperand::Pattern(regex) => regex.literal_set(),
        }
    }

    /// Returns the regular expression of `=~` or `!~`, without considering the negation.
    pub fn pattern(&self) -> Option<&Regex> {
        match &self.0.accepts {
            MatcherOperand::Value(_) => None,
            MatcherOperand::Pattern(regex) => Some(regex),
        }
    }

    /// Returns true if every value certainly satisfies the matcher, including the empty one.
    pub fn matches_everything(&self) -> bool {
        match &self.0.accepts {
            MatcherOperand::Pattern(regex) => {
                !self.0.op.is_negative() && regex.matches_everything()
            }
            MatcherOperand::Value(_) => false,
        }
    }

    /// Returns true if exactly the non-empty values certainly satisfy the matcher.
    pub fn matches_any_non_empty(&self) -> bool {
        match &self.0.accepts {
            MatcherOperand::Pattern(regex) if !self.0.op.is_negative() => {
                regex.matches_any_non_empty()
            }
            _ => self.excluded_set().is_some_and(ValueSet::is_only_empty),
        }
    }
}

/// Two matchers are equal if they are written in the same way.
impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        Arc::ptr_eq(a, b) || (&a.name, a.op, &a.value) == (&b.name, b.op, &b.value)
    }
}

impl Eq for Matcher {}

impl Hash for Matcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.name, self.0.op, &self.0.value).hash(state);
    }
}

/// Formats the matcher as in a selector: `name=~"pattern"`. The value is escaped.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = String::from_utf8_lossy(&self.0.value);
        write!(f, "{}{}{value:?}", self.0.name, self.0.op.as_str())
    }
}

/// Formats the matcher like `Display`, because a compiled pattern would fill pages.
impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all facts that an index can derive from a matcher, as text.
    fn facts(op: MatchOp, value: &str) -> String {
        let m = Matcher::new("a", op, value.as_bytes()).unwrap();
        let list = |set: Option<&ValueSet>| {
            set.map(|s| s.iter().map(|v| String::from_utf8_lossy(v).into_owned()))
                .map(|s| s.collect::<Vec<_>>().join(","))
        };
        let mut facts = Vec::new();
        facts.extend(list(m.literal_set()).map(|l| format!("one of [{l}]")));
        facts.extend(list(m.excluded_set()).map(|l| format!("none of [{l}]")));
        let prefix = m.pattern().map_or(&[][..], Regex::prefix);
        if !prefix.is_empty() {
            facts.push(format!("prefix {}", String::from_utf8_lossy(prefix)));
        }
        let flags = [
            (m.matches_empty(), "empty"),
            (m.matches_everything(), "everything"),
            (m.matches_any_non_empty(), "any non-empty"),
        ];
        facts.extend(flags.iter().filter(|f| f.0).map(|f| f.1.to_owned()));
        facts.join("; ")
    }

    #[test]
    fn matcher_tells_the_index_what_it_accepts() {
        use MatchOp::*;
        let cases = [
            (Equal, "x", "one of [x]"),
            (Equal, "", "one of []; empty"),
            (NotEqual, "x", "none of [x]; empty"),
            (NotEqual, "", "none of []; any non-empty"),
            (Regex, "xa|xb", "one of [xa,xb]; prefix x"),
            (Regex, "xa|", "one of [,xa]; empty"),
            (Regex, "x.*", "prefix x"),
            (Regex, "x[0-9]+", "prefix x"),
            (Regex, ".*", "empty; everything"),
            (Regex, ".+", "any non-empty"),
            (NotRegex, "xa|xb", "none of [xa,xb]; prefix x; empty"),
            (NotRegex, "x.*", "prefix x; empty"),
            (NotRegex, ".*", ""),
            (NotRegex, ".+", "empty"),
            (NotRegex, "", "none of []; any non-empty"),
        ];
        for (op, value, wanted) in cases {
            assert_eq!(facts(op, value), wanted, "{op:?} {value:?}");
        }
    }

    #[test]
    fn matcher_negation_turns_the_answer_round() {
        for (value, wanted) in [("a1", true), ("b", false), ("", false)] {
            for (op, sign) in [(MatchOp::Regex, true), (MatchOp::NotRegex, false)] {
                let m = Matcher::new("l", op, b"a[0-9].?").unwrap();
                assert_eq!(m.matches(value.as_bytes()), wanted == sign, "{m} {value}");
            }
        }
    }

    #[test]
    fn matcher_is_shown_as_in_a_selector() {
        let cases = [
            (MatchOp::NotEqual, r#"a"b"#, r#"l!="a\"b""#),
            (MatchOp::Regex, "a[0-9]+", r#"l=~"a[0-9]+""#),
        ];
        for (op, value, wanted) in cases {
            let m = Matcher::new("l", op, value.as_bytes()).unwrap();
            assert_eq!(m.to_string(), wanted);
            assert_eq!(format!("{m:?}"), wanted);
        }
    }
}
