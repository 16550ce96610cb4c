//! Alternations of plain text, `a|b|c` or `(a|b|c)`, read without a tree.
//!
//! Dashboards write their choices so, thousands of them at times, and a tree of each choice would
//! take ten times as long as the choices. What holds anything else is left to the parser; so is
//! what it would refuse for its size.

use super::TREE_BYTES_MAX;
use super::parser::NODE_BYTES;

/// The choices of `pattern` in their order, escapes resolved; `None` if it is not of that form.
pub(super) fn choices(pattern: &str) -> Option<Vec<Box<[u8]>>> {
    let bare = pattern.bytes().filter(|byte| *byte == b'|').count();
    if (bare + 2) * NODE_BYTES + pattern.len() > TREE_BYTES_MAX {
        return None;
    }
    let inside = without_group(pattern);
    let mut choices = Vec::with_capacity(bare + 1);
    let mut text = Vec::new();
    let mut bytes = inside.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'|' => {
                choices.push(text.as_slice().into());
                text.clear();
            }
            b'\\' => text.push(bytes.next().filter(u8::is_ascii_punctuation)?),
            b'.' | b'*' | b'+' | b'?' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'^' | b'$' => {
                return None;
            }
            _ => text.push(byte),
        }
    }
    choices.push(text.as_slice().into());
    Some(choices)
}

/// What stands in the one group that is the whole pattern, or the pattern.
fn without_group(pattern: &str) -> &str {
    let opened = pattern
        .strip_prefix("(?:")
        .or_else(|| pattern.strip_prefix('('));
    let closed = opened.and_then(|rest| rest.strip_suffix(')'));
    closed.unwrap_or(pattern)
}
