//! One line of an exposition.
//!
//! ```text
//! name{label="value",...} value [time]        {"name",label="value",...} value [time]
//! # HELP name text      # TYPE name type      # UNIT name unit      # anything else
//! ```

use firn_model::labels::METRIC_NAME;
use firn_model::sample::TimestampMs;
use std::borrow::Cow;

/// What stands on a line.
#[derive(Debug)]
pub(super) enum Line<'t> {
    /// Nothing, or a comment.
    Nothing,
    /// The type of a metric family.
    Kind(&'t str, &'static str),
    /// The help text of a metric family.
    Help(&'t str, String),
    /// The unit of a metric family.
    Unit(&'t str, String),
    /// A sample.
    Series(SeriesLine<'t>),
}

/// A sample and its labels, the metric's name among them, in the order of the text.
#[derive(Debug)]
pub(super) struct SeriesLine<'t> {
    pub labels: Vec<(Cow<'t, str>, Cow<'t, str>)>,
    pub value: f64,
    pub time: Option<TimestampMs>,
}

/// Reads a line without its newline.
pub(super) fn read(line: &[u8]) -> Result<Line<'_>, String> {
    let Ok(line) = std::str::from_utf8(line) else {
        return Err(format!(
            "invalid UTF-8: {:?}",
            String::from_utf8_lossy(line)
        ));
    };
    let line = skip_blanks(line);
    match line.strip_prefix('#') {
        _ if line.is_empty() => Ok(Line::Nothing),
        Some(comment) => read_comment(comment),
        None => read_series(line).map(Line::Series),
    }
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches(is_blank)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Splits off the characters that may stand in a name without quotes.
fn take_name(text: &str, colon: bool) -> Option<(&str, &str)> {
    let end = text
        .find(|c| !(is_name_char(c) || colon && c == ':'))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let is_name = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    is_name.then_some((name, rest))
}

/// Reads what follows a `#`. Only lines that start with a known word mean something.
fn read_comment(comment: &str) -> Result<Line<'_>, String> {
    let mut words = skip_blanks(comment).splitn(2, is_blank);
    let keyword = words.next().unwrap_or("");
    if !comment.starts_with(is_blank) || !matches!(keyword, "HELP" | "TYPE" | "UNIT") {
        return Ok(Line::Nothing);
    }
    let rest = skip_blanks(words.next().unwrap_or(""));
    let (name, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"'),
        None => take_name(rest, true),
    }
    .ok_or_else(|| format!("expected a metric name after {keyword}, got {rest:?}"))?;
    let text = skip_blanks(rest);
    match keyword {
        "HELP" => Ok(Line::Help(name, unescape(text, false).into_owned())),
        "UNIT" => Ok(Line::Unit(name, text.to_owned())),
        _ => Ok(Line::Kind(name, kind(text)?)),
    }
}

fn kind(text: &str) -> Result<&'static str, String> {
    match text.trim_end_matches(is_blank) {
        "counter" => Ok("counter"),
        "gauge" => Ok("gauge"),
        "histogram" => Ok("histogram"),
        "summary" => Ok("summary"),
        "untyped" | "unknown" => Ok("unknown"),
        other => Err(format!("invalid metric type {other:?}")),
    }
}

fn read_series(line: &str) -> Result<SeriesLine<'_>, String> {
    let mut labels = Vec::new();
    let mut rest = line;
    if !line.starts_with('{') {
        let (name, after) =
            take_name(line, true).ok_or_else(|| format!("expected a metric name, got {line:?}"))?;
        if !after.starts_with([' ', '\t', '{']) {
            return Err(format!("expected a value after the metric, got {after:?}"));
        }
        labels.push((METRIC_NAME.into(), name.into()));
        rest = skip_blanks(after);
    }
    if let Some(inside) = rest.strip_prefix('{') {
        rest = read_labels(inside, &mut labels)?;
    }
    let (value, rest) = take_word(skip_blanks(rest));
    let value = parse_value(value).ok_or_else(|| format!("invalid value {value:?}"))?;
    let (time, rest) = take_word(skip_blanks(rest));
    let time = match time {
        "" => None,
        time => Some(
            time.parse()
                .map_err(|_| format!("invalid timestamp {time:?}"))?,
        ),
    };
    if !skip_blanks(rest).is_empty() {
        return Err(format!("expected the end of the line, got {rest:?}"));
    }
    Ok(SeriesLine {
        labels,
        value,
        time,
    })
}

fn take_word(text: &str) -> (&str, &str) {
    text.split_at(text.find(is_blank).unwrap_or(text.len()))
}

/// A number as Go's `ParseFloat` reads it, but for hexadecimal ones and underscores, which
/// Prometheus refuses too.
fn parse_value(word: &str) -> Option<f64> {
    word.parse().ok()
}

/// Reads labels up to the closing brace, and the metric's name if it stands among them in quotes.
/// Returns what follows the brace.
fn read_labels<'t>(
    mut rest: &'t str,
    labels: &mut Vec<(Cow<'t, str>, Cow<'t, str>)>,
) -> Result<&'t str, String> {
    loop {
        rest = skip_blanks(rest);
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let is_quoted = rest.starts_with('"');
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => take_quoted(quoted)?,
            None => take_name(rest, false)
                .map(|(name, rest)| (name.into(), rest))
                .ok_or_else(|| format!("expected a label name, got {rest:?}"))?,
        };
        let after = skip_blanks(after);
        rest = match after.strip_prefix('=') {
            Some(after) => {
                let Some(quoted) = skip_blanks(after).strip_prefix('"') else {
                    return Err(format!("expected a label value, got {after:?}"));
                };
                let (value, after) = take_quoted(quoted)?;
                if name.is_empty() {
                    return Err("label name is empty".into());
                }
                labels.push((name, value));
                after
            }
            None if is_quoted => {
                labels.push((METRIC_NAME.into(), name));
                after
            }
            None => return Err(format!("expected an equal sign, got {after:?}")),
        };
        rest = skip_blanks(rest);
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest.starts_with('}') => {}
            None => return Err(format!("expected a comma or a closing brace, got {rest:?}")),
        }
    }
}

/// Reads up to the closing quote, of which the opening one is read already.
fn take_quoted(text: &str) -> Result<(Cow<'_, str>, &str), String> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Ok((unescape(&text[..at], true), &text[at + 1..])),
            _ => {}
        }
    }
    Err("expected a closing quote".into())
}

/// Replaces `\\` and `\n`, with `quotes` also `\"`. Any other backslash stays, as in Prometheus.
fn unescape(text: &str, quotes: bool) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let next = chars.clone().next();
        let replaced = match (c, next) {
            ('\\', Some('n')) => '\n',
            ('\\', Some('\\')) => '\\',
            ('\\', Some('"')) if quotes => '"',
            _ => {
                out.push(c);
                continue;
            }
        };
        out.push(replaced);
        chars.next();
    }
    out.into()
}
