//! State transitions in JavaScript: strings, template literals, regular expressions, comments, and
//! the meaning of slashes.

use super::{Moved, position, quote_start};
use crate::html::context::{HtmlContext, HtmlState, JsSlash};
use firn_model::quote::quote;

/// Keywords after which a slash starts a regular expression instead of a division.
const WORDS_BEFORE_VALUES: [&[u8]; 14] = [
    b"break",
    b"case",
    b"continue",
    b"delete",
    b"do",
    b"else",
    b"finally",
    b"in",
    b"instanceof",
    b"return",
    b"throw",
    b"try",
    b"typeof",
    b"void",
];

pub(super) fn step_script(mut context: HtmlContext, text: &[u8]) -> Moved {
    let Some(at) = position(text, b"\"`'/{}<-#") else {
        context.js_slash = slash_after(text, context.js_slash);
        return Ok((context, text.len()));
    };
    context.js_slash = slash_after(&text[..at], context.js_slash);
    let rest = &text[at..];
    let mut len = 1;
    match rest[0] {
        b'"' => enter(&mut context, HtmlState::JsDoubleQuoted),
        b'\'' => enter(&mut context, HtmlState::JsSingleQuoted),
        b'`' => enter(&mut context, HtmlState::JsTemplate),
        b'/' => len = step_slash(&mut context, rest)?,
        b'<' if rest.starts_with(b"<!--") => {
            (context.state, len) = (HtmlState::JsHtmlOpenComment, 4);
        }
        b'-' if rest.starts_with(b"-->") => {
            (context.state, len) = (HtmlState::JsHtmlCloseComment, 3);
        }
        b'#' if rest.starts_with(b"#!") => (context.state, len) = (HtmlState::JsLineComment, 2),
        b'{' => {
            if let Some(open) = context.js_braces.last_mut() {
                *open += 1;
            }
            context.js_slash = JsSlash::Regexp;
        }
        b'}' => close_brace(&mut context),
        _ => {}
    }
    Ok((context, at + len))
}

fn enter(context: &mut HtmlContext, state: HtmlState) {
    context.state = state;
    context.js_slash = JsSlash::Regexp;
}

/// Interprets a slash: changes the state and returns the number of consumed bytes.
fn step_slash(context: &mut HtmlContext, rest: &[u8]) -> Result<usize, String> {
    match (rest.get(1), context.js_slash) {
        (Some(b'/'), _) => {
            context.state = HtmlState::JsLineComment;
            return Ok(2);
        }
        (Some(b'*'), _) => {
            context.state = HtmlState::JsBlockComment;
            return Ok(2);
        }
        (_, JsSlash::Regexp) => context.state = HtmlState::JsRegexp,
        (_, JsSlash::Division) => context.js_slash = JsSlash::Regexp,
        (_, JsSlash::Unknown) => {
            let rest = quote_start(rest);
            return Err(format!("'/' could start a division or regexp: {rest}"));
        }
    }
    Ok(1)
}

/// Processes a closing brace, which ends a block or the expression of a template literal.
fn close_brace(context: &mut HtmlContext) {
    if let Some(open) = context.js_braces.last_mut() {
        *open -= 1;
        if *open < 0 {
            context.js_braces.pop();
            context.state = HtmlState::JsTemplate;
            return;
        }
    }
    context.js_slash = JsSlash::Regexp;
}

fn unfinished_escape(text: &[u8]) -> String {
    let text = quote(text);
    format!("unfinished escape sequence in JS string: {text}")
}

pub(super) fn step_template(mut context: HtmlContext, text: &[u8]) -> Moved {
    let mut start = 0;
    while let Some(at) = position(&text[start..], b"`\\$").map(|at| start + at) {
        start = at + 1;
        match text[at] {
            b'\\' if start == text.len() => return Err(unfinished_escape(text)),
            b'\\' => start += 1,
            b'$' if text.get(start) == Some(&b'{') => {
                context.js_braces.push(0);
                context.state = HtmlState::Js;
                return Ok((context, at + 2));
            }
            b'`' => {
                context.state = HtmlState::Js;
                return Ok((context, at + 1));
            }
            _ => {}
        }
    }
    Ok((context, text.len()))
}

pub(super) fn step_literal(mut context: HtmlContext, text: &[u8]) -> Moved {
    let specials: &[u8] = match context.state {
        HtmlState::JsSingleQuoted => b"\\'",
        HtmlState::JsRegexp => b"\\/[]",
        _ => b"\\\"",
    };
    let (mut start, mut in_set) = (0, false);
    while let Some(at) = position(&text[start..], specials).map(|at| start + at) {
        start = at + 1;
        match text[at] {
            b'\\' if start == text.len() => return Err(unfinished_escape(text)),
            b'\\' => start += 1,
            b'[' => in_set = true,
            b']' => in_set = false,
            b'/' if at > 0 && starts_end_tag(&text[at - 1..]) => start += 1,
            _ if in_set => {}
            _ => {
                (context.state, context.js_slash) = (HtmlState::Js, JsSlash::Division);
                return Ok((context, at + 1));
            }
        }
    }
    if in_set {
        Err(format!("unfinished JS regexp charset: {}", quote(text)))
    } else {
        Ok((context, text.len()))
    }
}

fn starts_end_tag(text: &[u8]) -> bool {
    const END: &[u8] = b"</script";
    text.get(..END.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(END))
}

pub(super) fn step_line_comment(mut context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    match line_end(text) {
        Some(at) => {
            context.state = HtmlState::Js;
            (context, at)
        }
        None => (context, text.len()),
    }
}

/// Returns the position of the first line terminator.
pub(in crate::html) fn line_end(text: &[u8]) -> Option<usize> {
    // U+2028 and U+2029 also end lines; their encodings differ only in the last byte.
    let ends = |at: &usize| match text[*at] {
        b'\n' | b'\r' => true,
        0xe2 => matches!(text.get(at + 1..at + 3), Some([0x80, 0xa8 | 0xa9])),
        _ => false,
    };
    (0..text.len()).find(ends)
}

/// Returns the meaning of a slash after `text`, given its meaning `before` the text.
fn slash_after(text: &[u8], before: JsSlash) -> JsSlash {
    let text = trim_blanks(text);
    let Some((last, rest)) = text.split_last() else {
        return before;
    };
    match last {
        // Usually `++` and `--` are postfix operators of the preceding value.
        b'+' | b'-' => {
            let count = text.iter().rev().take_while(|b| *b == last).count();
            match count % 2 {
                1 => JsSlash::Regexp,
                _ => JsSlash::Division,
            }
        }
        b'.' if rest.last().is_some_and(u8::is_ascii_digit) => JsSlash::Division,
        b'.' | b',' | b'<' | b'>' | b'=' | b'*' | b'%' | b'&' | b'|' | b'^' | b'?' | b'!'
        | b'~' | b'(' | b'[' | b':' | b';' | b'{' | b'}' => JsSlash::Regexp,
        _ => {
            let len = text.iter().rev().take_while(|b| is_word(**b)).count();
            if WORDS_BEFORE_VALUES.contains(&&text[text.len() - len..]) {
                JsSlash::Regexp
            } else {
                JsSlash::Division
            }
        }
    }
}

/// Returns whether a byte is part of a JavaScript identifier, keyword or number.
pub(in crate::html) fn is_word(byte: u8) -> bool {
    byte == b'$' || byte == b'_' || byte.is_ascii_alphanumeric()
}

/// Returns `text` without trailing JavaScript white space, which includes non-ASCII characters.
fn trim_blanks(text: &[u8]) -> &[u8] {
    let is_blank = |c: char| match c {
        '\u{85}' => false,
        c => c.is_whitespace() || c == '\u{feff}',
    };
    match std::str::from_utf8(text) {
        Ok(text) => text.trim_end_matches(is_blank).as_bytes(),
        Err(_) => text.trim_ascii_end(),
    }
}

/// Returns whether a `script` element of this media type contains JavaScript or JSON.
pub(super) fn is_script_type(media: &[u8]) -> bool {
    let media = String::from_utf8_lossy(media);
    let media = media.split(';').next().unwrap_or_default();
    let media = media.trim().to_lowercase();
    if matches!(&media[..], "" | "module") {
        return true;
    }
    let Some((of, kind)) = media.split_once('/') else {
        return false;
    };
    let is_versioned = |kind: &str| {
        let version = kind.strip_prefix("javascript1.");
        version.is_some_and(|v| matches!(v, "0" | "1" | "2" | "3" | "4" | "5"))
    };
    match of {
        "application" => matches!(
            kind,
            "ecmascript" | "javascript" | "json" | "ld+json" | "x-ecmascript" | "x-javascript"
        ),
        "text" => {
            is_versioned(kind)
                || matches!(
                    kind,
                    "ecmascript"
                        | "javascript"
                        | "jscript"
                        | "livescript"
                        | "x-ecmascript"
                        | "x-javascript"
                )
        }
        _ => false,
    }
}
