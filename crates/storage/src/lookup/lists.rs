//! Which lists of series answer a matcher: one rule for every index over labels and values.
//!
//! An index has a list of series for each label, and one for each of its terms. A matcher is
//! answered by some of them: a series must be in one of these lists, or in none, because an absent
//! label has the empty value. Which lists these are follows from the matcher alone; what they cost
//! follows from the index, and is left to its planner.

use firn_model::matcher::Matcher;
use firn_model::regex::Regex;
use firn_model::value_set::ValueSet;

/// The lists that answer a matcher; `T` is how an index names a term.
#[derive(Debug)]
pub(crate) enum Lists<'a, T> {
    /// That of the label.
    Presence,
    /// Those of these terms, ascending.
    Terms(Vec<T>),
    /// Those of the terms with these values, which are not looked up yet.
    Values(&'a ValueSet),
    /// Those of terms whose values match, or do not unless `wants_match`; not evaluated yet.
    Expression { regex: &'a Regex, wants_match: bool },
}

impl<'a, T> Lists<'a, T> {
    /// Those of a matcher that does not accept every series. A matcher that accepts the empty value
    /// accepts series without the label: it asks for those that are in none of the lists.
    pub(crate) fn of(matcher: &'a Matcher) -> Self {
        let or_absent = matcher.matches_empty();
        let is_negative = matcher.op().is_negative();
        let values = match is_negative {
            true => matcher.excluded_set().filter(|_| or_absent),
            false => matcher.literal_set(),
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
            // Only `=` and `!=` have no pattern: a value of theirs was listed above, and that it is
            // empty is told by presence.
            (None, _) => Self::Presence,
        }
    }

    /// Whether it is known which lists they are.
    pub(crate) fn are_known(&self) -> bool {
        matches!(self, Self::Presence | Self::Terms(_))
    }
}
