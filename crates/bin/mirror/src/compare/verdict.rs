//! Determines the outcome of a query from the two answers to it.

use super::system::FetchResult;
use super::tally::{ComparisonOutcome, VacuousMatchReason};
use crate::judge::answer::{AnswerData, ApiAnswer, SuccessfulAnswer};
use crate::judge::{
    AnswerDifferences, ComparisonRules, DifferenceClass, DifferenceSpot, differences,
};
use serde_json::Value;

/// Error types that are caused by the query itself, so that two systems that both return them
/// agree.
const ERRORS_OF_A_QUESTION: [&str; 3] = ["bad_data", "execution", "not_found"];

/// Labels that systems add to ingested data: the tenant labels of VictoriaMetrics and Thanos, and
/// the replica labels of high-availability pairs.
const ADDED_LABELS: [&str; 5] = [
    "__replica__",
    "__tenant_id__",
    "prometheus_replica",
    "vm_account_id",
    "vm_project_id",
];

/// Labels that are ignored when answers are compared: a built-in list and those of
/// `--ignore-label`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredLabels {
    /// Labels from the command line, in addition to [`ADDED_LABELS`].
    pub more: Vec<String>,
}

impl IgnoredLabels {
    /// Returns whether the label `name` is ignored, because of the built-in list or the command
    /// line.
    pub fn contains(&self, name: &str) -> bool {
        ADDED_LABELS.contains(&name) || self.more.iter().any(|more| more == name)
    }
}

/// The outcome of a comparison and the differences that led to it. Created by [`judge_answers`],
/// and by lookups for the differences of listings.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonVerdict {
    /// Result of the comparison, derived from the classes of the differences.
    pub outcome: ComparisonOutcome,
    /// Differences between the answers; empty if and only if they match.
    pub found: AnswerDifferences,
    /// Why a match has little significance, if it does.
    pub vacuous: Option<VacuousMatchReason>,
}

impl ComparisonVerdict {
    /// Derives the outcome from the classes of `found`: an error if one of them is an error or a
    /// timeout, otherwise a mismatch, or a match if there are none.
    pub fn from_differences(found: AnswerDifferences) -> Self {
        let classes = found.classes();
        let is_error = |class: &DifferenceClass| {
            matches!(class, DifferenceClass::Error | DifferenceClass::Timeout)
        };
        let outcome = match classes.as_slice() {
            [] => ComparisonOutcome::Match,
            classes if classes.iter().any(is_error) => ComparisonOutcome::Error,
            _ => ComparisonOutcome::Mismatch,
        };
        Self {
            outcome,
            found,
            vacuous: None,
        }
    }
}

/// Compares the answer of the candidate with that of the baseline by `rules`, without the labels in
/// `ignored`.
pub fn judge_answers(
    baseline: &FetchResult,
    candidate: &FetchResult,
    rules: ComparisonRules,
    ignored: &IgnoredLabels,
) -> ComparisonVerdict {
    let (mut b, mut c) = match (baseline.answer(), candidate.answer()) {
        (Ok(b), Ok(c)) => (b, c),
        (b, c) => return ComparisonVerdict::from_differences(faults(b.err(), c.err())),
    };
    if let Some(found) = incomparable_differences(&b, &c) {
        return ComparisonVerdict::from_differences(found);
    }
    for answer in [&mut b, &mut c] {
        answer.drop_labels(|name| ignored.contains(name));
    }
    let verdict = ComparisonVerdict::from_differences(differences(&b, &c, rules));
    match verdict.outcome {
        ComparisonOutcome::Match => ComparisonVerdict {
            vacuous: vacuous(&b),
            ..verdict
        },
        _ => verdict,
    }
}

/// Returns why equality with this answer has little significance, if it does.
fn vacuous(answer: &ApiAnswer<'_>) -> Option<VacuousMatchReason> {
    let is_empty = |success: &SuccessfulAnswer<'_>| match &success.data {
        AnswerData::Series(series) => series.is_empty(),
        AnswerData::Scalar(_) => false,
        AnswerData::Other(Value::Array(list)) => list.is_empty(),
        AnswerData::Other(Value::Object(members)) => members.is_empty(),
        AnswerData::Other(value) => value.is_null(),
    };
    match answer {
        ApiAnswer::Failure { .. } => Some(VacuousMatchReason::SameError),
        ApiAnswer::Success(success) => is_empty(success).then_some(VacuousMatchReason::Empty),
    }
}

type Fault = Option<(DifferenceClass, String)>;

/// Describes which of the systems gave no answer, and why.
fn faults(baseline: Fault, candidate: Fault) -> AnswerDifferences {
    let shown = |fault: &Fault| match fault {
        None => Value::from("an answer"),
        Some((_, text)) => Value::from(text.as_str()),
    };
    let mut found = AnswerDifferences::default();
    for (class, _) in [&baseline, &candidate].into_iter().flatten() {
        found.add_difference(*class, || DifferenceSpot {
            class: *class,
            what: "no answer".to_owned(),
            labels: None,
            time_ms: None,
            baseline: shown(&baseline),
            candidate: shown(&candidate),
        });
    }
    found
}

/// Returns differences if the answers do not permit a comparison: one of them is an error unrelated
/// to the query, or is marked as partial.
fn incomparable_differences(
    baseline: &ApiAnswer<'_>,
    candidate: &ApiAnswer<'_>,
) -> Option<AnswerDifferences> {
    let says = |answer: &ApiAnswer<'_>| match answer {
        ApiAnswer::Failure { kind, text } if !ERRORS_OF_A_QUESTION.contains(&kind.as_str()) => {
            Some(format!("error {kind}: {text}"))
        }
        ApiAnswer::Success(success) if success.is_partial => Some("a partial answer".to_owned()),
        _ => None,
    };
    match (says(baseline), says(candidate)) {
        (None, None) => None,
        (b, c) => Some(faults(
            b.map(|text| (DifferenceClass::Error, text)),
            c.map(|text| (DifferenceClass::Error, text)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::ValueComparison;
    use crate::judge::tolerance::Tolerance;

    const EXACT: ComparisonRules = ComparisonRules {
        values: ValueComparison::Numbers(Tolerance {
            relative: 0.0,
            absolute: 0.0,
            ulps: 0,
        }),
        ordered: false,
        to_the_letter: false,
    };

    fn body(text: &str) -> FetchResult {
        FetchResult {
            body: text.as_bytes().to_vec(),
            fault: None,
        }
    }

    fn error(kind: &str) -> FetchResult {
        body(&format!(
            "{{\"status\":\"error\",\"errorType\":\"{kind}\",\"error\":\"e\"}}"
        ))
    }

    fn up(label: &str) -> FetchResult {
        body(&format!(
            "{{\"status\":\"success\",\"data\":{{\"resultType\":\"vector\",\"result\":[{{\
             \"metric\":{{\"a\":\"b\"{label}}},\"value\":[1,\"2\"]}}]}}}}"
        ))
    }

    fn check(
        b: &FetchResult,
        c: &FetchResult,
        outcome: ComparisonOutcome,
        classes: &[DifferenceClass],
    ) {
        let ignored = IgnoredLabels {
            more: vec!["mine".to_owned()],
        };
        for (one, other) in [(b, c), (c, b)] {
            let verdict = judge_answers(one, other, EXACT, &ignored);
            assert_eq!(
                (verdict.outcome, verdict.found.classes()),
                (outcome, classes.to_vec())
            );
        }
    }

    #[test]
    fn match_says_little_where_answers_are_empty_or_the_same_error() {
        let data = |data: &str| body(&format!("{{\"status\":\"success\",\"data\":{data}}}"));
        let matrix = "{\"resultType\":\"matrix\",\"result\":[]}";
        let scalar = "{\"resultType\":\"scalar\",\"result\":[1,\"2\"]}";
        for (answer, expected) in [
            (up(""), None),
            (data(scalar), None),
            (data("[\"a\"]"), None),
            (data(matrix), Some(VacuousMatchReason::Empty)),
            (data("[]"), Some(VacuousMatchReason::Empty)),
            (data("{}"), Some(VacuousMatchReason::Empty)),
            (error("bad_data"), Some(VacuousMatchReason::SameError)),
        ] {
            let verdict = judge_answers(&answer, &answer, EXACT, &IgnoredLabels::default());
            assert_eq!(verdict.outcome, ComparisonOutcome::Match);
            assert_eq!(verdict.vacuous, expected, "{answer:?}");
        }
        let differing = judge_answers(&up(""), &data(matrix), EXACT, &IgnoredLabels::default());
        assert_eq!(differing.vacuous, None);
    }

    #[test]
    fn verdict_follows_from_both_answers() {
        let late = FetchResult {
            body: Vec::new(),
            fault: Some((DifferenceClass::Timeout, "late".to_owned())),
        };
        let partial = "{\"status\":\"success\",\"isPartial\":true,\"data\":[]}";
        check(&up(""), &up(""), ComparisonOutcome::Match, &[]);
        check(
            &up(""),
            &up(",\"vm_account_id\":\"0\",\"mine\":\"x\""),
            ComparisonOutcome::Match,
            &[],
        );
        check(
            &up(""),
            &up(",\"yours\":\"x\""),
            ComparisonOutcome::Mismatch,
            &[DifferenceClass::Labels],
        );
        check(
            &up(""),
            &late,
            ComparisonOutcome::Error,
            &[DifferenceClass::Timeout],
        );
        check(
            &error("bad_data"),
            &late,
            ComparisonOutcome::Error,
            &[DifferenceClass::Timeout],
        );
        check(
            &up(""),
            &body("<html>"),
            ComparisonOutcome::Error,
            &[DifferenceClass::Error],
        );
        check(
            &up(""),
            &error("execution"),
            ComparisonOutcome::Error,
            &[DifferenceClass::Error],
        );
        check(
            &error("bad_data"),
            &error("bad_data"),
            ComparisonOutcome::Match,
            &[],
        );
        check(
            &error("bad_data"),
            &error("execution"),
            ComparisonOutcome::Error,
            &[DifferenceClass::Error],
        );
        check(
            &error("timeout"),
            &error("timeout"),
            ComparisonOutcome::Error,
            &[DifferenceClass::Error],
        );
        check(
            &body(partial),
            &body(partial),
            ComparisonOutcome::Error,
            &[DifferenceClass::Error],
        );
    }
}
