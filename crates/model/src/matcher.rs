//! Label matchers: equality, inequality and anchored regular expressions with RE2 syntax.
//!
//! What a matcher accepts is known where that is simple (a set of values, a prefix, everything,
//! everything but the empty value), so that an index can look values up and need not try them all.
//! [`crate::regex`] works it out.

use crate::budget::Budget;
use crate::cancel::Cancel;
use crate::error::Error;
use crate::regex::Regex;
use crate::value_set::ValueSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

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

impl MatchOp {
    /// Whether it is `!=` or `!~`.
    pub fn is_negative(self) -> bool {
        matches!(self, MatchOp::NotEqual | MatchOp::NotRegex)
    }

    /// The operator as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        }
    }
}

/// What the value is compared with, whatever the sign.
enum Accepts {
    /// One value.
    Value(ValueSet),
    /// What a pattern says.
    Pattern(Regex),
}

struct Condition {
    name: Box<str>,
    op: MatchOp,
    value: Arc<[u8]>,
    accepts: Accepts,
}

/// One condition on a label. Cheap to clone.
#[derive(Clone)]
pub struct Matcher(Arc<Condition>);

impl Matcher {
    /// A matcher on `name`; fails with [`crate::error::ErrorKind::Invalid`] on a bad regex, with
    /// Go's message.
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
                Accepts::Value([value.to_vec()].into_iter().collect())
            }
            MatchOp::Regex | MatchOp::NotRegex => Accepts::Pattern(Regex::new(value)?),
        };
        Ok(Self(Arc::new(Condition {
            name: name.into(),
            op,
            value: value.into(),
            accepts,
        })))
    }

    /// The label's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How it compares.
    pub fn op(&self) -> MatchOp {
        self.0.op
    }

    /// The value or pattern as it was written.
    pub fn value(&self) -> &[u8] {
        &self.0.value
    }

    /// The value or pattern, to be kept longer than the matcher.
    pub fn shared_value(&self) -> &Arc<[u8]> {
        &self.0.value
    }

    /// Whether `value` satisfies the matcher; an absent label has the empty value. A
    /// caller that checks many values must call [`Matcher::ready`] before and after them.
    pub fn matches(&self, value: &[u8]) -> bool {
        let accepted = match &self.0.accepts {
            Accepts::Value(_) => *self.0.value == *value,
            Accepts::Pattern(regex) => regex.is_match(value),
        };
        accepted != self.0.op.is_negative()
    }

    /// Sets where the automaton of a pattern reserves its memory and what stops it.
    pub fn bind(&self, budget: &Budget, cancel: &Cancel) {
        if let Some(regex) = self.pattern() {
            regex.bind(budget, cancel);
        }
    }

    /// Makes the automaton of a pattern that needs one; see [`Regex::ready`].
    pub fn ready(&self) -> Result<(), Error> {
        self.pattern().map_or(Ok(()), Regex::ready)
    }

    /// Whether a series without the label satisfies the matcher.
    pub fn matches_empty(&self) -> bool {
        self.matches(b"")
    }

    /// The values that satisfy the matcher, if they can be listed; never for a negative one.
    pub fn literal_set(&self) -> Option<&ValueSet> {
        self.listed().filter(|_| !self.0.op.is_negative())
    }

    /// The values that a negative matcher turns away, if they can be listed; never for a positive
    /// one.
    pub fn excluded_set(&self) -> Option<&ValueSet> {
        self.listed().filter(|_| self.0.op.is_negative())
    }

    fn listed(&self) -> Option<&ValueSet> {
        match &self.0.accepts {
            Accepts::Value(value) => Some(value),
            Accepts::Pattern(regex) => regex.literal_set(),
        }
    }

    /// What a pattern says whatever the sign: `=~` asks for it, `!~` for its contrary.
    pub fn pattern(&self) -> Option<&Regex> {
        match &self.0.accepts {
            Accepts::Value(_) => None,
            Accepts::Pattern(regex) => Some(regex),
        }
    }

    /// Whether it is known that every value satisfies the matcher, the empty one included.
    pub fn matches_everything(&self) -> bool {
        match &self.0.accepts {
            Accepts::Pattern(regex) => !self.0.op.is_negative() && regex.matches_everything(),
            Accepts::Value(_) => false,
        }
    }

    /// Whether it is known that every value satisfies the matcher but the empty one.
    pub fn matches_any_non_empty(&self) -> bool {
        match &self.0.accepts {
            Accepts::Pattern(regex) if !self.0.op.is_negative() => regex.matches_any_non_empty(),
            _ => self.excluded_set().is_some_and(ValueSet::is_only_empty),
        }
    }
}

/// Two matchers are equal if they are written the same.
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

/// `name=~"pattern"`, as in a selector.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = String::from_utf8_lossy(&self.0.value);
        write!(f, "{}{}{value:?}", self.0.name, self.0.op.as_str())
    }
}

/// Shows what `Display` shows: what a pattern was compiled to would fill pages.
impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an index may learn from a matcher, as text.
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
