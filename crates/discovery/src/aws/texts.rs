//! Labels that are the texts of elements, by tables.

use crate::meta::{Meta, sanitize};
use crate::xml::{child, children, text};
use roxmltree::Node;

/// How the text of an element is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// As it stands.
    Plain,
    /// A time, without parts of a second.
    Time,
}

/// The end of a label's name, the element or the path to it, and how it is shown.
pub(super) type Row = (&'static str, &'static str, Shown);

/// Sets the labels of `rows` from the elements in `node`, each behind `prefix`.
pub(super) fn set_rows(meta: &mut Meta, prefix: &str, node: Node<'_, '_>, rows: &[Row]) {
    for (label, path, shown) in rows {
        let mut at = Some(node);
        for part in path.split('.') {
            at = at.and_then(|node| child(node, part));
        }
        let value = at.and_then(|node| node.text()).unwrap_or_default().trim();
        let value = match shown {
            Shown::Plain => value.to_owned(),
            Shown::Time => without_fraction(value),
        };
        meta.set(&format!("{prefix}{label}"), value);
    }
}

/// Sets a label for each tag in the list called `TagList` of `node`.
pub(super) fn set_tags(meta: &mut Meta, prefix: &str, node: Node<'_, '_>) {
    let list = child(node, "TagList");
    for tag in list.into_iter().flat_map(|list| children(list, "Tag")) {
        let name = format!("{prefix}{}", sanitize(text(tag, "Key")));
        meta.set(&name, text(tag, "Value"));
    }
}

/// `2024-01-02T03:04:05Z` of `2024-01-02T03:04:05.678Z`
fn without_fraction(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
    }
}
