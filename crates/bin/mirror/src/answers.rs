//! Recorded answers: the responses of a reference system to a list of queries over test data, kept
//! in a file, and the comparison of another system's responses with them.
//!
//! Remote write 1.0 carries no start timestamps, so data that has them is exposed on a target,
//! which the system scrapes.
//!
//! Each line of the file is `{"ask": {endpoint, query, times}, "answer": JSON of the reference}`.
//! The file is compressed with gzip.

pub mod data;
pub mod expressions;
pub mod queries;
pub mod requests;
mod words;

use crate::api::{ExpressionRequest, SystemClient};
use crate::body;
use crate::error::MirrorError;
use crate::exposition;
use crate::judge::answer::ApiAnswer;
use crate::judge::tolerance::Tolerance;
use crate::judge::{self, ComparisonRules, ValueComparison};
use crate::push::PushConnection;
use crate::target::{self, ExpositionServer};
use data::AnswerTestData;
use firn_promql::Features;
use firn_promql::ast::{AggregateGrouping, AggregateOp, BinaryOp, Expr, ExprKind};
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

/// Time range of the samples in one write request. It is well inside the out-of-order window that
/// receivers accept behind their newest sample.
const REQUEST_SPAN_MS: i64 = 300_000;

/// Tolerance for values that need not be bit-identical to those of the reference, because their
/// computation rounds.
const ROUNDED: ValueComparison = ValueComparison::Numbers(Tolerance {
    relative: 1e-12,
    absolute: 0.0,
    ulps: 0,
});

/// A query and the response of the reference system to it; one line of the file of recorded
/// answers.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedAnswer {
    /// The query that was sent to the reference system.
    pub ask: ExpressionRequest,
    /// The complete JSON response, including its status and any warnings.
    pub answer: Value,
}

impl RecordedAnswer {
    /// Encodes the query and its answer as one line of the file, without a line break.
    pub fn to_line(&self) -> String {
        json!({ "ask": self.ask.to_json(), "answer": self.answer }).to_string()
    }

    /// Encodes `all` as a gzip-compressed file with one line per recorded answer, in their order.
    /// [`RecordedAnswer::unpack`] reads it.
    pub fn pack(all: &[RecordedAnswer]) -> Result<Vec<u8>, MirrorError> {
        packed(all.iter().map(RecordedAnswer::to_line))
    }

    /// Decodes a gzip-compressed file. Fails with the number of the first line that is malformed.
    pub fn unpack(file: &[u8]) -> Result<Vec<RecordedAnswer>, MirrorError> {
        Self::parse_lines(&unpacked(file)?)
    }

    /// Parses the lines of an uncompressed file. Fails with the number of the first line that is
    /// malformed.
    fn parse_lines(text: &str) -> Result<Vec<RecordedAnswer>, MirrorError> {
        let parse = |(number, line): (usize, &str)| {
            let mut value: Value = serde_json::from_str(line).unwrap_or_default();
            let ask = ExpressionRequest::from_json(&value["ask"]);
            let ask = ask.ok_or_else(|| {
                MirrorError::Usage(format!("line {} is not a recorded answer", number + 1))
            })?;
            Ok(RecordedAnswer {
                ask,
                answer: value["answer"].take(),
            })
        };
        text.lines().enumerate().map(parse).collect()
    }
}

/// Compresses `lines` with gzip, each followed by a line break, at the best level, because the
/// files are part of the repository.
fn packed(mut lines: impl Iterator<Item = String>) -> Result<Vec<u8>, MirrorError> {
    let mut file = GzEncoder::new(Vec::new(), Compression::best());
    let written = lines.try_for_each(|line| file.write_all((line + "\n").as_bytes()));
    let packed = written.and_then(|()| file.finish());
    packed.map_err(|e| MirrorError::Usage(format!("answers cannot be packed: {e}")))
}

/// Decompresses a file that [`packed`] wrote and returns its lines as one text. Fails if it is not
/// valid gzip or UTF-8.
fn unpacked(file: &[u8]) -> Result<String, MirrorError> {
    let mut text = String::new();
    let read = GzDecoder::new(file).read_to_string(&mut text);
    read.map_err(|e| MirrorError::Usage(format!("answers cannot be unpacked: {e}")))?;
    Ok(text)
}

/// Sends `data` to the remote-write endpoint of the system at `base`, in batches that receivers
/// accept in order.
pub fn send(base: &str, data: &AnswerTestData) -> Result<(), MirrorError> {
    let url = format!("{}/api/v1/write", base.trim_end_matches('/'));
    let connection = PushConnection::new(&url);
    for batch in data.batches(REQUEST_SPAN_MS) {
        let refused = |what| MirrorError::Answer {
            url: url.clone(),
            what,
        };
        connection.send(&body::encode(&batch))?.map_err(refused)?;
    }
    Ok(())
}

/// Maximum time until a system has scraped the exposed data.
const SCRAPED_WITHIN: Duration = Duration::from_secs(60);

/// Pause between two checks of whether the data has been scraped.
const POLL: Duration = Duration::from_millis(20);

/// Exposes `data` in the Prometheus protobuf format on `address` until the process ends. Fails if
/// the address cannot be bound.
pub fn expose(address: &str, data: &AnswerTestData) -> Result<ExpositionServer, MirrorError> {
    let body = exposition::encode(data);
    ExpositionServer::start(address, move |_, stream| {
        target::respond(stream, "200 OK", FAMILIES_CONTENT_TYPE, &body);
    })
}

/// Waits until the system at `base`, which may not be running yet, has scraped `data`. A scrape
/// becomes visible as a whole, so it is enough to query one series. Fails after a minute.
pub fn wait_scraped(base: &str, data: &AnswerTestData) -> Result<(), MirrorError> {
    let newest = data.series.first().and_then(|(labels, samples)| {
        Some(ExpressionRequest::Instant {
            expression: labels.to_string(),
            time_ms: samples.last()?.time,
        })
    });
    let newest = newest.ok_or_else(|| MirrorError::Usage("there is no data".into()))?;
    let client = SystemClient::new(base);
    let end = Instant::now() + SCRAPED_WITHIN;
    loop {
        let answer = client.send_query(&newest);
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

/// How often each query is sent while answers are recorded, to find answers that vary.
const ASKED_TIMES: usize = 10;

/// Returns the response of the system at `base` to each of `asks`. Queries with varying answers are
/// left out: Prometheus iterates over Go maps in random order, which can determine the series that
/// a range query selects or names first in an error.
pub fn record(
    base: &str,
    asks: Vec<ExpressionRequest>,
) -> Result<Vec<RecordedAnswer>, MirrorError> {
    let client = SystemClient::new(base);
    let mut recorded = Vec::new();
    for ask in asks {
        let answer = client.send_query(&ask)?;
        if is_constant(&client, &ask, &answer)? {
            recorded.push(RecordedAnswer { ask, answer });
        }
    }
    Ok(recorded)
}

/// Returns whether the system repeats `answer` each time the query is sent again, compared by the
/// rules for the query.
fn is_constant(
    client: &SystemClient,
    ask: &ExpressionRequest,
    answer: &Value,
) -> Result<bool, MirrorError> {
    if is_duplicate_pair_error(ask, answer) {
        return Ok(false);
    }
    let rules = rules(ask);
    for _ in 1..ASKED_TIMES {
        let again = client.send_query(ask)?;
        if difference(answer, &again, rules).is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sends the same queries to the systems at `reference` and `base` and returns the differences.
/// Queries to which the reference gives varying answers are ignored.
pub fn compare(
    reference: &str,
    base: &str,
    asks: &[ExpressionRequest],
) -> Result<Vec<AnswerMismatch>, MirrorError> {
    let (reference, client) = (SystemClient::new(reference), SystemClient::new(base));
    let mut failures = Vec::new();
    for ask in asks {
        let (answer, actual) = (reference.send_query(ask)?, client.send_query(ask)?);
        let difference = difference(&answer, &actual, rules(ask));
        let Some(difference) = difference else {
            continue;
        };
        if is_constant(&reference, ask, &answer)? {
            let ask = ask.clone();
            failures.push(AnswerMismatch { ask, difference });
        }
    }
    Ok(failures)
}

/// Returns whether the answer to a range query is an error about two series with the same labels.
/// Which of the two it names first depends on the iteration order of a map.
fn is_duplicate_pair_error(ask: &ExpressionRequest, answer: &Value) -> bool {
    let error = answer["error"].as_str().unwrap_or_default();
    matches!(ask, ExpressionRequest::Range { .. }) && error.starts_with("found duplicate series")
}

/// A query whose answer from another system differs from that of the reference, as [`check`] and
/// [`compare`] return it.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerMismatch {
    /// The query that was sent to both systems.
    pub ask: ExpressionRequest,
    /// Description of the first difference between the answers.
    pub difference: String,
}

impl std::fmt::Display for AnswerMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n    {}", self.ask, self.difference)
    }
}

/// Sends every recorded query to the system at `base` and returns the answers that differ from the
/// recorded ones.
pub fn check(base: &str, recorded: &[RecordedAnswer]) -> Result<Vec<AnswerMismatch>, MirrorError> {
    let client = SystemClient::new(base);
    let mut failures = Vec::new();
    for RecordedAnswer { ask, answer } in recorded {
        let actual = client.send_query(ask)?;
        if let Some(difference) = difference(answer, &actual, rules(ask)) {
            failures.push(AnswerMismatch {
                ask: ask.clone(),
                difference,
            });
        }
    }
    Ok(failures)
}

/// Returns the rules by which answers to `ask` are compared. Values must be bit-identical
/// unless the expression adds up values of many series or calls functions whose last bit depends on
/// the maths library. The order of elements counts where PromQL defines one.
pub fn rules(ask: &ExpressionRequest) -> ComparisonRules {
    let parsed = parser::parse(ask.expression(), Features::ALL);
    let rounds = parsed.as_ref().is_ok_and(may_round);
    let ordered =
        matches!(ask, ExpressionRequest::Instant { .. }) && parsed.as_ref().is_ok_and(has_order);
    ComparisonRules {
        values: if rounds {
            ROUNDED
        } else {
            ValueComparison::Texts
        },
        ordered,
        to_the_letter: true,
    }
}

/// Describes the first difference between `actual` and `expected`, or returns `None` if they are
/// equal. Values that are not answers of the query API are compared as JSON.
fn difference(expected: &Value, actual: &Value, rules: ComparisonRules) -> Option<String> {
    let (expected, actual) = (
        without_duplicate_pair(expected),
        without_duplicate_pair(actual),
    );
    let (e, a) = (expected.to_string(), actual.to_string());
    match (
        ApiAnswer::parse(e.as_bytes()),
        ApiAnswer::parse(a.as_bytes()),
    ) {
        (Ok(e), Ok(a)) => {
            let found = judge::differences(&e, &a, rules);
            found.first().map(ToString::to_string)
        }
        _ => (expected != actual).then(|| format!("answer: expected {expected}, got {actual}")),
    }
}

/// Removes the names of the two series from an error about series with the same labels. Of three
/// such series the first two are named, and a block holds its series in another order than the
/// head, so that the names depend on when the head is cut.
fn without_duplicate_pair(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(Value::String(error)) = answer.get_mut("error")
        && error.starts_with("found duplicate series")
        && let Some((start, pair)) = error.split_once(": [")
        && let Some((_, end)) = pair.rsplit_once("];")
    {
        *error = format!("{start}: [];{end}");
    }
    answer
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

/// Returns whether PromQL defines the order of the elements of the instant vector that `expr`
/// returns.
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
                && aggregate.grouping == AggregateGrouping::By(Vec::new())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_follow_the_expression() {
        let exact = ValueComparison::Texts;
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
            let ask = ExpressionRequest::Instant {
                expression: expression.to_owned(),
                time_ms: 0,
            };
            let expected = ComparisonRules {
                values,
                ordered,
                to_the_letter: true,
            };
            assert_eq!(rules(&ask), expected, "{expression}");
        }
    }

    #[test]
    fn pairs_of_duplicate_series_are_not_compared() {
        let answer = |group: &str, pair: &str| {
            serde_json::json!({"status": "error", "errorType": "execution", "error": format!(
                "found duplicate series for the match group {{{group}}}: [{pair}];many-to-many"
            )})
        };
        let rules = rules(&ExpressionRequest::Instant {
            expression: "a + b".to_owned(),
            time_ms: 0,
        });
        let recorded = answer("a=\"1\"", "{le=\"1\"}, {le=\"2\"}");
        let other_pair = answer("a=\"1\"", "{le=\"2\"}, {le=\"+Inf\"}");
        assert_eq!(difference(&recorded, &other_pair, rules), None);
        let other_group = answer("a=\"2\"", "{le=\"1\"}, {le=\"2\"}");
        assert!(difference(&recorded, &other_group, rules).is_some());
    }

    #[test]
    fn recorded_answer_reads_back_equal() {
        let recorded = RecordedAnswer {
            ask: ExpressionRequest::Range {
                expression: "a{b=\"c\"}".to_owned(),
                start_ms: -5,
                end_ms: 10_000,
                step_ms: 500,
            },
            answer: json!({"status": "error"}),
        };
        let line = recorded.to_line();
        let file = RecordedAnswer::pack(std::slice::from_ref(&recorded)).unwrap();
        assert_eq!(RecordedAnswer::unpack(&file).unwrap(), [recorded]);
        let e = RecordedAnswer::parse_lines(&format!("{line}\n{{}}")).unwrap_err();
        assert_eq!(e.to_string(), "line 2 is not a recorded answer");
    }
}
