//! Table-driven labels whose values are the texts of XML elements.

use crate::meta::{MetaLabels, sanitize};
use crate::xml::{child_text, find_child, find_children};
use roxmltree::Node;

/// How the text of an XML element is converted to a label value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum XmlTextFormat {
    /// The unchanged text of the element.
    Plain,
    /// A timestamp, truncated to whole seconds.
    Time,
}

/// Suffix of the label name, dot-separated path of the XML element, and conversion of its text.
pub(super) type Row = (&'static str, &'static str, XmlTextFormat);

/// Sets the labels in `rows` from the elements in `node`. Each label name begins with `prefix`.
pub(super) fn set_rows(meta: &mut MetaLabels, prefix: &str, node: Node<'_, '_>, rows: &[Row]) {
    for (label, path, shown) in rows {
        let mut at = Some(node);
        for part in path.split('.') {
            at = at.and_then(|node| find_child(node, part));
        }
        let value = at.and_then(|node| node.text()).unwrap_or_default().trim();
        let value = match shown {
            XmlTextFormat::Plain => value.to_owned(),
            XmlTextFormat::Time => trim_fraction(value),
        };
        meta.set(&format!("{prefix}{label}"), value);
    }
}

/// Sets a label for each tag in the `TagList` element of `node`.
pub(super) fn set_tags(meta: &mut MetaLabels, prefix: &str, node: Node<'_, '_>) {
    let list = find_child(node, "TagList");
    for tag in list.into_iter().flat_map(|list| find_children(list, "Tag")) {
        let name = format!("{prefix}{}", sanitize(child_text(tag, "Key")));
        meta.set(&name, child_text(tag, "Value"));
    }
}

/// Removes the fractional seconds of a timestamp: `2024-01-02T03:04:05.678Z` becomes
/// `2024-01-02T03:04:05Z`.
fn trim_fraction(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
    }
}
