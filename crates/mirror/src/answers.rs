//! Judged answers: what a reference system says to given expressions over given data, kept in a
//! file, and how another system is held against it.
//!
//! Remote write 1.0 carries no start timestamps, so data that has some is shown to the system,
//! which scrapes it.
//!
//! A line of the file is `{"ask": {endpoint, query, times}, "answer": the reference's JSON}`; the
//! lines are compressed with gzip.

pub mod data;
pub mod expressions;
pub mod queries;
pub mod requests;
mod words;

use crate::api::{Ask, Client};
use crate::body;
use crate::error::MirrorError;
use crate::exposition;
use crate::judge::answer::Answer;
use crate::judge::tolerance::Tolerance;
use crate::judge::{self, Rules, Values};
use crate::push::Connection;
use crate::target::{self, Target};
use data::Data;
use firn_promql::Features;
use firn_promql::ast::{AggregateOp, BinaryOp, Expr, ExprKind, Grouping};
use firn_promql::functions::FunctionId;
use firn_promql::parser;
use firn_wire::exposition::FAMILIES_CONTENT_TYPE;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Data time of one request: well inside what receivers accept behind their newest sample.
const REQUEST_SPAN_MS: i64 = 300_000;

/// How far a value may be from the reference's where it need not have the same bits.
const ROUNDED: Values = Values::Numbers(Tolerance {
    relative: 1e-12,
    absolute: 0.0,
    ulps: 0,
});

/// A query and what the reference said.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// What was asked.
    pub ask: Ask,
    /// The whole answer.
    pub answer: Value,
}

impl Recorded {
    /// The line of the file.
    pub fn to_line(&self) -> String {
        json!({ "ask": self.ask.to_json(), "answer": self.answer }).to_string()
    }

    /// The file of `all`.
    pub fn pack(all: &[Recorded]) -> Result<Vec<u8>, MirrorError> {
        packed(all.iter().map(Recorded::to_line))
    }

    /// Reads a file. Fails with the number of the first line that cannot be read.
    pub fn unpack(file: &[u8]) -> Result<Vec<Recorded>, MirrorError> {
        Self::parse_lines(&unpacked(file)?)
    }

    /// Reads the lines of a file. Fails with the number of the first that cannot be read.
    fn parse_lines(text: &str) -> Result<Vec<Recorded>, MirrorError> {
        let parse = |(number, line): (usize, &str)| {
            let mut value: Value = serde_json::from_str(line).unwrap_or_default();
            let ask = Ask::from_json(&value["ask"]);
            let ask = ask.ok_or_else(|| {
                MirrorError::Usage(format!("line {} is not a recorded answer", number + 1))
            })?;
            Ok(Recorded {
                ask,
                answer: value["answer"].take(),
            })
        };
        text.lines().enumerate().map(parse).collect()
    }
}

/// A file of lines.
fn packed(mut lines: impl Iterator<Item = String>) -> Result<Vec<u8>, MirrorError> {
    let mut file = GzEncoder::new(Vec::new(), Compression::best());
    let written = lines.try_for_each(|line| file.write_all((line + "\n").as_bytes()));
    let packed = written.and_then(|()| file.finish());
    packed.map_err(|e| MirrorError::Usage(format!("answers cannot be packed: {e}")))
}

/// The lines of a file.
fn unpacked(file: &[u8]) -> Result<String, MirrorError> {
    let mut text = String::new();
    let read = GzDecoder::new(file).read_to_string(&mut text);
    read.map_err(|e| MirrorError::Usage(format!("answers cannot be unpacked: {e}")))?;
    Ok(text)
}

/// Sends `data` to the system at `base` by remote write.
pub fn send(base: &str, data: &Data) -> Result<(), MirrorError> {
    let url = format!("{}/api/v1/write", base.trim_end_matches('/'));
    let connection = Connection::new(&url);
    for batch in data.batches(REQUEST_SPAN_MS) {
        let refused = |what| MirrorError::Answer {
            url: url.clone(),
            what,
        };
        connection.send(&body::encode(&batch))?.map_err(refused)?;
    }
    Ok(())
}

/// How long a system may take to scrape what it is shown.
const SCRAPED_WITHIN: Duration = Duration::from_secs(60);

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(20);

/// Shows `data` to every system that scrapes `address`.
pub fn expose(address: &str, data: &Data) -> Result<Target, MirrorError> {
    let body = exposition::encode(data);
    Target::start(address, move |_, stream| {
        target::respond(stream, "200 OK", FAMILIES_CONTENT_TYPE, &body);
    })
}

/// Waits until the system at `base`, which need not run yet, has scraped `data`. One scrape is seen
/// whole or not at all.
pub fn wait_scraped(base: &str, data: &Data) -> Result<(), MirrorError> {
    let newest = data.series.first().and_then(|(labels, samples)| {
        Some(Ask::Instant {
            expression: labels.to_string(),
            time_ms: samples.last()?.time,
        })
    });
    let newest = newest.ok_or_else(|| MirrorError::Usage("there is no data".into()))?;
    let client = Client::new(base);
    let end = Instant::now() + SCRAPED_WITHIN;
    loop {
        let answer = client.ask(&newest);
        if let Ok(answer) = &answer
            && answer["data"]["result"][0].is_object()
        {
            return Ok(());
        }
        if Instant::now() > end {
            let what = format!("{newest} is still missing: {}", answer?);
            let url = base.to_owned();
            return Err(MirrorError::Answer { url, what });
        }
        sleep(POLL);
    }
}

/// How often each query is asked while answers are recorded.
const ASKED_TIMES: usize = 10;

/// What the system at `base` says to each of `asks`. Left out is what it does not always answer
/// alike: Prometheus walks maps of Go in no order, and which series of a range it takes or names
/// first may hang on that.
pub fn record(base: &str, asks: Vec<Ask>) -> Result<Vec<Recorded>, MirrorError> {
    let client = Client::new(base);
    let mut recorded = Vec::new();
    for ask in asks {
        let answer = client.ask(&ask)?;
        if is_constant(&client, &ask, &answer)? {
            recorded.push(Recorded { ask, answer });
        }
    }
    Ok(recorded)
}

/// Whether the system goes on saying `answer`.
fn is_constant(client: &Client, ask: &Ask, answer: &Value) -> Result<bool, MirrorError> {
    if names_a_pair_of_a_range(ask, answer) {
        return Ok(false);
    }
    let rules = rules(ask);
    for _ in 1..ASKED_TIMES {
        let again = client.ask(ask)?;
        if difference(answer, &again, rules).is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Asks the systems at `reference` and `base` alike and says where the second differs from what the
/// first always says.
pub fn compare(reference: &str, base: &str, asks: &[Ask]) -> Result<Vec<Failure>, MirrorError> {
    let (reference, client) = (Client::new(reference), Client::new(base));
    let mut failures = Vec::new();
    for ask in asks {
        let (answer, actual) = (reference.ask(ask)?, client.ask(ask)?);
        let difference = difference(&answer, &actual, rules(ask));
        let Some(difference) = difference else {
            continue;
        };
        if is_constant(&reference, ask, &answer)? {
            let ask = ask.clone();
            failures.push(Failure { ask, difference });
        }
    }
    Ok(failures)
}

/// Whether an error names two series of a range query that should be one: which comes first is the
/// order of a map.
fn names_a_pair_of_a_range(ask: &Ask, answer: &Value) -> bool {
    let error = answer["error"].as_str().unwrap_or_default();
    matches!(ask, Ask::Range { .. }) && error.starts_with("found duplicate series")
}

/// A query that another system answers in another way than the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What was asked.
    pub ask: Ask,
    /// Where the answers first differ.
    pub difference: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n    {}", self.ask, self.difference)
    }
}

/// Asks the system at `base` what the reference was asked and says where it differs.
pub fn check(base: &str, recorded: &[Recorded]) -> Result<Vec<Failure>, MirrorError> {
    let client = Client::new(base);
    let mut failures = Vec::new();
    for Recorded { ask, answer } in recorded {
        let actual = client.ask(ask)?;
        if let Some(difference) = difference(answer, &actual, rules(ask)) {
            failures.push(Failure {
                ask: ask.clone(),
                difference,
            });
        }
    }
    Ok(failures)
}

/// What an answer to `ask` is held to: the same bits, unless values of many series are added up or
/// functions are called whose last bit is their library's choice; an order where PromQL has one.
pub fn rules(ask: &Ask) -> Rules {
    let parsed = parser::parse(ask.expression(), Features::ALL);
    let rounds = parsed.as_ref().is_ok_and(may_round);
    let ordered = matches!(ask, Ask::Instant { .. }) && parsed.as_ref().is_ok_and(has_order);
    Rules {
        values: if rounds { ROUNDED } else { Values::Texts },
        ordered,
        to_the_letter: true,
    }
}

/// Where `actual` first differs from `expected`, in words. What is no answer of the API is text.
fn difference(expected: &Value, actual: &Value, rules: Rules) -> Option<String> {
    let (e, a) = (expected.to_string(), actual.to_string());
    match (Answer::parse(e.as_bytes()), Answer::parse(a.as_bytes())) {
        (Ok(e), Ok(a)) => {
            let found = judge::differences(&e, &a, rules);
            found.first().map(ToString::to_string)
        }
        _ => (expected != actual).then(|| format!("answer: expected {expected}, got {actual}")),
    }
}

fn may_round(expr: &Expr) -> bool {
    let here = match &expr.kind {
        ExprKind::Aggregate(aggregate) => !matches!(
            aggregate.op,
            AggregateOp::Count
                | AggregateOp::Min
                | AggregateOp::Max
                | AggregateOp::Group
                | AggregateOp::TopK
                | AggregateOp::BottomK
        ),
        ExprKind::Binary(binary) => matches!(binary.op, BinaryOp::Pow | BinaryOp::Atan2),
        ExprKind::Call(call) => is_transcendental(call.function.id),
        _ => false,
    };
    let mut inside = false;
    expr.for_each_child(&mut |child| inside |= may_round(child));
    here || inside
}

fn is_transcendental(function: FunctionId) -> bool {
    use FunctionId::*;
    matches!(
        function,
        Acos | Acosh
            | Asin
            | Asinh
            | Atan
            | Atanh
            | Cos
            | Cosh
            | Exp
            | HistogramFraction
            | HistogramQuantile
            | HistogramQuantiles
            | HistogramStddev
            | HistogramStdvar
            | Ln
            | Log10
            | Log2
            | Sin
            | Sinh
            | Tan
            | Tanh
    )
}

/// Whether the elements of an instant vector have an order.
pub fn has_order(expr: &Expr) -> bool {
    match &expr.without_parens().kind {
        ExprKind::Call(call) => matches!(
            call.function.id,
            FunctionId::Sort
                | FunctionId::SortDesc
                | FunctionId::SortByLabel
                | FunctionId::SortByLabelDesc
        ),
        ExprKind::Aggregate(aggregate) => {
            matches!(aggregate.op, AggregateOp::TopK | AggregateOp::BottomK)
                && aggregate.grouping == Grouping::By(Vec::new())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_follow_the_expression() {
        let exact = Values::Texts;
        let rounded = ROUNDED;
        let cases = [
            ("up", exact, false),
            ("rate(x[5m])", exact, false),
            ("sum(x)", rounded, false),
            ("max(x) + 1", exact, false),
            ("max(exp(x))", rounded, false),
            ("x ^ 2", rounded, false),
            ("max_over_time(sum(x)[5m:1m])", rounded, false),
            ("sort(x)", exact, true),
            ("(topk(3, x))", exact, true),
            ("topk by (a) (3, x)", exact, false),
            ("sum(", exact, false),
        ];
        for (expression, values, ordered) in cases {
            let ask = Ask::Instant {
                expression: expression.to_owned(),
                time_ms: 0,
            };
            let expected = Rules {
                values,
                ordered,
                to_the_letter: true,
            };
            assert_eq!(rules(&ask), expected, "{expression}");
        }
    }

    #[test]
    fn recorded_answer_reads_back_equal() {
        let recorded = Recorded {
            ask: Ask::Range {
                expression: "a{b=\"c\"}".to_owned(),
                start_ms: -5,
                end_ms: 10_000,
                step_ms: 500,
            },
            answer: json!({"status": "error"}),
        };
        let line = recorded.to_line();
        let file = Recorded::pack(std::slice::from_ref(&recorded)).unwrap();
        assert_eq!(Recorded::unpack(&file).unwrap(), [recorded]);
        let e = Recorded::parse_lines(&format!("{line}\n{{}}")).unwrap_err();
        assert_eq!(e.to_string(), "line 2 is not a recorded answer");
    }
}
