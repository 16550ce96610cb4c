//! Escapes values for JavaScript: as JSON values, and as text in string, template and regular
//! expression literals.

use super::text::replace_bytes;
use crate::format::{self, OutputTooLong, own_text};
use crate::html::transition::is_word;
use crate::value::{GoIntType, TemplateValue};
use firn_model::histogram::{BucketSpan, Histogram, ResetHint};
use std::io::Write;

/// Go layout of times in JSON.
const TIME_LAYOUT: &[u8] = b"2006-01-02T15:04:05.999999999Z07:00";

/// Go's error message for a value that has no JSON representation, such as NaN.
struct JsonFormError(String);

/// Encodes the arguments as one JavaScript value. A value without JSON representation becomes
/// `null` with a comment.
pub(super) fn encode_value(
    arguments: &[TemplateValue],
    bytes_max: usize,
) -> Result<Vec<u8>, OutputTooLong> {
    let value = match arguments {
        [one] => top(one.clone().unwrap_interface()),
        many => TemplateValue::string(format::print_plain(many, bytes_max)?),
    };
    let mut out = Vec::new();
    if let Err(JsonFormError(why)) = push(&mut out, &value, bytes_max)? {
        return Ok(format!(" /* {why} */null ").into_bytes());
    }
    // Spaces separate the value from adjacent identifiers and keywords.
    let ends = [out.first(), out.last()].into_iter().flatten();
    if { ends }.any(|byte| is_word(*byte)) {
        out.insert(0, b' ');
        out.push(b' ');
    }
    Ok(out)
}

/// Replaces a duration, month or weekday by its text. Other values keep their JSON form.
fn top(value: TemplateValue) -> TemplateValue {
    let value = match value {
        TemplateValue::Pointer(inside) => *inside,
        value => value,
    };
    match &value {
        TemplateValue::Int(GoIntType::Duration | GoIntType::Month | GoIntType::Weekday, _) => {
            let text = own_text(&value).unwrap_or_default();
            TemplateValue::string(text.as_bytes())
        }
        _ => value,
    }
}

/// Writes `value` as JSON that is also valid JavaScript within HTML.
fn push(
    out: &mut Vec<u8>,
    value: &TemplateValue,
    bytes_max: usize,
) -> Result<Result<(), JsonFormError>, OutputTooLong> {
    if out.len() > bytes_max {
        return Err(OutputTooLong);
    }
    match value {
        TemplateValue::Invalid | TemplateValue::Interface(None) | TemplateValue::Sample(None) => {
            out.extend_from_slice(b"null");
        }
        TemplateValue::Interface(Some(inside)) | TemplateValue::Pointer(inside) => {
            return push(out, inside, bytes_max);
        }
        TemplateValue::Bool(value) => drop(write!(out, "{value}")),
        TemplateValue::Int(_, value) => drop(write!(out, "{value}")),
        TemplateValue::Float(value) => {
            if value.is_finite() {
                push_float(out, *value)
            } else {
                let shown = firn_model::go_float::format_shortest(*value);
                return Ok(Err(JsonFormError(format!(
                    "json: unsupported value: {shown}"
                ))));
            }
        }
        TemplateValue::String(text) | TemplateValue::Html(text) => push_string(out, text),
        TemplateValue::Time(time) => push_string(out, &time.format(TIME_LAYOUT)),
        TemplateValue::Query(query) if query.is_nil() => out.extend_from_slice(b"null"),
        TemplateValue::Query(query) => {
            let samples = (0..query.len()).map(|index| TemplateValue::Sample(query.get(index)));
            return push_list(out, samples, bytes_max);
        }
        TemplateValue::Texts(texts) if texts.is_empty() => out.extend_from_slice(b"null"),
        TemplateValue::Texts(texts) => {
            return push_list(
                out,
                texts.iter().cloned().map(TemplateValue::String),
                bytes_max,
            );
        }
        TemplateValue::Floats(floats) => {
            return push_list(
                out,
                floats.iter().copied().map(TemplateValue::Float),
                bytes_max,
            );
        }
        TemplateValue::Strings(_)
        | TemplateValue::Params(_)
        | TemplateValue::Args(_)
        | TemplateValue::Data(_)
        | TemplateValue::Sample(Some(_)) => return push_object(out, value, bytes_max),
        TemplateValue::Histogram(histogram) => return push_histogram(out, histogram, bytes_max),
        TemplateValue::Complex(..) => {
            let name = value.type_name();
            return Ok(Err(JsonFormError(format!(
                "json: unsupported type: {name}"
            ))));
        }
    }
    Ok(Ok(()))
}

/// Writes a value with named fields as a JSON object, and any other value like [`push`].
fn push_object(
    out: &mut Vec<u8>,
    value: &TemplateValue,
    bytes_max: usize,
) -> Result<Result<(), JsonFormError>, OutputTooLong> {
    match value {
        TemplateValue::Strings(map) => {
            let pairs = map
                .iter()
                .map(|(k, v)| (&k[..], TemplateValue::String(v.clone())));
            push_map(out, pairs, bytes_max)
        }
        TemplateValue::Params(map) => {
            let pairs = map
                .iter()
                .map(|(k, v)| (&k[..], TemplateValue::Texts(v.clone())));
            push_map(out, pairs, bytes_max)
        }
        TemplateValue::Args(args) => {
            let pairs = args.entries().iter().map(|(k, v)| (&k[..], v.clone()));
            push_map(out, pairs, bytes_max)
        }
        TemplateValue::Data(data) => {
            let pairs = data.fields.iter().map(|(k, v)| (k.as_bytes(), v.clone()));
            push_map(out, pairs, bytes_max)
        }
        TemplateValue::Sample(Some(sample)) => {
            let labels = TemplateValue::Strings(sample.labels.clone());
            let fields = [(&b"Labels"[..], labels), (b"Value", sample.value.clone())];
            push_map(out, fields.into_iter(), bytes_max)
        }
        _ => push(out, value, bytes_max),
    }
}

fn push_map<'v>(
    out: &mut Vec<u8>,
    pairs: impl Iterator<Item = (&'v [u8], TemplateValue)>,
    bytes_max: usize,
) -> Result<Result<(), JsonFormError>, OutputTooLong> {
    out.push(b'{');
    for (index, (key, value)) in pairs.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_string(out, key);
        out.push(b':');
        if let Err(no_form) = push(out, &value, bytes_max)? {
            return Ok(Err(no_form));
        }
    }
    out.push(b'}');
    Ok(Ok(()))
}

fn push_list(
    out: &mut Vec<u8>,
    values: impl Iterator<Item = TemplateValue>,
    bytes_max: usize,
) -> Result<Result<(), JsonFormError>, OutputTooLong> {
    out.push(b'[');
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        if let Err(no_form) = push(out, &value, bytes_max)? {
            return Ok(Err(no_form));
        }
    }
    out.push(b']');
    Ok(Ok(()))
}

/// Writes a histogram with the field names of Go's structure, in their order.
fn push_histogram(
    out: &mut Vec<u8>,
    histogram: &Histogram,
    bytes_max: usize,
) -> Result<Result<(), JsonFormError>, OutputTooLong> {
    let counts = histogram.counts.to_floats();
    let hint = match histogram.reset_hint {
        ResetHint::Unknown => 0,
        ResetHint::Reset => 1,
        ResetHint::NotReset => 2,
        ResetHint::Gauge => 3,
    };
    let _ = write!(
        out,
        "{{\"CounterResetHint\":{hint},\"Schema\":{}",
        histogram.schema
    );
    let numbers = [
        ("ZeroThreshold", histogram.zero_threshold),
        ("ZeroCount", counts.zero_count),
        ("Count", counts.count),
        ("Sum", histogram.sum),
    ];
    for (name, number) in numbers {
        let _ = write!(out, ",\"{name}\":");
        if let Err(no_form) = push(out, &TemplateValue::Float(number), bytes_max)? {
            return Ok(Err(no_form));
        }
    }
    push_spans(out, "PositiveSpans", &histogram.positive_spans);
    push_spans(out, "NegativeSpans", &histogram.negative_spans);
    let lists = [
        ("PositiveBuckets", counts.positive),
        ("NegativeBuckets", counts.negative),
        ("CustomValues", histogram.custom_values.clone()),
    ];
    for (name, list) in lists {
        let _ = write!(out, ",\"{name}\":");
        let value = if list.is_empty() {
            TemplateValue::Invalid
        } else {
            TemplateValue::Floats(list.into())
        };
        if let Err(no_form) = push(out, &value, bytes_max)? {
            return Ok(Err(no_form));
        }
    }
    out.push(b'}');
    Ok(Ok(()))
}

fn push_spans(out: &mut Vec<u8>, name: &str, spans: &[BucketSpan]) {
    let shown =
        |span: &BucketSpan| format!("{{\"Offset\":{},\"Length\":{}}}", span.offset, span.length);
    let shown: Vec<String> = spans.iter().map(shown).collect();
    let _ = if shown.is_empty() {
        write!(out, ",\"{name}\":null")
    } else {
        write!(out, ",\"{name}\":[{}]", shown.join(","))
    };
}

/// Writes a float like Go's `encoding/json`: with an exponent if it is very small or large.
fn push_float(out: &mut Vec<u8>, value: f64) {
    let size = value.abs();
    let written = if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        if text.contains("e-") {
            write!(out, "{text}")
        } else {
            write!(out, "{}", text.replace('e', "e+"))
        }
    } else {
        write!(out, "{value}")
    };
    // Writing to a vector never fails.
    drop(written);
}

/// Writes a JSON string without characters that could end the script element.
fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_char(out, c));
        let bad = chunk.invalid().iter();
        bad.for_each(|_| out.extend_from_slice(b"\\ufffd"));
    }
    out.push(b'"');
}

fn push_char(out: &mut Vec<u8>, c: char) {
    let written = match c {
        '"' | '\\' => write!(out, "\\{c}"),
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        '\u{8}' => write!(out, "\\b"),
        '\u{c}' => write!(out, "\\f"),
        '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
            write!(out, "\\u{:04x}", c as u32)
        }
        c => write!(out, "{c}"),
    };
    // Writing to a vector never fails.
    drop(written);
}

/// Escapes text for a JavaScript string in single or double quotes, including characters that could
/// end the script element.
pub(super) fn escape_string(bytes: &[u8]) -> Vec<u8> {
    escape_line_terminators(&replace_bytes(bytes, |byte| match byte {
        b'\\' => Some("\\\\"),
        b'/' => Some("\\/"),
        byte => sign(byte),
    }))
}

/// Escapes text for a JavaScript template literal, including the characters that start an
/// expression.
pub(super) fn escape_template(bytes: &[u8]) -> Vec<u8> {
    escape_line_terminators(&replace_bytes(bytes, |byte| match byte {
        b'\\' => Some("\\\\"),
        b'/' => Some("\\/"),
        b'$' => Some("\\u0024"),
        b'{' => Some("\\u007b"),
        b'}' => Some("\\u007d"),
        byte => sign(byte),
    }))
}

/// Escapes text for a JavaScript regular expression, in which it matches itself.
pub(super) fn escape_regexp(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return b"(?:)".to_vec();
    }
    escape_line_terminators(&replace_bytes(bytes, |byte| {
        Some(match byte {
            b'`' => return None,
            b'$' => "\\$",
            b'(' => "\\(",
            b')' => "\\)",
            b'*' => "\\*",
            b'-' => "\\-",
            b'.' => "\\.",
            b'/' => "\\/",
            b'?' => "\\?",
            b'[' => "\\[",
            b'\\' => "\\\\",
            b']' => "\\]",
            b'^' => "\\^",
            b'{' => "\\{",
            b'|' => "\\|",
            b'}' => "\\}",
            byte => return sign(byte),
        })
    }))
}

/// Returns the escape of a byte that could end a literal or the script.
fn sign(byte: u8) -> Option<&'static str> {
    const CONTROLS: [&str; 32] = [
        "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007",
        "\\u0008", "\\t", "\\n", "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f", "\\u0010",
        "\\u0011", "\\u0012", "\\u0013", "\\u0014", "\\u0015", "\\u0016", "\\u0017", "\\u0018",
        "\\u0019", "\\u001a", "\\u001b", "\\u001c", "\\u001d", "\\u001e", "\\u001f",
    ];
    Some(match byte {
        b'"' => "\\u0022",
        b'`' => "\\u0060",
        b'&' => "\\u0026",
        b'\'' => "\\u0027",
        b'+' => "\\u002b",
        b'<' => "\\u003c",
        b'>' => "\\u003e",
        byte => return CONTROLS.get(usize::from(byte)).copied(),
    })
}

/// Escapes the two non-ASCII line terminators of JavaScript, U+2028 and U+2029.
fn escape_line_terminators(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((byte, behind)) = rest.split_first() {
        rest = match rest {
            [0xe2, 0x80, 0xa8, behind @ ..] => {
                out.extend_from_slice(b"\\u2028");
                behind
            }
            [0xe2, 0x80, 0xa9, behind @ ..] => {
                out.extend_from_slice(b"\\u2029");
                behind
            }
            _ => {
                out.push(*byte);
                behind
            }
        };
    }
    out
}
