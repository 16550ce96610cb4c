//! A YAML document as a tree with the place of each part.
//!
//! Reads the first document of a text by the rules of Go's `yaml`, which Prometheus uses:
//! [`scanner`] makes tokens, [`tree`] nodes, and [`mapping`] resolves merge keys (`<<`). Anchors
//! and aliases are resolved, and a key that is set twice is an error. Scalars stay text; the
//! schema interprets them with [`scalar`]. [`print`] writes a tree as text again.
//!
//! Invariant: a tree has at most [`node::NODES_MAX`] nodes and [`node::DEPTH_MAX`] levels, copies
//! made by aliases included.

mod encoding;
mod mapping;
mod node;
mod print;
pub mod scalar;
mod scanner;
mod tree;

pub use encoding::decode;
pub use node::{Dialect, Entry, Node, Place, Value, YamlError};
pub use print::print;

/// Reads the first document of `text` as version 2 does; `None` if there is none.
pub fn parse(text: &str) -> Result<Option<Node>, YamlError> {
    parse_as(text, Dialect::V2)
}

/// Reads the first document of `text`; `None` if there is none. What follows the document does
/// not matter.
pub fn parse_as(text: &str, dialect: Dialect) -> Result<Option<Node>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    encoding::check_characters(text)?;
    let root = tree::read_document(text, dialect)?;
    Ok(root.filter(|root| !root.is_null()))
}

#[cfg(test)]
mod tests;
