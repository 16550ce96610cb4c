//! Escapes values for HTML text, attribute values and attribute names.

use super::text::{EscaperText, FAILSAFE, replace_bytes};
use crate::html::attribute::{AttributeValueKind, attribute_value_kind};
use crate::html::context::{AttributeDelimiter, HtmlContext, HtmlElement, HtmlState};
use crate::html::transition::{position, step};
use std::fmt::Write;

/// Escapes text for HTML element content or quoted attribute values, including ampersands.
pub(super) fn escape_html(bytes: &[u8]) -> Vec<u8> {
    replace_bytes(bytes, |byte| match byte {
        b'&' => Some("&amp;"),
        byte => sign(byte),
    })
}

/// Returns the replacement of a byte that could end the text or start markup. Ampersands are
/// unchanged.
fn sign(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'\0' => "\u{fffd}",
        b'"' => "&#34;",
        b'\'' => "&#39;",
        b'+' => "&#43;",
        b'<' => "&lt;",
        b'>' => "&gt;",
        _ => return None,
    })
}

/// Escapes the value of a quoted attribute. Tags in safe HTML are removed.
pub(super) fn escape_attr(text: &EscaperText) -> Vec<u8> {
    if text.is_markup {
        replace_bytes(&strip_tags(&text.bytes), sign)
    } else {
        escape_html(&text.bytes)
    }
}

/// Escapes text for an element without child elements. Entities in safe HTML are kept.
pub(super) fn escape_rc_data(text: &EscaperText) -> Vec<u8> {
    if text.is_markup {
        replace_bytes(&text.bytes, sign)
    } else {
        escape_html(&text.bytes)
    }
}

/// Escapes the value of an unquoted attribute. An empty value is replaced by the failsafe.
pub(super) fn escape_unquoted(text: &EscaperText) -> Vec<u8> {
    if text.bytes.is_empty() {
        return FAILSAFE.to_vec();
    }
    if text.is_markup {
        spaces(&strip_tags(&text.bytes), false)
    } else {
        spaces(&text.bytes, true)
    }
}

fn spaces(bytes: &[u8], with_entities: bool) -> Vec<u8> {
    let escaped = replace_bytes(bytes, |byte| {
        Some(match byte {
            b'\0' => "&#xfffd;",
            b'\t' => "&#9;",
            b'\n' => "&#10;",
            b'\x0b' => "&#11;",
            b'\x0c' => "&#12;",
            b'\r' => "&#13;",
            b' ' => "&#32;",
            b'=' => "&#61;",
            b'`' => "&#96;",
            b'&' if with_entities => "&amp;",
            byte => return sign(byte),
        })
    });
    // Some browsers treat noncharacters as the end of an unquoted value.
    let mut out = String::with_capacity(escaped.len());
    for chunk in escaped.utf8_chunks() {
        for c in chunk.valid().chars() {
            let _ = match c {
                '\u{fdd0}'..='\u{fdef}' | '\u{fff0}'..='\u{ffff}' => {
                    write!(out, "&#x{:x};", c as u32)
                }
                c => write!(out, "{c}"),
            };
        }
        chunk
            .invalid()
            .iter()
            .for_each(|_| out.push_str("&#xfffd;"));
    }
    out.into_bytes()
}

/// Returns the attribute name if its values are plain text, else the failsafe.
pub(super) fn filter_attr_name(bytes: &[u8]) -> Vec<u8> {
    let name = String::from_utf8_lossy(bytes).to_lowercase().into_bytes();
    let is_fit = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if attribute_value_kind(&name) == AttributeValueKind::Plain
        && !name.is_empty()
        && name.iter().all(is_fit)
    {
        name
    } else {
        FAILSAFE.to_vec()
    }
}

/// Returns the text of an HTML fragment without tags; malformed markup ends the text.
fn strip_tags(markup: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(markup.len());
    let (mut context, mut at) = (HtmlContext::default(), 0);
    let mut is_text = true;
    while at < markup.len() {
        let rest = &markup[at..];
        if context.delim != AttributeDelimiter::None {
            let Some(end) = position(rest, context.delim.ends()) else {
                break;
            };
            at += end + usize::from(context.delim != AttributeDelimiter::SpaceOrTagEnd);
            context = HtmlContext {
                element: context.element,
                ..HtmlContext::from_state(HtmlState::Tag)
            };
            continue;
        }
        let mut from = context.clone();
        if context.element != HtmlElement::None && !context.state.is_in_tag() {
            from.state = HtmlState::RcData;
        }
        let Ok((next, read)) = step(from, rest) else {
            is_text = false;
            break;
        };
        match context.state {
            HtmlState::Text | HtmlState::RcData => {
                let mut text = &rest[..read];
                if next.state != context.state
                    && let Some(sign) = text.iter().rposition(|b| *b == b'<')
                {
                    text = &text[..sign];
                }
                out.extend_from_slice(text);
            }
            _ => is_text = false,
        }
        (context, at) = (next, at + read);
    }
    if is_text { markup.to_vec() } else { out }
}
