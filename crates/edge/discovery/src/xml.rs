//! Lookups in XML documents, for responses of discovery APIs.

use super::api::invalid_response_error;
use firn_model::error::Error;
use roxmltree::{Document, Node};

/// Parses a document. Documents with a DTD are rejected, which prevents attacks by entity
/// expansion.
pub(super) fn parse(text: &str) -> Result<Document<'_>, Error> {
    Document::parse(text)
        .map_err(|e| invalid_response_error(format!("cannot read the answer: {e}")))
}

/// Returns the first child element called `name`, in any namespace.
pub(super) fn find_child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    let mut children = node.children();
    children.find(|child| child.is_element() && child.tag_name().name() == name)
}

/// Returns the child elements called `name`, in any namespace.
pub(super) fn find_children<'a, 'i>(
    node: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> {
    let children = node.children();
    children.filter(move |child| child.is_element() && child.tag_name().name() == name)
}

/// Returns the `item` elements of the list called `name`; empty if there is no such list.
pub(super) fn list_items<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Vec<Node<'a, 'i>> {
    let list = find_child(node, name);
    list.map_or(Vec::new(), |list| find_children(list, "item").collect())
}

/// Returns the text of the child called `name`, or an empty string if there is none.
pub(super) fn child_text<'a>(node: Node<'a, '_>, name: &str) -> &'a str {
    let child = find_child(node, name);
    child.and_then(|child| child.text()).unwrap_or_default()
}

/// Returns the source text between the start and end tags of an element.
pub(super) fn inner_source<'a>(node: Node<'a, '_>) -> &'a str {
    let ends = (node.first_child(), node.last_child());
    let (Some(first), Some(last)) = ends else {
        return "";
    };
    let text = node.document().input_text();
    text.get(first.range().start..last.range().end)
        .unwrap_or_default()
}
