//! What each matcher asks for, in terms whose cost is known before a posting is read.

use super::{Index, Label};
use firn_model::matcher::{MatchOp, Matcher};

/// What one matcher asks for.
#[derive(Debug)]
pub(super) enum Condition<'a> {
    /// Series that have one of the terms.
    Has(Vec<u32>),
    /// Series that have none of the terms.
    Lacks(Vec<u32>),
    /// Series that have the label at all.
    Present(&'a Label),
    /// Series that do not have the label.
    Absent(&'a Label),
    /// Series whose value satisfies an expression; those without the label if `or_absent`.
    Value {
        matcher: &'a Matcher,
        id: u32,
        label: &'a Label,
        or_absent: bool,
    },
}

/// All matchers together.
#[derive(Debug)]
pub(super) enum Plan<'a> {
    /// No series can match.
    Nothing,
    /// All of these must hold.
    All(Vec<Condition<'a>>),
}

impl<'a> Condition<'a> {
    /// Series that hold the condition by postings alone, if it is of that kind: an upper bound for
    /// the answer.
    pub(super) fn count(&self, index: &Index) -> Option<usize> {
        match self {
            Self::Has(terms) => {
                let count = |id: &u32| index.term(*id).map_or(0, |t| t.postings.count());
                Some(terms.iter().map(count).sum())
            }
            Self::Present(label) => Some(label.present.count()),
            Self::Lacks(_) | Self::Absent(_) | Self::Value { .. } => None,
        }
    }
}

/// Turns matchers into conditions. An absent label has the empty value, so a matcher that accepts
/// it accepts series without the label.
pub(super) fn plan<'a>(index: &'a Index, matchers: &'a [Matcher]) -> Plan<'a> {
    let mut conditions = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        let or_absent = matcher.matches_empty();
        let Some((id, label)) = index.label(matcher.name()) else {
            if or_absent {
                continue;
            }
            return Plan::Nothing;
        };
        if matcher.matches_everything() {
            continue;
        }
        let terms = |values: &[Box<[u8]>]| -> Vec<u32> {
            let found = values.iter().filter_map(|v| index.find_term(label, v));
            found.collect()
        };
        conditions.push(match (matcher.literal_set(), matcher.excluded_set()) {
            _ if matcher.matches_any_non_empty() => Condition::Present(label),
            (Some([only]), _) if only.is_empty() => Condition::Absent(label),
            (Some(values), _) if !or_absent => match terms(values) {
                none if none.is_empty() => return Plan::Nothing,
                some => Condition::Has(some),
            },
            (_, Some(values)) if or_absent => Condition::Lacks(terms(values)),
            _ if matches!(matcher.op(), MatchOp::NotRegex) && matcher.value() == b".+" => {
                Condition::Absent(label)
            }
            _ => Condition::Value {
                matcher,
                id,
                label,
                or_absent,
            },
        });
    }
    Plan::All(conditions)
}
