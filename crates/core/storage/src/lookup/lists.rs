//! The lists of series that answer a matcher: one rule for every index over labels and values.
//!
//! An index has a list of series for each label and one for each term. A matcher is answered by
//! some of these lists: a series must be in one of them, or in none, because an absent label has
//! the empty value. The matcher alone determines the lists; their costs depend on the index and are
//! left to its planner.

use firn_model::matcher::Matcher;
use firn_model::regex::{Regex, ValueSet};

/// The lists that answer a matcher. `T` is the term type of the index.
#[derive(Debug)]
pub(crate) enum MatcherPostings<'a, T> {
    /// The list of the label: all series that have it.
    Presence,
    /// The lists of these terms, in ascending order.
    Terms(Vec<T>),
    /// The lists of the terms with these values, which are not looked up yet.
    Values(&'a ValueSet),
    /// The lists of the terms whose values match, or do not match if `wants_match` is false; not
    /// evaluated yet.
    Expression { regex: &'a Regex, wants_match: bool },
}

impl<'a, T> MatcherPostings<'a, T> {
    /// Returns the lists for a matcher that does not accept every series. If the matcher accepts
    /// the empty value, it accepts series without the label: then the lists contain the series that
    /// do not match.
    pub(crate) fn from_matcher(matcher: &'a Matcher) -> Self {
        let or_absent = matcher.matches_empty();
        let is_negative = matcher.op().is_negative();
        let values = if is_negative {
            matcher.excluded_set().filter(|_| or_absent)
        } else {
            matcher.literal_set()
        };
        let tells_presence = |regex: &Regex| regex.matches_any_non_empty();
        match (matcher.pattern(), values) {
            _ if matcher.matches_any_non_empty() => Self::Presence,
            (_, Some(values)) if values.is_only_empty() => Self::Presence,
            (Some(regex), _) if tells_presence(regex) => Self::Presence,
            (_, Some(values)) if is_negative || !or_absent => Self::Values(values),
            (Some(regex), _) => Self::Expression {
                regex,
                wants_match: is_negative == or_absent,
            },
            // Only `=` and `!=` have no pattern. Their values are handled above, and the empty
            // value is handled by presence.
            (None, _) => Self::Presence,
        }
    }

    /// Returns whether the terms of the lists are known.
    pub(crate) fn are_known(&self) -> bool {
        matches!(self, Self::Presence | Self::Terms(_))
    }
}
