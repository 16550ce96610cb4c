//! Alternations of plain text, `a|b|c` or `(a|b|c)`, read without a tree.
//!
//! Dashboards write their choices so, thousands of them at times, and a tree of each choice would
//! take ten times as long as the choices. What holds anything else is left to the parser.

use crate::value_set::{ValueList, ValueSet};

/// The bytes that do not stand for themselves.
const IS_SPECIAL: [bool; 256] = {
    let special = br"|\.*+?()[]{}^$";
    let mut is_special = [false; 256];
    let mut at = 0;
    while at < special.len() {
        is_special[special[at] as usize] = true;
        at += 1;
    }
    is_special
};

/// Whether `byte` does not stand for itself.
pub(super) fn is_special(byte: u8) -> bool {
    IS_SPECIAL[byte as usize]
}

/// The choices of `pattern`, escapes resolved; `None` if it is not of that form.
pub(super) fn choices(pattern: &str) -> Option<ValueSet> {
    let bare = pattern.bytes().filter(|byte| *byte == b'|').count();
    let inside = without_group(pattern);
    let mut choices = ValueList::with_capacity(bare + 1, inside.len());
    let mut rest = inside.as_bytes();
    while let Some(at) = rest.iter().position(|byte| is_special(*byte)) {
        let (text, special) = rest.split_at(at);
        choices.extend(text);
        rest = match special {
            [b'|', rest @ ..] => {
                choices.end();
                rest
            }
            [b'\\', escaped, rest @ ..] if escaped.is_ascii_punctuation() => {
                choices.extend(&[*escaped]);
                rest
            }
            _ => return None,
        };
    }
    choices.extend(rest);
    choices.end();
    Some(choices.into_set())
}

/// What stands in the one group that is the whole pattern, or the pattern.
fn without_group(pattern: &str) -> &str {
    let opened = pattern
        .strip_prefix("(?:")
        .or_else(|| pattern.strip_prefix('('));
    let closed = opened.and_then(|rest| rest.strip_suffix(')'));
    closed.unwrap_or(pattern)
}
