//! Lists of questions: one a line, with how often and over which time it is asked.
//!
//! ```text
//! # a comment
//! sum by (job) (rate(http_requests_total[5m]))
//! weight=3 range=1h step=15s sum(rate(http_requests_total[5m]))
//! ```
//!
//! No expression begins with `name=`, so that the words in front of one cannot be taken for it.

use crate::error::MirrorError;
use firn_model::units::parse_duration;
use firn_promql::Features;
use firn_promql::parser::parse;
use std::path::Path;

/// The step of a range that names none: that of a panel 240 points wide.
const POINTS: i64 = 240;

/// A question and how it is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The PromQL text.
    pub expression: String,
    /// How often it is asked, by the weights of all.
    pub weight: f64,
    /// The range up to now and its step in milliseconds; none is an instant question.
    pub range_ms: Option<(i64, i64)>,
}

/// What is asked of a fleet if no list is given: what dashboards and rules ask of one.
const OF_FLEET: &str = "\
weight=4 range=1h sum by (namespace) (rate(http_requests_total[5m]))
weight=4 range=1h histogram_quantile(0.99, sum by (le, deployment) (rate(http_request_duration_seconds_bucket[5m])))
weight=2 range=6h sum by (code) (rate(http_requests_total[5m]))
weight=2 range=1h topk(10, sum by (deployment) (rate(container_cpu_usage_seconds_total[5m])))
weight=2 range=1h sum by (deployment) (rate(http_requests_total{code=~\"5..\"}[5m])) / sum by (deployment) (rate(http_requests_total[5m]))
weight=3 sum(rate(http_requests_total[1m]))
weight=3 count by (namespace) (up)
weight=1 max by (deployment) (max_over_time(container_memory_working_set_bytes[10m]))
";

/// Reads a list from a file.
pub fn read(path: &Path) -> Result<Vec<Question>, MirrorError> {
    let text = std::fs::read_to_string(path).map_err(MirrorError::file("read", path))?;
    let questions =
        parse_list(&text).map_err(|e| MirrorError::Usage(format!("{}:{e}", path.display())))?;
    if questions.is_empty() {
        let what = format!("{} holds no question", path.display());
        return Err(MirrorError::Usage(what));
    }
    Ok(questions)
}

/// What is asked of a fleet.
pub fn of_fleet() -> Vec<Question> {
    parse_list(OF_FLEET).expect("a test reads it")
}

fn parse_list(text: &str) -> Result<Vec<Question>, String> {
    let mut questions = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let question = parse_line(line).map_err(|e| format!("{}: {e}", at + 1))?;
        questions.push(question);
    }
    Ok(questions)
}

fn parse_line(line: &str) -> Result<Question, String> {
    let mut rest = line;
    let (mut weight, mut range_ms, mut step_ms) = (1.0, None, None);
    loop {
        let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let Some((name, value)) = word.split_once('=') else {
            break;
        };
        match name {
            "weight" => weight = parse_weight(value)?,
            "range" => range_ms = Some(parse_ms(value)?),
            "step" => step_ms = Some(parse_ms(value)?),
            _ => break,
        }
        rest = behind.trim_start();
    }
    // Whatever the system under test may understand is let through.
    parse(rest, Features::ALL).map_err(|e| e.to_string())?;
    let range_ms = match (range_ms, step_ms) {
        (None, None) => None,
        (None, Some(_)) => return Err("step without range".to_owned()),
        (Some(range), step) => Some((range, step.unwrap_or((range / POINTS).max(1_000)))),
    };
    Ok(Question {
        expression: rest.to_owned(),
        weight,
        range_ms,
    })
}

fn parse_weight(text: &str) -> Result<f64, String> {
    let weight = text.parse::<f64>().ok();
    let weight = weight.filter(|weight| *weight > 0.0 && weight.is_finite());
    weight.ok_or_else(|| format!("weight must be a number above 0: {text:?}"))
}

fn parse_ms(text: &str) -> Result<i64, String> {
    let duration = parse_duration(text).ok().filter(|d| !d.is_zero());
    let duration = duration.ok_or_else(|| format!("not a duration: {text:?}"))?;
    Ok(duration.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expression, weight, and range and step.
    type Read<'a> = (&'a str, f64, Option<(i64, i64)>);

    fn check(line: &str, expected: Result<Read<'_>, &str>) {
        let parsed = parse_list(line);
        let expected = expected
            .map_err(str::to_owned)
            .map(|(text, weight, range_ms)| {
                vec![Question {
                    expression: text.to_owned(),
                    weight,
                    range_ms,
                }]
            });
        match (parsed, expected) {
            (Err(got), Err(expected)) => assert!(got.contains(&expected), "{line}: {got}"),
            (got, expected) => assert_eq!(got, expected, "{line}"),
        }
    }

    #[test]
    fn line_of_a_list_says_what_is_asked_or_what_is_wrong_with_it() {
        check("up", Ok(("up", 1.0, None)));
        check("# why\n\n  up == 1 ", Ok(("up == 1", 1.0, None)));
        check("weight=2.5 up", Ok(("up", 2.5, None)));
        check("range=1h  up", Ok(("up", 1.0, Some((3_600_000, 15_000)))));
        check(
            "step=1m weight=2 range=10m up{a=\"b\"}",
            Ok(("up{a=\"b\"}", 2.0, Some((600_000, 60_000)))),
        );
        check("up\nweight=0 up", Err("2: weight must be a number above 0"));
        check("range=x up", Err("1: not a duration: \"x\""));
        check("step=1m up", Err("1: step without range"));
        check("weight=1", Err("parse error"));
        check("sum(", Err("1: "));
        check("wait=1 up", Err("parse error"));
    }

    #[test]
    fn questions_of_a_fleet_are_read() {
        assert_eq!(of_fleet().len(), OF_FLEET.lines().count());
    }
}
