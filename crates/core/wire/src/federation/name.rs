//! Escapes metric and label names for clients that accept legacy names only.

use super::accept::NameEscaping;
use firn_model::names::NameScheme;
use std::borrow::Cow;
use std::fmt::Write;

/// Returns `name` with the negotiated `escaping` applied; legacy names are never changed.
pub(super) fn escape_name(name: &str, escaping: NameEscaping) -> Cow<'_, str> {
    if escaping == NameEscaping::AllowUtf8 || is_plain(name) {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len() + 8);
    if escaping == NameEscaping::Values {
        out.push_str("U__");
    }
    for (at, c) in name.char_indices() {
        let is_plain =
            c.is_ascii_alphabetic() || matches!(c, '_' | ':') || (c.is_ascii_digit() && at > 0);
        match (escaping, c) {
            (NameEscaping::Underscores, _) => out.push(if is_plain { c } else { '_' }),
            (NameEscaping::Dots, '.') => out.push_str("_dot_"),
            (_, '_') => out.push_str("__"),
            (_, c) if is_plain => out.push(c),
            (NameEscaping::Dots, _) => out.push_str("__"),
            (_, c) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "_{:x}_", u32::from(c));
            }
        }
    }
    Cow::Owned(out)
}

/// Returns whether `name` is a legacy name, which every client accepts without escaping.
pub(super) fn is_plain(name: &str) -> bool {
    NameScheme::Legacy.allows_metric(name)
}
