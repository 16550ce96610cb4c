//! Rewrites the literal text of a page: removes comments, and escapes `<` characters that do not
//! start a tag.

use super::context::{AttributeDelimiter, HtmlContext, HtmlState};
use super::transition::{ElementEnds, advance, line_end};

/// Texts after `<` that are escaped in JavaScript literals, because they could affect the script
/// element.
const SCRIPT_TAGS: [&[u8]; 3] = [b"script", b"/script", b"!--"];

/// Returns the context after `text` and the text to be written, or Go's error message.
pub(super) fn plan_text(
    mut context: HtmlContext,
    text: &str,
) -> Result<(HtmlContext, String), String> {
    let mut writer = HtmlTextWriter {
        text: text.as_bytes(),
        out: Vec::with_capacity(text.len()),
        written: 0,
    };
    let (mut at, mut ends) = (0, ElementEnds::default());
    while at < text.len() {
        let (next, read) = advance(context.clone(), &writer.text[at..], &mut ends)?;
        if read == 0 && next.state == context.state {
            return Err("the context of the text cannot be determined".to_owned());
        }
        let end = at + read;
        writer.process_piece(&context, &next, at, end);
        (context, at) = (next, end);
    }
    let is_dropped = context.state.is_comment() && context.delim == AttributeDelimiter::None;
    if !(is_dropped && writer.written != 0) {
        writer.up_to(text.len());
    }
    Ok((context, String::from_utf8_lossy(&writer.out).into_owned()))
}

struct HtmlTextWriter<'t> {
    text: &'t [u8],
    out: Vec<u8>,
    /// Start of the text that was not yet written or skipped.
    written: usize,
}

impl HtmlTextWriter<'_> {
    fn up_to(&mut self, end: usize) {
        let piece = self.text.get(self.written..end).unwrap_or_default();
        self.out.extend_from_slice(piece);
        self.written = end;
    }

    /// Processes the text from `start` to `end`, which leads from one context to another.
    fn process_piece(&mut self, from: &HtmlContext, to: &HtmlContext, start: usize, end: usize) {
        if matches!(from.state, HtmlState::Text | HtmlState::RcData) {
            let tag = if from.state == to.state {
                end
            } else {
                self.last_sign(start, end)
            };
            self.escape_signs(start, tag);
        } else if from.state.is_comment() && from.delim == AttributeDelimiter::None {
            self.replace_comment(from.state, end);
        }
        let begins =
            to.state != from.state && to.state.is_comment() && to.delim == AttributeDelimiter::None;
        if begins {
            let sign_len = match to.state {
                HtmlState::HtmlComment | HtmlState::JsHtmlOpenComment => 4,
                HtmlState::JsHtmlCloseComment => 3,
                _ => 2,
            };
            self.up_to(end - sign_len);
            self.written = end;
        }
        if from.state.is_in_script_literal() {
            self.escape_script_tags(start, end);
        }
    }

    /// Returns the position of the `<` of the tag that ends the text.
    fn last_sign(&self, start: usize, end: usize) -> usize {
        let piece = &self.text[start..end];
        let found = piece.iter().rposition(|b| *b == b'<');
        found.map_or(end, |at| start + at)
    }

    fn escape_signs(&mut self, start: usize, end: usize) {
        const DOCTYPE: &[u8] = b"<!DOCTYPE";
        for at in start..end {
            let rest = &self.text[at..];
            let is_doctype = rest
                .get(..DOCTYPE.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(DOCTYPE));
            if rest[0] == b'<' && !is_doctype {
                self.up_to(at);
                self.out.extend_from_slice(b"&lt;");
                self.written = at + 1;
            }
        }
    }

    /// Replaces a comment: in scripts and styles by a space, or by a newline if it contains one.
    fn replace_comment(&mut self, state: HtmlState, end: usize) {
        let comment = self.text.get(self.written..end).unwrap_or_default();
        match state {
            HtmlState::JsBlockComment if line_end(comment).is_some() => self.out.push(b'\n'),
            HtmlState::JsBlockComment | HtmlState::CssBlockComment => self.out.push(b' '),
            _ => {}
        }
        self.written = end;
    }

    fn escape_script_tags(&mut self, start: usize, end: usize) {
        for at in start..end {
            let rest = &self.text[at + 1..end];
            let starts = |tag: &&[u8]| {
                rest.get(..tag.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(tag))
            };
            if self.text[at] == b'<' && SCRIPT_TAGS.iter().any(starts) {
                self.up_to(at);
                self.out.extend_from_slice(b"\\x3C");
                self.written = at + 1;
            }
        }
    }
}
