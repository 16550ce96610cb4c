//! Replacement templates with `$1`, `${1}`, `$name` and `${name}`, like Go's `Regexp.Expand`.

use super::Captures;

/// The largest group number that is parsed as a number.
const GROUP_MAX: usize = 100_000_000;

/// Appends `template` to `into`, with its references replaced by the matches of groups in
/// `captures`.
pub(super) fn expand(captures: &Captures<'_, '_>, template: &str, into: &mut Vec<u8>) {
    for_each_piece(captures, template, |piece| into.extend_from_slice(piece));
}

/// Returns the number of bytes that [`expand`] appends, without allocating.
pub(super) fn expanded_len(captures: &Captures<'_, '_>, template: &str) -> usize {
    let mut len = 0usize;
    for_each_piece(captures, template, |piece| {
        len = len.saturating_add(piece.len())
    });
    len
}

/// Passes the expanded template to `each` in pieces, so that it is not built twice.
fn for_each_piece(captures: &Captures<'_, '_>, template: &str, mut each: impl FnMut(&[u8])) {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        each(before.as_bytes());
        if let Some(after) = after.strip_prefix('$') {
            each(b"$");
            rest = after;
        } else if let Some((name, after)) = parse_reference(after) {
            each(group(captures, name).unwrap_or_default());
            rest = after;
        } else {
            each(b"$");
            rest = after;
        }
    }
    each(rest.as_bytes());
}

/// Returns the name after a dollar sign and the remaining text, or `None` if the dollar sign is
/// literal.
fn parse_reference(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix('{');
    let name_and_rest = inside.unwrap_or(text);
    let is_word = |c: char| c == '_' || c.is_alphabetic() || c.is_numeric();
    let end = name_and_rest
        .find(|c| !is_word(c))
        .unwrap_or(name_and_rest.len());
    let (name, rest) = name_and_rest.split_at(end);
    let rest = match inside {
        Some(_) => rest.strip_prefix('}')?,
        None => rest,
    };
    (!name.is_empty()).then_some((name, rest))
}

fn group<'v>(captures: &Captures<'_, 'v>, name: &str) -> Option<&'v [u8]> {
    let is_number =
        name.bytes().all(|b| b.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    match name.parse::<usize>() {
        Ok(index) if is_number && index < GROUP_MAX => captures.get(index),
        _ => captures.get_named(name),
    }
}
