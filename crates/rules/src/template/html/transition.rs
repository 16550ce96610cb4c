//! State transitions of the HTML parser over literal text. Scripts and styles are in the child
//! modules.
//!
//! Invariant: the resulting context depends only on the text read so far. A transition that
//! consumes no text changes the state. Only ASCII bytes are significant, so UTF-8 is not decoded.

mod script;
mod style;

use super::attribute::{ValueKind, kind_of};
use super::context::{Attr, Context, Delim, Element, State, UrlPart};
use super::entity;
use firn_model::quote::quote;

pub(super) use script::{is_word, line_end};
pub(super) use style::{decoded, is_name_byte};

/// New context and the number of consumed bytes, or Go's error message for malformed text.
pub(super) type Moved = Result<(Context, usize), String>;

/// Maximum number of characters of a text that an error message shows.
const SHOWN_CHARS: usize = 32;

/// Cached end of the current element in the rest of a text. Without it, a long script would be
/// searched again at each step.
#[derive(Debug, Default)]
pub(super) struct ElementEnds {
    /// Element, and the distance of its end from the end of the text in bytes; `None` if the
    /// element does not end.
    known: Option<(Element, Option<usize>)>,
}

impl ElementEnds {
    /// Returns the position of the end tag of the current element. `text` must be a suffix of the
    /// text of earlier calls.
    fn find(&mut self, context: &Context, text: &[u8]) -> Option<usize> {
        let element = context.element;
        if let Some((known, end)) = self.known
            && known == element
        {
            match end {
                None => return None,
                Some(left) if left <= text.len() => return Some(text.len() - left),
                Some(_) => {}
            }
        }
        let end = end_tag(text, element.end_name());
        self.known = Some((element, end.map(|at| text.len() - at)));
        end
    }
}

/// Advances from `context` over the start of `text`, which must not be empty. Attribute values end
/// at their delimiter and have their entities decoded.
pub(super) fn advance(context: Context, text: &[u8], ends: &mut ElementEnds) -> Moved {
    if context.delim == Delim::None {
        let end = match ends_in_text(&context) {
            true => ends.find(&context, text),
            false => None,
        };
        return match end {
            Some(0) => Ok((Context::default(), 0)),
            end => step(context, &text[..end.unwrap_or(text.len())]),
        };
    }
    let ends = context.delim.ends();
    let end = position(text, ends).unwrap_or(text.len());
    if context.delim == Delim::SpaceOrTagEnd
        && let Some(at) = position(&text[..end], b"\"'<=`")
    {
        let (bad, value) = (quote(&text[at..=at]), quote(&text[..end]));
        return Err(format!("{bad} in unquoted attr: {value}"));
    }
    if end == text.len() {
        let mut context = context;
        let meant = entity::unescape(text, context.state)?;
        let mut rest = &meant[..];
        while !rest.is_empty() {
            let (next, read) = step(context, rest)?;
            (context, rest) = (next, &rest[read..]);
        }
        return Ok((context, text.len()));
    }
    let mut element = context.element;
    let is_type = context.state == State::Attr
        && context.element == Element::Script
        && context.attr == Attr::ScriptType;
    if is_type && !script::is_script_type(&text[..end]) {
        element = Element::None;
    }
    let quote_len = usize::from(context.delim != Delim::SpaceOrTagEnd);
    let behind = Context {
        element,
        ..Context::of(State::Tag)
    };
    Ok((behind, end + quote_len))
}

/// Advances from `context` over the start of `text` without regard to attribute delimiters.
pub(super) fn step(context: Context, text: &[u8]) -> Moved {
    Ok(match context.state {
        State::Text => in_text(context, text),
        State::Tag => return in_tag(context, text),
        State::AttrName => return in_name(context, text),
        State::AfterName => behind_name(context, text),
        State::BeforeValue => before_value(context, text),
        State::HtmlComment => in_comment(context, text),
        State::RcData => element_end(context, text),
        State::Attr | State::Dead => (context, text.len()),
        State::Url | State::SrcSet => (in_url(context, text), text.len()),
        State::MetaContent => in_meta(context, text),
        State::MetaContentUrl => in_meta_url(context, text),
        State::Js => return script::in_script(context, text),
        State::JsTemplate => return script::in_template(context, text),
        State::JsDoubleQuoted | State::JsSingleQuoted | State::JsRegexp => {
            return script::in_literal(context, text);
        }
        State::JsBlockComment | State::CssBlockComment => in_block_comment(context, text),
        State::JsLineComment | State::JsHtmlOpenComment | State::JsHtmlCloseComment => {
            script::in_line_comment(context, text)
        }
        State::Css => style::in_style(context, text),
        State::CssDoubleQuoted
        | State::CssSingleQuoted
        | State::CssDoubleQuotedUrl
        | State::CssSingleQuotedUrl
        | State::CssUrl => return style::in_string(context, text),
        State::CssLineComment => style::in_line_comment(context, text),
    })
}

/// Returns the position of the first byte that is one of `any_of`.
pub(super) fn position(text: &[u8], any_of: &[u8]) -> Option<usize> {
    text.iter().position(|b| any_of.contains(b))
}

/// Returns the position of the first occurrence of `part` in `text`, which must not be empty.
fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Returns the start of `text` in quotes, at most 32 characters, for error messages.
fn quoted_start(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let start: String = text.chars().take(SHOWN_CHARS).collect();
    quote(start.as_bytes())
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r')
}

/// Returns the position of the first non-space byte at or after `start`.
fn behind_spaces(text: &[u8], start: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    start + rest.iter().take_while(|b| is_space(**b)).count()
}

fn in_text(context: Context, text: &[u8]) -> (Context, usize) {
    let mut start = 0;
    while let Some(at) = position(&text[start..], b"<").map(|at| start + at) {
        let rest = &text[at..];
        if rest.len() == 1 {
            break;
        }
        if rest.starts_with(b"<!--") {
            return (Context::of(State::HtmlComment), at + 4);
        }
        let is_end = rest[1] == b'/';
        let name_at = at + 1 + usize::from(is_end);
        if is_end && name_at == text.len() {
            break;
        }
        let name_end = behind_tag_name(text, name_at);
        if name_end != name_at {
            let element = match is_end {
                true => Element::None,
                false => Element::of(&text[name_at..name_end]),
            };
            let tag = Context {
                element,
                ..Context::of(State::Tag)
            };
            return (tag, name_end);
        }
        start = name_end;
    }
    (context, text.len())
}

/// Returns the end of the tag name that starts at `start`; `start` if there is none.
fn behind_tag_name(text: &[u8], start: usize) -> usize {
    if !text.get(start).is_some_and(u8::is_ascii_alphabetic) {
        return start;
    }
    let mut end = start + 1;
    while let Some(byte) = text.get(end) {
        let next = text.get(end + 1);
        if byte.is_ascii_alphanumeric() {
            end += 1;
        } else if matches!(byte, b':' | b'-') && next.is_some_and(u8::is_ascii_alphanumeric) {
            end += 2;
        } else {
            break;
        }
    }
    end
}

fn in_tag(mut context: Context, text: &[u8]) -> Moved {
    let start = behind_spaces(text, 0);
    if start == text.len() {
        return Ok((context, start));
    }
    if text[start] == b'>' {
        let element = match context.element {
            Element::Meta => Element::None,
            element => element,
        };
        let inside = Context {
            element,
            ..Context::of(context.element.content())
        };
        return Ok((inside, start + 1));
    }
    let end = behind_attr_name(text, start)?;
    if start == end {
        return Err(format!(
            "expected space, attr name, or end of tag, but got {}",
            quote(&text[start..])
        ));
    }
    let name = text[start..end].to_ascii_lowercase();
    let attr = attr_of(context.element, &name);
    context = Context {
        attr,
        element: context.element,
        ..Context::of(match end == text.len() {
            true => State::AttrName,
            false => State::AfterName,
        })
    };
    Ok((context, end))
}

fn attr_of(element: Element, name: &[u8]) -> Attr {
    match (element, name) {
        (Element::Script, b"type") => return Attr::ScriptType,
        (Element::Meta, b"content") => return Attr::MetaContent,
        _ => {}
    }
    match kind_of(name) {
        ValueKind::Url => Attr::Url,
        ValueKind::Css => Attr::Style,
        ValueKind::Js => Attr::Script,
        ValueKind::SrcSet => Attr::SrcSet,
        ValueKind::Plain | ValueKind::Html | ValueKind::Unsafe => Attr::None,
    }
}

fn behind_attr_name(text: &[u8], start: usize) -> Result<usize, String> {
    for (at, byte) in text.iter().enumerate().skip(start) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\x0c' | b'\r' | b'=' | b'>' => return Ok(at),
            b'\'' | b'"' | b'<' => {
                let (bad, around) = (quote(&[*byte]), quoted_start(text));
                return Err(format!("{bad} in attribute name: {around}"));
            }
            _ => {}
        }
    }
    Ok(text.len())
}

fn in_name(mut context: Context, text: &[u8]) -> Moved {
    let end = behind_attr_name(text, 0)?;
    if end != text.len() {
        context.state = State::AfterName;
    }
    Ok((context, end))
}

fn behind_name(mut context: Context, text: &[u8]) -> (Context, usize) {
    let at = behind_spaces(text, 0);
    match text.get(at) {
        None => (context, at),
        Some(b'=') => {
            context.state = State::BeforeValue;
            (context, at + 1)
        }
        Some(_) => {
            context.state = State::Tag;
            (context, at)
        }
    }
}

fn before_value(mut context: Context, text: &[u8]) -> (Context, usize) {
    let at = behind_spaces(text, 0);
    let (delim, len) = match text.get(at) {
        None => return (context, at),
        Some(b'\'') => (Delim::SingleQuote, 1),
        Some(b'"') => (Delim::DoubleQuote, 1),
        Some(_) => (Delim::SpaceOrTagEnd, 0),
    };
    context.state = context.attr.start();
    context.delim = delim;
    (context, at + len)
}

fn in_comment(context: Context, text: &[u8]) -> (Context, usize) {
    match find(text, b"-->") {
        Some(at) => (Context::default(), at + 3),
        None => (context, text.len()),
    }
}

/// Advances to the end tag of an element without child elements.
fn element_end(context: Context, text: &[u8]) -> (Context, usize) {
    let end = match ends_in_text(&context) {
        true => end_tag(text, context.element.end_name()),
        false => None,
    };
    match end {
        Some(at) => (Context::default(), at),
        None => (context, text.len()),
    }
}

/// Returns whether an end tag ends the current element in this state.
fn ends_in_text(context: &Context) -> bool {
    let hides_end = context.state.is_in_script_literal() || context.state.is_comment();
    match context.element {
        Element::None => false,
        Element::Script => !hides_end,
        _ => true,
    }
}

fn end_tag(text: &[u8], name: &[u8]) -> Option<usize> {
    let mut start = 0;
    while let Some(at) = find(&text[start..], b"</").map(|at| start + at) {
        start = at + 2;
        let Some((tag, rest)) = text[start..].split_at_checked(name.len()) else {
            continue;
        };
        if !tag.eq_ignore_ascii_case(name) {
            continue;
        }
        start += name.len();
        if matches!(rest, [b'>' | b' ' | b'\t' | b'\n' | b'\x0c' | b'/', ..]) {
            return Some(at);
        }
    }
    None
}

fn in_url(mut context: Context, text: &[u8]) -> Context {
    if position(text, b"#?").is_some() {
        context.url_part = UrlPart::QueryOrFragment;
    } else if behind_spaces(text, 0) != text.len() && context.url_part == UrlPart::None {
        context.url_part = UrlPart::PreQuery;
    }
    context
}

/// Advances over the `content` attribute of a `meta` element, which may contain a URL.
fn in_meta(mut context: Context, text: &[u8]) -> (Context, usize) {
    for at in 0..text.len().saturating_sub(3) {
        if text[at..at + 3].eq_ignore_ascii_case(b"url") {
            let sign = behind_spaces(text, at + 3);
            if text.get(sign) == Some(&b'=') {
                context.state = State::MetaContentUrl;
                return (context, sign + 1);
            }
        }
    }
    (context, text.len())
}

fn in_meta_url(mut context: Context, text: &[u8]) -> (Context, usize) {
    match position(text, b";") {
        Some(at) => {
            context.state = State::MetaContent;
            (context, at + 1)
        }
        None => (context, text.len()),
    }
}

fn in_block_comment(mut context: Context, text: &[u8]) -> (Context, usize) {
    let Some(at) = find(text, b"*/") else {
        return (context, text.len());
    };
    context.state = match context.state {
        State::CssBlockComment => State::Css,
        _ => State::Js,
    };
    (context, at + 2)
}
