//! Parses alternations of plain text, `a|b|c` or `(a|b|c)`, without a tree.
//!
//! Dashboards contain such lists, sometimes with thousands of values, and a tree with a node for
//! each value would take ten times as long. All other patterns are left to the parser.

use crate::value_set::{ValueList, ValueSet};

/// The bytes that have a special meaning in patterns.
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

/// Returns whether `byte` has a special meaning in patterns.
pub(super) fn is_special(byte: u8) -> bool {
    IS_SPECIAL[byte as usize]
}

/// Returns the alternatives of `pattern` without escapes, or `None` if the pattern has a different
/// form.
pub(super) fn parse_choices(pattern: &str) -> Option<ValueSet> {
    let bare = pattern.bytes().filter(|byte| *byte == b'|').count();
    let inside = strip_group(pattern);
    let mut choices = ValueList::with_capacity(bare + 1, inside.len());
    let mut rest = inside.as_bytes();
    while let Some(at) = rest.iter().position(|byte| is_special(*byte)) {
        let (text, special) = rest.split_at(at);
        choices.extend(text);
        rest = match special {
            [b'|', rest @ ..] => {
                choices.end_value();
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
    choices.end_value();
    Some(choices.into_set())
}

/// Returns the content of the group if the whole pattern is a group; otherwise the pattern.
fn strip_group(pattern: &str) -> &str {
    let opened = pattern
        .strip_prefix("(?:")
        .or_else(|| pattern.strip_prefix('('));
    let closed = opened.and_then(|rest| rest.strip_suffix(')'));
    closed.unwrap_or(pattern)
}
