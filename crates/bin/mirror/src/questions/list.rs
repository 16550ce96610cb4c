//! Lists of queries: one expression per line, with `#` before comments. Words before an expression
//! specify its weight, range and step.
//!
//! ```text
//! # a comment
//! sum by (job) (rate(http_requests_total[5m]))
//! weight=3 range=1h step=15s sum(rate(http_requests_total[5m]))
//! ```
//!
//! No expression begins with `name=`, so these words cannot be mistaken for a part of it.

use super::{QueryText, QueryWeightRange};
use firn_model::units::parse_duration;

/// Number of points of a range without a step, as in a panel that is 240 points wide.
const POINTS: i64 = 240;

/// Minimum step in milliseconds that is derived from a range.
const STEP_MIN_MS: i64 = 1_000;

/// Parses the lines of a list; the expressions themselves are not validated. Fails with the number
/// of a line whose leading words are invalid.
pub fn read(text: &str, origin: &str) -> Result<Vec<QueryText>, String> {
    let mut found = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (manner, expression) =
            read_line(line).map_err(|e| format!("line {}: {e}", place + 1))?;
        found.push(QueryText {
            text: expression.to_owned(),
            origin: format!("{origin}:{}", place + 1),
            manner,
        });
    }
    Ok(found)
}

fn read_line(line: &str) -> Result<(QueryWeightRange, &str), String> {
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
    if range_ms.is_none() && step_ms.is_some() {
        return Err("step without range".to_owned());
    }
    let step = |range: i64| step_ms.unwrap_or((range / POINTS).max(STEP_MIN_MS));
    let manner = QueryWeightRange {
        weight,
        range_ms: range_ms.map(|range| (range, step(range))),
    };
    Ok((manner, rest))
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

    /// Expression, weight, and optional range and step in milliseconds.
    type Line<'a> = (&'a str, f64, Option<(i64, i64)>);

    fn check(text: &str, expected: Result<Line<'_>, &str>) {
        let found = read(text, "f").map(|texts| {
            let lines = texts.into_iter();
            let lines = lines.map(|t| (t.text, t.manner.weight, t.manner.range_ms));
            lines.collect::<Vec<_>>()
        });
        let expected =
            expected.map(|(text, weight, range_ms)| vec![(text.to_owned(), weight, range_ms)]);
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
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
        check(
            "# one\nweight=0 up",
            Err("line 2: weight must be a number above 0: \"0\""),
        );
        check("range=x up", Err("line 1: not a duration: \"x\""));
        check("step=1m up", Err("line 1: step without range"));
        // The list does not validate expressions, which is left to the caller.
        check("weight=1", Ok(("", 1.0, None)));
        check("wait=1 up", Ok(("wait=1 up", 1.0, None)));
    }
}
