//! Elements of Prometheus's JSON: strings, numbers and timestamps, byte-identical to Go's output.
//!
//! Label sets and results are escaped less than other documents: upstream's encoders for them do
//! not escape `<`, `>` and `&`, while its generic encoder does. Both forms are implemented.

pub(crate) mod histogram;
pub(crate) mod tree;

use std::io::Write;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends a string like upstream's encoders of results, which leave the special characters of HTML
/// unescaped.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    push_escaped(out, text, |b| b < 0x20 || b == b'"' || b == b'\\', false);
}

/// Appends a string like Go's `encoding/json`, which also escapes the special characters of HTML
/// and the line separators of JavaScript.
pub(crate) fn push_html_string(out: &mut Vec<u8>, text: &[u8]) {
    push_escaped(out, text, is_html_special, true);
}

/// Escapes the strings of a document like [`push_html_string`]. The additional special characters
/// cannot occur outside of strings.
pub(crate) fn escape_html(document: Vec<u8>) -> Vec<u8> {
    let is_special = |b: &u8| matches!(b, b'<' | b'>' | b'&') || *b == LINE_SEPARATOR_LEAD;
    if !document.iter().any(is_special) {
        return document;
    }
    let mut out = Vec::with_capacity(document.len() + document.len() / 8);
    let mut rest = document.as_slice();
    while let Some(at) = rest.iter().position(is_special) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        let (escaped, bytes): (&[u8], usize) = match special {
            [b'<', ..] => (b"\\u003c", 1),
            [b'>', ..] => (b"\\u003e", 1),
            [b'&', ..] => (b"\\u0026", 1),
            [LINE_SEPARATOR_LEAD, 0x80, 0xa8, ..] => (b"\\u2028", 3),
            [LINE_SEPARATOR_LEAD, 0x80, 0xa9, ..] => (b"\\u2029", 3),
            _ => (&[LINE_SEPARATOR_LEAD], 1),
        };
        out.extend_from_slice(escaped);
        rest = special.get(bytes..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// Returns an upper bound of the bytes that [`push_html_string`] writes, including the rest of a
/// small document.
pub(crate) fn html_string_bytes_max(text: &[u8]) -> usize {
    const AROUND_BYTES: usize = 64;
    let more = |b: &u8| match b {
        b'\n' | b'"' | b'\\' => 1,
        // `\u003c`, or U+FFFD for an invalid byte.
        b if is_html_special(*b) || *b >= 0x80 => 5,
        _ => 0,
    };
    AROUND_BYTES + text.len() + text.iter().map(more).sum::<usize>()
}

fn is_html_special(b: u8) -> bool {
    b < 0x20 || matches!(b, b'"' | b'\\' | b'<' | b'>' | b'&') || b == LINE_SEPARATOR_LEAD
}

/// First byte of U+2028 and U+2029 in UTF-8.
const LINE_SEPARATOR_LEAD: u8 = 0xe2;

/// Appends an escaped string. Invalid UTF-8 is replaced by U+FFFD, because JSON cannot represent
/// it.
fn push_escaped(out: &mut Vec<u8>, text: &[u8], is_special: impl Fn(u8) -> bool, html: bool) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        let bytes = chunk.valid().as_bytes();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|b| is_special(*b)) {
            let (plain, special) = rest.split_at(at);
            out.extend_from_slice(plain);
            rest = &special[push_special(out, special, html)..];
        }
        out.extend_from_slice(rest);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(br"\ufffd");
        }
    }
    out.push(b'"');
}

/// Writes the escape of the first character in `text`. Returns the length of the character in
/// `text` in bytes.
fn push_special(out: &mut Vec<u8>, text: &[u8], html: bool) -> usize {
    match text {
        [b @ (b'"' | b'\\'), ..] => out.extend_from_slice(&[b'\\', *b]),
        [b'\n', ..] => out.extend_from_slice(br"\n"),
        [b'\r', ..] => out.extend_from_slice(br"\r"),
        [b'\t', ..] => out.extend_from_slice(br"\t"),
        [0xe2, 0x80, last @ (0xa8 | 0xa9), ..] if html => {
            out.extend_from_slice(br"\u202");
            out.push(HEX[usize::from(last & 0xf)]);
            return 3;
        }
        [b, ..] if *b >= 0x80 => out.push(*b),
        [b, ..] => {
            out.extend_from_slice(br"\u00");
            out.push(HEX[usize::from(b >> 4)]);
            out.push(HEX[usize::from(b & 0xf)]);
        }
        [] => return 0,
    }
    1
}

/// Appends a time in milliseconds as seconds: `1435781451.781`. The fraction has three digits, or
/// is omitted if it is zero.
pub(crate) fn push_timestamp(out: &mut Vec<u8>, time_ms: i64) {
    if time_ms < 0 {
        out.push(b'-');
    }
    let magnitude = time_ms.unsigned_abs();
    push_unsigned(out, magnitude / 1000);
    let fraction = magnitude % 1000;
    if fraction != 0 {
        let digit = |n: u64| b'0' + (n % 10) as u8;
        out.extend_from_slice(&[
            b'.',
            digit(fraction / 100),
            digit(fraction / 10),
            digit(fraction),
        ]);
    }
}

fn push_unsigned(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Use of exponents in formatted floats, which differs between samples and scalars in upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatNotation {
    /// Format of samples: with exponents below 1e-6 and from 1e21 on.
    Sample,
    /// Format of scalars in upstream: never with an exponent.
    Plain,
}

/// Appends a float, without quotes, in Go's shortest form that parses to the same value.
pub(crate) fn push_float(out: &mut Vec<u8>, value: f64, form: FloatNotation) {
    /// All integers below this are exact, and their digits are the shortest form.
    const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
    if value.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let magnitude = value.abs();
    if magnitude < EXACT_INTEGER_MAX && magnitude.trunc() == magnitude {
        return push_unsigned(out, magnitude as u64);
    }
    let exponential = form == FloatNotation::Sample && !(1e-6..1e21).contains(&magnitude);
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(magnitude);
    if !exponential && !text.contains('e') {
        return out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
    }
    Decimal::parse(text).push(out, exponential);
}

/// Significant digits without leading or trailing zeros, and the decimal exponent of the first one.
/// Used for floats that need an exponent or zeros.
struct Decimal {
    digits: Vec<u8>,
    exponent: i32,
}

impl Decimal {
    /// Parses the output of a float formatter for a positive finite number, with or without an
    /// exponent.
    fn parse(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let zeros = digits.iter().take_while(|d| **d == b'0').count();
        let end = digits
            .iter()
            .rposition(|d| *d != b'0')
            .map_or(zeros, |i| i + 1);
        Self {
            digits: digits[zeros..end].to_vec(),
            exponent: exponent + whole.len() as i32 - 1 - zeros as i32,
        }
    }

    fn push(&self, out: &mut Vec<u8>, exponential: bool) {
        if exponential {
            return self.push_exponential(out);
        }
        let Ok(exponent) = usize::try_from(self.exponent) else {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-1 - self.exponent) as usize, b'0');
            return out.extend_from_slice(&self.digits);
        };
        let whole = self.digits.len().min(exponent + 1);
        out.extend_from_slice(&self.digits[..whole]);
        out.resize(out.len() + exponent + 1 - whole, b'0');
        if whole < self.digits.len() {
            out.push(b'.');
            out.extend_from_slice(&self.digits[whole..]);
        }
    }

    fn push_exponential(&self, out: &mut Vec<u8>) {
        let (first, rest) = self.digits.split_at(1);
        out.extend_from_slice(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        let sign = if self.exponent < 0 { '-' } else { '+' };
        write!(out, "e{sign}{:02}", self.exponent.abs()).expect("writing to a Vec does not fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escape_html_writes_texts_as_push_html_string_does() {
        for text in ["", "a<b>&c", "\u{2028}\u{2029}\u{2030}é", "\"\\\n"] {
            let mut want = Vec::new();
            push_html_string(&mut want, text.as_bytes());
            let document = serde_json::to_vec(text).unwrap();
            assert_eq!(escape_html(document), want, "{text:?}");
        }
    }

    #[test]
    fn push_html_string_writes_no_more_than_it_may() {
        for part in [
            "a",
            "\n",
            "\"",
            "\\",
            "<",
            "\u{1}",
            "\u{2028}",
            "é",
            "\u{1f600}",
        ] {
            let long = part.repeat(1000);
            let mut out = Vec::new();
            push_html_string(&mut out, long.as_bytes());
            let max = html_string_bytes_max(long.as_bytes());
            assert!(out.len() <= max, "{part:?}: {} bytes of {max}", out.len());
        }
        let mut out = Vec::new();
        push_html_string(&mut out, &[0xff; 1000]);
        assert!(out.len() <= html_string_bytes_max(&[0xff; 1000]));
    }

    #[test]
    fn push_float_writes_as_go() {
        let cases: [(f64, &str); 22] = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (1e-6, "0.000001"),
            (1.5e-6, "0.0000015"),
            (9.99e-7, "9.99e-07"),
            (1e-7, "1e-07"),
            (5e-324, "5e-324"),
            (1e20, "100000000000000000000"),
            (123456789012345680000.0, "123456789012345680000"),
            (1e21, "1e+21"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (9007199254740993.0, "9007199254740992"),
            (1e15 + 0.5, "1000000000000000.5"),
            (1.0 / 3.0, "0.3333333333333333"),
            (2.5e17, "250000000000000000"),
            (1234567890.123, "1234567890.123"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (value, want) in cases {
            assert_eq!(
                text(|out| push_float(out, value, FloatNotation::Sample)),
                want
            );
        }
        assert_eq!(
            text(|out| push_float(out, 1e22, FloatNotation::Plain)),
            format!("1{:022}", 0)
        );
        assert_eq!(
            text(|out| push_float(out, 2.5e-9, FloatNotation::Plain)),
            "0.0000000025"
        );
    }

    #[test]
    fn push_float_of_random_bits_reads_back() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let value = f64::from_bits(state);
            if value.is_nan() {
                continue;
            }
            for form in [FloatNotation::Sample, FloatNotation::Plain] {
                let written = text(|out| push_float(out, value, form));
                let read: f64 = written.parse().unwrap();
                assert_eq!(read.to_bits(), value.to_bits(), "{value:e} as {written}");
                let has_exponent = written.contains('e');
                let wants_exponent =
                    form == FloatNotation::Sample && !(1e-6..1e21).contains(&value.abs());
                assert_eq!(
                    has_exponent,
                    wants_exponent && value.is_finite(),
                    "{written}"
                );
            }
        }
    }

    #[test]
    fn push_timestamp_writes_milliseconds_as_seconds() {
        let cases = [
            (0, "0"),
            (1, "0.001"),
            (10, "0.010"),
            (1435781451781, "1435781451.781"),
            (1435781451000, "1435781451"),
            (1435781451700, "1435781451.700"),
            (-1, "-0.001"),
            (-12345, "-12.345"),
            (i64::MIN, "-9223372036854775.808"),
        ];
        for (time, want) in cases {
            assert_eq!(text(|out| push_timestamp(out, time)), want);
        }
    }

    #[test]
    fn push_string_escapes_as_upstream() {
        let input = "a\"b\\c\n\r\t\u{1}<>&\u{2028}\u{2029}ü\u{7f}";
        assert_eq!(
            text(|out| push_string(out, input.as_bytes())),
            "\"a\\\"b\\\\c\\n\\r\\t\\u0001<>&\u{2028}\u{2029}ü\u{7f}\""
        );
        assert_eq!(
            text(|out| push_html_string(out, input.as_bytes())),
            "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u003c\\u003e\\u0026\\u2028\\u2029ü\u{7f}\""
        );
        assert_eq!(text(|out| push_html_string(out, "€".as_bytes())), "\"€\"");
        assert_eq!(text(|out| push_string(out, b"a\xffb")), "\"a\\ufffdb\"");
    }
}
