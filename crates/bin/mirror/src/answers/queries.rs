//! Text form of the queries to send.
//!
//! ```text
//! when at 30m, from 5m to 55m step 10m     times of later queries, relative to the start
//! when parsed, formatted                   syntax tree and formatted text of later queries
//! sum(rate(x[[[1m|5m]]]))                  [[a|b]] expands to one query with a and one with b
//! random 300 seed 7                        300 random expressions
//! random 300 seed 7 of native histograms   the same, over native histograms as well
//! random 300 seed 7 of all features        the same in the whole language, over floats only
//! random 300 seed 7 of everything          the same, over native histograms as well
//! broken 300 seed 7 of everything          the same, with pieces removed, inserted and swapped
//! ```

use crate::answers::data::duration_ms;
use crate::answers::expressions::{ExpressionDialect, broken_expressions, random_expressions};
use crate::api::{ExpressionForm, ExpressionRequest};
use crate::error::MirrorError;
use crate::fleet::random::FleetRandom;
use firn_model::sample::TimestampMs;

/// Evaluation time of a query as an offset from the data's start in milliseconds: a moment, a range
/// (start, end, step), or none for requests about the text of the expression.
#[derive(Clone, Copy, Debug)]
enum QueryTime {
    At(i64),
    Range(i64, i64, i64),
    Text(ExpressionForm),
}

/// Parses the text form; the queries keep the order of the lines. Fails with the number of the
/// first line that is malformed.
pub fn parse(text: &str, start_ms: TimestampMs) -> Result<Vec<ExpressionRequest>, MirrorError> {
    let mut whens = Vec::new();
    let mut asks = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refuse = || MirrorError::Usage(format!("line {}: cannot be read: {line}", number + 1));
        if let Some(times) = line.strip_prefix("when ") {
            whens = times
                .split(", ")
                .map(parse_when)
                .collect::<Option<_>>()
                .ok_or_else(refuse)?;
            continue;
        }
        let expressions = match line.split_once(' ') {
            Some(("random", what)) => parse_random(what, random_expressions),
            Some(("broken", what)) => parse_random(what, broken_expressions),
            _ => alternatives(line),
        };
        let expressions = expressions.ok_or_else(refuse)?;
        for expression in expressions {
            asks.extend(
                whens
                    .iter()
                    .map(|when| build_request(&expression, *when, start_ms)),
            );
        }
    }
    Ok(asks)
}

fn parse_random(
    text: &str,
    make: fn(ExpressionDialect, u64, usize) -> Vec<String>,
) -> Option<Vec<String>> {
    let (count, seed) = text.split_once(" seed ")?;
    let (seed, dialect) = match seed.split_once(" of ") {
        Some((seed, "native histograms")) => (seed, ExpressionDialect::PlainHistograms),
        Some((seed, "everything")) => (seed, ExpressionDialect::Full),
        Some((seed, "all features")) => (seed, ExpressionDialect::Floats),
        Some(_) => return None,
        None => (seed, ExpressionDialect::Plain),
    };
    let (seed, count) = (seed.parse().ok()?, count.parse().ok()?);
    Some(make(dialect, seed, count))
}

/// Generates `count` random expressions from `seed`, each queried at a random time and over a
/// random range within the `span_ms` that begin at `start_ms`.
pub fn random_asks(
    dialect: ExpressionDialect,
    seed: u64,
    count: usize,
    start_ms: TimestampMs,
    span_ms: i64,
) -> Vec<ExpressionRequest> {
    let mut random = FleetRandom::new(!seed);
    let mut up_to = |bound_ms: i64| random.below(bound_ms as u64) as i64;
    let mut asks = Vec::new();
    for expression in random_expressions(dialect, seed, count) {
        let (from, len, step_ms) = (up_to(span_ms), up_to(span_ms), 1 + up_to(span_ms / 4));
        let whens = [
            QueryTime::At(up_to(span_ms)),
            QueryTime::Range(from, from + len, step_ms),
        ];
        asks.extend(whens.map(|when| build_request(&expression, when, start_ms)));
    }
    asks
}

fn parse_when(text: &str) -> Option<QueryTime> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["parsed"] => Some(QueryTime::Text(ExpressionForm::Parsed)),
        ["formatted"] => Some(QueryTime::Text(ExpressionForm::Formatted)),
        ["at", at] => Some(QueryTime::At(duration_ms(at)?)),
        ["from", from, "to", to, "step", step] => Some(QueryTime::Range(
            duration_ms(from)?,
            duration_ms(to)?,
            duration_ms(step)?,
        )),
        _ => None,
    }
}

fn build_request(expression: &str, when: QueryTime, start_ms: TimestampMs) -> ExpressionRequest {
    let expression = expression.to_owned();
    match when {
        QueryTime::At(at) => ExpressionRequest::Instant {
            expression,
            time_ms: start_ms + at,
        },
        QueryTime::Range(from, to, step_ms) => ExpressionRequest::Range {
            expression,
            start_ms: start_ms + from,
            end_ms: start_ms + to,
            step_ms,
        },
        QueryTime::Text(form) => ExpressionRequest::Text { form, expression },
    }
}

/// Expands `line` into all its alternatives, with the last group varying fastest. Returns `None` if
/// a group is not closed.
pub(super) fn alternatives(line: &str) -> Option<Vec<String>> {
    let Some(open) = line.find("[[") else {
        return Some(vec![line.to_owned()]);
    };
    // In `[[[`, the first bracket belongs to the expression.
    let open = open + usize::from(line[open..].starts_with("[[["));
    let inner_start = open + 2;
    let (inner, rest) = split_closed(&line[inner_start..])?;
    let tails = alternatives(rest)?;
    let mut out = Vec::new();
    for alternative in inner.split('|') {
        for tail in &tails {
            out.push(format!("{}{alternative}{tail}", &line[..open]));
        }
    }
    Some(out)
}

/// Splits `text` at the `]]` that closes a group opened before it. Brackets inside the group must
/// be balanced.
fn split_closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' if depth > 0 => depth -= 1,
            b']' => return Some((&text[..at], text[at..].strip_prefix("]]")?)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_alternatives_are_multiplied_in_order() {
        let cases: [(&str, &[&str]); 5] = [
            ("a", &["a"]),
            ("[[a|b]] + [[c|d]]", &["a + c", "a + d", "b + c", "b + d"]),
            ("f(x[[[1m|2m]]])", &["f(x[1m])", "f(x[2m])"]),
            ("f([[x[1m]|y[2m]]])", &["f(x[1m])", "f(y[2m])"]),
            ("[[]]", &[""]),
        ];
        for (line, expected) in cases {
            assert_eq!(alternatives(line).unwrap(), expected, "{line}");
        }
        assert_eq!(alternatives("[[a|b"), None);
    }

    #[test]
    fn query_times_count_from_the_start() {
        let asks = parse("# c\nwhen at 1m, from 0s to 2s step 1s\nx", 1_000).unwrap();
        let expression = || "x".to_owned();
        let instant = ExpressionRequest::Instant {
            expression: expression(),
            time_ms: 61_000,
        };
        let range = ExpressionRequest::Range {
            expression: expression(),
            start_ms: 1_000,
            end_ms: 3_000,
            step_ms: 1_000,
        };
        assert_eq!(asks, [instant, range]);
        let e = parse("when sometimes", 0).unwrap_err().to_string();
        assert_eq!(e, "line 1: cannot be read: when sometimes");
    }
}
