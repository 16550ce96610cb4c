//! Series and their values in the notation of scripts: `x{a="b"} 1+2x10 _ stale {{count:3}}x2`, and
//! `x@st -1m+10sx3`, the start timestamps of the next line.
//!
//! The values are not PromQL: they are separated by white space, and `x` repeats them.

use super::histogram::{ScriptHistogram, parse_histogram};
use crate::lexer::{PromqlLexer, PromqlTokenKind, unquote};
use crate::number::parse_signed;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::{TimestampMs, stale_nan};
use firn_model::units::parse_duration;

/// Maximum number of positions of one series: twenty times those of the longest script of
/// Prometheus, and few enough that a histogram at each position fits in memory.
pub(super) const POSITIONS_MAX: usize = 100_000;

/// The value at one position of a series: a float or a histogram.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScriptSampleValue {
    /// A number or the staleness marker, which is written as `stale`.
    Float(f64),
    /// A native histogram, written in double braces.
    Histogram(ScriptHistogram),
}

/// The values at the positions of a series. `None` means that there is no sample.
pub(super) type Sequence = Vec<Option<ScriptSampleValue>>;

/// Parses a line with a series and its values.
pub(super) fn parse_series(line: &str) -> Result<(Labels, Sequence), String> {
    let (labels, rest) = parse_labels(line)?;
    Ok((labels, parse_values(rest)?))
}

/// The start timestamps of a series: its labels and one offset in milliseconds per position.
pub type StartTimes = (Labels, Vec<Option<i64>>);

/// Parses a line `series@st offsets`. Returns `None` if the line has a different form.
pub(super) fn parse_start_times(line: &str) -> Option<Result<StartTimes, String>> {
    let (series, offsets) = line.split_once([' ', '\t'])?;
    let series = series.strip_suffix("@st")?;
    let read = || {
        let (labels, rest) = parse_labels(series)?;
        if !rest.is_empty() {
            return Err(format!("series has a tail: {rest}"));
        }
        let mut out = Vec::new();
        for item in offsets.split_whitespace() {
            push_offsets(item, &mut out).map_err(|why| format!("start timestamp {item}: {why}"))?;
        }
        Ok((labels, out))
    };
    Some(read())
}

/// Parses the labels at the beginning of `line`. Returns them with the remaining text.
fn parse_labels(line: &str) -> Result<(Labels, &str), String> {
    let fail = |why: &str| Err(format!("series {line}: {why}"));
    let mut lexer = PromqlLexer::new(line);
    let mut next = || {
        lexer
            .next()
            .map_err(|e| format!("series {line}: {}", e.message()))
    };
    let mut labels = LabelsBuilder::default();
    let mut token = next()?;
    let text =
        |token: crate::lexer::PromqlToken| line.get(token.start..token.end).unwrap_or_default();
    let rest = |token: crate::lexer::PromqlToken| line.get(token.end..).unwrap_or_default();
    let name = token.kind.is_metric_name().then(|| text(token));
    if let Some(name) = name {
        labels.set(METRIC_NAME, name.as_bytes());
        if !rest(token).starts_with('{') {
            return Ok((labels.build(), rest(token)));
        }
        token = next()?;
    }
    if token.kind != PromqlTokenKind::LeftBrace {
        return fail("must begin with a name or with braces");
    }
    let mut token = next()?;
    let mut names = Vec::new();
    while token.kind != PromqlTokenKind::RightBrace {
        let name = match token.kind {
            PromqlTokenKind::Identifier => text(token).as_bytes().to_vec(),
            PromqlTokenKind::String => unquote(text(token)),
            _ => return fail("expected a label"),
        };
        let is_quoted = token.kind == PromqlTokenKind::String;
        token = next()?;
        if token.kind == PromqlTokenKind::Assign {
            let value = next()?;
            if value.kind != PromqlTokenKind::String {
                return fail("expected a string");
            }
            let Ok(name) = String::from_utf8(name) else {
                return fail("label name is not UTF-8");
            };
            labels.set(&name, &unquote(text(value)));
            if names.contains(&name) {
                return fail(&format!(
                    "label name {name:?} is not unique: invalid sample"
                ));
            }
            names.push(name);
            token = next()?;
        } else if is_quoted {
            labels.set(METRIC_NAME, &name);
        } else {
            return fail("expected =");
        }
        match token.kind {
            PromqlTokenKind::Comma => token = next()?,
            PromqlTokenKind::RightBrace => {}
            _ => return fail("expected , or }"),
        }
    }
    // The name before the braces takes precedence over a name inside them.
    if let Some(name) = name {
        labels.set(METRIC_NAME, name.as_bytes());
    }
    Ok((labels.build(), rest(token)))
}

fn parse_values(text: &str) -> Result<Sequence, String> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    if rest.len() == text.len() && !text.is_empty() {
        return Err(format!("values must be behind white space: {text}"));
    }
    while !rest.is_empty() {
        let item = rest;
        rest = push_item(item, &mut out).map_err(|why| format!("values {item}: {why}"))?;
        let trimmed = rest.trim_start();
        if trimmed.len() == rest.len() && !rest.is_empty() {
            return Err(format!("values {item}: unexpected {rest}"));
        }
        rest = trimmed;
    }
    Ok(out)
}

/// Parses one item, which may represent many positions. Returns the remaining text.
fn push_item<'a>(item: &'a str, out: &mut Sequence) -> Result<&'a str, String> {
    if let Some(rest) = item.strip_prefix('_') {
        return match take_count(rest)? {
            (None, rest) => push_times(out, 1, None, rest),
            (Some(count), rest) => push_times(out, count, None, rest),
        };
    }
    if item.starts_with("{{") {
        return push_histograms(item, out);
    }
    if let Some(rest) = item.strip_prefix("stale") {
        return push_times(out, 1, Some(ScriptSampleValue::Float(stale_nan())), rest);
    }
    let (value, rest) = take_number(item)?;
    if rest.starts_with(['+', '-']) {
        let (delta, rest) = take_number(rest)?;
        let (Some(count), rest) = take_count(rest)? else {
            return Err("a step needs a count: x and a number".into());
        };
        return push_steps(out, value, delta, count, rest);
    }
    match take_count(rest)? {
        (None, rest) => push_times(out, 1, Some(ScriptSampleValue::Float(value)), rest),
        (Some(count), rest) => push_steps(out, value, 0.0, count, rest),
    }
}

fn push_times<'a>(
    out: &mut Sequence,
    count: usize,
    value: Option<ScriptSampleValue>,
    rest: &'a str,
) -> Result<&'a str, String> {
    check_positions(out.len(), count)?;
    out.resize(out.len() + count, value);
    Ok(rest)
}

/// Appends `count + 1` values, starting with `value`; each following value is larger by `delta`.
fn push_steps<'a>(
    out: &mut Sequence,
    value: f64,
    delta: f64,
    count: usize,
    rest: &'a str,
) -> Result<&'a str, String> {
    check_positions(out.len(), count)?;
    let mut value = value;
    for _ in 0..=count {
        out.push(Some(ScriptSampleValue::Float(value)));
        value += delta;
    }
    Ok(rest)
}

fn check_positions(held: usize, count: usize) -> Result<(), String> {
    if count >= POSITIONS_MAX - held.min(POSITIONS_MAX) {
        return Err(format!(
            "series has too many positions: {held} and {count}, limit {POSITIONS_MAX}"
        ));
    }
    Ok(())
}

fn push_histograms<'a>(item: &'a str, out: &mut Sequence) -> Result<&'a str, String> {
    let (first, rest) = parse_histogram(item)?;
    let sign = rest.chars().next().filter(|c| matches!(c, '+' | '-'));
    let Some(sign) = sign else {
        let (count, rest) = take_count(rest)?;
        // One value more than the count, but exactly one value without a count.
        let count = count.map_or(1, |n| n.saturating_add(1));
        return push_times(out, count, Some(ScriptSampleValue::Histogram(first)), rest);
    };
    let (step, rest) = parse_histogram(&rest[1..])?;
    let (Some(count), rest) = take_count(rest)? else {
        return Err("a step needs a count: x and a number".into());
    };
    check_positions(out.len(), count)?;
    let mut current = first;
    // The step determines whether the hints of all values are compared.
    current.hint_written = step.hint_written;
    for _ in 0..count {
        let next = current.plus(&step, sign)?;
        out.push(Some(ScriptSampleValue::Histogram(std::mem::replace(
            &mut current,
            next,
        ))));
    }
    out.push(Some(ScriptSampleValue::Histogram(current)));
    Ok(rest)
}

/// Parses the number after an `x`, if present. Returns it with the remaining text.
fn take_count(text: &str) -> Result<(Option<usize>, &str), String> {
    let Some(digits) = text.strip_prefix('x') else {
        return Ok((None, text));
    };
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    let count = digits[..digits.len() - rest.len()].parse();
    match count {
        Ok(count) => Ok((Some(count), rest)),
        Err(_) => Err("expected a count after x".into()),
    }
}

/// Parses a number with an optional sign. Returns it with the remaining text.
fn take_number(text: &str) -> Result<(f64, &str), String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = text.len() - unsigned.len() + number_length(unsigned);
    let (number, rest) = text.split_at(end);
    let value = parse_signed(number).map_err(|why| format!("{why}: {text}"))?;
    Ok((value, rest))
}

/// Returns the length in bytes of the number at the beginning of `text`: `Inf`, `NaN`, or digits. A
/// sign is part of it only after an `e`, and an `x` ends it.
fn number_length(text: &str) -> usize {
    let word = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    if word.len() < text.len() {
        return text.len() - word.len();
    }
    let mut previous = ' ';
    for (i, c) in text.char_indices() {
        let is_part = match c {
            '0'..='9' | '.' | '_' | 'e' | 'E' => true,
            '+' | '-' => matches!(previous, 'e' | 'E'),
            _ => false,
        };
        if !is_part {
            return i;
        }
        previous = c;
    }
    text.len()
}

/// Parses a line that consists of a single number in Go's notation. Returns `None` for anything
/// else.
pub(super) fn parse_scalar(line: &str) -> Option<f64> {
    parse_signed(line).ok()
}

/// Parses an item of start timestamps, such as `_`, `_x3`, `-1m`, `-1mx3` or `-1m+10sx3`, and
/// appends its offsets.
fn push_offsets(item: &str, out: &mut Vec<Option<i64>>) -> Result<(), String> {
    if let Some(rest) = item.strip_prefix('_') {
        let (count, rest) = take_count(rest)?;
        let count = count.unwrap_or(1);
        check_positions(out.len(), count)?;
        out.resize(out.len() + count, None);
        return expect_nothing(rest);
    }
    let (offset, rest) = take_duration(item)?;
    let (delta, rest) = if rest.starts_with(['+', '-']) {
        take_duration(rest)?
    } else {
        (0, rest)
    };
    let (count, rest) = take_count(rest)?;
    let count = count.unwrap_or(0);
    check_positions(out.len(), count)?;
    out.extend((0..=count as i64).map(|i| Some(offset.saturating_add(delta.saturating_mul(i)))));
    expect_nothing(rest)
}

fn expect_nothing(rest: &str) -> Result<(), String> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(format!("unexpected {rest}"))
    }
}

/// Parses a duration of one unit with an optional sign. Returns its milliseconds and the remaining
/// text.
fn take_duration(text: &str) -> Result<(i64, &str), String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let unit = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = unit.trim_start_matches(|c: char| c.is_ascii_alphabetic() && c != 'x');
    let ms = parse_duration_ms(&unsigned[..unsigned.len() - rest.len()])?;
    Ok((if text.starts_with('-') { -ms } else { ms }, rest))
}

/// Parses a duration such as `1h30m` and returns its milliseconds.
pub(super) fn parse_duration_ms(text: &str) -> Result<i64, String> {
    let duration = parse_duration(text).map_err(|e| e.to_string())?;
    Ok(duration.as_millis() as i64)
}

/// A sample of a `load` command. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoadSample {
    pub(super) time: TimestampMs,
    pub(super) start_time: TimestampMs,
    pub(super) value: ScriptSampleValue,
}
