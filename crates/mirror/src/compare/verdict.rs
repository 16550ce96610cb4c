//! Determines the outcome of a query from the two answers to it.

use super::system::Fetched;
use super::tally::{Outcome, Vacuous};
use crate::judge::answer::{Answer, Data, Success};
use crate::judge::{Class, Differences, Rules, Spot, differences};
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

/// The outcome of a comparison and the differences that led to it. Created by [`judge`], and by
/// lookups for the differences of listings.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Result of the comparison, derived from the classes of the differences.
    pub outcome: Outcome,
    /// Differences between the answers; empty if and only if they match.
    pub found: Differences,
    /// Why a match has little significance, if it does.
    pub vacuous: Option<Vacuous>,
}

impl Verdict {
    /// Derives the outcome from the classes of `found`: an error if one of them is an error or a
    /// timeout, otherwise a mismatch, or a match if there are none.
    pub fn of(found: Differences) -> Self {
        let classes = found.classes();
        let is_error = |class: &Class| matches!(class, Class::Error | Class::Timeout);
        let outcome = match classes.as_slice() {
            [] => Outcome::Match,
            classes if classes.iter().any(is_error) => Outcome::Error,
            _ => Outcome::Mismatch,
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
pub fn judge(
    baseline: &Fetched,
    candidate: &Fetched,
    rules: Rules,
    ignored: &IgnoredLabels,
) -> Verdict {
    let (mut b, mut c) = match (baseline.answer(), candidate.answer()) {
        (Ok(b), Ok(c)) => (b, c),
        (b, c) => return Verdict::of(faults(b.err(), c.err())),
    };
    if let Some(found) = useless(&b, &c) {
        return Verdict::of(found);
    }
    for answer in [&mut b, &mut c] {
        answer.drop_labels(|name| ignored.contains(name));
    }
    let verdict = Verdict::of(differences(&b, &c, rules));
    match verdict.outcome {
        Outcome::Match => Verdict {
            vacuous: vacuous(&b),
            ..verdict
        },
        _ => verdict,
    }
}

/// Returns why equality with this answer has little significance, if it does.
fn vacuous(answer: &Answer<'_>) -> Option<Vacuous> {
    let is_empty = |success: &Success<'_>| match &success.data {
        Data::Series(series) => series.is_empty(),
        Data::Scalar(_) => false,
        Data::Other(Value::Array(list)) => list.is_empty(),
        Data::Other(Value::Object(members)) => members.is_empty(),
        Data::Other(value) => value.is_null(),
    };
    match answer {
        Answer::Failure { .. } => Some(Vacuous::SameError),
        Answer::Success(success) => is_empty(success).then_some(Vacuous::Empty),
    }
}

type Fault = Option<(Class, String)>;

/// Describes which of the systems gave no answer, and why.
fn faults(baseline: Fault, candidate: Fault) -> Differences {
    let shown = |fault: &Fault| match fault {
        None => Value::from("an answer"),
        Some((_, text)) => Value::from(text.as_str()),
    };
    let mut found = Differences::default();
    for (class, _) in [&baseline, &candidate].into_iter().flatten() {
        found.note(*class, || Spot {
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
fn useless(baseline: &Answer<'_>, candidate: &Answer<'_>) -> Option<Differences> {
    let says = |answer: &Answer<'_>| match answer {
        Answer::Failure { kind, text } if !ERRORS_OF_A_QUESTION.contains(&kind.as_str()) => {
            Some(format!("error {kind}: {text}"))
        }
        Answer::Success(success) if success.is_partial => Some("a partial answer".to_owned()),
        _ => None,
    };
    match (says(baseline), says(candidate)) {
        (None, None) => None,
        (b, c) => Some(faults(
            b.map(|text| (Class::Error, text)),
            c.map(|text| (Class::Error, text)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Values;
    use crate::judge::tolerance::Tolerance;

    const EXACT: Rules = Rules {
        values: Values::Numbers(Tolerance {
            relative: 0.0,
            absolute: 0.0,
            ulps: 0,
        }),
        ordered: false,
        to_the_letter: false,
    };

    fn body(text: &str) -> Fetched {
        Fetched {
            body: text.as_bytes().to_vec(),
            fault: None,
        }
    }

    fn error(kind: &str) -> Fetched {
        body(&format!(
            "{{\"status\":\"error\",\"errorType\":\"{kind}\",\"error\":\"e\"}}"
        ))
    }

    fn up(label: &str) -> Fetched {
        body(&format!(
            "{{\"status\":\"success\",\"data\":{{\"resultType\":\"vector\",\"result\":[{{\
             \"metric\":{{\"a\":\"b\"{label}}},\"value\":[1,\"2\"]}}]}}}}"
        ))
    }

    fn check(b: &Fetched, c: &Fetched, outcome: Outcome, classes: &[Class]) {
        let ignored = IgnoredLabels {
            more: vec!["mine".to_owned()],
        };
        for (one, other) in [(b, c), (c, b)] {
            let verdict = judge(one, other, EXACT, &ignored);
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
            (data(matrix), Some(Vacuous::Empty)),
            (data("[]"), Some(Vacuous::Empty)),
            (data("{}"), Some(Vacuous::Empty)),
            (error("bad_data"), Some(Vacuous::SameError)),
        ] {
            let verdict = judge(&answer, &answer, EXACT, &IgnoredLabels::default());
            assert_eq!(verdict.outcome, Outcome::Match);
            assert_eq!(verdict.vacuous, expected, "{answer:?}");
        }
        let differing = judge(&up(""), &data(matrix), EXACT, &IgnoredLabels::default());
        assert_eq!(differing.vacuous, None);
    }

    #[test]
    fn verdict_follows_from_both_answers() {
        let late = Fetched {
            body: Vec::new(),
            fault: Some((Class::Timeout, "late".to_owned())),
        };
        let partial = "{\"status\":\"success\",\"isPartial\":true,\"data\":[]}";
        check(&up(""), &up(""), Outcome::Match, &[]);
        check(
            &up(""),
            &up(",\"vm_account_id\":\"0\",\"mine\":\"x\""),
            Outcome::Match,
            &[],
        );
        check(
            &up(""),
            &up(",\"yours\":\"x\""),
            Outcome::Mismatch,
            &[Class::Labels],
        );
        check(&up(""), &late, Outcome::Error, &[Class::Timeout]);
        check(&error("bad_data"), &late, Outcome::Error, &[Class::Timeout]);
        check(&up(""), &body("<html>"), Outcome::Error, &[Class::Error]);
        check(
            &up(""),
            &error("execution"),
            Outcome::Error,
            &[Class::Error],
        );
        check(&error("bad_data"), &error("bad_data"), Outcome::Match, &[]);
        check(
            &error("bad_data"),
            &error("execution"),
            Outcome::Error,
            &[Class::Error],
        );
        check(
            &error("timeout"),
            &error("timeout"),
            Outcome::Error,
            &[Class::Error],
        );
        check(
            &body(partial),
            &body(partial),
            Outcome::Error,
            &[Class::Error],
        );
    }
}
