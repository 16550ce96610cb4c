//! State transitions of the HTML parser over literal text. Scripts and styles are in the child
//! modules.
//!
//! Invariant: the resulting context depends only on the text read so far. A transition that
//! consumes no text changes the state. Only ASCII bytes are significant, so UTF-8 is not decoded.

mod script;
mod style;

use super::attribute::{AttributeValueKind, attribute_value_kind};
use super::context::{
    AttributeDelimiter, AttributeKind, HtmlContext, HtmlElement, HtmlState, UrlPart,
};
use super::entity;
use firn_model::quote::quote;

pub(super) use script::{is_word, line_end};
pub(super) use style::{decode_escapes, is_name_byte};

/// New context and the number of consumed bytes, or Go's error message for malformed text.
pub(super) type Moved = Result<(HtmlContext, usize), String>;

/// Maximum number of characters of a text that an error message shows.
const SHOWN_CHARS: usize = 32;

/// Cached end of the current element in the rest of a text. Without it, a long script would be
/// searched again at each step.
#[derive(Debug, Default)]
pub(super) struct ElementEnds {
    /// Element, and the distance of its end from the end of the text in bytes; `None` if the
    /// element does not end.
    known: Option<(HtmlElement, Option<usize>)>,
}

impl ElementEnds {
    /// Returns the position of the end tag of the current element. `text` must be a suffix of the
    /// text of earlier calls.
    fn find(&mut self, context: &HtmlContext, text: &[u8]) -> Option<usize> {
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
pub(super) fn advance(context: HtmlContext, text: &[u8], ends: &mut ElementEnds) -> Moved {
    if context.delim == AttributeDelimiter::None {
        let end = if ends_in_text(&context) {
            ends.find(&context, text)
        } else {
            None
        };
        return match end {
            Some(0) => Ok((HtmlContext::default(), 0)),
            end => step(context, &text[..end.unwrap_or(text.len())]),
        };
    }
    let ends = context.delim.ends();
    let end = position(text, ends).unwrap_or(text.len());
    if context.delim == AttributeDelimiter::SpaceOrTagEnd
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
    let is_type = context.state == HtmlState::Attr
        && context.element == HtmlElement::Script
        && context.attr == AttributeKind::ScriptType;
    if is_type && !script::is_script_type(&text[..end]) {
        element = HtmlElement::None;
    }
    let quote_len = usize::from(context.delim != AttributeDelimiter::SpaceOrTagEnd);
    let behind = HtmlContext {
        element,
        ..HtmlContext::from_state(HtmlState::Tag)
    };
    Ok((behind, end + quote_len))
}

/// Advances from `context` over the start of `text` without regard to attribute delimiters.
pub(super) fn step(context: HtmlContext, text: &[u8]) -> Moved {
    Ok(match context.state {
        HtmlState::Text => step_text(context, text),
        HtmlState::Tag => return step_tag(context, text),
        HtmlState::AttrName => return step_name(context, text),
        HtmlState::AfterName => step_after_name(context, text),
        HtmlState::BeforeValue => step_before_value(context, text),
        HtmlState::HtmlComment => step_comment(context, text),
        HtmlState::RcData => element_end(context, text),
        HtmlState::Attr | HtmlState::Dead => (context, text.len()),
        HtmlState::Url | HtmlState::SrcSet => (step_url(context, text), text.len()),
        HtmlState::MetaContent => step_meta(context, text),
        HtmlState::MetaContentUrl => step_meta_url(context, text),
        HtmlState::Js => return script::step_script(context, text),
        HtmlState::JsTemplate => return script::step_template(context, text),
        HtmlState::JsDoubleQuoted | HtmlState::JsSingleQuoted | HtmlState::JsRegexp => {
            return script::step_literal(context, text);
        }
        HtmlState::JsBlockComment | HtmlState::CssBlockComment => step_block_comment(context, text),
        HtmlState::JsLineComment | HtmlState::JsHtmlOpenComment | HtmlState::JsHtmlCloseComment => {
            script::step_line_comment(context, text)
        }
        HtmlState::Css => style::step_style(context, text),
        HtmlState::CssDoubleQuoted
        | HtmlState::CssSingleQuoted
        | HtmlState::CssDoubleQuotedUrl
        | HtmlState::CssSingleQuotedUrl
        | HtmlState::CssUrl => return style::step_string(context, text),
        HtmlState::CssLineComment => style::step_line_comment(context, text),
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
fn quote_start(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let start: String = text.chars().take(SHOWN_CHARS).collect();
    quote(start.as_bytes())
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r')
}

/// Returns the position of the first non-space byte at or after `start`.
fn skip_spaces(text: &[u8], start: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    start + rest.iter().take_while(|b| is_space(**b)).count()
}

fn step_text(context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    let mut start = 0;
    while let Some(at) = position(&text[start..], b"<").map(|at| start + at) {
        let rest = &text[at..];
        if rest.len() == 1 {
            break;
        }
        if rest.starts_with(b"<!--") {
            return (HtmlContext::from_state(HtmlState::HtmlComment), at + 4);
        }
        let is_end = rest[1] == b'/';
        let name_at = at + 1 + usize::from(is_end);
        if is_end && name_at == text.len() {
            break;
        }
        let name_end = skip_tag_name(text, name_at);
        if name_end != name_at {
            let element = if is_end {
                HtmlElement::None
            } else {
                HtmlElement::from_name(&text[name_at..name_end])
            };
            let tag = HtmlContext {
                element,
                ..HtmlContext::from_state(HtmlState::Tag)
            };
            return (tag, name_end);
        }
        start = name_end;
    }
    (context, text.len())
}

/// Returns the end of the tag name that starts at `start`; `start` if there is none.
fn skip_tag_name(text: &[u8], start: usize) -> usize {
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

fn step_tag(mut context: HtmlContext, text: &[u8]) -> Moved {
    let start = skip_spaces(text, 0);
    if start == text.len() {
        return Ok((context, start));
    }
    if text[start] == b'>' {
        let element = match context.element {
            HtmlElement::Meta => HtmlElement::None,
            element => element,
        };
        let inside = HtmlContext {
            element,
            ..HtmlContext::from_state(context.element.content_state())
        };
        return Ok((inside, start + 1));
    }
    let end = skip_attr_name(text, start)?;
    if start == end {
        return Err(format!(
            "expected space, attr name, or end of tag, but got {}",
            quote(&text[start..])
        ));
    }
    let name = text[start..end].to_ascii_lowercase();
    let attr = attribute_kind(context.element, &name);
    context = HtmlContext {
        attr,
        element: context.element,
        ..HtmlContext::from_state(if end == text.len() {
            HtmlState::AttrName
        } else {
            HtmlState::AfterName
        })
    };
    Ok((context, end))
}

fn attribute_kind(element: HtmlElement, name: &[u8]) -> AttributeKind {
    match (element, name) {
        (HtmlElement::Script, b"type") => return AttributeKind::ScriptType,
        (HtmlElement::Meta, b"content") => return AttributeKind::MetaContent,
        _ => {}
    }
    match attribute_value_kind(name) {
        AttributeValueKind::Url => AttributeKind::Url,
        AttributeValueKind::Css => AttributeKind::Style,
        AttributeValueKind::Js => AttributeKind::Script,
        AttributeValueKind::SrcSet => AttributeKind::SrcSet,
        AttributeValueKind::Plain | AttributeValueKind::Html | AttributeValueKind::Unsafe => {
            AttributeKind::None
        }
    }
}

fn skip_attr_name(text: &[u8], start: usize) -> Result<usize, String> {
    for (at, byte) in text.iter().enumerate().skip(start) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\x0c' | b'\r' | b'=' | b'>' => return Ok(at),
            b'\'' | b'"' | b'<' => {
                let (bad, around) = (quote(&[*byte]), quote_start(text));
                return Err(format!("{bad} in attribute name: {around}"));
            }
            _ => {}
        }
    }
    Ok(text.len())
}

fn step_name(mut context: HtmlContext, text: &[u8]) -> Moved {
    let end = skip_attr_name(text, 0)?;
    if end != text.len() {
        context.state = HtmlState::AfterName;
    }
    Ok((context, end))
}

fn step_after_name(mut context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    let at = skip_spaces(text, 0);
    match text.get(at) {
        None => (context, at),
        Some(b'=') => {
            context.state = HtmlState::BeforeValue;
            (context, at + 1)
        }
        Some(_) => {
            context.state = HtmlState::Tag;
            (context, at)
        }
    }
}

fn step_before_value(mut context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    let at = skip_spaces(text, 0);
    let (delim, len) = match text.get(at) {
        None => return (context, at),
        Some(b'\'') => (AttributeDelimiter::SingleQuote, 1),
        Some(b'"') => (AttributeDelimiter::DoubleQuote, 1),
        Some(_) => (AttributeDelimiter::SpaceOrTagEnd, 0),
    };
    context.state = context.attr.start_state();
    context.delim = delim;
    (context, at + len)
}

fn step_comment(context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    match find(text, b"-->") {
        Some(at) => (HtmlContext::default(), at + 3),
        None => (context, text.len()),
    }
}

/// Advances to the end tag of an element without child elements.
fn element_end(context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    let end = if ends_in_text(&context) {
        end_tag(text, context.element.end_name())
    } else {
        None
    };
    match end {
        Some(at) => (HtmlContext::default(), at),
        None => (context, text.len()),
    }
}

/// Returns whether an end tag ends the current element in this state.
fn ends_in_text(context: &HtmlContext) -> bool {
    let hides_end = context.state.is_in_script_literal() || context.state.is_comment();
    match context.element {
        HtmlElement::None => false,
        HtmlElement::Script => !hides_end,
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

fn step_url(mut context: HtmlContext, text: &[u8]) -> HtmlContext {
    if position(text, b"#?").is_some() {
        context.url_part = UrlPart::QueryOrFragment;
    } else if skip_spaces(text, 0) != text.len() && context.url_part == UrlPart::None {
        context.url_part = UrlPart::PreQuery;
    }
    context
}

/// Advances over the `content_state` attribute of a `meta` element, which may contain a URL.
fn step_meta(mut context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    for at in 0..text.len().saturating_sub(3) {
        if text[at..at + 3].eq_ignore_ascii_case(b"url") {
            let sign = skip_spaces(text, at + 3);
            if text.get(sign) == Some(&b'=') {
                context.state = HtmlState::MetaContentUrl;
                return (context, sign + 1);
            }
        }
    }
    (context, text.len())
}

fn step_meta_url(mut context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    match position(text, b";") {
        Some(at) => {
            context.state = HtmlState::MetaContent;
            (context, at + 1)
        }
        None => (context, text.len()),
    }
}

fn step_block_comment(mut context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    let Some(at) = find(text, b"*/") else {
        return (context, text.len());
    };
    context.state = match context.state {
        HtmlState::CssBlockComment => HtmlState::Css,
        _ => HtmlState::Js,
    };
    (context, at + 2)
}
