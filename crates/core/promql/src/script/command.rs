//! Parses a script into commands.
//!
//! A command consists of a line and the following lines up to the next empty line; a comment line
//! counts as empty. A syntax error affects only its own command: all other commands run.

use super::expectation::{EvalExpectations, ExpectedText};
use super::report::ScriptFailure;
use super::sequence::{
    LoadSample, ScriptSampleValue, Sequence, StartTimes, parse_duration_ms, parse_scalar,
    parse_series, parse_start_times,
};
use crate::ast::ExprKind;
use crate::grid::StepGrid;
use crate::parser::parse;
use crate::{EvalTime, Features};
use firn_model::labels::Labels;
use firn_model::sample::START_UNKNOWN;

/// One command of a script: `clear`, `load` or `eval`.
#[derive(Debug)]
pub(super) enum ScriptCommand {
    Clear { line: usize },
    Load(LoadCommand),
    Eval(Box<EvalCommand>),
}

/// A `load` command, which stores samples of several series.
#[derive(Debug)]
pub(super) struct LoadCommand {
    pub(super) line: usize,
    /// The series with their samples. Label sets are unique.
    pub(super) series: Vec<(Labels, Vec<LoadSample>)>,
    /// True if classic histograms are also stored as native histograms.
    pub(super) with_custom_buckets: bool,
}

/// An `eval` command: a query and its expected result.
#[derive(Debug)]
pub(super) struct EvalCommand {
    pub(super) line: usize,
    /// The query text, which is parsed when the command is executed.
    pub(super) text: String,
    pub(super) time: EvalTime,
    pub(super) expected: ExpectedValue,
    pub(super) expectations: EvalExpectations,
}

/// The expected value of a query, with sequences of values for series.
#[derive(Debug)]
pub(super) enum ExpectedValue {
    Scalar(f64),
    String(Vec<u8>),
    /// An instant vector, or the matrix of a range query.
    Series(Vec<(Labels, Sequence)>),
    /// A matrix as the value of an instant query, with the times of its points.
    RangeVector(StepGrid, Vec<(Labels, Sequence)>),
}

/// Parses a script into commands in order. Each command is returned separately, either parsed or as
/// a failure.
pub(super) fn parse_script(text: &str) -> Vec<Result<ScriptCommand, ScriptFailure>> {
    let lines: Vec<&str> = text
        .split('\n')
        .map(str::trim)
        .map(|line| if line.starts_with('#') { "" } else { line })
        .collect();
    let mut commands = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let head = lines[at];
        let line = at + 1;
        at += 1;
        if head.is_empty() {
            continue;
        }
        let is_clear = first_word(head).eq_ignore_ascii_case("clear");
        let body_lines = lines[at..]
            .iter()
            .take_while(|l| !is_clear && !l.is_empty())
            .count();
        let body = &lines[at..at + body_lines];
        at += body_lines;
        let read = parse_command(head, line, body);
        commands.push(read.map_err(|why| ScriptFailure {
            line,
            text: head.to_owned(),
            why,
        }));
    }
    commands
}

fn first_word(line: &str) -> &str {
    line.split([' ', '\t']).next().unwrap_or_default()
}

fn parse_command(head: &str, line: usize, body: &[&str]) -> Result<ScriptCommand, String> {
    let word = first_word(head).to_ascii_lowercase();
    match word.as_str() {
        "clear" => Ok(ScriptCommand::Clear { line }),
        w if w.starts_with("load") => parse_load(head, line, body).map(ScriptCommand::Load),
        w if w.starts_with("eval") => {
            parse_eval(head, line, body).map(|e| ScriptCommand::Eval(Box::new(e)))
        }
        _ => Err("unknown command".into()),
    }
}

pub(super) fn parse_load(head: &str, line: usize, body: &[&str]) -> Result<LoadCommand, String> {
    let (word, step) = head.split_once([' ', '\t']).ok_or("load needs a step")?;
    let with_custom_buckets = match word {
        "load" => false,
        "load_with_nhcb" => true,
        _ => return Err("expected load or load_with_nhcb".into()),
    };
    let step_ms = parse_duration_ms(step.trim())?;
    let mut series: Vec<(Labels, Vec<LoadSample>)> = Vec::new();
    let mut start_times: Option<StartTimes> = None;
    for text in body {
        if let Some(read) = parse_start_times(text) {
            if start_times.is_some() {
                return Err("start timestamps without the series below them".into());
            }
            start_times = Some(read?);
            continue;
        }
        let (labels, values) = parse_series(text)?;
        let samples = samples(step_ms, &labels, values, start_times.take())?;
        match series.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, known)) => *known = samples,
            None => series.push((labels, samples)),
        }
    }
    if start_times.is_some() {
        return Err("start timestamps without the series below them".into());
    }
    Ok(LoadCommand {
        line,
        series,
        with_custom_buckets,
    })
}

fn samples(
    step_ms: i64,
    labels: &Labels,
    values: Sequence,
    start_times: Option<StartTimes>,
) -> Result<Vec<LoadSample>, String> {
    let offsets = match start_times {
        None => Vec::new(),
        Some((named, _)) if named != *labels => {
            return Err(format!("start timestamps of {named} stand above {labels}"));
        }
        Some((_, offsets)) if offsets.len() != values.len() => {
            let (starts, count) = (offsets.len(), values.len());
            return Err(format!(
                "{starts} start timestamps stand above {count} values"
            ));
        }
        Some((_, offsets)) => offsets,
    };
    let mut out = Vec::new();
    for (position, value) in values.into_iter().enumerate() {
        let Some(value) = value else { continue };
        let time = step_ms.saturating_mul(position as i64);
        let start_time = match offsets.get(position) {
            Some(Some(offset)) => time.saturating_add(*offset),
            _ => START_UNKNOWN,
        };
        out.push(LoadSample {
            time,
            start_time,
            value,
        });
    }
    Ok(out)
}

fn parse_eval(head: &str, line: usize, body: &[&str]) -> Result<EvalCommand, String> {
    let (word, rest) = next_word(head)?;
    let mut expectations = EvalExpectations::default();
    match word {
        "eval" => {}
        "eval_fail" => expectations.fail = Some(ExpectedText::Anything),
        "eval_warn" => expectations.warnings.some = true,
        "eval_info" => expectations.infos.some = true,
        "eval_ordered" => expectations.ordered = true,
        _ => return Err("expected eval".into()),
    }
    let (kind, rest) = next_word(rest)?;
    let (time, text) = match kind {
        "instant" => {
            let (at_ms, rest) = parse_keyword_duration("at", rest)?;
            (EvalTime::Instant(at_ms), rest)
        }
        "range" => {
            let (start, rest) = parse_keyword_duration("from", rest)?;
            let (end, rest) = parse_keyword_duration("to", rest)?;
            let (step_ms, rest) = parse_keyword_duration("step", rest)?;
            range(start, end, step_ms)?;
            (EvalTime::range(start, end, step_ms), rest)
        }
        _ => return Err("expected instant or range".into()),
    };
    let mut eval = EvalCommand {
        line,
        text: text.to_owned(),
        time,
        expected: ExpectedValue::Series(Vec::new()),
        expectations,
    };
    for text in body {
        eval.add_line(text)?;
    }
    eval.check_width()?;
    Ok(eval)
}

/// Returns the steps of a range query, of which there is at least one.
fn range(start: i64, end: i64, step_ms: i64) -> Result<StepGrid, String> {
    if end < start {
        return Err("the end is before the start".into());
    }
    if step_ms <= 0 {
        return Err("the step must be positive".into());
    }
    Ok(StepGrid::from_bounds(start, end, step_ms))
}

fn next_word(text: &str) -> Result<(&str, &str), String> {
    let text = text.trim_start();
    let (word, rest) = text
        .split_once([' ', '\t'])
        .ok_or_else(|| format!("{text} ends too early"))?;
    Ok((word, rest.trim_start()))
}

/// Parses `keyword duration ` and returns the duration in milliseconds and the remaining text.
fn parse_keyword_duration<'a>(keyword: &str, text: &'a str) -> Result<(i64, &'a str), String> {
    let (word, rest) = next_word(text)?;
    if word != keyword {
        return Err(format!("expected {keyword}, got {word}"));
    }
    let (duration, rest) = next_word(rest)?;
    Ok((parse_duration_ms(duration)?, rest))
}

impl EvalCommand {
    /// Parses a line of the command's body: an expectation or an expected value.
    fn add_line(&mut self, text: &str) -> Result<(), String> {
        if let Some(message) = text.strip_prefix("expected_fail_message") {
            self.expectations.fail = Some(ExpectedText::message(message));
            return Ok(());
        }
        if let Some(pattern) = text.strip_prefix("expected_fail_regexp") {
            self.expectations.fail = Some(ExpectedText::pattern(pattern)?);
            return Ok(());
        }
        if first_word(text) == "expect" {
            return self.add_expectation(text["expect".len()..].trim_start());
        }
        if let Some(value) = parse_scalar(text) {
            self.expected = ExpectedValue::Scalar(value);
            return Ok(());
        }
        let (labels, values) = parse_series(text)?;
        match &mut self.expected {
            ExpectedValue::Series(series) | ExpectedValue::RangeVector(_, series) => {
                series.retain(|(known, _)| *known != labels);
                series.push((labels, values));
                Ok(())
            }
            _ => Err("a series is expected beside a scalar or a string".into()),
        }
    }

    fn add_expectation(&mut self, text: &str) -> Result<(), String> {
        if let Some(literal) = text.strip_prefix("string") {
            let literal = parse(literal, Features::default()).map_err(|e| e.to_string())?;
            let ExprKind::String(bytes) = literal.kind else {
                return Err("expect string needs a quoted string".into());
            };
            self.expected = ExpectedValue::String(bytes);
            return Ok(());
        }
        if let Some(rest) = text.strip_prefix("range vector") {
            let (start, rest) = parse_keyword_duration("from", rest)?;
            let (end, rest) = parse_keyword_duration("to", rest)?;
            let step = rest.strip_prefix("step").ok_or("expected step")?;
            let grid = range(start, end, parse_duration_ms(step.trim())?)?;
            let series = match &mut self.expected {
                ExpectedValue::Series(series) => std::mem::take(series),
                _ => Vec::new(),
            };
            self.expected = ExpectedValue::RangeVector(grid, series);
            return Ok(());
        }
        self.expectations.add(text)
    }

    /// Checks that each series of an expected instant vector has exactly one value.
    fn check_width(&self) -> Result<(), String> {
        let (EvalTime::Instant(_), ExpectedValue::Series(series)) = (self.time, &self.expected)
        else {
            return Ok(());
        };
        match series.iter().find(|(_, values)| values.len() != 1) {
            None => Ok(()),
            Some((labels, values)) => Err(format!(
                "{labels} has {} values; an instant evaluation has one",
                values.len()
            )),
        }
    }
}

impl ScriptSampleValue {
    /// Formats the value in the notation of scripts, for error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            ScriptSampleValue::Float(value) => value.to_string(),
            ScriptSampleValue::Histogram(histogram) => super::histogram::describe(&histogram.value),
        }
    }
}
